//! Ways in by certificates of a user CA, and lists of revoked keys.
//! Real clients against the node; against sshd too with `FLEETGATE_INTEROP=both`.

use super::logins::OUT;
use fleetgate_tests::ways_in::{Table, drive};

#[test]
fn certificates_of_a_user_ca() {
    let mut revoked: Vec<Table> = Vec::new();
    // Each kind of list: the certificate's key, another's, serial numbers, names, the authority itself.
    for (spec, outcome, tells) in [
        (
            "ssh-keygen -q -k -f $T/list $T/user_ed25519.pub",
            OUT,
            "login_refused revoked",
        ),
        (
            "ssh-keygen -q -k -f $T/list $T/user_rsa.pub",
            "0 in",
            "login_accepted",
        ),
        (
            "echo serial: 5-9 > s; ssh-keygen -q -k -s $T/user_ca.pub -f $T/list s",
            OUT,
            "login_refused revoked",
        ),
        (
            "echo serial: 8-9 > s; ssh-keygen -q -k -s $T/user_ca.pub -f $T/list s",
            "0 in",
            "login_accepted",
        ),
        (
            "echo id: badge > s; ssh-keygen -q -k -s $T/user_ca.pub -f $T/list s",
            OUT,
            "login_refused revoked",
        ),
        (
            "echo id: other > s; ssh-keygen -q -k -s $T/user_ca.pub -f $T/list s",
            "0 in",
            "login_accepted",
        ),
        (
            "ssh-keygen -q -k -f $T/list $T/user_ca.pub",
            OUT,
            "login_refused revoked",
        ),
        ("cp $T/user_ed25519.pub $T/list", OUT, "login_refused revoked"),
        ("cp $T/user_ca.pub $T/list", OUT, "login_refused revoked"),
        ("cp $T/user_rsa.pub $T/list", "0 in", "login_accepted"),
    ] {
        let tells: &'static [&'static str] = Vec::leak(vec![tells]);
        let ask = if outcome == OUT {
            "badge true 2>&1"
        } else {
            "badge echo in"
        };
        revoked.push(Table {
            before: spec,
            node: "trusted_user_ca = \"/run/test/user_ca.pub\"\nrevoked_keys = \"/run/test/list\"\npam = \"off\"",
            sshd: Some("UsePAM no\nTrustedUserCAKeys /run/test/user_ca.pub\nAuthorizedKeysFile none\nRevokedKeys /run/test/list"),
            cases: Vec::leak(vec![("mint -n ada", ask, outcome, tells)]),
        });
    }
    let mut tables = vec![
        Table {
            before: "line ''",
            node: "trusted_user_ca = \"/run/test/user_ca.pub\"\npam = \"off\"",
            sshd: Some("UsePAM no\nTrustedUserCAKeys /run/test/user_ca.pub\nAuthorizedKeysFile none"),
            cases: &[
                (
                    "mint -n ada",
                    "badge echo in",
                    "0 in",
                    &[
                        "login_accepted certificate",
                        "login_accepted badge",
                        "login_accepted 7",
                        "login_accepted CA SHA256:",
                    ],
                ),
                ("", "s gate true 2>&1", OUT, &["login_refused ada"]),
                ("mint -n bea,ada,cid", "badge echo in", "0 in", &[]),
                (
                    "mint -n bea",
                    "badge true 2>&1",
                    OUT,
                    &["login_refused principal"],
                ),
                ("mint", "badge true 2>&1", OUT, &["login_refused principal"]),
                (
                    "mint -n 'ad*'",
                    "badge true 2>&1",
                    OUT,
                    &["login_refused principal"],
                ),
                (
                    "mint -h -n ada",
                    "badge true 2>&1",
                    OUT,
                    &["login_refused nothing lets the key"],
                ),
                ("mint -n ada -V -1h:+1h", "badge echo in", "0 in", &[]),
                (
                    "mint -n ada -V 20200101:20200102",
                    "badge true 2>&1",
                    OUT,
                    &["login_refused expired"],
                ),
                (
                    "mint -n ada -V 20400101:20410101",
                    "badge true 2>&1",
                    OUT,
                    &["login_refused not valid yet"],
                ),
                (
                    "mint -n ada -O source-address=192.0.2.0/24,127.0.0.0/8",
                    "badge echo in",
                    "0 in",
                    &[],
                ),
                (
                    "mint -n ada -O source-address=192.0.2.0/24",
                    "badge true 2>&1",
                    OUT,
                    &["login_refused 127.0.0.1"],
                ),
                (
                    "mint -n ada -O force-command='echo f: $SSH_ORIGINAL_COMMAND'",
                    "badge some thing",
                    "0 f: some thing",
                    &["session_started \"original\":\"some thing\""],
                ),
                (
                    "mint -n ada -O clear",
                    "by k -o LogLevel=INFO -tt gate true 2>&1",
                    "255 *PTY allocation request failed*",
                    &["denied is not allowed by"],
                ),
                ("mint -n ada -O clear", "badge echo in", "0 in", &["!denied"]),
                (
                    "mint -n ada -O clear",
                    "by k -o LogLevel=INFO -W 127.0.0.1:2222 gate 2>&1",
                    "255 *administratively prohibited*",
                    &["denied is not allowed by"],
                ),
                (
                    "mint -n ada -O no-pty",
                    "by k -W 127.0.0.1:2222 gate",
                    "* SSH-2.0-*",
                    &["forwarded"],
                ),
                (
                    "mint -n ada -O critical:new@example.test=x",
                    "badge true 2>&1",
                    OUT,
                    &["login_refused new@example.test"],
                ),
                (
                    "mint -n ada -O extension:new@example.test=x",
                    "badge echo in",
                    "0 in",
                    &[],
                ),
                (
                    "cp $T/stranger k; cp $T/stranger.pub k.pub; cp $T/stranger-cert.pub k-cert.pub",
                    "badge true 2>&1",
                    OUT,
                    &["login_refused not trusted"],
                ),
            ],
        },
        Table {
            before: "",
            node: "trusted_user_ca = \"/run/test/user_ca.pub\"\nprincipals_file = \"/run/test/names_%u\"\npam = \"off\"",
            sshd: Some(
                "UsePAM no\nTrustedUserCAKeys /run/test/user_ca.pub\nAuthorizedKeysFile none\nAuthorizedPrincipalsFile /run/test/names_%u",
            ),
            cases: &[
                (
                    "mint -n ops; printf '# who\\nops\\n' > $T/names_ada",
                    "badge echo in",
                    "0 in",
                    &["login_accepted badge"],
                ),
                (
                    "mint -n ada; echo ops > $T/names_ada",
                    "badge true 2>&1",
                    OUT,
                    &["login_refused names"],
                ),
                (
                    "mint -n ops; echo 'command=\"echo forced\",no-pty ops' > $T/names_ada",
                    "badge true",
                    "0 forced",
                    &[],
                ),
                (
                    "mint -n ops; echo 'from=\"192.0.2.1\" ops' > $T/names_ada",
                    "badge true 2>&1",
                    OUT,
                    &["login_refused ada"],
                ),
                (
                    "mint -n ops; rm $T/names_ada",
                    "badge true 2>&1",
                    OUT,
                    &["login_refused principals file"],
                ),
            ],
        },
        Table {
            before: "",
            node: "trusted_user_ca = \"/run/test/user_ca.pub\"\nclock_skew = \"0s\"\npam = \"off\"",
            sshd: None,
            cases: &[(
                "mint -n ada -V -1m:+10s
                 by k -M -S ctl -N gate & until_so test -S ctl
                 over() { ssh -F $T/bare -S ctl -o ControlMaster=no gate \"$@\"; }
                 over 'echo before; exec cat' < <(until_so test -e done; echo after) > kept & kept=$!
                 until_so grep -q before kept",
                // What runs goes on; nothing new is opened.
                "refused() { [ \"$(over echo ok 2> err)\" != ok ]; }; until_so refused; over -O check 2>&1; over echo more 2>&1; touch done; wait $kept; cat kept",
                "0 Master running*before*after",
                &["denied expired", "session_ended \"code\":0"],
            )],
        },
    ];
    tables.append(&mut revoked);
    drive(&tables);
}

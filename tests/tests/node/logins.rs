//! Every way in: keys and what authorized_keys says of them, certificates, revocation, lists of users and groups, root.
//! Real clients against the node; against sshd too with `FLEETGATE_INTEROP=both`.

use fleetgate_tests::ways_in::{Table, drive};

/// Words of the client where there is no way in.
const OUT: &str = "255 *Permission denied*";

#[test]
fn authorized_keys_and_their_options() {
    drive(&[
        Table {
            node: "authorized_keys = true\npam = \"off\"",
            sshd: Some("UsePAM no"),
            cases: &[
                (
                    "line ''",
                    "s gate echo in",
                    "0 in",
                    &[
                        "login_accepted \"identity\":\"key SHA256:",
                        "session_started \"command\":\"echo in\"",
                        "session_started \"kind\":\"exec\"",
                        "session_ended \"code\":0",
                        "connection_ended ada",
                        "!login_refused",
                    ],
                ),
                (
                    "line 'command=\"echo f: $SSH_ORIGINAL_COMMAND; exit 4\"'",
                    "s gate some thing",
                    "4 f: some thing",
                    &[
                        "session_started \"original\":\"some thing\"",
                        "session_ended \"code\":4",
                    ],
                ),
                ("line 'from=\"127.0.0.0/8\"'", "s gate echo in", "0 in", &[]),
                (
                    "line 'from=\"192.0.2.1,127.0.0.?\"'",
                    "s gate echo in",
                    "0 in",
                    &[],
                ),
                (
                    "line 'from=\"192.0.2.0/24\"'",
                    "s gate true 2>&1",
                    OUT,
                    &[
                        "login_refused authorized_keys line 1",
                        "!login_accepted",
                        "!session_started",
                    ],
                ),
                (
                    "line 'from=\"!127.0.0.1,127.0.0.0/8\"'",
                    "s gate true 2>&1",
                    OUT,
                    &["login_refused \"method\":\"publickey\""],
                ),
                // Names never match: no look-up is made for them.
                (
                    "line 'from=\"localhost,gate.test\"'",
                    "s gate true 2>&1",
                    OUT,
                    &["login_refused ada"],
                ),
                ("line 'expiry-time=\"20400101\"'", "s gate echo in", "0 in", &[]),
                (
                    "line 'expiry-time=\"202001010000\"'",
                    "s gate true 2>&1",
                    OUT,
                    &["login_refused expiry-time"],
                ),
                (
                    "line 'no-such-option'",
                    "s gate true 2>&1",
                    OUT,
                    &["login_refused ada"],
                ),
                (
                    "line no-such-option; echo \"tunnel=\\\"0\\\" $KEY\" >> $K",
                    "s gate echo in",
                    "0 in",
                    &[],
                ),
                (
                    "line 'from=\"192.0.2.1\"'; echo \"restrict $KEY\" >> $K",
                    "s gate echo in",
                    "0 in",
                    &[],
                ),
                (
                    "printf '# c\\n\\n \\t%s a comment\\n' \"$KEY\" > $K",
                    "s gate echo in",
                    "0 in",
                    &[],
                ),
                (
                    ": > $K",
                    "s gate true 2>&1",
                    OUT,
                    &["login_refused nothing lets the key"],
                ),
                (
                    "rm $K",
                    "s gate true 2>&1",
                    OUT,
                    &["login_refused nothing lets the key"],
                ),
                (
                    "line no-pty",
                    "s -o LogLevel=INFO -tt gate true 2>&1",
                    "255 *PTY allocation request failed*",
                    &[
                        "denied pty-req: a terminal is not allowed by .ssh/authorized_keys line 1",
                        "login_accepted",
                    ],
                ),
                (
                    "line restrict",
                    "s -o LogLevel=INFO -tt gate true 2>&1",
                    "255 *PTY allocation request failed*",
                    &["denied a terminal is not allowed by"],
                ),
                (
                    "line restrict,pty",
                    "s -tt gate tty",
                    "0 /dev/pts/*",
                    &["session_started \"terminal\":\"/dev/pts/"],
                ),
                ("line restrict", "s gate echo in", "0 in", &["!denied"]),
                (
                    "line no-port-forwarding",
                    "s -o LogLevel=INFO -W 127.0.0.1:2222 gate 2>&1",
                    "255 *administratively prohibited*",
                    &["denied direct-tcpip to 127.0.0.1:2222: forwarding to a TCP address is not allowed by"],
                ),
                (
                    "line restrict,port-forwarding",
                    "s -o LogLevel=INFO -W 127.0.0.1:2222 gate 2>&1",
                    "* SSH-2.0-*",
                    &["forwarded \"to\":\"127.0.0.1:2222\""],
                ),
                (
                    "line 'permitopen=\"127.0.0.1:2222\"'",
                    "s -W 127.0.0.1:2222 gate",
                    "* SSH-2.0-*",
                    &["!denied"],
                ),
                (
                    "line 'permitopen=\"127.0.0.1:*\"'",
                    "s -W 127.0.0.1:2222 gate",
                    "* SSH-2.0-*",
                    &["!denied"],
                ),
                (
                    "line 'permitopen=\"127.0.0.1:2223\",permitopen=\"localhost:2222\"'",
                    "s -o LogLevel=INFO -W 127.0.0.1:2222 gate 2>&1",
                    "255 *administratively prohibited*",
                    &["denied 127.0.0.1\\\" port 2222 is not allowed by"],
                ),
                (
                    "line 'permitlisten=\"7001\"'",
                    "s -o ExitOnForwardFailure=yes -R 7001:127.0.0.1:2222 gate 'nc -N 127.0.0.1 7001 < /dev/null'",
                    "0 SSH-2.0-*",
                    &["listening 7001", "!denied"],
                ),
                (
                    "line 'permitlisten=\"7001\"'",
                    "s -o ExitOnForwardFailure=yes -R 7002:127.0.0.1:2222 gate true 2>&1",
                    "255 *remote port forwarding failed*",
                    &["denied port 7002 is not allowed by"],
                ),
                (
                    "line no-agent-forwarding; eval $(ssh-agent) > agent",
                    "s -A gate 'echo ${SSH_AUTH_SOCK-none}'",
                    "0 none",
                    &["denied agent"],
                ),
                (
                    "line restrict,agent-forwarding; eval $(ssh-agent) > agent",
                    "s -A gate 'test -S $SSH_AUTH_SOCK && echo there'",
                    "0 there",
                    &["!denied"],
                ),
                (
                    "line 'environment=\"FROM_KEY=yes\"'",
                    "s gate 'echo ${FROM_KEY-unset}'",
                    "0 unset",
                    &[],
                ),
                (
                    "echo \"cert-authority $(cat $T/user_ca.pub)\" > $K; mint -n ada",
                    "badge echo in",
                    "0 in",
                    &["login_accepted badge"],
                ),
                (
                    "echo \"cert-authority $(cat $T/user_ca.pub)\" > $K; mint -n bea",
                    "badge true 2>&1",
                    OUT,
                    &["login_refused principal"],
                ),
                (
                    "echo \"cert-authority,principals=\\\"ops,dev\\\" $(cat $T/user_ca.pub)\" > $K; mint -n dev",
                    "badge echo in",
                    "0 in",
                    &[],
                ),
                (
                    "echo \"cert-authority,principals=\\\"ops,dev\\\" $(cat $T/user_ca.pub)\" > $K; mint -n ada",
                    "badge true 2>&1",
                    OUT,
                    &["login_refused principal"],
                ),
                // Without the option the authority's own key is a key, and what it signed is nothing.
                (
                    "cat $T/user_ca.pub > $K; mint -n ada",
                    "badge true 2>&1",
                    OUT,
                    &["login_refused ada"],
                ),
                (
                    "line ''; echo \"cert-authority,command=\\\"echo ca\\\" $(cat $T/user_ca.pub)\" > $K; mint -n ada -O force-command='echo own'",
                    "badge true 2>&1",
                    OUT,
                    &["login_refused force"],
                ),
            ],
            ..Table::default()
        },
        Table {
            node: "authorized_keys = true\npam = \"off\"\nuser_environment = true\nauthorized_keys_files = [\"%h/.ssh/more\", \"/run/test/keys_%u\"]",
            sshd: Some(
                "UsePAM no\nPermitUserEnvironment yes\nAuthorizedKeysFile %h/.ssh/more /run/test/keys_%u",
            ),
            cases: &[
                (
                    "line ''; rm -f ${K%/*}/more",
                    "s gate true 2>&1",
                    OUT,
                    &["login_refused nothing lets the key"],
                ),
                (
                    "echo \"environment=\\\"FROM_KEY=yes\\\" $KEY\" > $T/keys_ada",
                    "s gate 'echo ${FROM_KEY-unset}'",
                    "0 yes",
                    &[],
                ),
                (
                    "rm $T/keys_ada; echo \"$KEY\" > ${K%/*}/more",
                    "s gate echo in",
                    "0 in",
                    &[],
                ),
            ],
            ..Table::default()
        },
        Table {
            before: "rm -f $HOMES/ada/.ssh/more; line 'command=\"fleetgate:say,two\",restrict'",
            node: "authorized_keys = true\npam = \"off\"\nuser_environment = true
[commands.say]\nargv = [\"/bin/echo\", \"said\", \"{}\"]\nargs = [\"word\"]
[commands.two]\nargv = [\"/bin/sh\", \"-c\", \"echo two; exit 2\"]
[commands.three]\nargv = [\"/bin/true\"]
[commands.whose]\nargv = [\"/bin/sh\", \"-c\", \"echo $(id -un) $(id -gn) $HOME .$LC_ALL.$FROM_KEY.$SSH_AUTH_SOCK.\"]\nuser = \"root\"
[commands.nobodys]\nargv = [\"/bin/true\"]\nuser = \"no-such-account\"
[commands.long]\nargv = [\"/bin/sh\", \"-c\", \"exec 9>/run/test/lock; flock 9; echo up > /run/test/long; (while test -s /run/test/long; do sleep 0.2; done) & wait\"]",
            sshd: None,
            cases: &[
                (
                    "",
                    "s gate say hi",
                    "0 said hi",
                    &[
                        "session_started \"kind\":\"command\"",
                        "session_started \"command\":\"/bin/echo said hi\"",
                        "session_ended \"code\":0",
                    ],
                ),
                ("", "s gate two", "2 two", &["session_ended \"code\":2"]),
                (
                    "",
                    "s gate three 2>&1",
                    "255 *",
                    &["denied three", "!session_started"],
                ),
                (
                    "",
                    "s gate 'say hi; id' 2>&1",
                    "255 *",
                    &["denied say", "!session_started"],
                ),
                (
                    "",
                    "s gate 'say $(id)' 2>&1",
                    "255 *",
                    &["denied say", "!session_started"],
                ),
                (
                    "",
                    "s gate say 2>&1",
                    "255 *",
                    &["denied say", "!session_started"],
                ),
                (
                    "",
                    "s gate say -n 2>&1",
                    "255 *",
                    &["denied say", "!session_started"],
                ),
                ("", "s gate id 2>&1", "255 *", &["denied id", "!session_started"]),
                ("", "s -T gate 2>&1", "255 *", &["denied", "!session_started"]),
                (
                    "",
                    "s -s gate sftp 2>&1",
                    "255 *",
                    &["denied", "!session_started"],
                ),
                (
                    "",
                    "s -o LogLevel=INFO -W 127.0.0.1:2222 gate 2>&1",
                    "255 *",
                    &["denied", "!forwarded"],
                ),
                // As another account nothing of the login's reaches it; the audit log has both.
                (
                    "line 'restrict,agent-forwarding,command=\"fleetgate:whose,nobodys\",environment=\"FROM_KEY=yes\"'",
                    "eval \"$(ssh-agent)\" > agent; LC_ALL=C s -A -o SendEnv=LC_ALL gate whose; ssh-agent -k > agent",
                    "0 root root */root ....",
                    &["session_started \"runs_as\":\"root\"", "session_started \"login\":\"ada\""],
                ),
                (
                    "line 'command=\"fleetgate:whose,nobodys\"'",
                    "s -tt gate whose 2>&1",
                    "255 *runs as root, and has no terminal*",
                    &["denied terminal", "!session_started"],
                ),
                (
                    "",
                    "s gate nobodys 2>&1",
                    "255 *this node has no such account*",
                    &["session_refused no-such-account", "!session_started"],
                ),
                ("", "s -s gate fleetgate-commands | cut -d' ' -f1 | xargs", "0 NAME nobodys whose", &["!session_started"]),
                ("", "s -s gate fleetgate-commands-json | grep -c '\"user\":\"root\"'", "0 1", &[]),
                // Its client is killed: the command ends, and what it has started, which holds a lock.
                (
                    "line 'command=\"fleetgate:long\",restrict'; install -m 666 /dev/null $T/long; install -m 666 /dev/null $T/lock",
                    "ssh -F $CONF gate long & p=$!; until_so test -s $T/long; kill -9 $p; until_so flock -n $T/lock true; echo gone",
                    "0 gone",
                    &["session_ended \"signal\":9"],
                ),
                // Anybody else's program goes on, as with sshd.
                (
                    "line; : > $T/long; grep -c connection_ended $T/audit.jsonl > ended",
                    "ssh -F $CONF gate 'exec 9>/run/test/lock; flock 9; echo up > /run/test/long; while test -s /run/test/long; do sleep 0.2; done' & p=$!; until_so test -s $T/long; kill -9 $p; until_so eval '[ $(grep -c connection_ended $T/audit.jsonl) -gt $(cat ended) ]'; flock -n $T/lock true || echo there; : > $T/long",
                    "0 there",
                    &["session_ended \"code\":0"],
                ),
                (
                    "line 'command=\"fleetgate:none\",restrict'",
                    "s gate none 2>&1",
                    OUT,
                    &["login_refused none"],
                ),
            ],
        },
    ]);
}

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

#[test]
fn who_may_come_in_at_all() {
    let mut tables = Vec::new();
    for (node, sshd, ada, bea) in [
        ("allow_users = [\"bea\"]", "AllowUsers bea", false, true),
        (
            "allow_users = [\"ada@127.0.0.0/8\"]",
            "AllowUsers ada@127.0.0.0/8",
            true,
            false,
        ),
        (
            "allow_users = [\"ada@192.0.2.0/24\", \"b*\"]",
            "AllowUsers ada@192.0.2.0/24 b*",
            false,
            true,
        ),
        ("deny_users = [\"ad?\"]", "DenyUsers ad?", false, true),
        (
            "deny_users = [\"ada@192.0.2.1\"]",
            "DenyUsers ada@192.0.2.1",
            true,
            true,
        ),
        (
            "allow_users = [\"ada\"]\ndeny_users = [\"ada\"]",
            "AllowUsers ada\nDenyUsers ada",
            false,
            false,
        ),
        ("allow_groups = [\"fri*\"]", "AllowGroups fri*", true, false),
        ("deny_groups = [\"friends\"]", "DenyGroups friends", false, true),
        (
            "allow_groups = [\"friends\"]\nallow_users = [\"bea\"]",
            "AllowGroups friends\nAllowUsers bea",
            false,
            false,
        ),
    ] {
        let row = |user: &str, may: bool| {
            let ask: &'static str = format!("s {user}@gate echo in 2>&1").leak();
            let tell: &'static str = format!(
                "{} \"login\":\"{user}\"",
                if may { "login_accepted" } else { "login_refused" }
            )
            .leak();
            ("", ask, if may { "0 in" } else { OUT }, &*Vec::leak(vec![tell]))
        };
        tables.push(Table {
            before: "line ''; cp $K $HOMES/bea/.ssh/authorized_keys",
            node: format!("pam = \"off\"\n{node}").leak(),
            sshd: Some(format!("UsePAM no\n{sshd}").leak()),
            cases: Vec::leak(vec![row("ada", ada), row("bea", bea)]),
        });
    }
    for (node, sshd, plain, forced) in [
        ("yes", "yes", true, true),
        ("prohibit-password", "prohibit-password", true, true),
        ("forced-commands-only", "forced-commands-only", false, true),
        ("no", "no", false, false),
    ] {
        let row = |options: &str, may: bool, out: &'static str| {
            let before: &'static str =
                format!("echo \"{options} $KEY\" > $HOMES/root/.ssh/authorized_keys").leak();
            let tell = if may {
                "login_accepted root"
            } else {
                "login_refused root"
            };
            (
                before,
                "s root@gate echo in 2>&1",
                if may { out } else { OUT },
                &*Vec::leak(vec![tell]),
            )
        };
        tables.push(Table {
            before: "",
            node: format!("pam = \"off\"\nroot_login = \"{node}\"").leak(),
            sshd: Some(format!("UsePAM no\nPermitRootLogin {sshd}").leak()),
            cases: Vec::leak(vec![
                row("", plain, "0 in"),
                row("command=\\\"echo forced\\\"", forced, "0 forced"),
            ]),
        });
    }
    tables.push(Table {
        before: "line ''",
        node: "pam = \"off\"",
        sshd: Some("UsePAM no"),
        cases: &[
            // Nobody is told whether a name is known: the same words, the same ways open.
            (
                "",
                "for who in nobody-here ada ../ada; do by $T/stranger -v $who@gate true 2>&1 |
                     sed -n \"s/$who@//; s/^debug1: \\(Authentications that.*\\)/\\1/p; /denied/p\" > $who.said || :; done
                 cmp ada.said nobody-here.said && cat ada.said",
                "0 Authentications that can continue: publickey*Permission denied (publickey).",
                &["login_refused \"login\":\"nobody-here\"", "login_refused no such account", "login_refused \"login\":\"ada\""],
            ),
            ("chmod 666 $K", "s gate true 2>&1", OUT, &["login_refused authorized_keys: somebody else owns it"]),
            ("chmod 600 $K; chmod 770 $HOMES/ada/.ssh", "s gate true 2>&1", OUT, &["login_refused .ssh"]),
            ("chmod 700 $HOMES/ada/.ssh; chmod 777 $HOMES/ada", "s gate true 2>&1", OUT, &["login_refused /run/home/ada"]),
            ("chmod 700 $HOMES/ada; chown 54331 $K", "s gate true 2>&1", OUT, &["login_refused authorized_keys"]),
            ("chown 54321 $K; ln -sf $HOMES/ada/kept $K; echo \"$KEY\" > $HOMES/ada/kept", "s gate echo in", "0 in", &[]),
            ("rm $K; mkdir $K", "s gate true 2>&1", OUT, &["login_refused authorized_keys"]),
            ("rmdir $K; mkfifo $K; chown ada $K", "s gate true 2>&1", OUT, &["login_refused authorized_keys"]),
            ("rm $K; line ''", "s gate echo in", "0 in", &[]),
            // Without PAM the account's own state counts.
            ("shadow 2 '!locked'", "s gate true 2>&1", OUT, &["login_refused locked"]),
            ("shadow 2 '*'", "s gate echo in", "0 in", &[]),
            ("shadow 8 1", "s gate true 2>&1", OUT, &["login_refused the account has expired"]),
            ("shadow 8 ''", "s gate echo in", "0 in", &[]),
            ("echo 'Back at noon.' > /etc/nologin", "s gate true 2>&1", "254 *Back at noon.*", &[]),
            ("", "echo \"$KEY\" > $HOMES/root/.ssh/authorized_keys; s root@gate echo in 2>&1", "0 *in", &[]),
            ("rm /etc/nologin", "s gate echo in", "0 in", &[]),
        ],
    });
    tables.push(Table {
        before: "line ''; chmod 666 $K; chmod 777 $HOMES/ada",
        node: "pam = \"off\"\nstrict_modes = false",
        sshd: Some("UsePAM no\nStrictModes no"),
        cases: &[("", "s gate echo in", "0 in", &[])],
    });
    drive(&tables);
}

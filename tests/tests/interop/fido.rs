//! FIDO security keys: OpenSSH's own ssh-keygen, ssh and ssh-agent with the real libfido2, which speaks to a token made of
//! software (`tests/peers/fido`). Every row is a line of authorized_keys or a certificate, a key, and whether it lets in.

use fleetgate_tests::peer::{Row, drive, drive_directly};

/// What stands before each row: keys of both kinds as `each` makes them, and the account's one file of keys.
const BEGIN: &str = include_str!("../../scripts/fido.sh");

/// Rows of both kinds of key.
fn table(rows: &[(&str, &str)]) -> Vec<Row> {
    let kinds = ["ecdsa", "ed25519"];
    rows.iter()
        .flat_map(|(name, script)| {
            kinds.map(|kind| Row::new(format!("{name}, {kind}"), format!("{BEGIN}kind={kind}\n{script}")))
        })
        .collect()
}

#[test]
fn lines_for_security_keys_let_in_and_refuse() {
    drive(&table(&[
        (
            "a key that is touched",
            "new k; line '' k; enters k
             new other; refused other",
        ),
        (
            "an application of its own",
            "new k -O application=ssh:other; line '' k; enters k
             grep -q c3NoOm90aGVy k.pub || base64 -d <<< $(cut -d' ' -f2 k.pub) | grep -aq ssh:other",
        ),
        (
            "no touch",
            "new k -O no-touch-required
             line '' k; refused k; line no-touch-required k; enters k
             line no-touch-required,touch-required k; refused k
             new k; line '' k; enters k
             export TOKEN_FLAGS=0; refused k; line no-touch-required k; enters k",
        ),
        (
            "the user is verified",
            "new k; new v -O verify-required
             line verify-required k; refused k; line verify-required v; enters v
             line verify-required,no-verify-required k; enters k
             export TOKEN_FLAGS=4; line verify-required v; refused v
             line verify-required,no-touch-required v; enters v
             TOKEN_FLAGS=1 refused v",
        ),
        (
            "other flags, and data of extensions, which the signature format has no place for",
            "new k; line '' k
             TOKEN_FLAGS=0x41 enters k; TOKEN_FLAGS=0x40 refused k; TOKEN_FLAGS=0x3b enters k
             TOKEN_FLAGS=0x81 refused k; TOKEN_FLAGS=0xff refused k",
        ),
        (
            "a counter that goes back: no server keeps it",
            "new k; line '' k; for n in 7 3 0 0xffffffff 3; do TOKEN_COUNTER=$n enters k; done",
        ),
        (
            "another's signature does not do",
            "new k; new other; line '' k; cp other wrong; cp k.pub wrong.pub; refused wrong; enters k",
        ),
    ]));
}

#[test]
fn certificates_of_security_keys_let_in_and_refuse() {
    drive(&table(&[
        (
            "a certificate and a touch",
            ": > $KEYS; new k; certify $T/user_ca k; enters k
             certify $T/host_ca k; refused k",
        ),
        (
            "no touch, by the certificate's extension",
            ": > $KEYS; new k -O no-touch-required
             certify $T/user_ca k; refused k
             certify $T/user_ca k -O no-touch-required; enters k",
        ),
        (
            "the user is verified, by the certificate's critical option",
            ": > $KEYS; new k; new v -O verify-required
             certify $T/user_ca k -O verify-required; refused k; certify $T/user_ca k; enters k
             certify $T/user_ca v -O verify-required; enters v
             TOKEN_FLAGS=1 refused v",
        ),
        (
            "an authority of authorized_keys: line and certificate both say what is asked",
            "new k -O no-touch-required; ssh-keygen -q -t ed25519 -N '' -f ca
             certify ca k -O no-touch-required
             line cert-authority ca; refused k; line cert-authority,no-touch-required ca; enters k
             certify ca k; refused k
             certify ca k -O no-touch-required; line cert-authority,no-touch-required,verify-required ca; refused k
             TOKEN_FLAGS=4 enters k",
        ),
        (
            "an authority whose key is a token's",
            "new ca; new k; line cert-authority ca
             certify ca k; enters k; refused ca
             ssh-keygen -q -t ed25519 -N '' -f plain; certify ca plain; enters plain
             # How the authority's token was used is the authority's matter.
             TOKEN_FLAGS=0 certify ca k; enters k
             # A signature over data of extensions: ssh-keygen does not look.
             TOKEN_FLAGS=0x81 certify ca k; refused k
             new other; certify other k; refused k",
        ),
    ]));
}

/// `with KEY COMMAND...` beside an agent that has this key; the agent begins with the token of the row's environment.
const AGENT: &str = r#"with() { eval $(ssh-agent) > /dev/null; ssh-add -q $1 2> /dev/null; "${@:2}"; ssh-agent -k > /dev/null; }
"#;

/// `fleetgate ssh` as ada.
const CLIENT: &str = r#"fg() { $FLEETGATE ssh --direct -n -o BatchMode=yes -o UserKnownHostsFile=$T/known_hosts -l ada "$@" 127.0.0.1:2222 id -un; }
fg_enters() { is "$(fg "$@")" ada; }
fg_refused() { exits 255 fg "$@"; }
"#;

/// The same with what an agent's rows begin with.
fn with_agent(begin: &str, rows: &[(&str, &str)]) -> Vec<Row> {
    let scripts: Vec<_> = rows
        .iter()
        .map(|(name, script)| (*name, format!("{AGENT}{begin}{script}")))
        .collect();
    let rows: Vec<_> = scripts
        .iter()
        .map(|(name, script)| (*name, script.as_str()))
        .collect();
    table(&rows)
}

#[test]
fn security_keys_work_from_an_agent() {
    drive(&with_agent(
        "",
        &[(
            "held by an agent",
            "mkdir own; new k; line '' k; mv k own; with own/k enters k.pub
             new n -O no-touch-required; line '' n; mv n own; with own/n refused n.pub
             line no-touch-required n; with own/n enters n.pub
             new v -O verify-required; line verify-required v; mv v own; with own/v enters v.pub",
        )],
    ));
}

#[test]
fn our_client_signs_with_security_keys() {
    drive_directly(&with_agent(
        CLIENT,
        &[
            (
                "held by an agent, for fleetgate ssh",
                "new k; line '' k; with k fg_enters
                 new n -O no-touch-required; line '' n; with n fg_refused; line no-touch-required n; with n fg_enters
                 new v -O verify-required; line verify-required v; with v fg_enters
                 : > $KEYS; new c; certify $T/user_ca c; with c fg_enters",
            ),
            (
                "the file of a key that an agent holds, for fleetgate ssh -i",
                "new k; line '' k; with k fg_enters -i k -o IdentitiesOnly=yes
                 with $T/user_rsa fg_refused -i k 2> err; grep -q 'ssh-add k' err
                 fg_refused -i k 2> err; grep -q 'ssh-add k' err
                 : > $KEYS; certify $T/user_ca k; with k fg_enters -i k
                 mkdir own; cp k own; with own/k fg_enters -i k",
            ),
            (
                "a token that does not sign is passed over for the next key, for fleetgate ssh",
                "new k; line '' k; cat $T/user_ed25519.pub >> $KEYS
                 without() { chmod 0 helper; code=0; fg 2> err > out || code=$?; }
                 cp $PEERS/fido/helper helper; export SSH_SK_HELPER=$PWD/helper
                 both() { ssh-add -q $T/user_ed25519; fg_enters; without; is $code 0; is \"$(cat out)\" ada; }
                 with k both; grep -q 'refuses to sign' err",
            ),
            (
                "a touch that takes its time, for fleetgate ssh",
                "new k; line '' k; mkfifo touch; export SSH_SK_HELPER=$PWD/helper
                 # It waits until somebody writes.
                 sed \"2i : < $PWD/touch\" $PEERS/fido/helper > helper; chmod 755 helper
                 slow() { fg > out 2> err & client=$!; until_so grep -q 'touch the security key' err
                     : > touch; wait $client; is \"$(cat out)\" ada; }
                 with k slow",
            ),
            (
                "a file with a passphrase that an agent holds, for fleetgate ssh -i",
                "ssh-keygen -q -t ed25519 -N secret -f k; line '' k
                 export SSH_ASKPASS=$T/askpass SSH_ASKPASS_REQUIRE=force; with k fg_enters -i k
                 fg_refused -i k 2> err; grep -q 'ssh-add k' err",
            ),
        ],
    ));
}

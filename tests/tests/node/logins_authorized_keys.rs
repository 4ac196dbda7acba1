//! Ways in by authorized_keys: every option of a line.
//! Real clients against the node; against sshd too with `FLEETGATE_INTEROP=both`.

use super::logins::OUT;
use fleetgate_tests::ways_in::{Table, drive};

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

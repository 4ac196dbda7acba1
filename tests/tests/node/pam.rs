//! Ways in through PAM, logins that need more than one way, and the bound on tries. Real clients against the node; against
//! sshd too with `FLEETGATE_INTEROP=both`.

use fleetgate_tests::ways_in::{Table, drive};

/// Words of the client where there is no way in.
const OUT: &str = "255 *Permission denied*";

#[test]
fn pam_and_more_than_one_method() {
    drive(&[
        Table {
            before: "line ''; echo root:top | chpasswd -c SHA256 -s 1000; cp /etc/pam.d/fleetgate $T/pam",
            node: "pam = \"on\"\npassword = true\nkeyboard_interactive = true\nroot_login = \"prohibit-password\"",
            sshd: Some("UsePAM yes\nKbdInteractiveAuthentication yes\nPermitRootLogin prohibit-password"),
            cases: &[
                (
                    "",
                    "asked keyboard-interactive gate echo in",
                    "0 in",
                    &["login_accepted \"identity\":\"keyboard-interactive\""],
                ),
                (
                    "",
                    "asked password gate echo in",
                    "0 in",
                    &["login_accepted \"identity\":\"password\""],
                ),
                (
                    "export ANSWER=wrong",
                    "asked keyboard-interactive gate true 2>&1",
                    OUT,
                    &["login_refused \"method\":\"keyboard-interactive\""],
                ),
                (
                    "export ANSWER=wrong",
                    "asked password gate true 2>&1",
                    OUT,
                    &["login_refused \"method\":\"password\""],
                ),
                (
                    "export ANSWER=",
                    "asked password gate true 2>&1",
                    OUT,
                    &["login_refused ada"],
                ),
                (
                    "export ANSWER=top",
                    "asked password root@gate true 2>&1",
                    OUT,
                    &["login_refused root"],
                ),
                (
                    "export ANSWER=top",
                    "asked keyboard-interactive root@gate true 2>&1",
                    OUT,
                    &["login_refused root"],
                ),
                (
                    "export ANSWER=top",
                    "asked password nobody-here@gate true 2>&1",
                    OUT,
                    &["login_refused nobody-here"],
                ),
                ("", "s gate echo in", "0 in", &["login_accepted key"]),
                (
                    "sed -i '1i account required pam_deny.so' /etc/pam.d/$(test $SUBJECT = Sshd && echo sshd || echo fleetgate)",
                    "s gate true 2>&1",
                    "255 *",
                    &["login_refused \"method\":\"account\"", "!session_started"],
                ),
                (
                    "",
                    "asked password gate true 2>&1",
                    "255 *",
                    &["login_refused ada", "!session_started"],
                ),
                (
                    "cp $T/pam /etc/pam.d/fleetgate; cp $T/pam /etc/pam.d/sshd; shadow 8 1",
                    "s gate true 2>&1",
                    "255 *",
                    &["login_refused \"method\":\"account\""],
                ),
                ("shadow 8 ''", "s gate echo in", "0 in", &[]),
                (
                    "echo closed > /etc/nologin",
                    "s gate true 2>&1",
                    "25* *",
                    &["!session_started"],
                ),
                ("rm /etc/nologin", "s gate echo in", "0 in", &[]),
            ],
        },
        Table {
            before: "",
            node: "pam = \"on\"\npassword = true\nkeyboard_interactive = true\nroot_login = \"yes\"",
            sshd: Some("UsePAM yes\nKbdInteractiveAuthentication yes\nPermitRootLogin yes"),
            cases: &[(
                "export ANSWER=top",
                "asked password root@gate echo in",
                "0 in",
                &["login_accepted root"],
            )],
        },
        Table {
            before: "",
            node: "pam = \"on\"\nkeyboard_interactive = true\nauthentication_methods = [\"publickey,keyboard-interactive\"]",
            sshd: Some(
                "UsePAM yes\nKbdInteractiveAuthentication yes\nPasswordAuthentication no\nAuthenticationMethods publickey,keyboard-interactive",
            ),
            cases: &[
                (
                    "",
                    "s -v -o PreferredAuthentications=publickey gate true 2>&1 | grep -o 'using \"publickey\" with partial success\\|Permission denied.*'",
                    "0 *partial success*Permission denied (keyboard-interactive).",
                    &["!login_accepted"],
                ),
                (
                    "",
                    "asked keyboard-interactive gate true 2>&1",
                    "255 *Permission denied (publickey).",
                    &["!login_accepted"],
                ),
                (
                    "",
                    "asked publickey,keyboard-interactive -i $T/user_ed25519 gate echo in",
                    "0 in",
                    &[
                        "login_accepted key SHA256:",
                        "login_accepted keyboard-interactive",
                    ],
                ),
                (
                    "export ANSWER=wrong",
                    "asked publickey,keyboard-interactive -i $T/user_ed25519 gate true 2>&1",
                    OUT,
                    &["login_refused \"method\":\"keyboard-interactive\""],
                ),
            ],
        },
        Table {
            before: "cat $T/user_rsa.pub >> $HOMES/ada/.ssh/authorized_keys",
            node: "pam = \"off\"\nauthentication_methods = [\"publickey,publickey\"]",
            sshd: Some("UsePAM no\nAuthenticationMethods publickey,publickey"),
            cases: &[
                ("", "s gate true 2>&1", OUT, &["!login_accepted"]),
                (
                    "",
                    "s -i $T/user_rsa gate echo in",
                    "0 in",
                    &["login_accepted SHA256"],
                ),
            ],
        },
        Table {
            before: "line ''",
            node: "pam = \"on\"\npam_service = \"no-such-service\"",
            sshd: None,
            cases: &[("", "s gate true 2>&1", OUT, &["login_refused account"])],
        },
        Table {
            before: "line ''",
            node: "pam = \"off\"\n[limits]\ntries = 2",
            sshd: Some("UsePAM no\nMaxAuthTries 2"),
            cases: &[
                ("", "s gate echo in", "0 in", &[]),
                (
                    "eval $(ssh-agent) > agent; for n in 1 2 3; do ssh-keygen -q -t ed25519 -N '' -f k$n; ssh-add -q k$n; done",
                    "ssh -F $T/bare -o IdentitiesOnly=no gate true 2>&1",
                    "255 *oo many*",
                    &["login_refused ada", "connection_ended too many tries"],
                ),
            ],
        },
    ]);
}

/// What the account modules say is read by users who have shown who they are, and a refusal says what helps.
#[test]
fn users_read_what_pam_says_of_their_accounts() {
    const SOON: &str = "shadow 3 $(($(date +%s) / 86400 - 1)); shadow 5 3; shadow 6 7";
    drive(&[Table {
        before: "line ''",
        node: "pam = \"on\"\npassword = true\nkeyboard_interactive = true",
        sshd: None,
        cases: &[
            (
                SOON,
                "s -o LogLevel=INFO gate echo in 2>&1",
                "0 *password will expire in 2 days*in",
                &["login_accepted"],
            ),
            (
                SOON,
                "asked password -o LogLevel=INFO gate echo in 2>&1",
                "0 *password will expire in 2 days*in",
                &["login_accepted"],
            ),
            (
                SOON,
                "asked keyboard-interactive -o LogLevel=INFO gate echo in 2>&1",
                "0 *password will expire in 2 days*in",
                &["login_accepted"],
            ),
            (
                "shadow 3 0; export ANSWER=wrong",
                "asked password -o LogLevel=INFO gate true 2>&1 | grep -c expired",
                "1 0",
                &["login_refused password"],
            ),
        ],
    }]);
}

/// A password that has expired is changed before anything else: in the conversation where PAM has one, else by `passwd` in
/// the place of the session's program, whatever that was to be. The real client sits at a terminal.
#[test]
fn a_password_that_has_expired_is_changed_on_the_way_in() {
    /// ada's password has expired; she comes in and changes it, with these options of ssh.
    macro_rules! changes {
        ($options:literal, $command:literal) => {
            concat!(
                "shadow 2 \"$(openssl passwd -6 old-horse-71)\"; shadow 3 0; NEW='battery staple 7'; \
                 change() { python3 $PEERS/python/new_password.py old-horse-71 \"$NEW\" -- ssh -F $T/bare -o BatchMode=no ",
                $options,
                " -tt gate ",
                $command,
                "; }"
            )
        };
    }
    const BY_KEY: &str = changes!(
        "-o PreferredAuthentications=publickey -i $T/user_ed25519",
        "echo in"
    );
    const BY_PASSWORD: &str = changes!("-o PreferredAuthentications=password", "echo in");
    const BY_QUESTIONS: &str = changes!("-o PreferredAuthentications=keyboard-interactive", "echo in");
    // Of what the terminal shows: what matters, on one line.
    const PASSWD: &str = "0 *You must change your password now and login again!*Current password*password updated successfully*";
    drive(&[Table {
        before: "line ''",
        node: "pam = \"on\"\npassword = true\nkeyboard_interactive = true",
        sshd: Some("UsePAM yes\nKbdInteractiveAuthentication yes\nPasswordAuthentication yes"),
        cases: &[
            (BY_KEY, "change", PASSWD, &["login_accepted key"]),
            // It was changed: the next one is in, by the new password too.
            ("", "s gate echo in", "0 in", &["login_accepted key"]),
            (
                "export ANSWER='battery staple 7'",
                "asked password gate echo in",
                "0 in",
                &["login_accepted password"],
            ),
            (BY_PASSWORD, "change", PASSWD, &["login_accepted password"]),
            (
                BY_QUESTIONS,
                "change",
                "0 *Current password*Retype new password*in*",
                &["login_accepted keyboard-interactive"],
            ),
            ("", "s gate echo in", "0 in", &["login_accepted key"]),
            // Without a terminal nothing is changed, and nothing else is done.
            (
                "shadow 3 0",
                "s gate echo in 2>&1",
                "1 *Password change required but no TTY available.*",
                &["login_accepted key"],
            ),
            ("", "s gate echo in 2>/dev/null", "1 ", &["login_accepted key"]),
            (
                "",
                "s -W 127.0.0.1:2222 gate < /dev/null 2>/dev/null | grep -c SSH-2",
                "1 0",
                &["login_accepted key"],
            ),
            (
                "",
                "echo get /etc/hostname | sftp -F $T/bare -i $T/user_ed25519 -b - gate > /dev/null 2>&1; test $? != 0 && echo out",
                "0 out",
                &["login_accepted key"],
            ),
            // The control: with a password that has not expired both go on.
            (
                "shadow 3 \"$(($(date +%s) / 86400))\"",
                "s -W 127.0.0.1:2222 gate < /dev/null 2>/dev/null | grep -c SSH-2",
                "0 1",
                &["login_accepted key"],
            ),
            (
                "",
                "echo get /etc/hostname got | sftp -F $T/bare -i $T/user_ed25519 -b - gate > /dev/null 2>&1 && echo got",
                "0 got",
                &["login_accepted key"],
            ),
        ],
    }]);
}

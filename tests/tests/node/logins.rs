//! Who may come in at all: lists of users and groups, root, files with the wrong owner or mode. Keys and certificates
//! have files of their own beside this one.
//! Real clients against the node; against sshd too with `FLEETGATE_INTEROP=both`.

use fleetgate_tests::ways_in::{Table, drive};

/// Words of the client where there is no way in.
pub(super) const OUT: &str = "255 *Permission denied*";

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

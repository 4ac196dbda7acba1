//! What is executed, how it is named, what it inherits, and what happens when it cannot be.

use fleetgate_sys::process::Exit;
use fleetgate_tests::orders::{self, command, root, run, run_on_terminal, shell, text, user};
use fleetgate_wire::exec::{Limit, Program};
use fleetgate_wire::{Reason, Reply};

fn direct(argv: &[&str]) -> fleetgate_wire::exec::Exec {
    fleetgate_wire::exec::Exec {
        program: Program::Direct {
            argv: argv.iter().map(text).collect(),
        },
        ..command(user(), "")
    }
}

#[test]
fn a_command_runs_in_the_shell() {
    let outcome = run(command(user(), "echo out; echo err >&2; echo $0; exit 3"));
    assert!(outcome.left(), "{outcome:?}");
    assert_eq!(outcome.output, "out\nsh\n");
    assert_eq!(outcome.errors, "err\n");
    assert_eq!(outcome.exit, Exit::Code(3));
}

#[test]
fn a_shell_is_named_with_a_dash_and_has_the_terminal() {
    let mut account = user();
    account.shell = c"/bin/bash".into();
    let script = "echo name=$0; tty; shopt -q login_shell && echo login; ps -o sid=,tpgid= -p $$ | tr -s ' '; echo pid=$$; exit 4\n";
    let outcome = run_on_terminal(shell(account), script);
    assert!(outcome.left(), "{outcome:?}");
    assert_eq!(outcome.exit, Exit::Code(4));
    for wanted in ["name=-bash\r\n", "/dev/pts/", "\nlogin\r\n"] {
        assert!(
            outcome.output.contains(wanted),
            "{wanted:?} in {}",
            outcome.output
        );
    }
}

#[test]
fn the_terminal_is_the_users_and_controls() {
    let mut order = command(
        user(),
        "stat -c '%u %a' $(tty); exec 3<>/dev/tty && echo controls; cat /proc/$$/stat | cut -d' ' -f1,6",
    );
    order.account.home = c"/".into();
    let outcome = run_on_terminal(order, "");
    assert!(outcome.left(), "{outcome:?}");
    assert!(
        outcome.output.starts_with("54321 620\r\ncontrols\r\n"),
        "{}",
        outcome.output
    );
    let leader = outcome.output.lines().last().expect("a line");
    let (pid, sid) = leader.split_once(' ').expect("two numbers");
    assert_eq!(pid, sid, "it leads its session");
}

#[test]
fn a_direct_program_has_no_shell() {
    let outcome = run(direct(&["printf", "%s|", "a b", "$HOME", "*"]));
    assert_eq!(outcome.good(), "a b|$HOME|*|");
    assert_eq!(run(direct(&["/bin/echo", "x"])).good(), "x\n");
}

#[test]
fn what_cannot_be_executed_is_told_to_both() {
    let mut gone = shell(user());
    gone.account.shell = c"/bin/no-such-shell".into();
    let mut directory = command(user(), "true");
    directory.account.shell = c"/etc".into();
    let mut text_file = command(user(), "true");
    text_file.account.shell = c"/etc/passwd".into();
    let table = [
        (
            gone,
            1,
            "/bin/no-such-shell: No such file or directory\n",
            Reason::NoProgram,
        ),
        (directory, 1, "/etc: Permission denied\n", Reason::NoProgram),
        (
            text_file,
            1,
            "/etc/passwd: Permission denied\n",
            Reason::NoProgram,
        ),
        (
            direct(&["no-such-program"]),
            127,
            "no-such-program: No such file or directory\n",
            Reason::NoProgram,
        ),
        (
            direct(&["/etc/passwd"]),
            126,
            "/etc/passwd: Permission denied\n",
            Reason::NoProgram,
        ),
    ];
    for (order, code, message, reason) in table {
        let outcome = run(order);
        assert_eq!(outcome.errors, message);
        assert_eq!(outcome.exit, Exit::Code(code), "{outcome:?}");
        assert_eq!(outcome.failure().expect("a refusal").reason, reason);
    }
    let outcome = run(direct(&[]));
    assert_eq!(outcome.failure().expect("a refusal").reason, Reason::BadOrder);
}

#[test]
fn nothing_leaks_and_signals_are_as_new() {
    let script = "ls /proc/self/fd | tr '\\n' ' '; grep -E 'Sig(Blk|Ign)' /proc/self/status | tr -d '\\t\\n'; \
        grep NoNewPrivs /proc/self/status";
    let outcome = run(command(user(), script));
    // 3 is ls's own directory.
    assert_eq!(
        outcome.good(),
        "0 1 2 3 SigBlk:0000000000000000SigIgn:0000000000000000NoNewPrivs:\t0\n"
    );
}

#[test]
fn the_user_is_the_user_for_good() {
    let outcome = run(command(user(), "cat /proc/self/status"));
    let status = outcome.good();
    for wanted in [
        "Uid:\t54321\t54321\t54321\t54321\n",
        "Gid:\t54322\t54322\t54322\t54322\n",
        "Groups:\t54322 54323 \n",
        "CapInh:\t0000000000000000\n",
        "CapPrm:\t0000000000000000\n",
        "CapEff:\t0000000000000000\n",
        "CapAmb:\t0000000000000000\n",
    ] {
        assert!(status.contains(wanted), "{wanted:?} in {status}");
    }
    // The positive control: root keeps what root has.
    let outcome = run(command(root(), "grep CapEff /proc/self/status"));
    assert!(!outcome.good().contains("0000000000000000"), "{outcome:?}");
}

#[test]
fn resources_are_as_ordered() {
    let mut order = command(
        user(),
        "umask; ulimit -Sn; ulimit -Hn; nice; cat /proc/self/oom_score_adj",
    );
    order.resources.umask = Some(0o027);
    order.resources.nice = Some(5);
    order.resources.oom_score_adj = Some(17);
    order.resources.limits = vec![Limit {
        resource: 7,
        soft: 123,
        hard: 456,
    }];
    assert_eq!(run(order).good(), "0027\n123\n456\n5\n17\n");
}

#[test]
fn loginuid_and_keyring() {
    let mut order = command(user(), "cat /proc/self/loginuid; echo; keyctl show @s");
    order.resources.loginuid = true;
    order.resources.keyring = true;
    let outcome = run(order);
    let mut lines = outcome.good().lines();
    assert_eq!(lines.next(), Some("54321"));
    assert!(outcome.output.contains("_ses"), "a session keyring: {outcome:?}");
    assert!(
        outcome.output.contains("_uid.54321"),
        "the user's keyring in it: {outcome:?}"
    );
    // The positive control: without the order, whatever the launching side has.
    let outcome = run(command(user(), "cat /proc/self/loginuid"));
    assert_ne!(outcome.good(), "54321");
}

#[test]
fn home_is_entered_or_its_absence_told() {
    assert_eq!(run(command(user(), "pwd")).good(), "/tmp\n");
    let table = [
        ("/no/such/home", "No such file or directory"),
        ("/etc/passwd", "Not a directory"),
        ("/root", "Permission denied"),
    ];
    for (home, why) in table {
        let mut order = command(user(), "pwd");
        order.account.home = text(home);
        let outcome = run(order);
        assert_eq!(outcome.good(), "/\n");
        let wanted = format!("Could not chdir to home directory {home}: {why}\n");
        assert_eq!(outcome.errors, wanted);
    }
}

#[test]
fn timings_are_told_when_asked() {
    let mut order = command(user(), "true");
    order.timings = true;
    let outcome = run(order);
    let Some(Reply::Leaving { timings, .. }) = outcome.replies.last() else {
        panic!("{outcome:?}")
    };
    let names: Vec<_> = timings.iter().map(|t| t.step.to_str().expect("ascii")).collect();
    assert_eq!(
        names,
        [
            "descriptors",
            "checks",
            "terminal",
            "resources",
            "ready",
            "privileges",
            "environment",
            "home"
        ]
    );
}

#[test]
fn an_exec_context_is_written_or_refused() {
    let mut order = command(user(), "true");
    order.selinux = Some(c"unconfined_u:unconfined_r:unconfined_t:s0".into());
    let outcome = run(order);
    if std::path::Path::new("/sys/fs/selinux/enforce").exists() {
        return;
    }
    // Without SELinux an order that names a context must not silently go without.
    let failure = outcome.failure().expect("a refusal");
    assert_eq!(failure.subject.to_str(), Ok("setting the SELinux context"));
    assert!(
        matches!(outcome.replies.first(), Some(Reply::Ready)),
        "{outcome:?}"
    );
    assert_eq!(outcome.exit, Exit::Code(70));
}

#[test]
fn without_root_only_oneself() {
    let me = user();
    // A helper that runs as an ordinary user, started by one of ours that became him.
    let outcome = orders::run_as(&me, command(me.clone(), "id -u; id -g"));
    assert_eq!(outcome.good(), "54321\n54322\n");
    let outcome = orders::run_as(&me, command(root(), "id -u"));
    let failure = outcome.failure().expect("a refusal");
    assert_eq!((failure.reason.clone(), failure.errno), (Reason::Denied, 1));
    assert!(outcome.output.is_empty());
}

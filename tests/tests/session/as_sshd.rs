//! The same account, the same machine: what exec shows, sets and records, beside what Debian's sshd does.

use fleetgate_logins::{Places, read};
use fleetgate_sys::process::Exit;
use fleetgate_tests::login_world::{World, living, sh};
use fleetgate_tests::orders::{command, run, run_on_terminal, shell, text};
use fleetgate_wire::Reason;
use fleetgate_wire::common::{Ageing, Moment, Variable};
use fleetgate_wire::exec::{Exec, Login};

const LOOPBACK: [u8; 16] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 127, 0, 0, 1];

fn login() -> Login {
    Login {
        at: Moment {
            sec: fleetgate_sys::clock::wall().sec,
            nsec: 0,
        },
        host: c"127.0.0.1".into(),
        address: LOOPBACK,
        utmp: true,
        lastlog: true,
        audit: true,
        last_login_message: true,
        motd: true,
    }
}

fn variable(name: &str, value: &str) -> Variable {
    Variable {
        name: text(name),
        value: text(value),
    }
}

/// Lines, sorted, without those that name the connection or the shell's own bookkeeping.
fn variables(env: &str) -> Vec<&str> {
    let mut lines: Vec<&str> = env
        .lines()
        .filter(|l| !l.starts_with("SSH_") && !l.starts_with("_="))
        .collect();
    lines.sort_unstable();
    lines
}

#[test]
fn the_environment_is_as_with_sshd() {
    let world = World::new();
    std::fs::write(
        "/run/home/ada/.ssh/environment",
        "# mine\nMINE=1\nUSER=\"quoted\"\n",
    )
    .expect("write");
    for (user, account) in [("ada", world.ada()), ("root", fleetgate_tests::orders::root())] {
        let theirs = world.ssh(user, &["-o", "SendEnv=LC_TEST", "-o", "SendEnv=OTHER", "env"], "");
        assert!(theirs.status.success(), "{theirs:?}");
        let theirs = String::from_utf8_lossy(&theirs.stdout).into_owned();
        let mut order = command(account.clone(), "env");
        order.environment.client = vec![variable("LC_TEST", "yes"), variable("OTHER", "no")];
        order.environment.accept = vec![text("LANG"), text("LC_*")];
        order.environment.user_environment = true;
        let ours = run(order);
        assert_eq!(variables(ours.good()), variables(&theirs), "{user}");
    }
}

#[test]
fn the_order_of_environments() {
    let world = World::new();
    std::fs::write("/run/home/ada/.ssh/environment", "A=user\nB=user\nC=user\n").expect("write");
    sh("printf 'B=etc\\nD=etc\\nE=etc\\nPATH=/etc/path:/bin:/usr/bin\\n' > /etc/environment");
    let mut order = command(world.ada(), "echo $A $B $C $D $E $HOME $PATH $TZ");
    order.environment.client = vec![
        variable("D", "client"),
        variable("HOME", "client"),
        variable("E", "x"),
    ];
    order.environment.accept = vec![text("*")];
    order.environment.set = vec![variable("C", "server"), variable("E", "")];
    order.environment.etc_environment = true;
    order.environment.user_environment = true;
    let outcome = fleetgate_tests::orders::run_with(order, &["TZ=Asia/Tokyo", "LD_PRELOAD=/x"]);
    assert_eq!(
        outcome.good(),
        "user user server etc /run/home/ada /etc/path:/bin:/usr/bin Asia/Tokyo\n"
    );
}

#[test]
fn a_login_shows_and_records_the_same() {
    let world = World::new();
    // Typed before the shell reads: both echo it somewhere, and the end of its line apart from it, so the prompt and the echo
    // are left out of the comparison.
    let script = "exec true\n";
    let greeting = |output: &str| -> String {
        let output = output.replacen("exec true", "", 1);
        let end = output.find("Be kind.\r\n").map_or(0, |at| at + 10);
        let lines = output[..end].split_inclusive('\n');
        lines.filter(|line| *line != "\r\n").collect()
    };
    let mut order = shell(world.ada());
    order.login = Some(login());
    let first = run_on_terminal(order, script);
    assert!(first.left(), "{first:?}");
    assert_eq!(greeting(&first.output), "Welcome to the test.\r\nBe kind.\r\n");
    assert!(!first.output.contains("Last login"), "nobody was here before");
    let ours = read(&Places::system().wtmp).expect("wtmp");

    let theirs = world.ssh("ada", &["-tt"], script);
    let theirs = greeting(&String::from_utf8_lossy(&theirs.stdout));
    assert!(theirs.contains("Last login: "), "{theirs}");
    // sshd read the lastlog that we wrote; what it says is what we would have said.
    let wtmp = read(&Places::system().wtmp).expect("wtmp");
    let (mine, other) = (&ours[0], &wtmp[1]);
    assert_eq!(
        (
            mine.kind,
            &mine.user,
            &mine.host,
            &mine.address,
            mine.line.starts_with(b"pts/")
        ),
        (
            other.kind,
            &other.user,
            &other.host,
            &other.address,
            other.line.starts_with(b"pts/")
        )
    );

    // The other way round: we read what sshd wrote.
    let last = sh("lastlog -u ada | tail -1");
    let mut order = shell(world.ada());
    let mut later = login();
    // Not in the same second on the same terminal, which would be the same login ordered twice.
    later.at.sec += 5;
    order.login = Some(later);
    let again = run_on_terminal(order, script);
    let again = greeting(&again.output);
    let day = last.split_whitespace().nth(3).expect("a day");
    assert!(
        again.starts_with(&format!("Last login: {day} ")),
        "{again} after {last}"
    );
    assert!(again.contains(" from 127.0.0.1\r"), "{again}");
    // All but the moment is the same text.
    let without_time = |s: &str| {
        let mut lines: Vec<String> = s.lines().map(str::to_owned).collect();
        lines[0].replace_range(12..36, "");
        lines
    };
    assert_eq!(without_time(&again), without_time(&theirs));
}

#[test]
fn hushlogin_and_commands_show_nothing() {
    let world = World::new();
    std::fs::write("/run/home/ada/.hushlogin", "").expect("write");
    let mut order = shell(world.ada());
    order.login = Some(login());
    let hushed = run_on_terminal(order, "exec true\n");
    assert!(hushed.left() && !hushed.output.contains("Welcome"), "{hushed:?}");
    let theirs = world.ssh("ada", &["-tt"], "exec true\n");
    assert!(!String::from_utf8_lossy(&theirs.stdout).contains("Welcome"));
    std::fs::remove_file("/run/home/ada/.hushlogin").expect("remove");
    let mut order = command(world.ada(), "echo done");
    order.login = Some(login());
    let outcome = run_on_terminal(order, "");
    assert_eq!(outcome.good(), "done\r\n");
}

#[test]
fn nologin_keeps_everybody_but_root_out() {
    let world = World::new();
    let order = |account| {
        let mut order = command(account, "echo in");
        order.checks.nologin = true;
        order
    };
    assert_eq!(run(order(world.ada())).good(), "in\n");
    std::fs::write("/etc/nologin", "Down until noon.\nSorry.\n").expect("write");
    let theirs = world.ssh("ada", &["echo in"], "");
    let ours = run(order(world.ada()));
    assert_eq!(ours.failure().expect("a refusal").reason, Reason::NoLogin);
    assert_eq!(ours.errors, String::from_utf8_lossy(&theirs.stderr));
    assert_eq!(ours.errors, "Down until noon.\nSorry.\n");
    assert_eq!((ours.exit, theirs.status.code()), (Exit::Code(254), Some(254)));
    assert_eq!(ours.output, "");
    assert_eq!(run(order(fleetgate_tests::orders::root())).good(), "in\n");
    sh("mv /etc/nologin /run/nologin");
    assert_eq!(run(order(world.ada())).exit, Exit::Code(254));
}

#[test]
fn missing_home_and_shell() {
    let world = World::new();
    sh("sed -i s:/run/home/ada:/run/home/gone: /etc/passwd");
    let theirs = world.ssh("ada", &["pwd"], "");
    let mut order = command(world.ada(), "pwd");
    order.account.home = c"/run/home/gone".into();
    let ours = run(order);
    assert_eq!(ours.good(), String::from_utf8_lossy(&theirs.stdout));
    assert_eq!(ours.errors, String::from_utf8_lossy(&theirs.stderr));
    assert!(
        ours.errors
            .starts_with("Could not chdir to home directory /run/home/gone: ")
    );
}

fn aged(world: &World, ageing: (i64, i64, i64, i64)) -> Exec {
    let mut order = command(world.ada(), "echo in");
    order.checks.expiry = true;
    order.account.ageing = Some(Ageing {
        last_change: ageing.0,
        max_days: ageing.1,
        inactive_days: ageing.2,
        expires: ageing.3,
        locked: false,
    });
    order
}

#[test]
fn expired_accounts_and_passwords() {
    let world = World::new();
    assert_eq!(run(aged(&world, (19_000, 99_999, -1, -1))).good(), "in\n");

    let gone = run(aged(&world, (19_000, 99_999, -1, 1)));
    assert_eq!(gone.failure().expect("a refusal").reason, Reason::AccountExpired);
    assert_eq!((gone.output.as_str(), gone.exit), ("", Exit::Code(1)));
    assert!(gone.errors.starts_with("Your account has expired"));

    // A password that must be changed: sshd's words and codes, without a terminal and with one.
    sh("chage -d 0 ada");
    let password = "PreferredAuthentications=password";
    let theirs = world.ssh("ada", &["-o", password, "echo in"], "");
    let ours = run(aged(&world, (0, 99_999, -1, -1)));
    assert_eq!(ours.failure().expect("a refusal").reason, Reason::PasswordExpired);
    assert_eq!(ours.errors, String::from_utf8_lossy(&theirs.stderr));
    assert_eq!((ours.exit, theirs.status.code()), (Exit::Code(1), Some(1)));
    // With a terminal it is passwd that runs; hanging up ends it.
    let mut living = living(aged(&world, (0, 99_999, -1, -1)));
    let shown = living.read_until("password");
    let wanted = "WARNING: Your password has expired.\r\n\
        You must change your password now and login again!\r\n";
    assert!(shown.starts_with(wanted), "{shown}");
    assert_eq!(sh(&format!("cat /proc/{}/comm", living.started.pid)), "passwd\n");
    drop(living.ours);
    living.started.wait();
}

//! Login records, read back with the programs that people use, while a session lives, after its logout and after it
//! was killed; closed by the keeper.

use fleetgate_launch::{SessionReaper, SessionToClose};
use fleetgate_logins::{Entry, Places, failed, read};
use fleetgate_sys::clock::{self, Time};
use fleetgate_sys::process;
use fleetgate_tests::login_world::{Living, World, living, sh};
use fleetgate_tests::orders::{self, shell};
use fleetgate_wire::common::Moment;
use fleetgate_wire::exec::{Exec, Login};
use fleetgate_wire::order::{Role, Work};
use std::io::Write;
use std::path::Path;
use std::sync::mpsc;

const SIGKILL: i32 = 9;

fn order(world: &World) -> Exec {
    let mut order = shell(world.ada());
    // Without it `last` takes the session for one that is gone.
    order.resources.loginuid = true;
    order.login = Some(Login {
        at: Moment {
            sec: clock::wall().sec,
            nsec: 5000,
        },
        host: c"192.0.2.7".into(),
        address: [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 192, 0, 2, 7],
        utmp: true,
        lastlog: true,
        audit: true,
        last_login_message: false,
        motd: false,
    });
    order
}

/// A session that a keeper watches; the records are closed when the keeper is gone.
fn ended(world: &World, end: impl FnOnce(&mut Living)) -> String {
    let order = order(world);
    let mut session = living(order.clone());
    let line = session
        .terminal
        .to_str()
        .expect("ascii")
        .trim_start_matches("/dev/")
        .to_owned();
    let mut order = order;
    order.terminal = Some(session.terminal.clone());

    let who = sh("who /run/utmp");
    assert!(
        who.contains("ada") && who.contains(&line) && who.contains("(192.0.2.7)"),
        "{who}"
    );
    let last = sh("last -f /var/log/wtmp -n 1 ada");
    assert!(last.contains(&line) && last.contains("still logged in"), "{last}");
    assert!(sh("lastlog -u ada").contains("192.0.2.7"));

    let keeper = SessionReaper::start(Path::new("/run/test/sessions"), Places::system()).expect("a keeper");
    let (told, ends) = mpsc::channel();
    let pid = session.started.pid;
    let pidfd = session.started.pidfd.duplicate(3).expect("dup");
    keeper
        .keep(pidfd, SessionToClose::of(&order, pid), move |_| {
            told.send(()).expect("somebody listens")
        })
        .expect("kept");
    end(&mut session);
    ends.recv_timeout(std::time::Duration::from_secs(60))
        .expect("the session ended");
    drop(keeper);

    let who = sh("who /run/utmp");
    assert_eq!(who, "", "nobody is logged in any more");
    let last = sh("last -f /var/log/wtmp -n 1 ada");
    assert!(
        last.contains(&line) && !last.contains("still logged in") && !last.contains("gone"),
        "{last}"
    );
    let dump = sh("utmpdump /run/utmp 2>/dev/null");
    assert!(dump.starts_with("[8]"), "{dump}");
    line
}

#[test]
fn a_record_is_closed_after_a_logout() {
    let world = World::new();
    ended(&world, |session| session.ours.write_all(b"exit\n").expect("type"));
    assert_eq!(read(&Places::system().utmp).expect("utmp").len(), 1);
    assert_eq!(read(&Places::system().wtmp).expect("wtmp").len(), 2);
}

#[test]
fn a_record_is_closed_after_a_kill() {
    let world = World::new();
    ended(&world, |session| {
        process::signal(&session.started.pidfd, SIGKILL).expect("kill")
    });
}

#[test]
fn an_order_given_twice_is_one_login() {
    let world = World::new();
    let terminal = orders::Terminal::open();
    let mut order = order(&world);
    order.terminal = Some(terminal.path.clone());
    // The first helper dies before the shell runs, as a launch that is made again does.
    for shell in [c"/bin/none", c"/bin/bash"] {
        order.account.shell = shell.into();
        let started = orders::start("exec", &[]);
        orders::send(
            &started.control,
            Work::Exec(order.clone()),
            &[(Role::Terminal, &terminal.user)],
        );
        started.replies();
        if shell == c"/bin/none" {
            started.wait();
        } else {
            let utmp = read(&Places::system().utmp).expect("utmp");
            let wtmp = read(&Places::system().wtmp).expect("wtmp");
            assert_eq!((utmp.len(), wtmp.len()), (1, 1));
            assert_eq!((utmp[0].pid, wtmp[0].pid), (started.pid, started.pid));
            process::signal(&started.pidfd, SIGKILL).expect("kill");
            started.wait();
        }
    }
}

#[test]
fn failures_are_read_by_lastb() {
    let _world = World::new();
    let entry = Entry {
        user: c"mallory".into(),
        uid: 0,
        line: c"ssh:notty".into(),
        host: c"192.0.2.66".into(),
        address: [0; 16],
        pid: 1,
        at: Time {
            sec: clock::wall().sec,
            nsec: 0,
        },
    };
    failed(&Places::system(), &entry).expect("btmp");
    let lastb = sh("lastb -f /var/log/btmp");
    assert!(lastb.starts_with("mallory  ssh:notty    192.0.2.66"), "{lastb}");
}

/// strace shows a netlink message's text byte by byte, `\xNN`.
fn unescaped(trace: &str) -> String {
    let mut parts = trace.split("\\x");
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (digits, rest) = part.split_at(2);
        text.push(char::from(u8::from_str_radix(digits, 16).expect("two digits")));
        text.push_str(rest);
    }
    text
}

#[test]
fn audit_is_told_in_libaudits_words() {
    let world = World::new();
    let mut order = order(&world);
    let terminal = orders::Terminal::open();
    order.terminal = Some(terminal.path.clone());
    order.program = fleetgate_wire::exec::Program::Command { line: c"true".into() };
    let strace = [
        "/usr/bin/strace",
        "-qq",
        "-s",
        "600",
        "-e",
        "trace=sendto",
        "-o",
        "/run/test/trace",
    ];
    let started = orders::start_by(&strace, "exec");
    orders::send(
        &started.control,
        Work::Exec(order),
        &[(Role::Terminal, &terminal.user)],
    );
    started.replies();
    started.wait();
    let trace = unescaped(&sh("cat /run/test/trace"));
    for kind in ["0x44f", "0x458", "0x451"] {
        assert!(trace.contains(kind), "message {kind} in {trace}");
    }
    let op = trace.matches("op=login id=54321 exe=").count();
    assert_eq!(
        (op, trace.matches("op=setcred id=54321 exe=").count()),
        (2, 1),
        "{trace}"
    );
    let end = format!(
        "hostname=192.0.2.7 addr=192.0.2.7 terminal={} res=success",
        terminal.path.to_str().expect("ascii")
    );
    assert_eq!(trace.matches(&end).count(), 3, "{trace}");
}

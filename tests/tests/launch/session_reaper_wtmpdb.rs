//! The session reaper has wtmpdb written: a row opens with the session and closes with it, after a crash too. Each test has
//! its own /var/lib/wtmpdb, in a mount namespace of its thread's; rows are read back by SQLite's own program.

use fleetgate_launch::{Places, RepairReport, SessionReaper, SessionToClose, Wtmpdb};
use fleetgate_sys::Fd;
use fleetgate_sys::process::{self, Exit};
use fleetgate_tests::login_world::{Living, World, living, sh};
use fleetgate_tests::orders::command;
use fleetgate_tests::world::wait_until;
use fleetgate_tests::{fleetgate, needs_root};
use fleetgate_wire::common::Moment;
use fleetgate_wire::exec::{Exec, Login};
use std::path::Path;
use std::sync::mpsc;

const SESSIONS: &str = "/run/test/sessions";
const DATABASE: &str = "/run/test/lib/wtmpdb";

/// A login of ada's on a terminal, that lives until it is killed.
fn order(world: &World) -> Exec {
    let mut order = command(world.ada(), "echo here; read line");
    order.session = *b"session in wtmpd";
    order.login = Some(Login {
        at: Moment {
            sec: 1_700_000_000,
            nsec: 1000,
        },
        host: c"192.0.2.7".into(),
        address: [0; 16],
        utmp: true,
        lastlog: false,
        audit: false,
        last_login_message: false,
        motd: false,
    });
    order
}

/// What the session reaper is told of it: the session, and a descriptor of its process.
fn kept(order: &Exec, living: &Living) -> (SessionToClose, Fd) {
    let mut order = order.clone();
    order.terminal = Some(living.terminal.clone());
    let pidfd = living.started.pidfd.duplicate(3).expect("a second descriptor");
    (SessionToClose::of(&order, living.started.pid), pidfd)
}

fn session_reaper() -> SessionReaper {
    let wtmpdb = Wtmpdb {
        program: fleetgate(),
        state: "/run/test/wtmpdb".into(),
        database: DATABASE.into(),
    };
    SessionReaper::start_with(Path::new(SESSIONS), Places::system(), Some(wtmpdb)).expect("a session reaper")
}

/// A world with an empty wtmpdb, or without any.
fn world(wtmpdb: bool) -> World {
    let world = World::new();
    sh("mkdir -p /run/test/lib && mount --bind /run/test/lib /var/lib");
    if wtmpdb {
        sh("mkdir /var/lib/wtmpdb");
    }
    world
}

fn rows() -> String {
    sh(
        "test ! -e /var/lib/wtmpdb/wtmp.db || sqlite3 /var/lib/wtmpdb/wtmp.db \
        \"SELECT User, Login, Logout IS NOT NULL, TTY, RemoteHost, Service FROM wtmp\"",
    )
    .trim_end()
    .to_owned()
}

fn notes() -> usize {
    std::fs::read_dir(SESSIONS).expect("the notes").count()
}

fn row(terminal: &str, closed: u8) -> String {
    let line = terminal.trim_start_matches("/dev/");
    format!("ada|1700000000000001|{closed}|{line}|192.0.2.7|fleetgate")
}

#[test]
fn a_row_opens_and_closes_with_its_session() {
    needs_root!("a mount namespace");
    let world = world(true);
    let order = order(&world);
    let living = living(order.clone());
    let session_reaper = session_reaper();
    let (send, ended) = mpsc::channel();
    let (session, pidfd) = kept(&order, &living);
    session_reaper
        .keep(pidfd, session, move |end| {
            let _ = send.send(end.exit);
        })
        .expect("kept");
    let terminal = living.terminal.to_string_lossy().into_owned();
    wait_until("the row is open", || rows() == row(&terminal, 0));
    process::signal(&living.started.pidfd, process::SIGKILL).expect("kill");
    let killed = Exit::Signal {
        number: 9,
        core: false,
    };
    assert_eq!(ended.recv(), Ok(Some(killed)));
    drop(session_reaper);
    assert_eq!(rows(), row(&terminal, 1));
    assert_eq!(notes(), 0, "the note goes with the row's end");
}

#[test]
fn a_row_that_a_crash_left_open_is_closed_at_the_next_start() {
    needs_root!("a mount namespace");
    let world = world(true);
    let order = order(&world);
    let living = living(order.clone());
    let terminal = living.terminal.to_string_lossy().into_owned();
    let first = session_reaper();
    let (session, pidfd) = kept(&order, &living);
    first.keep(pidfd, session, |_| {}).expect("kept");
    // It ends; its session goes on.
    drop(first);
    assert_eq!((rows(), notes()), (row(&terminal, 0), 1));
    process::signal(&living.started.pidfd, process::SIGKILL).expect("kill");
    process::wait(&living.started.pidfd, true).expect("reaped");
    let second = session_reaper();
    let closed = RepairReport {
        closed: 1,
        ..RepairReport::default()
    };
    assert_eq!(second.mended(), closed);
    drop(second);
    assert_eq!((rows(), notes()), (row(&terminal, 1), 0));
}

#[test]
fn without_wtmpdb_nothing_is_made() {
    needs_root!("a mount namespace");
    let world = world(false);
    let order = order(&world);
    let living = living(order.clone());
    let session_reaper = session_reaper();
    let (session, pidfd) = kept(&order, &living);
    session_reaper.keep(pidfd, session, |_| {}).expect("kept");
    process::signal(&living.started.pidfd, process::SIGKILL).expect("kill");
    wait_until("the session is closed", || notes() == 0);
    drop(session_reaper);
    assert!(!Path::new("/var/lib/wtmpdb").exists());
}

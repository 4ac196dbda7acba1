//! What is closed when a session ends, and what is mended after a crash. Records go to files of the test's own.

use fleetgate_launch::{Launcher, Places, RepairReport, RunningHelper, SessionReaper, SessionToClose};
use fleetgate_logins::{Kind, Line};
use fleetgate_sys::process::Exit;
use fleetgate_tests::launching::{ask, chain};
use fleetgate_tests::orders::{command, pipe, text, user};
use fleetgate_wire::common::Moment;
use fleetgate_wire::exec::{Exec, Login};
use fleetgate_wire::order::Role;
use std::ffi::CString;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc;

/// Files of a test's own: a root with login records, and the session reaper's directory.
struct Room {
    root: PathBuf,
    places: Places,
}

impl Room {
    fn new() -> Room {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let root = std::env::temp_dir().join(format!("fleetgate-keeper-{}-{number}", std::process::id()));
        fs::create_dir_all(root.join("var/run")).expect("mkdir");
        fs::create_dir_all(root.join("var/log")).expect("mkdir");
        for file in ["var/run/utmp", "var/log/wtmp"] {
            fs::write(root.join(file), "").expect("file");
        }
        let places = Places::under(&text(&root));
        Room { root, places }
    }
    fn directory(&self) -> PathBuf {
        self.root.join("sessions")
    }
    fn session_reaper(&self) -> SessionReaper {
        SessionReaper::start(&self.directory(), self.places.clone()).expect("a session reaper")
    }
    fn notes(&self) -> Vec<String> {
        let names = fs::read_dir(self.directory()).expect("the directory");
        names
            .map(|e| e.expect("entry").file_name().to_string_lossy().into_owned())
            .collect()
    }
    fn lines(&self, path: &CString, kind: Kind) -> Vec<Line> {
        let lines = fleetgate_logins::read(path).expect("records");
        lines
            .into_iter()
            .filter(|line| line.kind == kind as u16)
            .collect()
    }
    /// How many are logged in by utmp, and how many logouts wtmp knows.
    fn records(&self) -> (usize, usize) {
        let there = self.lines(&self.places.utmp, Kind::User).len();
        (there, self.lines(&self.places.wtmp, Kind::Dead).len())
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.root);
    }
}

/// A session that lives until its standard input closes, noted as logged in on a terminal.
fn start(room: &Room) -> (RunningHelper, SessionToClose, fleetgate_sys::Fd) {
    let mut launcher = Launcher::new(chain()).expect("launcher");
    let (stdin, feed) = pipe();
    let mut asked = ask(command(user(), "read line; exit 3"));
    asked.launch.fds.retain(|(role, _)| *role != Role::Stdin);
    asked.launch.fds.push((Role::Stdin, stdin));
    let (running, _) = launcher.launch(asked.launch).expect("a session");
    let order = Exec {
        session: *b"a test's session",
        terminal: Some(c"/dev/pts/7".into()),
        login: Some(Login {
            at: Moment {
                sec: 1_700_000_000,
                nsec: 0,
            },
            host: c"peer.example".into(),
            address: [0; 16],
            utmp: true,
            lastlog: false,
            audit: true,
            last_login_message: false,
            motd: false,
        }),
        ..command(user(), "")
    };
    let session = SessionToClose::of(&order, running.pid);
    fleetgate_logins::login(&room.places, &session.entry).expect("login");
    assert_eq!(room.records(), (1, 0), "logged in, by utmp");
    (running, session, feed)
}

fn keep(
    session_reaper: &SessionReaper,
    running: RunningHelper,
    session: SessionToClose,
) -> mpsc::Receiver<Option<Exit>> {
    let (send, receive) = mpsc::channel();
    session_reaper
        .keep(running.pidfd, session, move |end| {
            let _ = send.send(end.exit);
        })
        .expect("kept");
    receive
}

#[test]
fn a_session_that_ends_is_closed() {
    let room = Room::new();
    let session_reaper = room.session_reaper();
    let (running, session, feed) = start(&room);
    let ended = keep(&session_reaper, running, session);
    let notes = room.notes();
    assert_eq!(notes.len(), 1, "noted before the launch is reported as done");
    let mode = |path: PathBuf| fs::metadata(path).expect("there").permissions().mode() & 0o777;
    assert_eq!(mode(room.directory()), 0o700);
    assert_eq!(mode(room.directory().join(&notes[0])), 0o600);
    assert_eq!((room.records(), session_reaper.running()), ((1, 0), 1));
    drop(feed);
    assert_eq!(ended.recv(), Ok(Some(Exit::Code(3))));
    drop(session_reaper);
    assert_eq!(room.records(), (0, 1));
    assert!(room.notes().is_empty());
}

#[test]
fn a_session_that_is_killed_is_closed_too() {
    let room = Room::new();
    let session_reaper = room.session_reaper();
    let (running, session, _feed) = start(&room);
    running.signal(9).expect("kill");
    let ended = keep(&session_reaper, running, session);
    let killed = Exit::Signal {
        number: 9,
        core: false,
    };
    assert_eq!(ended.recv(), Ok(Some(killed)));
    drop(session_reaper);
    assert_eq!((room.records(), room.notes().len()), ((0, 1), 0));
}

#[test]
fn a_session_that_ended_while_nobody_watched_is_mended() {
    let room = Room::new();
    let session_reaper = room.session_reaper();
    let (running, session, feed) = start(&room);
    let waits = fleetgate_sys::process::pidfd_open(running.pid).expect("pidfd");
    let ended = keep(&session_reaper, running, session);
    drop(session_reaper);
    assert!(ended.recv().is_err(), "the session reaper is gone");
    assert_eq!(
        (room.records(), room.notes().len()),
        ((1, 0), 1),
        "nobody closed it"
    );
    drop(feed);
    assert_eq!(
        fleetgate_sys::process::wait(&waits, true),
        Ok(Some(Exit::Code(3)))
    );
    let session_reaper = room.session_reaper();
    let closed = RepairReport {
        closed: 1,
        ..RepairReport::default()
    };
    assert_eq!(session_reaper.mended(), closed);
    assert_eq!((room.records(), room.notes().len()), ((0, 1), 0));
}

#[test]
fn a_session_that_still_runs_is_watched_again() {
    let room = Room::new();
    let session_reaper = room.session_reaper();
    let (running, session, feed) = start(&room);
    let waits = fleetgate_sys::process::pidfd_open(running.pid).expect("pidfd");
    drop(keep(&session_reaper, running, session));
    drop(session_reaper);
    let session_reaper = room.session_reaper();
    let adopted = RepairReport {
        adopted: 1,
        ..RepairReport::default()
    };
    assert_eq!((session_reaper.mended(), session_reaper.running()), (adopted, 1));
    drop(feed);
    fleetgate_tests::orders::wait_for(&waits, fleetgate_sys::poll::READ);
    drop(session_reaper);
    assert_eq!((room.records(), room.notes().len()), ((0, 1), 0));
}

#[test]
fn notes_of_another_boot_and_broken_ones_close_nothing() {
    let room = Room::new();
    let session_reaper = room.session_reaper();
    let (running, session, _feed) = start(&room);
    let pidfd = fleetgate_sys::process::pidfd_open(running.pid).expect("pidfd");
    drop(keep(&session_reaper, running, session));
    drop(session_reaper);
    let note = room.directory().join(&room.notes()[0]);
    let whole = fs::read_to_string(&note).expect("note");
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").expect("boot id");
    fs::write(&note, whole.replace(boot.trim(), "another-boot")).expect("write");
    fs::write(room.directory().join("broken.json"), "{\"form\": 1").expect("write");
    fs::write(room.directory().join(".half.json"), "{").expect("write");
    let session_reaper = room.session_reaper();
    let found = RepairReport {
        outdated: 1,
        broken: 1,
        ..RepairReport::default()
    };
    assert_eq!(session_reaper.mended(), found);
    assert_eq!(room.records(), (1, 0), "not ours to close");
    assert_eq!(room.notes(), ["broken.broken"]);
    fleetgate_sys::process::signal(&pidfd, 9).expect("kill");
    fleetgate_sys::process::wait(&pidfd, true).expect("wait");
}

#[test]
fn a_process_id_that_was_used_again_is_not_the_session() {
    let room = Room::new();
    let session_reaper = room.session_reaper();
    let (running, session, _feed) = start(&room);
    let pidfd = fleetgate_sys::process::pidfd_open(running.pid).expect("pidfd");
    drop(keep(&session_reaper, running, session));
    drop(session_reaper);
    let note = room.directory().join(&room.notes()[0]);
    let whole = fs::read_to_string(&note).expect("note");
    // The same number, started at another time: somebody else.
    fs::write(&note, whole.replace("\"start\": ", "\"start\": 1")).expect("write");
    let closed = RepairReport {
        closed: 1,
        ..RepairReport::default()
    };
    assert_eq!(room.session_reaper().mended(), closed);
    assert_eq!(room.records(), (0, 1));
    fleetgate_sys::process::signal(&pidfd, 9).expect("the process was left alone");
    fleetgate_sys::process::wait(&pidfd, true).expect("wait");
}

#[test]
fn what_is_left_in_the_cgroup_is_killed_and_the_cgroup_goes() {
    let mounts = fs::read_to_string("/proc/self/mounts").expect("mounts");
    let mount = mounts
        .lines()
        .map(|l| l.split(' ').collect::<Vec<_>>())
        .find(|l| l[2] == "cgroup2");
    let Some(mount) = mount else {
        return fleetgate_tests::skip("no cgroup2 is mounted");
    };
    let cgroup = PathBuf::from(mount[1]).join(format!("fleetgate-keeper-{}", std::process::id()));
    if fs::create_dir(&cgroup).is_err() {
        return fleetgate_tests::skip("no cgroup can be made");
    }
    let room = Room::new();
    let session_reaper = room.session_reaper();
    let mut launcher = Launcher::new(chain()).expect("launcher");
    // Leaves somebody behind who holds the output open.
    let mut asked = ask(command(user(), "sleep 1000 & echo left"));
    asked.launch.cgroup = Some(fs::File::open(&cgroup).expect("cgroup").into());
    let output = asked.output;
    let (running, _) = launcher.launch(asked.launch).expect("a session");
    let mut session = SessionToClose::of(&command(user(), ""), running.pid);
    session.cgroup = Some(cgroup.clone());
    session.kill_remaining = true;
    let ended = keep(&session_reaper, running, session);
    // Ends when the last one who has it is gone: the one left behind.
    assert_eq!(fleetgate_tests::orders::read_all(output), "left\n");
    assert_eq!(ended.recv(), Ok(Some(Exit::Code(0))));
    // The cgroup goes when the kernel has buried him; the session reaper's thread hears of it.
    let patience = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while cgroup.exists() && std::time::Instant::now() < patience {
        std::thread::yield_now();
    }
    assert!(!cgroup.exists());
}

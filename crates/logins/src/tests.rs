//! The files as glibc's programs would find them.

use super::*;
use fleetgate_sys::{Errno, Fd, lock, process};
use std::fs;
use std::path::{Path, PathBuf};

struct World {
    root: PathBuf,
    places: Places,
}

fn world(name: &str) -> World {
    let root = std::env::temp_dir().join(std::format!("fleetgate-logins-{}-{name}", process::id()));
    fs::create_dir_all(root.join("var/run")).expect("mkdir");
    fs::create_dir_all(root.join("var/log")).expect("mkdir");
    for file in ["var/run/utmp", "var/log/wtmp", "var/log/btmp", "var/log/lastlog"] {
        fs::write(root.join(file), b"").expect("write");
    }
    private(&root.join("var/log/btmp"));
    let text = CString::new(root.to_str().expect("utf-8")).expect("no zero");
    World {
        places: Places::under(&text),
        root,
    }
}

fn private(path: &Path) {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(path, fs::Permissions::from_mode(0o660)).expect("chmod");
}

impl Drop for World {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.root);
    }
}

fn entry(line: &core::ffi::CStr, sec: i64) -> Entry {
    Entry {
        user: c"ada".into(),
        uid: 1000,
        line: line.into(),
        host: c"192.0.2.7".into(),
        address: [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 192, 0, 2, 7],
        pid: 4711,
        at: Time {
            sec,
            nsec: 123_456_789,
        },
    }
}

#[test]
fn layout_is_glibcs() {
    let record = layout::record(&entry(c"/dev/pts/12", 1_700_000_000), Kind::User);
    assert_eq!(&record[8..15], b"pts/12\0");
    assert_eq!(&record[40..44], b"s/12");
    assert_eq!(&record[44..48], b"ada\0");
    assert_eq!(&record[76..85], b"192.0.2.7");
    if cfg!(target_arch = "x86_64") {
        assert_eq!(record.len(), 384);
        assert_eq!(&record[340..344], 1_700_000_000u32.to_ne_bytes());
        assert_eq!(&record[344..348], 123_456u32.to_ne_bytes());
        assert_eq!(&record[348..356], [192, 0, 2, 7, 0, 0, 0, 0]);
    }
}

#[test]
fn login_twice_is_login_once() {
    let w = world("twice");
    for pid in [1, 2] {
        let e = Entry {
            pid,
            ..entry(c"/dev/pts/3", 100)
        };
        login(&w.places, &e).expect("login");
    }
    for path in [&w.places.utmp, &w.places.wtmp] {
        let lines = read(path).expect("read");
        assert_eq!(lines.len(), 1, "one record however often it is ordered");
        assert_eq!(lines[0].pid, 2, "of the process that lives");
    }
    // The positive control: another moment is another login.
    login(&w.places, &entry(c"/dev/pts/3", 101)).expect("login");
    assert_eq!(
        read(&w.places.utmp).expect("read").len(),
        1,
        "one record per terminal"
    );
    assert_eq!(read(&w.places.wtmp).expect("read").len(), 2);
}

#[test]
fn logout_closes_its_own_session_only() {
    let w = world("logout");
    let (first, second) = (entry(c"pts/3", 100), entry(c"pts/3", 200));
    login(&w.places, &first).expect("login");
    login(&w.places, &second).expect("login");
    let at = Time { sec: 300, nsec: 0 };
    logout(&w.places, &first, at).expect("logout");
    assert_eq!(read(&w.places.utmp).expect("read")[0].kind, Kind::User as u16);
    logout(&w.places, &second, at).expect("logout");
    logout(&w.places, &second, at).expect("again");
    let utmp = read(&w.places.utmp).expect("read");
    assert_eq!(
        (utmp.len(), utmp[0].kind, utmp[0].sec),
        (1, Kind::Dead as u16, 300)
    );
    assert!(utmp[0].user.is_empty() && utmp[0].host.is_empty());
    assert_eq!(read(&w.places.wtmp).expect("read").len(), 3);
}

#[test]
fn a_torn_record_is_written_over() {
    let w = world("torn");
    let path = w.root.join("var/log/wtmp");
    fs::write(&path, [1u8; 100]).expect("write");
    login(&w.places, &entry(c"pts/1", 1)).expect("login");
    assert_eq!(fs::metadata(&path).expect("stat").len(), RECORD as u64);
}

#[test]
fn failures_go_to_a_private_btmp_only() {
    let w = world("btmp");
    let e = entry(c"ssh:notty", 5);
    failed(&w.places, &e).expect("failed");
    assert_eq!(read(&w.places.btmp).expect("read")[0].kind, Kind::Login as u16);
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(w.root.join("var/log/btmp"), fs::Permissions::from_mode(0o664)).expect("chmod");
    assert_eq!(failed(&w.places, &e), Err(Errno::EACCES));
}

#[test]
fn lastlog_is_by_id_and_sparse() {
    let w = world("lastlog");
    assert_eq!(last_login(&w.places, 1000), Ok(None));
    record_last_login(&w.places, &entry(c"/dev/pts/3", 77)).expect("record");
    let last = last_login(&w.places, 1000).expect("read").expect("is there");
    assert_eq!(
        (last.sec, &last.line[..], &last.host[..]),
        (77, &b"pts/3"[..], &b"192.0.2.7"[..])
    );
    assert_eq!(last_login(&w.places, 999), Ok(None));
}

#[test]
fn what_is_missing_is_not_kept() {
    let places = Places::under(c"/nowhere");
    let e = entry(c"pts/1", 1);
    assert_eq!(login(&places, &e), Ok(()));
    assert_eq!(logout(&places, &e, e.at), Ok(()));
    assert_eq!(failed(&places, &e), Ok(()));
    assert_eq!(record_last_login(&places, &e), Ok(()));
    assert_eq!(last_login(&places, 1), Ok(None));
}

#[test]
fn a_lock_held_by_another_is_waited_for_and_given_up() {
    let w = world("lock");
    let path = w.root.join("var/run/utmp");
    // Another process holds a lock: `flock`-like by a shell cannot do fcntl locks, so a python does.
    let script = "import fcntl,sys; f=open(sys.argv[1],'r+'); fcntl.lockf(f, fcntl.LOCK_EX); print('held', flush=True); sys.stdin.read()";
    let mut holder = std::process::Command::new("python3")
        .args(["-c", script, path.to_str().expect("utf-8")])
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .expect("python3");
    let mut line = [0u8; 5];
    std::io::Read::read_exact(holder.stdout.as_mut().expect("piped"), &mut line).expect("held");
    assert_eq!(login(&w.places, &entry(c"pts/1", 1)), Err(Errno::EAGAIN));
    assert!(read(&w.places.utmp).expect("read").is_empty());
    assert_eq!(
        read(&w.places.wtmp).expect("read").len(),
        1,
        "the other file is written all the same"
    );
    drop(holder.stdin.take());
    holder.wait().expect("wait");
    assert_eq!(login(&w.places, &entry(c"pts/1", 1)), Ok(()));
    let fd = Fd::from(fs::File::options().write(true).open(&path).expect("open"));
    assert_eq!(lock::try_write(&fd), Ok(()), "nothing stays locked");
}

#[test]
fn audit_speaks_libaudits_words() {
    let e = entry(c"/dev/pts/3", 1);
    let text = |e: &Entry, event, success| {
        std::string::String::from_utf8(audit::text(e, event, success, b"/usr/bin/fleetgate")).expect("ascii")
    };
    assert_eq!(
        text(&e, audit::Event::Login, true),
        "op=login id=1000 exe=\"/usr/bin/fleetgate\" hostname=192.0.2.7 addr=192.0.2.7 terminal=/dev/pts/3 res=success"
    );
    let evil = Entry {
        user: c"a\" res=success".into(),
        host: c"h addr=1".into(),
        ..e
    };
    let told = text(&evil, audit::Event::Login, false);
    assert_eq!(
        told,
        "op=login acct=6122207265733D73756363657373 exe=\"/usr/bin/fleetgate\" hostname=h_addr_1 addr=192.0.2.7 terminal=/dev/pts/3 res=failed"
    );
}

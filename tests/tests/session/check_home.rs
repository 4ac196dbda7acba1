//! Home directories and key files, good and bad, looked at by the helper as their owner.

use fleetgate_sys::process::Exit;
use fleetgate_sys::{memfd, poll, socket};
use fleetgate_tests::orders::{self, text};
use fleetgate_wire::common::Ids;
use fleetgate_wire::home::CheckHome;
use fleetgate_wire::order::Work;
use fleetgate_wire::reply::KeyFile;
use fleetgate_wire::{Failure, MAX_INLINE, Reason, Reply};
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};

const UID: u32 = 54321;

/// A home directory of somebody's, safe from top to bottom, in a place where only the top is shared.
struct Home {
    root: PathBuf,
    path: PathBuf,
}

impl Home {
    fn new(name: &str) -> Home {
        let root = PathBuf::from(format!("/run/fleetgate-test-{}-{name}", std::process::id()));
        let path = root.join("ada");
        fs::create_dir_all(path.join(".ssh")).expect("mkdir");
        mode(&root, 0o755);
        for dir in [&path, &path.join(".ssh")] {
            mode(dir, 0o700);
            own(dir, UID);
        }
        let home = Home { root, path };
        home.write(".ssh/authorized_keys", b"ssh-ed25519 AAAA ada\n");
        home
    }
    fn write(&self, name: &str, content: &[u8]) {
        let path = self.path.join(name);
        fs::write(&path, content).expect("write");
        mode(&path, 0o600);
        own(&path, UID);
    }
    fn check(&self, files: &[&str]) -> (Option<Failure>, Vec<KeyFile>) {
        check(&self.path, files, true)
    }
    /// Why the one key file was not read.
    fn refusal(&self) -> Option<Reason> {
        let (home, mut files) = self.check(&[".ssh/authorized_keys"]);
        assert_eq!(home, None);
        files.remove(0).failure.map(|f| f.reason)
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.root);
    }
}

fn mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("chmod");
}

fn own(path: &Path, uid: u32) {
    chown(path, Some(uid), Some(uid)).expect("chown");
}

/// The answer, with the contents that travelled beside it put in their places.
fn check(home: &Path, files: &[&str], strict_modes: bool) -> (Option<Failure>, Vec<KeyFile>) {
    let started = orders::start("checkhomedir", &[]);
    let order = CheckHome {
        ids: Ids {
            uid: UID,
            gid: UID,
            groups: vec![UID],
        },
        home: text(home),
        files: files.iter().map(text).collect(),
        strict_modes,
    };
    orders::send(&started.control, Work::CheckHome(order), &[]);
    let mut buffer = vec![0; MAX_INLINE];
    orders::wait_for(&started.control, poll::READ);
    let message = socket::receive(&started.control, &mut buffer, true).expect("an answer");
    assert!(!message.truncated);
    let reply = fleetgate_wire::decode(&buffer[..message.len]).expect("a reply");
    assert_eq!(started.wait(), Exit::Code(0));
    let Reply::Home { home, mut files } = reply else {
        panic!("{reply:?}")
    };
    let mut beside = message.fds.into_iter();
    for file in &mut files {
        if file.failure.is_none() && file.content.is_none() {
            let memory = beside.next().expect("a memfd for every long file");
            assert!(memfd::is_final(&memory));
            file.content = Some(fleetgate_sys::file::read_to_end(&memory, 1 << 21).expect("read"));
        }
    }
    assert_eq!(beside.count(), 0);
    (home, files)
}

#[test]
fn a_good_home_and_its_keys() {
    let home = Home::new("good");
    let (failure, files) = home.check(&[".ssh/authorized_keys", ".ssh/none"]);
    assert_eq!(failure, None);
    assert_eq!(files[0].content.as_deref(), Some(&b"ssh-ed25519 AAAA ada\n"[..]));
    assert_eq!(
        files[1].failure.as_ref().map(|f| f.reason.clone()),
        Some(Reason::Missing)
    );
}

#[test]
fn homes_that_cannot_be_entered() {
    let home = Home::new("entered");
    let closed = home.root.join("closed");
    fs::create_dir(&closed).expect("mkdir");
    mode(&closed, 0o700);
    let table = [
        (home.root.join("none"), Reason::Missing),
        (home.path.join(".ssh/authorized_keys"), Reason::WrongKind),
        (closed, Reason::Denied),
    ];
    for (path, reason) in table {
        let (failure, files) = check(&path, &[".ssh/authorized_keys"], true);
        let failure = failure.expect("a refusal");
        assert_eq!((failure.reason, failure.subject), (reason, text(&path)));
        assert!(files[0].failure.is_some());
    }
}

#[test]
fn strict_modes() {
    type Spoil = fn(&Home);
    let table: [(&str, Spoil, Option<Reason>); 9] = [
        ("untouched", |_| {}, None),
        (
            "file of root",
            |h| own(&h.path.join(".ssh/authorized_keys"), 0),
            Some(Reason::Denied),
        ),
        (
            "file of another",
            |h| {
                let file = h.path.join(".ssh/authorized_keys");
                own(&file, 54999);
                mode(&file, 0o644);
            },
            Some(Reason::Unsafe),
        ),
        (
            "file for the group",
            |h| mode(&h.path.join(".ssh/authorized_keys"), 0o620),
            Some(Reason::Unsafe),
        ),
        (
            "file for others",
            |h| mode(&h.path.join(".ssh/authorized_keys"), 0o602),
            Some(Reason::Unsafe),
        ),
        (
            "directory for the group",
            |h| mode(&h.path.join(".ssh"), 0o770),
            Some(Reason::Unsafe),
        ),
        ("home for others", |h| mode(&h.path, 0o707), Some(Reason::Unsafe)),
        (
            "home of another",
            |h| {
                own(&h.path, 54999);
                mode(&h.path, 0o755);
            },
            Some(Reason::Unsafe),
        ),
        // As in sshd, what is above the home directory is not looked at.
        ("above home for all", |h| mode(&h.root, 0o777), None),
    ];
    for (i, (name, spoil, wanted)) in table.into_iter().enumerate() {
        let home = Home::new(&format!("strict{i}"));
        spoil(&home);
        assert_eq!(home.refusal(), wanted, "{name}");
        if wanted == Some(Reason::Unsafe) {
            // Without StrictModes the same file is read.
            let (_, files) = check(&home.path, &[".ssh/authorized_keys"], false);
            assert_eq!(files[0].failure, None, "{name}");
        }
    }
}

#[test]
fn links_are_followed_to_where_they_really_lead() {
    let home = Home::new("links");
    home.write("real", b"linked\n");
    symlink("../real", home.path.join(".ssh/link")).expect("symlink");
    symlink("loop", home.path.join(".ssh/loop")).expect("symlink");
    let outside = home.root.join("outside");
    fs::create_dir(&outside).expect("mkdir");
    mode(&outside, 0o777);
    fs::write(outside.join("keys"), b"evil\n").expect("write");
    own(&outside.join("keys"), UID);
    symlink("../../outside/keys", home.path.join(".ssh/out")).expect("symlink");
    symlink("../../outside", home.path.join(".ssh/dir")).expect("symlink");
    let (_, files) = home.check(&[".ssh/link", ".ssh/loop", ".ssh/out", ".ssh/dir/keys"]);
    assert_eq!(files[0].content.as_deref(), Some(&b"linked\n"[..]));
    let reasons: Vec<_> = files[1..]
        .iter()
        .map(|f| f.failure.clone().expect("a refusal").reason)
        .collect();
    assert_eq!(reasons, [Reason::WrongKind, Reason::Unsafe, Reason::Unsafe]);
    let subject = files[2].failure.clone().expect("a refusal").subject;
    assert_eq!(
        subject,
        text(&outside),
        "the directory that is to be mended is named"
    );
}

#[test]
fn what_is_no_file_holds_nobody_up() {
    let home = Home::new("kinds");
    let fifo = home.path.join("fifo");
    let made = std::process::Command::new("mkfifo")
        .args(["-m", "600"])
        .arg(&fifo)
        .status();
    assert!(made.expect("mkfifo").success());
    own(&fifo, UID);
    let (_, files) = home.check(&["fifo", ".ssh", ".ssh/..", "", "/dev/null", "/dev/tty"]);
    for (i, file) in files.iter().enumerate() {
        let reason = file.failure.clone().expect("a refusal").reason;
        assert_eq!(reason, Reason::WrongKind, "file {i}");
    }
}

#[test]
fn sizes() {
    let home = Home::new("sizes");
    home.write("mega", &vec![b'm'; 1 << 20]);
    home.write("more", &vec![b'x'; (1 << 20) + 1]);
    home.write("small", b"s");
    let (_, files) = home.check(&["mega", "more", "small", "mega"]);
    let lengths: Vec<_> = files.iter().map(|f| f.content.as_ref().map(Vec::len)).collect();
    assert_eq!(lengths, [Some(1 << 20), None, Some(1), Some(1 << 20)]);
    assert_eq!(
        files[1].failure.clone().expect("a refusal").reason,
        Reason::TooLarge
    );
}

#[test]
fn seventeen_files_are_one_too_many() {
    let home = Home::new("many");
    let (_, files) = home.check(&["x"; 16]);
    assert_eq!(files.len(), 16);
    let started = orders::start("checkhomedir", &[]);
    let order = CheckHome {
        ids: Ids {
            uid: UID,
            gid: UID,
            groups: vec![],
        },
        home: text(&home.path),
        files: vec![text("x"); 17],
        strict_modes: true,
    };
    orders::send(&started.control, Work::CheckHome(order), &[]);
    let replies = started.replies();
    let [Reply::Failed { failure }] = replies.as_slice() else {
        panic!("{replies:?}")
    };
    assert_eq!(failure.reason, Reason::TooLarge);
}

//! Disks that are full or may not be written: reading goes on, the reason is said, and writing comes back with the room.

use super::{Gate, Hands, Home, again, argument, block, key, prefix, skip, value};
use crate::sqlite::{Settings, Sqlite};
use crate::{Clock, Error, Prefix, Revision, Store, Value, all};
use fleetgate_sys::process::{self, Limit, numbers};
use fleetgate_sys::{Fd, mount};
use std::ffi::CString;
use std::fs;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

/// A small disk of the test's own at `home`/disk, in a mount namespace that ends with the thread.
struct Disk {
    at: PathBuf,
    _mount: Fd,
}

impl Disk {
    fn mount(home: &Home, size: &std::ffi::CStr) -> Disk {
        mount::separate().expect("a mount namespace");
        let at = home.path().join("disk");
        fs::create_dir(&at).unwrap();
        let fs = mount::fsopen(c"tmpfs").unwrap();
        mount::set_string(&fs, c"size", size).unwrap();
        mount::set_string(&fs, c"mode", c"0755").unwrap();
        mount::create(&fs).unwrap();
        let mounted = mount::fsmount(&fs, 0).unwrap();
        mount::attach(&mounted, &c_path(&at)).unwrap();
        Disk { at, _mount: mounted }
    }

    fn store(&self) -> PathBuf {
        self.at.join("store")
    }

    fn open(&self) -> Sqlite {
        Sqlite::open(&self.store()).expect("the store opens")
    }

    /// A file that leaves no room at all, or almost.
    fn fill(&self) {
        let mut ballast = fs::File::create(self.at.join("ballast")).unwrap();
        let page = [0; 4096];
        while ballast.write_all(&page).is_ok() {}
    }

    /// One that leaves this much.
    fn fill_but(&self, room: u64) {
        self.fill();
        let ballast = fs::OpenOptions::new()
            .write(true)
            .open(self.at.join("ballast"))
            .unwrap();
        let size = ballast.metadata().unwrap().len();
        ballast.set_len(size - room).unwrap();
    }

    fn empty(&self) {
        fs::remove_file(self.at.join("ballast")).unwrap();
    }

    fn set_read_only(&self, on: bool) {
        let (set, clear) = if on {
            (mount::ATTR_RDONLY, 0)
        } else {
            (0, mount::ATTR_RDONLY)
        };
        mount::set_attributes(&c_path(&self.at), set, clear).expect("the mount is changed");
    }
}

fn c_path(path: &Path) -> CString {
    CString::new(path.as_os_str().as_bytes()).unwrap()
}

/// Runs `test` on a thread that may have mounts of its own; skips it without root.
fn with_mounts(test: fn(&Home)) {
    if process::effective_uid() != 0 {
        return skip("a disk of its own needs root");
    }
    let name = thread::current().name().unwrap_or("a test").to_owned();
    // Removed out here, where its disk is not mounted.
    let home = Arc::new(Home::new());
    let inside = home.clone();
    let thread = thread::Builder::new()
        .name(name)
        .spawn(move || test(&inside))
        .unwrap();
    if let Err(panic) = thread.join() {
        std::panic::resume_unwind(panic);
    }
}

#[test]
fn a_full_disk_leaves_reading_and_writing_comes_back() {
    with_mounts(|home| {
        let disk = Disk::mount(home, c"4m");
        let store = disk.open();
        let mut watch = block(store.watch(Prefix::everything(), Revision(0))).unwrap();
        let chunk = Value::new(vec![7; 100 << 10]).unwrap();
        disk.fill_but(1 << 20);
        let mut written = 0;
        let refused = loop {
            match block(store.put(key(&format!("/n/{written}")), chunk.clone(), None)) {
                Ok(revision) => {
                    written += 1;
                    assert_eq!(revision, Revision(written));
                }
                Err(e) => break e,
            }
        };
        assert_eq!(refused, Error::DiskFull(disk.store().join("state.db")));
        assert!(written > 2, "{written}");
        let there = block(all(&store, &prefix("/n/"))).unwrap();
        assert_eq!((there.0.len() as u64, there.1), (written, Revision(written)));
        assert!(there.0.iter().all(|e| e.value == chunk));
        for n in 1..=written {
            assert_eq!(block(watch.next()).unwrap().revision, Revision(n));
        }
        disk.empty();
        let next = block(store.put(key("/after"), value("room"), None));
        assert_eq!(next, Ok(Revision(written + 1)));
        assert_eq!(
            block(watch.next()).unwrap().revision,
            Revision(written + 1),
            "nothing refused was told"
        );
        drop(store);
        let store = disk.open();
        assert_eq!(
            block(all(&store, &prefix(""))).unwrap().0.len() as u64,
            written + 1
        );
    });
}

/// A lease that ends has ended, though its keys cannot be deleted yet.
#[test]
fn leases_end_on_a_full_disk_and_their_keys_go_when_there_is_room() {
    with_mounts(|home| {
        let disk = Disk::mount(home, c"4m");
        let clock = Hands::new();
        let settings = Settings {
            clock: Arc::clone(&clock) as Arc<dyn Clock>,
            ..Settings::default()
        };
        let store = Sqlite::open_with(&disk.store(), settings).unwrap();
        let ten = Duration::from_secs(10);
        let leases: Vec<_> = (0..3).map(|_| block(store.grant(ten)).unwrap()).collect();
        for (n, lease) in leases.iter().enumerate() {
            block(store.put(key(&format!("/n/{n}")), value("1"), Some(*lease))).unwrap();
        }
        disk.fill();
        clock.move_on(ten);
        for lease in &leases {
            assert_eq!(block(store.keep_alive(*lease)), Err(Error::NoLease(*lease)));
        }
        let full = Error::DiskFull(disk.store().join("state.db"));
        assert_eq!(block(store.put(key("/x"), value("1"), None)), Err(full));
        assert_eq!(block(all(&store, &prefix("/n/"))).unwrap().0.len(), 3);
        let mut watch = block(store.watch(prefix("/n/"), Revision(3))).unwrap();
        disk.empty();
        block(store.put(key("/x"), value("1"), None)).unwrap();
        for _ in &leases {
            assert_eq!(block(watch.next()).unwrap().changes.len(), 1);
        }
        assert_eq!(block(all(&store, &prefix("/n/"))).unwrap().0, []);
    });
}

#[test]
fn one_that_finds_no_room_spoils_none_of_its_group() {
    with_mounts(|home| {
        let disk = Disk::mount(home, c"4m");
        let gate = Gate::new();
        let settings = Settings {
            clock: Arc::clone(&gate) as Arc<dyn Clock>,
            ..Settings::default()
        };
        let store = Sqlite::open_with(&disk.store(), settings).unwrap();
        block(store.put(key("/first"), value("1"), None)).unwrap();
        disk.fill_but(400 << 10);
        gate.shut();
        let first = store.put(key("/first"), value("2"), None);
        gate.wait_for_the_writer();
        let small = store.put(key("/small"), value("1"), None);
        let large = store.put(key("/large"), Value::new(vec![1; 1 << 20]).unwrap(), None);
        let after = store.put(key("/after"), value("1"), None);
        gate.open();
        assert_eq!(block(first), Ok(Revision(2)));
        assert_eq!(block(small), Ok(Revision(3)));
        assert_eq!(block(large), Err(Error::DiskFull(disk.store().join("state.db"))));
        assert_eq!(block(after), Ok(Revision(4)));
        assert_eq!(block(store.get(&key("/large"))), Ok(None));
    });
}

/// Opened where nothing can be written beside the database: read as it is, and written once that can be.
fn opens_for_reading(home: &Home, spoil: fn(&Disk), mend: fn(&Disk), expected: fn(PathBuf) -> Error) {
    let disk = Disk::mount(home, c"4m");
    let put = |store: &Sqlite, text| block(store.put(key("/n/1"), value(text), None));
    put(&disk.open(), "1").unwrap();
    spoil(&disk);
    let store = disk.open();
    let read = |store: &Sqlite| block(store.get(&key("/n/1"))).unwrap().unwrap().value;
    assert_eq!(&*read(&store), b"1");
    assert_eq!(block(all(&store, &prefix("/n/"))).unwrap().1, Revision(1));
    let mut watch = block(store.watch(Prefix::everything(), Revision(0))).unwrap();
    assert_eq!(block(watch.next()).unwrap().revision, Revision(1));
    let refused = expected(disk.store().join("state.db"));
    assert_eq!(put(&store, "2"), Err(refused.clone()));
    assert_eq!(put(&store, "3"), Err(refused));
    assert_eq!(&*read(&store), b"1");
    mend(&disk);
    assert_eq!(put(&store, "4"), Ok(Revision(2)));
    // Each of the threads that read.
    for _ in 0..8 {
        assert_eq!(&*read(&store), b"4");
    }
    assert_eq!(block(watch.next()).unwrap().revision, Revision(2));
    drop(store);
    assert_eq!(&*read(&disk.open()), b"4");
}

#[test]
fn a_store_on_a_full_disk_opens_for_reading() {
    with_mounts(|home| opens_for_reading(home, Disk::fill, Disk::empty, Error::DiskFull));
}

#[test]
fn a_store_on_a_read_only_disk_opens_for_reading() {
    with_mounts(|home| {
        opens_for_reading(
            home,
            |disk| disk.set_read_only(true),
            |disk| disk.set_read_only(false),
            Error::ReadOnly,
        );
    });
}

/// A store that was killed leaves its WAL, without which the file alone is not all of it.
#[test]
fn a_store_with_a_wal_on_a_read_only_disk_is_read_with_it() {
    with_mounts(|home| {
        let disk = Disk::mount(home, c"4m");
        let copy = disk.at.join("copy");
        fs::create_dir(&copy).unwrap();
        {
            let store = disk.open();
            block(store.put(key("/n/1"), value("in the WAL"), None)).unwrap();
            for file in fs::read_dir(disk.store()).unwrap() {
                let file = file.unwrap();
                fs::copy(file.path(), copy.join(file.file_name())).unwrap();
            }
        }
        fs::remove_dir_all(disk.store()).unwrap();
        fs::rename(&copy, disk.store()).unwrap();
        fs::set_permissions(disk.store(), std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
        disk.set_read_only(true);
        let store = disk.open();
        let put = || block(store.put(key("/n/1"), value("new"), None));
        let read = || block(store.get(&key("/n/1"))).unwrap().unwrap().value;
        assert_eq!(&*read(), b"in the WAL");
        assert_eq!(put(), Err(Error::ReadOnly(disk.store().join("state.db"))));
        disk.set_read_only(false);
        assert_eq!(put(), Ok(Revision(2)));
        assert_eq!(&*read(), b"new");
    });
}

/// Where there is nothing to read, it is not opened.
#[test]
fn no_store_is_made_where_there_is_no_room() {
    with_mounts(|home| {
        let disk = Disk::mount(home, c"1m");
        let path = |end: &str| disk.store().join(end);
        disk.fill();
        let full = Sqlite::open(&disk.store()).expect_err("no room");
        assert!(
            matches!(&full, Error::DiskFull(p) if p.starts_with(disk.store())),
            "{full:?}"
        );
        disk.empty();
        fs::remove_dir_all(disk.store()).unwrap();
        disk.set_read_only(true);
        let refused = Sqlite::open(&disk.store()).expect_err("read-only");
        assert_eq!(refused, Error::ReadOnly(disk.store()));
        disk.set_read_only(false);
        drop(disk.open());
        assert!(path("state.db").exists());
    });
}

/// A limit on the size of files is no full disk, and is said as what it is. It holds for a whole process.
#[test]
fn a_limit_on_file_sizes_is_survived() {
    let name = "tests::disks::a_limit_on_file_sizes_is_survived";
    let Some(directory) = argument() else {
        let home = Home::new();
        let output = again(name, &home.store()).output().expect("this program again");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && said.contains("survived"), "{said}");
        return;
    };
    let before = process::limit(numbers::RLIMIT_FSIZE).unwrap();
    let limit = |soft| process::set_limit(numbers::RLIMIT_FSIZE, Limit { soft, ..before }).unwrap();
    process::ignore_signal(numbers::SIGXFSZ).unwrap();
    let store = Sqlite::open(&directory).unwrap();
    let put = |n: u64| block(store.put(key(&n.to_string()), Value::new(vec![1; 50 << 10]).unwrap(), None));
    limit(500 << 10);
    let written = (0..).take_while(|n| put(*n).is_ok()).count() as u64;
    assert!((2..10).contains(&written), "{written}");
    let error = put(written).expect_err("beyond the limit");
    assert!(
        matches!(&error, Error::Io(_, why) if why.contains("a limit on file sizes")),
        "{error}"
    );
    assert_eq!(block(all(&store, &prefix(""))).unwrap().0.len() as u64, written);
    limit(before.soft);
    assert_eq!(put(written), Ok(Revision(written + 1)));
    drop(store);
    let store = Sqlite::open(&directory).unwrap();
    assert_eq!(
        block(all(&store, &prefix(""))).unwrap().0.len() as u64,
        written + 1
    );
    eprintln!("survived");
}

//! Where a store may be: in a directory of its own user's, that nobody else may open, and only once at a time.

use super::{Home, block, key, value};
use crate::sqlite::{Sqlite, connect};
use crate::{Error, Store};
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::Path;

fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().permissions().mode() & 0o7777
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

#[test]
fn directory_and_files_are_private_whatever_the_umask() {
    let home = Home::new();
    let store = home.open();
    block(store.put(key("/a"), value("1"), None)).unwrap();
    assert_eq!(mode(&home.store()), 0o700);
    for name in ["state.db", "state.db-wal", "state.db-shm", "state.lock"] {
        assert_eq!(mode(&home.store().join(name)), 0o600, "{name}");
    }
}

/// One thing that is wrong with a store that was fine.
type Spoil = fn(&Path);

#[test]
fn what_others_could_open_is_refused_and_the_remedy_said() {
    let rows: [(&str, Spoil, &str); 7] = [
        (
            "others may list",
            |d| set_mode(d, 0o755),
            "has mode 0755: others could get at the cluster's keys; run: chmod 0700",
        ),
        ("a group may enter", |d| set_mode(d, 0o710), "has mode 0710"),
        (
            "others may read",
            |d| set_mode(&d.join("state.db"), 0o644),
            "has mode 0644: others could get at the cluster's keys; run: chmod 0600",
        ),
        (
            "a link for the database",
            |d| {
                fs::rename(d.join("state.db"), d.join("elsewhere")).unwrap();
                symlink("elsewhere", d.join("state.db")).unwrap();
            },
            "is no plain file",
        ),
        (
            "a link for the directory",
            |d| {
                let real = d.with_extension("real");
                fs::rename(d, &real).unwrap();
                symlink(&real, d).unwrap();
            },
            "is no directory",
        ),
        (
            "a file for the directory",
            |d| {
                fs::remove_dir_all(d).unwrap();
                fs::write(d, "").unwrap();
            },
            "is no directory",
        ),
        (
            "a directory for the database",
            |d| {
                fs::remove_file(d.join("state.db")).unwrap();
                fs::create_dir(d.join("state.db")).unwrap();
            },
            "is no plain file",
        ),
    ];
    for (what, spoil, words) in rows {
        let home = Home::new();
        drop(home.open());
        drop(home.open());
        spoil(&home.store());
        let error = Sqlite::open(&home.store()).expect_err(what);
        assert!(
            matches!(error, Error::Directory(..) | Error::File(..)),
            "{what}: {error:?}"
        );
        assert!(error.to_string().contains(words), "{what}: {error}");
        // What looks at a store that nobody has open says the same.
        let seen = crate::sqlite::look(&home.store()).expect_err(what);
        assert_eq!(seen.to_string(), error.to_string(), "{what}");
    }
}

#[test]
fn what_belongs_to_another_user_is_refused() {
    if fleetgate_sys::process::effective_uid() != 0 {
        return super::skip("giving a file away needs root");
    }
    for name in ["", "state.db"] {
        let home = Home::new();
        drop(home.open());
        let path = home.store().join(name);
        chown(&path, Some(65_534), None).unwrap();
        let error = Sqlite::open(&home.store()).expect_err("another's");
        assert!(error.to_string().contains("belongs to user 65534"), "{error}");
        chown(&path, Some(0), None).unwrap();
        drop(home.open());
    }
}

#[test]
fn a_store_is_open_once() {
    let home = Home::new();
    let store = home.open();
    let second = Sqlite::open(&home.store()).expect_err("a second one");
    assert_eq!(second, Error::Locked(home.store().join("state.db")));
    block(store.put(key("/a"), value("1"), None)).unwrap();
    drop(store);
    drop(home.open());
}

#[test]
fn a_shell_that_writes_meanwhile_is_waited_for() {
    let home = Home::new();
    let store = home.open();
    let shell = rusqlite::Connection::open(store.path()).unwrap();
    shell.execute_batch("BEGIN IMMEDIATE").unwrap();
    let put = store.put(key("/a"), value("1"), None);
    assert_eq!(block(store.get(&key("/a"))), Ok(None), "reading waits for nobody");
    shell.execute_batch("COMMIT").unwrap();
    assert!(block(put).is_ok());
}

#[test]
fn commits_are_synchronised_to_the_disk() {
    let home = Home::new();
    let store = home.open();
    block(store.put(key("/a"), value("1"), None)).unwrap();
    let database = rusqlite::Connection::open_with_flags(
        store.path(),
        rusqlite::OpenFlags::SQLITE_OPEN_READ_WRITE | rusqlite::OpenFlags::SQLITE_OPEN_NO_MUTEX,
    )
    .unwrap();
    connect::durable(&database).unwrap();
    let journal: String = database
        .pragma_query_value(None, "journal_mode", |r| r.get(0))
        .unwrap();
    let synchronous: i32 = database
        .pragma_query_value(None, "synchronous", |r| r.get(0))
        .unwrap();
    assert_eq!(
        (journal.as_str(), synchronous),
        ("wal", 2),
        "2 is FULL: each commit, not each checkpoint"
    );
}

#[test]
fn what_is_no_store_of_ours_is_not_touched() {
    let sqlite = |sql: &str| {
        let home = Home::new();
        home.make_store();
        home.write_private("state.db", b"");
        let database = rusqlite::Connection::open(home.store().join("state.db")).unwrap();
        database.execute_batch(sql).unwrap();
        home
    };
    let path = |home: &Home| home.store().join("state.db");
    let foreign = sqlite("CREATE TABLE wtmp (a); INSERT INTO wtmp VALUES (1);");
    let other = sqlite("PRAGMA application_id = 7; PRAGMA user_version = 1;");
    let text = Home::new();
    text.make_store();
    text.write_private(
        "state.db",
        b"this is a file of somebody's, and longer than a header of SQLite's",
    );
    for home in [&foreign, &other, &text] {
        let before = fs::read(path(home)).unwrap();
        let refused = Sqlite::open(&home.store()).expect_err("another program's");
        assert_eq!(refused, Error::Foreign(path(home)));
        assert_eq!(fs::read(path(home)).unwrap(), before);
    }
}

#[test]
fn a_store_that_was_closed_is_one_file() {
    let home = Home::new();
    for n in 0..50 {
        let store = home.open();
        block(store.put(key(&format!("/n/{n}")), value("x"), None)).unwrap();
        drop(store);
        let mut names: Vec<_> = fs::read_dir(home.store())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        assert_eq!(names, ["state.db", "state.lock"], "closed {n} times");
    }
}

#[test]
fn a_damaged_store_is_said_to_be_one() {
    let home = Home::new();
    {
        let store = home.open();
        for n in 0..200 {
            block(store.put(key(&format!("/n/{n}")), value(&"x".repeat(200)), None)).unwrap();
        }
    }
    let path = home.store().join("state.db");
    let whole = fs::read(&path).unwrap();
    let pages = whole.len() / 4096;
    assert!(pages > 10);
    for page in 1..pages {
        let mut bytes = whole.clone();
        bytes[page * 4096..][..64].fill(0xa5);
        fs::write(&path, &bytes).unwrap();
        match Sqlite::open(&home.store()) {
            Err(Error::Corrupt(p, _)) => assert_eq!(p, path),
            // What is free, or in the middle of a value, has no structure that could be wrong.
            Ok(_) => {}
            Err(e) => panic!("page {page}: {e}"),
        }
    }
    let mut cut = whole.clone();
    cut.truncate(whole.len() / 2);
    fs::write(&path, &cut).unwrap();
    assert!(matches!(Sqlite::open(&home.store()), Err(Error::Corrupt(..))));
    fs::write(&path, &whole).unwrap();
    drop(home.open());
}

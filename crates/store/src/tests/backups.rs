//! A backup is the store of one moment in one private file, and becomes a store again.

use super::{Home, block, key, prefix, value};
use crate::Existing;
use crate::sqlite::{RESTORED, Sqlite, backup, restore};
use crate::{Error, Prefix, Revision, Step, Store, all};
use std::fs;
use std::os::unix::fs::PermissionsExt;

#[test]
fn a_backup_is_private_and_comes_back() {
    let home = Home::new();
    let store = home.open();
    let lease = block(store.grant(std::time::Duration::from_secs(60))).unwrap();
    block(store.put(key("/users/alice"), value("a"), None)).unwrap();
    let last = block(store.put(key("/nodes/web1"), value("1"), Some(lease))).unwrap();
    let file = home.path().join("backup");
    assert_eq!(backup(&home.store(), &file, Existing::Keep), Ok(last));
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o7777, 0o600);
    let kept = block(all(&store, &prefix(""))).unwrap().0;
    block(store.put(key("/users/bob"), value("b"), None)).unwrap();
    // Never over a file, unless told.
    let first = fs::read(&file).unwrap();
    assert_eq!(
        backup(&home.store(), &file, Existing::Keep),
        Err(Error::Exists(file.clone()))
    );
    assert_eq!(fs::read(&file).unwrap(), first);
    let second = home.path().join("second");
    assert_eq!(backup(&home.store(), &second, Existing::Keep), Ok(Revision(3)));
    assert_eq!(backup(&home.store(), &second, Existing::Replace), Ok(Revision(3)));
    // Nothing else is left beside them.
    let mut names: Vec<_> = fs::read_dir(home.path())
        .unwrap()
        .map(|e| e.unwrap().file_name())
        .collect();
    names.sort();
    assert_eq!(names, ["backup", "second", "store"]);

    let locked = restore(&file, &home.store(), Existing::Replace);
    assert_eq!(locked, Err(Error::Locked(home.store().join("state.db"))));
    drop(store);
    let there = restore(&file, &home.store(), Existing::Keep);
    assert_eq!(there, Err(Error::Exists(home.store().join("state.db"))));
    let begins = Revision(2 + RESTORED);
    assert_eq!(restore(&file, &home.store(), Existing::Replace), Ok(begins));
    let store = home.open();
    assert_eq!(block(all(&store, &prefix(""))), Ok((kept.clone(), begins)));
    // Who remembers a revision of the lost store is told to begin anew.
    let watch = |after| block(store.watch(Prefix::everything(), after)).map(drop);
    assert_eq!(watch(Revision(3)), Err(Error::Compacted(Revision(3))));
    assert_eq!(watch(begins), Ok(()));
    assert_eq!(block(store.keep_alive(lease)), Ok(()));
    assert_eq!(
        block(store.put(key("/new"), value(""), None)),
        Ok(Revision(begins.0 + 1))
    );

    let elsewhere = Home::new();
    assert_eq!(restore(&file, &elsewhere.store(), Existing::Keep), Ok(begins));
    assert_eq!(block(all(&elsewhere.open(), &prefix(""))).unwrap().0, kept);
}

/// Whether that is the error.
type Expected = fn(&Error) -> bool;

#[test]
fn what_is_no_backup_replaces_nothing() {
    let home = Home::new();
    block(home.open().put(key("/a"), value("1"), None)).unwrap();
    let good = home.path().join("good");
    backup(&home.store(), &good, Existing::Keep).unwrap();
    let bytes = fs::read(&good).unwrap();
    let spoiled = home.path().join("spoiled");
    let newer = {
        // The format's number stands at byte 60 of the file, big endian.
        let mut newer = bytes.clone();
        newer[60..64].copy_from_slice(&99u32.to_be_bytes());
        newer
    };
    let rows: [(&str, Vec<u8>, Expected); 5] = [
        ("text", b"dear diary".to_vec(), |e| matches!(e, Error::Foreign(_))),
        ("empty", Vec::new(), |e| matches!(e, Error::Foreign(_))),
        ("half", bytes[..bytes.len() / 2].to_vec(), |e| {
            matches!(e, Error::Corrupt(..))
        }),
        ("newer", newer, |e| matches!(e, Error::Newer { version: 99, .. })),
        ("good", bytes.clone(), |e| matches!(e, Error::Exists(_))),
    ];
    for (what, bytes, expected) in rows {
        fs::write(&spoiled, bytes).unwrap();
        let existing = if what == "good" {
            Existing::Keep
        } else {
            Existing::Replace
        };
        let error = restore(&spoiled, &home.store(), existing).expect_err(what);
        assert!(expected(&error), "{what}: {error:?}");
        let names = fs::read_dir(home.store())
            .unwrap()
            .map(|e| e.unwrap().file_name());
        let parts = names.filter(|n| n.to_string_lossy().contains(".part")).count();
        assert_eq!(parts, 0, "{what}");
        let store = home.open();
        assert!(block(store.get(&key("/a"))).unwrap().is_some(), "{what}");
    }
    assert!(matches!(
        restore(home.path(), &home.store(), Existing::Replace),
        Err(Error::File(..))
    ));
    let missing = home.path().join("missing");
    assert!(matches!(
        restore(&missing, &home.store(), Existing::Replace),
        Err(Error::Io(..))
    ));
    let inside = home.store().join("state.db");
    assert!(matches!(
        backup(&home.store(), &inside, Existing::Replace),
        Err(Error::File(..))
    ));
}

#[test]
fn a_damaged_store_is_replaced_by_its_backup() {
    let home = Home::new();
    let good = home.path().join("good");
    {
        let store = home.open();
        block(store.put(key("/a"), value("1"), None)).unwrap();
        backup(&home.store(), &good, Existing::Keep).unwrap();
    }
    home.write_private("state.db", b"garbage");
    home.write_private("state.db-wal", b"garbage");
    assert!(Sqlite::open(&home.store()).is_err());
    restore(&good, &home.store(), Existing::Replace).unwrap();
    assert!(block(home.open().get(&key("/a"))).unwrap().is_some());
}

/// Each transaction writes the same into two keys: a backup that were not of one moment would tell them apart.
#[test]
fn a_backup_made_while_others_write_is_of_one_moment() {
    let home = Home::new();
    let store = home.open();
    let write = |n: usize| {
        let text = format!("{n}{}", "x".repeat(n * 37 % 5000));
        let steps = ["/a", "/b"].map(|name| Step::put(key(name), value(&text)));
        store.transact(steps.into())
    };
    block(write(0)).unwrap().done(|c| c).unwrap();
    for round in 0..5 {
        let file = home.path().join(format!("backup{round}"));
        let writes: Vec<_> = (0..100).map(|n| write(round * 100 + n)).collect();
        let (from, to) = (home.store(), file.clone());
        let copy = std::thread::spawn(move || backup(&from, &to, Existing::Keep));
        for w in writes {
            block(w).unwrap().done(|c| c).unwrap();
        }
        copy.join().unwrap().unwrap();
        let other = Home::new();
        restore(&file, &other.store(), Existing::Keep).unwrap();
        let copy = other.open();
        let [a, b] = ["/a", "/b"].map(|name| block(copy.get(&key(name))).unwrap().unwrap());
        assert_eq!((a.value, a.revision), (b.value, b.revision));
    }
}

#[test]
fn a_store_that_nobody_has_open_is_copied_and_goes_on() {
    let home = Home::new();
    let last = block(home.open().put(key("/a"), value("1"), None)).unwrap();
    let file = home.path().join("backup");
    assert_eq!(backup(&home.store(), &file, Existing::Keep), Ok(last));
    let store = home.open();
    assert_eq!(
        block(store.put(key("/a"), value("2"), None)),
        Ok(Revision(last.0 + 1))
    );
    drop(store);
    let missing = home.path().join("nothing");
    assert!(backup(&missing, &home.path().join("second"), Existing::Keep).is_err());
    assert!(!home.path().join("second").exists() && !missing.exists());
}

//! Stores that older versions wrote, as SQL text that is never changed again, and those that newer ones will.

use super::{Home, block, key};
use crate::sqlite::{Sqlite, schema};
use crate::{Change, Error, LeaseId, Prefix, Revision, Store};
use rusqlite::Connection;

/// A file for each version there was, oldest first, each with the same content.
const FILES: [&str; 1] = [include_str!("old/1.sql")];

#[test]
fn every_older_store_is_read_and_goes_on() {
    assert_eq!(
        FILES.len(),
        schema::STEPS.len(),
        "a new version comes with its file"
    );
    for (number, sql) in FILES.iter().enumerate() {
        let version = number + 1;
        let home = Home::new();
        home.make_store();
        home.write_private("state.db", b"");
        let path = home.store().join("state.db");
        let database = Connection::open(&path).unwrap();
        database.execute_batch(sql).unwrap();
        let written: usize = database
            .pragma_query_value(None, "user_version", |r| r.get(0))
            .unwrap();
        assert_eq!(written, version);
        drop(database);

        let store = home.open();
        let user = block(store.get(&key("/users/alice"))).unwrap().unwrap();
        assert_eq!(
            (&*user.value, user.revision, user.lease),
            (&b"{\"locked\":false}"[..], Revision(3), None)
        );
        let node = block(store.get(&key("/nodes/web1"))).unwrap().unwrap();
        assert_eq!(
            (&*node.value, node.revision, node.lease),
            (&b"\x00\xff"[..], Revision(4), Some(LeaseId(2)))
        );
        let everything = |after| block(store.watch(Prefix::everything(), Revision(after)));
        assert_eq!(everything(1).map(drop), Err(Error::Compacted(Revision(1))));
        let mut watch = everything(2).unwrap();
        assert_eq!(block(watch.next()).unwrap().changes, [Change::Put(user)]);
        assert_eq!(
            block(watch.next()).unwrap().changes,
            [Change::Delete(key("/tokens/t")), Change::Put(node)]
        );
        assert_eq!(block(store.keep_alive(LeaseId(2))), Ok(()));
        assert_eq!(block(store.revoke(LeaseId(2))), Ok(()));
        assert_eq!(block(watch.next()).unwrap().revision, Revision(5));
        drop(store);
        let now: usize = Connection::open(&path)
            .unwrap()
            .pragma_query_value(None, "user_version", |r| r.get(0))
            .unwrap();
        assert_eq!(now, schema::STEPS.len());
    }
}

#[test]
fn a_newer_store_is_refused_and_left_alone() {
    let home = Home::new();
    drop(home.open());
    let path = home.store().join("state.db");
    let known = schema::STEPS.len() as u32;
    Connection::open(&path)
        .unwrap()
        .pragma_update(None, "user_version", known + 1)
        .unwrap();
    let before = std::fs::read(&path).unwrap();
    let error = Sqlite::open(&home.store()).expect_err("newer");
    let newer = Error::Newer {
        path: path.clone(),
        version: known + 1,
        known,
    };
    assert_eq!(error, newer);
    assert_eq!(std::fs::read(&path).unwrap(), before);
}

#[test]
fn steps_are_done_in_order_all_or_none() {
    const FIRST: &str = "CREATE TABLE a (n)";
    const SECOND: &str = "INSERT INTO a VALUES (1); INSERT INTO a VALUES (2)";
    const BROKEN: &str = "INSERT INTO a VALUES (3); INSERT INTO b VALUES (4)";
    let mut database = Connection::open_in_memory().unwrap();
    let state = |database: &Connection| {
        let version: usize = database
            .pragma_query_value(None, "user_version", |r| r.get(0))
            .unwrap();
        let rows: usize = database
            .query_row("SELECT count(*) FROM a", [], |r| r.get(0))
            .unwrap();
        (version, rows)
    };
    for (steps, fine, then) in [
        (&[FIRST][..], true, (1, 0)),
        (&[FIRST, BROKEN], false, (1, 0)),
        (&[FIRST, SECOND, BROKEN], false, (1, 0)),
        (&[FIRST, SECOND], true, (2, 2)),
        (&[FIRST, SECOND], true, (2, 2)),
        (&[FIRST], false, (2, 2)),
    ] {
        assert_eq!(schema::migrate(&mut database, steps).is_ok(), fine, "{steps:?}");
        assert_eq!(state(&database), then, "{steps:?}");
    }
}

//! What is put is there, what changed is told, a transaction is whole: the store as its users see it.

use super::{Home, block, key, prefix, value};
use crate::{Change, Error, Expect, Outcome, Range, Revision, Step, Store, all};

#[test]
fn what_was_put_is_there_also_after_the_store_was_closed() {
    let home = Home::new();
    let revision = {
        let store = home.open();
        assert_eq!(block(store.get(&key("/a"))), Ok(None));
        assert_eq!(block(store.put(key("/a"), value("1"), None)), Ok(Revision(1)));
        block(store.put(key("/a"), value("2"), None)).expect("put")
    };
    assert_eq!(revision, Revision(2));
    let store = home.open();
    let entry = block(store.get(&key("/a"))).expect("get").expect("there");
    assert_eq!(
        (&*entry.value, entry.revision, entry.lease),
        (&b"2"[..], revision, None)
    );
    assert_eq!(block(store.delete(key("/a"))), Ok(Revision(3)));
    assert_eq!(block(store.get(&key("/a"))), Ok(None));
    assert_eq!(block(store.delete(key("/a"))), Ok(Revision(3)), "nothing changed");
}

#[test]
fn a_token_is_burned_and_a_node_added_at_once_or_neither() {
    let home = Home::new();
    let store = home.open();
    let made = block(store.put(key("/tokens/t"), value("once"), None)).expect("put");
    let join = |name: &str| {
        let steps = vec![
            Step::remove(key("/tokens/t"), made),
            Step::create(key(&format!("/nodes/{name}")), value(name)),
        ];
        block(store.transact(steps)).expect("an outcome")
    };
    assert_eq!(join("web1"), Outcome::Done(Revision(2)));
    match join("web2") {
        Outcome::Conflict(c) => assert_eq!((c.step, c.found), (0, None)),
        done => panic!("the token was used twice: {done:?}"),
    }
    let (nodes, revision) = block(all(&store, &prefix("/nodes/"))).expect("all");
    assert_eq!(nodes.len(), 1);
    assert_eq!((&nodes[0].key, revision), (&key("/nodes/web1"), Revision(2)));
    let unchanged = block(store.transact(vec![Step::check(key("/tokens/t"), Expect::Absent)]));
    assert_eq!(unchanged, Ok(Outcome::Done(Revision(2))));
}

#[test]
fn a_range_is_read_page_by_page_and_stays_under_its_prefix() {
    let home = Home::new();
    let store = home.open();
    for name in ["/a", "/n", "/n/1", "/n/2", "/n/3", "/n0", "/z"] {
        block(store.put(key(name), value(name), None)).expect("put");
    }
    let names = |range| {
        let page = block(store.range(range)).expect("a page");
        let names: Vec<String> = page.entries.iter().map(|e| e.key.to_string()).collect();
        (names.join(" "), page.more)
    };
    let under = Range::prefix(&prefix("/n/"));
    for (range, found, more) in [
        (under.clone(), "/n/1 /n/2 /n/3", false),
        (under.clone().limit(2), "/n/1 /n/2", true),
        (under.clone().limit(2).after(key("/n/2")), "/n/3", false),
        (under.clone().after(key("/z")), "", false),
        (under.after(key("/a")), "/n/1 /n/2 /n/3", false),
        (Range::prefix(&prefix("")), "/a /n /n/1 /n/2 /n/3 /n0 /z", false),
        (Range::between(&key("/n"), &key("/n/3")), "/n /n/1 /n/2", false),
        (Range::between(&key("/z"), &key("/a")), "", false),
    ] {
        assert_eq!(names(range.clone()), (found.to_owned(), more), "{range:?}");
    }
}

#[test]
fn a_watch_begins_where_it_is_told_to_and_goes_on() {
    let home = Home::new();
    let store = home.open();
    for name in ["/n/1", "/x", "/n/2"] {
        block(store.put(key(name), value(name), None)).expect("put");
    }
    let mut watch = block(store.watch(prefix("/n/"), Revision(1))).expect("a watch");
    block(store.delete(key("/x"))).expect("delete");
    block(store.delete(key("/n/1"))).expect("delete");
    let second = block(watch.next()).expect("an update");
    assert_eq!(second.revision, Revision(3));
    assert!(matches!(&second.changes[..], [Change::Put(e)] if e.key == key("/n/2") && &*e.value == b"/n/2"));
    let third = block(watch.next()).expect("an update");
    assert_eq!(third.revision, Revision(5));
    assert_eq!(third.changes, [Change::Delete(key("/n/1"))]);
    drop(store);
    assert_eq!(block(watch.next()), Err(Error::Closed));
}

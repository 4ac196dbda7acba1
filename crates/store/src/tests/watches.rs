//! A watch misses nothing in silence: every revision once, or the word that it fell behind.

use super::{Home, block, key, prefix, value};
use crate::sqlite::KEPT_BYTES;
use crate::{
    Error, MAX_WAITING_UPDATE_BYTES, MAX_WAITING_UPDATES, MAX_WATCHES, Prefix, Revision, Step, Store, Value,
    all,
};

#[test]
fn what_is_not_kept_any_more_is_said_and_the_range_begins_anew() {
    let home = Home::new();
    let store = home.open_keeping(3);
    for n in 1..=5 {
        block(store.put(key("/n"), value(&n.to_string()), None)).unwrap();
    }
    let watch = |after| block(store.watch(Prefix::everything(), Revision(after)));
    assert_eq!(watch(1).map(drop), Err(Error::Compacted(Revision(1))));
    let mut seen = Vec::new();
    let mut kept = watch(2).unwrap();
    for _ in 3..=5 {
        seen.push(block(kept.next()).unwrap().revision.0);
    }
    assert_eq!(seen, [3, 4, 5]);
    let now = block(all(&store, &prefix("/"))).unwrap().1;
    assert!(watch(now.0).is_ok());
    let ahead = Error::Future {
        asked: Revision(6),
        now: Revision(5),
    };
    assert_eq!(watch(6).map(drop), Err(ahead));
    drop(store);
    let store = home.open_keeping(2);
    let after = |n| block(store.watch(Prefix::everything(), Revision(n))).map(drop);
    assert_eq!(after(2), Ok(()), "kept until the next change");
    block(store.put(key("/n"), value("6"), None)).unwrap();
    assert_eq!(after(3), Err(Error::Compacted(Revision(3))));
    assert_eq!(after(4), Ok(()));
}

#[test]
fn the_log_is_bounded_in_bytes() {
    let home = Home::new();
    let store = home.open();
    let large = Value::new(vec![7; 1 << 20]).unwrap();
    let fit = (KEPT_BYTES >> 20) as u64;
    let mut last = Revision(0);
    for _ in 0..=fit {
        last = block(store.put(key("/n"), large.clone(), None)).unwrap();
    }
    // The key's bytes count too, so one less than the round number is kept.
    let oldest = Revision(last.0 - (fit - 1));
    let watch = |after| block(store.watch(prefix("/other"), after)).map(drop);
    assert_eq!(watch(oldest), Ok(()));
    let before = Revision(oldest.0 - 1);
    assert_eq!(watch(before), Err(Error::Compacted(before)));
}

#[test]
fn a_watch_that_is_not_read_is_told_that_it_fell_behind() {
    let home = Home::new();
    let store = home.open();
    let mut slow = block(store.watch(prefix("/n"), Revision(0))).unwrap();
    let mut other = block(store.watch(prefix("/other"), Revision(0))).unwrap();
    for n in 0..=MAX_WAITING_UPDATES {
        drop(store.put(key("/n"), value(&n.to_string()), None));
    }
    block(store.put(key("/other"), value(""), None)).unwrap();
    for n in 1..=MAX_WAITING_UPDATES as u64 {
        assert_eq!(block(slow.next()).unwrap().revision, Revision(n));
    }
    let last = Revision(MAX_WAITING_UPDATES as u64);
    assert_eq!(block(slow.next()), Err(Error::Compacted(last)));
    assert_eq!(slow.seen(), last);
    let one_more = Revision(last.0 + 2);
    assert_eq!(block(other.next()).unwrap().revision, one_more);
}

#[test]
fn what_waits_in_a_watch_is_bounded_in_bytes() {
    let home = Home::new();
    let store = home.open();
    let mut slow = block(store.watch(prefix("/n"), Revision(0))).unwrap();
    let large = Value::new(vec![7; 1 << 20]).unwrap();
    let fits = (MAX_WAITING_UPDATE_BYTES >> 20) - 1;
    for _ in 0..=fits {
        block(store.put(key("/n"), large.clone(), None)).unwrap();
    }
    for n in 1..=fits as u64 {
        assert_eq!(block(slow.next()).unwrap().revision, Revision(n));
    }
    assert_eq!(block(slow.next()), Err(Error::Compacted(Revision(fits as u64))));
}

#[test]
fn watches_are_bounded_and_those_that_were_dropped_do_not_count() {
    let home = Home::new();
    let store = home.open();
    let watch = || block(store.watch(prefix("/n"), Revision(0)));
    let mut open: Vec<_> = (0..MAX_WATCHES).map(|_| watch().unwrap()).collect();
    assert_eq!(watch().map(drop), Err(Error::Watches));
    open.pop();
    open.push(watch().unwrap());
    block(store.put(key("/n"), value(""), None)).unwrap();
    for watch in &mut open {
        assert_eq!(block(watch.next()).unwrap().revision, Revision(1));
    }
}

#[test]
fn changes_made_together_are_told_together() {
    let home = Home::new();
    let store = home.open();
    let mut watch = block(store.watch(prefix("/n/"), Revision(0))).unwrap();
    let steps = ["/n/1", "/m/1", "/n/2"].map(|name| Step::put(key(name), value(name)));
    block(store.transact(steps.into())).unwrap().done(|c| c).unwrap();
    let update = block(watch.next()).unwrap();
    let names: Vec<_> = update.changes.iter().map(|c| c.key().to_string()).collect();
    assert_eq!(names, ["/n/1", "/n/2"]);
    let again = block(store.watch(prefix("/n/"), Revision(0)));
    assert_eq!(block(again.unwrap().next()), Ok(update), "the log says the same");
}

#[test]
fn every_revision_is_seen_once_while_many_write() {
    const WRITERS: u64 = 4;
    const EACH: u64 = 100;
    let home = Home::new();
    let store = home.open();
    let seen = |after: u64| {
        let mut watch = block(store.watch(prefix("/n/"), Revision(after))).unwrap();
        let mut seen = Vec::new();
        while watch.seen() < Revision(WRITERS * EACH) {
            seen.push(block(watch.next()).unwrap().revision.0);
        }
        seen
    };
    std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            let store = &store;
            scope.spawn(move || {
                for n in 0..EACH {
                    block(store.put(key(&format!("/n/{writer}")), value(&n.to_string()), None)).unwrap();
                }
            });
        }
        let watchers: Vec<_> = (0..3).map(|_| scope.spawn(|| seen(0))).collect();
        // One that begins in the middle: where the log ends and what comes live must meet.
        let mut first = block(store.watch(prefix("/n/"), Revision(0))).unwrap();
        let middle = loop {
            let at = block(first.next()).unwrap().revision.0;
            if at == WRITERS * EACH / 2 {
                break at;
            }
        };
        let late = seen(middle);
        assert_eq!(late, (middle + 1..=WRITERS * EACH).collect::<Vec<_>>());
        for watcher in watchers {
            let all = watcher.join().expect("a watcher");
            assert_eq!(all, (1..=WRITERS * EACH).collect::<Vec<_>>());
        }
    });
}

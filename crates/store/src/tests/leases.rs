//! Leases end when their time is over, not before, and take their keys with them.

use super::{Hands, Home, block, key, prefix, value};
use crate::{Change, Error, LeaseId, MAX_LEASE_KEYS, MAX_LEASES, MAX_TTL_SECONDS, Revision, Step, Store};
use std::time::Duration;

const TEN: Duration = Duration::from_secs(10);

#[test]
fn keys_vanish_with_their_lease_and_the_watch_hears_of_it() {
    let (home, clock) = (Home::new(), Hands::new());
    let store = home.open_by(&clock);
    let (kept, lost) = (block(store.grant(TEN)).unwrap(), block(store.grant(TEN)).unwrap());
    for (name, lease) in [("/n/1", kept), ("/n/2", lost), ("/n/3", lost), ("/n/4", lost)] {
        block(store.put(key(name), value(name), Some(lease))).unwrap();
    }
    // One that was put again without the lease stays.
    block(store.put(key("/n/4"), value("free"), None)).unwrap();
    let mut watch = block(store.watch(prefix(""), Revision(5))).unwrap();
    clock.move_on(TEN - Duration::from_millis(1));
    assert_eq!(block(store.keep_alive(kept)), Ok(()));
    block(store.put(key("/x"), value("still"), None)).unwrap();
    assert!(
        block(store.get(&key("/n/2"))).unwrap().is_some(),
        "a moment is left"
    );
    clock.move_on(Duration::from_millis(1));
    assert_eq!(block(store.keep_alive(lost)), Err(Error::NoLease(lost)));
    assert_eq!(block(store.get(&key("/n/2"))), Ok(None));
    assert_eq!(block(store.get(&key("/n/3"))), Ok(None));
    assert!(block(store.get(&key("/n/4"))).unwrap().is_some());
    let entry = block(store.get(&key("/n/1"))).unwrap().unwrap();
    assert_eq!(entry.lease, Some(kept));
    assert_eq!(block(watch.next()).unwrap().revision, Revision(6));
    let end = block(watch.next()).unwrap();
    assert_eq!(end.revision, Revision(7));
    assert_eq!(
        end.changes,
        [Change::Delete(key("/n/2")), Change::Delete(key("/n/3"))]
    );
    let refused = block(store.put(key("/n/2"), value("late"), Some(lost)));
    assert_eq!(refused, Err(Error::NoLease(lost)));
    assert_eq!(block(store.revoke(kept)), Ok(()));
    assert_eq!(block(store.get(&key("/n/1"))), Ok(None));
    assert_eq!(block(store.revoke(kept)), Err(Error::NoLease(kept)));
}

#[test]
fn a_store_that_was_away_gives_leases_their_whole_time_again_and_no_number_twice() {
    let (home, clock) = (Home::new(), Hands::new());
    let store = home.open_by(&clock);
    let (lease, last) = (block(store.grant(TEN)).unwrap(), block(store.grant(TEN)).unwrap());
    block(store.put(key("/n/1"), value("1"), Some(lease))).unwrap();
    block(store.revoke(last)).unwrap();
    clock.move_on(TEN - Duration::from_millis(1));
    drop(store);
    clock.move_on(TEN);
    let store = home.open_by(&clock);
    let new = block(store.grant(TEN)).unwrap();
    assert!(new > last, "{new} after {last}");
    clock.move_on(TEN - Duration::from_millis(1));
    assert_eq!(block(store.keep_alive(new)), Ok(()));
    assert!(block(store.get(&key("/n/1"))).unwrap().is_some());
    clock.move_on(Duration::from_millis(1));
    assert_eq!(block(store.keep_alive(lease)), Err(Error::NoLease(lease)));
    assert_eq!(block(store.get(&key("/n/1"))), Ok(None));
    assert_eq!(block(store.keep_alive(new)), Ok(()));
}

#[test]
fn a_lease_has_bounds() {
    let (home, clock) = (Home::new(), Hands::new());
    let store = home.open_by(&clock);
    let longest = Duration::from_secs(MAX_TTL_SECONDS);
    for (ttl, fine) in [
        (Duration::ZERO, false),
        (Duration::from_millis(1), true),
        (longest, true),
        (longest + Duration::from_millis(1), false),
    ] {
        match block(store.grant(ttl)) {
            Ok(_) => assert!(fine, "{ttl:?}"),
            Err(e) => assert_eq!((e, fine), (Error::TimeToLive(ttl), false)),
        }
    }
    assert_eq!(
        block(store.keep_alive(LeaseId(77))),
        Err(Error::NoLease(LeaseId(77)))
    );
    let lease = block(store.grant(TEN)).unwrap();
    let names: Vec<_> = (0..MAX_LEASE_KEYS).map(|n| key(&format!("/k/{n}"))).collect();
    for some in names.chunks(128) {
        let steps = some.iter().map(|k| Step::put(k.clone(), value("")).under(lease));
        block(store.transact(steps.collect()))
            .unwrap()
            .done(|c| c)
            .unwrap();
    }
    let one_more = block(store.put(key("/more"), value(""), Some(lease)));
    assert_eq!(one_more, Err(Error::LeaseFull(lease)));
    assert!(block(store.put(names[0].clone(), value("again"), Some(lease))).is_ok());
}

#[test]
fn leases_are_bounded() {
    let (home, clock) = (Home::new(), Hands::new());
    let store = home.open_by(&clock);
    let mut granted = Vec::new();
    while granted.len() < MAX_LEASES {
        let some = (MAX_LEASES - granted.len()).min(2000);
        let answers: Vec<_> = (0..some).map(|_| store.grant(TEN)).collect();
        granted.extend(answers.into_iter().map(|a| block(a).unwrap()));
    }
    assert_eq!(block(store.grant(TEN)), Err(Error::Leases));
    block(store.revoke(granted[7])).unwrap();
    assert!(block(store.grant(TEN)).is_ok());
    assert_eq!(block(store.grant(TEN)), Err(Error::Leases));
    // All of them end at once, and there is room again.
    clock.move_on(TEN);
    for _ in 0..MAX_LEASES / 256 + 1 {
        block(store.put(key("/x"), value(""), None)).unwrap();
    }
    assert!(block(store.grant(TEN)).is_ok());
}

/// The machine's own clock: nobody asks anything, and the lease ends all the same.
#[test]
fn a_lease_ends_although_nobody_asks() {
    let home = Home::new();
    let store = home.open();
    let lease = block(store.grant(Duration::from_secs(1))).unwrap();
    let put = block(store.put(key("/n/1"), value("1"), Some(lease))).unwrap();
    let mut watch = block(store.watch(prefix("/n/"), put)).unwrap();
    let end = block(watch.next()).unwrap();
    assert_eq!(end.changes, [Change::Delete(key("/n/1"))]);
}

//! What is too much is refused, at the very number, and what is just not too much is done.

use super::{Gate, Home, block, key, prefix, value};
use crate::sqlite::{MAX_WAITING_BYTES, MAX_WAITING_CHANGES};
use crate::{
    Error, Expect, Key, LeaseId, MAX_KEY, MAX_PAGE, MAX_PAGE_BYTES, MAX_STEPS, MAX_TRANSACTION_BYTES,
    MAX_VALUE, Outcome, Prefix, Range, Revision, Step, Store, Value, all,
};

#[test]
fn keys_and_values_are_bounded() {
    for (len, fine) in [(0, false), (1, true), (MAX_KEY, true), (MAX_KEY + 1, false)] {
        let made = Key::new(vec![b'k'; len]);
        assert_eq!(
            made.map(drop),
            fine.then_some(()).ok_or(Error::KeyLength(len)),
            "{len}"
        );
    }
    for (len, fine) in [(0, true), (MAX_KEY, true), (MAX_KEY + 1, false)] {
        let made = Prefix::new(vec![b'k'; len]);
        assert_eq!(
            made.map(drop),
            fine.then_some(()).ok_or(Error::KeyLength(len)),
            "{len}"
        );
    }
    for (len, fine) in [(0, true), (MAX_VALUE, true), (MAX_VALUE + 1, false)] {
        let made = Value::new(vec![b'v'; len]);
        assert_eq!(
            made.map(drop),
            fine.then_some(()).ok_or(Error::ValueLength(len)),
            "{len}"
        );
    }
    let home = Home::new();
    let store = home.open();
    let long = Key::new(vec![0xff; MAX_KEY]).unwrap();
    let large = Value::new(vec![0; MAX_VALUE]).unwrap();
    block(store.put(long.clone(), large.clone(), None)).unwrap();
    let found = block(store.get(&long)).unwrap().unwrap();
    assert_eq!(found.value, large);
    let page = block(store.range(Range::prefix(&prefix("")))).unwrap();
    assert_eq!(page.entries, [found], "the last key there can be is in the range");
}

#[test]
fn any_bytes_are_a_key_and_prefixes_end_where_they_should() {
    let home = Home::new();
    let store = home.open();
    let keys: [&[u8]; 7] = [
        b"\0",
        b"a\xff",
        b"a\xff\0",
        b"a\xff\xff",
        b"b",
        b"\xff",
        b"\xff\xff\x01",
    ];
    for bytes in keys {
        block(store.put(Key::new(bytes).unwrap(), Value::new(bytes).unwrap(), None)).unwrap();
    }
    for (begin, count) in [
        (&b""[..], 7),
        (b"a", 3),
        (b"a\xff", 3),
        (b"a\xff\xff", 1),
        (b"\xff", 2),
        (b"c", 0),
    ] {
        let page = block(store.range(Range::prefix(&Prefix::new(begin).unwrap()))).unwrap();
        assert_eq!(page.entries.len(), count, "{}", begin.escape_ascii());
        assert!(page.entries.iter().all(|e| e.key.as_bytes() == &*e.value));
    }
}

#[test]
fn transactions_are_bounded_in_steps_and_bytes() {
    let home = Home::new();
    let store = home.open();
    let steps = |count: usize, each: usize| {
        let made = (0..count).map(|n| Step::put(key(&format!("{n:08}")), Value::new(vec![1; each]).unwrap()));
        made.collect::<Vec<_>>()
    };
    let half = MAX_TRANSACTION_BYTES / 2 - 8;
    for (count, each, fine) in [
        (0, 0, true),
        (MAX_STEPS, 0, true),
        (MAX_STEPS + 1, 0, false),
        (2, half, true),
        (3, half, false),
    ] {
        let done = block(store.transact(steps(count, each)));
        let bytes = count * (8 + each);
        let refused = Error::TransactionSize { steps: count, bytes };
        assert_eq!(
            done.map(drop),
            fine.then_some(()).ok_or(refused),
            "{count} of {each}"
        );
    }
    let twice = vec![Step::delete(key("a")), Step::check(key("a"), Expect::Absent)];
    assert_eq!(block(store.transact(twice)), Err(Error::SameKeyTwice(key("a"))));
}

#[test]
fn ten_thousand_entries_are_one_page_and_one_more_is_two() {
    let home = Home::new();
    let store = home.open();
    let name = |n: usize| key(&format!("/nodes/{n:05}"));
    let all_keys: Vec<Key> = (0..=MAX_PAGE).map(name).collect();
    for some in all_keys.chunks(MAX_STEPS) {
        let steps = some.iter().map(|k| Step::put(k.clone(), value("inventory")));
        block(store.transact(steps.collect()))
            .unwrap()
            .done(|c| c)
            .unwrap();
    }
    let nodes = prefix("/nodes/");
    let page = block(store.range(Range::prefix(&nodes))).unwrap();
    assert_eq!((page.entries.len(), page.more), (MAX_PAGE, true));
    let rest = block(store.range(Range::prefix(&nodes).after(name(MAX_PAGE - 1)))).unwrap();
    assert_eq!((rest.entries.len(), rest.more), (1, false));
    let (entries, revision) = block(all(&store, &nodes)).unwrap();
    let keys: Vec<Key> = entries.into_iter().map(|e| e.key).collect();
    assert_eq!((keys, revision), (all_keys, page.revision));
    for (limit, fine) in [(0, false), (1, true), (MAX_PAGE + 1, false)] {
        let page = block(store.range(Range::prefix(&nodes).limit(limit)));
        assert_eq!(
            page.map(drop),
            fine.then_some(()).ok_or(Error::PageLimit(limit)),
            "{limit}"
        );
    }
}

#[test]
fn a_page_is_bounded_in_bytes_and_the_next_goes_on() {
    let home = Home::new();
    let store = home.open();
    let large = Value::new(vec![3; MAX_VALUE]).unwrap();
    let count = MAX_PAGE_BYTES / MAX_VALUE + 1;
    let put: Vec<_> = (0..count)
        .map(|n| store.put(key(&format!("{n:03}")), large.clone(), None))
        .collect();
    // More than may wait at once is refused, so not all can be in a hurry.
    let mut refused = 0;
    for (n, answer) in put.into_iter().enumerate() {
        if block(answer) == Err(Error::Busy) {
            refused += 1;
            block(store.put(key(&format!("{n:03}")), large.clone(), None)).unwrap();
        }
    }
    assert!(refused < count);
    let page = block(store.range(Range::prefix(&prefix("")))).unwrap();
    assert!(page.more && page.entries.len() < count, "{}", page.entries.len());
    assert_eq!(block(all(&store, &prefix(""))).unwrap().0.len(), count);
}

#[test]
fn more_than_may_wait_are_told_that_it_is_busy() {
    let (home, gate) = (Home::new(), Gate::new());
    let store = home.open_behind(&gate);
    let put = |n: usize| store.put(key(&format!("{n}")), value(""), None);
    gate.shut();
    let mut answers = vec![put(0)];
    gate.wait_for_the_writer();
    answers.extend((1..=MAX_WAITING_CHANGES).map(&put));
    assert_eq!(block(put(MAX_WAITING_CHANGES + 1)), Err(Error::Busy));
    gate.open();
    for answer in answers {
        block(answer).unwrap();
    }
    assert_eq!(block(put(0)), Ok(Revision(MAX_WAITING_CHANGES as u64 + 2)));

    gate.shut();
    let first = put(0);
    gate.wait_for_the_writer();
    let large = Value::new(vec![0; MAX_VALUE - 2]).unwrap();
    let fit = MAX_WAITING_BYTES / MAX_VALUE;
    let answers: Vec<_> = (0..fit)
        .map(|_| store.put(key("l"), large.clone(), None))
        .collect();
    assert_eq!(block(store.put(key("l"), large, None)), Err(Error::Busy));
    gate.open();
    for answer in answers {
        block(answer).unwrap();
    }
    block(first).unwrap();
    assert!(block(put(7)).is_ok());
}

#[test]
fn one_that_is_refused_spoils_none_of_its_group() {
    let (home, gate) = (Home::new(), Gate::new());
    let store = home.open_behind(&gate);
    let made = block(store.put(key("/there"), value("1"), None)).unwrap();
    gate.shut();
    let first = store.put(key("/first"), value("1"), None);
    gate.wait_for_the_writer();
    let before = store.put(key("/before"), value("1"), None);
    let conflict = store.compare_and_set(Step::create(key("/there"), value("2")));
    let lease = store.put(key("/leased"), value("1"), Some(LeaseId(9)));
    let replaced = store.compare_and_set(Step::replace(key("/there"), made, value("2")));
    let stale = store.compare_and_set(Step::replace(key("/there"), made, value("3")));
    let after = store.put(key("/after"), value("1"), None);
    gate.open();
    assert_eq!(block(first), Ok(Revision(2)));
    assert_eq!(block(before), Ok(Revision(3)));
    assert!(
        matches!(block(conflict), Ok(Outcome::Conflict(c)) if c.found.as_ref().map(|e| e.revision) == Some(made))
    );
    assert_eq!(block(lease), Err(Error::NoLease(LeaseId(9))));
    assert_eq!(block(replaced), Ok(Outcome::Done(Revision(4))));
    assert!(matches!(block(stale), Ok(Outcome::Conflict(c)) if &*c.found.as_ref().unwrap().value == b"2"));
    assert_eq!(block(after), Ok(Revision(5)));
    assert_eq!(block(store.get(&key("/leased"))), Ok(None));
}

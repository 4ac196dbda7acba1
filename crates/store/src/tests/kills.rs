//! Killed in the middle of a write, and cut off in the middle of its files: nothing that was acknowledged is lost, and
//! nothing is there by half.

use super::{Home, again, argument, block, key};
use crate::sqlite::Sqlite;
use crate::{Prefix, Revision, Step, Store, Value};
use std::io::{BufRead, BufReader, Write};
use std::process::Stdio;
use std::thread;

/// The writers of one store.
const WRITERS: usize = 4;
/// How often it is killed.
const ROUNDS: usize = 16;

/// The pair that writer `who` writes in one transaction, again and again with the next number.
fn pair(who: usize) -> [crate::Key; 2] {
    [key(&format!("/a/{who}")), key(&format!("/b/{who}"))]
}

/// The number, and bytes by which half a value is recognised.
fn content(number: u64) -> Value {
    let mut bytes = number.to_be_bytes().to_vec();
    bytes.resize(8 + (number as usize * 977) % 9000, number as u8);
    Value::new(bytes).unwrap()
}

/// The number of what `who` wrote last, 0 for nothing; both halves are there and whole.
fn number(store: &Sqlite, who: usize) -> u64 {
    let [a, b] = pair(who).map(|k| block(store.get(&k)).unwrap());
    let (Some(a), Some(b)) = (&a, &b) else {
        assert_eq!((a, b), (None, None), "half of a transaction");
        return 0;
    };
    assert_eq!(
        (&a.value, a.revision),
        (&b.value, b.revision),
        "half of a transaction"
    );
    let number = u64::from_be_bytes(a.value[..8].try_into().unwrap());
    assert_eq!(a.value, content(number), "half of a value");
    number
}

/// Each revision after `after` is in the log once, with both halves.
fn check_log(store: &Sqlite, after: Revision) -> Revision {
    let sum: u64 = (0..WRITERS).map(|who| number(store, who)).sum();
    let mut watch = block(store.watch(Prefix::everything(), after)).unwrap();
    while watch.seen() < Revision(sum) {
        let seen = watch.seen();
        let update = block(watch.next()).unwrap();
        assert_eq!((update.revision, update.changes.len()), (Revision(seen.0 + 1), 2));
    }
    Revision(sum)
}

fn write_and_say_so(directory: &std::path::Path) -> ! {
    let store = Sqlite::open(directory).expect("the store opens");
    thread::scope(|scope| {
        for who in 0..WRITERS {
            let store = &store;
            scope.spawn(move || {
                for number in number(store, who) + 1.. {
                    let steps = pair(who).map(|k| Step::put(k, content(number)));
                    block(store.transact(steps.into())).unwrap().done(|c| c).unwrap();
                    // One call: of a line in several, a kill leaves the first words.
                    let line = format!("acknowledged {who} {number}\n");
                    std::io::stderr().write_all(line.as_bytes()).unwrap();
                }
            });
        }
    });
    unreachable!("it is killed")
}

#[test]
fn nothing_acknowledged_is_lost_when_it_is_killed() {
    if let Some(directory) = argument() {
        write_and_say_so(&directory);
    }
    let home = Home::new();
    let mut acknowledged = [0; WRITERS];
    let mut checked = Revision(0);
    for round in 0..ROUNDS {
        let mut child = again(
            "tests::kills::nothing_acknowledged_is_lost_when_it_is_killed",
            &home.store(),
        )
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("this program again");
        let said = BufReader::new(child.stderr.take().expect("a pipe"));
        for (count, line) in said.lines().enumerate() {
            let line = line.expect("a line");
            let mut words = line.split(' ');
            match (words.next(), words.next(), words.next()) {
                (Some("acknowledged"), Some(who), Some(number)) => {
                    let who: usize = who.parse().expect("a writer");
                    acknowledged[who] = number.parse().expect("a number");
                }
                _ => panic!("the writing process said {line:?}"),
            }
            if count == round * 5 {
                child.kill().expect("SIGKILL");
            }
        }
        child.wait().expect("its end");
        let store = home.open();
        for (who, last) in acknowledged.iter_mut().enumerate() {
            let found = number(&store, who);
            // One more may be there: written, and not told any more.
            assert!(
                (*last..=*last + 1).contains(&found),
                "{who}: {found}, acknowledged {last}"
            );
            *last = found;
        }
        checked = check_log(&store, checked);
    }
    let least = (0..ROUNDS).map(|round| round as u64 * 5 + 1).sum();
    assert!(checked >= Revision(least), "only {checked} changes were made");
}

/// What a power cut may leave: the log of the database ends anywhere. Whatever is there then is whole, and of one moment.
#[test]
fn files_that_end_anywhere_hold_nothing_by_half() {
    let home = Home::new();
    let store = home.open();
    for number in 1..=30 {
        for who in 0..2 {
            let steps = pair(who).map(|k| Step::put(k, content(number)));
            block(store.transact(steps.into())).unwrap().done(|c| c).unwrap();
        }
    }
    let wal = std::fs::read(home.store().join("state.db-wal")).expect("the WAL");
    let database = std::fs::read(home.store().join("state.db")).expect("the database");
    drop(store);
    let mut found = Vec::new();
    for cut in 0..=40 {
        let cut = wal.len() * cut / 40;
        let other = Home::new();
        other.make_store();
        for (name, bytes) in [("state.db", &database[..]), ("state.db-wal", &wal[..cut])] {
            other.write_private(name, bytes);
        }
        let store = other.open();
        check_log(&store, Revision(0));
        let (first, second) = (number(&store, 0), number(&store, 1));
        assert!(
            first == second || first == second + 1,
            "{first} {second}: not one moment"
        );
        found.push(first);
    }
    assert!(found.is_sorted(), "{found:?}");
    assert_eq!((found[0], found[40]), (0, 30), "{found:?}");
}

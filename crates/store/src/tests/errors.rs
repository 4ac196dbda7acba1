//! What a person reads: each error is a sentence with the thing, the reason and the remedy, and shows no value.

use super::{key, value};
use crate::{Error, LeaseId, Revision, Step};
use std::time::Duration;

#[test]
fn errors_are_sentences_to_act_on() {
    let path = || "/var/lib/fleetgate/auth/state.db".into();
    let all = [
        (
            Error::KeyLength(0),
            "a key of 0 bytes: a key has 1 to 1024; use a shorter name",
        ),
        (
            Error::ValueLength(9),
            "a value of 9 bytes: a value has at most 1048576; store less in one entry",
        ),
        (
            Error::TransactionSize { steps: 200, bytes: 7 },
            "a transaction of 200 steps and 7 bytes: it has at most 128 steps and 2097152 bytes; make several of it",
        ),
        (
            Error::SameKeyTwice(key("/n/\u{7}")),
            "/n/\\x07 is in a transaction twice; what it becomes can be said once",
        ),
        (
            Error::PageLimit(0),
            "a page of 0 entries: it has 1 to 10000; read page by page",
        ),
        (
            Error::TimeToLive(Duration::ZERO),
            "a lease of 0 s: it lasts 1 to 31622400",
        ),
        (
            Error::NoLease(LeaseId(3)),
            "lease 3 has ended; grant a new one and put its keys again",
        ),
        (
            Error::LeaseFull(LeaseId(3)),
            "lease 3 has 1024 keys, which is the most; grant another one",
        ),
        (
            Error::Leases,
            "there are 32768 leases, which is the most; wait until some end",
        ),
        (
            Error::Watches,
            "there are 1024 watches, which is the most; close some",
        ),
        (
            Error::Compacted(Revision(5)),
            "the changes after revision 5 are not all kept any more; read the range again and watch after its revision",
        ),
        (
            Error::Future {
                asked: Revision(9),
                now: Revision(5),
            },
            "revision 9 was asked for and the store is at 5: was an older backup restored? Read the range again and watch \
             after its revision",
        ),
        (
            Error::Busy,
            "too many requests wait for the store; try again in a moment",
        ),
        (Error::Closed, "the store is closed; nothing more is done"),
        (
            Error::Locked(path()),
            "the store /var/lib/fleetgate/auth/state.db is open in another process; stop that first",
        ),
        (
            Error::Newer {
                path: path(),
                version: 2,
                known: 1,
            },
            "the store /var/lib/fleetgate/auth/state.db has format 2, written by a newer fleetgate; this one knows formats \
             up to 1: update it",
        ),
        (
            Error::Foreign(path()),
            "/var/lib/fleetgate/auth/state.db is no store of fleetgate's, or is damaged; give the path of one, or put a \
             backup in its place with `fleetgate restore BACKUP --replace`",
        ),
        (
            Error::Corrupt(path(), "page 3".into()),
            "the store /var/lib/fleetgate/auth/state.db is damaged: page 3; stop everything that uses it and put a \
             backup in its place with `fleetgate restore BACKUP --replace`",
        ),
        (
            Error::DiskFull(path()),
            "the disk that holds the store /var/lib/fleetgate/auth/state.db is full: nothing was changed, reading goes on; \
             make room and try again",
        ),
        (
            Error::ReadOnly(path()),
            "the store /var/lib/fleetgate/auth/state.db may not be written: nothing was changed, reading goes on; make the \
             file and its file system writable and try again",
        ),
        (
            Error::Exists(path()),
            "/var/lib/fleetgate/auth/state.db exists already, and nothing was changed; `fleetgate restore BACKUP --replace` puts \
             a backup in its place",
        ),
    ];
    for (error, sentence) in all {
        assert_eq!(error.to_string(), sentence);
    }
}

#[test]
fn debug_shows_no_value() {
    let step = Step::put(key("/users/alice"), value("hunter2"));
    let shown = format!("{step:?}");
    assert!(
        shown.contains("/users/alice") && shown.contains("7 bytes"),
        "{shown}"
    );
    assert!(!shown.contains("hunter"), "{shown}");
}

//! What the catalogue says of a recording, as its own frames and its maker say it.

use crate::catalogue::Row;
use crate::checker::{Checker, Point, Proof};
use crate::directory::{self, Found};
use crate::entry::{Entry, Place};
use crate::error::Error;
use crate::intake::Whole;
use fleetgate_sys::clock::{self, Time};
use fleetgate_sys::file::read_at;
use serde_json::Value;

/// The longest text of a field.
const MAX_TEXT: usize = 256;
/// How far a recording's beginning may be from when it came, in days; else it stands at that time.
const BEFORE: u64 = 400;
const DAY: u64 = 86_400;
/// A clock may be ahead of ours by so much, in seconds.
const AHEAD: u64 = 600;
/// What is read at once.
const CHUNK: usize = 256 << 10;

/// Of a recording of which the first part is proven. `node` says which node it is of, by what the recording says.
pub fn new(session: [u8; 16], source: &str, begin: &str, now: u64, node: impl Fn(&str) -> String) -> Row {
    let value: Value = serde_json::from_str(begin).unwrap_or_default();
    let text = |field: &str| -> String {
        let text = value[field].as_str().unwrap_or_default();
        text.chars().take(MAX_TEXT).collect()
    };
    let said = clock::read_rfc3339(&text("started")).map(|time| time.sec.unsigned_abs());
    let started = said
        .filter(|at| *at <= now + AHEAD && at + BEFORE * DAY >= now)
        .unwrap_or(now);
    Row {
        keep_days: value["keep_days"].as_u64().unwrap_or(0).min(36_500),
        covered: Point {
            offset: 0,
            blocks: 0,
            chain: [0; 32],
            last: 0,
            ended: false,
        },
        removed: 0,
        is_gone: false,
        entry: Entry {
            session,
            source: source.to_owned(),
            begin: begin.to_owned(),
            end: String::new(),
            last: 0,
            bytes: 0,
            whole: false,
            encrypted: value["recipients"].as_array().is_some_and(|all| !all.is_empty()),
            started,
            arrived: now,
            user: text("user"),
            login: text("login"),
            node: node(&text("node")),
            place: Place::Directory,
            day: day(started),
            aside: false,
        },
    }
}

impl Row {
    /// What there is of one that is whole.
    pub fn whole(&self) -> Whole {
        Whole {
            bytes: self.entry.bytes,
            length: self.covered.offset,
            chain: self.covered.chain,
        }
    }

    /// More of it is proven.
    pub fn prove(&mut self, proof: &Proof, end: Option<&str>, now: u64) {
        self.covered = proof.covered;
        self.entry.bytes = proof.length;
        self.entry.last = proof.covered.last;
        self.entry.arrived = now;
        if proof.covered.ended {
            self.entry.whole = true;
            self.entry.end = end.unwrap_or_default().to_owned();
        }
    }
}

/// The day of a moment.
fn day(seconds: u64) -> String {
    let mut text = clock::rfc3339(
        Time {
            sec: seconds.cast_signed(),
            nsec: 0,
        },
        0,
    );
    text.truncate(10);
    text
}

/// What a file holds that lies in the directory. Only what was proven is ever written into one, so the signatures in it are
/// believed; what stands behind the last of them does not count. Nothing: there is no proven part in it.
pub fn scan(found: &Found) -> Result<Option<Row>, Error> {
    let (path, session) = (&*found.path, found.session);
    let failed = |e: fleetgate_sys::Errno| Error::Io(path.to_owned(), e.to_string());
    let file = directory::open_to_read(path)?;
    let mut checker = Checker::new(session);
    let mut room = vec![0; CHUNK];
    let mut offset = 0;
    loop {
        let got = read_at(file.raw(), &mut room, offset).map_err(failed)?;
        offset += got as u64;
        if got == 0 || checker.feed(&room[..got], &|_, _| Ok(())).is_err() {
            break;
        }
    }
    let (Some(proof), Some(begin)) = (checker.proof(), checker.begin()) else {
        return Ok(None);
    };
    let (source, node) = directory::maker(path);
    let facts = fleetgate_sys::tree::stat_open(file.raw()).map_err(failed)?;
    let written = facts.modified.max(0).unsigned_abs();
    let mut row = new(session, &source, begin, written, |_| node.clone());
    row.prove(proof, checker.end(), written);
    row.entry.day.clone_from(&found.day);
    row.entry.aside = found.aside;
    Ok(Some(row))
}

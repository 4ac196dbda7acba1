//! What there is: each recording's first block, and the last one where it lies where it should. Nothing between them is
//! read, so nothing here says that a recording is whole; `verify` does.

use crate::about::{Begin, End};
use crate::clock;
use crate::store::{self, Entry, StoreError};
use fleetgate_record::block::{HEAD, Head, Holds};
use fleetgate_record::frame::{Frames, Kind};
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

/// Behind the end stand signatures; so many bytes before a file's end are looked at.
const LAST: u64 = 96 << 10;

/// A first block is mostly shorter than this.
const FIRST: usize = 4 << 10;

/// A recording.
#[derive(Clone, Debug)]
pub struct Listing {
    /// Its file.
    pub entry: Entry,
    /// Its first frame.
    pub begin: Begin,
    /// Its last, and when that was in microseconds since the start. None: it runs, or was cut.
    pub end: Option<(End, u64)>,
    /// How long the file is.
    pub length: u64,
}

impl Listing {
    /// In a word or two: that it runs, how it ended, or that it has no end.
    pub fn state(&self) -> String {
        match &self.end {
            Some((end, _)) => end.summary(),
            None if self.entry.elsewhere.is_some() => "no end yet".to_owned(),
            None if self.entry.is_made() => "running".to_owned(),
            None if self.entry.runs => "unfinished".to_owned(),
            None => "no end".to_owned(),
        }
    }
}

/// Which recordings are wanted. What is empty is asked of none.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    /// Of this user of the cluster.
    pub user: String,
    /// As this account.
    pub login: String,
    /// On this node.
    pub node: String,
    /// Begun at this moment or later (Unix seconds).
    pub since: Option<u64>,
    /// Begun before this moment.
    pub until: Option<u64>,
    /// Those that run.
    pub running: bool,
}

impl Filter {
    fn wants_day(&self, day: &str) -> bool {
        // A recording lies in the day on which it began, by the node's clock. A day more at each end costs little.
        let Some(start) = clock::parse(&format!("{day}T00:00:00Z")).map(|at| at / clock::SECOND) else {
            // Those in the directory itself are of any.
            return true;
        };
        const DAY: u64 = 86_400;
        self.since.is_none_or(|since| start + 2 * DAY > since)
            && self.until.is_none_or(|until| start.saturating_sub(DAY) < until)
    }

    fn wants(&self, begin: &Begin) -> bool {
        let is = |want: &str, has: &str| want.is_empty() || want == has;
        let started = clock::parse(&begin.started).map(|at| at / clock::SECOND);
        is(&self.user, &begin.user)
            && is(&self.login, &begin.login)
            && is(&self.node, &begin.node)
            && self
                .since
                .is_none_or(|since| started.is_some_and(|at| at >= since))
            && self
                .until
                .is_none_or(|until| started.is_some_and(|at| at < until))
    }
}

/// What a listing has, and what it could not have.
#[derive(Debug, Default)]
pub struct List {
    /// Those that are wanted, in the order in which they began.
    pub recordings: Vec<Listing>,
    /// Those that cannot be read.
    pub unreadable: Vec<StoreError>,
}

/// Lists a directory.
pub fn list(directory: &Path, filter: &Filter) -> Result<List, StoreError> {
    let mut list = List::default();
    for found in begun(directory, filter)? {
        match found.and_then(|(entry, begin)| with_end(entry, begin)) {
            Ok(listing) => list.recordings.push(listing),
            Err(e) => list.unreadable.push(e),
        }
    }
    Ok(list)
}

/// A recording with its first frame, or why it cannot be read.
pub type Begun = Result<(Entry, Begin), StoreError>;

/// Recordings that are wanted, with their first frames and in the order in which they began. Nothing else of them is read.
/// Those that cannot be read come last.
pub fn begun(directory: &Path, filter: &Filter) -> Result<Vec<Begun>, StoreError> {
    let (mut found, mut unreadable) = (Vec::new(), Vec::new());
    for day in store::days(directory)? {
        if !filter.wants_day(&day) {
            continue;
        }
        for entry in store::of_day(directory, &day)? {
            if filter.running && !entry.is_made() {
                continue;
            }
            match first(&entry) {
                Ok(begin) if filter.wants(&begin) => found.push((clock::parse(&begin.started), entry, begin)),
                Ok(_) => {}
                Err(e) => unreadable.push(Err(e)),
            }
        }
    }
    found.sort_by(|a, b| (a.0, &a.1.id).cmp(&(b.0, &b.1.id)));
    let found = found.into_iter().map(|(_, entry, begin)| Ok((entry, begin)));
    Ok(found.chain(unreadable).collect())
}

/// The one that began last.
pub fn last(directory: &Path) -> Result<Listing, StoreError> {
    for day in store::days(directory)?.iter().rev() {
        let all = store::of_day(directory, day)?
            .into_iter()
            .filter_map(|e| look(e).ok());
        if let Some(last) = all.max_by(|a, b| key(a).cmp(&key(b))) {
            return Ok(last);
        }
    }
    Err(StoreError::Empty(directory.to_owned()))
}

fn key(listing: &Listing) -> (Option<u64>, &str) {
    (clock::parse(&listing.begin.started), &listing.entry.id)
}

/// Looks at one.
pub fn look(entry: Entry) -> Result<Listing, StoreError> {
    let begin = first(&entry)?;
    with_end(entry, begin)
}

/// Its first frame.
fn first(entry: &Entry) -> Result<Begin, StoreError> {
    let mut source = entry.open_for(FIRST)?;
    let frame = source
        .next_frame()
        .map_err(|e| StoreError::Io(entry.path.clone(), e))?;
    Ok(match frame {
        Some(frame) if frame.kind == Kind::Begin => Begin::read(frame.bytes),
        _ => Begin::default(),
    })
}

fn with_end(entry: Entry, begin: Begin) -> Result<Listing, StoreError> {
    let failed = |e| StoreError::Io(entry.path.clone(), e);
    let mut file = entry.file()?;
    let length = entry.length();
    let end = end(&mut file, length).map_err(failed)?;
    Ok(Listing {
        entry,
        begin,
        end,
        length,
    })
}

/// The end, where one lies in the last bytes of a file. It is for a list: whether it belongs there nobody checked.
fn end(file: &mut File, length: u64) -> std::io::Result<Option<(End, u64)>> {
    file.seek(SeekFrom::Start(length.saturating_sub(LAST)))?;
    let mut bytes = Vec::new();
    file.take(LAST).read_to_end(&mut bytes)?;
    let at = |from: usize| -> Option<(Head, usize)> {
        let head = bytes.get(from..from + HEAD)?.try_into().ok()?;
        let (head, _) = Head::decode(head).ok()?;
        Some((head, from + HEAD + head.stored))
    };
    let starts = (0..bytes.len().saturating_sub(HEAD)).rev();
    for from in starts.filter(|from| bytes[*from..].starts_with(b"FGRB")) {
        let Some((head, mut to)) = at(from).filter(|(head, _)| head.holds == Holds::End) else {
            continue;
        };
        let plain = bytes.get(from + HEAD..to).unwrap_or_default();
        // Nothing but whole signatures, up to the end of the file.
        while let Some((Holds::Signature, next)) = at(to).map(|(head, next)| (head.holds, next)) {
            to = next;
        }
        let frame = Frames::new(plain, head.first).last();
        if to == bytes.len()
            && let Some(Ok(frame)) = frame
            && frame.kind == Kind::End
        {
            return Ok(Some((End::read(frame.bytes), frame.at)));
        }
    }
    Ok(None)
}

//! Others who see a session at a terminal while it runs, and who may type. The monitor decided about each and made the sockets;
//! what is on them goes through the viewer's front unread.
//!
//! Nobody here waits for a viewer. What one does not take is kept up to a bound, beyond it left out and told as a gap; one who
//! takes nothing for long is let go. What a viewer types is read only as fast as the terminal takes it, and not faster than
//! somebody pastes. The session's user and all viewers hear who comes and who goes.

use fleetgate_record::frame::{self, Kind, MAX_BYTES};
use fleetgate_record::pipe::Head;
use fleetgate_sys::{Errno, Fd, clock, stream};
use std::time::Duration;

/// The most viewers of one session; the monitor has the same bound.
const MAX_VIEWERS: usize = 8;
/// So much waits for one viewer, beside what its socket holds.
const MAX_KEPT: usize = 256 << 10;
/// So long a viewer may be behind.
const PATIENCE: Duration = Duration::from_secs(10);
/// What is typed goes on in pieces of so many bytes.
const PIECE: usize = 1 << 10;
/// So many bytes a second are typed by one viewer, and so many at once.
const TYPED_A_SECOND: u64 = 16 << 10;
const TYPED_AT_ONCE: u64 = 4 << 10;
/// The longest that somebody is called.
const MAX_NAME: usize = 80;
/// The most notices that wait for the session's user.
const MAX_NOTICES: usize = 16;

/// All who see one session.
pub(super) struct Views {
    /// What frames count their time from: microseconds of CLOCK_MONOTONIC.
    pub(super) since: u64,
    pub(super) all: Vec<View>,
    /// Those who see it as soon as the recorder has what was shown before.
    pub(super) coming: Vec<View>,
    /// The session is over: so much of its output is the last that they see.
    pub(super) until: Option<u64>,
    /// For the session's user.
    pub(super) notices: Vec<Vec<u8>>,
    /// The words of the last of them, whether it rings, and how many behind it found no place.
    last_notice: (String, bool, u32),
}

/// One of them.
pub(super) struct View {
    pub(super) number: u32,
    pub(super) who: String,
    pub(super) types: bool,
    socket: Fd,
    /// Frames that the socket had no room for.
    kept: Vec<u8>,
    sent: usize,
    /// So many bytes were left out since.
    lost: u64,
    behind_since: Option<Duration>,
    /// Read from it and not typed yet.
    pub(super) typed: Vec<u8>,
    pub(super) credit: u64,
    credited: Duration,
    pub(super) is_gone: bool,
}

/// What the monitor is to hear of a viewer.
pub(super) enum News {
    /// He sees what is shown since then.
    Viewed(u32, u64),
    /// He is let go.
    Slow(u32),
}

/// What came of a look at a session's viewers.
#[derive(Default)]
pub(super) struct Served {
    pub(super) news: Vec<News>,
    /// There is more to type.
    pub(super) again: bool,
    /// To be looked at in later turns, too.
    pub(super) stays: bool,
}

impl Views {
    /// Of a session whose recording counts from `since`, if it is recorded.
    pub(super) fn new(since: Option<u64>) -> Views {
        Views {
            since: since.unwrap_or_else(micros),
            all: Vec::new(),
            coming: Vec::new(),
            until: None,
            notices: Vec::new(),
            last_notice: (String::new(), false, 0),
        }
    }

    pub(super) fn come(&mut self, view: View) {
        if self.all.len() + self.coming.len() < MAX_VIEWERS {
            self.coming.push(view);
        }
    }

    pub(super) fn leave(&mut self, viewer: u32) {
        self.coming.retain(|view| view.number != viewer);
        let Some(at) = self.all.iter().position(|view| view.number == viewer) else {
            return;
        };
        let who = self.all.remove(at).who;
        self.notice(&format!("{who} has left this session"), false);
        self.tell_who_is_there();
    }

    /// Output that was read into these parts, `len` bytes in all.
    pub(super) fn output(&mut self, parts: &[&mut [u8]], len: usize) {
        let mut left = len;
        for part in parts {
            let part = &part[..part.len().min(left)];
            left -= part.len();
            self.put(Kind::Output, part);
        }
    }

    /// The terminal has another size.
    pub(super) fn resized(&mut self, columns: u16, rows: u16) {
        if columns > 0 && rows > 0 {
            self.put(Kind::Resize, &frame::resize(columns, rows));
        }
    }

    /// Writes what is kept, as far as there is room.
    pub(super) fn flush(&mut self) {
        let at = micros().saturating_sub(self.since);
        self.all.iter_mut().for_each(|view| view.flush(at));
    }

    fn put(&mut self, kind: Kind, bytes: &[u8]) {
        let at = micros().saturating_sub(self.since);
        for bytes in bytes.chunks(MAX_BYTES) {
            for view in &mut self.all {
                view.put(kind, at, bytes);
            }
        }
    }

    pub(super) fn tell_who_is_there(&mut self) {
        let of = |view: &View| match view.types {
            true => format!("{} (types)", view.who),
            false => view.who.clone(),
        };
        let names: Vec<String> = self.all.iter().map(of).collect();
        self.put(Kind::Event, names.join(", ").as_bytes());
    }

    /// A line for the session's user. Where too many wait already, the last of them says how many more there were.
    pub(super) fn notice(&mut self, words: &str, rings: bool) {
        if self.notices.len() < MAX_NOTICES {
            self.notices.push(notice_line(words, rings));
            self.last_notice = (words.to_owned(), rings, 0);
            return;
        }
        let (last, last_rings, more) = &mut self.last_notice;
        *last_rings |= rings;
        *more = more.saturating_add(1);
        let words = format!("{last}, and {more} more came or left");
        if let Some(line) = self.notices.last_mut() {
            *line = notice_line(&words, *last_rings);
        }
    }
}

/// It stands in the first row, where it covers what is read least, until the program draws there. The cursor goes back to where
/// the program left it.
fn notice_line(words: &str, rings: bool) -> Vec<u8> {
    let bell = if rings { "\x07" } else { "" };
    format!("\x1b7\x1b[1;1H\x1b[0;7m {words} \x1b[0m\x1b8{bell}").into_bytes()
}

impl View {
    /// Of somebody who comes.
    pub(super) fn new(number: u32, who: &str, types: bool, socket: Fd, now: Duration) -> View {
        View {
            number,
            who: who.chars().take(MAX_NAME).collect(),
            types,
            socket,
            kept: Vec::new(),
            sent: 0,
            lost: 0,
            behind_since: None,
            typed: Vec::new(),
            credit: TYPED_AT_ONCE,
            credited: now,
            is_gone: false,
        }
    }

    fn put(&mut self, kind: Kind, at: u64, bytes: &[u8]) {
        // Behind a gap nothing is added until all before it is taken.
        if self.lost > 0 || self.kept.len() - self.sent + bytes.len() > MAX_KEPT {
            self.lost += bytes.len() as u64;
            return;
        }
        let len = bytes.len();
        self.kept.extend_from_slice(&Head { kind, len, at }.encode());
        self.kept.extend_from_slice(bytes);
    }

    fn flush(&mut self, at: u64) {
        while self.sent < self.kept.len() {
            match stream::send_now(self.socket.raw(), &self.kept[self.sent..]) {
                Ok(n) => self.sent += n,
                Err(Errno::EAGAIN) => break,
                Err(_) => {
                    self.is_gone = true;
                    self.sent = self.kept.len();
                }
            }
        }
        if self.sent < self.kept.len() {
            if self.sent > MAX_KEPT / 2 {
                self.kept.drain(..self.sent);
                self.sent = 0;
            }
            return;
        }
        self.sent = 0;
        self.kept = Vec::new();
        let lost = std::mem::take(&mut self.lost);
        self.behind_since = None;
        if lost > 0 && !self.is_gone {
            let why = format!(r#"{{"reason":"the viewer was too slow","bytes":{lost}}}"#);
            self.put(Kind::Gap, at, why.as_bytes());
            self.flush(at);
        }
    }

    /// Whether he has been behind for too long.
    pub(super) fn is_slow(&mut self, now: Duration) -> bool {
        if self.lost == 0 {
            return false;
        }
        now.saturating_sub(*self.behind_since.get_or_insert(now)) >= PATIENCE
    }

    /// Reads what he types, as much as he may. Whether there is something new.
    pub(super) fn read(&mut self, now: Duration) -> bool {
        if !self.types || !self.typed.is_empty() || self.is_gone {
            return false;
        }
        let passed = u64::try_from(now.saturating_sub(self.credited).as_millis()).unwrap_or(u64::MAX);
        let refill = passed.saturating_mul(TYPED_A_SECOND) / 1000;
        if refill > 0 {
            self.credit = self.credit.saturating_add(refill).min(TYPED_AT_ONCE);
            self.credited = now;
        }
        let most = PIECE.min(usize::try_from(self.credit).unwrap_or(PIECE));
        if most == 0 {
            return false;
        }
        let mut room = [0; PIECE];
        match stream::receive_now(self.socket.raw(), &mut room[..most]) {
            Ok(0) => self.types = false,
            Ok(n) => {
                self.credit -= n as u64;
                self.typed.extend_from_slice(&room[..n]);
                return true;
            }
            Err(Errno::EAGAIN) => {}
            Err(_) => self.types = false,
        }
        false
    }
}

/// Of CLOCK_MONOTONIC.
pub(super) fn micros() -> u64 {
    clock::monotonic().as_nanos().cast_unsigned() / 1000
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_notice_that_has_a_place_says_how_many_have_none() {
        let mut views = Views::new(None);
        let shown = |line: &Vec<u8>| String::from_utf8_lossy(line).into_owned();
        for n in 0..MAX_NOTICES {
            views.notice(&format!("user{n} watches this session"), false);
        }
        let full: Vec<String> = views.notices.iter().map(shown).collect();
        assert!(full.iter().all(|line| !line.contains("more")), "{full:?}");
        views.notice("eve has joined this session and can type", true);
        views.notice("eve has left this session", false);
        assert_eq!(views.notices.len(), MAX_NOTICES);
        let last = shown(&views.notices[MAX_NOTICES - 1]);
        assert!(last.contains("user15 watches this session, and 2 more"), "{last}");
        assert!(last.ends_with('\x07'), "who types rings: {last:?}");
        // With places again it begins anew.
        views.notices.clear();
        views.notice("bob watches this session", false);
        assert!(!shown(&views.notices[0]).contains("more"));
    }
}

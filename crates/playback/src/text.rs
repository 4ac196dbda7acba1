//! The text of a recording as it stood on the screen, line by line, with the time at which each could be read. A line is told
//! when it scrolls away, when the output pauses, before the screen is cleared or changed for another one, and at the end; it
//! is told once, for as long as it stays as it is. Of a program without a terminal it is the lines that it wrote.

use crate::about::Begin;
use crate::pipe::Pipe;
use crate::screen::{Screen, Watch};
use crate::source::Source;
use avt::ScreenKind;
use avt::parser::{DecMode, EdScope, Function};
use fleetgate_record::frame::{Frame, Kind};
use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::io::{self, Read};
use std::ops::Range;

/// Output that pauses for so long (microseconds) was there to be read.
pub const PAUSE: u64 = 100_000;
/// The longest line in bytes, or a little more; what is longer is several.
pub const MAX_LINE: usize = 16 << 10;

/// A line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Line<'a> {
    /// When it could be read, in microseconds since the start.
    pub at: u64,
    /// What it says. No control character is in it but tabs.
    pub text: &'a str,
    /// Which stream it came on.
    pub stream: Kind,
}

/// Where lines go.
pub type Out<'a> = &'a mut dyn FnMut(Line<'_>);

/// Hands the text of a recording to `out`.
pub fn each<R: Read>(source: &mut Source<R>, out: Out<'_>) -> io::Result<()> {
    let mut extractor = Extractor::default();
    while let Some(frame) = source.next_frame()? {
        extractor.frame(&frame, out);
    }
    extractor.finish(out);
    Ok(())
}

/// Makes text of frames.
pub struct Extractor {
    screen: Option<Screen>,
    size: (u16, u16),
    notes: Notes,
    /// When the terminal's last output was.
    last: u64,
    /// When the last output of another kind was.
    piped: u64,
    stdout: Pipe,
    stderr: Pipe,
}

impl Default for Extractor {
    fn default() -> Extractor {
        Extractor {
            screen: None,
            size: (80, 24),
            notes: Notes::default(),
            last: 0,
            piped: 0,
            stdout: Pipe::default(),
            stderr: Pipe::default(),
        }
    }
}

impl Extractor {
    /// Takes a frame.
    pub fn frame(&mut self, frame: &Frame<'_>, out: Out<'_>) {
        let at = frame.at;
        match frame.kind {
            Kind::Begin => self.size = Begin::read(frame.bytes).size(),
            Kind::Output => {
                self.pause(at, out);
                let size = self.size;
                let screen = self.screen.get_or_insert_with(|| Screen::new(size.0, size.1));
                self.last = at;
                self.notes.now = at;
                let notes = &mut self.notes;
                screen.feed_watched(frame.bytes, &mut Watcher { notes, out });
            }
            Kind::Resize => {
                if let Some((columns, rows)) = frame.size() {
                    self.size = (columns, rows);
                    if let Some(screen) = &mut self.screen {
                        self.notes.snapshot(screen.terminal(), out);
                        (self.notes.margins, self.notes.moved) = (None, true);
                        let notes = &mut self.notes;
                        screen.resize_watched(columns, rows, &mut Watcher { notes, out });
                    }
                }
            }
            Kind::Stdout | Kind::Stderr => {
                let pipe = match frame.kind {
                    Kind::Stdout => &mut self.stdout,
                    _ => &mut self.stderr,
                };
                self.piped = at;
                let stream = frame.kind;
                pipe.feed(frame.bytes, MAX_LINE, &mut |text| out(Line { at, text, stream }));
            }
            _ => {}
        }
    }

    /// What is there at the end.
    pub fn finish(mut self, out: Out<'_>) {
        if let Some(screen) = &self.screen {
            self.notes.snapshot(screen.terminal(), out);
        }
        let at = self.piped;
        for (pipe, stream) in [(&mut self.stdout, Kind::Stdout), (&mut self.stderr, Kind::Stderr)] {
            pipe.finish(&mut |text| out(Line { at, text, stream }));
        }
    }

    fn pause(&mut self, at: u64, out: Out<'_>) {
        if at.saturating_sub(self.last) >= PAUSE
            && let Some(screen) = &self.screen
        {
            self.notes.snapshot(screen.terminal(), out);
        }
    }
}

/// Which lines of a screen were told, by their hashes, and how often each stands there.
type Told = HashMap<u64, u32>;

/// A line that stood on a screen: its rows, and its hash.
type Standing = (Range<usize>, u64);

/// What is known of the lines on the screen.
#[derive(Default)]
struct Notes {
    now: u64,
    /// When the screen changed last.
    changed_at: u64,
    /// Of the primary screen and of the alternate one.
    told: [Told; 2],
    /// Rows that scrolled away, of a line whose last rows are still there.
    pending: String,
    changed: bool,
    /// Where, since the lines were told.
    dirty: Range<usize>,
    /// Rows have moved, or are another screen's: what is known of single lines counts no more.
    moved: bool,
    /// The lines of each screen when they were told last.
    standing: [Vec<Standing>; 2],
    /// The first and the last row of the region that scrolls, where it was set.
    margins: Option<(usize, usize)>,
    /// Nobody can make a line that counts as told already.
    hasher: RandomState,
}

struct Watcher<'a, 'b> {
    notes: &'a mut Notes,
    out: Out<'b>,
}

impl Watch for Watcher<'_, '_> {
    fn before(&mut self, terminal: &avt::Terminal, function: &Function) {
        self.notes.before(terminal, function, self.out);
    }

    fn evicted(&mut self, line: &avt::Line) {
        let notes = &mut *self.notes;
        notes.moved = true;
        notes.pending.extend(line.chars());
        if !line.is_wrapped() || notes.pending.len() >= MAX_LINE {
            let text = std::mem::take(&mut notes.pending);
            notes.gone(0, &text, self.out);
            notes.pending = text;
            notes.pending.clear();
        }
    }

    fn changed(&mut self, rows: Range<usize>) {
        let notes = &mut *self.notes;
        notes.dirty = match notes.changed {
            true => notes.dirty.start.min(rows.start)..notes.dirty.end.max(rows.end),
            false => rows,
        };
        notes.changed = true;
        notes.changed_at = notes.now;
    }
}

impl Notes {
    fn before(&mut self, terminal: &avt::Terminal, function: &Function, out: Out<'_>) {
        match function {
            Function::Print(_) if terminal.cursor().col < terminal.size().0 => {}
            // One that has no room goes to the next line, as a line feed does.
            Function::Print(_)
            | Function::Lf
            | Function::Nel
            | Function::Ri
            | Function::Su(_)
            | Function::Sd(_)
            | Function::Il(_)
            | Function::Dl(_) => self.scrolls(terminal, function, out),
            Function::Decstbm(top, bottom) => {
                let rows = terminal.size().1;
                let top = usize::from(*top).max(1) - 1;
                let bottom = match usize::from(*bottom) {
                    0 => rows,
                    n => n.min(rows),
                };
                self.margins = (top + 1 < bottom).then(|| (top, bottom - 1));
            }
            Function::Ed(scope) if *scope != EdScope::SavedLines => self.snapshot(terminal, out),
            Function::Ris => {
                self.snapshot(terminal, out);
                self.margins = None;
            }
            Function::Decstr => self.margins = None,
            Function::Decset(modes) | Function::Decrst(modes) => {
                let switches = |mode: &DecMode| {
                    matches!(
                        mode,
                        DecMode::AltScreenBuffer | DecMode::SaveCursorAltScreenBuffer
                    )
                };
                if modes.as_slice().iter().any(switches) {
                    self.snapshot(terminal, out);
                    // What is on the other screen may have been changed by a new size.
                    (self.changed, self.moved) = (true, true);
                    self.told[1].clear();
                }
            }
            _ => {}
        }
    }

    /// Tells the rows that are lost when `function` scrolls. Those that leave the primary screen at its top are not: the
    /// terminal tells of each.
    fn scrolls(&mut self, terminal: &avt::Terminal, function: &Function, out: Out<'_>) {
        let screen = index(terminal);
        let (_, rows) = terminal.size();
        let (top, bottom) = self.margins.unwrap_or((0, rows - 1));
        let (row, end) = (terminal.cursor().row, bottom + 1);
        let evicts = screen == 0 && top == 0;
        let count = |n: u16| usize::from(n).max(1);
        let lost: Range<usize> = match function {
            Function::Lf | Function::Nel | Function::Print(_) if row == bottom && !evicts => top..top + 1,
            Function::Su(n) if !evicts => top..(top + count(*n)).min(end),
            Function::Sd(n) => end.saturating_sub(count(*n)).max(top)..end,
            Function::Ri if row == top => bottom..end,
            Function::Il(n) if row <= bottom => end.saturating_sub(count(*n)).max(row)..end,
            Function::Dl(n) if row <= bottom && !(evicts && row == 0) => row..(row + count(*n)).min(end),
            _ => return,
        };
        for row in lost {
            // A line of several rows is told once, when its first row goes.
            if let Some(text) = line_at(terminal, row) {
                self.gone(screen, &text, out);
            }
        }
    }

    /// A line is not on the screen any more: told, if it was not before.
    fn gone(&mut self, screen: usize, text: &str, out: Out<'_>) {
        self.moved = true;
        let text = text.trim_end();
        if text.is_empty() {
            return;
        }
        let hash = self.hasher.hash_one(text);
        match self.told[screen].get_mut(&hash) {
            Some(count) if *count > 0 => *count -= 1,
            _ => out(Line {
                at: self.now,
                text,
                stream: Kind::Output,
            }),
        }
    }

    /// Tells the lines on the screen that were not told before.
    fn snapshot(&mut self, terminal: &avt::Terminal, out: Out<'_>) {
        if !std::mem::take(&mut self.changed) {
            return;
        }
        let screen = index(terminal);
        let dirty = std::mem::take(&mut self.dirty);
        if !std::mem::take(&mut self.moved) && (screen == 1 || self.pending.is_empty()) {
            return self.look_again(terminal, screen, dirty, out);
        }
        let pending = match screen {
            0 => std::mem::take(&mut self.pending),
            _ => String::new(),
        };
        let mut told = Told::with_capacity(self.told[screen].len());
        self.standing[screen].clear();
        for (rows, text) in logical(terminal, 0..terminal.size().1, &pending) {
            let text = text.trim_end();
            if text.is_empty() {
                continue;
            }
            let hash = self.hasher.hash_one(text);
            self.standing[screen].push((rows, hash));
            let count = told.entry(hash).or_default();
            *count += 1;
            if *count > self.told[screen].get(&hash).copied().unwrap_or_default() {
                out(Line {
                    at: self.changed_at,
                    text,
                    stream: Kind::Output,
                });
            }
        }
        self.told[screen] = told;
        if screen == 0 {
            self.pending = pending;
        }
    }

    /// The same where no row has moved: only lines in `dirty` may be others. A typed key changes one of many.
    fn look_again(&mut self, terminal: &avt::Terminal, screen: usize, dirty: Range<usize>, out: Out<'_>) {
        let rows = terminal.size().1;
        // Whether a row goes on in the next one is told of neither.
        let (mut first, mut end) = (dirty.start.saturating_sub(1), (dirty.end + 1).min(rows));
        let standing = &mut self.standing[screen];
        let is_wrapped = |row| terminal.screen().line(row).is_some_and(avt::Line::is_wrapped);
        loop {
            let before = (first, end);
            for (rows, _) in standing.iter() {
                if rows.start < end && rows.end > first {
                    (first, end) = (first.min(rows.start), end.max(rows.end));
                }
            }
            while first > 0 && is_wrapped(first - 1) {
                first -= 1;
            }
            while end < rows && is_wrapped(end - 1) {
                end += 1;
            }
            if before == (first, end) {
                break;
            }
        }
        let told = &mut self.told[screen];
        let mut stood = Told::new();
        standing.retain(|(rows, hash)| {
            let is_outside = rows.end <= first || rows.start >= end;
            if !is_outside {
                *stood.entry(*hash).or_default() += 1;
                if let Some(count) = told.get_mut(hash) {
                    *count = count.saturating_sub(1);
                }
            }
            is_outside
        });
        for (rows, text) in logical(terminal, first..end, "") {
            let text = text.trim_end();
            if text.is_empty() {
                continue;
            }
            let hash = self.hasher.hash_one(text);
            standing.push((rows, hash));
            *told.entry(hash).or_default() += 1;
            match stood.get_mut(&hash) {
                Some(count) if *count > 0 => *count -= 1,
                _ => out(Line {
                    at: self.changed_at,
                    text,
                    stream: Kind::Output,
                }),
            }
        }
        told.retain(|_, count| *count > 0);
    }
}

fn index(terminal: &avt::Terminal) -> usize {
    match terminal.active_screen_kind() {
        ScreenKind::Primary => 0,
        ScreenKind::Alternate => 1,
    }
}

/// The lines in these rows of the screen, each with its own: rows that a long line was broken into are one. `pending` comes before.
fn logical<'a>(
    terminal: &'a avt::Terminal,
    rows: Range<usize>,
    pending: &str,
) -> impl Iterator<Item = (Range<usize>, String)> + 'a {
    let mut text = pending.to_owned();
    let mut first = rows.start;
    rows.filter_map(move |row| {
        let line = terminal.screen().line(row)?;
        text.extend(line.chars());
        let ends = !line.is_wrapped() || text.len() >= MAX_LINE;
        ends.then(|| {
            let rows = first..row + 1;
            first = row + 1;
            (rows, std::mem::take(&mut text))
        })
    })
}

/// The line that begins in this row; nothing where the row goes on with one above it.
fn line_at(terminal: &avt::Terminal, row: usize) -> Option<String> {
    let screen = terminal.screen();
    let above = row.checked_sub(1).and_then(|above| screen.line(above));
    if above.is_some_and(avt::Line::is_wrapped) {
        return None;
    }
    let mut text = String::new();
    for row in row.. {
        let line = screen.line(row)?;
        text.extend(line.chars());
        if !line.is_wrapped() || text.len() >= MAX_LINE {
            break;
        }
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use fleetgate_record::frame::resize;

    /// What a program could send, most of it to a screen of a few short rows: texts that wrap, places, scrolling, inserting,
    /// other screens.
    fn piece(random: &mut impl FnMut(u64) -> u64) -> String {
        let n = random(12);
        match random(16) {
            0 => "\r\n".to_owned(),
            1 => format!("\x1b[{};{}H", 1 + random(6), 1 + n),
            2 => ["\x1b[K", "\x1b[1K", "\x1b[2K", "\x1b[J", "\x1b[1J"][random(5) as usize].to_owned(),
            3 => format!(
                "\x1b[{}{}",
                1 + random(3),
                ["L", "M", "S", "T", "P", "@", "X"][random(7) as usize]
            ),
            4 => format!("\x1b[{};{}r", 1 + random(3), 3 + random(4)),
            5 => ["\x1b[?1049h", "\x1b[?1049l", "\x1bM", "\x1bD", "\x1b[r"][random(5) as usize].to_owned(),
            6 => "x".repeat(n as usize * 3),
            7 => "\x1b[A\x1b[4h日\x1b[4l".to_owned(),
            _ => ["a", "b ", "cd", "same"][random(4) as usize].to_owned(),
        }
    }

    #[test]
    fn lines_of_a_changed_part_are_those_of_the_whole_screen() {
        for seed in 0..60_u64 {
            let mut state = seed;
            let mut random = |bound: u64| {
                state = state
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1_442_695_040_888_963_407);
                (state >> 33) % bound
            };
            let (mut quick, mut thorough) = (Extractor::default(), Extractor::default());
            let mut lines: [Vec<(u64, String)>; 2] = Default::default();
            for n in 0..300 {
                let (kind, bytes) = match random(40) {
                    0 => (
                        Kind::Resize,
                        resize(4 + random(12) as u16, 3 + random(4) as u16).to_vec(),
                    ),
                    _ if n == 0 => (Kind::Resize, resize(9, 5).to_vec()),
                    _ => (Kind::Output, piece(&mut random).into_bytes()),
                };
                let frame = Frame {
                    kind,
                    at: n * PAUSE,
                    bytes: &bytes,
                };
                thorough.notes.moved = true;
                for (extractor, lines) in [&mut quick, &mut thorough].into_iter().zip(&mut lines) {
                    extractor.frame(&frame, &mut |line| lines.push((line.at, line.text.to_owned())));
                }
            }
            for lines in &mut lines {
                lines.sort();
            }
            assert_eq!(lines[0], lines[1], "{seed}");
        }
    }
}

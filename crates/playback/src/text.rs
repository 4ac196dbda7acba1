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
                        self.notes.margins = None;
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
        notes.pending.extend(line.chars());
        if !line.is_wrapped() || notes.pending.len() >= MAX_LINE {
            let text = std::mem::take(&mut notes.pending);
            notes.gone(0, &text, self.out);
            notes.pending = text;
            notes.pending.clear();
        }
    }

    fn changed(&mut self) {
        self.notes.changed = true;
        self.notes.changed_at = self.notes.now;
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
                    self.changed = true;
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
        let pending = match screen {
            0 => std::mem::take(&mut self.pending),
            _ => String::new(),
        };
        let mut told = Told::with_capacity(self.told[screen].len());
        for (_, text) in logical(terminal, &pending) {
            let text = text.trim_end();
            if text.is_empty() {
                continue;
            }
            let hash = self.hasher.hash_one(text);
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
}

fn index(terminal: &avt::Terminal) -> usize {
    match terminal.active_screen_kind() {
        ScreenKind::Primary => 0,
        ScreenKind::Alternate => 1,
    }
}

/// The lines on the screen with their first rows: rows that a long line was broken into are one. `pending` comes before.
fn logical<'a>(terminal: &'a avt::Terminal, pending: &str) -> impl Iterator<Item = (usize, String)> + 'a {
    let mut text = pending.to_owned();
    let mut first = 0;
    terminal
        .screen()
        .visible_lines()
        .enumerate()
        .filter_map(move |(row, line)| {
            if text.is_empty() {
                first = row;
            }
            text.extend(line.chars());
            let ends = !line.is_wrapped() || text.len() >= MAX_LINE;
            ends.then(|| (first, std::mem::take(&mut text)))
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

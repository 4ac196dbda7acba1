//! A terminal as a model: bytes in, cells out. Nothing that a program sends to a terminal beside text, places and colours
//! leaves it again: no title, clipboard, link, picture or question does.
//!
//! The model is avt's, behind types of our own. What avt would take too literally is kept from it: characters that cannot
//! be seen or take no place, and work without end.

use crate::charsets::Charsets;
use crate::lossy::Lossy;
use avt::parser::{DecMode, Function};
use avt::{Observation, Observer, Operation};
use fleetgate_policy::text::is_unseen;
use std::ops::Range;
use unicode_width::UnicodeWidthChar;

/// The widest screen.
pub const MAX_COLUMNS: u16 = 1000;
/// The highest screen.
pub const MAX_ROWS: u16 = 500;

/// So many cells may be changed for each byte that came. Programs need fewer than one; a hostile stream could otherwise
/// clear half a million with three bytes.
const CELLS_PER_BYTE: u64 = 512;
/// What was not used can be saved up, up to so many cells.
const MAX_CREDIT: u64 = 64 << 20;

/// A place on the screen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cell {
    /// What is there.
    pub text: char,
    /// How many columns it takes: 2 for a wide character, 0 for the second column of one.
    pub width: u8,
    /// How it looks.
    pub style: Style,
}

/// How a cell looks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Style {
    /// The text's colour.
    pub foreground: Color,
    /// The colour behind it.
    pub background: Color,
    /// Bold.
    pub bold: bool,
    /// Faint.
    pub faint: bool,
    /// Italic.
    pub italic: bool,
    /// Underlined.
    pub underline: bool,
    /// Struck through.
    pub strike: bool,
    /// The colours change places.
    pub inverse: bool,
}

/// A colour.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Color {
    /// The terminal's own.
    #[default]
    Default,
    /// One of 256.
    Indexed(u8),
    /// Red, green, blue.
    Rgb(u8, u8, u8),
}

/// Sees what happens on the screen, before it does.
pub(crate) trait Watch {
    /// The next thing that is done.
    fn before(&mut self, terminal: &avt::Terminal, function: &Function);
    /// A row left at the top, for good.
    fn evicted(&mut self, line: &avt::Line);
    /// Something in these rows of the screen may look different now.
    fn changed(&mut self, rows: Range<usize>);
}

impl Watch for () {
    fn before(&mut self, _: &avt::Terminal, _: &Function) {}
    fn evicted(&mut self, _: &avt::Line) {}
    fn changed(&mut self, _: Range<usize>) {}
}

/// The model.
pub struct Screen {
    parser: avt::Parser,
    terminal: avt::Terminal,
    lossy: Lossy,
    text: String,
    credit: Credit,
    charsets: Charsets,
}

impl Screen {
    /// An empty screen of about this size.
    pub fn new(columns: u16, rows: u16) -> Screen {
        let (columns, rows) = clamped(columns, rows);
        // The size is above zero, which is all that it asks for; the other one is never made.
        let terminal = avt::Terminal::new(columns, rows).or_else(|_| avt::Terminal::new(80, 24));
        Screen {
            parser: avt::Parser::new(),
            terminal: terminal.unwrap_or_else(|_| unreachable!("80 and 24 are above zero")),
            lossy: Lossy::default(),
            text: String::new(),
            credit: Credit {
                cells: MAX_CREDIT,
                refused: 0,
            },
            charsets: Charsets::default(),
        }
    }

    /// The same for a program without a terminal: a line feed goes to the beginning of the next line.
    pub fn of_pipes(columns: u16, rows: u16) -> Screen {
        let mut screen = Screen::new(columns, rows);
        screen.feed(b"\x1b[20h");
        screen
    }

    /// Does what the bytes say.
    pub fn feed(&mut self, bytes: &[u8]) {
        self.feed_watched(bytes, &mut ());
    }

    pub(crate) fn feed_watched<W: Watch>(&mut self, bytes: &[u8], watch: &mut W) {
        self.text.clear();
        self.lossy.feed(bytes, &mut self.text);
        let (columns, rows) = self.terminal.size();
        self.credit.earn(bytes.len());
        let (parser, credit, charsets) = (&mut self.parser, &mut self.credit, &mut self.charsets);
        let mut wanted = self.text.chars().filter_map(|c| {
            let function = parser.feed(c)?;
            allowed(function, columns, rows, credit)
        });
        let functions = std::iter::from_fn(|| {
            if let Some(function) = charsets.due() {
                return Some(function);
            }
            let function = wanted.next()?;
            charsets.follow(&function);
            Some(function)
        });
        self.terminal.execute_with(functions, Hooks(watch));
    }

    /// Changes the size.
    pub fn resize(&mut self, columns: u16, rows: u16) {
        self.resize_watched(columns, rows, &mut ());
    }

    pub(crate) fn resize_watched<W: Watch>(&mut self, columns: u16, rows: u16, watch: &mut W) {
        let (columns, rows) = clamped(columns, rows);
        let before = self.terminal.size();
        // Text is broken into rows anew, which is more work than to clear them.
        let cost = 8 * (before.0 * before.1).max(columns * rows) as u64;
        self.credit.earn(8);
        if before == (columns, rows) || !self.credit.pay(cost) {
            return;
        }
        // A row that is broken into many would be kept as many times as large as it is: so it is broken in halves.
        let mut width = before.0;
        while width > 2 * columns {
            width = width.div_ceil(2);
            self.terminal.resize_with(width, before.1, Hooks(&mut *watch));
        }
        self.terminal.resize_with(columns, rows, Hooks(watch));
    }

    /// Columns and rows.
    pub fn size(&self) -> (usize, usize) {
        self.terminal.size()
    }

    /// Column and row of the cursor, if it is to be seen. The column may be one beyond the last.
    pub fn cursor(&self) -> Option<(usize, usize)> {
        self.terminal.cursor().position()
    }

    /// A row's cells.
    pub fn row(&self, row: usize) -> impl Iterator<Item = Cell> + '_ {
        let line = self.terminal.screen().line(row);
        line.into_iter().flat_map(|line| line.cells()).map(cell)
    }

    /// A row's text, without the blanks at its end.
    pub fn row_text(&self, row: usize) -> String {
        let line = self.terminal.screen().line(row);
        line.map_or_else(String::new, |line| {
            let mut text: String = line.chars().collect();
            text.truncate(text.trim_end_matches(' ').len());
            text
        })
    }

    /// All rows' text.
    pub fn text(&self) -> String {
        let (_, rows) = self.size();
        (0..rows).map(|row| self.row_text(row) + "\n").collect()
    }

    /// How many times the stream asked for more work than it is worth, and was refused.
    pub fn refused(&self) -> u64 {
        self.credit.refused
    }

    pub(crate) fn terminal(&self) -> &avt::Terminal {
        &self.terminal
    }
}

struct Hooks<'a, W>(&'a mut W);

impl<W: Watch> Observer for Hooks<'_, W> {
    type Output = ();

    fn before(&mut self, context: &mut Observation<'_>, operation: &Operation) {
        if let Operation::Function(function) = operation {
            self.0.before(context.terminal(), function);
        }
    }

    fn dirty(&mut self, rows: Range<usize>) {
        self.0.changed(rows);
    }

    fn evicted(&mut self, _: &mut Observation<'_>, line: &avt::Line) {
        self.0.evicted(line);
    }

    fn end(&mut self, _: &mut Observation<'_>) {}
}

/// How much work the stream may still ask for.
struct Credit {
    cells: u64,
    refused: u64,
}

impl Credit {
    fn earn(&mut self, bytes: usize) {
        let earned = CELLS_PER_BYTE.saturating_mul(bytes as u64);
        self.cells = self.cells.saturating_add(earned).min(MAX_CREDIT);
    }

    fn pay(&mut self, cells: u64) -> bool {
        match self.cells.checked_sub(cells) {
            Some(left) => {
                self.cells = left;
                true
            }
            None => {
                self.refused += 1;
                false
            }
        }
    }
}

/// What is done of what the stream says.
fn allowed(function: Function, columns: usize, rows: usize, credit: &mut Credit) -> Option<Function> {
    let all = (columns * rows) as u64;
    let cost = match &function {
        Function::Print(' '..='~') => return Some(function),
        Function::Print(c) => return has_place(*c).then_some(function),
        // Beyond the end of its row a character is not repeated, as in tmux.
        Function::Rep(n) => {
            let most = u16::try_from(columns).unwrap_or(u16::MAX);
            let n = (*n).min(most);
            return credit.pay(u64::from(n)).then_some(Function::Rep(n));
        }
        // A row is made anew.
        Function::Lf | Function::Nel | Function::Ri => columns as u64,
        Function::Osc(_) | Function::Xtwinops(_) => return None,
        Function::Decset(modes) | Function::Decrst(modes) => {
            let switches = |mode: &DecMode| {
                matches!(
                    mode,
                    DecMode::AltScreenBuffer | DecMode::SaveCursorAltScreenBuffer
                )
            };
            match modes.as_slice().iter().any(switches) {
                true => all,
                false => 1,
            }
        }
        Function::Ed(_)
        | Function::Ris
        | Function::Decaln
        | Function::Su(_)
        | Function::Sd(_)
        | Function::Il(_)
        | Function::Dl(_) => all,
        _ => 1,
    };
    credit.pay(cost).then_some(function)
}

/// Whether a character can be seen and has a column of its own. One that joins the character before it has none in avt's
/// cells either, so it is left out.
pub(crate) fn has_place(c: char) -> bool {
    !is_unseen(c) && c.width().is_some_and(|width| width > 0)
}

fn clamped(columns: u16, rows: u16) -> (usize, usize) {
    (
        usize::from(columns.clamp(1, MAX_COLUMNS)),
        usize::from(rows.clamp(1, MAX_ROWS)),
    )
}

fn cell(cell: &avt::Cell) -> Cell {
    let pen = cell.pen();
    Cell {
        text: cell.char(),
        width: cell.width(),
        style: Style {
            foreground: color(pen.foreground()),
            background: color(pen.background()),
            bold: pen.is_bold(),
            faint: pen.is_faint(),
            italic: pen.is_italic(),
            underline: pen.is_underline(),
            strike: pen.is_strikethrough(),
            inverse: pen.is_inverse(),
        },
    }
}

fn color(color: Option<avt::Color>) -> Color {
    match color {
        None => Color::Default,
        Some(avt::Color::Indexed(n)) => Color::Indexed(n),
        Some(avt::Color::RGB(rgb)) => Color::Rgb(rgb.r, rgb.g, rgb.b),
    }
}

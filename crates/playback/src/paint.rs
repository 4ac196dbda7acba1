//! Draws a screen on a real terminal: the rows that changed, with escape sequences of our own. It writes places, colours and
//! characters that can be seen, and nothing else, whatever the recording held.

use crate::screen::{Cell, Color, Screen, Style, has_place};
use std::fmt::Write as _;

const BLANK: Cell = Cell {
    text: ' ',
    width: 1,
    style: Style {
        foreground: Color::Default,
        background: Color::Default,
        bold: false,
        faint: false,
        italic: false,
        underline: false,
        strike: false,
        inverse: false,
    },
};

/// Draws, and knows what it drew.
#[derive(Debug, Default)]
pub struct Painter {
    columns: usize,
    rows: usize,
    drawn: Vec<Vec<Cell>>,
    cursor: Option<(usize, usize)>,
}

impl Painter {
    /// For a terminal of this size, of which nothing is known.
    pub fn new(columns: usize, rows: usize) -> Painter {
        Painter {
            columns,
            rows,
            drawn: Vec::new(),
            cursor: None,
        }
    }

    /// The escape sequences that make the terminal show `screen`. What has no room is left out: of a higher screen the part
    /// with the cursor is shown.
    pub fn draw(&mut self, screen: &Screen) -> String {
        let mut out = String::new();
        if self.drawn.is_empty() {
            out += "\x1b[0m\x1b[2J";
            self.drawn = vec![vec![BLANK; self.columns]; self.rows];
        }
        let (_, rows) = screen.size();
        let cursor = screen.cursor();
        let below = cursor.map_or(rows, |(_, row)| row + 1);
        let top = below.saturating_sub(self.rows);
        let mut style = Style::default();
        for row in 0..self.rows {
            let cells = self.cells(screen, top + row);
            if cells != self.drawn[row] {
                draw_row(row, &self.drawn[row], &cells, &mut style, &mut out);
                self.drawn[row] = cells;
            }
        }
        if style != Style::default() {
            out += "\x1b[0m";
        }
        let cursor = cursor.map(|(column, row)| (column.min(self.columns.saturating_sub(1)), row - top));
        match cursor {
            Some((column, row)) if !out.is_empty() || self.cursor != cursor => {
                let _ = write!(out, "\x1b[{};{}H", row + 1, column + 1);
                if self.cursor.is_none() {
                    out += "\x1b[?25h";
                }
            }
            None if self.cursor.is_some() || out.starts_with("\x1b[0m\x1b[2J") => out += "\x1b[?25l",
            _ => {}
        }
        self.cursor = cursor;
        out
    }

    /// A row as it is to be drawn: as long as the terminal is wide.
    fn cells(&self, screen: &Screen, row: usize) -> Vec<Cell> {
        let mut cells: Vec<Cell> = screen.row(row).take(self.columns).collect();
        // Half of a wide character cannot be drawn.
        if let Some(last) = cells.last_mut().filter(|last| last.width == 2) {
            last.width = 1;
            last.text = ' ';
        }
        cells.resize(self.columns, BLANK);
        cells
    }
}

/// Draws what is between the first and the last cell that differ.
fn draw_row(row: usize, before: &[Cell], cells: &[Cell], style: &mut Style, out: &mut String) {
    let differs = |at: &usize| before.get(*at) != cells.get(*at);
    let Some(mut first) = (0..cells.len()).find(differs) else {
        return;
    };
    let last = (0..cells.len()).rev().find(differs).unwrap_or(first);
    // A wide character is drawn from its beginning.
    while first > 0 && (cells[first].width == 0 || before[first].width == 0) {
        first -= 1;
    }
    let is_blank = |cell: &Cell| *cell == BLANK;
    let end = cells.len() - cells.iter().rev().take_while(|c| is_blank(c)).count();
    let _ = write!(out, "\x1b[{};{}H", row + 1, first + 1);
    let stop = (last + 1).min(end.max(first));
    // The terminal may find other characters wide than we do: behind one that it may find so its place is said.
    let mut is_sure = true;
    for (at, cell) in cells.iter().enumerate().take(stop).skip(first) {
        if cell.width == 0 {
            continue;
        }
        if !is_sure {
            let _ = write!(out, "\x1b[{}G", at + 1);
        }
        sgr(style, &cell.style, out);
        let text = if has_place(cell.text) { cell.text } else { ' ' };
        out.push(text);
        is_sure = text.is_ascii();
    }
    if stop <= last {
        sgr(style, &Style::default(), out);
        if !is_sure {
            let _ = write!(out, "\x1b[{}G", stop + 1);
        }
        *out += "\x1b[K";
    }
}

/// Changes the style from `before` to `style`.
pub(crate) fn sgr(before: &mut Style, style: &Style, out: &mut String) {
    if before == style {
        return;
    }
    *before = *style;
    *out += "\x1b[0";
    for (is_on, code) in [
        (style.bold, ";1"),
        (style.faint, ";2"),
        (style.italic, ";3"),
        (style.underline, ";4"),
        (style.inverse, ";7"),
        (style.strike, ";9"),
    ] {
        if is_on {
            *out += code;
        }
    }
    for (color, base) in [(style.foreground, 30), (style.background, 40)] {
        let _ = match color {
            Color::Default => Ok(()),
            Color::Indexed(n @ 0..=7) => write!(out, ";{}", base + u32::from(n)),
            Color::Indexed(n @ 8..=15) => write!(out, ";{}", base + 52 + u32::from(n)),
            Color::Indexed(n) => write!(out, ";{};5;{n}", base + 8),
            Color::Rgb(r, g, b) => write!(out, ";{};2;{r};{g};{b}", base + 8),
        };
    }
    out.push('m');
}

#[cfg(test)]
mod tests {
    use super::*;

    fn same(screen: &Screen, seen: &Screen) {
        for row in 0..screen.size().1 {
            let (a, b): (Vec<Cell>, Vec<Cell>) = (screen.row(row).collect(), seen.row(row).collect());
            assert_eq!(a, b, "row {row}");
        }
        assert_eq!(screen.cursor().is_some(), seen.cursor().is_some());
    }

    #[test]
    fn what_is_drawn_is_what_the_screen_shows() {
        let mut screen = Screen::new(20, 5);
        let mut painter = Painter::new(20, 5);
        let mut seen = Screen::new(20, 5);
        for bytes in [
            "plain\r\n\x1b[1;31mred\x1b[0m and \x1b[48;5;200mindexed\x1b[0m",
            "\x1b[3;1H\x1b[38;2;1;2;3m日本語\x1b[7mwide\x1b[0m",
            "\x1b[3;2Hx",
            "\x1b[1;1H\x1b[K",
            "\x1b[?25l\x1b[2;3Hzz",
            "\x1b[5;1H\r\nscrolled\x1b[?25h",
            "\x1b[42m\x1b[2J\x1b[0m",
            "\x1b[90;107;3;4;9;2mall\x1b[0m\x1b[1;19H界界",
        ] {
            screen.feed(bytes.as_bytes());
            let drawn = painter.draw(&screen);
            seen.feed(drawn.as_bytes());
            same(&screen, &seen);
            assert_eq!(painter.draw(&screen), "", "nothing changed");
        }
    }

    #[test]
    fn a_larger_screen_is_cut_where_the_cursor_is_seen() {
        let mut screen = Screen::new(30, 10);
        for n in 0..10 {
            screen.feed(format!("\x1b[{};1H{n} 23456789\u{754c}\u{754c}", n + 1).as_bytes());
        }
        let mut painter = Painter::new(11, 4);
        let mut seen = Screen::new(11, 4);
        seen.feed(painter.draw(&screen).as_bytes());
        assert_eq!(seen.text(), "6 23456789\n7 23456789\n8 23456789\n9 23456789\n");
        screen.feed(b"\x1b[2;1H");
        seen.feed(painter.draw(&screen).as_bytes());
        assert_eq!(seen.text(), "0 23456789\n1 23456789\n2 23456789\n3 23456789\n");
    }
}

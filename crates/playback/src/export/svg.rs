//! The screen as a picture: SVG with colours, bold and wide characters, and without anything that runs or is fetched.

use crate::screen::{Color, Screen, Style, has_place};
use std::fmt::Write as _;
use std::io::{self, Write};

/// A cell's width in tenths of a pixel, and its height in pixels.
const WIDTH: usize = 84;
const HEIGHT: usize = 18;
const MARGIN: usize = 8;
const FOREGROUND: &str = "#d4d4d4";
const BACKGROUND: &str = "#1b1b1b";
/// The first sixteen colours.
const COLORS: [&str; 16] = [
    "#000000", "#cd3131", "#0dbc79", "#c5b53a", "#2472c8", "#bc3fbc", "#11a8cd", "#cccccc", "#767676",
    "#f14c4c", "#23d18b", "#f5f543", "#3b8eea", "#d670d6", "#29b8db", "#ffffff",
];

/// Writes a picture of what `screen` shows.
pub fn svg(screen: &Screen, out: &mut dyn Write) -> io::Result<()> {
    let (columns, rows) = screen.size();
    let (width, height) = (columns * WIDTH / 10 + 2 * MARGIN, rows * HEIGHT + 2 * MARGIN);
    writeln!(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"{BACKGROUND}\"/>\n\
         <g font-family=\"DejaVu Sans Mono, Menlo, Consolas, monospace\" font-size=\"14\" fill=\"{FOREGROUND}\" \
         xml:space=\"preserve\">"
    )?;
    for row in 0..rows {
        for run in runs(screen, row) {
            run.write(row, out)?;
        }
    }
    if let Some((column, row)) = screen.cursor() {
        let column = column.min(columns - 1);
        writeln!(
            out,
            "<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{HEIGHT}\" fill=\"{FOREGROUND}\" fill-opacity=\"0.5\"/>",
            place(column),
            MARGIN + row * HEIGHT,
            tenths(WIDTH),
        )?;
    }
    writeln!(out, "</g>\n</svg>")
}

/// Neighbours that look the same. A wide character is one by itself: fonts do not agree on how wide it is.
struct Run {
    column: usize,
    columns: usize,
    text: String,
    style: Style,
}

fn runs(screen: &Screen, row: usize) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    for (column, cell) in screen.row(row).enumerate() {
        if cell.width == 0 {
            continue;
        }
        let text = if has_place(cell.text) { cell.text } else { ' ' };
        match runs.last_mut() {
            Some(run) if run.style == cell.style && text.is_ascii() && run.text.is_ascii() => {
                run.columns += 1;
                run.text.push(text);
            }
            _ => runs.push(Run {
                column,
                columns: usize::from(cell.width),
                text: text.to_string(),
                style: cell.style,
            }),
        }
    }
    runs
}

impl Run {
    fn write(&self, row: usize, out: &mut dyn Write) -> io::Result<()> {
        let style = &self.style;
        let (mut foreground, mut background) = (color(style.foreground), color(style.background));
        if style.inverse {
            let front = foreground.unwrap_or_else(|| FOREGROUND.to_owned());
            foreground = Some(background.unwrap_or_else(|| BACKGROUND.to_owned()));
            background = Some(front);
        }
        let (x, width) = (place(self.column), tenths(self.columns * WIDTH));
        if let Some(background) = background {
            let y = MARGIN + row * HEIGHT;
            writeln!(
                out,
                "<rect x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{HEIGHT}\" fill=\"{background}\"/>"
            )?;
        }
        if self.text.trim_matches(' ').is_empty() && !style.underline && !style.strike {
            return Ok(());
        }
        let mut looks = String::new();
        if let Some(foreground) = foreground {
            let _ = write!(looks, " fill=\"{foreground}\"");
        }
        for (is_on, look) in [
            (style.bold, " font-weight=\"bold\""),
            (style.faint, " fill-opacity=\"0.6\""),
            (style.italic, " font-style=\"italic\""),
        ] {
            if is_on {
                looks += look;
            }
        }
        let lines = match (style.underline, style.strike) {
            (true, true) => " text-decoration=\"underline line-through\"",
            (true, false) => " text-decoration=\"underline\"",
            (false, true) => " text-decoration=\"line-through\"",
            (false, false) => "",
        };
        let y = MARGIN + row * HEIGHT + 14;
        writeln!(
            out,
            "<text x=\"{x}\" y=\"{y}\" textLength=\"{width}\" lengthAdjust=\"spacingAndGlyphs\"{looks}{lines}>{}</text>",
            escaped(&self.text)
        )
    }
}

fn place(column: usize) -> String {
    tenths(MARGIN * 10 + column * WIDTH)
}

fn tenths(n: usize) -> String {
    format!("{}.{}", n / 10, n % 10)
}

fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '<' => out += "&lt;",
            '>' => out += "&gt;",
            '&' => out += "&amp;",
            '"' => out += "&quot;",
            '\'' => out += "&#39;",
            // These are no characters of XML, whoever may print them.
            '\u{fffe}' | '\u{ffff}' => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

fn color(color: Color) -> Option<String> {
    match color {
        Color::Default => None,
        Color::Indexed(n @ 0..=15) => Some(COLORS[usize::from(n)].to_owned()),
        Color::Indexed(n @ 16..=231) => {
            let n = n - 16;
            let level = |n: u8| if n == 0 { 0 } else { 55 + 40 * n };
            Some(rgb(level(n / 36), level(n / 6 % 6), level(n % 6)))
        }
        Color::Indexed(n) => {
            let grey = 8 + 10 * (n - 232);
            Some(rgb(grey, grey, grey))
        }
        Color::Rgb(r, g, b) => Some(rgb(r, g, b)),
    }
}

fn rgb(r: u8, g: u8, b: u8) -> String {
    format!("#{r:02x}{g:02x}{b:02x}")
}

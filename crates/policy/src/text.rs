//! Text from outside, as a terminal and a log may show it: no control characters, none that turn the direction of what
//! stands around them, none that cannot be seen. It changes what is shown and nothing else: names are compared as they are.

/// What stands where a character was left out.
pub const REPLACEMENT: char = '\u{fffd}';

/// Whether a character acts on what is around it, or takes no place of its own: control characters, Unicode's
/// `Bidi_Control`, `Default_Ignorable_Code_Point`, the two separators of lines and paragraphs, and annotation marks.
#[must_use]
pub fn is_unseen(c: char) -> bool {
    c.is_control()
        || matches!(
            c,
            '\u{ad}'
                | '\u{34f}'
                | '\u{61c}'
                | '\u{115f}'..='\u{1160}'
                | '\u{17b4}'..='\u{17b5}'
                | '\u{180b}'..='\u{180f}'
                | '\u{200b}'..='\u{200f}'
                | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}'
                | '\u{3164}'
                | '\u{fe00}'..='\u{fe0f}'
                | '\u{feff}'
                | '\u{ffa0}'
                | '\u{fff0}'..='\u{fffb}'
                | '\u{1bca0}'..='\u{1bca3}'
                | '\u{1d173}'..='\u{1d17a}'
                | '\u{e0000}'..='\u{e0fff}'
        )
}

/// What went wrong with something, named once: many reasons name it themselves.
#[must_use]
pub fn at(what: &str, why: &str) -> String {
    match why.contains(what) {
        true => why.to_owned(),
        false => format!("{what}: {why}"),
    }
}

/// So many seconds: the two largest units that are not zero.
#[must_use]
pub fn span(seconds: u64) -> String {
    let units = [
        (seconds / 86_400, "d"),
        (seconds / 3600 % 24, "h"),
        (seconds / 60 % 60, "m"),
        (seconds % 60, "s"),
    ];
    let from = units.iter().position(|(n, _)| *n > 0).unwrap_or(3);
    let parts: Vec<String> = units[from..]
        .iter()
        .take(2)
        .filter(|(n, _)| *n > 0 || from == 3)
        .map(|(n, unit)| format!("{n}{unit}"))
        .collect();
    parts.join(" ")
}

/// Rows under headings, in columns as wide as their widest word; the last one ends where it ends.
#[must_use]
pub fn table(headings: &[&str], rows: &[impl AsRef<[String]>]) -> String {
    let clean: Vec<Vec<String>> = rows
        .iter()
        .map(|row| row.as_ref().iter().map(|c| printable(c)).collect())
        .collect();
    let width = |column: usize| {
        let cells = clean
            .iter()
            .filter_map(|row| row.get(column))
            .map(|c| c.chars().count());
        cells.chain([headings[column].len()]).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..headings.len()).map(width).collect();
    let mut out = String::new();
    let heading = headings.iter().map(|h| (*h).to_owned()).collect();
    for row in std::iter::once(&heading).chain(&clean) {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(&widths) {
            line += &format!("{cell:<width$}  ");
        }
        out += line.trim_end();
        out.push('\n');
    }
    out
}

/// Bytes as hexadecimal digits.
#[must_use]
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

/// For a message: no more of what somebody sent than a person reads.
#[must_use]
pub fn shortened(text: &str) -> &str {
    let end = text.char_indices().nth(64).map_or(text.len(), |(at, _)| at);
    &text[..end]
}

/// One line that can be shown.
#[must_use]
pub fn printable(text: &str) -> String {
    text.chars()
        .map(|c| if is_unseen(c) { REPLACEMENT } else { c })
        .collect()
}

/// The same for several lines: ends of lines and tabs stay.
#[must_use]
pub fn printable_lines(text: &str) -> String {
    let keep = |c: char| matches!(c, '\n' | '\t') || !is_unseen(c);
    text.chars()
        .map(|c| if keep(c) { c } else { REPLACEMENT })
        .collect()
}

/// JSON that can be shown and says the same: such characters stand in strings only, and there each may be written by its
/// number (RFC 8259 §7).
#[must_use]
pub fn printable_json(json: &str) -> String {
    let mut out = String::with_capacity(json.len());
    for c in json.chars() {
        if c.is_ascii_control() && c != '\u{7f}' || !is_unseen(c) {
            // Of the control characters JSON has ends of lines and tabs outside of strings, and none inside.
            out.push(c);
            continue;
        }
        for unit in c.encode_utf16(&mut [0; 2]) {
            out += &format!("\\u{unit:04x}");
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Right-to-left override, isolate, zero-width space and joiner, byte order mark, soft hyphen, a tag, a separator.
    const UNSEEN: &str = "\u{202e}\u{2066}\u{200b}\u{200d}\u{feff}\u{ad}\u{e0041}\u{2028}";

    #[test]
    fn what_cannot_be_seen_is_shown_as_such() {
        for c in UNSEEN.chars() {
            assert_eq!(printable(&format!("a{c}b")), "a\u{fffd}b", "{c:?}");
            assert_eq!(printable_lines(&format!("a{c}\n\tb")), "a\u{fffd}\n\tb", "{c:?}");
        }
        for text in [
            "plain",
            "Größe 東京 שלום مرحبا 🦀",
            "a\u{301}",
            "x\u{fffd}y",
            "\u{3000}",
        ] {
            assert_eq!(printable(text), text);
        }
        assert_eq!(
            printable("a\x1b[2J\r\n\u{9b}"),
            "a\u{fffd}[2J\u{fffd}\u{fffd}\u{fffd}"
        );
    }

    #[cfg(feature = "documents")]
    #[test]
    fn json_says_the_same() {
        let value = serde_json::json!({ UNSEEN: [format!("x{UNSEEN}\x1b\n\u{7f}\u{85}é")] });
        for written in [value.to_string(), format!("{value:#}\n")] {
            let shown = printable_json(&written);
            assert!(!shown.chars().any(|c| c != '\n' && is_unseen(c)), "{shown}");
            assert_eq!(serde_json::from_str::<serde_json::Value>(&shown).unwrap(), value);
        }
    }
}

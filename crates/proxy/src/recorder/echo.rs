//! What of a user's keys a recording may hold. A node asks the terminal whether it shows what is typed; a proxy has only the
//! two streams. So text counts as typed only when the terminal shows it, key by key, as the next thing that it shows.
//! All other text may be a password, and only its length is kept. Keys that are no text (return, arrows, control) say
//! nothing of one.

use std::collections::VecDeque;

/// So much that was typed waits to be shown.
const MAX_HELD: usize = 4096;

/// What became known of typed bytes, in the order in which they were typed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Typed {
    /// They may be recorded.
    Input(Vec<u8>),
    /// So many may not.
    Hidden(u64),
}

/// One terminal's.
#[derive(Debug, Default)]
pub struct Echo {
    typed: Sequences,
    shown: Sequences,
    /// The first of them is text.
    held: VecDeque<Held>,
}

#[derive(Clone, Copy, Debug)]
struct Held {
    byte: u8,
    is_text: bool,
}

/// What came out of one call.
#[derive(Default)]
struct Known(Vec<Typed>);

impl Echo {
    /// The user typed this.
    pub fn typed(&mut self, bytes: &[u8]) -> Vec<Typed> {
        let mut known = Known::default();
        for &byte in bytes {
            let is_text = self.typed.is_typed_text(byte);
            self.held.push_back(Held { byte, is_text });
            if self.held.len() > MAX_HELD {
                self.hide_first(&mut known);
            }
            self.release(&mut known);
        }
        known.0
    }

    /// The terminal got this.
    pub fn shown(&mut self, bytes: &[u8]) -> Vec<Typed> {
        let mut known = Known::default();
        for &byte in bytes {
            let Some(first) = self.held.front() else {
                self.shown = Sequences::default();
                break;
            };
            if self.shown.is_shown_text(byte) {
                if first.byte == byte {
                    known.input(byte);
                    self.held.pop_front();
                } else {
                    // The program shows something of its own: what was typed meanwhile is not known to be shown.
                    self.hide(self.held.len(), &mut known);
                }
            } else if byte == b'\n' {
                // The line's end is shown, and the line was not.
                let line = self.held.iter().position(|held| is_line_end(held.byte));
                self.hide(line.unwrap_or(self.held.len()), &mut known);
            }
            self.release(&mut known);
        }
        known.0
    }

    /// Nothing more is shown.
    pub fn finish(&mut self) -> Vec<Typed> {
        let mut known = Known::default();
        self.hide(self.held.len(), &mut known);
        known.0
    }

    /// Hides the text among the first `count` that are held.
    fn hide(&mut self, count: usize, known: &mut Known) {
        for _ in 0..count {
            self.hide_first(known);
        }
    }

    fn hide_first(&mut self, known: &mut Known) {
        match self.held.pop_front() {
            Some(Held { is_text: true, .. }) => known.hidden(),
            Some(Held { byte, .. }) => known.input(byte),
            None => {}
        }
    }

    /// What is no text waits only for text before it.
    fn release(&mut self, known: &mut Known) {
        while let Some(Held { byte, is_text: false }) = self.held.front().copied() {
            known.input(byte);
            self.held.pop_front();
        }
    }
}

fn is_line_end(byte: u8) -> bool {
    byte == b'\r' || byte == b'\n'
}

impl Known {
    fn input(&mut self, byte: u8) {
        match self.0.last_mut() {
            Some(Typed::Input(bytes)) => bytes.push(byte),
            _ => self.0.push(Typed::Input(vec![byte])),
        }
    }

    fn hidden(&mut self) {
        match self.0.last_mut() {
            Some(Typed::Hidden(count)) => *count += 1,
            _ => self.0.push(Typed::Hidden(1)),
        }
    }
}

/// Tells text from control characters and escape sequences (ECMA-48).
#[derive(Clone, Copy, Debug, Default)]
enum Sequences {
    #[default]
    Text,
    Escape,
    /// CSI: up to a final byte.
    Control,
    /// One byte more.
    One,
    /// OSC and its like: up to BEL or ST.
    String,
}

impl Sequences {
    /// Of what a terminal gets.
    fn is_shown_text(&mut self, byte: u8) -> bool {
        let (next, is_text) = match (*self, byte) {
            (_, 0x1b) => (Sequences::Escape, false),
            (Sequences::Escape, b'[') => (Sequences::Control, false),
            (Sequences::Escape, b']' | b'P' | b'X' | b'^' | b'_') => (Sequences::String, false),
            (Sequences::Escape, b' '..=b'/' | b'N' | b'O') => (Sequences::One, false),
            (Sequences::Control, 0x20..=0x3f) | (Sequences::Control, 0..=0x1f) => (Sequences::Control, false),
            (Sequences::String, 0x07) => (Sequences::Text, false),
            (Sequences::String, _) => (Sequences::String, false),
            (Sequences::Text, _) => (Sequences::Text, is_printable(byte)),
            _ => (Sequences::Text, false),
        };
        *self = next;
        is_text
    }

    /// Of what a terminal sends. Only keys count, which are short: what else follows ESC is text.
    fn is_typed_text(&mut self, byte: u8) -> bool {
        let (next, is_text) = match (*self, byte) {
            (_, 0x1b) => (Sequences::Escape, false),
            (Sequences::Escape, b'[') => (Sequences::Control, false),
            (Sequences::Escape, b'O') => (Sequences::One, false),
            (Sequences::Control, 0x20..=0x3f) => (Sequences::Control, false),
            (Sequences::Control | Sequences::One, 0x40..=0x7e) => (Sequences::Text, false),
            _ => (Sequences::Text, is_printable(byte)),
        };
        *self = next;
        is_text
    }
}

fn is_printable(byte: u8) -> bool {
    byte >= 0x20 && byte != 0x7f
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A conversation: `<` typed, `>` shown. What of the keys is recorded; `#` for each that is not.
    fn recorded(talk: &[&str]) -> String {
        let mut echo = Echo::default();
        let mut text = String::new();
        let mut note = |known: Vec<Typed>| {
            for typed in known {
                match typed {
                    Typed::Input(bytes) => text += &String::from_utf8_lossy(&bytes),
                    Typed::Hidden(count) => text.extend((0..count).map(|_| '#')),
                }
            }
        };
        for line in talk {
            match line.split_at(1) {
                ("<", keys) => note(echo.typed(keys.as_bytes())),
                (_, shown) => note(echo.shown(shown.as_bytes())),
            }
        }
        note(echo.finish());
        text
    }

    #[test]
    fn text_counts_only_where_the_terminal_shows_it() {
        for (talk, expected) in [
            // Key by key, as a person types, and a line at once.
            (&["<l", ">l", "<s", ">s", "<\r", ">\r\nfile\r\n$ "][..], "ls\r"),
            (&["<ls -l\r", ">ls -l\r\nfile\r\n"], "ls -l\r"),
            // The echo has colours, and comes in pieces.
            (&["<ls", ">\x1b[32ml\x1b[0m", ">\x1b[3", ">3ms"], "ls"),
            (&["<é", ">é"], "é"),
            // A password: nothing is shown, then the line's end, or not even that.
            (&["<secret\r", ">\r\nLast login\r\n"], "######\r"),
            (&["<secret\r", ">Last login\r\n"], "######\r"),
            (&["<sesame\r", ">\r\nsesame street\r\n"], "######\r"),
            (&["<secret\rls\r", ">\r\nls\r\n"], "######\rls\r"),
            (&["<secret"], "######"),
            // Stars for it.
            (&["<s", ">*", "<e", ">*"], "##"),
            // Progress is shown meanwhile, with the same letters further on.
            (&["<abc\r", ">10 % abc\r\n"], "###\r"),
            // Keys that are no text.
            (&["<\x1b[A\x1bOB\x03\x7f\t"], "\x1b[A\x1bOB\x03\x7f\t"),
            (&["<\x1bsecret"], "\x1b######"),
            (&["<\x1b[200~pw\x1b[201~"], "\x1b[200~##\x1b[201~"),
            (&["<\x1b]10;rgb\x07"], "\x1b#######\x07"),
            // A title is not shown.
            (&["<ab", ">\x1b]0;ab\x07"], "##"),
        ] {
            assert_eq!(recorded(talk), expected, "{talk:?}");
        }
    }

    #[test]
    fn what_waits_is_bounded() {
        let mut echo = Echo::default();
        let known = echo.typed(&[b'x'; MAX_HELD + 3]);
        assert_eq!(known, [Typed::Hidden(3)]);
        assert_eq!(echo.finish(), [Typed::Hidden(MAX_HELD as u64)]);
    }
}

//! The output of a program without a terminal, as lines. Colours and other escape sequences are left out; no sequence can
//! hide what follows it, because such output is not shown by a terminal that would do the same.

use crate::lossy::Lossy;
use fleetgate_policy::text::{REPLACEMENT, is_unseen};

/// The most characters that belong to a sequence.
const MAX_SEQUENCE: u32 = 256;

#[derive(Debug, Default, PartialEq)]
enum State {
    #[default]
    Text,
    Escape,
    /// `ESC [`.
    Control(u32),
    /// `ESC ]`.
    Command(u32),
}

/// Makes lines of one stream.
#[derive(Debug, Default)]
pub(crate) struct Pipe {
    lossy: Lossy,
    text: String,
    state: State,
    line: String,
}

impl Pipe {
    /// Takes bytes; hands each line to `out`. A line that is longer than `most` bytes is several.
    pub(crate) fn feed(&mut self, bytes: &[u8], most: usize, out: &mut dyn FnMut(&str)) {
        let mut text = std::mem::take(&mut self.text);
        text.clear();
        self.lossy.feed(bytes, &mut text);
        for c in text.chars() {
            self.take(c, most, out);
        }
        self.text = text;
    }

    /// The line that has no end.
    pub(crate) fn finish(&mut self, out: &mut dyn FnMut(&str)) {
        let mut rest = String::new();
        self.lossy.finish(&mut rest);
        self.line += &rest;
        self.end_line(out);
    }

    fn take(&mut self, c: char, most: usize, out: &mut dyn FnMut(&str)) {
        let state = std::mem::take(&mut self.state);
        self.state = match (state, c) {
            (_, '\x1b') => State::Escape,
            (_, '\n' | '\r') => {
                self.end_line(out);
                State::Text
            }
            (State::Escape, '[') => State::Control(0),
            (State::Escape, ']') => State::Command(0),
            (State::Control(_), '@'..='~') | (State::Command(_), '\x07') => State::Text,
            (State::Control(n), ' '..='?') if n < MAX_SEQUENCE => State::Control(n + 1),
            (State::Command(n), _) if n < MAX_SEQUENCE => State::Command(n + 1),
            _ => {
                self.line.push(match c {
                    '\t' => c,
                    c if is_unseen(c) => REPLACEMENT,
                    c => c,
                });
                if self.line.len() >= most {
                    self.end_line(out);
                }
                State::Text
            }
        };
    }

    fn end_line(&mut self, out: &mut dyn FnMut(&str)) {
        if !self.line.is_empty() {
            out(self.line.trim_end());
            self.line.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_clean_and_nothing_hides_what_follows() {
        let mut lines = Vec::new();
        let mut pipe = Pipe::default();
        let mut take = |bytes: &[u8]| pipe.feed(bytes, 16, &mut |line| lines.push(line.to_owned()));
        take("one\r\n\x1b[1;31mt\twö\x1b[0m\n\n10%\r20%\n".as_bytes());
        take(b"\x1b]0;title\x07after\n\x1b]8;;never ended\nnext\n");
        take(b"\x1bPsixel\x00\xff\n0123456789abcdefXY");
        pipe.finish(&mut |line| lines.push(line.to_owned()));
        assert_eq!(
            lines,
            [
                "one",
                "t\twö",
                "10%",
                "20%",
                "after",
                "next",
                "Psixel\u{fffd}\u{fffd}",
                "0123456789abcdef",
                "XY"
            ]
        );
        let mut lines = 0;
        let mut pipe = Pipe::default();
        let long = "\x1b]".to_owned() + &"a".repeat(100_000);
        pipe.feed(long.as_bytes(), 1 << 14, &mut |_| lines += 1);
        pipe.feed(b"x", 1 << 14, &mut |_| lines += 1);
        assert_eq!(lines, 6);
    }
}

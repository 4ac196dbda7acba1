//! Questions to the person at the terminal: secrets are not shown while they are typed. Without a terminal nothing is
//! asked. What is typed is wiped when it was used.

use crate::error::ClientError;
use fleetgate_policy::text;
use fleetgate_sys::terminal::{self, Modes};
use std::fs::{File, OpenOptions};
use std::io::{IsTerminal, Read, Write};
use std::os::fd::AsRawFd;
use std::path::Path;
use zeroize::Zeroizing;

/// The longest answer.
pub const MAX_ANSWER: usize = 1024;

/// The terminal of this process, whatever its standard streams are.
pub struct Terminal(File);

impl Terminal {
    /// None where there is none.
    #[must_use]
    pub fn open() -> Option<Terminal> {
        OpenOptions::new()
            .read(true)
            .write(true)
            .open("/dev/tty")
            .ok()
            .map(Terminal)
    }

    /// Says something; what others say may be in it.
    pub fn say(&mut self, words: &str) {
        self.write(&text::printable_lines(words));
    }

    fn write(&mut self, bytes: &str) {
        let _ = self.0.write_all(bytes.as_bytes());
    }

    /// Asks for one line.
    pub fn line(&mut self, question: &str) -> Result<Zeroizing<String>, ClientError> {
        self.ask(question, true)
    }

    /// Asks for one line that is not shown.
    pub fn secret(&mut self, question: &str) -> Result<Zeroizing<String>, ClientError> {
        self.ask(question, false)
    }

    /// Keys are taken one by one, so that Ctrl-C does not leave a terminal behind that shows nothing.
    fn ask(&mut self, question: &str, shown: bool) -> Result<Zeroizing<String>, ClientError> {
        self.say(question);
        let tty = Path::new("/dev/tty");
        let modes = RawModes::set(self.0.as_raw_fd()).map_err(ClientError::file(tty))?;
        let mut typed = Line::default();
        let mut key = [0];
        let answer = loop {
            match self.0.read(&mut key) {
                Ok(0) => break Err(ClientError::Interrupted),
                Ok(_) => {}
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => continue,
                Err(e) => break Err(ClientError::File(tty.to_owned(), e)),
            }
            let before = typed.bytes.len();
            match typed.key(key[0]) {
                Key::More if shown => {
                    let echo = match typed.bytes.len() {
                        now if now > before => String::from_utf8_lossy(&key).into_owned(),
                        now => "\x08 \x08".repeat(before - now),
                    };
                    self.write(&echo);
                }
                Key::More => {}
                Key::Done => break typed.text(),
                Key::GivenUp => break Err(ClientError::Interrupted),
            }
        };
        drop(modes);
        self.say("\n");
        answer
    }
}

/// What a key did.
#[derive(Debug, PartialEq)]
enum Key {
    More,
    Done,
    GivenUp,
}

/// A line being typed.
struct Line {
    bytes: Zeroizing<Vec<u8>>,
}

impl Default for Line {
    fn default() -> Line {
        Line {
            bytes: Zeroizing::new(Vec::with_capacity(MAX_ANSWER)),
        }
    }
}

impl Line {
    fn key(&mut self, key: u8) -> Key {
        match key {
            b'\r' | b'\n' => return Key::Done,
            // Ctrl-C, and Ctrl-D on an empty line.
            3 => return Key::GivenUp,
            4 if self.bytes.is_empty() => return Key::GivenUp,
            // Backspace: a whole character.
            8 | 127 => while self.bytes.pop().is_some_and(|b| b & 0xc0 == 0x80) {},
            // Ctrl-U.
            21 => self.bytes.clear(),
            b if b < b' ' => {}
            b if self.bytes.len() < MAX_ANSWER => self.bytes.push(b),
            _ => {}
        }
        Key::More
    }

    fn text(&self) -> Result<Zeroizing<String>, ClientError> {
        std::str::from_utf8(&self.bytes)
            .map(|text| Zeroizing::new(text.to_owned()))
            .map_err(|_| ClientError::Usage("what was typed is not UTF-8".to_owned()))
    }
}

/// A terminal's modes, put back when dropped.
struct RawModes(i32, Modes);

impl RawModes {
    fn set(terminal: i32) -> std::io::Result<RawModes> {
        let modes = terminal::modes(terminal)?;
        terminal::set_modes(terminal, &modes.raw())?;
        Ok(RawModes(terminal, modes))
    }
}

impl Drop for RawModes {
    fn drop(&mut self) {
        let _ = terminal::set_modes(self.0, &self.1);
    }
}

/// Where an answer comes from.
pub enum AnswerSource<'a> {
    /// The first line of this file; `-` is standard input, from which each answer takes one line.
    File(&'a str),
    /// Whoever sits at the terminal.
    Terminal,
}

/// One answer: `what` it is for (the question's words), and how to give it where there is no terminal.
pub fn secret(
    from: &AnswerSource<'_>,
    what: &'static str,
    instead: &'static str,
) -> Result<Zeroizing<String>, ClientError> {
    match from {
        AnswerSource::File("-") => match Terminal::open().filter(|_| std::io::stdin().is_terminal()) {
            // Somebody sits there, and reads what is wanted.
            Some(mut terminal) => terminal.secret(&format!("{what}: ")),
            None => line_of_stdin(what),
        },
        AnswerSource::File(path) => {
            let text = crate::files::read_given(Path::new(path))?;
            Ok(Zeroizing::new(text.lines().next().unwrap_or_default().to_owned()))
        }
        AnswerSource::Terminal => match Terminal::open() {
            Some(mut terminal) => terminal.secret(&format!("{what}: ")),
            None => Err(ClientError::NoTerminal(what, instead)),
        },
    }
}

/// One line, byte by byte: the next answer's line must stay unread.
fn line_of_stdin(what: &'static str) -> Result<Zeroizing<String>, ClientError> {
    let mut line = Line::default();
    let mut byte = [0];
    loop {
        match fleetgate_sys::file::read(0, &mut byte) {
            Ok(0) if line.bytes.is_empty() => {
                return Err(ClientError::Usage(format!(
                    "standard input ended where {what} was expected"
                )));
            }
            Ok(0) => break,
            Ok(_) if byte[0] == b'\n' => break,
            Ok(_) if line.bytes.len() < MAX_ANSWER => line.bytes.push(byte[0]),
            Ok(_) => {}
            Err(e) => return Err(ClientError::File("standard input".into(), e.into())),
        }
    }
    line.text()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_edited_as_in_a_terminal() {
        for (keys, answer) in [
            ("secret\r", Some("secret")),
            ("sex\x7fcret\r", Some("secret")),
            ("wrong\x15right\n", Some("right")),
            ("gr\u{fc}\x7fün\r", Some("grün")),
            ("\x7f\x7fa\r", Some("a")),
            ("a\x1b\r", Some("a")),
            ("abc\x03", None),
            ("\x04", None),
            ("ab\x04\r", Some("ab")),
        ] {
            let mut line = Line::default();
            let end = keys.bytes().map(|b| line.key(b)).find(|k| *k != Key::More);
            let got = (end == Some(Key::Done)).then(|| line.text().expect("text").to_string());
            assert_eq!(got.as_deref(), answer, "{keys:?}");
        }
        let mut line = Line::default();
        (0..2 * MAX_ANSWER).for_each(|_| assert_eq!(line.key(b'x'), Key::More));
        assert_eq!(line.bytes.len(), MAX_ANSWER);
    }
}

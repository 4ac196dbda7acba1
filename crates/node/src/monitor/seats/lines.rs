//! What a process writes to its standard error, as lines of our log. They are its words: bounded, escaped, and marked
//! with its name.

use fleetgate_sys::{Errno, Fd, file};

/// The longest line; the rest of a longer one is cut.
const MAX_LINE: usize = 1024;
/// The most bytes taken in one turn: who writes more waits.
const PER_TURN: usize = 8192;

/// A process's pipe.
pub struct Lines {
    pipe: Fd,
    line: Vec<u8>,
}

impl Lines {
    /// From the reading end, which does not wait.
    pub fn new(pipe: Fd) -> Lines {
        Lines {
            pipe,
            line: Vec::new(),
        }
    }

    /// Reads what is there and gives each whole line to `tell`. False: nothing will come any more.
    pub fn read(&mut self, mut tell: impl FnMut(&str)) -> bool {
        let mut buffer = [0; PER_TURN];
        let got = match file::read(self.pipe.raw(), &mut buffer) {
            Err(Errno::EAGAIN) => return true,
            Ok(0) | Err(_) => {
                self.finish(&mut tell);
                return false;
            }
            Ok(n) => n,
        };
        for &byte in &buffer[..got] {
            match byte {
                b'\n' => self.finish(&mut tell),
                _ if self.line.len() < MAX_LINE => self.line.push(byte),
                _ => {}
            }
        }
        true
    }

    fn finish(&mut self, tell: &mut impl FnMut(&str)) {
        if !self.line.is_empty() {
            tell(&String::from_utf8_lossy(&self.line).escape_debug().to_string());
            self.line.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_bounded_and_escaped() {
        let (read, write) = file::pipe().expect("pipe");
        read.set_nonblocking(true).expect("flag");
        let mut lines = Lines::new(read);
        let mut told = Vec::new();
        let long = "x".repeat(2 * MAX_LINE);
        let text = format!("one\n\ntw\x1b[31mo\n{long}\nthree");
        file::write_all(write.raw(), text.as_bytes()).expect("write");
        assert!(lines.read(|l| told.push(l.to_owned())));
        drop(write);
        assert!(!lines.read(|l| told.push(l.to_owned())));
        assert_eq!(told, ["one", "tw\\u{1b}[31mo", &long[..MAX_LINE], "three"]);
    }
}

//! Escapes in what is typed: `~.` and its kin, at the start of a line. Bytes in, bytes and at most one wish out; it does
//! nothing itself.

/// What a user asked for by an escape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EscapeCommand {
    /// `~.`: end the connection.
    End,
    /// `~^Z`: stop this program.
    Suspend,
    /// `~#`: say what is open.
    List,
    /// `~?`: say what there is.
    Help,
    /// `~B`: send a break.
    Break,
    /// `~R`: replace the keys.
    Rekey,
}

/// Where in the input we are.
#[derive(Debug)]
pub(crate) struct Escapes {
    character: u8,
    at: At,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    LineStart,
    Escape,
    Within,
}

/// What `~?` prints; `~` stands for whatever the escape character is.
pub(crate) const HELP: &str = "Supported escape sequences:\r\n \
    ~.   - end the connection\r\n \
    ~B   - send a BREAK to the remote system\r\n \
    ~R   - replace the keys\r\n \
    ~#   - list forwarded connections\r\n \
    ~^Z  - suspend this program\r\n \
    ~?   - this message\r\n \
    ~~   - send the escape character by typing it twice\r\n\
    (They are recognised at the start of a line only.)\r\n";

impl Escapes {
    pub(crate) fn new(character: u8) -> Escapes {
        Escapes {
            character,
            at: At::LineStart,
        }
    }

    /// Takes what was typed up to the first wish; what is to be sent goes to `out`. Returns how much was taken.
    pub(crate) fn take(&mut self, typed: &[u8], out: &mut Vec<u8>) -> (usize, Option<EscapeCommand>) {
        for (i, &byte) in typed.iter().enumerate() {
            match self.at {
                At::LineStart if byte == self.character => {
                    self.at = At::Escape;
                    continue;
                }
                At::Escape => {
                    let wish = match byte {
                        b'.' => Some(EscapeCommand::End),
                        0x1a => Some(EscapeCommand::Suspend),
                        b'#' => Some(EscapeCommand::List),
                        b'?' => Some(EscapeCommand::Help),
                        b'B' => Some(EscapeCommand::Break),
                        b'R' => Some(EscapeCommand::Rekey),
                        _ => None,
                    };
                    if wish.is_some() {
                        self.at = At::LineStart;
                        return (i + 1, wish);
                    }
                    // Typed twice it is itself; before anything else it was no escape.
                    if byte != self.character {
                        out.push(self.character);
                    }
                }
                _ => {}
            }
            out.push(byte);
            self.at = match byte {
                b'\r' | b'\n' => At::LineStart,
                _ => At::Within,
            };
        }
        (typed.len(), None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_count_at_the_start_of_a_line() {
        let table: [(&[u8], &[u8], &[EscapeCommand]); 12] = [
            (b"ls\r", b"ls\r", &[]),
            (b"~.", b"", &[EscapeCommand::End]),
            (b"a~.", b"a~.", &[]),
            (b"a\r~.b", b"a\rb", &[EscapeCommand::End]),
            (b"~~.", b"~.", &[]),
            (b"~~", b"~", &[]),
            (b"~x~.", b"~x~.", &[]),
            (b"~?~#", b"", &[EscapeCommand::Help, EscapeCommand::List]),
            (b"~\x1a", b"", &[EscapeCommand::Suspend]),
            (b"~\r~.", b"~\r", &[EscapeCommand::End]),
            (b"\n~B", b"\n", &[EscapeCommand::Break]),
            (b"~R", b"", &[EscapeCommand::Rekey]),
        ];
        for (typed, sent, wishes) in table {
            // At once, and byte by byte.
            for step in [typed.len(), 1] {
                let (mut escapes, mut out, mut got) = (Escapes::new(b'~'), Vec::new(), Vec::new());
                for piece in typed.chunks(step) {
                    let mut rest = piece;
                    while !rest.is_empty() {
                        let (n, wish) = escapes.take(rest, &mut out);
                        rest = &rest[n..];
                        got.extend(wish);
                    }
                }
                assert_eq!((&out[..], &got[..]), (sent, wishes), "{typed:?} by {step}");
            }
        }
    }
}

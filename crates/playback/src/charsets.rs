//! The terminal's character sets, as far as the model forgets them: a cursor that is saved (DECSC) has them with it, as in
//! VT100, xterm and tmux, and brings them back (DECRC).

use avt::Charset;
use avt::parser::Function;

/// What is set.
#[derive(Clone, Copy, Debug)]
struct State {
    g0: Charset,
    g1: Charset,
    /// G1 is in use.
    is_shifted: bool,
}

impl Default for State {
    fn default() -> State {
        State {
            g0: Charset::Ascii,
            g1: Charset::Ascii,
            is_shifted: false,
        }
    }
}

/// What is set, and what was saved.
#[derive(Debug, Default)]
pub(crate) struct Charsets {
    now: State,
    saved: State,
    /// What brings it back, the last one first.
    due: Vec<Function>,
}

impl Charsets {
    /// Takes what the terminal does next.
    pub(crate) fn follow(&mut self, function: &Function) {
        match function {
            Function::Gzd4(charset) => self.now.g0 = *charset,
            Function::G1d4(charset) => self.now.g1 = *charset,
            Function::So => self.now.is_shifted = true,
            Function::Si => self.now.is_shifted = false,
            Function::Decsc => self.saved = self.now,
            Function::Decrc => {
                self.now = self.saved;
                let shift = if self.now.is_shifted {
                    Function::So
                } else {
                    Function::Si
                };
                self.due = vec![shift, Function::G1d4(self.now.g1), Function::Gzd4(self.now.g0)];
            }
            Function::Ris | Function::Decstr => (self.now, self.saved) = Default::default(),
            _ => {}
        }
    }

    /// What the terminal is to do before anything else.
    pub(crate) fn due(&mut self) -> Option<Function> {
        self.due.pop()
    }
}

//! Writes a program from its end to its beginning: jumps of classic BPF only lead forward, so when one is written all that
//! it can lead to has its place. A test jumps over 255 instructions at most; what lies farther away is reached by a jump
//! of its own, or said again where it is a return.

use fleetgate_sys::seccomp::Instruction;

/// BPF_LD | BPF_W | BPF_ABS: a word of struct seccomp_data.
pub const LOAD: u16 = 0x20;
/// BPF_ALU | BPF_AND | BPF_K.
pub const AND: u16 = 0x54;
/// BPF_JMP | BPF_JA.
pub const JUMP: u16 = 0x05;
/// BPF_JMP | BPF_JEQ | BPF_K.
pub const EQUAL: u16 = 0x15;
/// BPF_JMP | BPF_JGT | BPF_K.
pub const MORE: u16 = 0x25;
/// BPF_JMP | BPF_JGE | BPF_K.
pub const AT_LEAST: u16 = 0x35;
/// BPF_JMP | BPF_JSET | BPF_K.
pub const ANY_BIT: u16 = 0x45;
/// BPF_RET | BPF_K.
pub const RETURN: u16 = 0x06;

/// Where struct seccomp_data has the call's number.
pub const NUMBER: u32 = 0;
/// Its architecture.
pub const ARCHITECTURE: u32 = 4;
/// Its six arguments of 64 bits, the lower half first: every architecture here is little-endian.
pub const ARGUMENTS: u32 = 16;

/// Where a jump leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Label {
    /// To the instruction with so many behind it.
    At(usize),
    /// To a return of this.
    Return(u32),
}

/// A program that is being written.
#[derive(Debug, Default)]
pub struct Assembler {
    /// The last instruction first.
    reversed: Vec<Instruction>,
    /// The foremost return of each answer.
    returns: Vec<(u32, usize)>,
}

impl Assembler {
    /// A test of what is loaded; where both ways lead to the same, none is needed.
    pub fn jump(&mut self, code: u16, value: u32, yes: Label, no: Label) -> Label {
        if yes == no {
            return yes;
        }
        let (mut yes, mut no) = (yes, no);
        loop {
            match (self.near(yes), self.near(no)) {
                (Some(yes), Some(no)) => return self.push(Instruction { code, yes, no, value }),
                (None, _) => yes = self.bridge(yes),
                (_, None) => no = self.bridge(no),
            }
        }
    }

    /// A load, and then what is at the label.
    pub fn load(&mut self, offset: u32, then: Label) -> Label {
        self.before(plain(LOAD, offset), then)
    }

    /// An AND, and then what is at the label.
    pub fn and(&mut self, mask: u32, then: Label) -> Label {
        self.before(plain(AND, mask), then)
    }

    /// The whole: loads what the code at `entry` tests, unless that is a return.
    pub fn finish(mut self, entry: Label, offset: u32) -> Vec<Instruction> {
        match entry {
            Label::Return(_) => self.bridge(entry),
            Label::At(_) => self.load(offset, entry),
        };
        self.reversed.reverse();
        self.reversed
    }

    fn before(&mut self, instruction: Instruction, then: Label) -> Label {
        if then != Label::At(self.reversed.len().wrapping_sub(1)) {
            self.bridge(then);
        }
        self.push(instruction)
    }

    fn push(&mut self, instruction: Instruction) -> Label {
        self.reversed.push(instruction);
        Label::At(self.reversed.len() - 1)
    }

    /// How many instructions a test that is written now has to leave out.
    fn near(&self, label: Label) -> Option<u8> {
        let at = match label {
            Label::At(at) => at,
            Label::Return(answer) => self.returns.iter().find(|(known, _)| *known == answer)?.1,
        };
        u8::try_from(self.reversed.len() - 1 - at).ok()
    }

    /// Something near that does what the label does.
    fn bridge(&mut self, label: Label) -> Label {
        match label {
            Label::At(at) => {
                let over = self.reversed.len() - 1 - at;
                self.push(plain(JUMP, u32::try_from(over).unwrap_or(u32::MAX)))
            }
            Label::Return(answer) => {
                self.push(plain(RETURN, answer));
                self.returns.retain(|(known, _)| *known != answer);
                self.returns.push((answer, self.reversed.len() - 1));
                label
            }
        }
    }
}

fn plain(code: u16, value: u32) -> Instruction {
    Instruction {
        code,
        yes: 0,
        no: 0,
        value,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Codes and operands.
    fn text(program: &[Instruction]) -> Vec<(u16, u32)> {
        program.iter().map(|i| (i.code, i.value)).collect()
    }

    #[test]
    fn what_follows_a_load_is_what_was_asked_for() {
        let answer = Label::Return(7);
        let load = (LOAD, NUMBER);
        let equal = (EQUAL, 1);
        let ends = [(RETURN, 7), (RETURN, 8)];

        let mut to = Assembler::default();
        let entry = to.load(NUMBER, answer);
        assert_eq!(
            text(&to.finish(entry, ARCHITECTURE)),
            [(LOAD, ARCHITECTURE), load, ends[0]]
        );

        let program = Assembler::default().finish(answer, ARCHITECTURE);
        assert_eq!(text(&program), [ends[0]]);

        // Something else was written meanwhile.
        let mut to = Assembler::default();
        let first = to.jump(EQUAL, 1, answer, Label::Return(8));
        let second = to.jump(AT_LEAST, 2, first, answer);
        assert_ne!(first, second);
        let program = to.finish(first, NUMBER);
        assert_eq!(
            text(&program),
            [load, (JUMP, 1), (AT_LEAST, 2), equal, ends[1], ends[0]]
        );
    }

    #[test]
    fn a_jump_is_as_long_as_it_can_be() {
        for (between, bridges) in [(0, 0), (254, 0), (255, 1), (256, 1), (1000, 1)] {
            let mut to = Assembler::default();
            let far = to.jump(EQUAL, 1, Label::Return(7), Label::Return(8));
            for _ in 0..between {
                to.push(plain(AND, 0));
            }
            let near = to.push(plain(AND, 1));
            let entry = to.jump(EQUAL, 2, far, near);
            let program = to.finish(entry, NUMBER);
            let jumps = program.iter().filter(|i| i.code == JUMP).count();
            // The near one is left out, too.
            assert_eq!(jumps, bridges, "{between}");
            let first = program[1];
            let at = 2 + usize::from(first.yes);
            let at = match program[at].code {
                JUMP => at + 1 + program[at].value as usize,
                _ => at,
            };
            assert_eq!((program[at].code, program[at].value), (EQUAL, 1), "{between}");
            assert_eq!(program[2 + usize::from(first.no)].value, 1);
        }
    }
}

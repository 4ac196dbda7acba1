//! Terminal modes as SSH sends them (RFC 4254 §8): a byte of opcode, four bytes of value, until opcode 0 or one that no
//! one knows the length of. It reads what a stranger sent and sets what it knows, and writes what a client sends; it
//! never fails.

use super::Modes;
use alloc::vec::Vec;

/// From here on an opcode's argument has a length that is not known: the rest is not read (RFC 4254 §8).
const FIRST_UNKNOWN: u8 = 160;
/// A character that is switched off.
const OFF: u32 = 255;
/// An opcode for each special character, and its place in the kernel's list.
const CHARACTERS: [(u8, usize); 15] = [
    (1, libc::VINTR),
    (2, libc::VQUIT),
    (3, libc::VERASE),
    (4, libc::VKILL),
    (5, libc::VEOF),
    (6, libc::VEOL),
    (7, libc::VEOL2),
    (8, libc::VSTART),
    (9, libc::VSTOP),
    (10, libc::VSUSP),
    (12, libc::VREPRINT),
    (13, libc::VWERASE),
    (14, libc::VLNEXT),
    (16, libc::VSWTC),
    (18, libc::VDISCARD),
];

#[derive(Clone, Copy)]
enum Part {
    Input,
    Output,
    Control,
    Local,
}

/// An opcode for each switch, which part of the modes it is in, and its bit. IUCLC, XCASE and OLCUC are of the kernel
/// alone: the C libraries hide them.
const SWITCHES: [(u8, Part, u32); 35] = [
    (30, Part::Input, libc::IGNPAR),
    (31, Part::Input, libc::PARMRK),
    (32, Part::Input, libc::INPCK),
    (33, Part::Input, libc::ISTRIP),
    (34, Part::Input, libc::INLCR),
    (35, Part::Input, libc::IGNCR),
    (36, Part::Input, libc::ICRNL),
    (37, Part::Input, 0o1000),
    (38, Part::Input, libc::IXON),
    (39, Part::Input, libc::IXANY),
    (40, Part::Input, libc::IXOFF),
    (41, Part::Input, libc::IMAXBEL),
    (42, Part::Input, libc::IUTF8),
    (50, Part::Local, libc::ISIG),
    (51, Part::Local, libc::ICANON),
    (52, Part::Local, 0o4),
    (53, Part::Local, libc::ECHO),
    (54, Part::Local, libc::ECHOE),
    (55, Part::Local, libc::ECHOK),
    (56, Part::Local, libc::ECHONL),
    (57, Part::Local, libc::NOFLSH),
    (58, Part::Local, libc::TOSTOP),
    (59, Part::Local, libc::IEXTEN),
    (60, Part::Local, libc::ECHOCTL),
    (61, Part::Local, libc::ECHOKE),
    (62, Part::Local, libc::EXTPROC),
    (70, Part::Output, libc::OPOST),
    (71, Part::Output, 0o2),
    (72, Part::Output, libc::ONLCR),
    (73, Part::Output, libc::OCRNL),
    (74, Part::Output, libc::ONOCR),
    (75, Part::Output, libc::ONLRET),
    (90, Part::Control, libc::CS7),
    (92, Part::Control, libc::PARENB),
    (93, Part::Control, libc::PARODD),
];
const CS8: u8 = 91;
const INPUT_SPEED: u8 = 128;
const OUTPUT_SPEED: u8 = 129;

/// Speeds in bits per second, and the kernel's number for each.
const SPEEDS: [(u32, u32); 22] = [
    (50, libc::B50),
    (75, libc::B75),
    (110, libc::B110),
    (134, libc::B134),
    (150, libc::B150),
    (200, libc::B200),
    (300, libc::B300),
    (600, libc::B600),
    (1200, libc::B1200),
    (1800, libc::B1800),
    (2400, libc::B2400),
    (4800, libc::B4800),
    (9600, libc::B9600),
    (19_200, libc::B19200),
    (38_400, libc::B38400),
    (57_600, libc::B57600),
    (115_200, libc::B115200),
    (230_400, libc::B230400),
    (460_800, libc::B460800),
    (921_600, libc::B921600),
    (1_000_000, libc::B1000000),
    (4_000_000, libc::B4000000),
];
/// The bits of the control modes that hold the output's speed, and how far left of them the input's are.
const SPEED: u32 = libc::CBAUD;
const INPUT_SHIFT: u32 = 16;

impl Modes {
    /// These modes with what `encoded` says; what it does not know stays.
    pub fn with_encoded(mut self, encoded: &[u8]) -> Modes {
        let mut rest = encoded;
        while let [opcode, a, b, c, d, left @ ..] = rest {
            if *opcode == 0 || *opcode >= FIRST_UNKNOWN {
                break;
            }
            self.set_encoded(*opcode, u32::from_be_bytes([*a, *b, *c, *d]));
            rest = left;
        }
        self
    }

    /// These modes as SSH sends them: all that has an opcode, and the end.
    pub fn encoded(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(5 * (CHARACTERS.len() + SWITCHES.len() + 3) + 1);
        let mut put = |opcode: u8, value: u32| {
            out.push(opcode);
            out.extend_from_slice(&value.to_be_bytes());
        };
        for (opcode, shift) in [(INPUT_SPEED, INPUT_SHIFT), (OUTPUT_SPEED, 0)] {
            let speed = self.control >> shift & SPEED;
            // An input speed of 0 is that of the output (termios(3)).
            let speed = if speed == 0 { self.control & SPEED } else { speed };
            if let Some((bits, _)) = SPEEDS.iter().find(|(_, s)| *s == speed) {
                put(opcode, *bits);
            }
        }
        for (opcode, at) in CHARACTERS {
            let character = self.characters[at];
            put(opcode, if character == 0 { OFF } else { u32::from(character) });
        }
        for (opcode, part, bit) in SWITCHES {
            let on = match (opcode, part) {
                (90, _) => self.control & libc::CSIZE == libc::CS7,
                (_, Part::Input) => self.input & bit != 0,
                (_, Part::Output) => self.output & bit != 0,
                (_, Part::Control) => self.control & bit != 0,
                (_, Part::Local) => self.local & bit != 0,
            };
            put(opcode, u32::from(on));
        }
        put(CS8, u32::from(self.control & libc::CSIZE == libc::CS8));
        out.push(0);
        out
    }

    fn set_encoded(&mut self, opcode: u8, value: u32) {
        if let Some((_, at)) = CHARACTERS.iter().find(|(o, _)| *o == opcode) {
            // What is no character is none: 0 is the kernel's word for that (_POSIX_VDISABLE).
            self.characters[*at] = if value >= OFF { 0 } else { value as u8 };
        } else if let Some((_, part, bit)) = SWITCHES.iter().find(|(o, _, _)| *o == opcode) {
            let part = match part {
                Part::Input => &mut self.input,
                Part::Output => &mut self.output,
                Part::Control => &mut self.control,
                Part::Local => &mut self.local,
            };
            // CS7 is a size of its own, not a bit: without it nothing changes.
            match (opcode, value != 0) {
                (90, true) => *part = *part & !libc::CSIZE | libc::CS7,
                (90, false) => {}
                (_, true) => *part |= bit,
                (_, false) => *part &= !bit,
            }
        } else if opcode == CS8 {
            if value != 0 {
                self.control = self.control & !libc::CSIZE | libc::CS8;
            }
        } else if opcode == INPUT_SPEED || opcode == OUTPUT_SPEED {
            let Some((_, speed)) = SPEEDS.iter().find(|(bits, _)| *bits == value) else {
                return;
            };
            let shift = if opcode == INPUT_SPEED { INPUT_SHIFT } else { 0 };
            self.control = self.control & !(SPEED << shift) | speed << shift;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: Modes = Modes {
        input: libc::ICRNL | libc::IXON,
        output: libc::OPOST,
        control: libc::CS8 | libc::CREAD | libc::B38400,
        local: libc::ECHO | libc::ICANON,
        line: 0,
        characters: [1; 19],
    };

    fn encoded(pairs: &[(u8, u32)]) -> Vec<u8> {
        let one = |(opcode, value): &(u8, u32)| [&[*opcode][..], &value.to_be_bytes()].concat();
        pairs.iter().flat_map(one).collect()
    }

    #[test]
    fn what_is_known_is_set_and_the_rest_stays() {
        type Change = fn(&mut Modes);
        let nothing: Change = |_| {};
        let table: [(&[(u8, u32)], Change); 14] = [
            (&[], nothing),
            (&[(1, 3)], |m| m.characters[libc::VINTR] = 3),
            (&[(3, 255)], |m| m.characters[libc::VERASE] = 0),
            (&[(3, 0xffff_ff7f)], |m| m.characters[libc::VERASE] = 0),
            (&[(53, 0)], |m| m.local &= !libc::ECHO),
            (&[(53, 7)], nothing),
            (&[(50, 1), (36, 0)], |m| {
                m.local |= libc::ISIG;
                m.input &= !libc::ICRNL;
            }),
            (&[(90, 1)], |m| m.control = m.control & !libc::CSIZE | libc::CS7),
            (&[(90, 1), (91, 1)], nothing),
            (&[(90, 0), (91, 0)], nothing),
            (&[(129, 9600)], |m| m.control = m.control & !SPEED | libc::B9600),
            (&[(128, 115_200), (129, 12_345)], |m| {
                m.control |= libc::B115200 << 16
            }),
            (&[(15, 1), (99, 1), (127, 1)], nothing),
            (&[(0, 0), (53, 0)], nothing),
        ];
        for (pairs, change) in table {
            let mut wanted = PLAIN;
            change(&mut wanted);
            assert_eq!(PLAIN.with_encoded(&encoded(pairs)), wanted, "{pairs:?}");
        }
    }

    #[test]
    fn what_cannot_be_read_ends_it() {
        let echo_off = encoded(&[(53, 0)]);
        let mut wanted = PLAIN;
        wanted.local &= !libc::ECHO;
        for (head, reached) in [
            (vec(&[30, 0, 0, 0, 1]), true),
            (vec(&[160]), false),
            (vec(&[255, 0, 0]), false),
        ] {
            let modes = PLAIN.with_encoded(&[&head[..], &echo_off].concat());
            assert_eq!(modes.local == wanted.local, reached, "{head:?}");
        }
        // Cut anywhere, it reads what is whole.
        for len in 0..echo_off.len() {
            assert_eq!(PLAIN.with_encoded(&echo_off[..len]), PLAIN);
        }
    }

    #[test]
    fn what_is_written_is_what_is_read() {
        let mut other = PLAIN;
        other.characters[libc::VERASE] = 0;
        other.local &= !libc::ECHO;
        other.control = libc::CREAD | libc::CS7 | libc::B9600;
        for modes in [PLAIN, other] {
            let mut blank = Modes::NONE;
            (blank.control, blank.line) = (libc::CREAD, modes.line);
            // What has no opcode stays as it was: the characters that nobody sends.
            (blank.characters, blank.control) = ([1; 19], blank.control | libc::CS8);
            let read = blank.with_encoded(&modes.encoded());
            assert_eq!(
                (read.input, read.output, read.local, read.characters),
                (modes.input, modes.output, modes.local, modes.characters)
            );
            assert_eq!(
                read.control & (SPEED | libc::CSIZE),
                modes.control & (SPEED | libc::CSIZE)
            );
        }
    }

    fn vec(bytes: &[u8]) -> Vec<u8> {
        bytes.to_vec()
    }

    #[test]
    fn a_terminal_takes_them() {
        let (_ours, user, _) = crate::terminal::open().expect("a pseudo terminal");
        let old = crate::terminal::modes(user.raw()).expect("its modes");
        let new = old.with_encoded(&encoded(&[(53, 0), (3, 8), (129, 19_200)]));
        crate::terminal::set_modes(user.raw(), &new).expect("set");
        let got = crate::terminal::modes(user.raw()).expect("its modes");
        assert_eq!(
            (got.local, got.characters, got.control & SPEED),
            (new.local, new.characters, libc::B19200)
        );
        assert_ne!(old, got);
    }
}

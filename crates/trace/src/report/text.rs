//! Values of a call as strace prints them, by hand into a buffer: no formatting machinery. What stands before the call's
//! name and after its result is not of this file.

use crate::decode::{CallResult, Out, Set};
use fleetgate_calls::tables::signal;

/// The column that results stand in, where there is room.
pub const COLUMN: usize = 40;

/// Writes a call's arguments, from the opening parenthesis on, and its result.
#[derive(Debug)]
pub struct Text<'a> {
    into: &'a mut Vec<u8>,
    /// Where in `into` the line begins.
    line: usize,
    column: usize,
    /// Nothing stands before the next field, item, element or bit.
    first: bool,
    /// The comma before the next argument stands there already.
    comma: bool,
}

impl<'a> Text<'a> {
    /// Goes on in `into`, of which the current line begins at `line`; results stand in column `column`.
    pub fn new(into: &'a mut Vec<u8>, line: usize, column: usize) -> Text<'a> {
        Text {
            into,
            line,
            column,
            first: true,
            comma: false,
        }
    }

    /// The same, behind arguments and a comma.
    #[must_use]
    pub fn behind_comma(mut self, comma: bool) -> Text<'a> {
        self.comma = comma;
        self
    }

    fn put(&mut self, text: &[u8]) {
        self.into.extend_from_slice(text);
    }

    fn between(&mut self, separator: &[u8]) {
        if self.first {
            self.first = false;
        } else {
            self.put(separator);
        }
    }

    fn what(&mut self, what: Option<&[u8]>) {
        let Some(what) = what else {
            return;
        };
        let is_path = what.starts_with(b"/");
        let (what, gone) = match what.strip_suffix(b" (deleted)") {
            Some(path) if is_path => (path, true),
            _ => (what, false),
        };
        self.into.push(b'<');
        // Brackets within a path would look like its end; an arrow between a socket's addresses does not.
        escape(self.into, what, if is_path { b"<>" } else { b"" });
        self.into.push(b'>');
        if gone {
            self.put(b"(deleted)");
        }
    }

    fn family(&mut self, family: &str) {
        self.put(b" /* ");
        self.put(family.as_bytes());
        self.put(b" */");
    }
}

impl Out for Text<'_> {
    fn arguments(&mut self) {
        self.into.push(b'(');
    }

    fn argument(&mut self, index: usize, name: &'static str, shown: bool) {
        if index > 0 && !std::mem::take(&mut self.comma) {
            self.put(b", ");
        }
        if shown {
            self.put(name.as_bytes());
            self.into.push(b'=');
        }
    }

    fn open(&mut self) {
        self.into.push(b'{');
        self.first = true;
    }

    fn field(&mut self, name: &'static str) {
        self.between(b", ");
        self.put(name.as_bytes());
        self.into.push(b'=');
    }

    fn close(&mut self, more: bool) {
        if more {
            self.between(b", ");
            self.put(b"...");
        }
        self.into.push(b'}');
        self.first = false;
    }

    fn open_list(&mut self) {
        self.into.push(b'[');
        self.first = true;
    }

    fn item(&mut self) {
        self.between(b", ");
    }

    fn close_list(&mut self, more: bool) {
        if more {
            self.between(b", ");
            self.put(b"...");
        }
        self.into.push(b']');
        self.first = false;
    }

    fn cut_list(&mut self, at: u64) {
        self.between(b", ");
        self.put(b"... /* ");
        self.hex(at);
        self.put(b" */]");
        self.first = false;
    }

    fn open_set(&mut self, set: Set) {
        self.put(match set {
            Set::Of => b"[",
            Set::AllBut => b"~[",
        });
        self.first = true;
    }

    fn element(&mut self) {
        self.between(b" ");
    }

    fn close_set(&mut self, _set: Set) {
        self.into.push(b']');
        self.first = false;
    }

    fn open_change(&mut self) {
        self.into.push(b'[');
    }

    fn became(&mut self) {
        self.put(b" => ");
    }

    fn close_change(&mut self) {
        self.into.push(b']');
    }

    fn open_bare_change(&mut self) {}

    fn close_bare_change(&mut self) {}

    fn number(&mut self, value: i64) {
        if value < 0 {
            self.into.push(b'-');
        }
        decimal(self.into, value.unsigned_abs());
    }

    fn unsigned(&mut self, value: u64) {
        decimal(self.into, value);
    }

    fn hex(&mut self, value: u64) {
        if value == 0 {
            self.into.push(b'0');
        } else {
            self.put(b"0x");
            hexadecimal(self.into, value);
        }
    }

    /// As C's `%#03o`: three digits at least, with a 0 before them.
    fn octal(&mut self, value: u64) {
        self.into.push(b'0');
        digits::<8>(self.into, value, 2);
    }

    fn address(&mut self, value: u64) {
        if value == 0 {
            self.put(b"NULL");
        } else {
            self.hex(value);
        }
    }

    fn name(&mut self, name: &str) {
        self.put(name.as_bytes());
    }

    fn other(&mut self, value: u64, family: &'static str) {
        self.hex(value);
        self.family(family);
    }

    fn open_bits(&mut self) {
        self.first = true;
    }

    fn bit(&mut self, name: &str) {
        self.between(b"|");
        self.put(name.as_bytes());
    }

    fn bit_hex(&mut self, value: u64) {
        self.between(b"|");
        self.hex(value);
    }

    fn bit_octal(&mut self, value: u64) {
        self.between(b"|");
        self.octal(value);
    }

    fn bit_number(&mut self, value: u64) {
        self.between(b"|");
        decimal(self.into, value);
    }

    fn bit_other(&mut self, value: u64, family: &'static str) {
        self.between(b"|");
        self.hex(value);
        self.family(family);
    }

    fn close_bits(&mut self) {
        self.first = false;
    }

    fn bytes(&mut self, bytes: &[u8], more: bool) {
        self.into.push(b'"');
        escape(self.into, bytes, b"\"");
        self.into.push(b'"');
        if more {
            self.put(b"...");
        }
    }

    fn raw_bytes(&mut self, bytes: &[u8], more: bool) {
        self.into.push(b'"');
        for byte in bytes {
            self.put(b"\\x");
            hex_byte(self.into, *byte);
        }
        self.into.push(b'"');
        if more {
            self.put(b"...");
        }
    }

    fn abstract_name(&mut self, bytes: &[u8]) {
        self.into.push(b'@');
        self.bytes(bytes, false);
    }

    fn signal(&mut self, number: i32) {
        match signal::name(number) {
            Some(name) => self.put(name.trim_start_matches("SIG").as_bytes()),
            None => self.number(i64::from(number)),
        }
    }

    fn status(&mut self, status: u32) {
        let (low, high) = (status & 0x7f, status >> 8);
        let name = |this: &mut Self, number: u32| match signal::name(number.cast_signed()) {
            Some(name) => this.put(name.as_bytes()),
            None => decimal(this.into, u64::from(number)),
        };
        self.put(b"[{");
        if status == 0xffff {
            self.put(b"WIFCONTINUED(s)");
        } else if status & 0xff == 0x7f {
            self.put(b"WIFSTOPPED(s) && WSTOPSIG(s) == ");
            name(self, high & 0xff);
            // What ptrace puts there beside the signal.
            if high >> 8 != 0 {
                self.put(b"} | ");
                self.hex(u64::from(status & 0xffff_0000));
                self.into.push(b']');
                return;
            }
        } else if low == 0 {
            self.put(b"WIFEXITED(s) && WEXITSTATUS(s) == ");
            decimal(self.into, u64::from(high & 0xff));
        } else {
            self.put(b"WIFSIGNALED(s) && WTERMSIG(s) == ");
            name(self, low);
            if status & 0x80 != 0 {
                self.put(b" && WCOREDUMP(s)");
            }
        }
        self.put(b"}]");
    }

    fn mask(&mut self, value: u32) {
        // C's `%#08x`.
        if value != 0 {
            self.put(b"0x");
        }
        let least = if value == 0 { 8 } else { 6 };
        digits::<16>(self.into, value.into(), least);
    }

    fn kibi(&mut self, value: u64) {
        decimal(self.into, value);
        self.put(b"*1024");
    }

    fn descriptor(&mut self, fd: i32, what: Option<&[u8]>) {
        self.number(i64::from(fd));
        self.what(what);
    }

    fn here(&mut self, what: Option<&[u8]>) {
        self.put(b"AT_FDCWD");
        self.what(what);
    }

    fn device(&mut self, major: u32, minor: u32) {
        self.put(b"makedev(");
        self.hex(u64::from(major));
        self.put(b", ");
        self.hex(u64::from(minor));
        self.into.push(b')');
    }

    fn wrap(&mut self, function: &'static str) {
        self.put(function.as_bytes());
        self.into.push(b'(');
    }

    fn unwrap(&mut self) {
        self.into.push(b')');
    }

    fn inet6(&mut self, field: &'static str, text: &[u8]) {
        self.between(b", ");
        self.put(b"inet_pton(AF_INET6, \"");
        self.put(text);
        self.put(b"\", &");
        self.put(field.as_bytes());
        self.into.push(b')');
    }

    fn counted(&mut self, at: u64, count: Option<usize>, what: &'static str) {
        self.hex(at);
        self.put(b" /* ");
        match count {
            Some(count) => {
                decimal(self.into, count as u64);
                self.into.push(b' ');
                self.put(what.as_bytes());
                if count == 1 && what == "vars" {
                    self.into.pop();
                }
            }
            None => {
                self.put(what.as_bytes());
                self.put(b", unterminated");
            }
        }
        self.put(b" */");
    }

    fn comment(&mut self, text: &[u8]) {
        self.put(b" /* ");
        self.put(text);
        self.put(b" */");
    }

    fn unknown(&mut self) {
        self.into.push(b'?');
    }

    fn returned(&mut self, what: CallResult) {
        self.into.push(b')');
        let length = self.into.len() - self.line;
        let spaces = self.column.saturating_sub(length).max(1);
        self.into.resize(self.into.len() + spaces, b' ');
        self.put(b"= ");
        match what {
            CallResult::Number(value) => self.number(value),
            CallResult::Hex(value) => self.hex(value),
            CallResult::Octal(value) => self.octal(value),
            CallResult::Descriptor(fd, what) => self.descriptor(fd, what),
            CallResult::Error(number, name, text) => {
                self.put(b"-1 ");
                if name.is_empty() {
                    self.put(b"ERRNO_");
                    self.number(i64::from(number));
                    self.put(b" (Unknown error ");
                    self.number(i64::from(number));
                } else {
                    self.put(name.as_bytes());
                    self.put(b" (");
                    self.put(text.as_bytes());
                }
                self.into.push(b')');
            }
            CallResult::Again(name, text) => {
                self.put(b"? ");
                self.put(name.as_bytes());
                self.put(b" (");
                self.put(text.as_bytes());
                self.into.push(b')');
            }
            CallResult::Unknown => self.into.push(b'?'),
        }
    }

    fn open_parts(&mut self, function: &'static str) {
        self.put(function.as_bytes());
        self.into.push(b'(');
        self.first = true;
    }

    fn close_parts(&mut self) {
        self.into.push(b')');
        self.first = false;
    }

    fn timeout(&mut self) {
        self.put(b"Timeout");
    }

    fn open_note(&mut self) {
        self.put(b" (");
        self.first = true;
    }

    fn note(&mut self, name: &'static str, shown: bool) {
        self.between(b", ");
        if shown {
            self.put(name.as_bytes());
            self.into.push(b' ');
        }
    }

    fn close_note(&mut self) {
        self.into.push(b')');
    }
}

/// Writes a number, and zeros before it up to `least` digits.
pub(super) fn digits<const RADIX: u64>(into: &mut Vec<u8>, value: u64, least: usize) {
    let mut digits = [0; 24];
    let mut at = digits.len();
    let mut left = value;
    while left > 0 || at > digits.len() - least {
        at -= 1;
        digits[at] = b"0123456789abcdef"[usize::try_from(left % RADIX).unwrap_or(0)];
        left /= RADIX;
    }
    into.extend_from_slice(&digits[at..]);
}

/// Writes a number.
pub fn decimal(into: &mut Vec<u8>, value: u64) {
    digits::<10>(into, value, 1);
}

/// Writes a number in hexadecimal, without anything before it.
pub fn hexadecimal(into: &mut Vec<u8>, value: u64) {
    digits::<16>(into, value, 1);
}

/// Writes a byte as two hexadecimal digits.
pub(super) fn hex_byte(into: &mut Vec<u8>, byte: u8) {
    digits::<16>(into, byte.into(), 2);
}

/// Writes bytes as C writes them, with `also` escaped beside what cannot be printed.
fn escape(into: &mut Vec<u8>, bytes: &[u8], also: &[u8]) {
    let mut index = 0;
    while let Some(rest) = bytes.get(index..).filter(|rest| !rest.is_empty()) {
        let plain = rest
            .iter()
            .position(|byte| !(b' '..=b'~').contains(byte) || *byte == b'\\' || also.contains(byte));
        let (plain, rest) = rest.split_at(plain.unwrap_or(rest.len()));
        into.extend_from_slice(plain);
        index += plain.len() + 1;
        let Some((byte, after)) = rest.split_first() else {
            break;
        };
        match *byte {
            b'\n' => into.extend_from_slice(b"\\n"),
            b'\t' => into.extend_from_slice(b"\\t"),
            b'\r' => into.extend_from_slice(b"\\r"),
            0x0b => into.extend_from_slice(b"\\v"),
            0x0c => into.extend_from_slice(b"\\f"),
            b'\\' => into.extend_from_slice(b"\\\\"),
            b'"' if also == b"\"" => into.extend_from_slice(b"\\\""),
            byte => {
                // As short as it can be, unless a digit follows.
                let digit = after.first().is_some_and(|next| (b'0'..=b'7').contains(next));
                into.push(b'\\');
                if digit || byte >= 0o100 {
                    into.push(b'0' + (byte >> 6));
                }
                if digit || byte >= 0o10 {
                    into.push(b'0' + (byte >> 3 & 7));
                }
                into.push(b'0' + (byte & 7));
            }
        }
    }
}

//! Values of a call as JSON, by hand into a buffer: `"arguments":{…},"result":…`, two members of an object that somebody
//! else opens and closes. Every byte that a traced program can choose is escaped or shown as hexadecimal.
//!
//! How values look: numbers are numbers; addresses, masks and modes are strings as people write them (`"0x7f00"`,
//! `"0644"`); names are strings, bits are lists of them. Bytes are a string where they are UTF-8 and whole, else an object
//! `{"text": …}` or `{"hex": …}`, with `"more": true` where not all of them are shown.

use super::text::{decimal, digits, hex_byte, hexadecimal};
use crate::decode::{CallResult, Out, Set};
use fleetgate_calls::tables::signal;

/// Writes a call's arguments and its result.
#[derive(Debug)]
pub struct Json<'a> {
    into: &'a mut Vec<u8>,
    /// Nothing stands before the next member or item.
    first: bool,
}

impl<'a> Json<'a> {
    /// Goes on in `into`.
    pub fn new(into: &'a mut Vec<u8>) -> Json<'a> {
        Json { into, first: true }
    }

    fn put(&mut self, text: &[u8]) {
        self.into.extend_from_slice(text);
    }

    fn between(&mut self) {
        if self.first {
            self.first = false;
        } else {
            self.into.push(b',');
        }
    }

    fn member(&mut self, name: &str) {
        string(self.into, name);
        self.into.push(b':');
    }

    fn some_more(&mut self, more: bool) {
        if more {
            self.put(b",\"more\":true");
        }
        self.into.push(b'}');
    }
}

impl Out for Json<'_> {
    fn arguments(&mut self) {
        self.put(b"\"arguments\":{");
    }

    fn argument(&mut self, index: usize, name: &'static str, _shown: bool) {
        if index > 0 {
            self.into.push(b',');
        }
        self.member(name);
    }

    fn open(&mut self) {
        self.into.push(b'{');
        self.first = true;
    }

    fn field(&mut self, name: &'static str) {
        self.between();
        self.member(name);
    }

    fn close(&mut self, more: bool) {
        if more {
            self.between();
            self.put(b"\"more\":true");
        }
        self.into.push(b'}');
        self.first = false;
    }

    fn open_list(&mut self) {
        self.into.push(b'[');
        self.first = true;
    }

    fn item(&mut self) {
        self.between();
    }

    fn close_list(&mut self, more: bool) {
        if more {
            self.between();
            self.put(b"{\"more\":true}");
        }
        self.into.push(b']');
        self.first = false;
    }

    fn cut_list(&mut self, at: u64) {
        self.between();
        self.put(b"{\"unreadable\":");
        self.hex(at);
        self.put(b"}]");
        self.first = false;
    }

    fn open_set(&mut self, set: Set) {
        if set == Set::AllBut {
            self.put(b"{\"not\":");
        }
        self.open_list();
    }

    fn element(&mut self) {
        self.between();
    }

    fn close_set(&mut self, set: Set) {
        self.close_list(false);
        if set == Set::AllBut {
            self.into.push(b'}');
        }
    }

    fn open_change(&mut self) {
        self.put(b"{\"before\":");
    }

    fn became(&mut self) {
        self.put(b",\"after\":");
    }

    fn close_change(&mut self) {
        self.into.push(b'}');
    }

    fn open_bare_change(&mut self) {
        self.open_change();
    }

    fn close_bare_change(&mut self) {
        self.close_change();
    }

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
        self.put(b"\"0x");
        hexadecimal(self.into, value);
        self.into.push(b'"');
    }

    fn octal(&mut self, value: u64) {
        self.put(b"\"0");
        digits::<8>(self.into, value, 1);
        self.into.push(b'"');
    }

    fn address(&mut self, value: u64) {
        if value == 0 {
            self.put(b"null");
        } else {
            self.hex(value);
        }
    }

    fn name(&mut self, name: &str) {
        string(self.into, name);
    }

    fn other(&mut self, value: u64, _family: &'static str) {
        decimal(self.into, value);
    }

    fn open_bits(&mut self) {
        self.open_list();
    }

    fn bit(&mut self, name: &str) {
        self.between();
        string(self.into, name);
    }

    fn bit_hex(&mut self, value: u64) {
        self.between();
        self.hex(value);
    }

    fn bit_octal(&mut self, value: u64) {
        self.between();
        self.octal(value);
    }

    fn bit_number(&mut self, value: u64) {
        // Nothing is no element.
        if value != 0 {
            self.between();
            decimal(self.into, value);
        }
    }

    fn bit_other(&mut self, value: u64, _family: &'static str) {
        self.between();
        self.hex(value);
    }

    fn close_bits(&mut self) {
        self.close_list(false);
    }

    fn bytes(&mut self, bytes: &[u8], more: bool) {
        let (text, whole) = match std::str::from_utf8(bytes) {
            Ok(text) => (Some(text), true),
            // The limit may have cut a character in two.
            Err(error) if more && error.error_len().is_none() => {
                let valid = bytes.get(..error.valid_up_to()).unwrap_or_default();
                (std::str::from_utf8(valid).ok(), true)
            }
            Err(_) => (None, false),
        };
        if let (Some(text), true, false) = (text, whole, more) {
            return string(self.into, text);
        }
        let Some(text) = text else {
            return self.raw_bytes(bytes, more);
        };
        self.put(b"{\"text\":");
        string(self.into, text);
        self.some_more(more);
    }

    fn raw_bytes(&mut self, bytes: &[u8], more: bool) {
        self.put(b"{\"hex\":\"");
        for byte in bytes {
            hex_byte(self.into, *byte);
        }
        self.into.push(b'"');
        self.some_more(more);
    }

    fn abstract_name(&mut self, bytes: &[u8]) {
        self.put(b"{\"abstract\":");
        self.bytes(bytes, false);
        self.into.push(b'}');
    }

    fn signal(&mut self, number: i32) {
        match signal::name(number) {
            Some(name) => string(self.into, name),
            None => self.number(i64::from(number)),
        }
    }

    fn status(&mut self, status: u32) {
        let (low, high) = (status & 0x7f, status >> 8 & 0xff);
        if status == 0xffff {
            self.put(b"{\"continued\":true");
        } else if status & 0xff == 0x7f {
            self.put(b"{\"stopped\":");
            self.signal(high.cast_signed());
        } else if low == 0 {
            self.put(b"{\"exited\":");
            decimal(self.into, u64::from(high));
        } else {
            self.put(b"{\"killed\":");
            self.signal(low.cast_signed());
            if status & 0x80 != 0 {
                self.put(b",\"core\":true");
            }
        }
        self.into.push(b'}');
    }

    fn mask(&mut self, value: u32) {
        self.hex(u64::from(value));
    }

    fn kibi(&mut self, value: u64) {
        decimal(self.into, value.saturating_mul(1024));
    }

    fn descriptor(&mut self, fd: i32, what: Option<&[u8]>) {
        let Some(what) = what else {
            return self.number(i64::from(fd));
        };
        self.put(b"{\"fd\":");
        self.number(i64::from(fd));
        self.put(b",\"path\":");
        self.bytes(what, false);
        self.into.push(b'}');
    }

    fn here(&mut self, what: Option<&[u8]>) {
        let Some(what) = what else {
            return self.put(b"\"AT_FDCWD\"");
        };
        self.put(b"{\"fd\":\"AT_FDCWD\",\"path\":");
        self.bytes(what, false);
        self.into.push(b'}');
    }

    fn device(&mut self, major: u32, minor: u32) {
        self.put(b"{\"major\":");
        decimal(self.into, u64::from(major));
        self.put(b",\"minor\":");
        decimal(self.into, u64::from(minor));
        self.into.push(b'}');
    }

    fn wrap(&mut self, _function: &'static str) {}

    fn unwrap(&mut self) {}

    fn inet6(&mut self, field: &'static str, text: &[u8]) {
        self.field(field);
        self.bytes(text, false);
    }

    fn counted(&mut self, at: u64, count: Option<usize>, what: &'static str) {
        self.put(b"{\"address\":");
        self.hex(at);
        if let Some(count) = count {
            self.into.push(b',');
            self.member(what);
            decimal(self.into, count as u64);
        }
        self.into.push(b'}');
    }

    fn comment(&mut self, _text: &[u8]) {}

    fn unknown(&mut self) {
        self.put(b"null");
    }

    fn returned(&mut self, what: CallResult) {
        self.put(b"},\"result\":");
        match what {
            CallResult::Number(value) => self.number(value),
            CallResult::Hex(value) => self.hex(value),
            CallResult::Octal(value) => self.octal(value),
            CallResult::Descriptor(fd, what) => self.descriptor(fd, what),
            CallResult::Error(number, name, text) => {
                self.put(b"-1,\"errno\":");
                self.number(i64::from(number));
                self.put(b",\"error\":");
                string(self.into, name);
                self.put(b",\"text\":");
                string(self.into, text);
            }
            CallResult::Again(name, text) => {
                self.put(b"null,\"error\":");
                string(self.into, name);
                self.put(b",\"text\":");
                string(self.into, text);
            }
            CallResult::Unknown => self.put(b"null"),
        }
    }

    fn open_parts(&mut self, _function: &'static str) {
        self.open_list();
    }

    fn close_parts(&mut self) {
        self.close_list(false);
    }

    fn timeout(&mut self) {
        self.put(b"true");
    }

    fn open_note(&mut self) {
        self.put(b",\"note\":{");
        self.first = true;
    }

    fn note(&mut self, name: &'static str, _shown: bool) {
        self.between();
        self.member(name);
    }

    fn close_note(&mut self) {
        self.into.push(b'}');
        self.first = false;
    }
}

/// Writes a JSON string.
pub fn string(into: &mut Vec<u8>, text: &str) {
    into.push(b'"');
    for byte in text.bytes() {
        match byte {
            b'"' => into.extend_from_slice(b"\\\""),
            b'\\' => into.extend_from_slice(b"\\\\"),
            b'\n' => into.extend_from_slice(b"\\n"),
            b'\t' => into.extend_from_slice(b"\\t"),
            b'\r' => into.extend_from_slice(b"\\r"),
            0..=0x1f | 0x7f => {
                into.extend_from_slice(b"\\u00");
                hex_byte(into, byte);
            }
            byte => into.push(byte),
        }
    }
    into.push(b'"');
}

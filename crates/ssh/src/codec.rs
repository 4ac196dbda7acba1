//! The data types of RFC 4251 §5: read from untrusted bytes, written to a growing buffer. It allocates nothing when
//! reading, and every length is checked against what is there.

use std::fmt;

/// A message that cannot be read. Says which field, never what was in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Malformed {
    /// The bytes end inside this field.
    Short(&'static str),
    /// This field holds a value that it may not.
    Invalid(&'static str),
    /// Bytes are left over after the last field.
    Trailing,
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Malformed::Short(what) => write!(f, "it ends inside its {what}"),
            Malformed::Invalid(what) => write!(f, "its {what} is invalid"),
            Malformed::Trailing => f.write_str("it goes on after its last field"),
        }
    }
}

impl std::error::Error for Malformed {}

/// Reads fields off the front of a message.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// Of all of `bytes`.
    pub fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader { rest: bytes }
    }

    /// What was not read yet.
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// The next `n` bytes.
    pub fn bytes(&mut self, n: usize, what: &'static str) -> Result<&'a [u8], Malformed> {
        let (taken, rest) = self.rest.split_at_checked(n).ok_or(Malformed::Short(what))?;
        self.rest = rest;
        Ok(taken)
    }

    /// A byte.
    pub fn u8(&mut self, what: &'static str) -> Result<u8, Malformed> {
        Ok(self.bytes(1, what)?[0])
    }

    /// A boolean: everything but 0 is true (RFC 4251 §5).
    pub fn bool(&mut self, what: &'static str) -> Result<bool, Malformed> {
        Ok(self.u8(what)? != 0)
    }

    /// A uint32.
    pub fn u32(&mut self, what: &'static str) -> Result<u32, Malformed> {
        let b = self.bytes(4, what)?;
        Ok(u32::from_be_bytes([b[0], b[1], b[2], b[3]]))
    }

    /// A uint64.
    pub fn u64(&mut self, what: &'static str) -> Result<u64, Malformed> {
        let high = self.u32(what)?;
        Ok(u64::from(high) << 32 | u64::from(self.u32(what)?))
    }

    /// A string of any bytes.
    pub fn string(&mut self, what: &'static str) -> Result<&'a [u8], Malformed> {
        let len = self.u32(what)?;
        self.bytes(usize::try_from(len).map_err(|_| Malformed::Short(what))?, what)
    }

    /// A string that has to be UTF-8: names of methods, services, algorithms.
    pub fn text(&mut self, what: &'static str) -> Result<&'a str, Malformed> {
        std::str::from_utf8(self.string(what)?).map_err(|_| Malformed::Invalid(what))
    }

    /// A positive mpint's magnitude, without leading zeros. Negative ones have no place in SSH.
    pub fn mpint(&mut self, what: &'static str) -> Result<&'a [u8], Malformed> {
        let mut bytes = self.string(what)?;
        if bytes.first().is_some_and(|b| b & 0x80 != 0) {
            return Err(Malformed::Invalid(what));
        }
        while let [0, rest @ ..] = bytes {
            bytes = rest;
        }
        Ok(bytes)
    }

    /// That nothing is left.
    pub fn end(self) -> Result<(), Malformed> {
        if self.rest.is_empty() {
            Ok(())
        } else {
            Err(Malformed::Trailing)
        }
    }
}

/// Reads a whole message: its number, these fields, and nothing behind them.
pub(crate) fn read_message<'a, T>(
    payload: &'a [u8],
    fields: impl FnOnce(&mut Reader<'a>) -> Result<T, Malformed>,
) -> Result<T, Malformed> {
    let mut r = Reader::new(payload);
    r.u8("message number")?;
    let fields = fields(&mut r)?;
    r.end()?;
    Ok(fields)
}

/// A length or a number as SSH writes it. Nothing that we write comes near 4 GB.
pub(crate) fn number(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

/// Writes fields at the end of a buffer.
pub trait Write {
    /// Bytes as they are.
    fn put(&mut self, bytes: &[u8]);

    /// A byte.
    fn put_u8(&mut self, value: u8) {
        self.put(&[value]);
    }

    /// A boolean.
    fn put_bool(&mut self, value: bool) {
        self.put_u8(value.into());
    }

    /// A uint32.
    fn put_u32(&mut self, value: u32) {
        self.put(&value.to_be_bytes());
    }

    /// A uint64.
    fn put_u64(&mut self, value: u64) {
        self.put(&value.to_be_bytes());
    }

    /// A string. Nothing that we write comes near 4 GB.
    fn put_string(&mut self, bytes: impl AsRef<[u8]>)
    where
        Self: Sized,
    {
        let bytes = bytes.as_ref();
        self.put_u32(number(bytes.len()));
        self.put(bytes);
    }

    /// An mpint of a positive magnitude (RFC 4251 §5: shortest form, a zero byte before a set top bit).
    fn put_mpint(&mut self, magnitude: &[u8]) {
        let mut bytes = magnitude;
        while let [0, rest @ ..] = bytes {
            bytes = rest;
        }
        let sign = bytes.first().is_some_and(|b| b & 0x80 != 0);
        self.put_u32(number(bytes.len() + usize::from(sign)));
        if sign {
            self.put_u8(0);
        }
        self.put(bytes);
    }

    /// A name-list.
    fn put_names(&mut self, names: &[&str]) {
        let len: usize = names.iter().map(|n| n.len()).sum::<usize>() + names.len().saturating_sub(1);
        self.put_u32(number(len));
        for (i, name) in names.iter().enumerate() {
            if i > 0 {
                self.put_u8(b',');
            }
            self.put(name.as_bytes());
        }
    }
}

impl Write for Vec<u8> {
    fn put(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_read_as_they_were_written() {
        let mut bytes = Vec::new();
        bytes.put_u8(7);
        bytes.put_bool(true);
        bytes.put_u64(1 << 40);
        bytes.put_string("abc");
        bytes.put_mpint(&[0, 0, 0x80, 1]);
        bytes.put_names(&["a", "bc"]);
        let mut r = Reader::new(&bytes);
        assert_eq!(r.u8("x"), Ok(7));
        assert_eq!(r.bool("x"), Ok(true));
        assert_eq!(r.u64("x"), Ok(1 << 40));
        assert_eq!(r.text("x"), Ok("abc"));
        assert_eq!(r.mpint("x"), Ok(&[0x80, 1][..]));
        assert_eq!(r.text("x"), Ok("a,bc"));
        assert_eq!(r.end(), Ok(()));
    }

    #[test]
    fn a_length_beyond_the_end_is_short_and_a_rest_is_trailing() {
        let mut r = Reader::new(&[0xff, 0xff, 0xff, 0xff, 1]);
        assert_eq!(r.string("key"), Err(Malformed::Short("key")));
        assert_eq!(Reader::new(&[1]).end(), Err(Malformed::Trailing));
        assert_eq!(
            Reader::new(&[0, 0, 0, 1, 0x80]).mpint("n"),
            Err(Malformed::Invalid("n"))
        );
        assert_eq!(
            Reader::new(&[0, 0, 0, 1, 0xff]).text("n"),
            Err(Malformed::Invalid("n"))
        );
    }
}

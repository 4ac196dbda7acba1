//! Keys, prefixes and values: bytes within their bounds, checked once. What a key means is the caller's business.

use crate::{Error, MAX_KEY, MAX_VALUE};
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use zeroize::Zeroizing;

/// A key, such as `/nodes/web1`: 1 to [`MAX_KEY`] bytes, compared byte by byte. Cheap to clone.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(Arc<[u8]>);

/// What keys begin with, such as `/nodes/`; the empty one is every key's.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Prefix(Arc<[u8]>);

/// A value of at most [`MAX_VALUE`] bytes. It may be a secret: it is wiped when the last clone goes, and `Debug` shows
/// its length alone. Cheap to clone.
#[derive(Clone, PartialEq, Eq)]
pub struct Value(Arc<Zeroizing<Vec<u8>>>);

impl Key {
    /// These bytes as a key.
    pub fn new(bytes: impl AsRef<[u8]>) -> Result<Key, Error> {
        let bytes = bytes.as_ref();
        match bytes.len() {
            1..=MAX_KEY => Ok(Key(bytes.into())),
            len => Err(Error::KeyLength(len)),
        }
    }

    /// The bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl Prefix {
    /// These bytes as a prefix.
    pub fn new(bytes: impl AsRef<[u8]>) -> Result<Prefix, Error> {
        let bytes = bytes.as_ref();
        match bytes.len() {
            0..=MAX_KEY => Ok(Prefix(bytes.into())),
            len => Err(Error::KeyLength(len)),
        }
    }

    /// The prefix that every key has.
    pub fn everything() -> Prefix {
        Prefix(Arc::from([]))
    }

    /// The bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The key of `name` under this prefix.
    pub fn key(&self, name: impl AsRef<[u8]>) -> Result<Key, Error> {
        Key::new([self.as_bytes(), name.as_ref()].concat())
    }

    /// Whether `key` begins with it.
    pub fn holds(&self, key: &Key) -> bool {
        key.as_bytes().starts_with(self.as_bytes())
    }

    /// What follows it in `key`; `None` when `key` does not begin with it.
    pub fn name<'a>(&self, key: &'a Key) -> Option<&'a [u8]> {
        key.as_bytes().strip_prefix(self.as_bytes())
    }

    /// The first bytes after every key with this prefix; `None` when there are none (the empty prefix, and 0xff only).
    pub fn end(&self) -> Option<Vec<u8>> {
        let mut end = self.0.to_vec();
        while let Some(last) = end.pop() {
            if last < u8::MAX {
                end.push(last + 1);
                return Some(end);
            }
        }
        None
    }
}

impl Value {
    /// These bytes as a value.
    pub fn new(bytes: impl Into<Vec<u8>>) -> Result<Value, Error> {
        let bytes = Zeroizing::new(bytes.into());
        if bytes.len() > MAX_VALUE {
            return Err(Error::ValueLength(bytes.len()));
        }
        Ok(Value(Arc::new(bytes)))
    }

    /// The bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl Deref for Value {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.escape_ascii())
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({self})")
    }
}

impl fmt::Debug for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Prefix({})", self.0.escape_ascii())
    }
}

impl fmt::Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Value({} bytes)", self.0.len())
    }
}

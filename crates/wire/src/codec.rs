//! The encoding: little-endian numbers, length-prefixed strings, counted lists, tagged choices.

use crate::{MAX_ITEMS, MAX_STRING, VERSION};
use alloc::ffi::CString;
use alloc::vec::Vec;
use core::fmt;

/// Why bytes are not a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// It ends in the middle of a field.
    Truncated,
    /// Bytes are left after the last field.
    Trailing,
    /// It does not start with our mark.
    NotAFrame,
    /// It is of another build.
    Version(u8),
    /// A tag that this build does not know.
    Unknown {
        /// Of what.
        what: &'static str,
        /// The tag.
        tag: u32,
    },
    /// A string or list beyond its bound.
    TooLong {
        /// What it is.
        what: &'static str,
        /// The length it claims.
        len: usize,
    },
    /// A zero byte in a string that goes to the kernel.
    Nul,
    /// A value outside its range.
    Invalid(&'static str),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Truncated => f.write_str("the frame ends in the middle of a field"),
            Error::Trailing => f.write_str("the frame has bytes after its last field"),
            Error::NotAFrame => f.write_str("the message is not one of our frames"),
            Error::Version(v) => write!(f, "the frame has format {v}, this build speaks {VERSION}"),
            Error::Unknown { what, tag } => write!(f, "the frame has an unknown {what}: {tag}"),
            Error::TooLong { what, len } => write!(f, "the frame's {what} is too long: {len}"),
            Error::Nul => f.write_str("the frame has a zero byte inside a string"),
            Error::Invalid(what) => write!(f, "the frame's {what} is out of range"),
        }
    }
}

impl core::error::Error for Error {}

/// Bytes being written.
#[derive(Default)]
pub struct Writer(Vec<u8>);

/// Bytes being read.
pub struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    /// Reads from `bytes`.
    pub fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader(bytes)
    }
    /// The next `n` bytes.
    pub fn take(&mut self, n: usize) -> Result<&'a [u8], Error> {
        let (head, tail) = self.0.split_at_checked(n).ok_or(Error::Truncated)?;
        self.0 = tail;
        Ok(head)
    }
    /// A length no larger than `max`.
    pub fn len(&mut self, what: &'static str, max: usize) -> Result<usize, Error> {
        let len = u32::decode(self)? as usize;
        if len > max {
            Err(Error::TooLong { what, len })
        } else {
            Ok(len)
        }
    }
    /// How many bytes are left.
    pub fn remaining(&self) -> usize {
        self.0.len()
    }
}

impl Writer {
    /// Appends bytes as they are.
    pub fn put(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }
}

/// A value that can be written.
pub trait Encode {
    /// Appends it.
    fn encode(&self, w: &mut Writer);
}

/// A value that can be read.
pub trait Decode: Sized {
    /// Takes it from the front.
    fn decode(r: &mut Reader<'_>) -> Result<Self, Error>;
}

/// A whole frame of `value`.
pub fn encode<T: Encode>(value: &T) -> Vec<u8> {
    encode_in(Vec::with_capacity(512), value)
}

/// A whole frame of `value` in `room`, which is empty, and is not moved if it is large enough: secrets leave no copies
/// behind.
pub fn encode_in<T: Encode>(room: Vec<u8>, value: &T) -> Vec<u8> {
    let mut w = Writer(room);
    w.put(&[b'f', b'g', VERSION]);
    value.encode(&mut w);
    w.0
}

/// The value of a whole frame.
pub fn decode<T: Decode>(frame: &[u8]) -> Result<T, Error> {
    let mut r = Reader(frame);
    match r.take(3)? {
        [b'f', b'g', VERSION] => {}
        [b'f', b'g', version] => return Err(Error::Version(*version)),
        _ => return Err(Error::NotAFrame),
    }
    let value = T::decode(&mut r)?;
    if r.remaining() == 0 {
        Ok(value)
    } else {
        Err(Error::Trailing)
    }
}

macro_rules! numbers {
    ($($t:ty)*) => {$(
        impl Encode for $t {
            fn encode(&self, w: &mut Writer) { w.put(&self.to_le_bytes()); }
        }
        impl Decode for $t {
            fn decode(r: &mut Reader<'_>) -> Result<Self, Error> {
                let bytes = r.take(size_of::<$t>())?;
                Ok(<$t>::from_le_bytes(bytes.try_into().expect("as many as asked for")))
            }
        }
    )*};
}
numbers!(u8 u16 u32 u64 i32 i64);

impl Encode for bool {
    fn encode(&self, w: &mut Writer) {
        (*self as u8).encode(w);
    }
}
impl Decode for bool {
    fn decode(r: &mut Reader<'_>) -> Result<Self, Error> {
        match u8::decode(r)? {
            0 => Ok(false),
            1 => Ok(true),
            tag => Err(Error::Unknown {
                what: "truth value",
                tag: tag.into(),
            }),
        }
    }
}

/// A length as a frame has it.
#[expect(
    clippy::cast_possible_truncation,
    reason = "the reader's bounds are far below 4 GB, and a longer frame is not sent"
)]
const fn length(len: usize) -> u32 {
    len as u32
}

/// Bytes for which zero is an ordinary value.
impl Encode for Vec<u8> {
    fn encode(&self, w: &mut Writer) {
        length(self.len()).encode(w);
        w.put(self);
    }
}
impl Decode for Vec<u8> {
    fn decode(r: &mut Reader<'_>) -> Result<Self, Error> {
        let len = r.len("byte string", crate::MAX_ORDER)?;
        Ok(r.take(len)?.to_vec())
    }
}

impl Encode for CString {
    fn encode(&self, w: &mut Writer) {
        length(self.as_bytes().len()).encode(w);
        w.put(self.as_bytes());
    }
}
impl Decode for CString {
    fn decode(r: &mut Reader<'_>) -> Result<Self, Error> {
        let len = r.len("string", MAX_STRING)?;
        CString::new(r.take(len)?).map_err(|_| Error::Nul)
    }
}

impl<T: Encode> Encode for Option<T> {
    fn encode(&self, w: &mut Writer) {
        self.is_some().encode(w);
        if let Some(value) = self {
            value.encode(w);
        }
    }
}
impl<T: Decode> Decode for Option<T> {
    fn decode(r: &mut Reader<'_>) -> Result<Self, Error> {
        Ok(if bool::decode(r)? {
            Some(T::decode(r)?)
        } else {
            None
        })
    }
}

/// A list; its own trait bound keeps it apart from byte strings.
pub trait Item: Encode + Decode {}

impl<T: Item> Encode for Vec<T> {
    fn encode(&self, w: &mut Writer) {
        length(self.len()).encode(w);
        for item in self {
            item.encode(w);
        }
    }
}
impl<T: Item> Decode for Vec<T> {
    fn decode(r: &mut Reader<'_>) -> Result<Self, Error> {
        let len = r.len("list", MAX_ITEMS)?;
        // Every item takes a byte or more: a count beyond what is left is a lie, told before memory is spent.
        if len > r.remaining() {
            return Err(Error::Truncated);
        }
        let mut items = Vec::with_capacity(len.min(256));
        for _ in 0..len {
            items.push(T::decode(r)?);
        }
        Ok(items)
    }
}
impl Item for CString {}
impl Item for u32 {}
impl<const N: usize> Item for [u8; N] {}

impl<const N: usize> Encode for [u8; N] {
    fn encode(&self, w: &mut Writer) {
        w.put(self);
    }
}
impl<const N: usize> Decode for [u8; N] {
    fn decode(r: &mut Reader<'_>) -> Result<Self, Error> {
        Ok(r.take(N)?.try_into().expect("as many as asked for"))
    }
}

/// A record: its fields in order, each documented where it is declared.
#[macro_export]
macro_rules! record {
    ($(#[$meta:meta])* pub struct $name:ident { $($(#[$fmeta:meta])* pub $field:ident: $type:ty,)* }) => {
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub struct $name { $($(#[$fmeta])* pub $field: $type,)* }
        impl $crate::Encode for $name {
            fn encode(&self, w: &mut $crate::Writer) { $($crate::Encode::encode(&self.$field, w);)* let _ = w; }
        }
        impl $crate::Decode for $name {
            fn decode(r: &mut $crate::Reader<'_>) -> Result<Self, $crate::Error> {
                let _ = &r;
                Ok($name { $($field: $crate::Decode::decode(r)?,)* })
            }
        }
        impl $crate::codec::Item for $name {}
    };
}

/// A choice: one byte of tag, then the fields of that variant.
#[macro_export]
macro_rules! choice {
    ($(#[$meta:meta])* pub enum $name:ident($what:literal) {
        $($(#[$vmeta:meta])* $tag:literal => $variant:ident $({ $($(#[$fmeta:meta])* $field:ident: $type:ty),* $(,)? })?,)*
    }) => {
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq, Eq)]
        // A variant's own line says what its fields are.
        #[allow(missing_docs)]
        pub enum $name { $($(#[$vmeta])* $variant $({ $($(#[$fmeta])* $field: $type),* })?,)* }
        impl $crate::Encode for $name {
            fn encode(&self, w: &mut $crate::Writer) {
                match self {
                    $($name::$variant $({ $($field),* })? => {
                        w.put(&[$tag]);
                        $($($crate::Encode::encode($field, w);)*)?
                    })*
                }
            }
        }
        impl $crate::Decode for $name {
            fn decode(r: &mut $crate::Reader<'_>) -> Result<Self, $crate::Error> {
                match <u8 as $crate::Decode>::decode(r)? {
                    $($tag => Ok($name::$variant $({ $($field: $crate::Decode::decode(r)?),* })?),)*
                    tag => Err($crate::Error::Unknown { what: $what, tag: tag.into() }),
                }
            }
        }
        impl $crate::codec::Item for $name {}
    };
}

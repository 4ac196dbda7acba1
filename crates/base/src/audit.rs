//! Audit lines: what an event is called, which fields it has, and how both become one JSON object. Node, auth and proxy
//! describe their events here or with the macros of this module; docs/audit.md and docs/proxy.md explain each field, and
//! a test of `fleetgate` holds those tables to the descriptions. It writes to no file.
//!
//! An event is declared once, with [`events!`](crate::events): a variant, the event's name, and the fields in the order
//! in which they stand in the line. A field's type says how it is written, see [`Field`].

use fleetgate_sys::clock::{self, Time};
use std::borrow::Cow;
use std::ffi::CString;
use std::net::SocketAddr;
use std::time::Duration;

/// The most bytes of one text of an event (a command, a path, a reason); the rest is cut, and `…` says so.
pub const MAX_TEXT: usize = 4096;

/// An event, and the fields that its line may have beside `time` and `event`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Description {
    /// Its name: `session_started`.
    pub name: &'static str,
    /// Each declared field: its own name, or, where it stands for several, theirs.
    pub declared: &'static [(&'static str, &'static [&'static str])],
}

impl Description {
    /// The names of all fields.
    pub fn fields(&self) -> impl Iterator<Item = &'static str> {
        let names = self.declared.iter().flat_map(|(own, several)| match several {
            [] => std::slice::from_ref(own),
            several => *several,
        });
        names.copied()
    }

    /// Whether it has this field.
    pub fn has(&self, field: &str) -> bool {
        self.fields().any(|own| own == field)
    }
}

/// Declares events whose lines are put together where they happen: `NAME = "name" [field, field]`.
#[macro_export]
macro_rules! descriptions {
    ($( $NAME:ident = $event:literal [ $($field:ident),* ] ),* $(,)?) => {
        $(
            #[doc = concat!("`", $event, "`")]
            pub const $NAME: $crate::audit::Description = $crate::audit::Description {
                name: $event,
                declared: &[ $( (stringify!($field), &[]) ),* ],
            };
        )*

        /// All of them, with their fields.
        pub const DESCRIPTIONS: &[$crate::audit::Description] = &[ $($NAME),* ];
    };
}

/// One line that is being written.
pub struct Line<'a> {
    out: &'a mut Vec<u8>,
}

impl<'a> Line<'a> {
    /// Begins the line of something that happened at `time`, behind whatever `out` has.
    pub fn begin(out: &'a mut Vec<u8>, time: Time) -> Line<'a> {
        out.extend_from_slice(b"{\"time\":");
        let mut line = Line { out };
        line.json(&utc(time));
        line
    }

    /// Ends it.
    pub fn end(self) {
        self.out.extend_from_slice(b"}\n");
    }

    /// A field whose value is JSON already in its type.
    pub fn put(&mut self, name: &str, value: &(impl serde::Serialize + ?Sized)) {
        self.out.push(b',');
        self.json(name);
        self.out.push(b':');
        self.json(value);
    }

    /// A text, no longer than its bound.
    pub fn text(&mut self, name: &str, text: &str) {
        self.put(name, &*cut(text));
    }

    /// Bytes of the user's, which need not be text.
    pub fn bytes(&mut self, name: &str, bytes: &[u8]) {
        // Cut first: a long command costs no more than a short one.
        let head = &bytes[..bytes.len().min(MAX_TEXT + 1)];
        self.text(name, &String::from_utf8_lossy(head));
    }

    fn json(&mut self, value: &(impl serde::Serialize + ?Sized)) {
        serde_json::to_writer(&mut *self.out, value)
            .expect("memory takes everything, and no key is anything but a text");
    }
}

/// No more of a text than its bound, cut between characters.
pub fn cut(text: &str) -> Cow<'_, str> {
    match text.len() <= MAX_TEXT {
        true => Cow::Borrowed(text),
        false => Cow::Owned(format!("{}…", &text[..text.floor_char_boundary(MAX_TEXT)])),
    }
}

/// `2026-01-31T23:59:59.123Z`.
pub fn utc(at: Time) -> String {
    format!("{}.{:03}Z", clock::utc(at.sec), at.nsec / 1_000_000)
}

/// How a declared field is written.
pub trait Field {
    /// The names of the fields that it becomes; empty: one, by its own name.
    const SEVERAL: &'static [&'static str] = &[];

    /// Writes it; `name` is its own.
    fn write(&self, name: &str, line: &mut Line<'_>);
}

macro_rules! as_json {
    ($($type:ty),*) => {$(
        impl Field for $type {
            fn write(&self, name: &str, line: &mut Line<'_>) {
                line.put(name, self);
            }
        }
    )*};
}
as_json!(bool, i32, u32, u64, Vec<String>);

impl Field for str {
    fn write(&self, name: &str, line: &mut Line<'_>) {
        line.text(name, self);
    }
}

impl Field for String {
    fn write(&self, name: &str, line: &mut Line<'_>) {
        line.text(name, self);
    }
}

impl Field for Vec<u8> {
    fn write(&self, name: &str, line: &mut Line<'_>) {
        line.bytes(name, self);
    }
}

impl Field for CString {
    fn write(&self, name: &str, line: &mut Line<'_>) {
        line.bytes(name, self.as_bytes());
    }
}

/// An id, in hexadecimal digits.
impl Field for [u8; 16] {
    fn write(&self, name: &str, line: &mut Line<'_>) {
        line.text(name, &format!("{:032x}", u128::from_be_bytes(*self)));
    }
}

impl Field for SocketAddr {
    fn write(&self, name: &str, line: &mut Line<'_>) {
        line.text(name, &self.to_string());
    }
}

/// In whole milliseconds.
impl Field for Duration {
    fn write(&self, name: &str, line: &mut Line<'_>) {
        line.put(name, &u64::try_from(self.as_millis()).unwrap_or(u64::MAX));
    }
}

impl Field for Time {
    fn write(&self, name: &str, line: &mut Line<'_>) {
        line.text(name, &utc(*self));
    }
}

impl<T: Field + ?Sized> Field for &T {
    const SEVERAL: &'static [&'static str] = T::SEVERAL;

    fn write(&self, name: &str, line: &mut Line<'_>) {
        T::write(self, name, line);
    }
}

/// None: the field is absent.
impl<T: Field> Field for Option<T> {
    const SEVERAL: &'static [&'static str] = T::SEVERAL;

    fn write(&self, name: &str, line: &mut Line<'_>) {
        if let Some(value) = self {
            value.write(name, line);
        }
    }
}

/// A field that is absent unless it is true.
#[derive(Debug)]
pub struct Flag(bool);

impl From<&bool> for Flag {
    fn from(flag: &bool) -> Flag {
        Flag(*flag)
    }
}

impl Field for Flag {
    fn write(&self, name: &str, line: &mut Line<'_>) {
        if self.0 {
            line.put(name, &true);
        }
    }
}

/// `done`, and the `reason` where it was refused.
#[derive(Debug)]
pub struct Success<'a>(Option<&'a str>);

impl<'a> From<&'a Option<String>> for Success<'a> {
    fn from(refused: &'a Option<String>) -> Success<'a> {
        Success(refused.as_deref())
    }
}

impl Field for Success<'_> {
    const SEVERAL: &'static [&'static str] = &["done", "reason"];

    fn write(&self, _: &str, line: &mut Line<'_>) {
        line.put("done", &self.0.is_none());
        self.0.write("reason", line);
    }
}

/// A file's mode, as people write it.
#[derive(Debug)]
pub struct Octal(Option<u32>);

impl From<&u32> for Octal {
    fn from(mode: &u32) -> Octal {
        Octal(Some(*mode))
    }
}

impl From<&Option<u32>> for Octal {
    fn from(mode: &Option<u32>) -> Octal {
        Octal(*mode)
    }
}

impl Field for Octal {
    fn write(&self, name: &str, line: &mut Line<'_>) {
        self.0.map(|mode| format!("{mode:o}")).write(name, line);
    }
}

/// Events of a type that declares them by other means than [`events!`](crate::events), for a variant that holds it.
pub trait Events {
    /// All of them, with their fields.
    const DESCRIPTIONS: &'static [Description];

    /// Writes the event's name and its fields.
    fn write_event(&self, line: &mut Line<'_>);
}

impl<T: Events> Events for Box<T> {
    const DESCRIPTIONS: &'static [Description] = T::DESCRIPTIONS;

    fn write_event(&self, line: &mut Line<'_>) {
        T::write_event(self, line);
    }
}

/// Declares an enum of events. `Variant = "name" { field: Type }` is an event; `Variant(Type)` are the events of a type
/// that has them by [`Events`](crate::audit::Events). A field is written by its type and under its name, unless it says
/// otherwise: `lasted as lasted_ms: Duration` has another name in the line, `refused: Option<String> => Success<'_>` is
/// written as what it is converted into.
#[macro_export]
macro_rules! events {
    ($(#[$attribute:meta])* pub enum $Enum:ident { $(
        $(#[$doc:meta])* $Variant:ident
        $(= $event:literal { $( $(#[$field_doc:meta])* $field:ident $(as $key:ident)? : $type:ty $(=> $via:ty)? ),* $(,)? })?
        $(($inner:ty))?
    ),* $(,)? }) => {
        $(#[$attribute])*
        pub enum $Enum { $(
            $(#[$doc])* $Variant $({ $( $(#[$field_doc])* #[allow(missing_docs)] $field: $type ),* })? $(($inner))?
        ),* }

        impl $Enum {
            /// All of them, with their fields.
            pub const DESCRIPTIONS: &'static [&'static [$crate::audit::Description]] = &[ $(
                $(&[$crate::audit::Description {
                    name: $event,
                    declared: &[ $( (
                        $crate::field_name!($field $(as $key)?),
                        <$crate::field_type!($type $(=> $via)?) as $crate::audit::Field>::SEVERAL,
                    ) ),* ],
                }],)?
                $(<$inner as $crate::audit::Events>::DESCRIPTIONS,)?
            )* ];

            /// Writes its name and its fields.
            pub fn write_event(&self, line: &mut $crate::audit::Line<'_>) {
                match self { $(
                    $(Self::$Variant { $($field),* } => {
                        line.put("event", $event);
                        $( $crate::write_field!(line, $field $(as $key)?, $type $(=> $via)?); )*
                    })?
                    $(Self::$Variant(inner) => <$inner as $crate::audit::Events>::write_event(inner, line),)?
                )* }
            }
        }
    };
}

/// Has a struct written as the fields that it holds: `name`, or `name as other_name`.
#[macro_export]
macro_rules! fields {
    ($Struct:ty { $( $field:ident $(as $key:ident)? $(=> $via:ty)? ),* $(,)? }) => {
        impl $crate::audit::Field for $Struct {
            const SEVERAL: &'static [&'static str] = &[ $( $crate::field_name!($field $(as $key)?) ),* ];

            fn write(&self, _: &str, line: &mut $crate::audit::Line<'_>) {
                $( {
                    let value = &self.$field;
                    $crate::write_field!(line, value as $field $(as $key)?, _ $(=> $via)?);
                } )*
            }
        }
    };
}

/// The name of a declared field in the line.
#[doc(hidden)]
#[macro_export]
macro_rules! field_name {
    ($field:ident) => {
        stringify!($field)
    };
    ($field:ident as $key:ident) => {
        stringify!($key)
    };
}

/// As what a declared field is written.
#[doc(hidden)]
#[macro_export]
macro_rules! field_type {
    ($type:ty) => {
        $type
    };
    ($type:ty => $via:ty) => {
        $via
    };
}

/// Writes one declared field.
#[doc(hidden)]
#[macro_export]
macro_rules! write_field {
    ($line:ident, $value:ident $(as $name:ident)*, $type:ty) => {
        $crate::audit::Field::write($value, $crate::last_name!($value $($name)*), $line)
    };
    ($line:ident, $value:ident $(as $name:ident)*, $type:ty => $via:ty) => {
        $crate::audit::Field::write(&<$via>::from($value), $crate::last_name!($value $($name)*), $line)
    };
}

/// The last of some names, as a text.
#[doc(hidden)]
#[macro_export]
macro_rules! last_name {
    ($name:ident) => { stringify!($name) };
    ($_:ident $($more:ident)+) => { $crate::last_name!($($more)+) };
}

//! How single values are written in documents: names, selectors, times, sizes, bytes, variables. Lists and tables are its users'
//! business.

use crate::cluster::{MAX_KEY, Name, Selector};
use base64ct::{Base64, Encoding};
use serde::de::{Error, Unexpected, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

/// A length of time: written `"15m"`, read as a number of seconds, too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Span(pub Duration);

/// Bytes, written as base64.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Bytes(pub Vec<u8>);

/// A number of bytes: written `"64K"`, read as a number, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Size(pub u64);

/// In milliseconds.
const UNITS: [(&str, u64); 5] = [
    ("d", 86_400_000),
    ("h", 3_600_000),
    ("m", 60_000),
    ("s", 1000),
    ("ms", 1),
];
const SIZES: [(&str, u64); 3] = [("G", 1 << 30), ("M", 1 << 20), ("K", 1 << 10)];

impl Span {
    fn parse(text: &str) -> Option<Span> {
        let text = text.trim();
        let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        let number: u64 = text[..end].parse().ok()?;
        let (_, unit) = UNITS.into_iter().find(|(name, _)| *name == text[end..].trim())?;
        Some(Span(Duration::from_millis(number.checked_mul(unit)?)))
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let length = self.0.as_millis();
        let fits =
            |&(_, unit): &(&str, u64)| length >= u128::from(unit) && length.is_multiple_of(u128::from(unit));
        let (name, unit) = UNITS.into_iter().find(fits).unwrap_or(("s", 1000));
        write!(f, "{}{name}", length / u128::from(unit))
    }
}

impl Serialize for Span {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Span, D::Error> {
        from.deserialize_any(SpanVisitor)
    }
}

struct SpanVisitor;

impl Visitor<'_> for SpanVisitor {
    type Value = Span;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a time such as \"90s\", \"15m\", \"12h\", \"7d\" or a number of seconds")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Span, E> {
        Span::parse(text).ok_or_else(|| E::invalid_value(Unexpected::Str(text), &self))
    }

    fn visit_u64<E: Error>(self, seconds: u64) -> Result<Span, E> {
        Ok(Span(Duration::from_secs(seconds)))
    }

    fn visit_i64<E: Error>(self, seconds: i64) -> Result<Span, E> {
        let positive =
            u64::try_from(seconds).map_err(|_| E::invalid_value(Unexpected::Signed(seconds), &self));
        positive.map(|seconds| Span(Duration::from_secs(seconds)))
    }
}

impl Size {
    fn parse(text: &str) -> Option<Size> {
        let text = text.trim();
        let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        let number: u64 = text[..end].parse().ok()?;
        let unit = match text[end..].trim() {
            "" => 1,
            unit => SIZES.into_iter().find(|(name, _)| *name == unit)?.1,
        };
        number.checked_mul(unit).map(Size)
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fits = |&(_, unit): &(&str, u64)| self.0 >= unit && self.0.is_multiple_of(unit);
        let (name, unit) = SIZES.into_iter().find(fits).unwrap_or(("", 1));
        write!(f, "{}{name}", self.0 / unit)
    }
}

impl Serialize for Size {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Size, D::Error> {
        from.deserialize_any(SizeVisitor)
    }
}

struct SizeVisitor;

impl Visitor<'_> for SizeVisitor {
    type Value = Size;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a number of bytes such as 4096, \"64K\", \"2M\" or \"1G\"")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Size, E> {
        Size::parse(text).ok_or_else(|| E::invalid_value(Unexpected::Str(text), &self))
    }

    fn visit_u64<E: Error>(self, bytes: u64) -> Result<Size, E> {
        Ok(Size(bytes))
    }

    fn visit_i64<E: Error>(self, bytes: i64) -> Result<Size, E> {
        let positive = u64::try_from(bytes).map_err(|_| E::invalid_value(Unexpected::Signed(bytes), &self));
        positive.map(Size)
    }
}

/// Variables with their values.
pub fn variables<'de, D: Deserializer<'de>>(from: D) -> Result<BTreeMap<String, String>, D::Error> {
    let variables = BTreeMap::<String, String>::deserialize(from)?;
    for name in variables.keys() {
        if !is_variable(name) {
            return Err(D::Error::custom(format!(
                "{name:?} is no name of a variable: it has no blank and no `=`"
            )));
        }
        if ["FLEETGATE_USER", "FLEETGATE_ROLES", "FLEETGATE_SESSION"].contains(&name.as_str()) {
            return Err(D::Error::custom(format!(
                "the node sets {name} itself: leave it out"
            )));
        }
    }
    Ok(variables)
}

/// Whether it may be the name of a variable, or a pattern of such names.
pub fn is_variable(text: &str) -> bool {
    !text.is_empty() && !text.contains(|c: char| c == '=' || c.is_whitespace() || c.is_control())
}

impl Serialize for Bytes {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&Base64::encode_string(&self.0))
    }
}

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Bytes, D::Error> {
        let text = String::deserialize(from)?;
        let bytes = Base64::decode_vec(&text).map_err(|_| D::Error::custom("the key is no base64"))?;
        if bytes.is_empty() || bytes.len() > MAX_KEY {
            return Err(D::Error::custom(format!("a key has 1 to {MAX_KEY} bytes")));
        }
        Ok(Bytes(bytes))
    }
}

impl Serialize for Name {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for Name {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Name, D::Error> {
        Name::parse(&String::deserialize(from)?).map_err(D::Error::custom)
    }
}

impl Serialize for Selector {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Selector {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Selector, D::Error> {
        Selector::parse(&String::deserialize(from)?).map_err(D::Error::custom)
    }
}

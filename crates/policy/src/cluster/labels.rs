//! What a node says of itself, as keys and values. It does not know where they come from.

use crate::Invalid;
use crate::text::shortened;
use std::collections::BTreeMap;

/// The most labels of a node.
pub const MAX_LABELS: usize = 64;
/// The longest key.
pub const MAX_LABEL_KEY: usize = 128;
/// The longest value.
pub const MAX_LABEL_VALUE: usize = 256;

/// A node's labels.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Labels(BTreeMap<String, String>);

impl Labels {
    /// None.
    pub fn new() -> Labels {
        Labels::default()
    }

    /// All of these.
    pub fn of<'a>(pairs: impl IntoIterator<Item = (&'a str, &'a str)>) -> Result<Labels, Invalid> {
        let mut labels = Labels::new();
        for (key, value) in pairs {
            labels.set(key, value)?;
        }
        Ok(labels)
    }

    /// Adds one, or gives it another value.
    pub fn set(&mut self, key: &str, value: &str) -> Result<(), Invalid> {
        check_key(key)?;
        check_value(value).map_err(|why| format!("the label {key}: {why}"))?;
        if self.0.len() == MAX_LABELS && !self.0.contains_key(key) {
            return Err(Invalid(format!("a node has at most {MAX_LABELS} labels")));
        }
        self.0.insert(key.to_string(), value.to_string());
        Ok(())
    }

    /// One of them.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key).map(String::as_str)
    }

    /// All of them, by key.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(k, v)| (k.as_str(), v.as_str()))
    }

    /// How many.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// A key is a word that a selector can name: letters, digits and `._-/`.
pub(super) fn check_key(key: &str) -> Result<(), String> {
    let good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | '/');
    if (1..=MAX_LABEL_KEY).contains(&key.len()) && key.chars().all(good) {
        return Ok(());
    }
    Err(format!(
        "the label {:?}: a key has 1 to {MAX_LABEL_KEY} letters, digits and . _ - /",
        shortened(key)
    ))
}

/// A value is what a selector can ask for: no comma, no bar, nothing that a terminal would not show.
fn check_value(value: &str) -> Result<(), String> {
    if value.len() > MAX_LABEL_VALUE {
        return Err(format!("its value is longer than {MAX_LABEL_VALUE} bytes"));
    }
    if value.trim() != value {
        return Err("its value begins or ends with a blank".to_string());
    }
    match value.chars().find(|c| c.is_control() || matches!(c, ',' | '|')) {
        Some(c) => Err(format!(
            "its value has {c:?} in it, which a selector could not ask for"
        )),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_bounded_and_can_be_asked_for() {
        let long = "a".repeat(MAX_LABEL_KEY + 1);
        let value = "a".repeat(MAX_LABEL_VALUE + 1);
        for (key, value, good) in [
            ("env", "prod", true),
            ("kubernetes.io/arch", "x86_64 v3", true),
            (&long[1..], &value[1..], true),
            ("env", "", true),
            ("", "prod", false),
            (&long, "prod", false),
            ("en v", "prod", false),
            ("env=", "prod", false),
            ("env", &value, false),
            ("env", "a,b", false),
            ("env", "a|b", false),
            ("env", " a", false),
            ("env", "a\nb", false),
        ] {
            assert_eq!(Labels::new().set(key, value).is_ok(), good, "{key:?} {value:?}");
        }
        let mut labels = Labels::new();
        for i in 0..MAX_LABELS {
            labels.set(&i.to_string(), "x").unwrap();
        }
        assert_eq!(
            labels.set("more", "x").unwrap_err().to_string(),
            "a node has at most 64 labels"
        );
        labels.set("0", "another").unwrap();
        assert_eq!(labels.get("0"), Some("another"));
        assert_eq!(labels.len(), MAX_LABELS);
    }
}

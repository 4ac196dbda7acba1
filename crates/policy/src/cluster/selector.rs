//! What chooses nodes: a name, a pattern of names, or labels; containers are chosen by labels alone. It reads what people write
//! and knows no inventory.

use super::labels::{self, Labels};
use super::name::{Name, is_of_a_name};
use crate::Invalid;
use crate::pattern;
use crate::text::shortened;
use std::collections::BTreeMap;
use std::fmt;

/// The longest selector.
pub const MAX_SELECTOR: usize = 1024;

/// `env=prod,role=db`, `env=prod|staging`, `env!=prod`, `web1`, `web*`; `*` is every node. All of its parts have to fit.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Selector(Vec<Part>);

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Part {
    /// The node's name fits this pattern.
    Named(String),
    /// This label has one of these values (or patterns of them), or has none of them.
    Label {
        key: String,
        values: Vec<String>,
        not: bool,
    },
}

impl Selector {
    /// As somebody wrote it.
    pub fn parse(text: &str) -> Result<Selector, Invalid> {
        let refuse = |why: String| Invalid(format!("the selector {:?} {why}", shortened(text)));
        if text.len() > MAX_SELECTOR {
            return Err(refuse(format!("is longer than {MAX_SELECTOR} bytes")));
        }
        let parts = text.split(',').map(|part| Part::parse(part.trim()));
        parts.collect::<Result<_, _>>().map(Selector).map_err(refuse)
    }

    /// Every node.
    pub fn all() -> Selector {
        Selector(vec![Part::Named("*".to_string())])
    }

    /// This node alone.
    pub fn named(name: &Name) -> Selector {
        Selector(vec![Part::Named(name.to_string())])
    }

    /// The one name it is, if it is no more than that.
    pub fn as_name(&self) -> Option<Name> {
        match &self.0[..] {
            [Part::Named(text)] => Name::parse(text).ok(),
            _ => None,
        }
    }

    /// Whether a node is meant.
    pub fn matches(&self, name: &Name, labels: &Labels) -> bool {
        self.fits(name.as_str(), |key| labels.get(key))
    }

    /// The same of a node that may be gone. Where nobody knows its labels, what asks for any does not mean it, not even
    /// `env!=prod`.
    pub fn matches_named(&self, name: &str, labels: Option<&Labels>) -> bool {
        let is_known = |part: &Part| labels.is_some() || matches!(part, Part::Named(_));
        self.0.iter().all(is_known) && self.fits(name, |key| labels?.get(key))
    }

    /// Whether it asks for labels and nothing else.
    pub fn is_of_labels(&self) -> bool {
        self.0.iter().all(|part| matches!(part, Part::Label { .. }))
    }

    /// Whether it can fit anything, as far as its form tells. Asked where somebody writes it down for others; a stored one, which
    /// fits nothing, does no harm.
    pub fn check_written(&self) -> Result<(), Invalid> {
        let refuse = |why: String| {
            let text = self.to_string();
            Err(Invalid(format!(
                "the selector {:?} fits nothing: {why}",
                shortened(&text)
            )))
        };
        for part in &self.0 {
            let Part::Label { key, values, .. } = part else {
                continue;
            };
            let sign = part.sign();
            for value in values {
                if let Some(plain) = value.strip_prefix('=') {
                    return refuse(format!("one `=` is enough: write {key}{sign}{}", plain.trim()));
                }
                if value.contains(['{', '}']) {
                    return refuse(format!(
                        "{{user}} stands in `logins` alone; write a value or a pattern, as {key}{sign}* for any"
                    ));
                }
                let words: Vec<&str> = value.split_whitespace().collect();
                if words.iter().skip(1).any(|word| word.contains('=')) {
                    return refuse(format!(
                        "a comma stands between two labels: write {key}{sign}{}",
                        words.join(",")
                    ));
                }
            }
        }
        Ok(())
    }

    /// Whether a container with these labels is meant. They are somebody else's, and have no form of ours. Where they are not all
    /// (`are_all`), one that was not read is not taken for one that is not there.
    pub fn matches_container(&self, labels: &BTreeMap<String, String>, are_all: bool) -> bool {
        let is_known = |part: &Part| match part {
            Part::Named(_) => false,
            Part::Label { key, .. } => are_all || labels.contains_key(key),
        };
        self.0.iter().all(is_known) && self.fits("", |key| labels.get(key).map(String::as_str))
    }

    /// Whether a container may be meant of which only these labels are known: none of them speaks against it.
    pub fn may_match_container(&self, labels: &BTreeMap<String, String>) -> bool {
        self.0.iter().all(|part| match part {
            Part::Named(_) => false,
            Part::Label { key, values, not } => {
                labels.get(key).is_none_or(|has| is_one_of(values, has) != *not)
            }
        })
    }

    /// Whether it excludes something (`app!=web`).
    pub fn excludes(&self) -> bool {
        self.0
            .iter()
            .any(|part| matches!(part, Part::Label { not: true, .. }))
    }

    fn fits<'a>(&self, name: &str, label: impl Fn(&str) -> Option<&'a str>) -> bool {
        self.0.iter().all(|part| match part {
            Part::Named(wanted) => pattern::fits(wanted.as_bytes(), name.as_bytes()),
            Part::Label { key, values, not } => {
                // What has no such label has none of the values.
                label(key).is_some_and(|has| is_one_of(values, has)) != *not
            }
        })
    }
}

/// Whether a label's value is one of these, or fits one that is a pattern.
fn is_one_of(values: &[String], has: &str) -> bool {
    values
        .iter()
        .any(|value| pattern::fits(value.as_bytes(), has.as_bytes()))
}

impl Part {
    /// What stands between a label's key and its values.
    fn sign(&self) -> &'static str {
        match self {
            Part::Label { not: true, .. } => "!=",
            _ => "=",
        }
    }

    fn parse(text: &str) -> Result<Part, String> {
        let Some((key, values)) = text.split_once('=') else {
            if text.is_empty() {
                return Err("has an empty part".to_string());
            }
            return match text
                .chars()
                .find(|&c| !is_of_a_name(c) && !matches!(c, '*' | '?'))
            {
                Some(c) => Err(format!(
                    "has {c:?} in what should be a node's name or label=value"
                )),
                None => Ok(Part::Named(text.to_string())),
            };
        };
        let (key, not) = match key.strip_suffix('!') {
            Some(key) => (key.trim(), true),
            None => (key.trim(), false),
        };
        labels::check_key(key).map_err(|why| format!("is none: {why}"))?;
        let value = |value: &str| match value.chars().find(|c| c.is_control()) {
            Some(c) => Err(format!("has {c:?} in a value")),
            None => Ok(value.trim().to_string()),
        };
        let values = values.split('|').map(value).collect::<Result<_, _>>()?;
        Ok(Part::Label {
            key: key.to_string(),
            values,
            not,
        })
    }
}

impl fmt::Display for Selector {
    /// As it can be read again.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, part) in self.0.iter().enumerate() {
            let comma = if i > 0 { "," } else { "" };
            match part {
                Part::Named(name) => write!(f, "{comma}{name}")?,
                Part::Label { key, values, .. } => {
                    write!(f, "{comma}{key}{}{}", part.sign(), values.join("|"))?;
                }
            }
        }
        Ok(())
    }
}

impl std::str::FromStr for Selector {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Selector, Invalid> {
        Selector::parse(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_are_chosen_by_name_and_labels() {
        let labels = Labels::of([("env", "prod"), ("role", "db"), ("zone", "eu-1")]).unwrap();
        let name = Name::parse("db-1").unwrap();
        for (text, want) in [
            ("*", true),
            ("db-1", true),
            ("db-?", true),
            ("web*", false),
            ("env=prod", true),
            ("env=prod,role=db", true),
            ("env=prod, role=web", false),
            ("env=staging|prod", true),
            ("env=staging|test", false),
            ("env!=prod", false),
            ("env!=staging|test", true),
            ("env!=staging|prod", false),
            ("team!=a", true),
            ("team=*", false),
            ("zone=eu-*", true),
            ("zone=us-*", false),
            ("db-*,zone=eu-?", true),
            ("web-*,zone=eu-?", false),
            ("team=", false),
            ("team!=*", true),
        ] {
            let selector = Selector::parse(text).unwrap();
            assert_eq!(selector.matches(&name, &labels), want, "{text}");
            assert_eq!(Selector::parse(&selector.to_string()).unwrap(), selector);
        }
    }

    #[test]
    fn containers_are_chosen_by_labels_alone() {
        let labels = [("app", "web, and more"), ("io.kubernetes.pod.namespace", "shop")];
        let labels = labels
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .into();
        for (text, want) in [
            ("app=web*", true),
            ("app!=web*", false),
            ("io.kubernetes.pod.namespace=shop|bank,app=*", true),
            ("io.kubernetes.pod.namespace!=shop", false),
            ("tier=db", false),
            ("tier!=db", true),
            ("*", false),
            ("web,app=web*", false),
        ] {
            let selector = Selector::parse(text).unwrap();
            assert_eq!(selector.matches_container(&labels, true), want, "{text}");
        }
        // What was not read may be there.
        for (text, want) in [
            ("app=web*", true),
            ("app!=db", true),
            ("tier!=db", false),
            ("tier=db", false),
        ] {
            let selector = Selector::parse(text).unwrap();
            assert_eq!(selector.matches_container(&labels, false), want, "{text}");
        }
    }

    #[test]
    fn a_selector_that_fits_nothing_is_not_written_down() {
        for good in [
            "app=web|shop",
            "app=a b,tier!=",
            "web*",
            "cmd=a=b",
            "app=web, and=more",
        ] {
            assert_eq!(Selector::parse(good).unwrap().check_written(), Ok(()), "{good}");
        }
        for (bad, want) in [
            ("app==web", "one `=` is enough: write app=web"),
            ("x=1,app!==web", "one `=` is enough: write app!=web"),
            ("owner={user}", "{user} stands in `logins` alone"),
            (
                "app=web role=x",
                "a comma stands between two labels: write app=web,role=x",
            ),
        ] {
            let why = Selector::parse(bad).unwrap().check_written().unwrap_err();
            assert!(why.to_string().contains(want), "{bad}: {why}");
        }
    }

    #[test]
    fn bad_selectors_say_what_is_wrong() {
        for (text, want) in [
            ("", "the selector \"\" has an empty part"),
            ("env=prod,", "the selector \"env=prod,\" has an empty part"),
            (
                "Web1",
                "the selector \"Web1\" has 'W' in what should be a node's name or label=value",
            ),
            (
                "=prod",
                "the selector \"=prod\" is none: the label \"\": a key has 1 to 128 letters, digits and . _ - /",
            ),
            ("env=a\nb", "the selector \"env=a\\nb\" has '\\n' in a value"),
        ] {
            assert_eq!(Selector::parse(text).unwrap_err().to_string(), want);
        }
        assert!(Selector::parse(&"a".repeat(MAX_SELECTOR)).is_ok());
        assert!(Selector::parse(&"a".repeat(MAX_SELECTOR + 1)).is_err());
        let web1 = Name::parse("web1").unwrap();
        assert_eq!(Selector::parse("web1").unwrap().as_name(), Some(web1.clone()));
        assert_eq!(Selector::named(&web1).to_string(), "web1");
        for more in ["web*", "env=prod", "web1,env=prod"] {
            assert_eq!(Selector::parse(more).unwrap().as_name(), None);
        }
    }
}

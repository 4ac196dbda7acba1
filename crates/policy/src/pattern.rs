//! Patterns with `*` and `?`, and lists of them with `!`, as sshd's configuration has them (ssh_config(5), PATTERNS).
//! It knows nothing of what the text is: addresses are `address`.

use crate::Invalid;

/// The longest text of a list of patterns.
pub const MAX_LIST: usize = 4096;

/// Whether all of `text` fits `pattern`: `*` is any bytes, `?` is one. Takes at most the product of both lengths.
pub fn fits(pattern: &[u8], text: &[u8]) -> bool {
    let (mut p, mut t) = (0, 0);
    // Where the last star was, and up to where it has eaten.
    let mut star: Option<(usize, usize)> = None;
    while t < text.len() {
        match pattern.get(p) {
            Some(b'*') => {
                star = Some((p, t));
                p += 1;
            }
            Some(&c) if c == b'?' || c == text[t] => {
                p += 1;
                t += 1;
            }
            _ => {
                let Some((at, eaten)) = star else { return false };
                star = Some((at, eaten + 1));
                p = at + 1;
                t = eaten + 1;
            }
        }
    }
    pattern[p..].iter().all(|&c| c == b'*')
}

/// A list of patterns; one with `!` before it refuses whatever fits it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Patterns(Vec<(bool, String)>);

impl Patterns {
    /// Separated by commas, as within one word of sshd's files.
    pub fn parse(list: &str) -> Result<Patterns, Invalid> {
        if list.len() > MAX_LIST {
            return Err(Invalid(format!("a list of patterns may have {MAX_LIST} bytes")));
        }
        Patterns::of(list.split(',').map(str::trim))
    }

    /// One pattern each.
    pub fn of<'a>(patterns: impl IntoIterator<Item = &'a str>) -> Result<Patterns, Invalid> {
        let mut list = Vec::new();
        for pattern in patterns {
            let (negated, text) = match pattern.strip_prefix('!') {
                Some(rest) => (true, rest),
                None => (false, pattern),
            };
            if text.is_empty() {
                return Err("an empty pattern fits nothing: take it out".into());
            }
            list.push((negated, text.to_string()));
        }
        Ok(Patterns(list))
    }

    /// Whether one of them fits and no negated one does.
    pub fn fit(&self, text: &str) -> bool {
        let mut found = false;
        for (negated, pattern) in &self.0 {
            if fits(pattern.as_bytes(), text.as_bytes()) {
                if *negated {
                    return false;
                }
                found = true;
            }
        }
        found
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stars_and_question_marks() {
        for (pattern, text, want) in [
            ("", "", true),
            ("", "a", false),
            ("*", "", true),
            ("*", "anything", true),
            ("?", "", false),
            ("?", "x", true),
            ("a*c", "abbbc", true),
            ("a*c", "abbbd", false),
            ("*a*b*", "xxaxxbxx", true),
            ("*a*b", "abab", true),
            ("10.?.*", "10.1.2.3", true),
            ("10.?.*", "10.12.2.3", false),
            ("a**b", "ab", true),
        ] {
            assert_eq!(
                fits(pattern.as_bytes(), text.as_bytes()),
                want,
                "{pattern:?} {text:?}"
            );
        }
        // Many stars over a long text end in bounded time.
        assert!(!fits("*a".repeat(64).as_bytes(), &vec![b'b'; 4096]));
    }

    #[test]
    fn a_negated_pattern_refuses_wherever_it_stands() {
        for (list, text, want) in [
            ("a,b", "b", true),
            ("a,b", "c", false),
            ("*,!b", "b", false),
            ("!b,*", "b", false),
            ("!b,*", "c", true),
            ("!b", "c", false),
        ] {
            assert_eq!(Patterns::parse(list).unwrap().fit(text), want, "{list} {text}");
        }
        assert!(Patterns::parse("a,,b").is_err());
        assert!(Patterns::parse("!").is_err());
        assert!(Patterns::parse(&"a".repeat(MAX_LIST + 1)).is_err());
        assert!(Patterns::parse(&"a".repeat(MAX_LIST)).is_ok());
    }
}

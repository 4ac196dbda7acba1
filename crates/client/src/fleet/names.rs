//! Names of nodes in few words: `web[1-40,45]`. It reads no inventory: what it is given is what it folds.

use std::collections::{BTreeMap, BTreeSet};

/// So many numbers in one name are tried, counted from its end.
const TRIED: usize = 4;
/// More digits are no number that is counted on.
const MAX_DIGITS: usize = 18;

/// What names have in common that differ in one number.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Frame<'a> {
    before: &'a str,
    after: &'a str,
    /// How many digits there are, where zeros fill them up.
    width: Option<usize>,
}

/// A name in which one number may differ.
#[derive(Clone, Copy)]
struct Parts<'a> {
    before: &'a str,
    digits: &'a str,
    after: &'a str,
}

/// All of these names, folded by the one of their numbers with which they are fewest words.
#[must_use]
pub fn fold(names: &[&str]) -> String {
    let by = |number| folded(names, number);
    let words = (0..TRIED).map(by).min_by_key(Vec::len).unwrap_or_default();
    words.join(",")
}

/// Folded by the number that is so far from the end.
fn folded(names: &[&str], number: usize) -> Vec<String> {
    let mut whole = BTreeSet::new();
    let mut parts = Vec::new();
    for name in names {
        match split(name, number) {
            Some(found) => parts.push(found),
            None => {
                whole.insert(*name);
            }
        }
    }
    // A number of two digits belongs to those with a zero in front, where there are some of two digits.
    let is_filled = |digits: &str| digits.len() > 1 && digits.starts_with('0');
    let filled: BTreeSet<(&str, &str, usize)> = parts
        .iter()
        .filter(|p| is_filled(p.digits))
        .map(|p| (p.before, p.after, p.digits.len()))
        .collect();
    let mut frames: BTreeMap<Frame<'_>, BTreeSet<u64>> = BTreeMap::new();
    for Parts {
        before,
        digits,
        after,
    } in parts
    {
        let width = digits.len();
        let frame = Frame {
            before,
            after,
            width: filled.contains(&(before, after, width)).then_some(width),
        };
        frames
            .entry(frame)
            .or_default()
            .insert(digits.parse().unwrap_or_default());
    }
    let mut words: Vec<String> = frames
        .iter()
        .map(|(frame, numbers)| frame.word(numbers))
        .collect();
    words.extend(whole.into_iter().map(str::to_owned));
    words.sort();
    words
}

fn split(name: &str, number: usize) -> Option<Parts<'_>> {
    let bytes = name.as_bytes();
    let (mut end, mut left) = (bytes.len(), number);
    loop {
        let last = bytes[..end].iter().rposition(u8::is_ascii_digit)? + 1;
        let first = bytes[..last]
            .iter()
            .rposition(|b| !b.is_ascii_digit())
            .map_or(0, |at| at + 1);
        if left == 0 {
            // Digits are characters of one byte.
            let digits = &name[first..last];
            return (digits.len() <= MAX_DIGITS).then(|| Parts {
                before: &name[..first],
                digits,
                after: &name[last..],
            });
        }
        (end, left) = (first, left - 1);
    }
}

impl Frame<'_> {
    fn word(&self, numbers: &BTreeSet<u64>) -> String {
        let width = self.width.unwrap_or(0);
        let mut ranges: Vec<(u64, u64)> = Vec::new();
        for number in numbers {
            match ranges.last_mut() {
                Some((_, last)) if *last + 1 == *number => *last = *number,
                _ => ranges.push((*number, *number)),
            }
        }
        let range = |(first, last): &(u64, u64)| match first == last {
            true => format!("{first:0width$}"),
            false => format!("{first:0width$}-{last:0width$}"),
        };
        let inner = ranges.iter().map(range).collect::<Vec<_>>().join(",");
        let (open, close) = if numbers.len() > 1 { ("[", "]") } else { ("", "") };
        format!("{}{open}{inner}{close}{}", self.before, self.after)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_differ_in_a_number_are_one_word() {
        for (names, word) in [
            ("", ""),
            ("web1", "web1"),
            ("web1 web2 web3", "web[1-3]"),
            ("web45 web3 web1 web2", "web[1-3,45]"),
            ("web9 web10 web11", "web[9-11]"),
            ("web08 web09 web10 web7", "web7,web[08-10]"),
            ("db gate web1 web2", "db,gate,web[1-2]"),
            ("r1n1.dc1 r1n2.dc1 r1n3.dc1", "r1n[1-3].dc1"),
            ("r1n1 r2n1 r3n1", "r[1-3]n1"),
            ("r1n1 r1n2 r2n1", "r1n[1-2],r2n1"),
            ("1 2 3", "[1-3]"),
            ("web1 web1 web2", "web[1-2]"),
            ("web1a web2b", "web1a,web2b"),
            ("web007", "web007"),
            ("web12345678901234567890", "web12345678901234567890"),
            ("größe1 größe2", "größe[1-2]"),
        ] {
            let names: Vec<&str> = names.split_whitespace().collect();
            assert_eq!(fold(&names), word);
        }
        let many: Vec<String> = (1..=40).chain([45]).map(|n| format!("web{n}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        assert_eq!(fold(&many), "web[1-40,45]");
    }
}

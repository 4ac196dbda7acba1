//! Performance data in what a check said, as the monitoring plugins write it: `label=value[unit];warn;crit;min;max`. The text
//! is a node's own: what is not of this form is left out, and nothing in it makes an item larger than its bounds.

use fleetgate_policy::text;
use std::collections::BTreeSet;

/// The most items of one check.
pub const MAX_ITEMS: usize = 256;
/// The longest label; a longer one is left out, since half of it would be another's.
pub const MAX_LABEL: usize = 128;
/// The longest unit.
pub const MAX_UNIT: usize = 16;

/// A value that a check measured.
#[derive(Clone, Debug, PartialEq)]
pub struct Item {
    /// What it is the value of.
    pub label: String,
    /// The unit of measurement, as the plugin has it; often none.
    pub unit: String,
    /// The value, a finite number.
    pub value: f64,
}

/// The items of an output. No two have the same label and unit, since one time series has one value: the first one counts.
#[must_use]
pub fn parse(output: &[u8]) -> Vec<Item> {
    let mut items = Vec::new();
    let mut seen = BTreeSet::new();
    for part in parts(output) {
        let mut rest = part;
        while items.len() < MAX_ITEMS {
            let Some((item, after)) = next(rest) else { break };
            rest = after;
            if let Some(item) = item
                && seen.insert((item.label.clone(), item.unit.clone()))
            {
                items.push(item);
            }
        }
    }
    items
}

/// Where performance data stands: behind the first bar of the first line, and in the further lines from a bar to the end.
fn parts(output: &[u8]) -> [&[u8]; 2] {
    let behind_bar = |text: &[u8]| text.iter().position(|b| *b == b'|').map(|at| at + 1);
    let end = output.iter().position(|b| *b == b'\n').unwrap_or(output.len());
    let (first, further) = output.split_at(end);
    [first, further].map(|text| behind_bar(text).map_or(&b""[..], |at| &text[at..]))
}

/// The next item, none if it has not the form, and what follows it.
fn next(text: &[u8]) -> Option<(Option<Item>, &[u8])> {
    let text = text.trim_ascii_start();
    if text.is_empty() {
        return None;
    }
    let (label, rest) = match text.strip_prefix(b"'") {
        // Without its end everything is in the quotes.
        Some(quoted) => quoted_label(quoted)?,
        None => {
            let ends = |b: &u8| *b == b'=' || b.is_ascii_whitespace();
            let end = text.iter().position(ends).unwrap_or(text.len());
            (text[..end].to_vec(), &text[end..])
        }
    };
    let end = rest
        .iter()
        .position(u8::is_ascii_whitespace)
        .unwrap_or(rest.len());
    let (word, after) = rest.split_at(end);
    Some((item(&label, word), after))
}

/// A label in quotes, in which a quote stands twice, and what follows the closing one.
fn quoted_label(text: &[u8]) -> Option<(Vec<u8>, &[u8])> {
    let mut label = Vec::new();
    let mut at = 0;
    loop {
        match (text.get(at)?, text.get(at + 1)) {
            (b'\'', Some(b'\'')) => at += 1,
            (b'\'', _) => return Some((label, &text[at + 1..])),
            _ => {}
        }
        if label.len() <= MAX_LABEL {
            label.push(text[at]);
        }
        at += 1;
    }
}

/// From a label and `=value[unit];…`.
fn item(label: &[u8], word: &[u8]) -> Option<Item> {
    let value = word.strip_prefix(b"=")?.split(|b| *b == b';').next()?;
    if label.is_empty() || label.len() > MAX_LABEL {
        return None;
    }
    let (number, unit) = value.split_at(number(value));
    // `U` stands for a value that could not be measured; it has no number.
    let value: f64 = std::str::from_utf8(number).ok()?.parse().ok()?;
    let unit = std::str::from_utf8(unit).ok()?;
    let is_unit = unit.len() <= MAX_UNIT && unit.chars().all(|c| c.is_alphabetic() || "%°/".contains(c));
    (value.is_finite() && is_unit).then(|| Item {
        label: text::printable(&String::from_utf8_lossy(label)),
        unit: unit.to_owned(),
        value,
    })
}

/// How long the number is that the text begins with.
fn number(text: &[u8]) -> usize {
    let digits = |from: usize| text[from..].iter().take_while(|b| b.is_ascii_digit()).count();
    let mut at = usize::from(matches!(text.first(), Some(b'-' | b'+')));
    at += digits(at);
    if text.get(at) == Some(&b'.') {
        at += 1 + digits(at + 1);
    }
    // An exponent has digits; else it is the unit's first letter.
    if let Some(b'e' | b'E') = text.get(at) {
        let sign = usize::from(matches!(text.get(at + 1), Some(b'-' | b'+')));
        let exponent = digits((at + 1 + sign).min(text.len()));
        if exponent > 0 {
            at += 1 + sign + exponent;
        }
    }
    at
}

/// What a check said, as its performance data are read. Never a panic, nothing beyond the bounds, and nothing in a label that
/// acts on what is around it.
#[cfg(any(test, feature = "fuzz"))]
pub fn fuzz(output: &[u8]) {
    use fleetgate_policy::text::is_unseen;
    let items = parse(output);
    assert!(items.len() <= MAX_ITEMS);
    for item in &items {
        // A byte that is no text is shown as a character of three.
        assert!((1..=3 * MAX_LABEL).contains(&item.label.len()));
        assert!(item.unit.len() <= MAX_UNIT && item.value.is_finite());
        assert!(!item.label.contains(is_unseen) && !item.unit.contains(is_unseen));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The items, as `label=value unit`.
    fn read(output: &[u8]) -> Vec<String> {
        let shown = |item: Item| format!("{}={} {}", item.label, item.value, item.unit);
        parse(output).into_iter().map(shown).collect()
    }

    #[test]
    fn items_are_read_as_plugins_write_them() {
        for (output, items) in [
            (&b"OK"[..], &[][..]),
            (b"OK|load1=0.5;15;30;0", &["load1=0.5 "]),
            (
                b"OK | /=2643MB;5948;5958;0;5968 'C: it''s'=7% t=-1.5e3ms n=12c",
                &["/=2643 MB", "C: it's=7 %", "t=-1500 ms", "n=12 c"],
            ),
            (
                b"OK|a=1\nlong text\nmore | b=2\nc=3 d=4\n",
                &["a=1 ", "b=2 ", "c=3 ", "d=4 "],
            ),
            (b"OK\nlong|x=1", &["x=1 "]),
            ("OK|t=5µs;w=1 temp=20°C".as_bytes(), &["t=5 µs", "temp=20 °C"]),
            (b"OK|a=3e b=.5 c=5. d=+2", &["a=3 e", "b=0.5 ", "c=5 ", "d=2 "]),
        ] {
            assert_eq!(read(output), items, "{}", String::from_utf8_lossy(output));
        }
    }

    #[test]
    fn what_has_not_the_form_is_left_out() {
        let long = format!("OK|{}=1 ok=2", "l".repeat(MAX_LABEL + 1));
        let quoted = format!("OK|'{}'=1 ok=2", "l".repeat(1 << 20));
        let unit = format!("OK|a=1{} ok=2", "u".repeat(MAX_UNIT + 1));
        for output in [
            &b"OK|a=U ok=2"[..],
            b"OK|a=1,5 ok=2",
            b"OK|a= =1 ''=1 a b c=x ok=2",
            b"OK|a=1e999 b=-1e999 c=nan d=inf ok=2",
            b"OK|a=0x10 b=1;2;3=4 ok=2 b=5".as_slice().split_at(11).0,
            b"OK|a=1\xff ok=2",
            b"OK|a=1\0 ok=2",
            b"OK|'a'b=1 ok=2",
            b"OK|ok=2 ok=3 ok=4 'open=1",
            long.as_bytes(),
            quoted.as_bytes(),
            unit.as_bytes(),
        ] {
            let items = read(output);
            let is_right =
                items == ["ok=2 "] || (items.is_empty() && !output.windows(5).any(|w| w == b" ok=2"));
            assert!(
                is_right,
                "{items:?} of {}",
                String::from_utf8_lossy(&output[..output.len().min(80)])
            );
        }
    }

    #[test]
    fn hostile_labels_are_shown_and_counted() {
        assert_eq!(
            read(b"OK|'a\x00\x1b[2J\xff'=1"),
            ["a\u{fffd}\u{fffd}[2J\u{fffd}=1 "]
        );
        // What looks alike after that is one series.
        assert_eq!(read(b"OK|'a\x01'=1 'a\x02'=2"), ["a\u{fffd}=1 "]);
        let many: String = (0..100_000).map(|n| format!("l{n}=1 ")).collect();
        assert_eq!(parse(format!("OK|{many}").as_bytes()).len(), MAX_ITEMS);
        assert!(parse(format!("OK|{}", "'".repeat(1 << 20)).as_bytes()).is_empty());
    }

    #[test]
    fn any_bytes_are_read_within_the_bounds() {
        let mut seed = 7_u64;
        for _ in 0..2000 {
            let output: Vec<u8> = (0..200)
                .map(|_| {
                    seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    b"|='; \n19.eE-Ux\xff\0"[(seed >> 33) as usize % 16]
                })
                .collect();
            fuzz(&output);
        }
    }
}

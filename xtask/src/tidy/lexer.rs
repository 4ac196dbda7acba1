//! Rust source without its comments and the insides of its strings, line for line: what a rule about code may
//! look at. It understands as much of the language as that needs and no more.

/// `text` with every comment and string replaced by spaces; newlines stay.
pub fn code_only(text: &str) -> String {
    let chars: Vec<char> = text.chars().collect();
    let mut out = String::with_capacity(text.len());
    let mut at = 0;
    while at < chars.len() {
        let end = skip(&chars, at);
        if end == at {
            out.push(chars[at]);
            at += 1;
        } else {
            out.extend(chars[at..end].iter().map(|c| if *c == '\n' { '\n' } else { ' ' }));
            at = end;
        }
    }
    out
}

/// The end of the comment, string or character that starts at `at`; `at` itself where none does.
fn skip(chars: &[char], at: usize) -> usize {
    let next = |i: usize| chars.get(at + i).copied();
    match (chars[at], next(1)) {
        ('/', Some('/')) => find(chars, at, &['\n']).unwrap_or(chars.len()),
        ('/', Some('*')) => block_comment(chars, at),
        ('r', Some('"' | '#')) if !word_before(chars, at) => raw_string(chars, at),
        ('"', _) => quoted(chars, at, '"'),
        ('\'', Some('\\')) => quoted(chars, at, '\''),
        // 'a' is a character, 'a alone is a lifetime.
        ('\'', Some(_)) if next(2) == Some('\'') => at + 3,
        _ => at,
    }
}

fn word_before(chars: &[char], at: usize) -> bool {
    // The `b` of `br"…"` is part of the string, not a word before it.
    at > 0 && (chars[at - 1].is_alphanumeric() || chars[at - 1] == '_') && chars[at - 1] != 'b'
}

fn find(chars: &[char], from: usize, what: &[char]) -> Option<usize> {
    (from..chars.len()).find(|i| chars[*i..].starts_with(what))
}

fn block_comment(chars: &[char], at: usize) -> usize {
    let (mut depth, mut i) = (0, at);
    while i < chars.len() {
        if chars[i..].starts_with(&['/', '*']) {
            depth += 1;
            i += 2;
        } else if chars[i..].starts_with(&['*', '/']) {
            depth -= 1;
            i += 2;
            if depth == 0 {
                return i;
            }
        } else {
            i += 1;
        }
    }
    chars.len()
}

fn raw_string(chars: &[char], at: usize) -> usize {
    let hashes = chars[at + 1..].iter().take_while(|c| **c == '#').count();
    if chars.get(at + 1 + hashes) != Some(&'"') {
        return at; // a raw identifier
    }
    let mut close = vec!['"'];
    close.extend(std::iter::repeat_n('#', hashes));
    find(chars, at + 2 + hashes, &close).map_or(chars.len(), |i| i + close.len())
}

fn quoted(chars: &[char], at: usize, quote: char) -> usize {
    let mut i = at + 1;
    while i < chars.len() {
        match chars[i] {
            '\\' => i += 2,
            c if c == quote => return i + 1,
            _ => i += 1,
        }
    }
    chars.len()
}

/// The columns at which `word` stands by itself in `line`.
pub fn words<'a>(line: &'a str, word: &'a str) -> impl Iterator<Item = usize> + 'a {
    let part = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(word).map(|(at, _)| at).filter(move |at| {
        !line[..*at].chars().next_back().is_some_and(part)
            && !line[at + word.len()..].chars().next().is_some_and(part)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_code_is_left() {
        for (source, code) in [
            ("a // unsafe\nb", "a          \nb"),
            ("a /* x /* y */ z */ b", "a                   b"),
            ("f(\"un\\\"safe\")", "f(          )"),
            ("r#\"x\"y\"# + 1", "         + 1"),
            ("br\"x\" b", "b     b"),
            ("r#type", "r#type"),
            ("'\"' 'a '\\'' x", "    'a      x"),
            ("\"two\nlines\"", "    \n      "),
        ] {
            assert_eq!(code_only(source), code, "{source}");
        }
    }

    #[test]
    fn words_stand_alone() {
        assert_eq!(
            words("unsafe unsafe_code not_unsafe unsafe{", "unsafe").collect::<Vec<_>>(),
            [0, 30]
        );
    }
}

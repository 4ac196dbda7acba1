//! A client's line, cut into words as a shell would cut it. Nothing is expanded.

use super::{MAX_ARGUMENTS, MAX_LINE};

/// The name in a client's line, if it can be read.
pub(crate) fn name(line: &[u8]) -> Option<String> {
    words(line).ok()?.into_iter().next()
}

/// A line's words, as a shell would cut them: blanks, quotes, backslashes. Nothing is expanded.
pub(super) fn words(line: &[u8]) -> Result<Vec<String>, String> {
    if line.len() > MAX_LINE {
        return Err(format!("is longer than {MAX_LINE} bytes"));
    }
    let text = std::str::from_utf8(line).map_err(|_| "is no UTF-8")?;
    if text.contains('\0') {
        return Err("holds a zero byte".to_string());
    }
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match (quote, c) {
            (None, ' ' | '\t' | '\n') => {
                words.extend(word.take());
                if words.len() > MAX_ARGUMENTS {
                    return Err(format!("has more than {MAX_ARGUMENTS} arguments"));
                }
            }
            (None, '\'' | '"') => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (Some(open), _) if c == open => quote = None,
            (None | Some('"'), '\\') => {
                let next = chars.next().ok_or("ends with a backslash")?;
                let word = word.get_or_insert_default();
                // POSIX 2.2.3: within double quotes a backslash is special before these only.
                if quote.is_some() && !matches!(next, '$' | '`' | '"' | '\\') {
                    word.push('\\');
                }
                word.push(next);
            }
            _ => word.get_or_insert_default().push(c),
        }
    }
    if quote.is_some() {
        return Err("has a quote that is never closed".to_string());
    }
    words.extend(word);
    Ok(words)
}

//! Bytes that come in pieces, as text: a character that is cut by the end of a piece waits for the next one, and what is no
//! UTF-8 becomes U+FFFD.

/// The decoder's state: the beginning of a character.
#[derive(Debug, Default)]
pub(crate) struct Lossy {
    held: [u8; 4],
    len: usize,
}

impl Lossy {
    /// Appends the text of `bytes` to `out`.
    pub(crate) fn feed(&mut self, mut bytes: &[u8], out: &mut String) {
        while self.len > 0 {
            let Some((&first, rest)) = bytes.split_first() else {
                return;
            };
            self.held[self.len] = first;
            self.len += 1;
            bytes = rest;
            let held = self.held;
            let all = &held[..self.len];
            self.len = 0;
            self.decode(all, out);
        }
        self.decode(bytes, out);
    }

    /// The last bytes of all: an unfinished character is none.
    pub(crate) fn finish(&mut self, out: &mut String) {
        if std::mem::take(&mut self.len) > 0 {
            out.push('\u{fffd}');
        }
    }

    fn decode(&mut self, mut bytes: &[u8], out: &mut String) {
        loop {
            let error = match std::str::from_utf8(bytes) {
                Ok(text) => return out.push_str(text),
                Err(error) => error,
            };
            let (good, bad) = bytes.split_at(error.valid_up_to());
            out.push_str(std::str::from_utf8(good).unwrap_or_default());
            match error.error_len() {
                Some(len) => {
                    out.push('\u{fffd}');
                    bytes = &bad[len..];
                }
                // At most three bytes: the beginning of a character.
                None => {
                    self.held[..bad.len()].copy_from_slice(bad);
                    self.len = bad.len();
                    return;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_read_as_the_whole() {
        let bytes = b"a\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80b\xff\xe2\x82A\xf0\x9fB\xc0\x80z\xed\xa0\x80";
        let whole = String::from_utf8_lossy(bytes);
        for piece in 1..bytes.len() {
            let (mut lossy, mut out) = (Lossy::default(), String::new());
            for bytes in bytes.chunks(piece) {
                lossy.feed(bytes, &mut out);
            }
            lossy.finish(&mut out);
            assert_eq!(out, whole, "{piece}");
        }
    }
}

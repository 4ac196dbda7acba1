//! The second factor at the user's side (RFC 6238, as `otpauth://` addresses have it): the square to scan, and codes for
//! scripts that keep the secret themselves. Nothing is sent from here.

use crate::error::ClientError;
use qrcodegen::{QrCode, QrCodeEcc};
use ring::hmac;
use zeroize::Zeroizing;

/// A second factor's secret, with the address that it came in.
pub struct Factor {
    address: Zeroizing<String>,
    secret: Zeroizing<Vec<u8>>,
    digits: u32,
    period: u64,
}

impl Factor {
    /// From `otpauth://totp/…?secret=…`.
    pub fn parse(address: &str) -> Result<Factor, ClientError> {
        let address = address.trim();
        let wrong = |why: &str| {
            ClientError::Refused(format!("this is no otpauth:// address of a second factor: {why}"))
        };
        let query = address
            .strip_prefix("otpauth://totp/")
            .and_then(|rest| rest.split_once('?'))
            .map(|(_, query)| query)
            .ok_or_else(|| wrong("it does not begin with otpauth://totp/"))?;
        let parameter = |name: &str| {
            query
                .split('&')
                .filter_map(|pair| pair.split_once('='))
                .find(|(key, _)| *key == name)
                .map(|(_, value)| value)
        };
        let secret = parameter("secret")
            .and_then(base32)
            .ok_or_else(|| wrong("its secret is not base32"))?;
        if parameter("algorithm").is_some_and(|a| a != "SHA1") {
            return Err(wrong("its algorithm is not SHA1"));
        }
        let number = |name, default| parameter(name).map_or(Some(default), |n| n.parse().ok());
        let digits = number("digits", 6)
            .filter(|n| (6..=8).contains(n))
            .ok_or_else(|| wrong("its digits"))?;
        let period = number("period", 30)
            .filter(|n| (1..=300).contains(n))
            .ok_or_else(|| wrong("its period"))?;
        Ok(Factor {
            address: Zeroizing::new(address.to_owned()),
            secret,
            digits,
            period: period.into(),
        })
    }

    /// The address as it came.
    #[must_use]
    pub fn address(&self) -> &str {
        &self.address
    }

    /// The code at this moment (RFC 6238 section 4, RFC 4226 section 5.3).
    #[must_use]
    pub fn code(&self, now: u64) -> Zeroizing<String> {
        let key = hmac::Key::new(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, &self.secret);
        let tag = hmac::sign(&key, &(now / self.period).to_be_bytes());
        let tag = tag.as_ref();
        let at = usize::from(tag[tag.len() - 1] & 15);
        let number = u32::from_be_bytes([tag[at] & 127, tag[at + 1], tag[at + 2], tag[at + 3]]);
        Zeroizing::new(format!(
            "{:0width$}",
            number % 10u32.pow(self.digits),
            width = self.digits as usize
        ))
    }

    /// Whether an authenticator whose clock is nearly right could show this code now.
    #[must_use]
    pub fn could_show(&self, code: &str, now: u64) -> bool {
        let times = [now.saturating_sub(self.period), now, now + self.period];
        times.iter().any(|at| self.code(*at).as_str() == code.trim())
    }

    /// The secret as it is typed into an authenticator by hand, in groups of four.
    #[must_use]
    pub fn by_hand(&self) -> Zeroizing<String> {
        let query = self.address.split_once("secret=").map_or("", |(_, rest)| rest);
        let secret = query.split('&').next().unwrap_or_default();
        let mut text = Zeroizing::new(String::with_capacity(secret.len() * 2));
        for (at, letter) in secret.chars().enumerate() {
            if at > 0 && at % 4 == 0 {
                text.push(' ');
            }
            text.push(letter);
        }
        text
    }

    /// The code to show for a script that showed one before: one is good once, so the next is taken where this one was
    /// shown (the service takes codes of the step to come). The answer is the code, its step, and the seconds to wait.
    #[must_use]
    pub fn next_code(&self, now: u64, shown: u64) -> (Zeroizing<String>, u64, u64) {
        let step = (now / self.period).max(shown + 1);
        let begins = step.saturating_sub(1) * self.period;
        (self.code(step * self.period), step, begins.saturating_sub(now))
    }

    /// The square to scan, two rows of it in each line. With `colours` it is black on white whatever the terminal's are.
    #[must_use]
    pub fn square(&self, colours: bool) -> Zeroizing<String> {
        // More than the code's standard allows to leave out, as little as readers take.
        const MARGIN: i32 = 2;
        let Ok(code) = QrCode::encode_text(&self.address, QrCodeEcc::Low) else {
            return Zeroizing::new(String::new());
        };
        let rows = code.size() + 2 * MARGIN;
        let mut out = Zeroizing::new(String::with_capacity(
            usize::try_from(rows * rows * 3).unwrap_or(0),
        ));
        for y in (0..rows).step_by(2) {
            if colours {
                out.push_str("\x1b[38;5;16;48;5;231m");
            }
            for x in 0..rows {
                let dark = |y: i32| code.get_module(x - MARGIN, y - MARGIN);
                // Without colours a terminal is taken to write light on dark.
                let marks = match colours {
                    true => (dark(y), dark(y + 1)),
                    false => (!dark(y), !dark(y + 1) && y + 1 < rows),
                };
                out.push(match marks {
                    (true, true) => '█',
                    (true, false) => '▀',
                    (false, true) => '▄',
                    (false, false) => ' ',
                });
            }
            out.push_str(if colours { "\x1b[0m\n" } else { "\n" });
        }
        out
    }
}

/// RFC 4648 section 6, without padding.
fn base32(text: &str) -> Option<Zeroizing<Vec<u8>>> {
    let mut out = Zeroizing::new(Vec::with_capacity(text.len()));
    let (mut bits, mut count) = (0u32, 0);
    for letter in text.trim_end_matches('=').bytes() {
        let value = match letter {
            b'A'..=b'Z' => letter - b'A',
            b'a'..=b'z' => letter - b'a',
            b'2'..=b'7' => letter - b'2' + 26,
            _ => return None,
        };
        bits = (bits << 5 | u32::from(value)) & 0xffff;
        count += 5;
        if count >= 8 {
            count -= 8;
            out.push((bits >> count).to_le_bytes()[0]);
        }
    }
    (!out.is_empty()).then_some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 6238 appendix B: the secret is "12345678901234567890".
    const ADDRESS: &str = "otpauth://totp/c:alice?secret=GEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQ&digits=8&issuer=c";

    #[test]
    fn codes_are_those_of_the_rfc() {
        let factor = Factor::parse(ADDRESS).expect("an address");
        for (now, code) in [
            (59, "94287082"),
            (1_111_111_109, "07081804"),
            (1_111_111_111, "14050471"),
            (1_234_567_890, "89005924"),
            (2_000_000_000, "69279037"),
        ] {
            assert_eq!(factor.code(now).as_str(), code);
        }
        assert!(
            factor.by_hand().starts_with("GEZD GNBV "),
            "{}",
            factor.by_hand().as_str()
        );
    }

    #[test]
    fn a_script_shows_no_code_twice() {
        let factor = Factor::parse(ADDRESS).expect("an address");
        for (now, shown, step, wait) in [
            (59, 0, 1, 0),
            (59, 1, 2, 0),
            (59, 2, 3, 1),
            (30, 2, 3, 30),
            (300, 2, 10, 0),
        ] {
            let (code, taken, waits) = factor.next_code(now, shown);
            assert_eq!((taken, waits), (step, wait), "{now} {shown}");
            assert_eq!(code, factor.code(step * 30));
        }
    }

    #[test]
    fn addresses_that_are_none_are_refused_without_their_secret() {
        for bad in [
            "",
            "https://totp/x?secret=AAAA",
            "otpauth://hotp/x?secret=AAAA",
            "otpauth://totp/x",
            "otpauth://totp/x?secret=0189",
            "otpauth://totp/x?secret=",
            "otpauth://totp/x?secret=MZXW6YTB&digits=5",
            "otpauth://totp/x?secret=MZXW6YTB&period=0",
            "otpauth://totp/x?secret=MZXW6YTB&algorithm=MD5",
        ] {
            let error = Factor::parse(bad).err().expect(bad).to_string();
            assert!(!error.contains("MZXW6YTB"), "{error}");
        }
        assert!(
            Factor::parse("otpauth://totp/x?secret=MZXW6YTB").is_ok(),
            "control"
        );
    }

    #[test]
    fn the_square_is_square() {
        let factor = Factor::parse(ADDRESS).expect("an address");
        let square = factor.square(false);
        let widths: Vec<usize> = square.lines().map(|l| l.chars().count()).collect();
        assert!(widths.iter().all(|w| *w == widths[0]), "{widths:?}");
        assert_eq!(widths.len(), widths[0].div_ceil(2));
        assert!(factor.square(true).contains("\x1b[0m\n"));
    }

    #[test]
    fn a_code_that_was_mistyped_is_known_before_it_is_sent() {
        let factor =
            Factor::parse("otpauth://totp/a:b?secret=GEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQ").expect("read");
        for at in [970, 1000, 1030] {
            assert!(factor.could_show(&factor.code(at), 1000), "{at}");
        }
        assert!(!factor.could_show(&factor.code(1090), 1000), "too far ahead");
        assert!(!factor.could_show("", 1000));
    }
}

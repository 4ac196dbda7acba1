//! The second factor: codes by time (RFC 6238: SHA-1, 6 digits, 30 s), each good once. It keeps nothing: whoever asks
//! brings the last step that was used and keeps the new one.

use crate::secret::{NoRandom, random};
use ring::hmac;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::fmt::Write;
use zeroize::{Zeroize, Zeroizing};

/// Seconds of a step.
pub const STEP: u64 = 30;
/// By how many steps a clock may be off (RFC 6238 §5.2).
pub const SKEW: u64 = 1;
/// RFC 4226 §4 recommends 160 bits.
const LENGTH: usize = 20;
const DIGITS: usize = 6;

/// What both sides know.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seed([u8; LENGTH]);

impl Seed {
    /// A new one.
    pub fn fresh() -> Result<Seed, NoRandom> {
        let mut seed = Seed([0; LENGTH]);
        random(&mut seed.0)?;
        Ok(seed)
    }

    /// What an authenticator reads (from a QR code): names and seed.
    pub fn otpauth(&self, cluster: &str, user: &str) -> Zeroizing<String> {
        Zeroizing::new(format!(
            "otpauth://totp/fleetgate%20{cluster}:{user}?secret={}&issuer=fleetgate%20{cluster}&algorithm=SHA1\
             &digits={DIGITS}&period={STEP}",
            *self.base32()
        ))
    }

    /// The code of this second.
    #[cfg(test)]
    pub fn code(&self, seconds: u64) -> Zeroizing<String> {
        Zeroizing::new(format!("{:0DIGITS$}", self.number(seconds / STEP)))
    }

    /// The step that `code` belongs to, if it is one of now and later than `used`, the last that was.
    pub fn step(&self, code: &str, seconds: u64, used: u64) -> Option<u64> {
        let given = parse(code)?;
        let now = seconds / STEP;
        // All are compared, whichever is right.
        (now.saturating_sub(SKEW)..=now + SKEW)
            .filter(|&step| self.number(step) ^ given == 0 && step > used)
            .fold(None, |_, step| Some(step))
    }

    /// RFC 4226 §5.3.
    fn number(&self, step: u64) -> u32 {
        let key = hmac::Key::new(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, &self.0);
        let tag = hmac::sign(&key, &step.to_be_bytes());
        let tag = tag.as_ref();
        let at = usize::from(tag[tag.len() - 1] & 0xf);
        let word = u32::from_be_bytes([tag[at], tag[at + 1], tag[at + 2], tag[at + 3]]);
        (word & 0x7fff_ffff) % 1_000_000
    }

    fn base32(&self) -> Zeroizing<String> {
        const ALPHABET: &[u8; 32] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";
        let mut out = Zeroizing::new(String::with_capacity(LENGTH * 8 / 5));
        for five in self.0.chunks_exact(5) {
            let bits = five.iter().fold(0u64, |sum, &b| sum << 8 | u64::from(b));
            for i in (0..8).rev() {
                let _ = out.write_char(ALPHABET[(bits >> (5 * i) & 31) as usize].into());
            }
        }
        out
    }
}

impl Drop for Seed {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

impl fmt::Debug for Seed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Seed(…)")
    }
}

/// Six digits; people write a space in the middle.
fn parse(code: &str) -> Option<u32> {
    if code.len() > 2 * DIGITS {
        return None;
    }
    let digits: Zeroizing<String> = Zeroizing::new(code.chars().filter(|c| *c != ' ').collect());
    let all = digits.len() == DIGITS && digits.bytes().all(|b| b.is_ascii_digit());
    all.then(|| digits.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seed() -> Seed {
        Seed(*b"12345678901234567890")
    }

    #[test]
    fn codes_are_those_of_rfc_6238() {
        // Appendix B, the last six of its eight digits.
        let table = [
            (59, "287082"),
            (1_111_111_109, "081804"),
            (1_111_111_111, "050471"),
            (1_234_567_890, "005924"),
            (2_000_000_000, "279037"),
            (20_000_000_000, "353130"),
        ];
        for (seconds, code) in table {
            assert_eq!(*seed().code(seconds), code);
        }
        let address = seed().otpauth("orchard", "ada");
        assert!(
            address.contains("secret=GEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQ&"),
            "{}",
            *address
        );
    }

    #[test]
    fn a_code_is_good_around_its_time_and_once() {
        let now = 1_000_000_000;
        let step = now / STEP;
        let code = |seconds: u64| seed().code(seconds);
        let table = [
            (code(now), 0, Some(step)),
            (code(now - STEP), 0, Some(step - 1)),
            (code(now + STEP), 0, Some(step + 1)),
            (code(now - 2 * STEP), 0, None),
            (code(now + 2 * STEP), 0, None),
            (code(now), step - 1, Some(step)),
            (code(now), step, None),
            (code(now - STEP), step, None),
        ];
        for (code, used, step) in table {
            assert_eq!(seed().step(&code, now, used), step, "{} after {used}", *code);
        }
        let code = code(now);
        assert!(
            seed()
                .step(&format!("{} {}", &code[..3], &code[3..]), now, 0)
                .is_some()
        );
        for bad in [
            "",
            "12345",
            "1234567",
            "abcdef",
            "12345٣",
            "+12345",
            &"1".repeat(1000),
        ] {
            assert_eq!(seed().step(bad, now, 0), None, "{bad:?}");
        }
    }
}

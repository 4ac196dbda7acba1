//! Passwords: argon2id on a thread of its own, a few at a time, the same work whether there is such a user or not. It
//! knows no users; what is stored of a password is given to it. Its memory is lent by `buffers`.

use crate::buffers::{Buffers, Line, NoRoom};
use crate::secret::{NoRandom, random, same};
use argon2::{Algorithm, Argon2, Params, Version};
use base64ct::{Base64, Encoding};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::sync::Arc;
use std::time::Instant;
use zeroize::Zeroizing;

/// The fewest characters of a password.
pub const MIN_CHARACTERS: usize = 12;
/// The most bytes of one.
pub const MAX_BYTES: usize = 1024;
/// argon2id: 19 MB, two passes, one lane (OWASP's first choice).
const MEMORY_KB: u32 = 19 * 1024;
const PASSES: u32 = 2;
const SALT: usize = 16;
const HASH: usize = 32;
/// What is read from the store may not ask for more: the buffers are of this size.
const MAX_MEMORY_KB: u32 = MEMORY_KB;
const MAX_PASSES: u32 = 16;

/// What is kept of a password: with its parameters, so that these can change.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kept {
    memory_kb: u32,
    passes: u32,
    salt: String,
    hash: String,
}

#[cfg(test)]
impl Kept {
    /// Of no known password, and checked with little work: for tests that check very many.
    pub fn light() -> Kept {
        Kept {
            memory_kb: 64,
            passes: 1,
            salt: Base64::encode_string(&[0; SALT]),
            hash: Base64::encode_string(&[0; HASH]),
        }
    }
}

/// Why nothing was worked out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotDone {
    /// Too many wait already.
    Busy,
    /// What is stored cannot be read.
    Damaged,
    /// There was no random salt.
    NoRandom,
}

/// A password that is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unfit {
    /// Too few characters.
    Short,
    /// Too many bytes.
    Long,
    /// It is the user's name, once or several times.
    Name,
}

/// What works them out.
#[derive(Debug)]
pub struct Passwords(Arc<Buffers>);

impl Default for Passwords {
    fn default() -> Passwords {
        Passwords(Buffers::new(MAX_MEMORY_KB as usize))
    }
}

impl Passwords {
    /// What to keep of a new password.
    pub async fn keep(&self, password: Zeroizing<String>, line: Line) -> Result<Kept, NotDone> {
        let mut salt = [0; SALT];
        random(&mut salt).map_err(|NoRandom| NotDone::NoRandom)?;
        let hash = self
            .work(password, salt.to_vec(), MEMORY_KB, PASSES, line)
            .await?;
        Ok(Kept {
            memory_kb: MEMORY_KB,
            passes: PASSES,
            salt: Base64::encode_string(&salt),
            hash: Base64::encode_string(&*hash),
        })
    }

    /// Whether it is the one that `kept` was made of. Without one it takes as long and is not.
    pub async fn fits(
        &self,
        password: Zeroizing<String>,
        kept: Option<&Kept>,
        line: Line,
    ) -> Result<bool, NotDone> {
        let Some(kept) = kept else {
            self.work(password, vec![0; SALT], MEMORY_KB, PASSES, line)
                .await?;
            return Ok(false);
        };
        let salt = Base64::decode_vec(&kept.salt).map_err(|_| NotDone::Damaged)?;
        let expected = Zeroizing::new(Base64::decode_vec(&kept.hash).map_err(|_| NotDone::Damaged)?);
        let hash = self
            .work(password, salt, kept.memory_kb, kept.passes, line)
            .await?;
        Ok(same(&*hash, &expected))
    }

    /// Gives back memory that no password needed for a while.
    pub fn rest(&self) {
        self.0.rest(Instant::now());
    }

    async fn work(
        &self,
        password: Zeroizing<String>,
        salt: Vec<u8>,
        memory_kb: u32,
        passes: u32,
        line: Line,
    ) -> Result<Zeroizing<[u8; HASH]>, NotDone> {
        if memory_kb > MAX_MEMORY_KB || passes > MAX_PASSES || password.len() > MAX_BYTES {
            return Err(NotDone::Damaged);
        }
        let mut lent = self.0.lend(line).await.map_err(|NoRoom| NotDone::Busy)?;
        // The buffer is lent until the end, even when nobody waits for it any more.
        let work = move || {
            let memory = lent.memory().ok_or(NotDone::Busy)?;
            let params = Params::new(memory_kb, passes, 1, Some(HASH)).map_err(|_| NotDone::Damaged)?;
            let mut out = Zeroizing::new([0; HASH]);
            Argon2::new(Algorithm::Argon2id, Version::V0x13, params)
                .hash_password_into_with_memory(password.as_bytes(), &salt, &mut *out, memory)
                .map_err(|_| NotDone::Damaged)?;
            Ok(out)
        };
        tokio::task::spawn_blocking(work)
            .await
            .unwrap_or(Err(NotDone::Busy))
    }
}

/// Whether a password may be one. Long ones are better than strange ones (NIST SP 800-63B §5.1.1.2), so nothing is asked
/// about which characters it has.
pub fn check(password: &str, user: &str) -> Result<(), Unfit> {
    let count = password.chars().count();
    if count < MIN_CHARACTERS {
        return Err(Unfit::Short);
    }
    if password.len() > MAX_BYTES {
        return Err(Unfit::Long);
    }
    let mut chars = password.chars();
    let one_letter = chars.next().is_some_and(|first| chars.all(|c| c == first));
    if one_letter
        || password
            .to_lowercase()
            .replace(&user.to_lowercase(), "")
            .is_empty()
    {
        return Err(Unfit::Name);
    }
    Ok(())
}

impl fmt::Debug for Kept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Kept(…)")
    }
}

impl fmt::Display for Unfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unfit::Short => write!(
                f,
                "the password is too short: {MIN_CHARACTERS} characters are the fewest; a few words do"
            ),
            Unfit::Long => write!(f, "the password is too long: {MAX_BYTES} bytes are the most"),
            Unfit::Name => {
                f.write_str("the password is one letter or your name again and again: take a few words")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::Source;

    fn run<T>(work: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap()
            .block_on(work)
    }

    fn word(text: &str) -> Zeroizing<String> {
        Zeroizing::new(text.to_string())
    }

    fn line() -> Line {
        Line::Source(Source::Local)
    }

    #[test]
    fn the_password_fits_and_no_other() {
        run(async {
            let passwords = Passwords::default();
            let kept = passwords
                .keep(word("correct horse battery"), line())
                .await
                .unwrap();
            assert_eq!(
                passwords
                    .fits(word("correct horse battery"), Some(&kept), line())
                    .await,
                Ok(true)
            );
            assert_eq!(
                passwords
                    .fits(word("correct horse batterz"), Some(&kept), line())
                    .await,
                Ok(false)
            );
            assert_eq!(
                passwords.fits(word("correct horse battery"), None, line()).await,
                Ok(false)
            );
            let again = passwords
                .keep(word("correct horse battery"), line())
                .await
                .unwrap();
            assert!(again.salt != kept.salt && again.hash != kept.hash);
            let damaged = Kept {
                memory_kb: u32::MAX,
                ..kept
            };
            assert_eq!(
                passwords.fits(word("x"), Some(&damaged), line()).await,
                Err(NotDone::Damaged)
            );
        });
    }

    #[test]
    fn passwords_that_are_not_taken() {
        let table = [
            ("elevenchars", Err(Unfit::Short)),
            ("twelve chars", Ok(())),
            ("üüüüüüüüüüü", Err(Unfit::Short)),
            ("aaaaaaaaaaaaaa", Err(Unfit::Name)),
            ("adalovelaceADALOVELACE", Err(Unfit::Name)),
            ("adalovelace!", Ok(())),
        ];
        for (password, said) in table {
            assert_eq!(check(password, "adalovelace"), said, "{password:?}");
        }
        assert_eq!(check(&"ab".repeat(512), "ada"), Ok(()));
        assert_eq!(check(&"ab".repeat(513), "ada"), Err(Unfit::Long));
    }
}

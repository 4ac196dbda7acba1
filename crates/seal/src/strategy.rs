//! The six ways of holding an executable image, best first.

use std::fmt;
use std::str::FromStr;

/// How an image is kept from being altered. The order is the fallback chain's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Strategy {
    /// The package's own file under a versioned path: root's, with the right digest, held by descriptor.
    Installed,
    /// An anonymous file in memory with every seal on it.
    Memfd,
    /// A file seen through an anonymous, read-only overlay that is attached nowhere.
    Overlay,
    /// A file that never had a name (O_TMPFILE), a fresh one for each launch.
    Tmpfile,
    /// A file whose random name was removed before anything was written, a fresh one for each launch.
    Unlinked,
    /// The file itself, unprotected.
    Plain,
}

impl Strategy {
    /// All of them, in the order of the chain.
    pub const ALL: [Strategy; 6] = [
        Strategy::Installed,
        Strategy::Memfd,
        Strategy::Overlay,
        Strategy::Tmpfile,
        Strategy::Unlinked,
        Strategy::Plain,
    ];

    /// What containers may be entered with: root inside can reopen every other kind and write to it.
    pub const CONTAINER: [Strategy; 2] = [Strategy::Memfd, Strategy::Overlay];

    /// The order for a program that is sealed once and runs once: an overlay costs the same at any size.
    pub const ONCE: [Strategy; 4] = [
        Strategy::Overlay,
        Strategy::Memfd,
        Strategy::Tmpfile,
        Strategy::Unlinked,
    ];

    /// The name that people write.
    pub const fn name(self) -> &'static str {
        match self {
            Strategy::Installed => "installed",
            Strategy::Memfd => "memfd",
            Strategy::Overlay => "overlay",
            Strategy::Tmpfile => "tmpfile",
            Strategy::Unlinked => "unlinked",
            Strategy::Plain => "plain",
        }
    }

    /// Whether one image may serve many launches. The others are made anew for each: root may write to them.
    pub const fn is_shared(self) -> bool {
        !matches!(self, Strategy::Tmpfile | Strategy::Unlinked)
    }
}

impl fmt::Display for Strategy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A word that names no strategy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownStrategy(pub String);

impl fmt::Display for UnknownStrategy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "`{}` is no sealing strategy; there are installed, memfd, overlay, tmpfile, unlinked and plain",
            self.0
        )
    }
}

impl std::error::Error for UnknownStrategy {}

impl FromStr for Strategy {
    type Err = UnknownStrategy;
    fn from_str(word: &str) -> Result<Strategy, UnknownStrategy> {
        Strategy::ALL
            .into_iter()
            .find(|s| s.name() == word)
            .ok_or_else(|| UnknownStrategy(word.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_read_back() {
        for strategy in Strategy::ALL {
            assert_eq!(strategy.to_string().parse(), Ok(strategy));
        }
        let error = "memfdd".parse::<Strategy>().expect_err("no such strategy");
        assert!(
            error
                .to_string()
                .starts_with("`memfdd` is no sealing strategy; there are installed, ")
        );
    }
}

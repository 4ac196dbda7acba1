//! How often one tunnel's node has a line written to the proxy's log by what it sends: some at once, then one in a while. It
//! writes nothing itself.

use std::time::{Duration, Instant};

/// Lines at once.
const AT_ONCE: u32 = 10;
/// Then one in so long.
const EVERY: Duration = Duration::from_secs(60);
/// The most of a node's own words in a line.
const MAX_WORDS: usize = 128;

/// The turns of one tunnel.
pub(crate) struct LogTurns {
    left: u32,
    /// When the last one was given back.
    since: Instant,
}

impl LogTurns {
    /// All of them.
    pub(crate) fn new(now: Instant) -> LogTurns {
        LogTurns {
            left: AT_ONCE,
            since: now,
        }
    }

    /// Takes a turn, if there is one.
    pub(crate) fn take(&mut self, now: Instant) -> bool {
        if self.left < AT_ONCE && now.saturating_duration_since(self.since) >= EVERY {
            self.left += 1;
            self.since = now;
        }
        if self.left == 0 {
            return false;
        }
        if self.left == AT_ONCE {
            self.since = now;
        }
        self.left -= 1;
        true
    }
}

/// A node's own words for a line: not longer than they may be.
pub(crate) fn cut(words: &str) -> &str {
    &words[..words.floor_char_boundary(MAX_WORDS)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_at_once_and_then_one_in_a_while() {
        let begin = Instant::now();
        let mut turns = LogTurns::new(begin);
        let mut taken = |after: Duration| (0..100).filter(|_| turns.take(begin + after)).count();
        assert_eq!(taken(Duration::ZERO), 10);
        assert_eq!(taken(EVERY - Duration::from_secs(1)), 0);
        assert_eq!(taken(EVERY), 1);
        assert_eq!(taken(2 * EVERY), 1);
        assert_eq!(cut(&"ä".repeat(100)).len(), 128);
        assert_eq!(cut("short"), "short");
    }
}

//! How many failures a run bears before it begins nothing more.

use fleetgate_policy::Invalid;
use std::fmt;

/// So many failed nodes are enough.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailLimit {
    /// No number is: every node is begun.
    None,
    /// This many.
    Nodes(usize),
    /// This part of all, in percent.
    Percent(u8),
}

impl FailLimit {
    /// `N` or `N%`, of at least one node; an error says what would be right.
    pub fn parse(word: &str) -> Result<FailLimit, Invalid> {
        let limit = match word.strip_suffix('%') {
            Some(percent) => percent
                .parse()
                .ok()
                .filter(|n| (1..=100).contains(n))
                .map(FailLimit::Percent),
            None => word.parse().ok().filter(|n| *n > 0).map(FailLimit::Nodes),
        };
        limit.ok_or_else(|| "a number of nodes above 0, or a part of them as 10%".into())
    }

    /// How many failures of a run on so many nodes are enough; none: no number is.
    #[must_use]
    pub fn of(self, nodes: usize) -> Option<usize> {
        match self {
            FailLimit::None => None,
            FailLimit::Nodes(limit) => Some(limit),
            // A tenth of five is reached by the first.
            FailLimit::Percent(percent) => Some((nodes * usize::from(percent)).div_ceil(100).max(1)),
        }
    }
}

impl fmt::Display for FailLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FailLimit::None => f.write_str("none"),
            FailLimit::Nodes(nodes) => write!(f, "{nodes}"),
            FailLimit::Percent(percent) => write!(f, "{percent}%"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_a_number_or_a_part_of_the_nodes() {
        for (word, nodes, enough) in [
            ("1", 100, Some(1)),
            ("7", 3, Some(7)),
            ("10%", 100, Some(10)),
            ("10%", 101, Some(11)),
            ("10%", 5, Some(1)),
            ("1%", 1, Some(1)),
            ("100%", 8, Some(8)),
        ] {
            let limit = FailLimit::parse(word).expect(word);
            assert_eq!(limit.of(nodes), enough, "{word} of {nodes}");
            assert_eq!(limit.to_string(), word);
        }
        assert_eq!(FailLimit::None.of(9), None);
        for word in [
            "",
            "0",
            "0%",
            "101%",
            "-1",
            "5 %",
            "x",
            "%",
            "1.5%",
            "99999999999999999999",
        ] {
            assert!(FailLimit::parse(word).is_err(), "{word}");
        }
    }
}

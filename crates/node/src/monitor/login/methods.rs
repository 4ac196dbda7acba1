//! Which ways of logging in are open next, where more than one is asked for (sshd's AuthenticationMethods).

use crate::config::trust::LoginMethod;

/// How far somebody is.
#[derive(Clone, Debug)]
pub struct Progress {
    /// What is left of each list; none: any one way is enough.
    lists: Vec<Vec<LoginMethod>>,
    ways: Vec<LoginMethod>,
    failures: u32,
}

impl Progress {
    /// At the start: `required` as configured, `ways` those that are on.
    pub fn new(required: &[Vec<LoginMethod>], ways: &[LoginMethod]) -> Progress {
        Progress {
            lists: required.to_vec(),
            ways: ways.to_vec(),
            failures: 0,
        }
    }

    /// A try came to nothing. True: it was the last of so many.
    pub fn failed(&mut self, most: u32) -> bool {
        self.failures += 1;
        self.failures >= most
    }

    /// Whether a try came to nothing.
    pub fn has_failed(&self) -> bool {
        self.failures > 0
    }

    /// What may be tried now.
    pub fn open(&self) -> Vec<LoginMethod> {
        let next =
            |way: &&LoginMethod| self.lists.is_empty() || self.lists.iter().any(|l| l.first() == Some(way));
        self.ways.iter().filter(next).copied().collect()
    }

    /// A way that is open was gone. True: that was the last.
    pub fn went(&mut self, way: LoginMethod) -> bool {
        if self.lists.is_empty() {
            return true;
        }
        self.lists.retain(|l| l.first() == Some(&way));
        for list in &mut self.lists {
            list.remove(0);
        }
        self.lists.iter().any(Vec::is_empty)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use LoginMethod::{KeyboardInteractive as I, Password as P, PublicKey as K};

    #[test]
    fn tries_are_counted() {
        let mut progress = Progress::new(&[], &[K]);
        let last: Vec<bool> = (0..4).map(|_| progress.failed(3)).collect();
        assert_eq!(last, [false, false, true, true]);
    }

    #[test]
    fn lists_are_gone_through_in_order() {
        let all = [K, P, I];
        for (lists, steps) in [
            (vec![], vec![(vec![K, P, I], K, true)]),
            (vec![vec![K, I]], vec![(vec![K], K, false), (vec![I], I, true)]),
            (
                vec![vec![K, P], vec![K, I], vec![P]],
                vec![(vec![K, P], K, false), (vec![P, I], I, true)],
            ),
            (vec![vec![K, P], vec![P]], vec![(vec![K, P], P, true)]),
            (vec![vec![K, K]], vec![(vec![K], K, false), (vec![K], K, true)]),
        ] {
            let mut progress = Progress::new(&lists, &all);
            for (open, way, last) in steps {
                assert_eq!(progress.open(), open, "{lists:?}");
                assert_eq!(progress.went(way), last, "{lists:?} {way:?}");
            }
        }
    }
}

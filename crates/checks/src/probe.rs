//! The state that is given away of a check: it changes only after several results in a row, as with the thresholds of a Kubernetes
//! probe and the soft states of Nagios. It runs nothing, reads no clock and keeps nothing over a restart.
//!
//! OK is a success, any other state a failure. Before the first success, and before as many failures as it takes, there is no
//! state: a program that has just started knows nothing, and neither says that all is well nor raises an alarm.

use fleetgate_check::verdict::State;

/// How many results in a row it takes. Neither is 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Thresholds {
    /// Failures, until a check that was OK is not.
    pub failure: u32,
    /// Successes, until a check that was not OK is.
    pub success: u32,
}

impl Thresholds {
    /// Each result counts at once.
    pub const ONE: Thresholds = Thresholds {
        failure: 1,
        success: 1,
    };
}

/// Where a check is after a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status {
    /// The state that is given away; none: it is not known yet.
    pub state: Option<State>,
    /// How many results in a row, with this one, were successes or were failures; at most `attempts`.
    pub attempt: u32,
    /// How many of them it takes.
    pub attempts: u32,
}

impl Status {
    /// The state's name; `PENDING`, as with Nagios, where it is not known yet.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.state.map_or("PENDING", State::name)
    }
}

/// The results of a check, as far as the next state depends on them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Probe {
    state: Option<State>,
    /// The last result was a success.
    is_success: bool,
    in_a_row: u32,
}

impl Probe {
    /// Takes the next result.
    pub fn take(&mut self, result: State, thresholds: Thresholds) -> Status {
        let is_success = result == State::Ok;
        self.in_a_row = match is_success == self.is_success {
            true => self.in_a_row.saturating_add(1),
            false => 1,
        };
        self.is_success = is_success;
        let attempts = match is_success {
            true => thresholds.success,
            false => thresholds.failure,
        };
        let counts_at_once = match self.state {
            // Nothing has failed from which it would have to recover.
            None => is_success,
            // From WARNING to CRITICAL, say: it is known to fail.
            Some(state) => (state == State::Ok) == is_success,
        };
        if counts_at_once || self.in_a_row >= attempts {
            self.state = Some(result);
        }
        Status {
            state: self.state,
            attempt: self.in_a_row.min(attempts),
            attempts,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is given away after each result. `o`, `w`, `c` and `u` are states, `.` is none.
    fn given(failure: u32, success: u32, results: &str) -> String {
        let thresholds = Thresholds { failure, success };
        let mut probe = Probe::default();
        let states = results.chars().map(|result| {
            let code = "owcu".find(result).and_then(|at| i32::try_from(at).ok());
            let status = probe.take(State::of_code(code.expect("a state")), thresholds);
            assert!((1..=status.attempts).contains(&status.attempt), "{status:?}");
            status.state.map_or('.', |state| {
                let at = usize::try_from(state.code()).expect("a code");
                char::from(b"owcu"[at])
            })
        });
        states.collect()
    }

    #[test]
    fn a_state_changes_after_so_many_results_in_a_row() {
        for (failure, success, results, wanted) in [
            // Each result counts, as without thresholds.
            (1, 1, "owcuocow", "owcuocow"),
            // Failures: of whatever kind, and the last one says which.
            (3, 1, "occco", "oooco"),
            (3, 1, "owcuwo", "ooouwo"),
            (3, 1, "ouuu", "ooou"),
            // A success between them begins the count anew.
            (3, 1, "occoccocccc", "ooooooooocc"),
            // Successes, until it has recovered; a failure between them counts at once, for it has not.
            (1, 3, "oooc", "oooc"),
            (1, 3, "cooocooo", "cccoccco"),
            (1, 3, "cowoooc", "ccwwwoc"),
            (2, 2, "occooccoo", "ooccoocco"),
            // Before anything is known: one success, or as many failures as it takes.
            (3, 3, "o", "o"),
            (3, 3, "ccc", "..c"),
            (3, 3, "ccoccc", "..oooc"),
            (3, 3, "cwu", "..u"),
        ] {
            let states = given(failure, success, results);
            assert_eq!(states, wanted, "{failure} {success} {results}");
        }
    }

    #[test]
    fn a_result_says_how_many_of_how_many() {
        let thresholds = Thresholds {
            failure: 3,
            success: 2,
        };
        let mut probe = Probe::default();
        for (result, name, attempt, attempts) in [
            (State::Warning, "PENDING", 1, 3),
            (State::Ok, "OK", 1, 2),
            (State::Critical, "OK", 1, 3),
            (State::Unknown, "OK", 2, 3),
            (State::Critical, "CRITICAL", 3, 3),
            (State::Critical, "CRITICAL", 3, 3),
            (State::Ok, "CRITICAL", 1, 2),
            (State::Ok, "OK", 2, 2),
            (State::Ok, "OK", 2, 2),
        ] {
            let status = probe.take(result, thresholds);
            assert_eq!(
                (status.name(), status.attempt, status.attempts),
                (name, attempt, attempts)
            );
        }
        // The thresholds are lowered meanwhile, by a file that was read anew.
        let mut probe = Probe::default();
        probe.take(State::Ok, thresholds);
        probe.take(State::Critical, thresholds);
        let status = probe.take(State::Critical, Thresholds::ONE);
        assert_eq!(
            (status.name(), status.attempt, status.attempts),
            ("CRITICAL", 1, 1)
        );
    }
}

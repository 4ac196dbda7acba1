//! What the monitoring is told: the plugin's own code where it has one; else UNKNOWN and one line that says why.

use crate::options::Options;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use fleetgate_sys::file;

/// The longest line.
const MAX_LINE: usize = 1024;
/// As much of what a check wrote to standard error is passed on.
pub const MAX_ERRORS: usize = 8192;

/// The states of the monitoring plugins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// 0.
    Ok,
    /// 1.
    Warning,
    /// 2.
    Critical,
    /// 3.
    Unknown,
}

impl State {
    const ALL: [(State, &'static str); 4] = [
        (State::Ok, "OK"),
        (State::Warning, "WARNING"),
        (State::Critical, "CRITICAL"),
        (State::Unknown, "UNKNOWN"),
    ];

    /// By its name in any case, or its number.
    pub fn named(text: &str) -> Option<State> {
        let by_name = |(at, (_, name)): &(usize, &(State, &str))| {
            text.eq_ignore_ascii_case(name) || text.parse() == Ok(*at)
        };
        let found = State::ALL.iter().enumerate().find(by_name);
        found.map(|(_, (state, _))| *state)
    }

    /// By its exit code; any other code is UNKNOWN.
    pub const fn of_code(code: i32) -> State {
        match code {
            0 => State::Ok,
            1 => State::Warning,
            2 => State::Critical,
            _ => State::Unknown,
        }
    }

    /// The exit code.
    pub const fn code(self) -> i32 {
        match self {
            State::Ok => 0,
            State::Warning => 1,
            State::Critical => 2,
            State::Unknown => 3,
        }
    }

    /// Its name, as plugins print it.
    pub const fn name(self) -> &'static str {
        match self {
            State::Ok => "OK",
            State::Warning => "WARNING",
            State::Critical => "CRITICAL",
            State::Unknown => "UNKNOWN",
        }
    }
}

/// How a check came out.
#[derive(Debug, PartialEq, Eq)]
pub struct Verdict {
    code: i32,
    /// The line for standard output; none: the plugin's own words are there.
    line: Option<String>,
    /// For standard error.
    errors: Vec<u8>,
}

impl Verdict {
    /// Nothing came of it.
    pub fn unknown(why: String) -> Verdict {
        Verdict::of_state(State::Unknown, why)
    }

    /// This state, with the reason.
    pub fn of_state(state: State, why: String) -> Verdict {
        Verdict {
            code: state.code(),
            line: Some(one_line(&format!("{} - {why}", state.name()))),
            errors: Vec::new(),
        }
    }

    /// The far side's exit code, and what it wrote to standard error. 0 to 3 are the plugin's; anything else means that none ran
    /// to its end.
    pub fn ended(code: i32, errors: Vec<u8>) -> Verdict {
        if (0..=3).contains(&code) {
            return Verdict {
                code,
                line: None,
                errors,
            };
        }
        let first = errors
            .split(|b| *b == b'\n')
            .find(|line| !line.trim_ascii().is_empty());
        let why = match (first, code) {
            // The node's or the client's own reason; no program ended with that code.
            (Some(line), 255) => String::from_utf8_lossy(line.trim_ascii()).into_owned(),
            (Some(line), _) => format!(
                "{} (exit code {code})",
                String::from_utf8_lossy(line.trim_ascii())
            ),
            (None, 126 | 127) => format!("the check's program cannot be executed (exit code {code})"),
            (None, 255) => "it was ended by a signal, or with exit code 255".into(),
            (None, code) => format!("exit code {code}, which is none of a plugin's"),
        };
        Verdict::unknown(why)
    }

    /// With the names of the node, of its container and of the check before the reason.
    #[must_use]
    pub fn of(mut self, options: &Options) -> Verdict {
        let mut place = options.host.clone();
        if let Some(container) = &options.container {
            place.push(b'+');
            place.extend_from_slice(container);
        }
        let whom = format!(
            "{} {}: ",
            String::from_utf8_lossy(&place),
            String::from_utf8_lossy(&options.command)
        );
        if let Some(line) = &mut self.line
            && let Some(at) = line.find(" - ")
        {
            line.insert_str(at + 3, &one_line(&whom));
        }
        self
    }

    /// The state, and the line for standard output, if the plugin's own words are not all that is said.
    pub fn into_parts(self) -> (State, Option<String>) {
        (State::of_code(self.code), self.line)
    }

    /// Says it; the exit code.
    pub fn print(self) -> i32 {
        if let Some(mut line) = self.line {
            line.push('\n');
            let _ = file::write_all(1, line.as_bytes());
        }
        if !self.errors.is_empty() {
            let _ = file::write_all(2, &self.errors);
        }
        self.code
    }
}

/// A text that was asked for.
pub fn say(text: &str) -> i32 {
    match file::write_all(1, text.as_bytes()) {
        Ok(()) => 0,
        Err(_) => State::Unknown.code(),
    }
}

/// Without what would begin another line, performance data, or a terminal's sequence.
fn one_line(text: &str) -> String {
    let plain = |c: char| match c {
        '|' => '/',
        c if c.is_control() => ' ',
        c => c,
    };
    let mut line: String = text.trim_end().chars().map(plain).collect();
    line.truncate(line.floor_char_boundary(MAX_LINE));
    if text.ends_with(' ') {
        line.push(' ');
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plugins_codes_are_its_own_and_others_are_unknown() {
        for code in 0..=3 {
            let verdict = Verdict::ended(code, b"odd\n".to_vec());
            assert_eq!((verdict.code, verdict.line.as_deref()), (code, None));
            assert_eq!(verdict.errors, b"odd\n");
        }
        for (code, errors, line) in [
            (
                255,
                &b"\n  \nrefused | by\x1b[2J rule\nmore"[..],
                "UNKNOWN - refused / by [2J rule",
            ),
            (
                255,
                b"",
                "UNKNOWN - it was ended by a signal, or with exit code 255",
            ),
            (
                127,
                b"",
                "UNKNOWN - the check's program cannot be executed (exit code 127)",
            ),
            (4, b"", "UNKNOWN - exit code 4, which is none of a plugin's"),
            (-1, b"", "UNKNOWN - exit code -1, which is none of a plugin's"),
        ] {
            let verdict = Verdict::ended(code, errors.to_vec());
            assert_eq!((verdict.code, verdict.line.as_deref()), (3, Some(line)));
        }
    }

    #[test]
    fn states_are_known_by_name_and_number() {
        assert_eq!(State::named("critical"), Some(State::Critical));
        assert_eq!(State::named("1"), Some(State::Warning));
        assert_eq!(
            (State::named("4"), State::named(""), State::named("WARN")),
            (None, None, None)
        );
    }

    #[test]
    fn a_long_reason_is_cut() {
        let verdict = Verdict::unknown("ä".repeat(5000));
        let line = verdict.line.expect("a line");
        assert!(line.len() <= MAX_LINE && line.starts_with("UNKNOWN - ä"));
    }
}

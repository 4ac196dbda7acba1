//! The log that `FLEETGATE_SEAL_LOG` names, for callers of `seal run` that cannot add a flag: which strategy was taken, and why
//! each better one was refused. It never stops the run: a log that cannot be had is told on standard error, once.

use fleetgate_policy::text;
use fleetgate_sys::file::flags::{O_APPEND, O_CREAT, O_NOCTTY, O_NOFOLLOW, O_NONBLOCK, O_WRONLY};
use fleetgate_sys::{Errno, clock, exe, file, process};
use std::ffi::{CString, OsString};
use std::io::Write;
use std::os::unix::ffi::OsStringExt;

/// The variable. The program inherits it, so that runs inside of it log too.
pub const VARIABLE: &str = "FLEETGATE_SEAL_LOG";

/// The longest line, its end included.
const MAX_LINE: usize = 4096;
/// The largest file that is appended to.
const MAX_FILE: u64 = 16 << 20;
/// The resource whose limit kills a process that writes more to a file.
const RLIMIT_FSIZE: u32 = 1;

/// Where lines go.
#[derive(Debug, PartialEq, Eq)]
pub struct Log(To);

#[derive(Debug, PartialEq, Eq)]
enum To {
    Nothing,
    StandardError,
    File(CString),
}

impl Log {
    /// What the variable says; nothing where its author has not the rights that this process has.
    pub fn of(value: Option<OsString>, raised: bool) -> Log {
        let value = value.unwrap_or_default().into_vec();
        match value.as_slice() {
            _ if raised => Log(To::Nothing),
            b"" => Log(To::Nothing),
            b"-" | b"stderr" => Log(To::StandardError),
            [b'/', ..] => Log(CString::new(value).map_or(To::Nothing, To::File)),
            other => {
                let shown = String::from_utf8_lossy(other);
                told(&format!(
                    "`{shown}` is neither an absolute path nor `-`: a program that runs in another directory would log elsewhere"
                ));
                Log(To::Nothing)
            }
        }
    }

    /// Whether lines are for standard error, where `--verbose` has them.
    pub fn is_standard_error(&self) -> bool {
        self.0 == To::StandardError
    }

    /// Appends these as one line to the file, if it is one.
    pub fn append<'a>(&mut self, parts: impl Iterator<Item = &'a String>) {
        let To::File(path) = &self.0 else { return };
        let parts: Vec<&str> = parts.map(String::as_str).collect();
        if let Err(why) = append(path, &line(&parts.join("; "))) {
            told(&format!("{}: {why}", path.to_string_lossy()));
            self.0 = To::Nothing;
        }
    }
}

/// `TIME fleetgate[PID]: TEXT`, cut to what is written in one piece.
fn line(text: &str) -> String {
    let time = clock::rfc3339(clock::wall(), 3);
    let mut line = format!("{time} fleetgate[{}]: {}", process::id(), text::printable(text));
    line.truncate(line.floor_char_boundary(MAX_LINE - 1));
    line.push('\n');
    line
}

/// One write, so that lines of processes that log at once do not mix.
fn append(path: &CString, line: &str) -> Result<(), String> {
    // A pipe that nobody reads would hold us up; it is refused below, as all but files are.
    let flags = O_WRONLY | O_APPEND | O_CREAT | O_NOFOLLOW | O_NOCTTY | O_NONBLOCK;
    let fd = file::openat(file::CWD, path, flags, 0o600).map_err(|errno| match errno {
        Errno::ELOOP => "it is a link, and the log is not written through one".to_owned(),
        errno => errno.to_string(),
    })?;
    let seen = exe::identity(&fd).map_err(|e| e.to_string())?;
    if !seen.is_file() {
        return Err("it is no file; standard error is `-`".to_owned());
    }
    if seen.size >= MAX_FILE {
        return Err(format!(
            "it has {} MB, and grows no further: remove it",
            MAX_FILE >> 20
        ));
    }
    let limit = process::limit(RLIMIT_FSIZE).map_err(|e| e.to_string())?;
    if seen.size + line.len() as u64 > limit.soft {
        return Err("the limit of a file's size (RLIMIT_FSIZE) does not allow another line".to_owned());
    }
    match file::write(fd.raw(), line.as_bytes()) {
        Ok(written) if written == line.len() => Ok(()),
        Ok(_) => Err("only a part of the line could be written".to_owned()),
        Err(errno) => Err(errno.to_string()),
    }
}

fn told(why: &str) {
    let line = format!("fleetgate: {VARIABLE} is not used: {}\n", text::printable(why));
    // It may be closed, and the program does not depend on it.
    let _ = std::io::stderr().write_all(line.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_variable_is_a_path_or_standard_error() {
        for (value, to) in [
            ("", To::Nothing),
            ("-", To::StandardError),
            ("stderr", To::StandardError),
            ("/a/b", To::File(c"/a/b".into())),
            ("a/b", To::Nothing),
        ] {
            assert_eq!(Log::of(Some(value.into()), false), Log(to), "{value}");
            assert_eq!(Log::of(Some(value.into()), true), Log(To::Nothing), "{value}");
        }
        assert_eq!(Log::of(None, false), Log(To::Nothing));
    }

    #[test]
    fn a_line_is_bounded_and_stays_one() {
        let short = line("a\nb");
        assert!(short.ends_with(": a\u{fffd}b\n"), "{short}");
        let long = line(&"\u{e4}".repeat(MAX_LINE));
        assert!(
            long.len() <= MAX_LINE && long.ends_with("\u{e4}\n"),
            "{}",
            long.len()
        );
    }
}

//! The command line of the stand-alone server: OpenSSH's, as far as it makes sense here.

use super::protocol::{AllowedOperations, OPERATIONS};
use alloc::ffi::CString;
use alloc::string::String;

/// What `-h` prints, and every refusal.
pub const USAGE: &str = "\
usage: fleetgate-session sftp [-ehR] [-d directory] [-P denied] [-p allowed] [-u umask]
       fleetgate-session sftp -Q requests
Serves SFTP version 3 on standard input and output.
  -d  start in this directory; %d is the home directory, %u the user, %% a percent sign
  -e  tell every operation on standard error
  -P  refuse these requests (comma-separated; -Q requests lists them)
  -p  refuse all others
  -R  refuse whatever changes anything
  -u  the umask, in octal
";

/// What the command line asks for.
#[derive(Debug, PartialEq, Eq)]
pub enum CommandLine {
    /// To serve.
    Serve(Options),
    /// The names of all requests.
    Requests,
    /// The usage.
    Help,
}

/// How to serve.
#[derive(Debug, PartialEq, Eq)]
pub struct Options {
    /// Where to start, not expanded yet.
    pub start: Option<CString>,
    /// Tell operations on standard error.
    pub tell: bool,
    /// What may be asked.
    pub allowed: AllowedOperations,
    /// Refuse changes.
    pub read_only: bool,
    /// The umask.
    pub umask: Option<u32>,
}

/// Reads the arguments. Letters may stand together, a value behind its letter or as the next argument.
pub fn read(args: &[&[u8]]) -> Result<CommandLine, String> {
    let mut options = Options {
        start: None,
        tell: false,
        allowed: AllowedOperations::ALL,
        read_only: false,
        umask: None,
    };
    let (mut allowed, mut denied) = (None, AllowedOperations::NONE);
    let mut args = args.iter().copied();
    while let Some(arg) = args.next() {
        let Some(mut letters) = arg.strip_prefix(b"-").filter(|l| !l.is_empty()) else {
            return Err(alloc::format!("{} is not an option", text(arg)));
        };
        while let Some((&letter, rest)) = letters.split_first() {
            letters = rest;
            if !b"dfluPpQ".contains(&letter) {
                match letter {
                    b'e' => options.tell = true,
                    b'R' => options.read_only = true,
                    b'h' => return Ok(CommandLine::Help),
                    _ => return Err(alloc::format!("there is no option -{}", letter as char)),
                }
                continue;
            }
            let value = match core::mem::take(&mut letters) {
                b"" => args
                    .next()
                    .ok_or_else(|| alloc::format!("-{} needs a value", letter as char))?,
                value => value,
            };
            match letter {
                b'd' => options.start = CString::new(value).ok(),
                b'u' => options.umask = Some(umask(value)?),
                b'P' => denied = set(value)?,
                b'p' => allowed = Some(set(value)?),
                b'Q' if value == b"requests" => return Ok(CommandLine::Requests),
                b'Q' => return Err(alloc::format!("-Q lists requests, not {}", text(value))),
                _ => {
                    return Err(String::from(
                        "this server writes no system log (-f, -l): -e tells operations on standard error",
                    ));
                }
            }
        }
    }
    options.allowed = OPERATIONS
        .iter()
        .map(|d| d.operation)
        .filter(|o| allowed.is_none_or(|a| a.permits(*o)) && !denied.permits(*o))
        .fold(AllowedOperations::NONE, AllowedOperations::with);
    Ok(CommandLine::Serve(options))
}

fn umask(value: &[u8]) -> Result<u32, String> {
    let digits = core::str::from_utf8(value).ok();
    let mask = digits.and_then(|d| u32::from_str_radix(d, 8).ok());
    mask.filter(|m| *m <= 0o777)
        .ok_or_else(|| alloc::format!("{} is no umask: three octal digits are", text(value)))
}

/// A list of names. An unknown one is an error: a misspelt denial would deny nothing.
fn set(value: &[u8]) -> Result<AllowedOperations, String> {
    let mut all = AllowedOperations::NONE;
    for name in value.split(|b| *b == b',') {
        let known = OPERATIONS.iter().find(|d| d.name.as_bytes() == name);
        let known = known
            .ok_or_else(|| alloc::format!("there is no request {}: -Q requests lists them", text(name)))?;
        all = all.with(known.operation);
    }
    Ok(all)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sftp::protocol::Operation;

    fn serve(args: &[&str]) -> Result<Options, String> {
        let args: alloc::vec::Vec<&[u8]> = args.iter().map(|a| a.as_bytes()).collect();
        match read(&args)? {
            CommandLine::Serve(options) => Ok(options),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn options_are_read_as_getopt_reads_them() {
        let options = serve(&["-eR", "-u077", "-d", "/srv/%u", "-P", "remove,rmdir"]).unwrap();
        assert!(options.tell && options.read_only);
        assert_eq!(options.umask, Some(0o077));
        assert_eq!(options.start.as_deref(), Some(c"/srv/%u"));
        assert!(!options.allowed.permits(Operation::Remove) && options.allowed.permits(Operation::Mkdir));
        let options = serve(&["-p", "read,open,close", "-P", "read"]).unwrap();
        assert!(options.allowed.permits(Operation::Open) && !options.allowed.permits(Operation::Read));
        assert!(!options.allowed.permits(Operation::Write));
        assert_eq!(read(&[b"-Q", b"requests"]), Ok(CommandLine::Requests));
        assert_eq!(read(&[b"-h"]), Ok(CommandLine::Help));
    }

    #[test]
    fn refusals_name_the_thing_and_the_remedy() {
        for (args, says) in [
            (&["-x"][..], "there is no option -x"),
            (&["-u"], "-u needs a value"),
            (&["-u", "8"], "8 is no umask: three octal digits are"),
            (&["-u7777"], "7777 is no umask: three octal digits are"),
            (&["-P", "red"], "there is no request red: -Q requests lists them"),
            (&["here"], "here is not an option"),
            (
                &["-lINFO"],
                "this server writes no system log (-f, -l): -e tells operations on standard error",
            ),
        ] {
            assert_eq!(serve(args).unwrap_err(), says, "{args:?}");
        }
    }
}

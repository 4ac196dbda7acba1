//! The program itself: its path, its arguments, and its execution.

use super::environment::Variables;
use super::paths::{joined, shell};
use super::{NO_SHELL, Stop, messages, reason};
use crate::order::failure;
use alloc::ffi::CString;
use alloc::vec::Vec;
use fleetgate_sys::spawn::Strings;
use fleetgate_sys::{Errno, exec};
use fleetgate_wire::Reason;
use fleetgate_wire::exec::{Exec, Program};

/// A program about to be executed.
pub struct Executable {
    /// Where it may be, first choice first.
    paths: Vec<CString>,
    argv: Vec<CString>,
    /// A program named by itself ends with the codes that shells use when it cannot be executed: 127 and 126.
    direct: bool,
}

/// The program that the order asks for.
pub fn of(order: &Exec, environment: &Variables) -> Result<Executable, Stop> {
    let shell = shell(order);
    let name = shell.to_bytes().rsplit(|b| *b == b'/').next().unwrap_or_default();
    let own = |bytes: &[u8]| CString::new(bytes).unwrap_or_default();
    Ok(match &order.program {
        Program::Shell => Executable {
            paths: Vec::from([shell.into()]),
            argv: Vec::from([own(&[b"-", name].concat())]),
            direct: false,
        },
        Program::Command { line } => Executable {
            paths: Vec::from([shell.into()]),
            argv: Vec::from([own(name), c"-c".into(), line.clone()]),
            direct: false,
        },
        Program::Direct { argv } => Executable {
            paths: search(argv, environment)?,
            argv: argv.clone(),
            direct: true,
        },
    })
}

/// `passwd`, for a password that has to be changed before anything else.
pub fn change_password() -> Result<Executable, Stop> {
    Ok(Executable {
        paths: Vec::from([c"/usr/bin/passwd".into()]),
        argv: Vec::from([c"passwd".into()]),
        direct: false,
    })
}

/// Where a program without a slash may be: once in each directory of PATH, an empty one being the current.
fn search(argv: &[CString], environment: &Variables) -> Result<Vec<CString>, Stop> {
    let Some(name) = argv.first().filter(|name| !name.is_empty()) else {
        return Err(failure(Reason::BadOrder, Errno(0), "an empty argv").into());
    };
    if name.to_bytes().contains(&b'/') {
        return Ok(Vec::from([name.clone()]));
    }
    let path = environment.get(b"PATH").unwrap_or_default();
    Ok(path
        .split(|b| *b == b':')
        .map(|directory| {
            let directory = if directory.is_empty() { b"." } else { directory };
            joined(directory, name.to_bytes())
        })
        .collect())
}

impl Executable {
    /// Executes it; returns only with the reason why not, which the user has been told.
    pub fn execute(&self, environment: &Variables) -> Stop {
        let argv = Strings::new(self.argv.iter().map(CString::as_c_str));
        let envp = Strings::new(environment.strings());
        let mut errno = Errno::ENOENT;
        for path in &self.paths {
            match exec::execute(path, &argv, &envp) {
                // As execvp: a directory without it, or one that may not be searched, does not end the search.
                Errno::ENOENT | Errno::ENOTDIR => {}
                Errno::EACCES => errno = Errno::EACCES,
                e => {
                    errno = e;
                    break;
                }
            }
        }
        let name = match self.paths.as_slice() {
            [only] => only,
            _ => &self.argv[0],
        };
        messages::error(&[name.to_bytes(), b": ", errno.text().as_bytes(), b"\n"]);
        let code = match (self.direct, errno) {
            (false, _) => NO_SHELL,
            (true, Errno::ENOENT) => 127,
            (true, _) => 126,
        };
        let reason = match errno {
            Errno::ENOENT
            | Errno::ENOTDIR
            | Errno::EACCES
            | Errno::ENOEXEC
            | Errno::ELOOP
            | Errno::EISDIR
            | Errno::ELIBBAD
            | Errno::ENAMETOOLONG => Reason::NoProgram,
            e => reason(e),
        };
        Stop {
            failure: failure(reason, errno, &name.to_string_lossy()),
            code,
        }
    }
}

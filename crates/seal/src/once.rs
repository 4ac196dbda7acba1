//! One program, sealed and executed in place of the caller: what runc does for itself, for everybody.
//!
//! An overlay comes first, because it costs the same for any size. Nothing is ever run unprotected because
//! protecting failed, and nothing is run that would behave differently from a sealed image: scripts, set-id files,
//! files with capabilities, programs that look for libraries beside themselves.
//!
//! System calls between the program's name and the exec, for an overlay of a static program given by a path: openat,
//! fstat, faccessat2, rt_sigaction, fgetxattr, pread64, readlink, openat, fsopen, fsconfig three times, fsmount, close,
//! openat, socketpair, sendmsg, close three times, fstat, close, execveat: 23. A test counts them.

use crate::elf::{self, Unfit};
use crate::make;
use crate::refusal::{Context, Failure, Refusal, Step};
use crate::{Source, Strategy};
use fleetgate_sys::exe::Identity;
use fleetgate_sys::spawn::Strings;
use fleetgate_sys::{Errno, Fd, exe, exec, file, process};
use std::ffi::{CStr, CString, OsStr, OsString};
use std::fmt;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// What is to be run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// From the first image that can be made and executed, in the order of [`Strategy::ONCE`].
    Best,
    /// From such an image or not at all.
    Only(Strategy),
    /// From the file itself.
    Unsealed,
}

/// What a program is about to be executed from.
#[derive(Clone, Copy, Debug)]
pub struct Choice<'a> {
    /// The program's file.
    pub program: &'a Path,
    /// The image's strategy; none: the file itself, as was asked for.
    pub strategy: Option<Strategy>,
    /// Where the image was made, if that is a path.
    pub place: Option<&'a Path>,
    /// Why what was tried before it is not used: what was not shown with an earlier choice.
    pub refusals: &'a [Refusal],
}

/// Why a program was not run.
#[derive(Debug)]
pub enum NotRun {
    /// There is none of that name.
    NotFound(OsString),
    /// It is there and cannot be executed, sealed or not.
    NotExecutable(PathBuf, Errno),
    /// It has privileges that a sealed image would lose.
    Privileged(PathBuf, &'static str),
    /// It would fail or do something else from a sealed image.
    Unfit(PathBuf, Unfit),
    /// No image of it could be made and executed.
    NoImage(PathBuf, Vec<Refusal>),
    /// Its arguments contain a NUL.
    Nul,
}

impl NotRun {
    /// The exit code that shells give: 127 for what is not there, 126 for what is and cannot be run.
    pub fn code(&self) -> i32 {
        match self {
            NotRun::NotFound(_) => 127,
            _ => 126,
        }
    }
}

impl fmt::Display for NotRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NotRun::NotFound(name) => write!(f, "{}: not found", name.display()),
            NotRun::NotExecutable(path, errno) => write!(f, "{}: {errno}", path.display()),
            NotRun::Privileged(path, what) => write!(
                f,
                "{} {what}: a sealed image has no such privileges, so it would run with less than it is installed \
                 with; run it directly",
                path.display()
            ),
            NotRun::Unfit(path, Unfit::Script(interpreter)) => {
                // `env` only executes another program, which would not be sealed.
                let sealed = match interpreter.split_once("/env ") {
                    Some((_, real)) => format!("\"$(command -v {})\"", real.trim()),
                    None => interpreter.to_string(),
                };
                write!(
                    f,
                    "{path} is a script (#!{interpreter}): its interpreter would open it by a path, and a sealed image has \
                     none; seal the interpreter: fleetgate seal run -- {sealed} {path}",
                    path = path.display()
                )
            }
            NotRun::Unfit(path, Unfit::NotNative) => {
                write!(f, "{} is no ELF program of this machine", path.display())
            }
            NotRun::Unfit(path, Unfit::Damaged) => write!(
                f,
                "{} has ELF headers that point outside of it: it is cut or damaged",
                path.display()
            ),
            NotRun::Unfit(path, Unfit::Origin(text)) => write!(
                f,
                "{} looks for libraries beside itself ({text}): a sealed image lies in no directory, so it would not \
                 find them; link it with absolute run paths or run it directly",
                path.display()
            ),
            NotRun::NoImage(path, refusals) => {
                write!(
                    f,
                    "{} was not run: no sealed image of it can be had",
                    path.display()
                )?;
                refusals.iter().try_for_each(|r| write!(f, "; {r}"))
            }
            NotRun::Nul => f.write_str("an argument contains a NUL byte"),
        }
    }
}

impl std::error::Error for NotRun {}

/// A program found, open, and fit to be sealed.
#[derive(Debug)]
pub struct ProgramFile {
    fd: Fd,
    path: PathBuf,
    seen: Identity,
}

/// Executes `command` (the program's name and its arguments) in place of the caller, with the caller's environment.
/// `chosen` is called right before each attempt to execute. Comes back only with the reason why not.
pub fn run(how: How, command: &[OsString], chosen: &mut dyn FnMut(Choice<'_>)) -> NotRun {
    let Some(name) = command.first() else {
        return NotRun::NotFound(OsString::new());
    };
    let found = match find(name) {
        Ok(found) => found,
        Err(e) => return e,
    };
    let argv: Result<Vec<CString>, _> = command.iter().map(|a| CString::new(a.as_bytes())).collect();
    let Ok(argv) = argv else { return NotRun::Nul };
    let envp: Vec<CString> = std::env::vars_os()
        .filter_map(|(k, v)| {
            let mut pair = k.into_vec();
            pair.push(b'=');
            pair.extend(v.into_vec());
            CString::new(pair).ok()
        })
        .collect();
    let argv = Strings::new(argv.iter().map(|a| -> &CStr { a }));
    let envp = Strings::new(envp.iter().map(|e| -> &CStr { e }));
    let _ = process::reset_signal(process::SIGPIPE);
    if how == How::Unsealed {
        chosen(Choice {
            program: &found.path,
            strategy: None,
            place: None,
            refusals: &[],
        });
        let errno = match CString::new(found.path.as_os_str().as_bytes()) {
            Ok(path) => exec::execute(&path, &argv, &envp),
            Err(_) => return NotRun::Nul,
        };
        return NotRun::NotExecutable(found.path, errno);
    }
    if let Err(e) = found.check() {
        return e;
    }
    let strategies: &[Strategy] = match &how {
        How::Only(strategy) => std::slice::from_ref(strategy),
        _ => &Strategy::ONCE,
    };
    let mut refusals = Vec::new();
    let mut shown = 0;
    for &strategy in strategies {
        for place in places(strategy) {
            let failed = match found.seal(strategy, place.as_deref()) {
                Ok(image) => {
                    chosen(Choice {
                        program: &found.path,
                        strategy: Some(strategy),
                        place: place.as_deref(),
                        refusals: &refusals[shown..],
                    });
                    shown = refusals.len();
                    Failure {
                        step: Step::Execute,
                        cause: exe::execute(&image, &argv, &envp).into(),
                        path: None,
                    }
                }
                Err(failed) => failed,
            };
            refusals.push(match (&failed.path, place) {
                (None, Some(place)) => failed.at(place).of(strategy),
                _ => failed.of(strategy),
            });
        }
    }
    NotRun::NoImage(found.path, refusals)
}

fn places(strategy: Strategy) -> Vec<Option<PathBuf>> {
    match strategy {
        Strategy::Tmpfile | Strategy::Unlinked => crate::Options::default()
            .directories
            .into_iter()
            .map(Some)
            .collect(),
        _ => vec![None],
    }
}

/// Looks a program up as execvp does: a name without a slash in PATH, whatever else as it is.
pub fn find(name: &OsStr) -> Result<ProgramFile, NotRun> {
    if name.as_bytes().contains(&b'/') {
        return open(Path::new(name));
    }
    if name.is_empty() {
        return Err(NotRun::NotFound(name.to_owned()));
    }
    let path = std::env::var_os("PATH").unwrap_or_else(|| "/bin:/usr/bin".into());
    let mut denied = None;
    for directory in std::env::split_paths(&path) {
        // An empty entry is the working directory.
        let directory = if directory.as_os_str().is_empty() {
            PathBuf::from(".")
        } else {
            directory
        };
        match open(&directory.join(name)) {
            Ok(found) => return Ok(found),
            Err(e @ NotRun::NotExecutable(_, Errno::EACCES)) => denied = denied.or(Some(e)),
            Err(_) => {}
        }
    }
    Err(denied.unwrap_or_else(|| NotRun::NotFound(name.to_owned())))
}

fn open(path: &Path) -> Result<ProgramFile, NotRun> {
    let not = |errno| match errno {
        Errno::ENOENT | Errno::ENOTDIR => NotRun::NotFound(path.as_os_str().to_owned()),
        errno => NotRun::NotExecutable(path.to_owned(), errno),
    };
    let name = CString::new(path.as_os_str().as_bytes()).map_err(|_| NotRun::Nul)?;
    let fd = exe::open_read(file::CWD, &name).map_err(not)?;
    let seen = exe::identity(&fd).map_err(not)?;
    if !seen.is_file() {
        return Err(NotRun::NotExecutable(path.to_owned(), Errno::EACCES));
    }
    exe::may_execute(&fd).map_err(not)?;
    Ok(ProgramFile {
        fd,
        path: path.to_owned(),
        seen,
    })
}

impl ProgramFile {
    /// Whether it behaves from a sealed image as it does from its file.
    pub fn check(&self) -> Result<(), NotRun> {
        let privileged = |what| Err(NotRun::Privileged(self.path.clone(), what));
        if self.seen.mode & exe::SET_USER_ID != 0 {
            return privileged("has the set-user-ID bit");
        }
        if self.seen.mode & exe::SET_GROUP_ID != 0 {
            return privileged("has the set-group-ID bit");
        }
        if exe::has_attribute(&self.fd, c"security.capability") {
            return privileged("has file capabilities");
        }
        elf::check(&self.fd).map_err(|unfit| NotRun::Unfit(self.path.clone(), unfit))
    }

    /// Makes one image.
    fn seal(&self, strategy: Strategy, place: Option<&Path>) -> Result<Fd, Failure> {
        match strategy {
            Strategy::Overlay => make::overlay_for_exec(&self.fd, &self.seen),
            _ => {
                let again = self.fd.duplicate(0).step(Step::FindFile)?;
                make::make(strategy, &Source::Open(again.into(), self.path.clone()), place)
            }
        }
    }
}

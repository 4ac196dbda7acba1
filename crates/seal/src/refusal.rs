//! Why something cannot be used: the step that failed, the kernel's answer, the path if there is one.

use crate::Strategy;
use fleetgate_sys::Errno;
use std::fmt;
use std::path::PathBuf;

/// One reason against one strategy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The strategy that is not used.
    pub strategy: Strategy,
    /// What was being done.
    pub step: Step,
    /// What came of it.
    pub cause: Cause,
    /// The file or directory it was done to.
    pub path: Option<PathBuf>,
}

/// What was being done when it failed; [`Step::name`] has the words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Step {
    Applies,
    FindFile,
    ReadFile,
    Unpack,
    CheckOwner,
    CheckDigest,
    CreateMemfd,
    WriteImage,
    AddSeals,
    CreateFile,
    ChangeMode,
    Reopen,
    MakeTmpfs,
    OpenOverlay,
    SetLayers,
    CreateOverlay,
    MountOverlay,
    OpenInside,
    UserNamespace,
    Run,
    Execute,
}

impl Step {
    /// The step as words that follow "refused while" or stand before a colon.
    pub const fn name(self) -> &'static str {
        match self {
            Step::Applies => "choosing it",
            Step::FindFile => "looking for the file",
            Step::ReadFile => "reading the file",
            Step::Unpack => "unpacking the embedded image",
            Step::CheckOwner => "checking who may write to it",
            Step::CheckDigest => "comparing its digest",
            Step::CreateMemfd => "memfd_create",
            Step::WriteImage => "writing the image",
            Step::AddSeals => "sealing",
            Step::CreateFile => "creating the file",
            Step::ChangeMode => "fchmod",
            Step::Reopen => "opening it again read-only",
            Step::MakeTmpfs => "making an anonymous tmpfs",
            Step::OpenOverlay => "fsopen(overlay)",
            Step::SetLayers => "fsconfig(lowerdir)",
            Step::CreateOverlay => "fsconfig(create)",
            Step::MountOverlay => "fsmount",
            Step::OpenInside => "opening the file inside the overlay",
            Step::UserNamespace => "making a user namespace for it",
            Step::Run => "running `true` from it",
            Step::Execute => "execveat",
        }
    }
}

/// What came of a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The kernel's answer.
    Errno(Errno),
    /// A sentence of ours.
    Because(String),
}

impl Cause {
    /// The error number, if the kernel gave one.
    pub fn errno(&self) -> Option<Errno> {
        match self {
            Cause::Errno(e) => Some(*e),
            Cause::Because(_) => None,
        }
    }
}

impl From<Errno> for Cause {
    fn from(errno: Errno) -> Cause {
        Cause::Errno(errno)
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Cause::Errno(e) => e.fmt(f),
            Cause::Because(text) => f.write_str(text),
        }
    }
}

impl Refusal {
    /// The reason alone, without the strategy's name.
    pub fn why(&self) -> String {
        let (namespace, cause) = (self.step == Step::UserNamespace, &self.cause);
        match &self.path {
            None if namespace && *cause == Cause::Errno(Errno::ENOSPC) => {
                format!(
                    "{}: user.max_user_namespaces allows no more ({cause})",
                    self.step.name()
                )
            }
            Some(path) => format!("{}: {}: {}", self.step.name(), path.display(), self.cause),
            None => format!("{}: {}", self.step.name(), self.cause),
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.strategy, self.why())
    }
}

/// A step that failed, before it is known for which strategy it was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    pub step: Step,
    pub cause: Cause,
    pub path: Option<PathBuf>,
}

impl Failure {
    pub(crate) fn because(step: Step, text: impl Into<String>) -> Failure {
        Failure {
            step,
            cause: Cause::Because(text.into()),
            path: None,
        }
    }

    pub(crate) fn at(mut self, path: impl Into<PathBuf>) -> Failure {
        self.path = Some(path.into());
        self
    }

    pub(crate) fn of(self, strategy: Strategy) -> Refusal {
        Refusal {
            strategy,
            step: self.step,
            cause: self.cause,
            path: self.path,
        }
    }
}

/// Names the step at which an error happened.
pub(crate) trait Context<T> {
    fn step(self, step: Step) -> Result<T, Failure>;
}

impl<T, E: Into<Errno>> Context<T> for Result<T, E> {
    fn step(self, step: Step) -> Result<T, Failure> {
        self.map_err(|e| Failure {
            step,
            cause: Cause::Errno(e.into()),
            path: None,
        })
    }
}

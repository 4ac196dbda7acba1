//! The steps of a sandbox that services share: processes that keep the network, and of the files a few. Each service takes
//! them in its own order, between steps of its own. They hold for the calling thread, and nothing is taken back.

use crate::process::{self, Limit, numbers};
use crate::{Errno, Result, credentials, landlock, seccomp};
use core::ffi::CStr;
use core::fmt;

/// The step that failed, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Which step.
    pub step: &'static str,
    /// Why.
    pub errno: Errno,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the sandbox cannot be made: {}: {}", self.step, self.errno)
    }
}

/// Names the step that `result` is of.
pub fn at<T>(step: &'static str, result: Result<T>) -> core::result::Result<T, Failure> {
    result.map_err(|errno| Failure { step, errno })
}

/// No core, which would hold keys, and no new privileges by executing.
pub fn forbid_cores() -> core::result::Result<(), Failure> {
    const NONE: Limit = Limit { soft: 0, hard: 0 };
    at("setting limits", process::set_limit(numbers::RLIMIT_CORE, NONE))?;
    at("no_new_privs", credentials::set_no_new_privileges())
}

/// No files but those below these directories ([`landlock::deny_files_but`]). Some: this kernel cannot do it; the words say
/// what it lacks.
pub fn keep_files(read: &[&CStr], write: &[&CStr]) -> core::result::Result<Option<&'static str>, Failure> {
    match landlock::deny_files_but(read, write) {
        Ok(true) => Ok(None),
        Ok(false) => Ok(Some("without landlock (Linux 5.13, and `landlock` in lsm=)")),
        Err(e) if landlock::is_missing(e) => Ok(Some("without landlock")),
        Err(errno) => at("landlock", Err(errno)),
    }
}

/// Not to be looked into by others, and only the system calls of a service ([`seccomp::serve_only`]). To be called after
/// a change of ids, which may set the first anew. Some: this kernel lacks the second.
pub fn serve_only() -> core::result::Result<Option<&'static str>, Failure> {
    at("not being dumpable", credentials::set_dumpable(false))?;
    match seccomp::serve_only() {
        Err(Errno::ENOSYS | Errno::EINVAL) => Ok(Some(
            "without a filter on system calls: this kernel has no seccomp",
        )),
        other => at("seccomp", other).map(|()| None),
    }
}

//! What the auth service gives up before it opens its state: the capabilities that it does not need, cores that would hold
//! keys, and the system calls that no service makes. Nothing is taken back. Files it keeps, since a backup goes to whatever
//! path an administrator says.

use crate::error::{Refused, Result};
use fleetgate_sys::process::{self, Limit, numbers};
use fleetgate_sys::{Errno, credentials, seccomp};

/// What is kept of root: a port that is below 1024, and a backup in a directory of somebody else's.
const KEPT: [u32; 2] = [credentials::OPEN_EVERYTHING, credentials::LOW_PORTS];

/// Confines this process, which is an auth service and nothing else, and has one thread. What this kernel has not is told
/// in the log; what it has and fails is an error.
pub fn enter() -> Result<()> {
    let at = |step: &'static str| {
        move |errno: Errno| Refused::unavailable(format!("the sandbox cannot be made: {step}: {errno}"))
    };
    const NONE: Limit = Limit { soft: 0, hard: 0 };
    process::set_limit(numbers::RLIMIT_CORE, NONE).map_err(at("setting limits"))?;
    credentials::set_no_new_privileges().map_err(at("no_new_privs"))?;
    let permitted = credentials::permitted_capabilities().map_err(at("reading capabilities"))?;
    let kept: Vec<u32> = KEPT.into_iter().filter(|one| permitted & 1 << one != 0).collect();
    credentials::keep_capabilities(&kept).map_err(at("giving up capabilities"))?;
    credentials::set_dumpable(false).map_err(at("not being dumpable"))?;
    match seccomp::serve_only() {
        Err(Errno::ENOSYS | Errno::EINVAL) => {
            tracing::warn!("without a filter on system calls: this kernel has no seccomp");
            Ok(())
        }
        other => other.map_err(at("seccomp")),
    }
}

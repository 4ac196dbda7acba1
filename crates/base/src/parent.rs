//! Services end with the `fleetgate up` that started them, however it ends: one that was killed would leave ports taken
//! and the store locked, and could not be started again. It signals nobody itself; the kernel does.

use crate::StartError;
use fleetgate_sys::{process, signals};

/// By this variable `fleetgate up` says which process it is.
pub const VARIABLE: &str = "FLEETGATE_UP";

/// From now on the end of `fleetgate up` is a SIGTERM here, if it is what started this process. A process that changes its
/// user calls this behind it: the kernel forgets it then.
pub fn follow() -> Result<(), StartError> {
    let Some(up) = std::env::var(VARIABLE)
        .ok()
        .and_then(|number| number.parse::<i32>().ok())
    else {
        return Ok(());
    };
    process::set_parent_death_signal(signals::TERM).map_err(|e| format!("following fleetgate up: {e}"))?;
    // It may have ended before this process said so.
    match process::parent_id() == up {
        true => Ok(()),
        false => Err(StartError(
            "the fleetgate up that started it has ended".to_owned(),
        )),
    }
}

/// The end of `fleetgate up` means nothing any more: this process goes on with what is open.
pub fn outlive() {
    // Without it the process ends early, and nothing is left behind.
    let _ = process::set_parent_death_signal(0);
}

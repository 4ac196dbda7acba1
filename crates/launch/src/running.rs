//! A helper that was started.

use fleetgate_seal::Strategy;
use fleetgate_sys::process::{self, Exit};
use fleetgate_sys::spawn::Fallback;
use fleetgate_sys::{Errno, Fd};
use std::time::Duration;

/// What the launching side's steps cost.
#[derive(Clone, Copy, Debug, Default)]
pub struct LaunchTimes {
    /// The control socket and the order on it.
    pub order: Duration,
    /// clone3 until the exec has happened.
    pub spawn: Duration,
    /// From there to the helper's word.
    pub ready: Duration,
}

/// A started helper, or the user's program that it became.
#[derive(Debug)]
pub struct RunningHelper {
    /// Its number.
    pub pid: i32,
    /// Its descriptor.
    pub pidfd: Fd,
    /// Our end of the control socket; closed at the other end once the user's program runs.
    pub control: Fd,
    /// How its image is sealed.
    pub strategy: Strategy,
    /// The slower way its process was made, if one had to be taken.
    pub fallback: Option<Fallback>,
    /// What the last try cost.
    pub spent: LaunchTimes,
    /// How many tries it took.
    pub tries: u32,
    /// The id of the container that it is in.
    pub container: Option<String>,
}

impl RunningHelper {
    /// Waits for its end and reaps it.
    pub fn wait_exit(&self) -> Result<Exit, Errno> {
        // A blocking wait always has an answer.
        process::wait(&self.pidfd, true)?.ok_or(Errno::ECHILD)
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: i32) -> Result<(), Errno> {
        process::signal(&self.pidfd, signal)
    }
}

//! How a fallback chain is built: which strategies, where their files are made, how images are proven.

use crate::{Probe, Strategy};
use std::ffi::CString;
use std::path::PathBuf;
use std::time::Duration;

/// How a fallback chain is built.
#[derive(Clone, Debug)]
pub struct Options {
    /// What images are started as; without it the embedded program's name.
    pub name: Option<CString>,
    /// The strategies, best first.
    pub order: Vec<Strategy>,
    /// Where the package's file is; without it, where this version's package puts it.
    pub installed: Option<PathBuf>,
    /// Where files are made, best first; those that do not exist are passed over.
    pub directories: Vec<PathBuf>,
    /// For entering containers: memfd and overlay only, whatever `order` says.
    pub container: bool,
    /// How images are proven.
    pub probe: Probe,
    /// For who launches once: an image is taken unproven, and that launch is the proof. Where it fails the probe says whether
    /// the image was at fault, as ever. Saves the probe's two processes.
    pub launches_once: bool,
    /// How long after a move the upper strategies are tried again. Doubles, up to 64 times this, each time one of them
    /// fails again.
    pub climb_after: Duration,
}

impl Default for Options {
    fn default() -> Options {
        let mut directories = vec![
            PathBuf::from("/run/fleetgate"),
            PathBuf::from("/var/lib/fleetgate"),
        ];
        directories.extend(std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from));
        directories.extend(std::env::var_os("TMPDIR").map(PathBuf::from));
        directories.extend(["/tmp", "/var/tmp", "/dev/shm"].map(PathBuf::from));
        Options {
            name: None,
            order: Strategy::ALL.to_vec(),
            installed: None,
            directories,
            container: false,
            probe: Probe::default(),
            launches_once: false,
            climb_after: Duration::from_secs(60),
        }
    }
}

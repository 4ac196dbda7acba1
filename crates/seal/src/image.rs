//! One open, executable image.

use crate::Strategy;
use fleetgate_sys::Fd;
use std::ffi::CStr;
use std::sync::Arc;

/// An executable file held by descriptor. Start it with execveat(AT_EMPTY_PATH); no path leads to it.
#[derive(Debug)]
pub struct Image {
    pub(crate) fd: Fd,
    pub(crate) strategy: Strategy,
    pub(crate) name: Arc<CStr>,
    /// Where it was made, for the report: a directory, or the installed path.
    pub(crate) place: Option<Arc<std::path::Path>>,
}

impl Image {
    /// The descriptor, close-on-exec.
    pub fn fd(&self) -> &Fd {
        &self.fd
    }

    /// How it is protected.
    pub fn strategy(&self) -> Strategy {
        self.strategy
    }

    /// What to start it as: argv[0]. A `fleetgate` that stands in for its helpers tells them apart by it.
    pub fn name(&self) -> &CStr {
        &self.name
    }

    /// The directory or file it stands in, where there is one.
    pub fn place(&self) -> Option<&std::path::Path> {
        self.place.as_deref()
    }
}

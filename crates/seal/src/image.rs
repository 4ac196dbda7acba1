//! One open, executable image.

use crate::refusal::Refusal;
use crate::{Source, Strategy, make};
use fleetgate_sys::Fd;
use std::ffi::{CStr, CString};
use std::path::Path;
use std::sync::Arc;

/// An executable file held by descriptor. Start it with execveat(AT_EMPTY_PATH); no path leads to it.
#[derive(Debug)]
pub struct Image {
    pub(crate) fd: Fd,
    pub(crate) strategy: Strategy,
    pub(crate) name: Arc<CStr>,
    /// Where it was made, for the report: a directory, or the installed path.
    pub(crate) place: Option<Arc<Path>>,
}

impl Image {
    /// Makes one image, not proven: what a chain does for each strategy before it runs it. `place` is the directory for
    /// file strategies (an embedded program's overlay may have one too), or the installed file.
    pub fn make(
        strategy: Strategy,
        source: &Source,
        name: &CStr,
        place: Option<&Path>,
    ) -> Result<Image, Refusal> {
        let fd = make::make(strategy, source, place).map_err(|f| f.of(strategy))?;
        Ok(Image {
            fd,
            strategy,
            name: CString::from(name).into(),
            place: place.map(Arc::from),
        })
    }

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
    pub fn place(&self) -> Option<&Path> {
        self.place.as_deref()
    }
}

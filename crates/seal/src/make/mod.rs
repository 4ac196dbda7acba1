//! Making an image by one strategy in one place. Nothing is tried twice here and nothing is decided.

mod files;
mod installed;
mod memfd;
mod overlay;

pub(crate) use installed::check as check_installed;
pub(crate) use overlay::for_exec as overlay_for_exec;

use crate::refusal::{Context, Failure, Step};
use crate::{Source, Strategy};
use fleetgate_sys::{Fd, exe};
use std::path::{Path, PathBuf};

/// Makes one image. `place` is what [`places`] offered.
pub(crate) fn make(strategy: Strategy, source: &Source, place: Option<&Path>) -> Result<Fd, Failure> {
    match (strategy, place) {
        (Strategy::Installed, Some(path)) => installed::open(source, path),
        (Strategy::Memfd, _) => memfd::make(source),
        (Strategy::Overlay, place) => overlay::make(source, place),
        (Strategy::Tmpfile, Some(directory)) => files::tmpfile(source, directory),
        (Strategy::Unlinked, Some(directory)) => files::unlinked(source, directory),
        (Strategy::Plain, _) => source.open().map(|(fd, _)| fd),
        (_, None) => Err(Failure::because(Step::Applies, "there is no place to make it in")),
    }
}

/// The places in which a strategy may be tried, best first. `None` is a place too: memory.
pub(crate) fn places(
    strategy: Strategy,
    source: &Source,
    installed: Option<&Path>,
    directories: &[PathBuf],
) -> Vec<Option<PathBuf>> {
    match strategy {
        Strategy::Installed => installed.into_iter().map(|p| Some(p.to_owned())).collect(),
        Strategy::Memfd | Strategy::Plain => vec![None],
        // A file has its own directory to be the layer below; embedded bytes are first written somewhere.
        Strategy::Overlay => match source {
            Source::Embedded(_) => std::iter::once(None)
                .chain(directories.iter().cloned().map(Some))
                .collect(),
            _ => vec![None],
        },
        Strategy::Tmpfile | Strategy::Unlinked => directories.iter().cloned().map(Some).collect(),
    }
}

/// Refuses a place from which nothing may be executed before anything is written to it.
fn refuse_noexec(fd: &Fd) -> Result<(), Failure> {
    let (_, noexec) = exe::filesystem(fd).step(Step::CreateFile)?;
    if noexec {
        return Err(Failure::because(Step::CreateFile, "mounted noexec"));
    }
    Ok(())
}

//! Where an image's bytes come from.

use crate::Embedded;
use crate::refusal::{Context, Failure, Step};
use fleetgate_sys::{Errno, Fd, exe, file};
use sha2::{Digest, Sha256};
use std::borrow::Cow;
use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The largest program that is copied: a bound on what a wrong path can cost.
pub(crate) const MAX_IMAGE: usize = 1 << 30;

/// What an image is made of.
#[derive(Clone, Debug)]
pub enum Source {
    /// A program carried inside this one.
    Embedded(&'static Embedded),
    /// A file. It is opened anew for each image.
    File(PathBuf),
    /// The running program, whatever became of its path.
    Itself,
    /// A file that is already open; the path is for messages.
    Open(Arc<Fd>, PathBuf),
}

/// The running program's file, by the one name that always leads to it.
const ITSELF: &str = "/proc/self/exe";

impl Source {
    /// The source's path, for messages.
    pub fn describe(&self) -> String {
        match self {
            Source::Embedded(e) => format!("{} {} (embedded, {} bytes)", e.name, e.version, e.len),
            Source::File(path) | Source::Open(_, path) => path.display().to_string(),
            Source::Itself => "the running program".to_owned(),
        }
    }

    /// All the bytes.
    pub(crate) fn bytes(&self) -> Result<Cow<'static, [u8]>, Failure> {
        match self {
            Source::Embedded(e) => e.bytes(),
            _ => {
                let (fd, path) = self.open()?;
                read_all(&fd).map(Cow::Owned).map_err(|e| e.at(path))
            }
        }
    }

    /// The file, open for reading. An embedded program has none of its own; what stands in for it is the running
    /// program, which behaves the same under the embedded program's name.
    pub(crate) fn open(&self) -> Result<(Fd, PathBuf), Failure> {
        let path = self.path();
        if let Source::Open(fd, _) = self {
            return Ok((fd.duplicate(0).step(Step::FindFile)?, path));
        }
        let name = cstring(&path)?;
        let fd = exe::open_read(file::CWD, &name)
            .step(Step::FindFile)
            .map_err(|e| e.at(&path))?;
        Ok((fd, path))
    }

    pub(crate) fn path(&self) -> PathBuf {
        match self {
            Source::File(path) | Source::Open(_, path) => path.clone(),
            Source::Embedded(_) | Source::Itself => PathBuf::from(ITSELF),
        }
    }

    /// The digest that an installed copy must have.
    pub(crate) fn digest(&self) -> Result<[u8; 32], Failure> {
        match self {
            Source::Embedded(e) => Ok(e.sha256),
            _ => Ok(digest(&self.bytes()?)),
        }
    }
}

pub(crate) fn digest(bytes: &[u8]) -> [u8; 32] {
    Sha256::digest(bytes).into()
}

pub(crate) fn cstring(path: &Path) -> Result<CString, Failure> {
    CString::new(path.as_os_str().as_bytes())
        .map_err(|_| Errno::EINVAL)
        .step(Step::FindFile)
        .map_err(|e| e.at(path))
}

/// The whole of an open file, from its start.
pub(crate) fn read_all(fd: &Fd) -> Result<Vec<u8>, Failure> {
    let size = exe::identity(fd).step(Step::ReadFile)?.size;
    let size = usize::try_from(size).ok().filter(|size| *size <= MAX_IMAGE);
    let size = size.ok_or(Errno::EFBIG).step(Step::ReadFile)?;
    let mut bytes = vec![0u8; size];
    let mut at = 0;
    while at < bytes.len() {
        match file::read_at(fd.raw(), &mut bytes[at..], at as u64).step(Step::ReadFile)? {
            0 => {
                return Err(Failure::because(
                    Step::ReadFile,
                    "it became shorter while it was read",
                ));
            }
            n => at += n,
        }
    }
    Ok(bytes)
}

//! A caller, as /proc and its memory show it while its call waits. Nothing that is read here waits for anybody but the
//! caller itself: a file system in user space is not asked.

use fleetgate_calls::audit::{Caller, Image, Who};
use fleetgate_calls::memory::Memory;
use fleetgate_sys::file::{self, CWD, flags};
use fleetgate_sys::{memory, tree};
use std::cell::OnceCell;
use std::ffi::CString;

/// The most of /proc/PID/status that is read: what is wanted comes first.
const MAX_STATUS: usize = 2048;

/// Whoever makes the call.
pub(super) struct Task {
    tid: i32,
    who: OnceCell<Option<Who>>,
}

impl Task {
    pub(super) fn new(tid: i32) -> Task {
        Task {
            tid,
            who: OnceCell::new(),
        }
    }

    fn path(&self, name: &str) -> CString {
        CString::new(format!("/proc/{}/{name}", self.tid)).unwrap_or_default()
    }
}

impl Memory for Task {
    fn read(&self, at: u64, into: &mut [u8]) -> usize {
        memory::read(self.tid, at, into).unwrap_or(0)
    }

    fn descriptor(&self, fd: i32) -> Option<Vec<u8>> {
        file::read_link(&self.path(&format!("fd/{fd}"))).ok()
    }

    fn directory(&self) -> Option<Vec<u8>> {
        file::read_link(&self.path("cwd")).ok()
    }
}

impl Caller for Task {
    fn who(&self) -> Option<Who> {
        let read = || {
            let status = file::openat(CWD, &self.path("status"), flags::O_RDONLY, 0).ok()?;
            let mut text = [0; MAX_STATUS];
            let got = file::read(status.raw(), &mut text).ok()?;
            who(&String::from_utf8_lossy(&text[..got]))
        };
        self.who.get_or_init(read).clone()
    }

    fn image(&self) -> Option<Image> {
        let path = self.path("exe");
        let (device, inode) = tree::at_hand(CWD, &path).unwrap_or_default();
        Some(Image {
            path: file::read_link(&path).ok()?,
            device,
            inode,
        })
    }
}

/// From /proc/PID/status: `Tgid:`, `PPid:`, and of `Uid:` the second, the effective one.
fn who(status: &str) -> Option<Who> {
    let field = |name: &str, at: usize| {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_ascii_whitespace().nth(at)
    };
    Some(Who {
        pid: field("Tgid:", 0)?.parse().ok()?,
        parent: field("PPid:", 0)?.parse().ok()?,
        uid: field("Uid:", 1)?.parse().ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_who_it_is() {
        let task = Task::new(std::process::id() as i32);
        let who = task.who().expect("there is a /proc");
        assert_eq!(who.pid, std::process::id() as i32);
        assert_eq!(who.uid, fleetgate_sys::process::effective_uid());
        let image = task.image().expect("it may see itself");
        let own = std::env::current_exe().expect("a path");
        assert_eq!(image.path, own.as_os_str().as_encoded_bytes());
        use std::os::unix::fs::MetadataExt;
        let metadata = std::fs::metadata(own).expect("it is there");
        assert_eq!((image.device, image.inode), (metadata.dev(), metadata.ino()));
        let word = *b"remembered";
        let mut read = [0; 10];
        assert_eq!(task.read(word.as_ptr() as u64, &mut read), 10);
        assert_eq!(read, word);
        assert_eq!(task.read(1, &mut read), 0);
        assert!(Task::new(i32::MAX).who().is_none());
        assert!(Task::new(i32::MAX).image().is_none());
    }

    #[test]
    fn a_status_without_what_is_wanted_says_nothing() {
        let whole = "Name:\tx\nTgid:\t5\nPPid:\t4\nUid:\t1\t2\t3\t4\n";
        let found = who(whole).expect("whole");
        assert_eq!((found.pid, found.parent, found.uid), (5, 4, 2));
        for part in ["", "Tgid:\t5\n", "Tgid:\tx\nPPid:\t4\nUid:\t1\t2\n"] {
            assert_eq!(who(part), None, "{part:?}");
        }
    }
}

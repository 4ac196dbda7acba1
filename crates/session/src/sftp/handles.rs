//! What the client holds open, and the names it holds them by.
//!
//! A name is eight bytes: a place in the table and how often that place was given out. A name that was closed, or
//! made up, leads nowhere, also when its place is in use again.

use super::protocol::short;
use alloc::ffi::CString;
use alloc::vec::Vec;
use fleetgate_sys::Fd;
use fleetgate_sys::dir::Entries;
use fleetgate_sys::process;
use fleetgate_sys::tree::Stat;

/// Descriptors that this process needs beside the client's: its streams and what it talks on.
const OWN: u64 = 5;
/// The most handles, whatever the descriptor limit says.
const MOST: u64 = 65_536;

/// An open file.
pub struct File {
    /// The file.
    pub fd: Fd,
    /// Its path as the client gave it.
    pub path: CString,
    /// How OPEN asked for it.
    pub flags: u32,
    /// Writes go to its end, whatever offset they name.
    pub append: bool,
    /// Bytes read by now.
    pub read: u64,
    /// Bytes written by now.
    pub written: u64,
}

/// An open directory.
pub struct Directory {
    /// What is still to be listed.
    pub entries: Entries,
    /// Entries that were looked at and not sent yet, the next one last.
    pub pending: Vec<(CString, Stat)>,
}

/// What one handle stands for.
pub enum OpenHandle {
    /// A file.
    File(File),
    /// A directory.
    Directory(Directory),
}

struct Slot {
    given_out: u32,
    open: Option<OpenHandle>,
}

/// The table.
pub struct Handles {
    slots: Vec<Slot>,
    free: Vec<u32>,
    limit: usize,
}

/// How many handles the descriptor limit leaves room for; 0: it leaves nothing to be sure of. OpenSSH's formula,
/// as clients plan their parallel transfers by it.
pub fn limit() -> u64 {
    let soft = process::limit(process::numbers::RLIMIT_NOFILE).map_or(0, |l| l.soft);
    soft.saturating_sub(OWN).min(MOST)
}

impl Handles {
    /// An empty table.
    pub fn new() -> Handles {
        Handles {
            slots: Vec::new(),
            free: Vec::new(),
            limit: usize::try_from(limit()).unwrap_or(usize::MAX),
        }
    }

    /// Whether one more may be opened.
    pub fn has_room(&self) -> bool {
        !self.free.is_empty() || self.slots.len() < self.limit
    }

    /// Gives `open` a name.
    pub fn insert(&mut self, open: OpenHandle) -> [u8; 8] {
        let at = self.free.pop().unwrap_or(short(self.slots.len()));
        if at as usize == self.slots.len() {
            self.slots.push(Slot {
                given_out: 0,
                open: None,
            });
        }
        let slot = &mut self.slots[at as usize];
        slot.given_out = slot.given_out.wrapping_add(1);
        slot.open = Some(open);
        let mut name = [0; 8];
        name[..4].copy_from_slice(&at.to_be_bytes());
        name[4..].copy_from_slice(&slot.given_out.to_be_bytes());
        name
    }

    fn slot(&mut self, name: &[u8]) -> Option<(u32, &mut Slot)> {
        let name: &[u8; 8] = name.try_into().ok()?;
        let [a, b, c, d, e, f, g, h] = *name;
        let at = u32::from_be_bytes([a, b, c, d]);
        let slot = self.slots.get_mut(at as usize)?;
        (slot.given_out == u32::from_be_bytes([e, f, g, h])).then_some((at, slot))
    }

    /// What `name` stands for.
    pub fn get(&mut self, name: &[u8]) -> Option<&mut OpenHandle> {
        self.slot(name)?.1.open.as_mut()
    }

    /// The file that `name` stands for.
    pub fn file(&mut self, name: &[u8]) -> Option<&mut File> {
        match self.get(name)? {
            OpenHandle::File(file) => Some(file),
            OpenHandle::Directory(_) => None,
        }
    }

    /// The directory that `name` stands for.
    pub fn directory(&mut self, name: &[u8]) -> Option<&mut Directory> {
        match self.get(name)? {
            OpenHandle::Directory(directory) => Some(directory),
            OpenHandle::File(_) => None,
        }
    }

    /// Takes it out of the table.
    pub fn remove(&mut self, name: &[u8]) -> Option<OpenHandle> {
        let (at, slot) = self.slot(name)?;
        let open = slot.open.take()?;
        self.free.push(at);
        Some(open)
    }

    /// Takes out whatever is left.
    pub fn drain(&mut self) -> impl Iterator<Item = OpenHandle> + '_ {
        self.slots.iter_mut().filter_map(|s| s.open.take())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(handles: &mut Handles, flags: u32) -> [u8; 8] {
        let fd = fleetgate_sys::file::openat(fleetgate_sys::file::CWD, c"/dev/null", 0, 0).unwrap();
        handles.insert(OpenHandle::File(File {
            fd,
            path: c"/dev/null".into(),
            flags,
            append: false,
            read: 0,
            written: 0,
        }))
    }

    #[test]
    fn a_closed_name_leads_nowhere_though_its_place_is_used_again() {
        let mut handles = Handles::new();
        let (first, second) = (file(&mut handles, 1), file(&mut handles, 2));
        assert!(handles.remove(&first).is_some());
        assert!(handles.file(&first).is_none() && handles.remove(&first).is_none());
        let third = file(&mut handles, 3);
        assert_eq!(first[..4], third[..4], "the place is used again");
        assert_eq!(handles.file(&third).map(|f| f.flags), Some(3));
        assert_eq!(handles.file(&second).map(|f| f.flags), Some(2));
        assert!(handles.file(&first).is_none());
        assert!(handles.directory(&second).is_none());
        for made_up in [&b""[..], &[0; 4], &[0; 8], &[0xff; 8], &[0; 9]] {
            assert!(handles.get(made_up).is_none(), "{made_up:?}");
        }
        assert_eq!(handles.drain().count(), 2);
    }

    #[test]
    fn room_ends_at_the_limit() {
        let mut handles = Handles::new();
        handles.limit = 2;
        let first = file(&mut handles, 0);
        assert!(handles.has_room());
        file(&mut handles, 0);
        assert!(!handles.has_room());
        handles.remove(&first);
        assert!(handles.has_room());
    }
}

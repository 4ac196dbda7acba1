//! Telling what is done: as frames on a side descriptor, or as lines for a person.
//!
//! Never waits and never fails a transfer. An event that nobody takes in time is lost and counted, and the count
//! goes out before the next event that fits; what is still untold at the end is handed to the caller.

use alloc::ffi::CString;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::Write;
use fleetgate_sys::{Errno, Fd, file, stream};
use fleetgate_wire::encode;
use fleetgate_wire::sftp::Event;

/// Who hears of it.
pub enum Listener {
    /// Nobody.
    Nobody,
    /// The launching side, by frames.
    Frames(Fd),
    /// A person, by lines on standard error.
    Lines,
}

/// The way to the listener.
pub struct Events {
    listener: Listener,
    start: Vec<u8>,
    lost: u64,
}

impl Events {
    /// Tells `listener`; relative paths are told below `start`.
    pub fn new(listener: Listener, start: Vec<u8>) -> Events {
        Events {
            listener,
            start,
            lost: 0,
        }
    }

    /// Whether an event is worth making.
    pub fn wanted(&self) -> bool {
        !matches!(self.listener, Listener::Nobody) || self.lost > 0
    }

    /// How many were lost and not told.
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// A path as it is told.
    pub fn absolute(&self, path: &CString) -> CString {
        if path.as_bytes().first() == Some(&b'/') {
            return path.clone();
        }
        let mut whole = self.start.clone();
        if whole.last() != Some(&b'/') {
            whole.push(b'/');
        }
        whole.extend_from_slice(path.as_bytes());
        // Neither part has a zero byte in it.
        CString::new(whole).unwrap_or_default()
    }

    /// Tells one.
    pub fn tell(&mut self, event: &Event) {
        let sent = match &self.listener {
            Listener::Nobody => Err(Errno::EPIPE),
            Listener::Frames(socket) => {
                let before = match self.lost {
                    0 => Ok(()),
                    count => stream::send_now(socket.raw(), &encode(&Event::Lost { count })).map(drop),
                };
                if before.is_ok() {
                    self.lost = 0;
                }
                before.and_then(|()| stream::send_now(socket.raw(), &encode(event)).map(drop))
            }
            Listener::Lines => {
                let _ = file::write_all(2, line(event).as_bytes());
                Ok(())
            }
        };
        match sent {
            Ok(()) => {}
            Err(Errno::EAGAIN | Errno::ENOBUFS | Errno::EMSGSIZE) => self.lost += 1,
            // The listener is gone for good; the rest is only counted.
            Err(_) => {
                self.listener = Listener::Nobody;
                self.lost += 1;
            }
        }
    }
}

/// An event as a line. Control characters in paths are escaped: a name cannot make a line of its own.
fn line(event: &Event) -> String {
    let mut out = String::from("sftp: ");
    let p = |path: &CString| quoted(path);
    // Writing into a string cannot fail.
    let _ = match event {
        Event::Closed {
            path, read, written, ..
        } => {
            write!(out, "close {} bytes read {read} written {written}", p(path))
        }
        Event::Opened { path, flags, .. } => write!(out, "open {} flags {flags:#x}", p(path)),
        Event::Listed { path, .. } => write!(out, "opendir {}", p(path)),
        Event::Removed { path, directory, .. } => {
            write!(out, "{} {}", if *directory { "rmdir" } else { "remove" }, p(path))
        }
        Event::Renamed { from, to, .. } => write!(out, "rename {} to {}", p(from), p(to)),
        Event::DirectoryMade { path, mode, .. } => write!(out, "mkdir {} mode {mode:04o}", p(path)),
        Event::AttributesSet {
            path,
            size,
            uid,
            gid,
            mode,
            times,
            ..
        } => {
            let _ = write!(out, "set {}", p(path));
            if let Some(size) = size {
                let _ = write!(out, " size {size}");
            }
            if let Some(mode) = mode {
                let _ = write!(out, " mode {mode:04o}");
            }
            if let (Some(uid), Some(gid)) = (uid, gid) {
                let _ = write!(out, " owner {uid} group {gid}");
            }
            if *times {
                let _ = write!(out, " times");
            }
            Ok(())
        }
        Event::Linked {
            target,
            path,
            symbolic,
            ..
        } => {
            let how = if *symbolic { "symlink" } else { "link" };
            write!(out, "{how} {} to {}", p(path), p(target))
        }
        Event::Lost { count } => write!(out, "{count} events were lost"),
    };
    match event {
        Event::Opened { errno, .. }
        | Event::Listed { errno, .. }
        | Event::Removed { errno, .. }
        | Event::Renamed { errno, .. }
        | Event::DirectoryMade { errno, .. }
        | Event::AttributesSet { errno, .. }
        | Event::Linked { errno, .. }
            if *errno != 0 =>
        {
            let _ = write!(out, ": {}", Errno(*errno).text());
        }
        _ => {}
    }
    out.push('\n');
    out
}

fn quoted(path: &CString) -> String {
    let mut out = String::from("\"");
    for b in path.as_bytes() {
        match b {
            b'"' | b'\\' => out.extend(['\\', *b as char]),
            0x20..=0x7e => out.push(*b as char),
            _ => {
                let _ = write!(out, "\\x{b:02x}");
            }
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use fleetgate_sys::socket;

    #[test]
    fn lines_say_what_was_done_and_how_it_went() {
        let event = Event::Removed {
            path: c"/a\n\"b".into(),
            directory: false,
            errno: Errno::EACCES.0,
        };
        assert_eq!(line(&event), "sftp: remove \"/a\\x0a\\\"b\": Permission denied\n");
        let event = Event::Closed {
            path: c"/x".into(),
            read: 5,
            written: 0,
            flags: 1,
        };
        assert_eq!(line(&event), "sftp: close \"/x\" bytes read 5 written 0\n");
    }

    #[test]
    fn what_is_lost_is_counted_and_told_first() {
        let (ours, theirs) = socket::pair().unwrap();
        let mut events = Events::new(Listener::Frames(ours), b"/start".to_vec());
        let event = Event::Listed {
            path: events.absolute(&c"x".into()),
            errno: 0,
        };
        let mut told = 0;
        while events.lost() == 0 {
            events.tell(&event);
            told += 1;
        }
        events.tell(&event);
        let mut buffer = [0; 4096];
        let mut next = || {
            let message = socket::receive(&theirs, &mut buffer, true).unwrap();
            fleetgate_wire::decode::<Event>(&buffer[..message.len]).unwrap()
        };
        for _ in 0..told - 1 {
            assert_eq!(
                next(),
                Event::Listed {
                    path: c"/start/x".into(),
                    errno: 0
                }
            );
        }
        events.tell(&event);
        assert_eq!(next(), Event::Lost { count: 2 });
        assert_eq!(next(), event);
        drop(theirs);
        events.tell(&event);
        events.tell(&event);
        assert_eq!(events.lost(), 2);
    }
}

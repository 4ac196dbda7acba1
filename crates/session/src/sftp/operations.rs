//! One session's state, and the way from a request to what does it.

use super::events::Events;
use super::handles::{Handles, OpenHandle};
use super::output::Output;
use super::people::People;
use super::protocol::{AllowedOperations, End, OPERATIONS, Operation, Status, VERSION, kind, open};
use super::request::{Packet, Request};
use alloc::ffi::CString;
use fleetgate_sys::Errno;
use fleetgate_wire::sftp::Event;

/// What one client's session consists of.
pub struct Session {
    /// Answers on their way.
    pub output: Output,
    /// What it may ask for.
    pub allowed: AllowedOperations,
    /// Whether files open for reading only.
    pub read_only: bool,
    /// What it holds open.
    pub handles: Handles,
    /// Who hears of what it does.
    pub events: Events,
    /// Names of users and groups.
    pub people: People,
    /// The home directory of the one it serves, where known.
    pub home: Option<CString>,
    /// Whether the versions were exchanged.
    pub initialised: bool,
}

/// How an operation went, for its answer: it was answered already, or with this status.
pub type Outcome = Result<(), Status>;

impl Session {
    /// Takes one packet and answers it.
    pub fn take(&mut self, packet: Packet<'_>) -> Result<(), End> {
        match packet {
            Packet::Init { version } => self.exchange_versions(version),
            _ if !self.initialised => return Err(End::NotInitialised),
            // OpenSSH leaves unknown types without an answer, and its client waiting; the draft wants this.
            Packet::Unknown { id } => self.output.status(id, Status::Unsupported),
            Packet::Request {
                id,
                operation,
                request,
            } => self.perform(id, operation, &request),
        }
        Ok(())
    }

    /// Answers a request whose fields could not be read. The next packet's place is known, so the session goes
    /// on.
    pub fn malformed(&mut self, id: u32) -> Result<(), End> {
        if !self.initialised {
            return Err(End::NotInitialised);
        }
        self.output.status(id, Status::BadMessage);
        Ok(())
    }

    /// Closes whatever is open, and tells the sums.
    pub fn close_all(&mut self) {
        for open in self.handles.drain() {
            tell_closed(&mut self.events, &open);
        }
    }

    fn exchange_versions(&mut self, version: u32) {
        self.initialised = true;
        self.output.version = version.min(VERSION);
        let mut answer = self.output.answer(kind::VERSION, VERSION);
        for described in &OPERATIONS {
            if let Some((name, version)) = described.extension
                && self.allowed.permits(described.operation)
            {
                answer.string(name.as_bytes());
                answer.string(version.as_bytes());
            }
        }
        answer.finish();
    }

    fn perform(&mut self, id: u32, operation: Operation, request: &Request<'_>) {
        let outcome = if self.allowed.permits(operation) {
            self.dispatch(id, request)
        } else {
            Err(Status::PermissionDenied)
        };
        let errno = match outcome {
            Ok(()) => Errno(0),
            Err(status) => {
                self.output.status(id, status);
                status.errno()
            }
        };
        if self.events.wanted()
            && let Some(event) = self.event(request, errno)
        {
            self.events.tell(&event);
        }
    }

    fn dispatch(&mut self, id: u32, request: &Request<'_>) -> Outcome {
        match request {
            Request::Open {
                path,
                flags,
                attributes,
            } => self.open(id, path, *flags, attributes),
            Request::Close { handle } => self.close(id, handle),
            Request::Read { handle, offset, len } => self.read(id, handle, *offset, *len),
            Request::Write { handle, offset, data } => self.write(id, handle, *offset, data),
            Request::Lstat { path } => self.stat(id, path, false),
            Request::Stat { path } => self.stat(id, path, true),
            Request::Fstat { handle } => self.stat_open(id, handle),
            Request::Setstat { path, attributes } => self.set(id, path, attributes),
            Request::Fsetstat { handle, attributes } => self.set_open(id, handle, attributes),
            Request::Lsetstat { path, attributes } => self.set_no_follow(id, path, attributes),
            Request::Opendir { path } => self.open_directory(id, path),
            Request::Readdir { handle } => self.read_directory(id, handle),
            Request::Remove { path } => self.remove(id, path, false),
            Request::Rmdir { path } => self.remove(id, path, true),
            Request::Mkdir { path, attributes } => self.make_directory(id, path, attributes),
            Request::Realpath { path } => self.real_path(id, path),
            Request::Rename { from, to } => self.rename(id, from, to),
            Request::PosixRename { from, to } => self.replace(id, from, to),
            Request::Readlink { path } => self.read_link(id, path),
            Request::Symlink { target, path } => self.symlink(id, target, path),
            Request::Hardlink { from, to } => self.hard_link(id, from, to),
            Request::Statvfs { path } => self.file_system(id, path),
            Request::Fstatvfs { handle } => self.file_system_open(id, handle),
            Request::Fsync { handle } => self.sync(id, handle),
            Request::Limits => self.limits(id),
            Request::ExpandPath { path } => self.expand_path(id, path),
            Request::CopyData {
                from,
                from_offset,
                len,
                to,
                to_offset,
            } => self.copy_data(id, (from, *from_offset), *len, (to, *to_offset)),
            Request::HomeDirectory { user } => self.home_directory(id, user),
            Request::UsersGroupsById { uids, gids } => self.users_groups(id, uids, gids),
        }
    }

    /// What is told of `request`. Reads and writes are summed up when their file is closed.
    fn event(&mut self, request: &Request<'_>, errno: Errno) -> Option<Event> {
        let errno = errno.0;
        let at = |path: &CString| self.events.absolute(path);
        Some(match request {
            Request::Open { path, flags, .. } => Event::Opened {
                path: at(path),
                flags: *flags,
                errno,
            },
            Request::Opendir { path } => Event::Listed {
                path: at(path),
                errno,
            },
            Request::Remove { path } => Event::Removed {
                path: at(path),
                directory: false,
                errno,
            },
            Request::Rmdir { path } => Event::Removed {
                path: at(path),
                directory: true,
                errno,
            },
            Request::Mkdir { path, attributes } => Event::DirectoryMade {
                path: at(path),
                mode: attributes.mode.unwrap_or(0o777) & 0o7777,
                errno,
            },
            Request::Rename { from, to } | Request::PosixRename { from, to } => Event::Renamed {
                from: at(from),
                to: at(to),
                errno,
            },
            Request::Hardlink { from, to } => Event::Linked {
                target: at(from),
                path: at(to),
                symbolic: false,
                errno,
            },
            Request::Symlink { target, path } => Event::Linked {
                target: target.clone(),
                path: at(path),
                symbolic: true,
                errno,
            },
            Request::Setstat { path, attributes } | Request::Lsetstat { path, attributes } => {
                set_event(at(path), attributes, errno)
            }
            Request::Fsetstat { handle, attributes } => {
                let path = self.handles.file(handle).map(|f| f.path.clone());
                set_event(self.events.absolute(&path.unwrap_or_default()), attributes, errno)
            }
            _ => return None,
        })
    }

    /// Done, and that is all there is to say.
    pub fn done(&mut self, id: u32) -> Outcome {
        self.output.status(id, Status::Ok);
        Ok(())
    }
}

fn set_event(path: CString, attributes: &super::request::Attributes, errno: i32) -> Event {
    Event::AttributesSet {
        path,
        size: attributes.size,
        uid: attributes.owner.map(|o| o.0),
        gid: attributes.owner.map(|o| o.1),
        mode: attributes.mode.map(|m| m & 0o7777),
        times: attributes.times.is_some(),
        errno,
    }
}

/// Tells what was done to a file that is being closed.
pub fn tell_closed(events: &mut Events, open: &OpenHandle) {
    if let OpenHandle::File(file) = open
        && events.wanted()
    {
        let path = events.absolute(&file.path);
        events.tell(&Event::Closed {
            path,
            read: file.read,
            written: file.written,
            flags: file.flags,
        });
    }
}

/// Whether OPEN with these flags could change something.
pub const fn opens_for_change(flags: u32) -> bool {
    flags & (open::WRITE | open::CREATE | open::TRUNCATE | open::APPEND) != 0
}

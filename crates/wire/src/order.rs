//! Orders to the session helper, and which descriptors travel with them.

use crate::exec::Exec;
use crate::home::CheckHome;
use crate::net::Networking;
use crate::sftp::Sftp;
use crate::{Decode, Encode, Error, Reader, Writer, codec::Item};
use alloc::vec::Vec;

/// What one launched helper is to do.
#[derive(Clone, Debug, PartialEq, Eq)]
// A process sees one order in its life: a box would cost an allocation and save nothing.
#[allow(clippy::large_enum_variant)]
pub enum Work {
    /// Become a shell or command.
    Exec(Exec),
    /// Open sockets for one login until told to stop.
    Networking(Networking),
    /// Look at a home directory.
    CheckHome(CheckHome),
    /// Serve files.
    Sftp(Sftp),
}

/// An order: the work, and what each descriptor beside the frame is for, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Order {
    /// The work.
    pub work: Work,
    /// One role per descriptor.
    pub roles: Vec<Role>,
}

/// What a descriptor is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Role {
    /// Standard input.
    Stdin = 0,
    /// Standard output.
    Stdout = 1,
    /// Standard error.
    Stderr = 2,
    /// The terminal's user side: becomes all three and the controlling terminal.
    Terminal = 3,
    /// A connection to the resolver, for names.
    Resolver = 4,
    /// Where events go (sftp operations).
    Events = 5,
    /// Where the listener of a watched session's filter goes, and the message that it is held comes from.
    Watcher = 6,
    /// The container's first process, as one descriptor of it.
    Container = 7,
    /// The directory that is the container's root, open as a place only.
    Root = 8,
    /// Where our side of the terminal goes that is made inside the container.
    Console = 9,
}

impl Encode for Role {
    fn encode(&self, w: &mut Writer) {
        w.put(&[*self as u8]);
    }
}
impl Decode for Role {
    fn decode(r: &mut Reader<'_>) -> Result<Self, Error> {
        Ok(match u8::decode(r)? {
            0 => Role::Stdin,
            1 => Role::Stdout,
            2 => Role::Stderr,
            3 => Role::Terminal,
            4 => Role::Resolver,
            5 => Role::Events,
            6 => Role::Watcher,
            7 => Role::Container,
            8 => Role::Root,
            9 => Role::Console,
            tag => {
                return Err(Error::Unknown {
                    what: "descriptor role",
                    tag: tag.into(),
                });
            }
        })
    }
}
impl Item for Role {}

impl Encode for Order {
    fn encode(&self, w: &mut Writer) {
        self.roles.encode(w);
        match &self.work {
            Work::Exec(o) => {
                w.put(&[0]);
                o.encode(w);
            }
            Work::Networking(o) => {
                w.put(&[1]);
                o.encode(w);
            }
            Work::CheckHome(o) => {
                w.put(&[2]);
                o.encode(w);
            }
            Work::Sftp(o) => {
                w.put(&[3]);
                o.encode(w);
            }
        }
    }
}
impl Decode for Order {
    fn decode(r: &mut Reader<'_>) -> Result<Self, Error> {
        let roles = Vec::<Role>::decode(r)?;
        let work = match u8::decode(r)? {
            0 => Work::Exec(Exec::decode(r)?),
            1 => Work::Networking(Networking::decode(r)?),
            2 => Work::CheckHome(CheckHome::decode(r)?),
            3 => Work::Sftp(Sftp::decode(r)?),
            tag => {
                return Err(Error::Unknown {
                    what: "order",
                    tag: tag.into(),
                });
            }
        };
        Ok(Order { work, roles })
    }
}

impl Work {
    /// The helper's subcommand for this work.
    pub const fn subcommand(&self) -> &'static core::ffi::CStr {
        match self {
            Work::Exec(_) => c"exec",
            Work::Networking(_) => c"networking",
            Work::CheckHome(_) => c"checkhomedir",
            Work::Sftp(_) => c"sftp",
        }
    }
}

/// Stands in the message instead of an order that is longer than [`crate::MAX_INLINE`]: the first descriptor is
/// a sealed memfd that holds the order's frame.
pub const BY_REFERENCE: [u8; 4] = *b"fgM\x01";

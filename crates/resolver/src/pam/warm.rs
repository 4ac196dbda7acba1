//! The warm server: a process that has libpam, the services' modules and NSS loaded, and forks once per PAM session.
//! It runs no module's functions itself, so nothing of one session is in the next.

use super::session;
use crate::broker::become_child;
use fleetgate_sys::glibc::fork::{self, Forked};
use fleetgate_sys::glibc::pam::Libpam;
use fleetgate_sys::glibc::{Library, nss};
use fleetgate_sys::{Fd, process, socket};
use fleetgate_wire::MAX_INLINE;
use fleetgate_wire::resolver::ToResolver;
use std::ffi::CString;
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// Where the warm server finds its socket.
const SOCKET: i32 = 3;

/// How much is loaded beforehand. Less where more did not work: a session then loads it itself, and alone suffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Depth {
    /// libpam, modules, and name services that were used once.
    Everything,
    /// Without the name services.
    Modules,
    /// Nothing.
    Nothing,
}

impl Depth {
    /// The next lower.
    pub fn less(self) -> Option<Depth> {
        match self {
            Depth::Everything => Some(Depth::Modules),
            Depth::Modules => Some(Depth::Nothing),
            Depth::Nothing => None,
        }
    }
}

impl fmt::Display for Depth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Depth::Everything => "modules and name services",
            Depth::Modules => "modules alone",
            Depth::Nothing => "nothing loaded beforehand",
        })
    }
}

/// A started warm server. It ends when the socket closes; the sessions that it began do not.
pub struct Warm {
    /// One byte comes back when it is ready; requests go in.
    pub socket: Fd,
    /// To kill it while it loads.
    pub pidfd: Fd,
}

impl Warm {
    /// Starts one.
    pub fn start(modules: Vec<PathBuf>, depth: Depth) -> fleetgate_sys::Result<Warm> {
        let (ours, theirs) = socket::pair()?;
        match fork::fork()? {
            Forked::Parent(pid) => Ok(Warm {
                socket: ours,
                pidfd: process::pidfd_open(pid)?,
            }),
            Forked::Child => {
                let code = match become_child(theirs, SOCKET, c"fleetgate-warm") {
                    Ok(socket) => serve(socket, &modules, depth),
                    Err(_) => 1,
                };
                process::exit(code)
            }
        }
    }
}

fn serve(socket: Fd, modules: &[PathBuf], depth: Depth) -> i32 {
    let libpam = load(modules, depth);
    // Sessions that end are nobody's to wait for.
    fork::reap_children(true);
    let mut buffer = vec![0u8; MAX_INLINE];
    if socket::send(&socket, &[1], &[]).is_err() {
        return 0;
    }
    loop {
        let (len, peer) = match socket::receive(&socket, &mut buffer, true) {
            Ok(mut m) if m.len > 0 => (m.len, m.fds.pop()),
            _ => return 0,
        };
        let Some(peer) = peer else { return 1 };
        match fork::fork() {
            Ok(Forked::Child) => {
                drop(socket);
                fork::reap_children(false);
                fork::set_name(c"fleetgate-pam");
                let start = match fleetgate_wire::decode::<ToResolver>(&buffer[..len]) {
                    Ok(ToResolver::Pam { start }) => start,
                    _ => process::exit(1),
                };
                drop(buffer);
                session::run(libpam, &start, peer);
                process::exit(0)
            }
            Ok(Forked::Parent(_)) => {}
            Err(e) => super::refuse(&peer, &format!("no process for the session: {e}")),
        }
    }
}

/// Loads; whatever is missing is told by the session that needs it.
fn load(modules: &[PathBuf], depth: Depth) -> Option<Libpam> {
    if depth == Depth::Nothing {
        return None;
    }
    let libpam = Libpam::open().ok();
    if libpam.is_some() {
        for module in modules {
            if let Ok(path) = CString::new(module.as_os_str().as_bytes()) {
                let _ = Library::open(&path);
            }
        }
    }
    if depth == Depth::Everything {
        // Each of these loads the modules that /etc/nsswitch.conf names for its table.
        let _ = nss::user_by_name(c"root");
        let _ = nss::shadow_of(c"root");
        let _ = nss::group_by_id(0);
        let _ = nss::groups_of(c"root", 0);
    }
    fork::trim_memory();
    libpam
}

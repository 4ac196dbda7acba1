//! The warm server: a process that has libpam, the services' modules and NSS loaded, and forks once per PAM session,
//! one session ahead. It runs no module's functions itself, so nothing of one session is in the next.

use super::session;
use crate::child::become_child;
use fleetgate_sys::glibc::fork::{self, ForkSide};
use fleetgate_sys::glibc::pam::{Conversation, Libpam, Message, Transaction};
use fleetgate_sys::glibc::{Library, nss};
use fleetgate_sys::{Fd, process, socket};
use fleetgate_wire::MAX_INLINE;
use fleetgate_wire::resolver::ToResolver;
use std::ffi::{CStr, CString};
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
    /// One byte in asks for one more PAM process. Out comes [`MADE`] with the socket on which that process waits for
    /// its request, or [`NOT_MADE`]. The first is made unasked: it says that loading is over.
    pub socket: Fd,
    /// To kill it while it loads.
    pub pidfd: Fd,
}

/// A process was made; its socket is beside.
pub const MADE: u8 = 1;
/// No process could be made.
pub const NOT_MADE: u8 = 0;

impl Warm {
    /// Starts one.
    pub fn start(modules: Vec<PathBuf>, depth: Depth, service: &CStr) -> fleetgate_sys::Result<Warm> {
        let (ours, theirs) = socket::pair()?;
        match fork::fork()? {
            ForkSide::Parent(pid) => Ok(Warm {
                socket: ours,
                pidfd: process::pidfd_open(pid)?,
            }),
            ForkSide::Child => {
                let code = match become_child(theirs, SOCKET, c"fleetgate-warm") {
                    Ok(socket) => serve(socket, &modules, depth, service),
                    Err(_) => 1,
                };
                process::exit(code)
            }
        }
    }
}

fn serve(socket: Fd, modules: &[PathBuf], depth: Depth, service: &CStr) -> i32 {
    let libpam = load(modules, depth);
    // Sessions that end are nobody's to wait for.
    fork::reap_children(true);
    loop {
        let made = make(&socket, libpam, depth, service);
        let told = match &made {
            Ok(process) => socket::send(&socket, &[MADE], &[process.raw()]),
            Err(e) => {
                crate::log(format_args!("no process for a PAM session: {e}"));
                socket::send(&socket, &[NOT_MADE], &[])
            }
        };
        drop(made);
        let asked = socket::receive(&socket, &mut [0], true);
        if told.is_err() || !asked.is_ok_and(|m| m.len == 1) {
            return 0;
        }
    }
}

/// Makes a process for the session after this one, so that no login waits for the fork and for the page faults after
/// it: 140 and 200 us of 1050. What is left of the old rule is that there is one, not a pool.
fn make(server: &Fd, libpam: Option<Libpam>, depth: Depth, service: &CStr) -> fleetgate_sys::Result<Fd> {
    let (ours, theirs) = socket::pair()?;
    match fork::fork()? {
        ForkSide::Parent(_) => Ok(ours),
        ForkSide::Child => {
            drop(ours);
            // The server's own socket; it goes on in the other process.
            if let Ok(socket) = become_child(theirs, server.raw(), c"fleetgate-next") {
                wait(&socket, libpam, depth, service);
            }
            process::exit(0)
        }
    }
}

/// Waits for the request, and is that session until its end. The socket closes when the broker ends or renews.
fn wait(socket: &Fd, libpam: Option<Libpam>, depth: Depth, service: &CStr) {
    if depth == Depth::Everything {
        touch();
    }
    if let Some(libpam) = libpam {
        rehearse(libpam, service);
    }
    let mut buffer = vec![0u8; MAX_INLINE];
    let (len, peer) = match socket::receive(socket, &mut buffer, true) {
        Ok(mut m) if m.len > 0 => (m.len, m.fds.pop()),
        _ => return,
    };
    let word = fleetgate_wire::decode::<ToResolver>(&buffer[..len]);
    drop(buffer);
    if let (Ok(ToResolver::Pam { start }), Some(peer)) = (word, peer) {
        fork::set_name(c"fleetgate-pam");
        session::run(libpam, &start, peer);
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
        touch();
    }
    fork::trim_memory();
    libpam
}

/// Uses the name services once: in the server this loads the modules that /etc/nsswitch.conf names for each table, in
/// its child it brings their pages in. A host too, because libaudit asks for one; a number goes to no server.
fn touch() {
    let _ = nss::user_by_name(c"root");
    let _ = nss::shadow_of(c"root");
    let _ = nss::group_by_id(0);
    let _ = nss::groups_of(c"root", 0);
    let _ = nss::host(c"192.0.2.1");
}

/// Begins and ends a transaction without calling any module: libpam reads the service's files, and its pages and
/// theirs are in when the session needs them.
fn rehearse(libpam: Libpam, service: &CStr) {
    struct Nobody;
    impl Conversation for Nobody {
        fn converse(&mut self, _: &[Message], _: &mut dyn FnMut(usize, &CStr)) -> bool {
            false
        }
    }
    drop(Transaction::start(libpam, service, c"root", Box::new(Nobody)));
}

//! systemd's side of the service: readiness, reloads, and sockets that it hands over or keeps for the next start
//! (sd_notify(3), sd_listen_fds(3)). Without systemd all of it does nothing.

use super::listeners::Listening;
use fleetgate_sys::{Fd, clock, process, socket};
use std::env;
use std::ffi::{OsStr, OsString};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// Under which name systemd keeps our sockets.
const STORED: &str = "fleetgate-node";
/// The most sockets that are taken over.
const MAX_SOCKETS: i32 = 64;
/// sd_listen_fds(3): the first of them.
const FIRST: i32 = 3;

/// What systemd told us in the environment.
pub struct Systemd {
    notify: Option<Fd>,
    sockets: i32,
}

/// Whether a variable is for the process that systemd started, and for no child of it.
pub fn is_systemds(name: &OsStr) -> bool {
    [
        "NOTIFY_SOCKET",
        "LISTEN_FDS",
        "LISTEN_PID",
        "LISTEN_FDNAMES",
        "WATCHDOG_PID",
        "WATCHDOG_USEC",
    ]
    .iter()
    .any(|n| name == *n)
}

impl Systemd {
    /// From this process's environment.
    pub fn from_environment() -> Systemd {
        let number = |name| env::var(name).ok().and_then(|v| v.parse::<i32>().ok());
        let ours = number("LISTEN_PID") == Some(process::id());
        let sockets = number("LISTEN_FDS")
            .filter(|_| ours)
            .unwrap_or(0)
            .clamp(0, MAX_SOCKETS);
        Systemd {
            notify: env::var_os("NOTIFY_SOCKET").and_then(connect),
            sockets,
        }
    }

    /// None.
    #[cfg(test)]
    pub fn none() -> Systemd {
        Systemd {
            notify: None,
            sockets: 0,
        }
    }

    /// The sockets that came with us, close-on-exec from here on.
    pub fn sockets(&self) -> Vec<Fd> {
        let sockets: Vec<Fd> = (FIRST..FIRST + self.sockets).map(Fd::from_raw).collect();
        for fd in &sockets {
            let _ = fd.set_cloexec(true);
            let _ = fd.set_nonblocking(true);
        }
        sockets
    }

    /// Says one line, or several.
    pub fn say(&self, words: &str) {
        self.send(words, &[]);
    }

    /// A reload begins; systemd wants to know when.
    pub fn reloading(&self) {
        let now = clock::monotonic().as_nanos() / 1000;
        self.say(&format!("RELOADING=1\nMONOTONIC_USEC={now}"));
    }

    /// Has systemd keep the listening sockets, so that no connection is refused while the service restarts. What it
    /// gave us it has.
    pub fn keep(&self, listening: &Listening) {
        if self.sockets > 0 {
            return;
        }
        for fd in &listening.sockets {
            self.send(&format!("FDSTORE=1\nFDNAME={STORED}"), &[fd.raw()]);
        }
    }

    fn send(&self, words: &str, fds: &[i32]) {
        if let Some(notify) = &self.notify
            && let Err(e) = socket::send_now(notify, words.as_bytes(), fds)
        {
            tracing::warn!("systemd was not told {words:?}: {e}");
        }
    }
}

fn connect(path: OsString) -> Option<Fd> {
    let address = match path.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name),
        path => SocketAddr::from_pathname(OsStr::from_bytes(path)),
    };
    let socket = UnixDatagram::unbound().ok()?;
    match address.and_then(|a| socket.connect_addr(&a)) {
        Ok(()) => Some(Fd::from(std::os::fd::OwnedFd::from(socket))),
        Err(e) => {
            tracing::warn!("systemd's notification socket {path:?}: {e}");
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_and_sockets_reach_the_notification_socket() {
        let name = format!("fleetgate-notify-{}", process::id());
        let address = SocketAddr::from_abstract_name(&name).expect("a name");
        let listener = UnixDatagram::bind_addr(&address).expect("bound");
        let systemd = Systemd {
            notify: connect(format!("@{name}").into()),
            sockets: 0,
        };
        systemd.say("READY=1");
        let (ours, _theirs) = socket::pair().expect("pair");
        systemd.keep(&Listening {
            sockets: vec![ours],
            addresses: Vec::new(),
        });
        let listener = Fd::from(std::os::fd::OwnedFd::from(listener));
        let mut buffer = [0; 256];
        for (words, fds) in [("READY=1", 0), ("FDSTORE=1\nFDNAME=fleetgate-node", 1)] {
            let got = socket::receive(&listener, &mut buffer, true).expect("a message");
            assert_eq!((&buffer[..got.len], got.fds.len()), (words.as_bytes(), fds));
        }
    }
}

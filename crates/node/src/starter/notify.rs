//! systemd's side of the service's start: where it hears from us, and sockets that it hands over or keeps for the next start
//! (sd_listen_fds(3)). Without systemd there is none of it.

use super::listeners::Listening;
use crate::seat::Log;
use crate::vigil::Systemd;
use fleetgate_sys::{Fd, process};
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

/// Where systemd hears from us, as the environment says.
pub fn systemd(log: Log) -> Systemd {
    Systemd::on(env::var_os("NOTIFY_SOCKET").and_then(connect), log)
}

/// The sockets that systemd hands over, close-on-exec from here on.
pub fn sockets() -> Vec<Fd> {
    let number = |name| env::var(name).ok().and_then(|v| v.parse::<i32>().ok());
    let ours = number("LISTEN_PID") == Some(process::id());
    let count = number("LISTEN_FDS").filter(|_| ours).unwrap_or(0);
    let sockets: Vec<Fd> = (FIRST..FIRST + count.clamp(0, MAX_SOCKETS))
        .map(Fd::from_raw)
        .collect();
    for fd in &sockets {
        let _ = fd.set_cloexec(true);
        let _ = fd.set_nonblocking(true);
    }
    sockets
}

/// Has systemd keep the listening sockets, so that no connection is refused while the service restarts. What it gave us it
/// has.
pub fn keep(systemd: &Systemd, listening: &Listening) {
    if !listening.given {
        for fd in &listening.sockets {
            systemd.hand(&format!("FDSTORE=1\nFDNAME={STORED}"), &[fd.raw()]);
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
    use crate::seat::Format;
    use fleetgate_sys::socket;

    #[test]
    fn words_and_sockets_reach_the_notification_socket() {
        let name = format!("fleetgate-notify-{}", process::id());
        let address = SocketAddr::from_abstract_name(&name).expect("a name");
        let listener = UnixDatagram::bind_addr(&address).expect("bound");
        let systemd = Systemd::on(
            connect(format!("@{name}").into()),
            crate::vigil::log(Format::Text),
        );
        systemd.say("READY=1");
        for given in [true, false] {
            let (ours, _theirs) = socket::pair().expect("pair");
            let listening = Listening {
                sockets: vec![ours],
                addresses: Vec::new(),
                given,
            };
            keep(&systemd, &listening);
        }
        systemd.say("STOPPING=1");
        let listener = Fd::from(std::os::fd::OwnedFd::from(listener));
        let mut buffer = [0; 256];
        for (words, fds) in [
            ("READY=1", 0),
            ("FDSTORE=1\nFDNAME=fleetgate-node", 1),
            ("STOPPING=1", 0),
        ] {
            let got = socket::receive(&listener, &mut buffer, true).expect("a message");
            assert_eq!((&buffer[..got.len], got.fds.len()), (words.as_bytes(), fds));
        }
    }
}

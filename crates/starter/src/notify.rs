//! systemd's side of the service's start: where it hears from us, and sockets that it hands over or keeps for the next start
//! (sd_listen_fds(3)). Without systemd there is none of it.

use crate::listeners::ListeningSockets;
use fleetgate_base::sockets::{self, InheritedSockets};
use fleetgate_base::{notify, parent};
use fleetgate_sys::Fd;
use fleetgate_worker::idle_starter::Systemd;
use fleetgate_worker::start::Log;
use std::ffi::OsStr;
use std::net::SocketAddr;

/// Under which name systemd keeps our sockets.
const STORED: &str = "fleetgate-node";

/// Whether a variable is for the process that systemd started, and for no child of it.
pub fn is_systemds(name: &OsStr) -> bool {
    [
        notify::VARIABLE,
        "WATCHDOG_PID",
        "WATCHDOG_USEC",
        sockets::VARIABLE,
        parent::VARIABLE,
    ]
    .iter()
    .chain(&sockets::SYSTEMDS)
    .any(|n| name == *n)
}

/// Where systemd hears from us, as the environment says.
pub fn systemd(log: Log) -> Systemd {
    Systemd::on(notify::socket_from_environment(), log)
}

/// The sockets that were handed over, for these addresses. Those that an earlier process made for others are given back.
pub fn sockets(systemd: &Systemd, addresses: &[SocketAddr]) -> Vec<Fd> {
    let handed = InheritedSockets::from_environment();
    if handed.is_kept && !handed.fit(addresses) {
        systemd.say(&format!("FDSTOREREMOVE=1\nFDNAME={STORED}"));
        return Vec::new();
    }
    handed.sockets
}

/// Has systemd keep the listening sockets, so that no connection is refused while the service restarts. What it gave us it
/// has.
pub fn keep(systemd: &Systemd, listening: &ListeningSockets) {
    if !listening.given {
        for fd in &listening.sockets {
            systemd.hand(&format!("FDSTORE=1\nFDNAME={STORED}"), &[fd.raw()]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fleetgate_sys::{process, socket};
    use fleetgate_worker::idle_starter;
    use fleetgate_worker::start::Format;
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::{SocketAddr as UnixAddress, UnixDatagram};

    #[test]
    fn words_and_sockets_reach_the_notification_socket() {
        let name = format!("fleetgate-notify-{}", process::id());
        let address = UnixAddress::from_abstract_name(&name).expect("a name");
        let listener = UnixDatagram::bind_addr(&address).expect("bound");
        let systemd = Systemd::on(
            notify::connect(format!("@{name}").into()),
            idle_starter::log(Format::Text),
        );
        systemd.say("READY=1");
        for given in [true, false] {
            let (ours, _theirs) = socket::pair().expect("pair");
            let listening = ListeningSockets {
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

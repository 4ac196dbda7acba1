//! Listening sockets that outlive the process that made them, so that nobody is refused while a service restarts. Whoever
//! starts a service keeps them: systemd (FDSTORE= of sd_notify(3), sd_listen_fds(3)), or `fleetgate up`, which takes them by
//! the same words and hands them over by a variable of its own. Nothing is bound or accepted here.

use fleetgate_sys::net;
use fleetgate_sys::{Fd, process};
use std::net::SocketAddr;

/// The variable by which `fleetgate up` hands sockets over: their numbers, separated by commas.
pub const VARIABLE: &str = "FLEETGATE_SOCKETS";
/// The variables of systemd that are for the process that it starts, and for no child of it.
pub const SYSTEMDS: [&str; 3] = ["LISTEN_FDS", "LISTEN_PID", "LISTEN_FDNAMES"];
/// The most sockets that are taken over.
pub const MAX_SOCKETS: usize = 64;
/// sd_listen_fds(3): the first of them.
const FIRST: i32 = 3;

/// What was handed over at the start.
#[derive(Default)]
pub struct InheritedSockets {
    /// The sockets, close-on-exec from here on.
    pub sockets: Vec<Fd>,
    /// They are an earlier process's, which `fleetgate up` kept: where they listen is the configuration's to say.
    pub is_kept: bool,
}

impl InheritedSockets {
    /// From this process's environment; to be called once, before anything is opened.
    pub fn from_environment() -> InheritedSockets {
        let Ok(numbers) = std::env::var(VARIABLE) else {
            return InheritedSockets {
                sockets: from_systemd().into_iter().map(|(_, socket)| socket).collect(),
                is_kept: false,
            };
        };
        let numbers = numbers.split(',').filter_map(|number| number.parse().ok());
        let sockets = numbers.filter(|number| *number >= FIRST).take(MAX_SOCKETS);
        InheritedSockets {
            sockets: sockets.map(taken).collect(),
            is_kept: true,
        }
    }

    /// Whether these are the sockets of exactly these addresses.
    pub fn fit(&self, addresses: &[SocketAddr]) -> bool {
        let theirs: Vec<SocketAddr> = self.sockets.iter().filter_map(address).collect();
        theirs.len() == self.sockets.len()
            && theirs.len() == addresses.len()
            && addresses.iter().all(|wanted| theirs.contains(wanted))
    }

    /// The socket that listens on this address. The others are closed.
    pub fn take(self, wanted: SocketAddr) -> Option<Fd> {
        self.sockets
            .into_iter()
            .find(|socket| address(socket) == Some(wanted))
    }
}

/// The sockets that systemd hands over, each with its name (sd_listen_fds_with_names(3)).
pub fn from_systemd() -> Vec<(String, Fd)> {
    let number = |name| {
        std::env::var(name)
            .ok()
            .and_then(|value| value.parse::<i32>().ok())
    };
    let ours = number("LISTEN_PID") == Some(process::id());
    let count = number("LISTEN_FDS").filter(|_| ours).unwrap_or(0);
    let names = std::env::var("LISTEN_FDNAMES").unwrap_or_default();
    let mut names = names.split(':');
    (FIRST..FIRST.saturating_add(count))
        .take(MAX_SOCKETS)
        .map(|number| (names.next().unwrap_or_default().to_owned(), taken(number)))
        .collect()
}

fn taken(number: i32) -> Fd {
    let socket = Fd::from_raw(number);
    let _ = socket.set_cloexec(true);
    let _ = socket.set_nonblocking(true);
    socket
}

fn address(socket: &Fd) -> Option<SocketAddr> {
    net::local(socket).ok().map(SocketAddr::from)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;
    use std::os::fd::OwnedFd;

    #[test]
    fn sockets_are_found_by_their_address_and_no_other() {
        let listen = |address: &str| TcpListener::bind(address).expect("a free port");
        let (one, two) = (listen("127.0.0.1:0"), listen("127.0.0.1:0"));
        let (first, second) = (one.local_addr().expect("bound"), two.local_addr().expect("bound"));
        let handed = InheritedSockets {
            sockets: [one, two].map(|l| Fd::from(OwnedFd::from(l))).into(),
            is_kept: true,
        };
        assert!(handed.fit(&[second, first]));
        assert!(!handed.fit(&[first]));
        assert!(!handed.fit(&[first, SocketAddr::from(([127, 0, 0, 1], 1))]));
        let socket = handed.take(second).expect("it is there");
        assert_eq!(address(&socket), Some(second));
        // The other one was closed: its port is free.
        listen(&first.to_string());
        assert!(InheritedSockets::default().take(first).is_none());
        assert!(InheritedSockets::default().fit(&[]));
    }
}

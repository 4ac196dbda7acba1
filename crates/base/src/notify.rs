//! What a service says to whoever started it: that it is ready, and a line about itself (sd_notify(3)). Where nobody
//! listens it says nothing. The node's starter takes only the socket from here: it goes on as a smaller program, which has
//! words and a log of its own.

use fleetgate_sys::{Fd, socket};
use std::ffi::{OsStr, OsString};
use std::os::fd::OwnedFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// The variable that names the socket.
pub const VARIABLE: &str = "NOTIFY_SOCKET";

/// Whoever started this process.
pub struct Notify(Option<Fd>);

impl Notify {
    /// From this process's environment.
    pub fn from_environment() -> Notify {
        Notify(socket_from_environment())
    }

    /// Says one line, or several.
    pub fn say(&self, words: &str) {
        self.hand(words, &[]);
    }

    /// Has a listening socket kept under this name, for the next process of this service.
    pub fn keep(&self, name: &str, listener: i32) {
        self.hand(&format!("FDSTORE=1\nFDNAME={name}"), &[listener]);
    }

    /// Has nothing kept under this name any more.
    pub fn forget(&self, name: &str) {
        self.say(&format!("FDSTOREREMOVE=1\nFDNAME={name}"));
    }

    fn hand(&self, words: &str, descriptors: &[i32]) {
        if let Some(to) = &self.0
            && let Err(e) = socket::send_now(to, words.as_bytes(), descriptors)
        {
            tracing::warn!("whoever started this process was not told {words:?}: {e}");
        }
    }
}

/// The socket of whoever started this process, as its environment names it.
pub fn socket_from_environment() -> Option<Fd> {
    std::env::var_os(VARIABLE).and_then(connect)
}

/// The socket at `path`; `@` begins an abstract name.
pub fn connect(path: OsString) -> Option<Fd> {
    let address = match path.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name),
        path => SocketAddr::from_pathname(OsStr::from_bytes(path)),
    };
    let socket = UnixDatagram::unbound().ok()?;
    // A service manager that does not read must not hold up the service.
    let connected = address
        .and_then(|a| socket.connect_addr(&a))
        .and_then(|()| socket.set_nonblocking(true));
    match connected {
        Ok(()) => Some(Fd::from(OwnedFd::from(socket))),
        Err(e) => {
            tracing::warn!("the notification socket {path:?}: {e}");
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_reach_the_socket_and_none_is_no_error() {
        let name = format!("fleetgate-base-notify-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).expect("a name");
        let listener = UnixDatagram::bind_addr(&address).expect("bound");
        Notify(connect(format!("@{name}").into())).say("READY=1");
        let mut buffer = [0; 64];
        let n = listener.recv(&mut buffer).expect("a message");
        assert_eq!(&buffer[..n], b"READY=1");
        let notify = Notify(connect(format!("@{name}").into()));
        notify.keep("a-name", 0);
        notify.forget("a-name");
        let listener = Fd::from(OwnedFd::from(listener));
        for (words, descriptors) in [
            ("FDSTORE=1\nFDNAME=a-name", 1),
            ("FDSTOREREMOVE=1\nFDNAME=a-name", 0),
        ] {
            let got = socket::receive(&listener, &mut buffer, true).expect("a message");
            assert_eq!(
                (&buffer[..got.len], got.fds.len()),
                (words.as_bytes(), descriptors)
            );
        }
        drop(listener);
        assert!(connect(format!("@{name}-nobody").into()).is_none());
        Notify(None).say("READY=1");
    }
}

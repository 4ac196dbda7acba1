//! What a service says to whoever started it: that it is ready, and a line about itself (sd_notify(3)). Where nobody
//! listens it says nothing. The node's starter has its own, which also hands over sockets.

use std::ffi::{OsStr, OsString};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// The variable that names the socket.
pub const VARIABLE: &str = "NOTIFY_SOCKET";

/// Whoever started this process.
pub struct Notify(Option<UnixDatagram>);

impl Notify {
    /// From this process's environment.
    pub fn from_environment() -> Notify {
        Notify(std::env::var_os(VARIABLE).and_then(connect))
    }

    /// Says one line, or several.
    pub fn say(&self, words: &str) {
        if let Some(socket) = &self.0
            && let Err(e) = socket.send(words.as_bytes())
        {
            tracing::warn!("whoever started this process was not told {words:?}: {e}");
        }
    }
}

fn connect(path: OsString) -> Option<UnixDatagram> {
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
        Ok(()) => Some(socket),
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
        assert!(connect(format!("@{name}-nobody").into()).is_none());
        Notify(None).say("READY=1");
    }
}

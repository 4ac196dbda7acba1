//! Listening sockets and what arrives on them. It decides nothing about a connection:
//! `Monitor::admit_connection` does.

use super::Monitor;
use super::wakes::{Key, Owner, Wakes};
use super::workers::WorkerId;
use fleetgate_sys::net::{self, Address};
use fleetgate_sys::poll::READ;
use fleetgate_sys::{Errno, Fd};
use fleetgate_wire::node::ConnectionAddresses;
use fleetgate_wire::node::tunnel::Ticket;
use std::net::SocketAddr;
use std::time::Duration;

/// The most connections taken from one socket before others have their turn.
const PER_TURN: usize = 32;
/// How long nothing is accepted after there was no descriptor or memory for a connection.
pub const PAUSE: Duration = Duration::from_millis(100);
/// The key's id of the timer that ends a pause; listening sockets count from 0.
pub const RESUME: u64 = 1 << 32;

/// The sockets.
pub struct Listeners {
    listeners: Vec<Fd>,
    paused: bool,
}

/// One that arrived.
pub struct NewConnection {
    /// Its socket.
    pub socket: Fd,
    /// The peer.
    pub source: SocketAddr,
    /// Both ends.
    pub addresses: ConnectionAddresses,
    /// The proxy that it came by; all else is its claim then.
    pub via: Option<Via>,
}

/// What a connection's proxy says about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Via {
    /// The proxy's name.
    pub proxy: String,
    /// Whose certificate it saw.
    pub user: String,
    /// The tunnel that brought it.
    pub worker: WorkerId,
    /// Its number there.
    pub ticket: Ticket,
}

/// What one turn of accepting came to.
pub enum AcceptResult {
    /// One.
    One(NewConnection),
    /// No more now.
    Empty,
    /// There is no descriptor or memory for one; accepting pauses.
    Short(Errno),
}

impl Listeners {
    /// Accepts on these.
    pub fn new(listeners: Vec<Fd>, wakes: &Wakes) -> Result<Listeners, Errno> {
        for (at, listener) in listeners.iter().enumerate() {
            listener.set_nonblocking(true)?;
            wakes.watch(listener, READ, Key::new(Owner::Listeners, at as u64))?;
        }
        Ok(Listeners {
            listeners,
            paused: false,
        })
    }

    /// How many may be taken in one turn from one socket.
    pub const fn per_turn(&self) -> usize {
        PER_TURN
    }

    /// The next connection on this socket.
    pub fn accept(&mut self, listener: u64) -> AcceptResult {
        if self.paused {
            return AcceptResult::Empty;
        }
        let listener = usize::try_from(listener)
            .ok()
            .and_then(|at| self.listeners.get(at));
        let Some(listener) = listener else {
            return AcceptResult::Empty;
        };
        match net::accept(listener) {
            Ok((socket, peer)) => match new_connection(socket, peer) {
                Ok(arrived) => AcceptResult::One(arrived),
                Err(_) => AcceptResult::Empty,
            },
            Err(e @ (Errno::EMFILE | Errno::ENFILE | Errno::ENOMEM | Errno::ENOBUFS)) => {
                AcceptResult::Short(e)
            }
            // EAGAIN; ECONNABORTED and its kin: the peer was gone before we looked.
            Err(_) => AcceptResult::Empty,
        }
    }

    /// Accepts nothing until [`Listeners::resume`]; what arrives waits in the kernel's queue.
    pub fn pause(&mut self, wakes: &Wakes) {
        self.paused = true;
        self.watch(wakes, 0);
    }

    /// Accepts again.
    pub fn resume(&mut self, wakes: &Wakes) {
        if self.paused {
            self.paused = false;
            self.watch(wakes, READ);
        }
    }

    fn watch(&self, wakes: &Wakes, events: i16) {
        for (at, listener) in self.listeners.iter().enumerate() {
            let _ = wakes.change(listener, events, Key::new(Owner::Listeners, at as u64));
        }
    }

    /// Whether there are any.
    pub const fn has_port(&self) -> bool {
        !self.listeners.is_empty()
    }

    /// Closes them.
    pub fn close(&mut self, wakes: &Wakes) {
        // systemd or `fleetgate up` holds the same sockets: closing ours alone would leave them watched.
        for listener in &self.listeners {
            wakes.forget(listener);
        }
        self.listeners.clear();
    }
}

fn new_connection(socket: Fd, peer: Address) -> Result<NewConnection, Errno> {
    // Neither is worth a connection.
    let _ = net::set_no_delay(&socket);
    let _ = net::set_keep_alive(&socket);
    let (peer, local) = (SocketAddr::from(peer), SocketAddr::from(net::local(&socket)?));
    Ok(NewConnection {
        source: peer,
        addresses: ConnectionAddresses {
            peer: peer.into(),
            local: local.into(),
        },
        socket,
        via: None,
    })
}

impl Monitor {
    /// A listening socket has connections, or a pause is over.
    pub(crate) fn listeners_woken(&mut self, id: u64) {
        if id == RESUME {
            return self.lobby_resume();
        }
        for _ in 0..self.listeners.per_turn() {
            match self.listeners.accept(id) {
                // Of a refusal it tells itself.
                AcceptResult::One(arrived) => {
                    let _ = self.admit_connection(arrived);
                }
                AcceptResult::Empty => return,
                AcceptResult::Short(e) => {
                    tracing::error!(
                        "no connection can be accepted: {e}; raise LimitNOFILE or lower limits.connections"
                    );
                    self.listeners.pause(&self.tools.wakes);
                    self.tools.metrics.accepts(false);
                    self.tools.timers.after(PAUSE, Key::new(Owner::Listeners, RESUME));
                    return;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_arrives_has_both_ends_and_a_pause_keeps_it_waiting() {
        let mut wakes = Wakes::new().expect("epoll");
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let fd = Fd::from(std::os::fd::OwnedFd::from(listener));
        let mut listeners = Listeners::new(vec![fd], &wakes).expect("listeners");
        listeners.pause(&wakes);
        let client = std::net::TcpStream::connect(address).expect("connects");
        let mut keys = Vec::new();
        wakes.wait(Some(0), &mut keys).expect("wait");
        assert_eq!(keys, []);
        assert!(matches!(listeners.accept(0), AcceptResult::Empty));
        listeners.resume(&wakes);
        wakes.wait(Some(10_000), &mut keys).expect("wait");
        assert_eq!(keys, [Key::new(Owner::Listeners, 0)]);
        let AcceptResult::One(one) = listeners.accept(0) else {
            panic!("nothing arrived")
        };
        assert_eq!(one.source, client.local_addr().expect("an address"));
        assert_eq!(one.addresses.local.port, address.port());
        assert!(matches!(listeners.accept(0), AcceptResult::Empty));
        assert!(matches!(listeners.accept(7), AcceptResult::Empty));
    }
}

//! The socket to the monitor, under tokio: whole frames both ways. Who says something waits until there is room, so
//! nothing is kept here; what comes while a signature is waited for is kept until the loop asks for it.

use fleetgate_net::tls::Signer;
use fleetgate_sys::{Errno, Fd, socket};
use fleetgate_wire::node::MAX_FRAME;
use fleetgate_wire::node::tunnel::{FromTunnel, MAX_SIGN, Ticket, ToTunnel};
use fleetgate_worker::start::WorkerEnd;
use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::io::unix::AsyncFd;
use tokio::sync::Notify;

/// Room for the longest frame with its fields around it.
const ROOM: usize = MAX_FRAME + 8 * 1024;

/// A word and the descriptors beside it.
pub(crate) type MonitorFrame = (ToTunnel, Vec<Fd>);

/// The socket.
pub(crate) struct MonitorSocket {
    socket: AsyncFd<Fd>,
    early: Mutex<VecDeque<MonitorFrame>>,
    came_early: Notify,
}

impl MonitorSocket {
    /// On this socket; to be called inside the runtime.
    pub(crate) fn new(socket: Fd) -> Result<Arc<MonitorSocket>, WorkerEnd> {
        // What takes its place is unsafe, for types that give out another descriptor every time; ours is one number that
        // stays open as long as it is watched.
        #[allow(deprecated)]
        let socket = AsyncFd::new(socket).map_err(WorkerEnd::at("watching the control socket"))?;
        Ok(Arc::new(MonitorSocket {
            socket,
            early: Mutex::default(),
            came_early: Notify::new(),
        }))
    }

    /// The next word.
    pub(crate) async fn hear(&self) -> Result<MonitorFrame, WorkerEnd> {
        loop {
            if let Some(heard) = self.early().pop_front() {
                return Ok(heard);
            }
            let mut guard = tokio::select! {
                () = self.came_early.notified() => continue,
                ready = self.socket.readable() => ready.map_err(WorkerEnd::at("waiting for the monitor"))?,
            };
            match receive(self.socket.get_ref(), false) {
                Ok(heard) => return Ok(heard),
                Err(None) => guard.clear_ready(),
                Err(Some(ended)) => return Err(ended),
            }
        }
    }

    /// Says `word`, as soon as there is room.
    pub(crate) async fn say(&self, word: &FromTunnel) -> Result<(), WorkerEnd> {
        let frame = fleetgate_wire::encode(word);
        loop {
            match socket::send_now(self.socket.get_ref(), &frame, &[]) {
                Ok(()) => return Ok(()),
                Err(Errno::EAGAIN) => {}
                Err(e) => return Err(broken(e)),
            }
            let ready = self.socket.writable().await;
            ready
                .map_err(WorkerEnd::at("waiting for the monitor"))?
                .clear_ready();
            // There may have been room between the two.
            match socket::send_now(self.socket.get_ref(), &frame, &[]) {
                Ok(()) => return Ok(()),
                Err(Errno::EAGAIN) => {}
                Err(e) => return Err(broken(e)),
            }
        }
    }

    fn early(&self) -> std::sync::MutexGuard<'_, VecDeque<MonitorFrame>> {
        self.early.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks for a signature and waits for it: rustls wants it at once. The monitor never waits for us, so this takes as
    /// long as one signature does, once for each connection that is dialled.
    fn signature(&self, ticket: Ticket, message: &[u8]) -> Result<Vec<u8>, WorkerEnd> {
        let word = FromTunnel::Sign {
            ticket,
            message: message.to_vec(),
        };
        socket::send(self.socket.get_ref(), &fleetgate_wire::encode(&word), &[]).map_err(broken)?;
        loop {
            match receive(self.socket.get_ref(), true) {
                Ok((
                    ToTunnel::Signed {
                        ticket: of,
                        signature,
                    },
                    _,
                )) if of == ticket => {
                    return signature
                        .ok_or_else(|| WorkerEnd::Because("the monitor signs no such thing".to_owned()));
                }
                Ok(other) => {
                    self.early().push_back(other);
                    self.came_early.notify_one();
                }
                Err(Some(ended)) => return Err(ended),
                Err(None) => {}
            }
        }
    }
}

/// Signs by the monitor, which has the key.
pub(crate) struct MonitorSigner {
    monitor: Arc<MonitorSocket>,
    next: AtomicU64,
}

impl MonitorSigner {
    pub(crate) fn new(monitor: Arc<MonitorSocket>) -> MonitorSigner {
        MonitorSigner {
            monitor,
            next: AtomicU64::new(1),
        }
    }
}

impl Signer for MonitorSigner {
    fn sign(&self, message: &[u8]) -> io::Result<Vec<u8>> {
        if message.len() > MAX_SIGN {
            return Err(io::Error::other("the message is longer than a handshake's"));
        }
        let ticket = self.next.fetch_add(1, Ordering::Relaxed);
        self.monitor
            .signature(ticket, message)
            .map_err(|ended| match ended {
                WorkerEnd::Quietly => io::Error::other("the monitor is gone"),
                WorkerEnd::Because(why) => io::Error::other(why),
            })
    }
}

impl std::fmt::Debug for MonitorSigner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the monitor")
    }
}

/// The first word of all, waited for before there is a runtime.
pub(crate) fn first(socket: &Fd) -> Result<ToTunnel, WorkerEnd> {
    loop {
        match receive(socket, true) {
            Ok((word, _)) => return Ok(word),
            Err(Some(ended)) => return Err(ended),
            Err(None) => {}
        }
    }
}

/// One frame. An error of none: there is none now.
fn receive(socket: &Fd, wait: bool) -> Result<MonitorFrame, Option<WorkerEnd>> {
    // Longer than what the allocator keeps: the kernel gives it page by page as it is used, and takes it back.
    let mut room = vec![0; ROOM];
    let got = match socket::receive(socket, &mut room, wait) {
        Ok(got) if got.len == 0 => return Err(Some(WorkerEnd::Quietly)),
        Ok(got) if got.truncated => {
            return Err(Some(WorkerEnd::Because(
                "a frame of the monitor was cut".to_owned(),
            )));
        }
        Ok(got) => got,
        Err(Errno::EAGAIN) => return Err(None),
        Err(e) => return Err(Some(broken(e))),
    };
    let word = fleetgate_wire::decode(&room[..got.len])
        .map_err(|e| Some(WorkerEnd::Because(format!("a frame of the monitor: {e}"))))?;
    Ok((word, got.fds))
}

fn broken(e: Errno) -> WorkerEnd {
    match e {
        Errno::EPIPE | Errno::ECONNRESET => WorkerEnd::Quietly,
        e => WorkerEnd::Because(format!("the socket to the monitor: {e}")),
    }
}

//! A message socket between a command and the master, as the runtime waits for it: one frame is one message.

use fleetgate_sys::process::effective_uid;
use fleetgate_sys::socket::{self, ReceivedMessage};
use fleetgate_sys::{Errno, Fd, net, stream};
use fleetgate_wire::master::MAX_FRAME;
use fleetgate_wire::{Decode, Encode};
use std::cell::RefCell;
use std::ffi::CString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::task::{Context, Poll, ready};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Connections that wait for the master to accept them: a hundred commands that start at once, and more.
const BACKLOG: i32 = 512;

thread_local! {
    /// What a frame is received in.
    static ROOM: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// One end.
pub struct MessageSocket(AsyncFd<Fd>);

/// A frame, and the descriptors that came with it.
pub type Message<T> = (T, Vec<Fd>);

impl MessageSocket {
    /// To be called within a runtime.
    pub fn new(fd: Fd) -> io::Result<MessageSocket> {
        stream::make_nonblocking(&fd)?;
        watched(fd).map(MessageSocket)
    }

    /// To the master that listens at `path`. `WouldBlock`: its queue is full.
    pub fn connect(path: &Path) -> io::Result<MessageSocket> {
        let fd = socket::unconnected()?;
        net::connect_unix(&fd, &name(path)?)?;
        MessageSocket::new(fd)
    }

    /// Ours, and the other end for a process that is to be started.
    pub fn pair() -> io::Result<(MessageSocket, Fd)> {
        let (ours, its) = socket::pair()?;
        Ok((MessageSocket::new(ours)?, its))
    }

    /// The other end is a process of the same user.
    pub fn is_ours(&self) -> bool {
        socket::peer_user(self.0.get_ref()).is_ok_and(|user| user == effective_uid())
    }

    /// The descriptor, for a frame that is made already.
    pub fn fd(&self) -> &Fd {
        self.0.get_ref()
    }

    /// Sends at once, or not at all: who does not read what is small has stopped reading.
    pub fn send(&self, word: &impl Encode, descriptors: &[i32]) -> io::Result<()> {
        let frame = fleetgate_wire::encode(word);
        if frame.len() > MAX_FRAME {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "the frame is too long",
            ));
        }
        socket::send_now(self.0.get_ref(), &frame, descriptors).map_err(io::Error::from)
    }

    /// The next word. `InvalidData`: it is of another version, or none. `UnexpectedEof`: the other end is closed.
    pub fn poll_receive<T: Decode>(&self, cx: &mut Context<'_>) -> Poll<io::Result<Message<T>>> {
        loop {
            let mut guard = ready!(self.0.poll_read_ready(cx))?;
            let received = ROOM.with_borrow_mut(|room| {
                room.resize(MAX_FRAME, 0);
                match socket::receive(self.0.get_ref(), room, false) {
                    Err(Errno::EAGAIN) => None,
                    Err(e) => Some(Err(e.into())),
                    Ok(ReceivedMessage { len: 0, .. }) => Some(Err(io::ErrorKind::UnexpectedEof.into())),
                    Ok(message) => Some(decoded(room, message)),
                }
            });
            match received {
                Some(received) => return Poll::Ready(received),
                None => guard.clear_ready(),
            }
        }
    }

    /// The other end is closed, or says what nobody waits for.
    pub(crate) fn is_over(&self) -> bool {
        ROOM.with_borrow_mut(|room| {
            room.resize(MAX_FRAME, 0);
            !matches!(socket::receive(self.fd(), room, false), Err(Errno::EAGAIN))
        })
    }

    /// Waits for one.
    pub async fn receive<T: Decode>(&self) -> io::Result<Message<T>> {
        std::future::poll_fn(|cx| self.poll_receive(cx)).await
    }
}

fn decoded<T: Decode>(room: &[u8], message: ReceivedMessage) -> io::Result<Message<T>> {
    let wrong = |why: &str| io::Error::new(io::ErrorKind::InvalidData, why.to_owned());
    if message.truncated {
        return Err(wrong("the frame was cut"));
    }
    let word = fleetgate_wire::decode(&room[..message.len]).map_err(|e| wrong(&e.to_string()))?;
    Ok((word, message.fds))
}

/// The master's listening socket.
pub(crate) struct Listener(AsyncFd<Fd>);

impl Listener {
    /// At a path where nothing is.
    pub(crate) fn bind(path: &Path) -> io::Result<Listener> {
        let fd = socket::unconnected()?;
        net::bind_unix(&fd, &name(path)?)?;
        net::listen(&fd, BACKLOG)?;
        stream::make_nonblocking(&fd)?;
        watched(fd).map(Listener)
    }

    /// One that has come already.
    pub(crate) fn accept_now(&self) -> Option<MessageSocket> {
        let (fd, _) = net::accept_any(self.0.get_ref()).ok()?;
        MessageSocket::new(fd).ok().filter(MessageSocket::is_ours)
    }

    pub(crate) async fn accept(&self) -> io::Result<MessageSocket> {
        loop {
            let mut guard = self.0.readable().await?;
            match net::accept_any(self.0.get_ref()) {
                Ok((fd, _)) => return MessageSocket::new(fd),
                Err(Errno::EAGAIN) => guard.clear_ready(),
                Err(e) => return Err(e.into()),
            }
        }
    }
}

/// The newer name of this call is unsafe, since a type could change its descriptor behind the runtime's back: `Fd` owns
/// one and keeps it.
#[allow(deprecated)]
pub fn watched(fd: Fd) -> io::Result<AsyncFd<Fd>> {
    AsyncFd::with_interest(fd, Interest::READABLE)
}

fn name(path: &Path) -> io::Result<CString> {
    Ok(CString::new(path.as_os_str().as_bytes())?)
}

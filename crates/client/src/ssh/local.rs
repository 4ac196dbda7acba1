//! This machine's end of a channel: a TCP or unix socket, or the standard streams. It reads and writes and never waits;
//! the standard streams' own flags, which other programs share, are left alone.

use fleetgate_sys::{Errno, Fd, file, poll, stream};
use std::ffi::CString;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::{TcpStream, UnixStream};

/// What a write to a pipe that says it has room never waits for (pipe(7): PIPE_BUF).
const PIPE_BUF: usize = 4096;

/// The major number of /dev/null, /dev/zero, /dev/full and /dev/random (mem(4)).
const MEMORY_DEVICES: u64 = 1;

/// An end.
pub(crate) enum Local {
    Tcp(TcpStream),
    Unix(UnixStream),
    Streams(Streams),
}

/// The standard streams, as far as they are used.
pub(crate) struct Streams {
    pub(crate) input: Option<StandardStream>,
    pub(crate) output: Option<StandardStream>,
    pub(crate) error: Option<StandardStream>,
}

/// One of the standard streams.
pub struct StandardStream {
    how: How,
}

enum How {
    /// A file, or a device that is always ready: epoll(7) has no events for it.
    Ready(Fd),
    /// A socket: each call says that it does not wait.
    Socket(AsyncFd<Fd>),
    /// A pipe or terminal, opened again: an open file of our own, which does not wait.
    Own(AsyncFd<Fd>),
    /// One that could not be: asked before each call.
    Shared(AsyncFd<Fd>),
}

impl Local {
    pub(crate) fn poll_read(&mut self, cx: &mut Context<'_>, room: &mut [u8]) -> Poll<io::Result<usize>> {
        let mut buffer = ReadBuf::new(room);
        match self {
            Local::Tcp(stream) => ready!(Pin::new(stream).poll_read(cx, &mut buffer))?,
            Local::Unix(stream) => ready!(Pin::new(stream).poll_read(cx, &mut buffer))?,
            Local::Streams(streams) => {
                return match &mut streams.input {
                    Some(input) => input.poll_read(cx, room),
                    None => Poll::Ready(Ok(0)),
                };
            }
        }
        Poll::Ready(Ok(buffer.filled().len()))
    }

    /// `error`: to standard error, where there is one.
    pub(crate) fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        error: bool,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self {
            Local::Tcp(stream) => Pin::new(stream).poll_write(cx, bytes),
            Local::Unix(stream) => Pin::new(stream).poll_write(cx, bytes),
            Local::Streams(streams) => {
                let to = if error {
                    &mut streams.error
                } else {
                    &mut streams.output
                };
                match to {
                    Some(to) => to.poll_write(cx, bytes),
                    None => Poll::Ready(Ok(bytes.len())),
                }
            }
        }
    }

    /// Nothing more is written.
    pub(crate) fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Local::Tcp(stream) => Pin::new(stream).poll_shutdown(cx),
            Local::Unix(stream) => Pin::new(stream).poll_shutdown(cx),
            Local::Streams(streams) => {
                streams.output = None;
                Poll::Ready(Ok(()))
            }
        }
    }
}

impl Streams {
    /// None of them: what is written is gone.
    pub(crate) fn none() -> Streams {
        Streams {
            input: None,
            output: None,
            error: None,
        }
    }

    /// Input and output; with `error`, standard error too. Without `input` what is read is the end.
    pub fn open(input: bool, error: bool) -> io::Result<Streams> {
        Ok(Streams {
            input: input.then(|| StandardStream::open(0)).transpose()?,
            output: Some(StandardStream::open(1)?),
            error: error.then(|| StandardStream::open(2)).transpose()?,
        })
    }
}

impl StandardStream {
    /// Of the process: 0, 1 or 2. To be called within a runtime.
    pub fn open(number: i32) -> io::Result<StandardStream> {
        let owned = match number {
            0 => io::stdin().as_fd().try_clone_to_owned(),
            1 => io::stdout().as_fd().try_clone_to_owned(),
            _ => io::stderr().as_fd().try_clone_to_owned(),
        };
        StandardStream::new(owned?.into(), number == 0)
    }

    /// Any descriptor, as one of them.
    pub(super) fn new(fd: Fd, reads: bool) -> io::Result<StandardStream> {
        let status = std::fs::File::from(fd.as_fd().try_clone_to_owned()?).metadata()?;
        let kind = status.file_type();
        let interest = if reads {
            Interest::READABLE
        } else {
            Interest::WRITABLE
        };
        // /dev/null, which most programs give for what they do not read: epoll takes none of the memory devices.
        let is_memory = kind.is_char_device() && status.rdev() >> 8 == MEMORY_DEVICES;
        let plain = kind.is_file() || kind.is_dir() || kind.is_block_device() || is_memory;
        let how = if plain {
            How::Ready(fd)
        } else if kind.is_socket() {
            How::Socket(watched(fd, interest)?)
        } else {
            match again(&fd, reads).map(|own| watched(own, interest)) {
                Ok(Ok(own)) => How::Own(own),
                _ => match fd.duplicate(0).map(|fd| watched(fd, interest)) {
                    Ok(Ok(shared)) => How::Shared(shared),
                    // /dev/null and its kin.
                    _ => How::Ready(fd),
                },
            }
        };
        Ok(StandardStream { how })
    }

    fn poll_read(&mut self, cx: &mut Context<'_>, room: &mut [u8]) -> Poll<io::Result<usize>> {
        let (fd, how) = match &self.how {
            How::Ready(fd) => return Poll::Ready(file::read(fd.raw(), room).map_err(io::Error::from)),
            How::Socket(fd) => (fd, Call::Socket),
            How::Own(fd) => (fd, Call::Plain),
            How::Shared(fd) => (fd, Call::Asked),
        };
        loop {
            let mut guard = ready!(fd.poll_read_ready(cx))?;
            let got = match how {
                Call::Socket => stream::receive_now(fd.get_ref().raw(), room),
                Call::Asked if !is_ready(fd.get_ref(), poll::READ) => Err(Errno::EAGAIN),
                _ => file::read(fd.get_ref().raw(), room),
            };
            match got {
                Err(Errno::EAGAIN) => guard.clear_ready(),
                // EIO: a terminal that is gone, or that we may not read any more, has nothing more to say.
                Err(Errno::EIO) => return Poll::Ready(Ok(0)),
                other => return Poll::Ready(other.map_err(io::Error::from)),
            }
        }
    }

    fn poll_write(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let (fd, how) = match &self.how {
            How::Ready(fd) => return Poll::Ready(file::write(fd.raw(), bytes).map_err(io::Error::from)),
            How::Socket(fd) => (fd, Call::Socket),
            How::Own(fd) => (fd, Call::Plain),
            How::Shared(fd) => (fd, Call::Asked),
        };
        loop {
            let mut guard = ready!(fd.poll_write_ready(cx))?;
            let put = match how {
                Call::Socket => stream::send_now(fd.get_ref().raw(), bytes),
                Call::Asked if !is_ready(fd.get_ref(), poll::WRITE) => Err(Errno::EAGAIN),
                Call::Asked => file::write(fd.get_ref().raw(), &bytes[..bytes.len().min(PIPE_BUF)]),
                Call::Plain => file::write(fd.get_ref().raw(), bytes),
            };
            match put {
                Err(Errno::EAGAIN) => guard.clear_ready(),
                other => return Poll::Ready(other.map_err(io::Error::from)),
            }
        }
    }
}

impl AsyncRead for StandardStream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let n = ready!(StandardStream::poll_read(
            self.get_mut(),
            cx,
            buffer.initialize_unfilled()
        ))?;
        buffer.advance(n);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for StandardStream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        StandardStream::poll_write(self.get_mut(), cx, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

#[derive(Clone, Copy)]
enum Call {
    Socket,
    Plain,
    Asked,
}

/// The newer name of this call is unsafe, since a type could change its descriptor behind the runtime's back: `Fd` owns
/// one and keeps it.
#[allow(deprecated)]
fn watched(fd: Fd, interest: Interest) -> io::Result<AsyncFd<Fd>> {
    AsyncFd::with_interest(fd, interest)
}

/// The same pipe or terminal as another open file, so that O_NONBLOCK is ours alone.
fn again(fd: &Fd, reads: bool) -> Result<Fd, Errno> {
    use file::flags::{O_NOCTTY, O_NONBLOCK, O_RDONLY, O_WRONLY};
    let path = CString::new(format!("/proc/self/fd/{}", fd.raw())).expect("digits hold no zero byte");
    let mode = if reads { O_RDONLY } else { O_WRONLY };
    file::openat(file::CWD, &path, mode | O_NONBLOCK | O_NOCTTY, 0)
}

fn is_ready(fd: &Fd, events: i16) -> bool {
    let mut watch = [poll::Watch::new(fd.raw(), events)];
    poll::poll(&mut watch, Some(0)).is_ok_and(|n| n > 0)
}

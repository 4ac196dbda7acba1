//! The loop: requests in, answers out, on the client's two streams.
//!
//! System calls per request, once a transfer runs: READ is one pread, and one send for every 128 KB of answers;
//! WRITE is one pwrite, and its bytes come by reads of up to 260 KB. One read brings as many requests as have
//! come, and their answers leave together. OpenSSH 9.2 makes eight calls for a READ and thirty-six for a WRITE of
//! 255 KB (poll, read of 16 KB, lseek, getpid …), and copies the data twice on the way.
//!
//! Nobody can make it hold more than it should: when answers wait because the client does not read, requests that
//! bring data wait too; when [`MOST_WAITING`] bytes wait, all do. Until then it goes on reading, so that a client
//! which sends much before it reads is not stuck.

use super::operations::Session;
use super::protocol::{End, MAX_PACKET, kind};
use super::request::{Framing, RequestError, frame, parse};
use alloc::vec::Vec;
use fleetgate_sys::poll::{self, Watch};
use fleetgate_sys::{Errno, Fd, file, stream, tree};

/// One packet of the longest kind with its length field, and a few small ones behind it: what is left over after
/// a long packet, and moved to the front, is little.
const INPUT: usize = MAX_PACKET + 4 + (4 << 10);
/// Answers leave when this much waits: a second write less, the bytes still in the processor's cache.
const SEND_AT: usize = 128 << 10;
/// With more than this waiting, requests that bring data wait.
const MUCH_WAITING: usize = 256 << 10;
/// With more than this waiting, every request waits. About 150,000 statuses.
const MOST_WAITING: usize = 4 << 20;
/// Room asked for on the way to the client, so that the longest answer leaves in one call.
const STREAM_ROOM: i32 = 512 << 10;

/// How answers leave.
enum OutputKind {
    /// A socket: each call says that it will not wait.
    Socket,
    /// A pipe, made non-blocking for as long as this runs.
    Pipe {
        /// What it was before.
        was_nonblocking: bool,
    },
    /// A file or terminal: written to as it is.
    Other,
}

/// The client's streams.
pub struct Streams {
    input: Fd,
    input_is_socket: bool,
    output: Fd,
    way: OutputKind,
}

impl Streams {
    /// Takes the two streams, which may be one socket twice.
    pub fn new(input: Fd, output: Fd) -> Streams {
        let way = match tree::stat_open(output.raw()) {
            Ok(stat) if stat.is_socket() => {
                // The default holds 208 KB; without more the longest answer leaves in two pieces.
                let _ = stream::set_send_buffer(output.raw(), STREAM_ROOM);
                OutputKind::Socket
            }
            Ok(stat) if stat.is_fifo() => {
                let _ = stream::set_pipe_size(output.raw(), STREAM_ROOM);
                let was_nonblocking = stream::is_nonblocking(&output).unwrap_or(false);
                match output.set_nonblocking(true) {
                    Ok(()) => OutputKind::Pipe { was_nonblocking },
                    Err(_) => OutputKind::Other,
                }
            }
            _ => OutputKind::Other,
        };
        let kind = tree::stat_open(input.raw()).ok();
        if kind.is_some_and(|s| s.is_fifo()) {
            let _ = stream::set_pipe_size(input.raw(), STREAM_ROOM);
        }
        Streams {
            input,
            input_is_socket: kind.is_some_and(|s| s.is_socket()),
            output,
            way,
        }
    }

    /// Receives what has come by now; `None`: nothing has.
    fn receive_now(&self, room: &mut [u8]) -> Result<Option<usize>, Errno> {
        let received = if self.input_is_socket {
            stream::receive_now(self.input.raw(), room)
        } else if readable(self) {
            file::read(self.input.raw(), room)
        } else {
            return Ok(None);
        };
        match received {
            Err(Errno::EAGAIN) => Ok(None),
            other => other.map(Some),
        }
    }

    /// Sends what fits now; 0: nothing.
    fn send(&self, bytes: &[u8]) -> Result<usize, Errno> {
        let sent = match self.way {
            OutputKind::Socket => stream::send_now(self.output.raw(), bytes),
            OutputKind::Pipe { .. } | OutputKind::Other => file::write(self.output.raw(), bytes),
        };
        match sent {
            Err(Errno::EAGAIN) => Ok(0),
            other => other,
        }
    }
}

impl Drop for Streams {
    fn drop(&mut self) {
        if let OutputKind::Pipe {
            was_nonblocking: false,
        } = self.way
        {
            let _ = self.output.set_nonblocking(false);
        }
    }
}

/// Bytes that came and were not worked off.
struct Input {
    buffer: Vec<u8>,
    start: usize,
    end: usize,
}

impl Input {
    fn waiting(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    /// Where the next bytes go; what waits moves to the front first. Never empty while no whole packet waits.
    fn room(&mut self) -> &mut [u8] {
        if self.start > 0 {
            self.buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        &mut self.buffer[self.end..]
    }
}

/// Why working off stopped.
enum ServePause {
    /// No whole packet waits.
    Hungry,
    /// Too much waits to be sent.
    Full,
}

/// Serves until the client closes or breaks the rules. Every handle is closed afterwards, and told.
pub fn serve(session: &mut Session, streams: &Streams) -> End {
    let mut input = Input {
        buffer: alloc::vec![0; INPUT],
        start: 0,
        end: 0,
    };
    let end = turns(session, streams, &mut input);
    if end == End::Closed {
        // A client that closed one direction may still read the other.
        let _ = send_rest(session, streams);
    }
    session.close_all();
    end
}

fn turns(session: &mut Session, streams: &Streams, input: &mut Input) -> End {
    loop {
        let stopped = match work(session, streams, input) {
            Ok(stopped) => stopped,
            Err(end) => return end,
        };
        // A client in the middle of a packet is sending: answers wait while more of it has come already, as each
        // of them would wake it up. A client that sends nothing more gets them at once.
        if matches!(stopped, ServePause::Hungry)
            && !input.waiting().is_empty()
            && session.output.waiting() < SEND_AT
        {
            match streams.receive_now(input.room()) {
                Ok(Some(0)) => return End::Closed,
                Ok(Some(n)) => {
                    input.end += n;
                    continue;
                }
                Ok(None) => {}
                Err(errno) => return End::Broken(errno),
            }
        }
        if let Err(errno) = flush(session, streams) {
            return End::Broken(errno);
        }
        if session.output.waiting() == 0 {
            // Nothing to send: whatever stopped us is over, or the next request is all there is to wait for.
            if let ServePause::Full = stopped {
                continue;
            }
        } else if let Err(end) = wait(streams, input, matches!(stopped, ServePause::Hungry)) {
            return end;
        } else {
            // Both may be possible now; what can be sent is sent first, what has come is read without waiting.
            if let Err(errno) = flush(session, streams) {
                return End::Broken(errno);
            }
            if matches!(stopped, ServePause::Full) || !readable(streams) {
                continue;
            }
        }
        match file::read(streams.input.raw(), input.room()) {
            Ok(0) => return End::Closed,
            Ok(n) => input.end += n,
            // Somebody made our input non-blocking.
            Err(Errno::EAGAIN) => {
                if let Err(errno) = poll::poll(&mut [Watch::new(streams.input.raw(), poll::READ)], None) {
                    return End::Broken(errno);
                }
            }
            Err(errno) => return End::Broken(errno),
        }
    }
}

/// Works off whole packets, as long as their answers may wait.
fn work(session: &mut Session, streams: &Streams, input: &mut Input) -> Result<ServePause, End> {
    loop {
        let end = match frame(input.waiting()) {
            Framing::Partial => return Ok(ServePause::Hungry),
            Framing::TooLong { len } => return Err(End::TooLong { len }),
            Framing::Whole { end } => end,
        };
        let packet = &input.waiting()[4..end];
        let bound = match packet.first() {
            Some(&(kind::READ | kind::READDIR | kind::EXTENDED)) => MUCH_WAITING,
            _ => MOST_WAITING,
        };
        if session.output.waiting() > bound {
            return Ok(ServePause::Full);
        }
        match parse(packet) {
            Ok(packet) => session.take(packet)?,
            Err(RequestError::Fields { id }) => session.malformed(id)?,
            Err(RequestError::NoRequest) => return Err(End::NoRequest),
        }
        input.start += end;
        if session.output.waiting() >= SEND_AT {
            flush(session, streams).map_err(End::Broken)?;
        }
    }
}

/// Sends what fits now.
fn flush(session: &mut Session, streams: &Streams) -> Result<(), Errno> {
    while session.output.waiting() > 0 {
        match streams.send(session.output.bytes())? {
            0 => break,
            n => session.output.sent(n),
        }
    }
    Ok(())
}

/// Waits for room, and for more to do if `hungry`.
fn wait(streams: &Streams, input: &Input, hungry: bool) -> Result<(), End> {
    let want = hungry && input.end - input.start < input.buffer.len();
    let source = if want { streams.input.raw() } else { -1 };
    let mut watches = [
        Watch::new(streams.output.raw(), poll::WRITE),
        Watch::new(source, poll::READ),
    ];
    poll::poll(&mut watches, None).map(drop).map_err(End::Broken)
}

fn readable(streams: &Streams) -> bool {
    let mut watch = [Watch::new(streams.input.raw(), poll::READ)];
    poll::poll(&mut watch, Some(0)).is_ok_and(|n| n > 0)
}

/// Sends all that waits, however long it takes.
fn send_rest(session: &mut Session, streams: &Streams) -> Result<(), Errno> {
    loop {
        flush(session, streams)?;
        if session.output.waiting() == 0 {
            return Ok(());
        }
        poll::poll(&mut [Watch::new(streams.output.raw(), poll::WRITE)], None)?;
    }
}

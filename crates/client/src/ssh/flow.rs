//! One channel and what it leads to on this side: bytes both ways, each direction ended by itself. What the far side
//! sends and this side does not take yet is kept, which the channel's window bounds.

use super::escape::{EscapeCommand, Escapes};
use super::local::Local;
use super::socks::Version;
use fleetgate_ssh::Connection;
use fleetgate_ssh::event::{ChannelId, Request, Stream};
use std::collections::VecDeque;
use std::io;
use std::task::{Context, Poll};

/// What is read of what a person types at a time.
const TYPED: usize = 4096;
/// What is read of a file or socket at a time, at most.
const READ: usize = 128 * 1024;

/// A channel with both of its ends.
pub(crate) struct Flow {
    pub(crate) id: ChannelId,
    pub(crate) local: Local,
    /// What it is, for people.
    pub(crate) name: String,
    /// A session or `-W`: broken output is told to the far side, and the channel goes on.
    pub(crate) main: bool,
    pub(crate) escapes: Option<Escapes>,
    /// The far side accepted it.
    pub(crate) open: bool,
    /// The process whose terminal this is has stopped: what is typed meanwhile is not for the far side.
    pub(crate) paused: bool,
    /// It does not yet pass every key on: what the far side says meanwhile would be shown by its old modes.
    pub(crate) held: bool,
    /// The far side sends nothing more; it closed the channel.
    pub(crate) ended: bool,
    pub(crate) closed: bool,
    /// Who asked for it by SOCKS is answered when it is open, before anything that the far side sends.
    socks: Option<Version>,
    greeting: Vec<u8>,
    out: VecDeque<u8>,
    err: VecDeque<u8>,
    /// What was typed, before and behind the escapes.
    typed: Vec<u8>,
    escaped: Vec<u8>,
    /// This side sends nothing more.
    read_ended: bool,
    /// This side was told that nothing more comes.
    told_end: bool,
    /// This side takes nothing more.
    broken: bool,
}

impl Flow {
    pub(crate) fn new(id: ChannelId, local: Local, name: String) -> Flow {
        Flow {
            id,
            local,
            name,
            main: false,
            escapes: None,
            open: false,
            paused: false,
            held: false,
            ended: false,
            closed: false,
            socks: None,
            greeting: Vec::new(),
            out: VecDeque::new(),
            err: VecDeque::new(),
            typed: Vec::new(),
            escaped: Vec::new(),
            read_ended: false,
            told_end: false,
            broken: false,
        }
    }

    /// Nothing is read from this side: the far side was told so already.
    pub(crate) fn without_input(mut self) -> Flow {
        self.read_ended = true;
        self
    }

    /// Whoever waits on this side speaks SOCKS.
    pub(crate) fn greet(&mut self, version: Version) {
        self.socks = Some(version);
    }

    /// The version of SOCKS in which the answer is still owed.
    pub(crate) fn socks(&mut self) -> Option<Version> {
        self.socks.take()
    }

    /// The far side accepted it.
    pub(crate) fn opened(&mut self) {
        self.open = true;
        if let Some(version) = self.socks.take() {
            self.greeting = version.answer(true);
        }
    }

    /// Bytes of the far side. Returns how many are done with; the rest is kept.
    pub(crate) fn deliver(&mut self, cx: &mut Context<'_>, stream: Stream, bytes: &[u8]) -> usize {
        if self.broken {
            return bytes.len();
        }
        let error = stream == Stream::Stderr;
        let kept = if error { &mut self.err } else { &mut self.out };
        let mut done = 0;
        while !self.held && kept.is_empty() && self.greeting.is_empty() && done < bytes.len() {
            match self.local.poll_write(cx, error, &bytes[done..]) {
                Poll::Ready(Ok(n)) if n > 0 => done += n,
                Poll::Ready(_) => {
                    // What else is to be done about it is done by `turn`.
                    self.broken = true;
                    return bytes.len();
                }
                Poll::Pending => break,
            }
        }
        kept.extend(&bytes[done..]);
        done
    }

    /// Moves what can be moved. True: something was.
    pub(crate) fn turn(
        &mut self,
        cx: &mut Context<'_>,
        connection: &mut Connection,
        wish: &mut Option<EscapeCommand>,
    ) -> bool {
        let mut moved = self.write_kept(cx, connection);
        if self.ended && !self.told_end && self.is_written() {
            self.told_end = !matches!(self.local.poll_shutdown(cx), Poll::Pending);
            moved |= self.told_end;
        }
        if self.open && !self.paused && !self.closed && !self.read_ended && wish.is_none() {
            moved |= match self.escapes {
                Some(_) => self.read_typed(cx, connection, wish),
                None => self.read(cx, connection),
            };
        }
        if self.open && !self.main && !self.closed && self.read_ended && self.told_end {
            connection.close(self.id);
        }
        moved
    }

    /// Nothing is left to do.
    pub(crate) fn is_over(&self) -> bool {
        self.closed && (self.broken || self.is_written())
    }

    fn is_written(&self) -> bool {
        self.out.is_empty() && self.err.is_empty() && self.greeting.is_empty()
    }

    fn write_kept(&mut self, cx: &mut Context<'_>, connection: &mut Connection) -> bool {
        let mut moved = false;
        if self.held {
            return moved;
        }
        while !self.greeting.is_empty() && !self.broken {
            match self.local.poll_write(cx, false, &self.greeting) {
                Poll::Ready(Ok(n)) if n > 0 => {
                    self.greeting.drain(..n);
                    moved = true;
                }
                Poll::Ready(_) => self.broken = true,
                Poll::Pending => return moved,
            }
        }
        for error in [false, true] {
            while !self.broken {
                let kept = if error { &mut self.err } else { &mut self.out };
                let (first, _) = kept.as_slices();
                if first.is_empty() {
                    break;
                }
                match self.local.poll_write(cx, error, first) {
                    Poll::Ready(Ok(n)) if n > 0 => {
                        kept.drain(..n);
                        connection.consumed(self.id, n);
                        moved = true;
                    }
                    Poll::Ready(_) => self.broken = true,
                    Poll::Pending => break,
                }
            }
        }
        if self.broken && !self.told_end {
            self.give_up(connection);
            moved = true;
        }
        moved
    }

    /// This side takes nothing more: a program on the far side is told as a pipe would tell it.
    fn give_up(&mut self, connection: &mut Connection) {
        self.told_end = true;
        connection.consumed(self.id, self.out.len() + self.err.len());
        (self.out, self.err, self.greeting) = (VecDeque::new(), VecDeque::new(), Vec::new());
        if self.closed {
            return;
        }
        match self.main {
            true => connection.request(self.id, &Request::EndOfWrite, false),
            false => connection.close(self.id),
        }
    }

    /// Straight into packets.
    fn read(&mut self, cx: &mut Context<'_>, connection: &mut Connection) -> bool {
        if connection.writable(self.id) == 0 {
            return false;
        }
        let (mut end, local) = (None, &mut self.local);
        let filled = connection.write_parts(self.id, Stream::Main, READ, |parts| {
            let mut sum = 0;
            for part in parts {
                match local.poll_read(cx, part) {
                    Poll::Ready(Ok(0)) => end = Some(Ok(())),
                    Poll::Ready(Ok(n)) => {
                        sum += n;
                        if n == part.len() {
                            continue;
                        }
                    }
                    Poll::Ready(Err(e)) => end = Some(Err(e)),
                    Poll::Pending => {}
                }
                break;
            }
            Ok::<usize, std::convert::Infallible>(sum)
        });
        let moved = matches!(filled, Ok(n) if n > 0);
        match end {
            Some(end) => self.end_reading(end, connection),
            None => moved,
        }
    }

    /// Through the escapes.
    fn read_typed(
        &mut self,
        cx: &mut Context<'_>,
        connection: &mut Connection,
        wish: &mut Option<EscapeCommand>,
    ) -> bool {
        let mut moved = false;
        // Asked even where there is nothing: after a 0 the connection says when there is room.
        if connection.writable(self.id) == 0 && !self.escaped.is_empty() {
            return false;
        }
        if self.typed.is_empty() && self.escaped.is_empty() {
            let mut room = [0; TYPED];
            match self.local.poll_read(cx, &mut room) {
                Poll::Pending => {}
                Poll::Ready(Ok(n)) if n > 0 => {
                    self.typed.extend_from_slice(&room[..n]);
                    moved = true;
                }
                Poll::Ready(end) => return self.end_reading(end.map(drop), connection),
            }
        }
        if let Some(escapes) = &mut self.escapes
            && self.escaped.is_empty()
        {
            let (taken, asked) = escapes.take(&self.typed, &mut self.escaped);
            self.typed.drain(..taken);
            *wish = asked;
        }
        let sent = connection.write(self.id, Stream::Main, &self.escaped);
        self.escaped.drain(..sent);
        moved || sent > 0 || wish.is_some()
    }

    fn end_reading(&mut self, end: io::Result<()>, connection: &mut Connection) -> bool {
        self.read_ended = true;
        match end {
            Err(_) if !self.main => connection.close(self.id),
            _ => connection.eof(self.id),
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fleetgate_ssh::settings::Settings;
    use std::future::poll_fn;
    use tokio::io::AsyncReadExt;

    #[test]
    fn a_terminal_that_is_not_ready_is_shown_nothing_and_then_everything_in_order() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("a runtime").block_on(async {
            let (ours, mut theirs) = tokio::net::UnixStream::pair().expect("sockets");
            let (mut flow, mut connection) = (
                Flow::new(ChannelId(0), Local::Unix(ours), "session".into()),
                Connection::client(Settings::default().into()),
            );
            (flow.held, flow.paused) = (true, true);
            let deliver = |flow: &mut Flow, bytes: &'static [u8]| {
                let mut cx = Context::from_waker(std::task::Waker::noop());
                flow.deliver(&mut cx, Stream::Main, bytes)
            };
            assert_eq!(deliver(&mut flow, b"first "), 0, "kept, so not yet done with");
            let turned = poll_fn(|cx| Poll::Ready(flow.turn(cx, &mut connection, &mut None))).await;
            let mut room = [0; 64];
            assert!(!turned && theirs.try_read(&mut room).is_err(), "nothing is shown");
            flow.held = false;
            assert_eq!(deliver(&mut flow, b"second"), 0, "behind what is kept");
            assert!(poll_fn(|cx| Poll::Ready(flow.turn(cx, &mut connection, &mut None))).await);
            theirs.read_exact(&mut room[..12]).await.expect("all of it");
            assert_eq!(&room[..12], b"first second");
        });
    }
}

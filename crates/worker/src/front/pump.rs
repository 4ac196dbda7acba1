//! Between one channel and its pipes, terminal or socket. Bytes to the client are read straight into the packet that
//! carries them; bytes from it are written straight from the packet, and only what does not fit is kept, which the
//! channel's window bounds. Nothing here waits: a program that reads nothing stalls its own channel and no other.
//!
//! Calls on the bulk path, for 256 KB to the client: 2 reads of 4 packets of 32 KB (OpenSSH's largest) and 2 sends; from
//! the client: 4 receives of 64 KB and 8 writes. No poll and no change of what is watched while both sides keep up.

use super::ring::ByteRing;
use super::tap::Tap;
use super::views::Views;
use fleetgate_ssh::Connection;
use fleetgate_ssh::event::{ChannelId, Stream};
use fleetgate_sys::{Errno, Fd, file, net, stream};
use std::rc::Rc;

/// The most that one read asks for: a few of the peer's largest packets. Fewer calls are fewer times that the kernel
/// wakes the program which fills the pipe, and waits for it to be done with it.
pub(super) const CHUNK: usize = 128 * 1024;
/// So much of what is beyond a limit is read at a time.
const DROPPED: usize = 16 * 1024;
/// After so much a pipe is a busy one and is given more room.
const BUSY_AFTER: usize = 64 * 1024;
/// A busy pipe's room. The kernel may refuse it; then it stays as it is.
const BUSY_PIPE: i32 = 256 * 1024;

/// What a descriptor is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Pipe,
    Socket,
    Terminal,
}

/// One end of something.
#[derive(Clone)]
struct End {
    fd: Rc<Fd>,
    kind: Kind,
}

/// Where bytes for the client come from.
struct Source {
    end: End,
    readable: bool,
    hung_up: bool,
    seen: usize,
}

/// Where bytes from the client go.
pub(super) struct Sink {
    end: End,
    writable: bool,
    /// The loop is told of room.
    watched: bool,
    /// What did not fit.
    pub(super) kept: ByteRing,
    written: usize,
    /// The client sends nothing more.
    closing: bool,
}

/// What [`Pump::pour`] stopped at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PourStop {
    /// Nothing to read now.
    All,
    /// No window, or no room in the output; the core says when there is. Or the recorder is behind; the loop says when not.
    Starved,
    /// Its share of this turn.
    Share,
}

/// Which of a pump's descriptors; part of what the loop is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Which {
    /// A socket or terminal both ways, or standard input.
    Input,
    /// Standard output.
    Output,
    /// Standard error.
    Error,
    /// The pipe to the recorder.
    Recording,
    /// A viewer's socket.
    Views,
}

/// All of one channel's.
#[derive(Default)]
pub(super) struct Pump {
    output: Option<Source>,
    error: Option<Source>,
    pub(super) sink: Option<Sink>,
    /// What the client sent before there were descriptors.
    early: Option<ByteRing>,
    /// The terminal, for its size and breaks.
    terminal: Option<Rc<Fd>>,
    /// To the client.
    pub(super) sent: u64,
    /// From it.
    pub(super) received: u64,
    /// The first bytes from the socket were an SSH server's.
    pub(super) is_ssh: bool,
    /// They were not.
    is_other: bool,
    /// Then none of it is passed on.
    pub(super) refuses_ssh: bool,
    /// The socket is reset: neither direction goes on.
    pub(super) dead: bool,
    /// So much may go to the client in all.
    most: Option<u64>,
    /// There was more, and it was dropped.
    cut: bool,
    /// The way to the recorder, of a session that is recorded.
    tap: Option<Box<Tap>>,
    /// Who else sees it.
    pub(super) views: Option<Box<Views>>,
    /// So much of a file goes to the client before anything else.
    pub(super) first: Option<(Fd, u64)>,
}

impl Pump {
    /// The same, which is recorded. What the client typed before is in the recording's beginning.
    pub(super) fn recorded(mut self, tap: Option<Tap>) -> Pump {
        self.tap = tap.map(Box::new);
        if let (Some(tap), Some(sink)) = (&mut self.tap, &self.sink) {
            sink.kept.parts().into_iter().for_each(|part| tap.typed(part));
        }
        self
    }

    /// The way to the recorder.
    pub(super) fn tap(&mut self) -> Option<&mut Tap> {
        self.tap.as_deref_mut()
    }

    /// Another recorder goes on, or none does: then nothing waits for one.
    pub(super) fn record_anew(&mut self, pipe: Option<Fd>) {
        match (pipe, &mut self.tap) {
            (Some(pipe), Some(tap)) => tap.replace(pipe),
            _ => self.tap = None,
        }
    }

    /// Nothing more is to be recorded: closes the way to the recorder. False: there is still something on it.
    pub(super) fn finish_recording(&mut self) -> bool {
        let is_done = self.tap.as_mut().is_none_or(|tap| tap.finish());
        if is_done {
            self.tap = None;
        }
        is_done
    }

    /// The channel is gone: the way to the recorder, where that has not taken everything yet.
    pub(super) fn left_to_record(&mut self) -> Option<Tap> {
        let mut tap = self.tap.take()?;
        (!tap.finish()).then_some(*tap)
    }

    /// The terminal, for who asks how it is set.
    pub(super) fn shared_master(&self) -> Option<Rc<Fd>> {
        self.terminal.clone()
    }

    /// The same, which passes on so much and reads what is beyond it for nobody: the program ends as it would have.
    pub(super) fn limited(mut self, most: Option<u64>) -> Pump {
        self.most = most;
        self
    }

    /// Of a program that is not started yet: what comes for it is kept.
    pub(super) fn before() -> Pump {
        Pump {
            early: Some(ByteRing::default()),
            ..Pump::default()
        }
    }

    /// Takes over from the pump before: what it kept goes out with the next [`Pump::flush`].
    pub(super) fn after(mut self, before: Pump) -> Pump {
        self.received = before.received;
        if let (Some(sink), Some(early)) = (&mut self.sink, before.early) {
            sink.kept = early;
        }
        self
    }

    /// Of a program's three pipes: where it reads, where it writes, where it complains.
    pub(super) fn pipes(stdin: Fd, stdout: Fd, stderr: Fd) -> Result<Pump, Errno> {
        for fd in [&stdin, &stdout, &stderr] {
            stream::make_nonblocking(fd)?;
        }
        Ok(Pump {
            output: Some(Source::new(End::new(stdout, Kind::Pipe))),
            error: Some(Source::new(End::new(stderr, Kind::Pipe))),
            sink: Some(Sink::new(End::new(stdin, Kind::Pipe), false)),
            ..Pump::default()
        })
    }

    /// Of a socket.
    pub(super) fn socket(fd: Fd) -> Pump {
        let end = End::new(fd, Kind::Socket);
        Pump {
            output: Some(Source::new(end.clone())),
            sink: Some(Sink::new(end, true)),
            ..Pump::default()
        }
    }

    /// Of a terminal's master.
    pub(super) fn terminal(fd: Fd) -> Result<Pump, Errno> {
        stream::make_nonblocking(&fd)?;
        let end = End::new(fd, Kind::Terminal);
        Ok(Pump {
            terminal: Some(end.fd.clone()),
            output: Some(Source::new(end.clone())),
            sink: Some(Sink::new(end, true)),
            ..Pump::default()
        })
    }

    /// What the loop is to be told of from the start. A pipe to write to is watched only once it was full.
    pub(super) fn watched(&self) -> impl Iterator<Item = (Which, &Fd)> {
        let output = self.output.as_ref().map(|s| match s.end.kind {
            Kind::Pipe => (Which::Output, &*s.end.fd),
            Kind::Socket | Kind::Terminal => (Which::Input, &*s.end.fd),
        });
        output
            .into_iter()
            .chain(self.error.as_ref().map(|s| (Which::Error, &*s.end.fd)))
    }

    /// The pipe that turned out to be full and is not watched yet.
    pub(super) fn newly_full(&mut self) -> Option<&Fd> {
        let sink = self.sink.as_mut()?;
        if sink.watched || sink.writable {
            return None;
        }
        sink.watched = true;
        Some(&sink.end.fd)
    }

    /// The master, if there is one.
    pub(super) fn master(&self) -> Option<&Fd> {
        self.terminal.as_deref()
    }

    /// The loop says so.
    pub(super) fn ready(&mut self, which: Which, readable: bool, writable: bool, hung_up: bool) {
        let source = match which {
            Which::Input => self.output.as_mut().filter(|s| s.end.kind != Kind::Pipe),
            Which::Output => self.output.as_mut(),
            Which::Error => self.error.as_mut(),
            Which::Recording => {
                if let Some(tap) = &mut self.tap {
                    tap.flush();
                }
                None
            }
            // They are looked at in each turn.
            Which::Views => None,
        };
        if let Some(source) = source {
            source.readable |= readable;
            source.hung_up |= hung_up;
        }
        if let (Which::Input, Some(sink)) = (which, &mut self.sink) {
            sink.writable |= writable;
        }
    }

    /// The program ended: what it wrote last is there to be read, whether or not the loop said so.
    pub(super) fn look(&mut self) {
        for source in [&mut self.output, &mut self.error].into_iter().flatten() {
            source.readable = true;
        }
    }

    /// Whether there may be something for the client.
    pub(super) fn is_readable(&self) -> bool {
        let readable = |s: &Option<Source>| s.as_ref().is_some_and(|s| s.readable);
        readable(&self.output) || readable(&self.error) || self.first.is_some()
    }

    /// Whether its program is not started yet.
    pub(super) fn is_early(&self) -> bool {
        self.early.is_some()
    }

    /// How much of what the client sent is not passed on yet.
    pub(super) fn kept(&self) -> usize {
        let early = self.early.as_ref().map_or(0, ByteRing::len);
        early + self.sink.as_ref().map_or(0, |s| s.kept.len())
    }

    /// Whether nothing more comes for the client.
    pub(super) fn is_drained(&self) -> bool {
        self.output.is_none() && self.error.is_none() && self.first.is_none()
    }

    /// Whether nothing more goes to where the client's bytes went.
    pub(super) fn is_shut(&self) -> bool {
        self.sink.is_none()
    }

    /// Reads for the client, at most about `share` bytes.
    pub(super) fn pour(&mut self, core: &mut Connection, channel: ChannelId, share: usize) -> PourStop {
        let stop = self.pour_unrecorded(core, channel, share);
        if let Some(tap) = &mut self.tap {
            tap.flush();
        }
        if let Some(views) = &mut self.views {
            views.flush();
        }
        stop
    }

    fn pour_unrecorded(&mut self, core: &mut Connection, channel: ChannelId, share: usize) -> PourStop {
        let mut poured = 0;
        if let Some(stop) = self.pour_first(core, channel, share, &mut poured) {
            return stop;
        }
        for (slot, to) in [
            (&mut self.output, Stream::Main),
            (&mut self.error, Stream::Stderr),
        ] {
            while let Some(source) = slot.as_mut().filter(|s| s.readable) {
                if poured >= share {
                    return PourStop::Share;
                }
                let is_held = self.tap.as_ref().is_some_and(|tap| !tap.has_room());
                if is_held || core.writable(channel) == 0 {
                    return PourStop::Starved;
                }
                let left = self.most.map_or(u64::MAX, |most| most.saturating_sub(self.sent));
                if left == 0 {
                    // It is cut: what is beyond is read for nobody.
                    match source.end.read(&mut [&mut [0; DROPPED]]) {
                        Ok(0) => *slot = None,
                        Ok(n) => {
                            poured += n;
                            source.got(n, DROPPED);
                            if !std::mem::replace(&mut self.cut, true) {
                                let words =
                                    format!("the output is cut: {} bytes of it are passed on\r\n", self.sent);
                                core.write(channel, Stream::Stderr, words.as_bytes());
                            }
                        }
                        Err(Errno::EAGAIN) => source.readable = false,
                        Err(_) => {
                            self.dead |= source.end.kind == Kind::Socket;
                            *slot = None;
                        }
                    }
                    continue;
                }
                let mut most = 0;
                let chunk = usize::try_from(left).map_or(CHUNK, |left| left.min(CHUNK));
                let read = core.write_parts(channel, to, chunk, |places| {
                    most = places.iter().map(|p| p.len()).sum();
                    let mut read = source.end.read(places);
                    if self.sent < GREETING.len() as u64 && source.end.kind == Kind::Socket {
                        self.is_other |= !goes_on_as_ssh(self.sent, places, read);
                        let got = self.sent + read.unwrap_or(0) as u64;
                        self.is_ssh = !self.is_other && got >= GREETING.len() as u64;
                        if self.is_ssh && self.refuses_ssh {
                            read = Err(Errno::EACCES);
                        }
                    }
                    if let (Ok(n @ 1..), Some(tap)) = (&read, &mut self.tap) {
                        tap.output(to == Stream::Stderr, places, *n);
                    }
                    if let (Ok(n @ 1..), Some(views)) = (&read, &mut self.views) {
                        views.output(places, *n);
                    }
                    read
                });
                match read {
                    Ok(0) => *slot = None,
                    Ok(n) => {
                        poured += n;
                        self.sent += n as u64;
                        source.got(n, most);
                    }
                    Err(Errno::EAGAIN) => source.readable = false,
                    Err(_) => {
                        // A terminal whose other side is closed says EIO; a socket was reset.
                        self.dead |= source.end.kind == Kind::Socket;
                        *slot = None;
                    }
                }
            }
        }
        PourStop::All
    }

    /// Passes on what the client sent; how many bytes are done with, written or dropped. The others are kept.
    pub(super) fn take(&mut self, bytes: &[u8]) -> usize {
        self.received += bytes.len() as u64;
        if let Some(early) = &mut self.early {
            early.push(bytes);
            return 0;
        }
        let Some(sink) = &mut self.sink else {
            return bytes.len();
        };
        if let Some(tap) = &mut self.tap {
            tap.typed(bytes);
        }
        match sink.take(bytes) {
            Ok(n) => n,
            Err(_) => {
                self.sink = None;
                bytes.len()
            }
        }
    }

    /// Passes on what was kept; how many bytes are done with.
    pub(super) fn flush(&mut self) -> usize {
        let Some(sink) = &mut self.sink else { return 0 };
        if !sink.writable || sink.kept.is_empty() {
            return 0;
        }
        let before = sink.kept.len();
        match sink.flush() {
            Ok(done) => {
                self.shut_if_done();
                done
            }
            Err(_) => {
                self.sink = None;
                before
            }
        }
    }

    /// The client sends nothing more: said to the program when what is kept is passed on. A terminal has no such end:
    /// as with sshd, the client sends it as a key.
    pub(super) fn finish(&mut self) {
        if let Some(sink) = &mut self.sink {
            sink.closing = true;
        }
        self.shut_if_done();
    }

    /// Nobody reads what the client sends any more; how many kept bytes are dropped.
    pub(super) fn shut(&mut self) -> usize {
        let early = self.early.take().map_or(0, |e| e.len());
        early + self.sink.take().map_or(0, |s| s.kept.len())
    }

    /// The client reads nothing more of the output.
    pub(super) fn end_output(&mut self) {
        self.first = None;
        self.output = None;
    }

    fn shut_if_done(&mut self) {
        let done = |s: &mut Sink| s.closing && s.kept.is_empty() && s.end.kind != Kind::Terminal;
        if let Some(sink) = self.sink.take_if(done)
            && sink.end.kind == Kind::Socket
        {
            // It may be gone already.
            let _ = net::shut_sending(&sink.end.fd);
        }
    }
}

/// How an SSH server begins (RFC 4253, section 4.2). It may send other lines before, which OpenSSH's does not.
const GREETING: &[u8] = b"SSH-";

/// Whether what comes from somewhere behind its first `before` bytes still is what an SSH server begins with. The client says how
/// much comes at once, and may say one byte.
fn goes_on_as_ssh(before: u64, places: &[&mut [u8]], read: Result<usize, Errno>) -> bool {
    let bytes = places
        .iter()
        .flat_map(|place| place.iter())
        .take(read.unwrap_or(0));
    let wanted = GREETING
        .iter()
        .skip(usize::try_from(before).unwrap_or(usize::MAX));
    bytes.zip(wanted).all(|(byte, wanted)| byte == wanted)
}

impl Source {
    fn new(end: End) -> Source {
        Source {
            end,
            readable: false,
            hung_up: false,
            seen: 0,
        }
    }

    /// `n` of at most `most` bytes were read.
    fn got(&mut self, n: usize, most: usize) {
        // A pipe or socket that gave less than was asked for is empty (epoll(7)), and says so when it is not any more;
        // a terminal gives what fits its own buffers.
        if n < most && !self.hung_up && self.end.kind != Kind::Terminal {
            self.readable = false;
        }
        self.seen = self.end.busier(self.seen, n);
    }
}

impl Sink {
    fn new(end: End, watched: bool) -> Sink {
        Sink {
            end,
            writable: true,
            watched,
            kept: ByteRing::default(),
            written: 0,
            closing: false,
        }
    }

    fn take(&mut self, bytes: &[u8]) -> Result<usize, Errno> {
        let done = if self.kept.is_empty() {
            self.write(bytes)?
        } else {
            0
        };
        self.kept.push(&bytes[done..]);
        Ok(done)
    }

    fn flush(&mut self) -> Result<usize, Errno> {
        let mut all = 0;
        let mut kept = std::mem::take(&mut self.kept);
        let flushed = loop {
            match self.write(kept.first()) {
                Ok(0) => break Ok(all),
                Ok(n) => {
                    kept.passed(n);
                    all += n;
                }
                Err(e) => break Err(e),
            }
        };
        self.kept = kept;
        flushed
    }

    /// Writes what fits.
    pub(super) fn write(&mut self, bytes: &[u8]) -> Result<usize, Errno> {
        let mut done = 0;
        while self.writable && done < bytes.len() {
            match self.end.write(&bytes[done..]) {
                Ok(n) => {
                    done += n;
                    // A pipe or socket that took less than it was given is full (epoll(7)), and says when it is not.
                    self.writable = done == bytes.len() || self.end.kind == Kind::Terminal;
                }
                Err(Errno::EAGAIN) => self.writable = false,
                Err(e) => return Err(e),
            }
        }
        self.written = self.end.busier(self.written, done);
        Ok(done)
    }
}

impl End {
    fn new(fd: Fd, kind: Kind) -> End {
        End {
            fd: Rc::new(fd),
            kind,
        }
    }

    /// `more` bytes went through it after `before` others: how many that are now. A pipe that turns out to be a busy one
    /// is given more room.
    fn busier(&self, before: usize, more: usize) -> usize {
        let now = before.saturating_add(more);
        if self.kind == Kind::Pipe && before < BUSY_AFTER && now >= BUSY_AFTER {
            let _ = stream::set_pipe_size(self.fd.raw(), BUSY_PIPE);
        }
        now
    }

    fn read(&self, places: &mut [&mut [u8]]) -> Result<usize, Errno> {
        match self.kind {
            Kind::Socket => stream::receive_parts_now(self.fd.raw(), places),
            Kind::Pipe | Kind::Terminal => file::read_parts(self.fd.raw(), places),
        }
    }

    fn write(&self, bytes: &[u8]) -> Result<usize, Errno> {
        match self.kind {
            Kind::Socket => stream::send_now(self.fd.raw(), bytes),
            Kind::Pipe | Kind::Terminal => file::write(self.fd.raw(), bytes),
        }
    }
}

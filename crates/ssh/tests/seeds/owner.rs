//! Whoever stands behind one side: it opens channels, writes on them, asks and answers, each when chance says so, and
//! checks everything that it is told. It writes only where it may expect room: after `Opened`, `accept` and `Writable`,
//! until it finds none; so a forgotten `Writable` stalls it for ever, and the world notices.

use crate::chance::Chance;
use fleetgate_ssh::Connection;
use fleetgate_ssh::event::{ChannelId, ChannelKind, Event, Global, ReplyId, Request, Stream};
use std::collections::{BTreeMap, HashSet, VecDeque};
use std::sync::LazyLock;

/// What both owners of a world know.
#[derive(Default)]
pub struct Known {
    /// Channels so far; each is known by its number here on both sides.
    pub flows: u32,
    /// Those that one side gave up before all had arrived.
    pub aborted: HashSet<u32>,
    /// Those that stall are read from now on too.
    pub released: bool,
}

/// One side's end of a channel.
#[derive(Debug)]
struct Flow {
    /// Not known to a server's session before its first request.
    name: Option<u32>,
    /// Ours to open: much may be said before the peer confirmed it.
    ours: bool,
    open: bool,
    room: bool,
    sent: [usize; 2],
    got: [usize; 2],
    unread: usize,
    /// Tags of requests, first asked first.
    asked: VecDeque<u32>,
    owed: Vec<(ReplyId, u32)>,
    eof_sent: bool,
    eof_got: bool,
    closed: bool,
}

pub struct Owner {
    server: bool,
    flows: BTreeMap<ChannelId, Flow>,
    to_accept: Vec<ChannelId>,
    globals_asked: VecDeque<u32>,
    globals_owed: Vec<(ReplyId, u32)>,
    tag: u32,
    /// Channels that it may still open.
    left: usize,
    /// The first channel of all is open: a server opens none before that.
    met: bool,
    /// Both sides mirror: what is said ahead to a refused channel does no harm.
    mirror: bool,
    pub opened: u64,
    pub bytes: u64,
}

/// How bytes are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum How {
    /// They are handed over.
    Given,
    /// The packet is filled.
    Filled,
    /// Likewise, when there is said to be room.
    Asked,
    /// The source of the bytes fails.
    Failing,
}

const STREAMS: [Stream; 2] = [Stream::Main, Stream::Stderr];
/// Requests without an answer at a time: below every bound.
const ASKED_MAX: usize = 8;

impl Owner {
    pub fn new(server: bool, mirror: bool, chance: &mut Chance) -> Owner {
        Owner {
            server,
            flows: BTreeMap::new(),
            to_accept: Vec::new(),
            globals_asked: VecDeque::new(),
            globals_owed: Vec::new(),
            tag: 0,
            left: 1 + chance.below(4),
            met: false,
            mirror,
            opened: 0,
            bytes: 0,
        }
    }

    /// One thing, whatever chance says.
    pub fn act(&mut self, conn: &mut Connection, chance: &mut Chance, known: &mut Known) {
        match chance.below(12) {
            0..=2 => self.open(conn, chance, known),
            3 => self.ask_globally(conn),
            4 if !self.globals_owed.is_empty() => {
                let i = chance.below(self.globals_owed.len());
                self.answer_globally(conn, i);
            }
            5 if !self.to_accept.is_empty() => {
                let i = chance.below(self.to_accept.len());
                let channel = self.to_accept.swap_remove(i);
                if self.mirror && chance.percent(10) {
                    self.refuse(conn, channel, known);
                } else {
                    self.accept(conn, channel);
                }
            }
            _ if !self.flows.is_empty() => {
                let i = chance.below(self.flows.len());
                let (&channel, flow) = self.flows.iter_mut().nth(i).expect("there are so many");
                let tag = &mut self.tag;
                flow.act(conn, channel, self.server, chance, known, tag);
            }
            _ => {}
        }
    }

    /// All that can be done now, so that everything ends. False: nothing.
    pub fn finish(&mut self, conn: &mut Connection, known: &mut Known) -> bool {
        let mut did = false;
        self.left = 0;
        for channel in std::mem::take(&mut self.to_accept) {
            self.accept(conn, channel);
            did = true;
        }
        while !self.globals_owed.is_empty() {
            self.answer_globally(conn, 0);
            did = true;
        }
        for (&channel, flow) in &mut self.flows {
            did |= flow.finish(conn, channel, self.server, known);
        }
        did
    }

    /// All but what stalls is done, and gone.
    pub fn check_done(&self, known: &Known) {
        for (channel, flow) in &self.flows {
            let name = flow.name.expect("everybody got to know it");
            assert!(
                !known.released && (stalls(name, true) || stalls(name, false)),
                "{channel:?} does not end: {flow:?}, of {:?} to send and {:?} to receive",
                plan(name, self.server),
                plan(name, !self.server),
            );
        }
        assert!(self.to_accept.is_empty());
        assert!(self.globals_asked.is_empty(), "an answer is missing");
    }

    /// Whether anything is left.
    pub fn empty(&self) -> bool {
        self.flows.is_empty() && self.to_accept.is_empty()
    }

    /// An event of channels or of the connection. The world deals with the others.
    pub fn told(&mut self, event: Event<'_>, known: &Known) {
        match event {
            Event::Open { channel, kind } => {
                self.met = true;
                let name = match kind {
                    ChannelKind::Session => None,
                    ChannelKind::DirectTcpip { port, .. } | ChannelKind::ForwardedTcpip { port, .. } => {
                        Some(port)
                    }
                    ChannelKind::Other { payload, .. } => Some(number(&payload)),
                    other => panic!("nobody opens {other:?}"),
                };
                let taken = self.flows.insert(channel, Flow::new(name, false));
                assert!(taken.is_none(), "{channel:?} was not free");
                self.to_accept.push(channel);
            }
            Event::Opened(channel) => {
                self.met = true;
                let flow = self.flow(channel);
                assert!(!flow.open && !flow.closed);
                (flow.open, flow.room) = (true, true);
            }
            Event::OpenFailed {
                channel,
                reason,
                text,
            } => {
                let gone = self.flows.remove(&channel).expect("it was opened");
                assert!(!gone.open);
                assert!(matches!((reason, text), (1, b"no") | (4, b"too many channels")));
            }
            Event::Data {
                channel,
                stream,
                bytes,
            } => {
                let server = self.server;
                self.bytes += bytes.len() as u64;
                self.flow(channel).take(stream, bytes, server);
            }
            Event::Writable(channel) => {
                let flow = self.flow(channel);
                assert!(flow.open);
                flow.room = true;
            }
            Event::Eof(channel) => {
                let server = self.server;
                let flow = self.flow(channel);
                assert!(!std::mem::replace(&mut flow.eof_got, true));
                // EOF comes behind all that was sent.
                if let Some(name) = flow.name.filter(|n| !known.aborted.contains(n)) {
                    assert_eq!(flow.got, plan(name, !server));
                }
            }
            Event::Closed(channel) => {
                let flow = self.flows.remove(&channel).expect("it was there");
                if let Some(name) = flow.name.filter(|n| !known.aborted.contains(n)) {
                    assert_eq!(flow.got, plan(name, !self.server));
                    assert_eq!(flow.sent, plan(name, self.server));
                }
            }
            Event::Request {
                channel,
                request,
                reply,
            } => {
                let flow = self.flow(channel);
                match request {
                    Request::Env { value, .. } => flow.name = Some(number(&value)),
                    Request::Other { payload, .. } => {
                        let reply = reply.expect("it wants an answer");
                        flow.owed.push((reply, number(&payload)));
                    }
                    other => panic!("nobody asks for {other:?}"),
                }
            }
            Event::Replied { channel, done } => {
                let flow = self.flow(channel);
                let tag = flow.asked.pop_front().expect("it was asked");
                let given_up = flow.name.is_some_and(|n| known.aborted.contains(&n));
                assert!(
                    done == right(tag) || given_up && !done,
                    "the answer to {tag} is another's"
                );
            }
            Event::Global { request, reply } => {
                let Global::StreamlocalForward { path } = request else {
                    panic!("{request:?}")
                };
                self.globals_owed
                    .push((reply.expect("it wants an answer"), number(&path)));
            }
            Event::GlobalReplied { done } => {
                let tag = self.globals_asked.pop_front().expect("it was asked");
                assert_eq!(done, right(tag).then_some(&tag.to_be_bytes()[..]));
            }
            Event::Alive => {}
            other => panic!("{other:?}"),
        }
    }

    fn flow(&mut self, channel: ChannelId) -> &mut Flow {
        self.flows
            .get_mut(&channel)
            .unwrap_or_else(|| panic!("there is no {channel:?}"))
    }

    fn open(&mut self, conn: &mut Connection, chance: &mut Chance, known: &mut Known) {
        if self.left == 0 || self.server && !self.met {
            return;
        }
        let name = known.flows;
        let host = b"host".to_vec();
        let kind = match chance.below(3) {
            0 if !self.server => ChannelKind::Session,
            1 => ChannelKind::Other {
                name: b"flow@test".to_vec(),
                payload: name.to_be_bytes().to_vec(),
            },
            _ if self.server => ChannelKind::ForwardedTcpip {
                host,
                port: name,
                origin: Vec::new(),
                origin_port: 0,
            },
            _ => ChannelKind::DirectTcpip {
                host,
                port: name,
                origin: Vec::new(),
                origin_port: 0,
            },
        };
        // None: not logged in yet, or as many as there may be.
        let Some(channel) = conn.open(&kind) else { return };
        known.flows += 1;
        self.left -= 1;
        self.opened += 1;
        if kind == ChannelKind::Session {
            let value = name.to_be_bytes().to_vec();
            conn.request(
                channel,
                &Request::Env {
                    name: b"name".to_vec(),
                    value,
                },
                false,
            );
        }
        let taken = self.flows.insert(channel, Flow::new(Some(name), true));
        assert!(taken.is_none(), "{channel:?} was not free");
    }

    fn accept(&mut self, conn: &mut Connection, channel: ChannelId) {
        conn.accept(channel);
        let flow = self.flow(channel);
        (flow.open, flow.room) = (true, true);
    }

    fn refuse(&mut self, conn: &mut Connection, channel: ChannelId, known: &mut Known) {
        conn.refuse(channel, 1, "no");
        let gone = self.flows.remove(&channel).expect("it is waiting");
        known.aborted.extend(gone.name);
    }

    fn ask_globally(&mut self, conn: &mut Connection) {
        // A client's channels would not be the first thing that the server hears of.
        if !self.met || self.globals_asked.len() >= ASKED_MAX {
            return;
        }
        let path = self.tag.to_be_bytes().to_vec();
        self.globals_asked.push_back(self.tag);
        self.tag += 1;
        conn.global(&Global::StreamlocalForward { path }, true);
    }

    fn answer_globally(&mut self, conn: &mut Connection, i: usize) {
        let (reply, tag) = self.globals_owed.swap_remove(i);
        let fields = tag.to_be_bytes();
        conn.answer_global(reply, right(tag).then_some(&fields[..]));
    }
}

impl Flow {
    fn new(name: Option<u32>, ours: bool) -> Flow {
        Flow {
            name,
            ours,
            open: false,
            room: false,
            sent: [0; 2],
            got: [0; 2],
            unread: 0,
            asked: VecDeque::new(),
            owed: Vec::new(),
            eof_sent: false,
            eof_got: false,
            closed: false,
        }
    }

    fn act(
        &mut self,
        conn: &mut Connection,
        channel: ChannelId,
        server: bool,
        chance: &mut Chance,
        known: &mut Known,
        tag: &mut u32,
    ) {
        match chance.below(10) {
            0..=3 => {
                let n = chance.up_to(6000);
                let stream = chance.below(2);
                let how = chance.pick(&[How::Given, How::Filled, How::Asked, How::Failing]);
                self.write(conn, channel, server, stream, n, how);
            }
            4 | 5 if self.reads(server, known) && self.unread > 0 => {
                let n = chance.up_to(self.unread);
                conn.consumed(channel, n);
                self.unread -= n;
            }
            6 if self.asked.len() < ASKED_MAX
                && !self.closed
                && self.name.is_some()
                && (self.open || self.ours) =>
            {
                let payload = tag.to_be_bytes().to_vec();
                let name = b"tag@test".to_vec();
                conn.request(channel, &Request::Other { name, payload }, true);
                self.asked.push_back(*tag);
                *tag += 1;
            }
            7 if !self.owed.is_empty() => {
                let (reply, tag) = self.owed.swap_remove(chance.below(self.owed.len()));
                conn.answer(reply, right(tag));
            }
            8 => {
                self.end(conn, channel, server);
            }
            9 if !self.closed && (self.open || self.ours) && chance.percent(3) => {
                // Also before the peer confirmed it.
                if let Some(name) = self.name {
                    known.aborted.insert(name);
                    self.closed = true;
                    self.owed.clear();
                    conn.close(channel);
                }
            }
            _ => {}
        }
    }

    fn finish(&mut self, conn: &mut Connection, channel: ChannelId, server: bool, known: &Known) -> bool {
        let mut did = false;
        if self.reads(server, known) && self.unread > 0 {
            conn.consumed(channel, std::mem::take(&mut self.unread));
            did = true;
        }
        for (reply, tag) in self.owed.drain(..) {
            conn.answer(reply, right(tag));
            did = true;
        }
        for stream in 0..2 {
            while self.write(conn, channel, server, stream, usize::MAX, How::Filled) {
                did = true;
            }
        }
        did | self.end(conn, channel, server)
    }

    /// EOF when all is sent, CLOSE when all has come too.
    fn end(&mut self, conn: &mut Connection, channel: ChannelId, server: bool) -> bool {
        let Some(name) = self.name.filter(|_| self.open && !self.closed) else {
            return false;
        };
        if !self.eof_sent && self.sent == plan(name, server) {
            self.eof_sent = true;
            conn.eof(channel);
            return true;
        }
        let all = self.eof_sent && self.eof_got && self.asked.is_empty() && self.owed.is_empty();
        if all && server == (name % 2 == 0) {
            self.closed = true;
            conn.close(channel);
            return true;
        }
        false
    }

    /// True: something was sent.
    fn write(
        &mut self,
        conn: &mut Connection,
        channel: ChannelId,
        server: bool,
        stream: usize,
        most: usize,
        how: How,
    ) -> bool {
        let Some(name) = self
            .name
            .filter(|_| self.open && self.room && !self.closed && !self.eof_sent)
        else {
            return false;
        };
        let from = self.sent[stream];
        let n = most.min(plan(name, server)[stream] - from);
        if n == 0 {
            return false;
        }
        let bytes = content(name, server, stream, from, n);
        if how == How::Asked && conn.writable(channel) == 0 {
            self.room = false;
            return false;
        }
        let taken = if how == How::Given {
            conn.write(channel, STREAMS[stream], bytes)
        } else {
            let filled = conn.write_parts(channel, STREAMS[stream], n, |places| {
                let mut filled = 0;
                for place in places {
                    let len = place.len();
                    place.copy_from_slice(&bytes[filled..filled + len]);
                    filled += len;
                }
                if how == How::Failing { Err(()) } else { Ok(filled) }
            });
            match filled {
                Ok(n) => n,
                // It was asked, so there was room.
                Err(()) => return false,
            }
        };
        self.sent[stream] += taken;
        // `write` takes all that there is room for, filled packets may be smaller.
        self.room = taken == n || taken > 0 && how != How::Given;
        taken > 0
    }

    fn reads(&self, server: bool, known: &Known) -> bool {
        known.released || !self.name.is_some_and(|n| stalls(n, server))
    }

    fn take(&mut self, stream: Stream, bytes: &[u8], server: bool) {
        assert!(self.open && !self.eof_got && !self.closed && !bytes.is_empty());
        let stream = usize::from(stream == Stream::Stderr);
        let name = self.name.expect("whoever writes knows it");
        let wanted = content(name, !server, stream, self.got[stream], bytes.len());
        assert!(bytes == wanted, "what came is not what was sent");
        self.got[stream] += bytes.len();
        self.unread += bytes.len();
    }
}

/// Whether one end of a flow reads nothing until all others are done.
fn stalls(name: u32, server: bool) -> bool {
    name % 8 == if server { 3 } else { 6 }
}

/// What is to be sent on a flow, by stream.
fn plan(name: u32, by_server: bool) -> [usize; 2] {
    let mut chance = Chance::new(u64::from(name) << 1 | u64::from(by_server));
    [(); 2].map(|()| match chance.below(8) {
        0 | 1 => 0,
        2 => chance.below(30_000),
        _ => chance.below(2_000),
    })
}

/// The bytes at a place of a flow: of one long text, from another place for every flow, so that bytes that are missing,
/// doubled or another flow's are noticed.
fn content(name: u32, by_server: bool, stream: usize, from: usize, len: usize) -> &'static [u8] {
    /// Longer than what comes at once; a prime.
    const TEXT: usize = 65_521;
    static TWICE: LazyLock<Vec<u8>> = LazyLock::new(|| {
        let mut chance = Chance::new(0);
        let once: Vec<u8> = (0..TEXT).map(|_| chance.next() as u8).collect();
        [&once[..], &once[..]].concat()
    });
    let flow = (name as usize * 2 + usize::from(by_server)) * 2 + stream;
    let at = (flow * 7_919 + from) % TEXT;
    &TWICE[at..at + len]
}

/// The answer that a request is given.
fn right(tag: u32) -> bool {
    !tag.is_multiple_of(3)
}

fn number(bytes: &[u8]) -> u32 {
    u32::from_be_bytes(bytes.try_into().expect("four bytes"))
}

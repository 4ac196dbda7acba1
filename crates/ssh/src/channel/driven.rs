//! All of `Channels` driven by bytes, for the fuzzer and for tests: what the peer says, what the owner does and how much
//! room there is are read from them, and after each step the bounds are checked. Nothing else uses it.

use super::{Channels, MAX_HELD, MAX_REQUESTS_OF_CHANNEL, Message, Role, TOP};
use crate::codec::Reader;
use crate::event::{ChannelId, ChannelKind, End, Event, Global, ReplyId, Request, Stream};
use crate::recording_outbox::RecordingOutbox;
use crate::settings::Limits;

/// What a step's messages may take of the output: an answer to each request that can wait, and a long refusal.
const STEP_MAX: usize = 64 * 1024;

struct Driven<'a> {
    bytes: Reader<'a>,
    channels: Channels,
    limits: Limits,
    out: RecordingOutbox,
    replies: Vec<ReplyId>,
}

/// Drives one after another, each until it ends the connection. How many steps they took.
pub fn drive(bytes: &[u8]) -> usize {
    let mut steps = 0;
    let mut rest = bytes;
    while let [first, bytes @ ..] = rest {
        let role = if first & 1 == 0 {
            Role::Server
        } else {
            Role::Client
        };
        let limits = Limits {
            max_channels: 5,
            max_requests_in_flight: 100,
            window: 300,
            max_packet_data: 200,
            ..Limits::default()
        };
        let mut driven = Driven {
            bytes: Reader::new(bytes),
            channels: Channels::new(role, &limits),
            limits,
            out: RecordingOutbox::new(),
            replies: Vec::new(),
        };
        if first & 2 != 0 {
            driven.channels.mirror();
        }
        let mut goes_on = true;
        while goes_on && !driven.bytes.rest().is_empty() {
            goes_on = driven.step().is_ok();
            driven.check();
            steps += 1;
        }
        rest = driven.bytes.rest();
    }
    steps
}

impl Driven<'_> {
    fn step(&mut self) -> Result<(), End> {
        while let Some(event) = self.channels.next(&mut self.out)? {
            note(&event, &mut self.replies);
        }
        let (what, n) = (self.byte(), self.number());
        let channel = ChannelId(n);
        let out = &mut self.out;
        match what % 20 {
            0..=7 => return self.hear(what / 20, n),
            8 => self.channels.accept(channel, out),
            9 => self.channels.refuse(channel, n, "no", out),
            10 => self.channels.eof(channel, out),
            11 => self.channels.close(channel, out),
            12 => {
                self.channels.open(&ChannelKind::Agent, out);
            }
            13 => self.channels.request(channel, &Request::Shell, true, out),
            14 => self.channels.global(&Global::NoMoreSessions, true, out),
            15 => {
                let len = usize::from(what) * 3;
                let taken = self.channels.write(channel, Stream::Stderr, &vec![0; len], out);
                assert!(taken <= len);
            }
            16 => self.channels.consumed(channel, usize::from(what), out),
            17 => {
                if let Some(&reply) = self.replies.get(n as usize % 8) {
                    self.channels.answer(reply, what.is_multiple_of(3), out);
                    self.channels.answer_global(reply, None, out);
                    self.replies.retain(|&r| r != reply);
                }
            }
            18 => out.room = usize::from(what),
            _ => self.channels.keepalive(out),
        }
        Ok(())
    }

    /// A message: any bytes, or one that is well-formed.
    fn hear(&mut self, which: u8, n: u32) -> Result<(), End> {
        let bytes = [0; 255];
        let (theirs, window, max_packet) = (u32::from(which), n.wrapping_mul(100), 100);
        let message = match which {
            0 => {
                let len = usize::from(self.byte()).min(self.bytes.rest().len());
                let payload = self.bytes.bytes(len, "").expect("there are so many");
                return self.receive(payload);
            }
            1 | 2 => Message::Open {
                theirs: n,
                window,
                max_packet,
                kind: ChannelKind::Agent,
            },
            3 => Message::Confirmed {
                ours: n,
                theirs: n,
                window,
                max_packet,
            },
            4 => Message::Data {
                ours: n,
                stream: Some(Stream::Main),
                bytes: &bytes[..usize::from(self.byte() / 4)],
            },
            5 => Message::Adjust {
                ours: n,
                bytes: window,
            },
            6 | 7 => Message::Request {
                ours: n,
                request: Request::EndOfWrite,
                want_reply: true,
            },
            8 => Message::Eof(n),
            9 => Message::Close(n),
            10 => Message::Reply { ours: n, done: true },
            11 => Message::Refused {
                ours: n,
                reason: theirs,
                text: b"no",
            },
            _ => Message::Global {
                request: Global::StreamlocalForward { path: Vec::new() },
                want_reply: true,
            },
        };
        let mut payload = Vec::new();
        message.write(&mut payload);
        self.receive(&payload)
    }

    fn receive(&mut self, payload: &[u8]) -> Result<(), End> {
        if let Ok(message) = Message::parse(payload) {
            let mut again = Vec::new();
            message.write(&mut again);
            // A type of extended data that nobody knows is not written by anybody either.
            if !matches!(message, Message::Data { stream: None, .. }) {
                assert_eq!(Message::parse(&again), Ok(message));
            }
        }
        if let Some(event) = self.channels.receive(payload, &mut self.out)? {
            note(&event, &mut self.replies);
        }
        Ok(())
    }

    /// Whatever was said, this holds.
    fn check(&mut self) {
        let channels = &self.channels;
        assert!(channels.len() <= self.limits.max_channels as usize);
        assert!(channels.held <= MAX_HELD);
        let waiting = channels.in_flight + channels.globals.len();
        assert!(waiting <= self.limits.max_requests_in_flight as usize);
        let (mut in_flight, mut held) = (0, 0);
        for n in (0..8).chain(TOP..TOP + 8) {
            let Some(ch) = channels.get(n) else { continue };
            in_flight += ch.waiting.len();
            assert!(ch.waiting.len() <= MAX_REQUESTS_OF_CHANNEL);
            if ch.stage != super::Stage::Opening {
                held += ch.held.iter().map(|p| super::held_size(p)).sum::<usize>();
            }
            if ch.stage == super::Stage::Open {
                assert_eq!(ch.window + ch.unread + ch.owed, ch.whole);
            }
        }
        assert_eq!((in_flight, held), (channels.in_flight, channels.held));
        assert!(self.out.waiting() <= STEP_MAX);
        for payload in self.out.packets.drain(..) {
            Message::parse(&payload).expect("what we send can be read");
        }
    }

    fn byte(&mut self) -> u8 {
        self.bytes.u8("").unwrap_or_default()
    }

    /// A channel's number: mostly of one that there is, else a small one, or a mirroring server's.
    fn number(&mut self) -> u32 {
        let byte = self.byte();
        let n = u32::from(byte & 7);
        let low = self.channels.low.find_from(n, |_| true);
        let high = self.channels.high.find_from(n, |_| true).map(|n| n | TOP);
        match byte >> 5 {
            0 => n,
            1 => n | TOP,
            2 => high.or(low).unwrap_or(n),
            _ => low.or(high).unwrap_or(n),
        }
    }
}

fn note(event: &Event<'_>, replies: &mut Vec<ReplyId>) {
    if let Event::Request { reply, .. } | Event::Global { reply, .. } = event {
        replies.extend(*reply);
        replies.truncate(8);
    }
}

#[test]
fn whatever_is_said_the_bounds_hold() {
    let mut x: u64 = 1;
    let random = std::iter::from_fn(|| {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        Some(x.to_be_bytes())
    });
    let bytes: Vec<u8> = random.take(200_000).flatten().collect();
    let steps = drive(&bytes);
    assert!(steps > 200_000, "{steps}");
}

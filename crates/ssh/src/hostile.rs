//! A server against a client that logs in properly and then says what it likes: its messages are sealed with the right
//! keys, and nothing else about them need be right. Only tests; what is measured here stands in SPECIFICATION.md.

use crate::auth;
use crate::channel::Message;
use crate::codec::{Reader, Write};
use crate::connection::Connection;
use crate::event::{AuthAnswer, ChannelId, ChannelKind, End, Event, Global, Request, Stream};
use crate::settings::{HostKeyOffer, Settings};
use crate::transport::Outbox;
use ring::signature::{Ed25519KeyPair, KeyPair};
use std::sync::Arc;

/// Answers and adjusts that may wait beside channel data, and one packet.
const OUTPUT_MAX: usize = 256 * 1024 + 64 * 1024 + 40 * 1024;

struct Two {
    client: Connection,
    server: Connection,
    /// What the server was told of, in short words.
    told: Vec<String>,
    /// What it has to answer with, as soon as it is told.
    answers: bool,
    /// It lets nobody in.
    refuses: bool,
}

impl Two {
    /// Both have keys; nobody is logged in.
    fn strangers() -> Two {
        let key = Ed25519KeyPair::from_seed_unchecked(&[7; 32]).expect("any 32 bytes are a key");
        let mut blob = Vec::new();
        blob.put_string("ssh-ed25519");
        blob.put_string(key.public_key());
        let settings = Arc::new(Settings {
            kex: vec![crate::kex::Method::Curve25519],
            host_keys: vec![HostKeyOffer {
                algorithm: "ssh-ed25519".into(),
                blob,
            }],
            ..Settings::default()
        });
        let mut two = Two {
            client: Connection::client(settings.clone()),
            server: Connection::server(settings, [1; 16]),
            told: Vec::new(),
            answers: true,
            refuses: false,
        };
        loop {
            let mut did = two.pass(true) | two.pass(false);
            let mut hash = None;
            while let Some(event) = two.server.poll().expect("nobody is hostile yet") {
                if let Event::SignExchange(exchange) = event {
                    hash = exchange.hash();
                    break;
                }
            }
            if let Some(hash) = hash {
                let mut signature = Vec::new();
                signature.put_string("ssh-ed25519");
                signature.put_string(key.sign(hash.as_ref()));
                two.server.signed(&signature, [2; 16]);
                did = true;
            }
            let mut trusts = false;
            while let Some(event) = two.client.poll().expect("nobody is hostile yet") {
                trusts = matches!(event, Event::HostKey(_));
                if trusts {
                    break;
                }
            }
            if trusts {
                two.client.trust_host(true);
                did = true;
            }
            if !did {
                return two;
            }
        }
    }

    /// And the client is in.
    fn friends() -> Two {
        let mut two = Two::strangers();
        two.client.authenticate(&auth::Request::none(b"ann"));
        two.turn().expect("this is how it is done");
        assert_eq!(two.told, ["auth"]);
        two.told.clear();
        while two.client.poll().expect("it was let in").is_some() {}
        two
    }

    /// With a session, 0, that the client knows nothing of: it was opened by hand.
    fn with_session(window: u32) -> Two {
        let mut two = Two::friends();
        two.says(&Message::Open {
            theirs: 0,
            window,
            max_packet: 1000,
            kind: ChannelKind::Session,
        });
        two.turn().expect("this is how it is done");
        assert_eq!(two.told, ["open 0"]);
        two.told.clear();
        two
    }

    /// The client sends this.
    fn says(&mut self, message: &Message<'_>) {
        self.client.link.out.packet(|p| message.write(p));
    }

    fn says_bytes(&mut self, payload: &[u8]) {
        self.client.link.out.packet(|p| p.put(payload));
    }

    /// Bytes from one to the other, as many as the other wants. False: none.
    fn pass(&mut self, to_server: bool) -> bool {
        let (from, to) = if to_server {
            (&mut self.client, &mut self.server)
        } else {
            (&mut self.server, &mut self.client)
        };
        if from.output().is_empty() || !to.wants_input() {
            return false;
        }
        let room = to.room(1);
        let n = room.len().min(from.output().len());
        room[..n].copy_from_slice(&from.output()[..n]);
        to.received(n);
        from.sent(n);
        true
    }

    /// The server reads and answers all that it wants. Nothing that it says is read.
    fn turn(&mut self) -> Result<(), End> {
        loop {
            self.listen()?;
            if !self.pass(true) {
                return Ok(());
            }
        }
    }

    fn listen(&mut self) -> Result<(), End> {
        enum Then {
            Nothing,
            LetIn,
            Accept(ChannelId),
            Answer(crate::event::ReplyId),
            AnswerGlobal(crate::event::ReplyId),
        }
        loop {
            let Some(event) = self.server.poll()? else {
                return Ok(());
            };
            let (told, then) = match event {
                Event::Auth(_) => ("auth".into(), Then::LetIn),
                Event::Open { channel, .. } => (format!("open {}", channel.0), Then::Accept(channel)),
                Event::Request { reply: Some(r), .. } => ("request".into(), Then::Answer(r)),
                Event::Global { reply: Some(r), .. } => ("global".into(), Then::AnswerGlobal(r)),
                Event::Data { bytes, .. } => (format!("{} bytes", bytes.len()), Then::Nothing),
                other => (format!("{other:?}"), Then::Nothing),
            };
            if self.told.len() < 100 {
                self.told.push(told);
            }
            match then {
                Then::LetIn if self.refuses => self.server.answer_auth(AuthAnswer::Reject {
                    methods: vec!["publickey".into()],
                    partial: false,
                }),
                Then::LetIn => self.server.answer_auth(AuthAnswer::Accept),
                Then::Accept(channel) => self.server.accept(channel),
                Then::Answer(reply) if self.answers => self.server.answer(reply, true),
                Then::AnswerGlobal(reply) if self.answers => self.server.answer_global(reply, None),
                _ => {}
            }
        }
    }

    /// The server ended it; the client is told why, and nothing goes on.
    fn ended(&mut self) -> String {
        let end = self.turn().expect_err("the server takes it");
        assert_eq!(self.server.poll().expect_err("it stays ended"), end);
        assert!(!self.server.wants_input());
        let End::Ours { reason, text } = end else {
            panic!("{end}")
        };
        let said = self.hears();
        let mut r = Reader::new(said.last().expect("it is told"));
        assert_eq!((r.u8("number"), r.u32("reason")), (Ok(1), Ok(reason as u32)));
        assert_eq!(r.text("text"), Ok(&text[..]));
        text
    }

    /// What the server said, as the client gets it: it is opened, and no more.
    fn hears(&mut self) -> Vec<Vec<u8>> {
        let mut said = Vec::new();
        while self.pass(false) {
            while let Some((_, at)) = self.client.link.inbox.packet().expect("it is sealed") {
                said.push(self.client.link.inbox.lent(at).to_vec());
            }
        }
        said
    }
}

#[test]
fn unknown_messages_are_answered_and_do_no_harm() {
    let mut two = Two::with_session(0);
    two.hears();
    for number in [8, 19, 83, 89, 101, 127, 128, 191, 194, 255] {
        two.says_bytes(&[number, 1, 2, 3]);
        two.turn().expect("it is answered");
        let sequence = two.server.link.inbox.sequence.wrapping_sub(1);
        let mut wanted = vec![3];
        wanted.put_u32(sequence);
        assert_eq!(two.hears(), [wanted], "{number}");
    }
    assert!(two.told.is_empty(), "{:?}", two.told);
    two.says(&Message::Eof(0));
    two.turn().expect("it goes on");
    assert_eq!(two.told, ["Eof(ChannelId(0))"]);
}

#[test]
fn late_requests_for_a_login_are_ignored() {
    let mut two = Two::friends();
    let before = two.server.output().len();
    for _ in 0..1000 {
        two.says_bytes(&auth::Request::none(b"root"));
    }
    two.turn().expect("they are ignored");
    assert!(two.told.is_empty(), "{:?}", two.told);
    assert_eq!(two.server.output().len(), before);
}

#[test]
fn what_has_no_place_ends_the_connection() {
    let open = Message::Open {
        theirs: 0,
        window: 0,
        max_packet: 0,
        kind: ChannelKind::Session,
    };
    let mut two = Two::strangers();
    two.says(&open);
    assert_eq!(two.ended(), "message 90 came before the login");
    // A client may send all that it wants in one flight. That its login was refused is no error of its own.
    let mut two = Two::strangers();
    two.refuses = true;
    two.client.authenticate(&auth::Request::none(b"ann"));
    two.says(&open);
    assert_eq!(two.ended(), "its login was refused");
    let mut two = Two::strangers();
    two.says_bytes(&auth::Request::none(b"ann"));
    assert_eq!(two.ended(), "message 50 has no place here in a login");
    for (message, why) in [
        (
            Message::Adjust {
                ours: 0,
                bytes: u32::MAX,
            },
            "the window of channel 0 grows beyond 2^32 - 1",
        ),
        (Message::Eof(7), "EOF for channel 7, which does not exist"),
        (Message::GlobalRefused, "a reply to no global request"),
    ] {
        let mut two = Two::with_session(1);
        two.says(&message);
        // With the mirror, what is said on a channel that is not there may have been said ahead.
        if matches!(message, Message::Eof(_)) {
            two.turn().expect("it is ignored");
            continue;
        }
        assert_eq!(two.ended(), why);
    }
    let mut two = Two::with_session(1);
    two.says_bytes(&[93, 0, 0]);
    assert_eq!(
        two.ended(),
        "CHANNEL_WINDOW_ADJUST cannot be read: it ends inside its channel"
    );
}

#[test]
fn a_client_that_opens_a_million_channels_and_reads_nothing() {
    let mut two = Two::friends();
    for theirs in 0..1_000_000 {
        two.says(&Message::Open {
            theirs,
            window: 0,
            max_packet: 0,
            kind: ChannelKind::Agent,
        });
        if theirs % 1000 == 0 {
            two.turn().expect("it is read no further before it is too much");
            assert!(two.server.output().len() <= OUTPUT_MAX);
            if !two.server.wants_input() {
                break;
            }
        }
    }
    assert!(!two.server.wants_input(), "it is read for ever");
    assert_eq!(two.told.len(), 100, "and 28 more were told");
    // Who reads the refusals is read on, and every open has its answer.
    let said = two.hears();
    let opened = said.iter().filter(|p| p[0] == 91).count();
    let refused = said.iter().filter(|p| p[0] == 92).count();
    assert_eq!(opened, 128);
    assert!(refused > 1000, "{refused}");
    assert!(two.server.wants_input());
}

#[test]
fn whoever_asks_and_reads_no_answer_is_read_no_further() {
    let global = Message::Global {
        request: Global::StreamlocalForward { path: Vec::new() },
        want_reply: true,
    };
    let request = Message::Request {
        ours: 0,
        request: Request::Shell,
        want_reply: true,
    };
    for message in [global, request] {
        let mut two = Two::with_session(0);
        let mut asked = 0;
        while two.server.wants_input() {
            for _ in 0..100 {
                two.says(&message);
            }
            asked += 100;
            two.turn().expect("each has its answer");
            assert!(two.server.output().len() <= OUTPUT_MAX, "after {asked}");
        }
        // Reading the answers is all that it takes to go on.
        assert!(two.hears().len() > asked / 2);
        assert!(two.server.wants_input());
        two.turn().expect("it goes on");
    }
}

#[test]
fn requests_that_are_not_answered_do_not_pile_up() {
    let mut two = Two::with_session(0);
    two.answers = false;
    for _ in 0..65 {
        two.says(&Message::Request {
            ours: 0,
            request: Request::Shell,
            want_reply: true,
        });
    }
    assert_eq!(two.ended(), "too many requests wait for their answer");
    assert_eq!(two.told.len(), 64);
}

#[test]
fn nothing_is_kept_for_a_client_without_a_window() {
    let mut two = Two::with_session(0);
    let before = two.server.output().len();
    for _ in 0..1000 {
        assert_eq!(two.server.write(ChannelId(0), Stream::Main, &[0; 4096]), 0);
        assert_eq!(two.server.writable(ChannelId(0)), 0);
    }
    assert_eq!(two.server.output().len(), before);
    // One byte at a time is a window too; what is sealed is what was asked for.
    for n in 1..100 {
        two.says(&Message::Adjust { ours: 0, bytes: 1 });
        two.turn().expect("it may");
        assert_eq!(two.told, ["Writable(ChannelId(0))"]);
        two.told.clear();
        assert_eq!(two.server.write(ChannelId(0), Stream::Main, &[0; 4096]), 1);
        assert!(two.server.output().len() <= before + n * 64);
    }
}

#[test]
fn what_a_client_may_not_send_ends_it() {
    for (bytes, times, why) in [
        (
            32 * 1024 + 1,
            1,
            "32769 bytes of data in one packet on channel 0, of 32768 at most",
        ),
        (
            32 * 1024,
            5,
            "32768 bytes of data on channel 0, whose window has 0",
        ),
    ] {
        let mut two = Two::with_session(0);
        let bytes = vec![0; bytes];
        for _ in 0..times {
            two.says(&Message::Data {
                ours: 0,
                stream: Some(Stream::Main),
                bytes: &bytes,
            });
        }
        assert_eq!(two.ended(), why);
        assert_eq!(two.told.len(), times - 1);
    }
}

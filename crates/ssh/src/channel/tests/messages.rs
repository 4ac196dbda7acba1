//! Every message: written and read again, cut at every byte, with a byte too many, and what is wrong with it named.

use super::other;
use crate::channel::{MAX_HOST_KEYS, Message};
use crate::codec::{Malformed, Write};
use crate::event::{ChannelKind, Global, Pty, Request, Stream, WindowSize};

#[test]
fn what_is_written_is_read() {
    let v = |s: &str| s.as_bytes().to_vec();
    let size = WindowSize {
        columns: 80,
        rows: 24,
        width: 640,
        height: 480,
    };
    let kinds = [
        ChannelKind::Session,
        ChannelKind::DirectTcpip {
            host: v("host"),
            port: 22,
            origin: v("::1"),
            origin_port: 4000,
        },
        ChannelKind::ForwardedTcpip {
            host: v("host"),
            port: 22,
            origin: v("::1"),
            origin_port: 4000,
        },
        ChannelKind::DirectStreamlocal { path: v("/run/a") },
        ChannelKind::ForwardedStreamlocal { path: v("/run/b") },
        ChannelKind::X11 {
            origin: v("::1"),
            origin_port: 6010,
        },
        ChannelKind::Agent,
        ChannelKind::Other {
            name: v("tun@openssh.com"),
            payload: v("fields"),
        },
    ];
    let requests = [
        Request::Pty(Pty {
            term: v("xterm"),
            size,
            modes: vec![0],
        }),
        Request::Shell,
        Request::Exec { command: v("true") },
        Request::Subsystem { name: v("sftp") },
        Request::Env {
            name: v("LANG"),
            value: v("C"),
        },
        Request::WindowChange(size),
        Request::Signal { name: v("INT") },
        Request::Break { milliseconds: 500 },
        Request::X11 {
            single: true,
            protocol: v("MIT-MAGIC-COOKIE-1"),
            cookie: v("00ff"),
            screen: 1,
        },
        Request::Agent,
        Request::ExitStatus { code: 255 },
        Request::ExitSignal {
            name: v("SEGV"),
            core: true,
            message: v("text"),
        },
        Request::EndOfWrite,
        other("unknown"),
    ];
    let keys = vec![v("one"), v(""), v("three")];
    let globals = [
        Global::TcpipForward { host: v(""), port: 0 },
        Global::CancelTcpipForward {
            host: v("a"),
            port: 80,
        },
        Global::StreamlocalForward { path: v("/run/a") },
        Global::CancelStreamlocalForward { path: v("/run/a") },
        Global::NoMoreSessions,
        Global::HostKeys { keys: keys.clone() },
        Global::ProveHostKeys { keys },
        Global::Other {
            name: v("keepalive@openssh.com"),
            payload: v("x"),
        },
    ];
    let mut messages = vec![
        Message::GlobalDone(b"fields"),
        Message::GlobalRefused,
        Message::Confirmed {
            ours: 1,
            theirs: 2,
            window: 3,
            max_packet: 4,
        },
        Message::Refused {
            ours: 1,
            reason: 2,
            text: b"no",
        },
        Message::Adjust {
            ours: 1,
            bytes: u32::MAX,
        },
        Message::Data {
            ours: 1,
            stream: Some(Stream::Main),
            bytes: b"bytes",
        },
        Message::Data {
            ours: 1,
            stream: Some(Stream::Stderr),
            bytes: b"",
        },
        Message::Eof(1),
        Message::Close(u32::MAX),
        Message::Reply { ours: 1, done: true },
        Message::Reply { ours: 1, done: false },
    ];
    messages.extend(kinds.map(|kind| Message::Open {
        theirs: 1,
        window: 2,
        max_packet: 3,
        kind,
    }));
    messages.extend(requests.map(|request| Message::Request {
        ours: 1,
        request,
        want_reply: true,
    }));
    messages.extend(globals.map(|request| Message::Global {
        request,
        want_reply: false,
    }));

    for message in messages {
        let mut payload = Vec::new();
        message.write(&mut payload);
        assert_eq!(Message::parse(&payload).as_ref(), Ok(&message));
        // Where the end is open, a cut or a byte more is another message, not a wrong one.
        let open_end = matches!(
            &message,
            Message::GlobalDone(_)
                | Message::Confirmed { .. }
                | Message::Open {
                    kind: ChannelKind::Other { .. },
                    ..
                }
                | Message::Request {
                    request: Request::Other { .. },
                    ..
                }
                | Message::Global {
                    request: Global::Other { .. } | Global::HostKeys { .. } | Global::ProveHostKeys { .. },
                    ..
                }
        );
        for cut in 0..payload.len() {
            match Message::parse(&payload[..cut]) {
                Err(Malformed::Short(_)) => {}
                Ok(other) if open_end => assert_ne!(other, message),
                got => panic!("{message:?} cut at {cut}: {got:?}"),
            }
        }
        payload.push(0);
        match Message::parse(&payload) {
            Err(Malformed::Trailing) => {}
            got if open_end => assert_ne!(got.ok(), Some(Message::GlobalRefused)),
            got => panic!("{message:?} and a byte: {got:?}"),
        }
    }
}

#[test]
fn what_cannot_be_read_is_named() {
    let keys = |count: usize| {
        let mut payload = vec![80];
        payload.put_string("hostkeys-00@openssh.com");
        payload.put_bool(false);
        for _ in 0..count {
            payload.put_string("key");
        }
        payload
    };
    assert!(Message::parse(&keys(MAX_HOST_KEYS)).is_ok());
    for (payload, wrong) in [
        (vec![], Malformed::Short("number")),
        (vec![79], Malformed::Invalid("number")),
        (vec![83], Malformed::Invalid("number")),
        (vec![89], Malformed::Invalid("number")),
        (vec![101, 0, 0, 0, 0], Malformed::Invalid("number")),
        (vec![93, 0, 0, 0], Malformed::Short("channel")),
        (
            vec![94, 0, 0, 0, 1, 0xff, 0xff, 0xff, 0xff],
            Malformed::Short("data"),
        ),
        (
            vec![98, 0, 0, 0, 1, 0, 0, 0, 9, 0],
            Malformed::Short("request's name"),
        ),
        (keys(MAX_HOST_KEYS + 1), Malformed::Invalid("number of host keys")),
    ] {
        assert_eq!(Message::parse(&payload), Err(wrong), "{payload:?}");
    }
}

//! What a session at a terminal shows beside its client: to the recorder, also when the client goes, and to others who see it.

use crate::world::{Said, World};
use fleetgate_record::frame::Kind;
use fleetgate_record::live;
use fleetgate_record::pipe::{HEAD, Head};
use fleetgate_ssh::event::{ChannelId, Pty, Request, Stream, WindowSize};
use fleetgate_sys::{Errno, Fd, file, stream};
use fleetgate_wire::node::ProcessEnd;
use fleetgate_wire::node::front::{FromFront, Ticket, ToFront};
use std::ffi::CString;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

/// Somebody at a terminal: the client, the channel, and the terminal's other side.
fn at_a_terminal(w: &mut World) -> (usize, ChannelId, Fd) {
    let c = w.login();
    let ch = w.session(c);
    let pty = Pty {
        term: b"xterm".to_vec(),
        size: WindowSize {
            columns: 80,
            rows: 24,
            width: 0,
            height: 0,
        },
        modes: vec![0],
    };
    let core = &mut w.clients[c].core;
    core.request(ch, &Request::Pty(pty), true);
    core.request(ch, &Request::Shell, true);
    let both = [Said::Replied(ch.0, true), Said::Replied(ch.0, true)];
    w.until(|w| w.clients[c].steps(ch).ends_with(&both));
    let user = w.terminals.pop().expect("it was opened");
    user.set_nonblocking(true).expect("it is ours");
    (c, ch, user)
}

/// The frames among these bytes, as whoever reads them has them; what is left is no whole frame.
fn frames(bytes: &[u8], head: fn(&[u8; HEAD]) -> Option<Head>) -> (Vec<(Kind, Vec<u8>)>, usize) {
    let (mut all, mut rest) = (Vec::new(), bytes);
    while let Some((first, behind)) = rest.split_first_chunk::<HEAD>() {
        let head = head(first).expect("a frame that may come here");
        let Some((bytes, behind)) = behind.split_at_checked(head.len) else {
            break;
        };
        all.push((head.kind, bytes.to_vec()));
        rest = behind;
    }
    (all, rest.len())
}

fn output(frames: &[(Kind, Vec<u8>)]) -> Vec<u8> {
    let output = frames.iter().filter(|(kind, _)| *kind == Kind::Output);
    output.flat_map(|(_, bytes)| bytes.clone()).collect()
}

#[test]
fn what_a_client_saw_is_recorded_though_it_goes_while_the_recorder_is_behind() {
    let mut w = World::new();
    let (recorder, pipe) = file::pipe().expect("a pipe");
    pipe.set_nonblocking(true).expect("ours");
    recorder.set_nonblocking(true).expect("ours");
    w.recorded = Some(pipe);
    let (c, ch, user) = at_a_terminal(&mut w);
    // The recorder takes nothing: the front reads no more when its pipe is full.
    let line = [b'x'; 1000];
    let mut full = 0;
    while full < 20 {
        match file::write(user.raw(), &line) {
            Ok(_) => full = 0,
            Err(Errno::EAGAIN) => full += 1,
            Err(e) => panic!("{e}"),
        }
        w.step(5);
    }
    let seen = w.output(c, ch, Stream::Main);
    assert!(seen.len() > 60_000, "{}", seen.len());
    w.clients[c].cut();
    w.until(|w| w.clients[c].over.is_some());
    let mut bytes = Vec::new();
    let mut room = vec![0; 1 << 16];
    loop {
        match file::read(recorder.raw(), &mut room) {
            Ok(0) => break,
            Ok(n) => bytes.extend_from_slice(&room[..n]),
            Err(Errno::EAGAIN) => w.step(5),
            Err(e) => panic!("{e}"),
        }
    }
    let (frames, left) = frames(&bytes, Head::decode);
    assert_eq!(left, 0, "it ends within a frame");
    assert!(output(&frames).starts_with(&seen));
}

/// Somebody who sees the session of ticket 1.
struct Viewer {
    socket: Fd,
    bytes: Vec<u8>,
}

impl Viewer {
    fn come(w: &mut World, client: usize, viewer: u32, who: &str, types: bool) -> Viewer {
        let (ours, theirs) = UnixStream::pair().expect("a pair");
        ours.set_nonblocking(true).expect("ours");
        theirs.set_nonblocking(true).expect("ours");
        let theirs = Fd::from(OwnedFd::from(theirs));
        let word = ToFront::View {
            connection: w.clients[client].number,
            ticket: 1,
            viewer,
            who: CString::new(who).expect("no zero"),
            types,
        };
        w.front.say(&word, &[theirs.raw()]);
        let viewed =
            |t: &FromFront| matches!(t, FromFront::Viewed { ticket: 1, viewer: v, .. } if *v == viewer);
        w.until(|w| w.told.iter().any(viewed));
        Viewer {
            socket: Fd::from(OwnedFd::from(ours)),
            bytes: Vec::new(),
        }
    }

    /// Reads what there is; whether there will be more.
    fn read(&mut self) -> bool {
        let mut room = vec![0; 1 << 16];
        loop {
            match stream::receive_now(self.socket.raw(), &mut room) {
                Ok(0) => return false,
                Ok(n) => self.bytes.extend_from_slice(&room[..n]),
                Err(Errno::EAGAIN) => return true,
                Err(_) => return false,
            }
        }
    }

    fn frames(&self) -> Vec<(Kind, Vec<u8>)> {
        frames(&self.bytes, live::head).0
    }

    fn until(&mut self, w: &mut World, what: &str, holds: impl Fn(&[(Kind, Vec<u8>)]) -> bool) {
        for _ in 0..2000 {
            self.read();
            if holds(&self.frames()) {
                return;
            }
            w.step(5);
        }
        panic!("never: {what}");
    }
}

fn contains(all: &[u8], part: &str) -> bool {
    all.windows(part.len()).any(|window| window == part.as_bytes())
}

fn write_all(w: &mut World, to: &Fd, mut bytes: &[u8]) {
    while !bytes.is_empty() {
        match file::write(to.raw(), bytes) {
            Ok(n) => bytes = &bytes[n..],
            Err(Errno::EAGAIN) => w.step(5),
            Err(e) => panic!("{e}"),
        }
    }
}

#[test]
fn others_see_what_the_client_sees_and_all_hear_who_is_there() {
    let mut w = World::new();
    let (c, ch, user) = at_a_terminal(&mut w);
    let mut bob = Viewer::come(&mut w, c, 1, "bob", false);
    let mut carol = Viewer::come(&mut w, c, 2, "carol", true);
    w.until(|w| {
        let shown = w.output(c, ch, Stream::Main);
        contains(&shown, "bob watches this session") && contains(&shown, "carol has joined this session")
    });
    write_all(&mut w, &user, b"hello\n");
    for viewer in [&mut bob, &mut carol] {
        viewer.until(&mut w, "hello", |frames| contains(&output(frames), "hello"));
        assert_eq!(viewer.frames()[0].0, Kind::Resize);
    }
    bob.until(&mut w, "who is there", |frames| {
        let who = frames.iter().rfind(|(kind, _)| *kind == Kind::Event);
        who.is_some_and(|(_, who)| who == b"bob, carol (types)")
    });
    // What bob sends is read by nobody, what carol sends is typed.
    stream::send_now(bob.socket.raw(), b"from-bob\n").expect("room");
    stream::send_now(carol.socket.raw(), b"from-carol\n").expect("room");
    carol.until(&mut w, "the echo", |frames| {
        contains(&output(frames), "from-carol")
    });
    let mut typed = [0; 100];
    let n = file::read(user.raw(), &mut typed).expect("it was typed");
    assert_eq!(&typed[..n], b"from-carol\n");
    let number = w.clients[c].number;
    w.front.say(
        &ToFront::EndView {
            connection: number,
            ticket: 1,
            viewer: 2,
        },
        &[],
    );
    w.until(|w| contains(&w.output(c, ch, Stream::Main), "carol has left this session"));
    assert!(!carol.read(), "her socket is closed");
    assert!(!contains(&w.output(c, ch, Stream::Main), "from-bob"));
}

#[test]
fn a_viewer_gets_what_a_session_wrote_last_and_no_more() {
    // Somebody else may have its terminal open still, and write to it.
    for others_write in [false, true] {
        let mut w = World::new();
        let (c, ch, user) = at_a_terminal(&mut w);
        let mut bob = Viewer::come(&mut w, c, 1, "bob", false);
        w.until(|w| contains(&w.output(c, ch, Stream::Main), "bob watches this session"));
        // The front reads nothing of it before it hears of both ends.
        write_all(&mut w, &user, b"the end\n");
        let user = Some(user).filter(|_| others_write);
        let connection = w.clients[c].number;
        let ended = ProcessEnd {
            status: 0,
            signalled: false,
            core: false,
        };
        let ends = ToFront::Ended {
            connection,
            ticket: 1,
            ended,
            why: c"".into(),
        };
        w.front.say(&ends, &[]);
        let sees_no_more = ToFront::EndView {
            connection,
            ticket: 1,
            viewer: 1,
        };
        w.front.say(&sees_no_more, &[]);
        bob.until(&mut w, "the end", |frames| contains(&output(frames), "the end"));
        while bob.read() {
            w.step(5);
        }
        if let Some(user) = &user {
            write_all(&mut w, user, b"and on\n");
            w.until(|w| contains(&w.output(c, ch, Stream::Main), "and on"));
            assert!(!contains(&output(&bob.frames()), "and on"));
        }
    }
}

#[test]
fn who_reads_nothing_holds_up_nobody_and_is_told_of_a_gap() {
    let mut w = World::new();
    let (c, ch, user) = at_a_terminal(&mut w);
    let mut slow = Viewer::come(&mut w, c, 1, "slow", false);
    let mut quick = Viewer::come(&mut w, c, 2, "quick", false);
    let line = [[b'x'; 999].as_slice(), b"\n"].concat();
    for _ in 0..3000 {
        write_all(&mut w, &user, &line);
        quick.read();
        w.step(0);
    }
    write_all(&mut w, &user, b"the end\n");
    w.until(|w| contains(&w.output(c, ch, Stream::Main), "the end"));
    quick.until(&mut w, "the end", |frames| contains(&output(frames), "the end"));
    slow.until(&mut w, "a gap", |frames| {
        frames.iter().any(|(kind, _)| *kind == Kind::Gap)
    });
    assert!(output(&slow.frames()).len() < 2_000_000);
}

#[test]
fn a_recording_comes_before_what_is_shown_now() {
    let mut w = World::new();
    let c = w.login();
    let ch = w.session(c);
    w.viewing = true;
    let name = b"watch@fleetgate 7eb5cf00".to_vec();
    w.clients[c].core.request(ch, &Request::Subsystem { name }, true);
    w.until(|w| w.clients[c].steps(ch).contains(&Said::Replied(ch.0, true)));
    let socket = w.terminals.pop().expect("it was made");
    stream::send_now(socket.raw(), b"frames").expect("room");
    drop(socket);
    let ticket: Ticket = 1;
    let len = live::START + World::RECORDED + b"frames".len();
    w.until(|w| w.output(c, ch, Stream::Main).len() == len);
    w.end_session(c, ticket, 0, "the session has ended");
    w.until(|w| w.clients[c].steps(ch).contains(&Said::Closed(ch.0)));
    let start = live::Start {
        at: 77,
        recorded: World::RECORDED as u64,
    };
    let expected = [&start.encode()[..], &vec![7; World::RECORDED], b"frames"].concat();
    assert!(w.output(c, ch, Stream::Main) == expected);
    assert_eq!(w.output(c, ch, Stream::Stderr), b"\r\nthe session has ended\r\n");
}

//! Connections themselves: garbage, cuts, rekeys, the monitor's words and its end, memory.

use crate::world::{Said, World};
use fleetgate_ssh::event::{Global, Stream};
use fleetgate_sys::{Fd, net, socket, stream};
use fleetgate_wire::node::front::{FromFront, ToFront};
use fleetgate_wire::node::lobby::ToLobby;
use std::ffi::CString;
use std::os::fd::OwnedFd;

/// What one idle connection may cost the front, in KB.
const IDLE_KB: u64 = 64;

#[test]
fn garbage_costs_its_sender_the_connection_and_nobody_else() {
    let mut w = World::new();
    let c = w.login();
    let hello = b"SSH-2.0-x\r\n";
    let rows: Vec<Vec<u8>> = vec![
        b"GET / HTTP/1.1\r\n\r\n".to_vec(),
        vec![b'x'; 5000],
        [hello, &[0xff; 64][..]].concat(),
        [hello, &[0; 64][..]].concat(),
        // A KEXINIT's packet cut in the middle, and then nothing.
        [hello, &[0, 0, 1, 0, 4, 20][..]].concat(),
        Vec::new(),
    ];
    for bytes in rows {
        let (ours, theirs) = std::os::unix::net::UnixStream::pair().expect("a pair");
        let ours = Fd::from(OwnedFd::from(ours));
        let number = w.arrive(Fd::from(OwnedFd::from(theirs)));
        stream::send_now(ours.raw(), &bytes).expect("there is room");
        net::shut_sending(&ours).expect("it is connected");
        use fleetgate_wire::node::lobby::FromLobby::Closed;
        w.until(|w| {
            w.lobby_told
                .iter()
                .any(|t| matches!(t, Closed { connection, .. } if *connection == number))
        });
    }
    let ch = w.exec(c, "echo alive");
    w.until(|w| w.output(c, ch, Stream::Main) == b"alive\n");
    w.login();
}

#[test]
fn a_connection_cut_in_the_middle_of_a_transfer_ends_alone() {
    let mut w = World::new();
    let (cut, other) = (w.login(), w.login());
    let ch = w.exec(cut, "exec cat /dev/zero");
    w.clients[cut].hoard = None;
    w.until(|w| w.output(cut, ch, Stream::Main).len() > 1 << 20);
    w.clients[cut].cut();
    w.until(|w| w.clients[cut].over.is_some());
    let ch = w.exec(other, "echo alive");
    w.until(|w| w.output(other, ch, Stream::Main) == b"alive\n");
}

#[test]
fn keys_are_replaced_under_load_from_either_side() {
    for (name, bytes) in [("the client's", 0), ("the server's", 1 << 20)] {
        let mut w = World::with(|s| s.rekey_bytes = bytes);
        let c = w.login();
        let ch = w.exec(c, "exec head -c 20000000 /dev/zero");
        if bytes == 0 {
            // It cannot be over before: what is not consumed is not read for long.
            w.clients[c].hoard = Some(ch);
            w.until(|w| w.output(c, ch, Stream::Main).len() >= 128 << 10);
            w.clients[c].hoard = None;
            let held = w.output(c, ch, Stream::Main).len();
            w.clients[c].core.consumed(ch, held);
            w.clients[c].core.rekey();
        }
        w.until(|w| w.clients[c].said.contains(&Said::Closed(ch.0)));
        assert_eq!(w.output(c, ch, Stream::Main).len(), 20_000_000, "{name}");
        let exchanges = w.clients[c].core.info().exchanges;
        assert!(exchanges >= if bytes == 0 { 2 } else { 8 }, "{name}: {exchanges}");
    }
}

#[test]
fn openssh_is_told_all_host_keys_and_gets_proofs() {
    let mut w = World::new();
    w.client_settings.software = "OpenSSH_9.2p1".to_owned();
    let c = w.login();
    w.session(c);
    w.until(|w| w.clients[c].said.contains(&Said::HostKeys(1)));
    let keys = vec![w.host_key.blob("ssh-ed25519").expect("it has one").to_vec()];
    w.clients[c]
        .core
        .global(&Global::ProveHostKeys { keys: keys.clone() }, true);
    w.until(|w| w.told.iter().any(|t| matches!(t, FromFront::Prove { .. })));
    let Some(FromFront::Prove {
        connection,
        ticket,
        keys: asked,
    }) = w.told.pop()
    else {
        panic!("asked last");
    };
    assert_eq!(asked.into_iter().map(|b| b.bytes).collect::<Vec<_>>(), keys);
    let signatures = Some(vec![fleetgate_wire::node::Blob {
        bytes: b"proof".to_vec(),
    }]);
    let word = ToFront::Proved {
        connection,
        ticket,
        signatures,
    };
    w.front.say(&word, &[]);
    w.until(|w| {
        w.clients[c]
            .said
            .contains(&Said::Global(true, b"\0\0\0\x05proof".to_vec()))
    });
}

#[test]
fn the_monitor_ends_connections_in_either_worker() {
    let mut w = World::new();
    let c = w.login();
    // Until then it may still be on its way to the front.
    w.session(c);
    let text: CString = c"the grant is gone".to_owned();
    let (connection, reason) = (w.clients[c].number, 11);
    w.front.say(
        &ToFront::End {
            connection,
            reason,
            text: text.clone(),
        },
        &[],
    );
    w.until(|w| w.clients[c].over.is_some() && w.clients[c].end.is_some());
    assert!(
        w.clients[c]
            .end
            .as_ref()
            .is_some_and(|e| e.contains("the grant is gone")),
        "{:?}",
        w.clients[c].end
    );

    w.undecided = true;
    let c = w.connect();
    use fleetgate_wire::node::lobby::FromLobby::Auth;
    w.until(|w| w.lobby_told.iter().any(|t| matches!(t, Auth { .. })));
    let connection = w.clients[c].number;
    w.lobby.say(
        &ToLobby::End {
            connection,
            reason,
            text,
        },
        &[],
    );
    w.until(|w| w.clients[c].over.is_some() && w.clients[c].end.is_some());
    assert!(
        w.clients[c]
            .end
            .as_ref()
            .is_some_and(|e| e.contains("the grant is gone")),
        "{:?}",
        w.clients[c].end
    );
}

#[test]
fn a_login_that_waits_for_the_monitor_holds_up_no_other() {
    let mut w = World::new();
    w.undecided = true;
    let slow = w.connect();
    use fleetgate_wire::node::lobby::FromLobby::Auth;
    w.until(|w| w.lobby_told.iter().any(|t| matches!(t, Auth { .. })));
    w.undecided = false;
    w.login();
    assert!(!w.clients[slow].said.contains(&Said::LoggedIn));
    // A lobby that drains takes what is under way to its end.
    w.lobby.say(&ToLobby::Drain, &[]);
    let (connection, verdict) = (
        w.clients[slow].number,
        fleetgate_wire::node::Verdict::Accepted { notes: Vec::new() },
    );
    w.lobby.say(&ToLobby::Verdict { connection, verdict }, &[]);
    w.front.say(
        &ToFront::End {
            connection: 99,
            reason: 11,
            text: c"nobody".to_owned(),
        },
        &[],
    );
    assert_eq!(w.lobby.child.wait().expect("it ends").code(), Some(0));
}

#[test]
fn a_worker_ends_with_the_monitor_and_at_its_garbage() {
    for name in ["lobby", "front"] {
        assert_eq!(crate::world::WorkerKind::start(name).finish(), Some(0), "{name}");
        for garbage in [&b"garbage"[..], b"fg\x01\xff", b"fg"] {
            let mut worker = crate::world::WorkerKind::start(name);
            socket::send(&worker.control, garbage, &[]).expect("sent");
            assert_eq!(
                worker.child.wait().expect("it ends").code(),
                Some(1),
                "{name}: {garbage:?}"
            );
        }
    }
}

#[test]
fn an_idle_connection_costs_little_and_gives_it_back() {
    const MANY: u64 = 40;
    let mut w = World::new();
    let first = w.login();
    w.session(first);
    let before = w.front.private_kb();
    let rest: Vec<usize> = (0..MANY).map(|_| w.login()).collect();
    for c in &rest {
        w.session(*c);
    }
    let each = (w.front.private_kb().saturating_sub(before)) / MANY;
    assert!(each <= IDLE_KB, "{each} KB for each idle connection");
    for c in rest {
        w.clients[c].disconnect();
        w.until(|w| w.clients[c].over.is_some());
    }
    let ch = w.exec(first, "echo alive");
    w.until(|w| w.output(first, ch, Stream::Main) == b"alive\n");
}

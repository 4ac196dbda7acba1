//! What a client can make the workers hold, say and do; and what the workers gave up.

use crate::world::{Said, World};
use fleetgate_ssh::event::{Global, Stream};
use fleetgate_sys::{process, stream};
use fleetgate_wire::node::front::{FromFront, ToFront};
use fleetgate_wire::node::lobby::{FromLobby, ToLobby};
use fleetgate_wire::node::{FrontPermit, MAX_UNREAD, Verdict};

#[test]
fn a_worker_is_confined() {
    for name in ["lobby", "front"] {
        let mut w = World::new();
        // What is said is said from inside the sandbox.
        w.until(|w| w.told.contains(&FromFront::Ready) && w.lobby_told.contains(&FromLobby::Ready));
        let seat_id = if name == "lobby" {
            w.lobby.child.id()
        } else {
            w.front.child.id()
        };
        let read = |what: &str| std::fs::read_to_string(format!("/proc/{seat_id}/{what}")).expect("it runs");
        let (status, limits) = (read("status"), read("limits"));
        let field = |text: &str, name: &str| -> Vec<String> {
            let line = text
                .lines()
                .find_map(|l| l.strip_prefix(name))
                .expect("it is there");
            line.split_whitespace().map(str::to_owned).collect()
        };
        assert_eq!(field(&status, "NoNewPrivs:"), ["1"], "{name}");
        assert_eq!(field(&status, "Seccomp:"), ["2"], "{name}");
        assert_eq!(field(&status, "CapPrm:"), ["0000000000000000"], "{name}");
        assert_eq!(field(&status, "CapInh:"), ["0000000000000000"], "{name}");
        assert_eq!(field(&status, "Threads:"), ["1"], "{name}");
        if process::effective_uid() == 0 {
            assert_eq!(field(&status, "Uid:"), ["65534"; 4], "{name}");
            assert_eq!(field(&status, "Gid:"), ["65534"; 4], "{name}");
            assert!(field(&status, "Groups:").is_empty(), "{name}");
        }
        let files = field(&limits, "Max open files");
        assert_eq!(files[0], files[1], "{name}");
        for limit in ["Max core file size", "Max processes"] {
            assert_eq!(field(&limits, limit)[..2], ["0", "0"], "{name}: {limit}");
        }
        let fds = std::fs::read_dir(format!("/proc/{seat_id}/fd")).map(Iterator::count);
        // Three of every program's, the control socket and the epoll; a front that never rested has the list of its own
        // mappings too. Whoever is not root may not look: not dumpable.
        let held = if name == "front" { 6 } else { 5 };
        match fds {
            Ok(fds) => assert_eq!(fds, held, "{name}"),
            Err(_) => assert_ne!(process::effective_uid(), 0, "{name}"),
        }
    }
}

#[test]
fn what_a_guest_sends_at_once_is_bounded() {
    let mut w = World::new();
    w.undecided = true;
    let c = w.connect();
    w.until(|w| w.lobby_told.iter().any(|t| matches!(t, FromLobby::Auth { .. })));
    // It goes on sending while its login is decided.
    while stream::send_now(w.clients[c].socket.raw(), &[0; 10_000]).is_ok() {}
    let (connection, verdict) = (w.clients[c].number, Verdict::Accepted { notes: Vec::new() });
    w.lobby.say(&ToLobby::Verdict { connection, verdict }, &[]);
    w.until(|w| w.clients[c].over.is_some());
    assert!(
        w.longest_frozen > 0 && w.longest_frozen < MAX_UNREAD + 8192,
        "{}",
        w.longest_frozen
    );
}

#[test]
fn who_reads_no_last_words_is_left() {
    let mut w = World::new();
    let c = w.login();
    let ch = w.exec(c, "exec cat /dev/zero");
    w.until(|w| w.output(c, ch, Stream::Main).len() > 1 << 20);
    w.clients[c].deaf = true;
    let (connection, reason, text) = (w.clients[c].number, 11, c"the grant is gone".to_owned());
    w.front.say(
        &ToFront::End {
            connection,
            reason,
            text,
        },
        &[],
    );
    w.until(|w| w.clients[c].over.is_some());
}

#[test]
fn a_flood_of_refusals_is_told_in_part() {
    let mut w = World::new();
    w.permits.0 &= !(FrontPermit::ListenForward as u32);
    let c = w.login();
    let forward = Global::TcpipForward {
        host: Vec::new(),
        port: 0,
    };
    for _ in 0..500 {
        w.clients[c].core.global(&forward, false);
        w.step(0);
    }
    w.clients[c].core.global(&forward, true);
    w.until(|w| w.clients[c].said.contains(&Said::Global(false, Vec::new())));
    let denied = |t: &&FromFront| matches!(t, FromFront::Denied { .. });
    w.until(|w| w.told.iter().filter(denied).count() >= 100);
    assert_eq!(w.told.iter().filter(denied).count(), 100);
}

#[test]
fn requests_for_listeners_are_bounded() {
    let mut w = World::new();
    w.unreachable = true;
    let c = w.login();
    let forward = Global::TcpipForward {
        host: Vec::new(),
        port: 0,
    };
    for _ in 0..1100 {
        w.clients[c].core.global(&forward, false);
        w.step(0);
    }
    w.clients[c].core.global(&forward, true);
    w.until(|w| w.clients[c].said.contains(&Said::Global(false, Vec::new())));
    let asked = |t: &&FromFront| matches!(t, FromFront::Network { .. });
    // The client may hear of the refusal before the monitor has heard of all that came before it.
    w.until(|w| w.told.iter().filter(asked).count() >= 1024);
    assert_eq!(w.told.iter().filter(asked).count(), 1024);
}

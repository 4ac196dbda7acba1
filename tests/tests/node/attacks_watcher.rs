//! Whoever has taken over the watcher of sessions: what it may tell. The test sits in the seat itself, without its sandbox;
//! the monitor and the session are real ones.

use fleetgate_policy::{Audit, Stance};
use fleetgate_tests::taken::{Accepted, Fate, Front, Handed, Lobby, Node, Scene, Watcher, command, garbage};
use fleetgate_wire::common::{Moment, SessionId};
use fleetgate_wire::node::ConnectionNumber;
use fleetgate_wire::node::watch::{Field, FromWatcher, Source, Value, WatcherEvent};
use std::ffi::CString;

fn seen(session: SessionId, event: &str, fields: &[(&str, &[u8])]) -> FromWatcher {
    let field = |(name, bytes): &(&str, &[u8])| Field {
        name: CString::new(*name).expect("no zero"),
        source: Source::Kernel,
        value: Value::Text {
            bytes: bytes.to_vec(),
            cut: false,
        },
    };
    FromWatcher::Seen {
        events: vec![WatcherEvent {
            session,
            at: Moment { sec: 1, nsec: 0 },
            event: CString::new(event).expect("no zero"),
            fields: fields.iter().map(field).collect(),
        }],
    }
}

/// A session that should be watched, and runs unwatched, and the seats around it.
struct Stage {
    node: Node,
    watcher: Watcher,
    session: SessionId,
    number: ConnectionNumber,
    _others: (Lobby, Front, Accepted, Handed),
}

fn stage(scene: &Scene) -> Stage {
    let mut config = scene.config();
    config.audit = Audit::Commands;
    config.unwatched = Stance::Allow;
    let _ = std::fs::remove_file(&config.audit_log);
    let mut node = Node::start(config);
    let mut lobby = node.lobby();
    let mut accepted = lobby.let_in(&node, &scene.key("ada"), "ada");
    lobby.hand_over(&accepted);
    let mut front = node.front();
    let handed = front.handed_as(&mut accepted);
    let number = handed.number;
    let (watcher, session) = std::thread::scope(|scope| {
        let begun = scope.spawn(|| front.start(number, 1, command("exec sleep 60")));
        let mut watcher = node.watcher();
        let session = watcher.refuses().session;
        let descriptors = begun.join().expect("it ends").expect("the session begins");
        // Its streams are nobody's any more: it does not care.
        drop(descriptors);
        (watcher, session)
    });
    Stage {
        node,
        watcher,
        session,
        number,
        _others: (lobby, front, accepted, handed),
    }
}

#[test]
fn a_watcher_tells_of_watched_sessions_and_of_nothing_else() {
    let Some(scene) = Scene::new() else {
        return;
    };
    let Stage {
        node,
        mut watcher,
        session,
        number,
        _others,
    } = stage(&scene);

    // Of a session that is nobody's, nothing is told, whatever is said of it.
    let nobody = [9; 16];
    for word in [
        seen(nobody, "exec", &[("path", b"/of/nobody")]),
        FromWatcher::Lost {
            session: nobody,
            count: 1,
        },
        FromWatcher::Holds {
            key: 1,
            session: nobody,
        },
        FromWatcher::Over { session: nobody },
        FromWatcher::Released { key: 1 },
    ] {
        assert_eq!(watcher.say(&word), Fate::Stays);
    }
    // Whose it is and when is the monitor's to say; the control is the path, which is the watcher's.
    let forged: [(&str, &[u8]); 5] = [
        ("path", b"/told"),
        ("login", b"bea"),
        ("event", b"login_accepted"),
        ("connection", b"99"),
        ("session", b"00"),
    ];
    watcher.say(&seen(session, "exec", &forged));
    node.audited(
        "exec",
        &["/told", "\"login\":\"ada\"", &format!("\"connection\":{number},")],
    );
    assert_eq!(node.count("exec"), 1);
    assert_eq!((node.count("watch_lost"), node.count("login_accepted")), (0, 1));

    // Another's event ends it; so does what is no word.
    watcher.say(&seen(session, "login_accepted", &[("login", b"bea")]));
    watcher.is_ended();
    node.audited("process_died", &["watcher", "it told of what no watcher tells"]);
    assert_eq!(node.count("login_accepted"), 1);
    assert!(node.lives());
}

#[test]
fn what_is_no_word_ends_a_watcher_and_nothing_else() {
    let Some(scene) = Scene::new() else {
        return;
    };
    for (what, frame, descriptor, why) in garbage(&FromWatcher::Released { key: 1 }) {
        let Stage {
            node,
            mut watcher,
            number,
            _others,
            ..
        } = stage(&scene);
        let fds: &[i32] = if descriptor { &[0] } else { &[] };
        watcher.seat.send(&frame, fds);
        watcher.is_ended();
        node.audited("process_died", &["watcher", why]);
        assert!(node.lives(), "{what}");
        assert_eq!(node.count("connection_ended"), 0, "{what}: {number} stays");
    }
}

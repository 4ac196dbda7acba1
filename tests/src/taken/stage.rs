//! The stage of one attack: ada and bea are logged in, each with her front, and bea has a session that answers. After
//! the attack bea must not have noticed, and whoever is honest gets in as before.

use super::{Accepted, Arrival, Front, Handed, Key, Lobby, Node, Scene, command};
use fleetgate_sys::{Fd, file};
use fleetgate_wire::node::ConnectionNumber;
use fleetgate_wire::node::front::ToFront;
use fleetgate_wire::node::lobby::ToLobby;

/// The ticket of bea's session.
pub const SESSION: u32 = 7;

/// It.
pub struct Stage<'a> {
    /// The files.
    pub scene: &'a Scene,
    /// The monitor.
    pub node: Node,
    /// The lobby's seat.
    pub lobby: Lobby,
    /// A connection in the lobby that nothing is tried on.
    pub witness: Arrival,
    /// Ada's key.
    pub key: Key,
    /// Ada's front.
    pub front: Front,
    /// Ada's connection, to attack with.
    pub ada: (Accepted, Handed),
    /// Another one of hers, that nothing is tried on.
    pub ada_too: (Accepted, Handed),
    /// Bea's front.
    pub bea_front: Front,
    /// Bea's connection.
    pub bea: (Accepted, Handed),
    input: Fd,
    output: Fd,
}

/// What an attack has to come to.
#[derive(Clone, Copy, Debug)]
pub enum Want {
    /// The seat is ended; its end is told with these words.
    Ends(&'static str),
    /// As if nothing had been said.
    Nothing,
}

impl<'a> Stage<'a> {
    /// Sets it.
    pub fn set(scene: &'a Scene) -> Stage<'a> {
        let _ = std::fs::remove_file(scene.config().audit_log);
        let mut node = scene.node();
        let mut lobby = node.lobby();
        let witness = lobby.arrive(&node);
        let enter = |node: &mut Node, lobby: &mut Lobby, key: &Key, user: &str, front: Option<Front>| {
            let mut accepted = lobby.let_in(node, key, user);
            lobby.hand_over(&accepted);
            let mut front = front.unwrap_or_else(|| node.front());
            let handed = front.handed_as(&mut accepted);
            (front, (accepted, handed))
        };
        let key = scene.key("ada");
        let (front, ada) = enter(&mut node, &mut lobby, &key, "ada", None);
        let (front, ada_too) = enter(&mut node, &mut lobby, &key, "ada", Some(front));
        let (mut bea_front, bea) = enter(&mut node, &mut lobby, &scene.key("bea"), "bea", None);
        let mut fds = bea_front
            .start(bea.1.number, SESSION, command("exec cat"))
            .expect("bea's session starts");
        let output = fds.remove(1);
        let input = fds.remove(0);
        output.set_nonblocking(false).expect("a pipe");
        Stage {
            scene,
            node,
            lobby,
            witness,
            key,
            front,
            ada,
            ada_too,
            bea_front,
            bea,
            input,
            output,
        }
    }

    /// Waits until the monitor has ended this connection.
    pub fn ended(&self, number: ConnectionNumber) {
        let number = format!("\"connection\":{number},");
        self.node.audited("connection_ended", &[&number]);
    }

    /// After an attack from the lobby's seat.
    pub fn after_lobby(mut self, what: &str, want: Want) {
        match want {
            Want::Nothing => {
                let words = self.lobby.fence(&self.witness);
                let words = words.unwrap_or_else(|| panic!("{what}: the lobby was ended"));
                assert!(words.is_empty(), "{what}: the monitor said {words:?}");
            }
            Want::Ends(why) => {
                self.lobby.seat.hear_until::<ToLobby, ()>(|_, _| None);
                self.node.audited("process_died", &["lobby", why]);
                assert!(self.node.log().contains("the lobby is gone: "), "{what}");
                let mut seen = std::mem::take(&mut self.lobby.seat.seen);
                self.lobby = self.node.lobby();
                self.lobby.seat.seen.append(&mut seen);
            }
        }
        self.finish(what);
    }

    /// After an attack from ada's front.
    pub fn after_front(mut self, what: &str, want: Want) {
        match want {
            Want::Nothing => {
                let words = self.front.fence(self.ada_too.1.number);
                let words = words.unwrap_or_else(|| panic!("{what}: the front was ended"));
                assert!(words.is_empty(), "{what}: the monitor said {words:?}");
            }
            Want::Ends(why) => {
                self.front.seat.hear_until::<ToFront, ()>(|_, _| None);
                self.node.audited("process_died", &["front", why]);
                assert!(self.node.log().contains("the front is gone: "), "{what}");
                for (accepted, _) in [&self.ada, &self.ada_too] {
                    self.ended(accepted.arrival.number);
                }
            }
        }
        self.finish(what);
    }

    /// Bea's session answers, nobody told her front anything, no other session ran, and an honest visitor gets in.
    fn finish(mut self, what: &str) {
        assert!(self.node.lives(), "{what}");
        file::write_all(self.input.raw(), b"still here\n").expect("bea's session reads");
        let mut got = [0; 11];
        let n = file::read(self.output.raw(), &mut got).expect("bea's session answers");
        assert_eq!(&got[..n], b"still here\n", "{what}");
        let words = self
            .bea_front
            .fence(self.bea.1.number)
            .expect("bea's front stays");
        assert!(words.is_empty(), "{what}: bea's front was told {words:?}");
        let Stage {
            scene,
            mut node,
            mut lobby,
            front,
            bea_front,
            ..
        } = self;
        // A key of the same account that makes another identity: a front of its own.
        let honest = scene.certified("honest", "-V always:forever");
        let mut accepted = lobby.let_in(&node, &honest, "ada");
        lobby.hand_over(&accepted);
        let mut fresh = node.front();
        let handed = fresh.handed_as(&mut accepted);
        let said = fresh.serve_command(&handed, &mut accepted.client, "echo in as $LOGNAME");
        assert_eq!(said, "in as ada\n", "{what}");
        // Events are written in their order: the two sessions that had to run, and no other.
        node.audited("session_started", &["in as $LOGNAME"]);
        assert_eq!(node.count("session_started"), 2, "{what}: a session ran");
        let secret = scene.host_secret();
        for seen in [&lobby.seat, &front.seat, &bea_front.seat, &fresh.seat].map(|s| &s.seen) {
            assert!(!seen.is_empty());
            assert!(
                !seen.windows(secret.len()).any(|w| w == secret),
                "{what}: the host key came out"
            );
        }
    }
}

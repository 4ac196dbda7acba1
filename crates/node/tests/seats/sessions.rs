//! Commands over a connection that the lobby handed to the front.

use crate::world::{Said, World};
use fleetgate_ssh::event::Stream;

#[test]
fn a_command_runs_and_its_end_is_said_in_order() {
    let mut w = World::new();
    let c = w.login();
    let ch = w.exec(c, "echo out; echo err >&2; exit 7");
    w.until(|w| w.clients[c].said.contains(&Said::Closed(ch.0)));
    assert_eq!(w.output(c, ch, Stream::Main), b"out\n");
    assert_eq!(w.output(c, ch, Stream::Stderr), b"err\n");
    let n = ch.0;
    let steps = [
        Said::Opened(n),
        Said::Replied(n, true),
        Said::Exit(n, 7),
        Said::Eof(n),
        Said::Closed(n),
    ];
    assert_eq!(w.clients[c].steps(ch), steps);
    w.clients[c].disconnect();
    w.until(|w| w.clients[c].over.is_some());
    assert_eq!(w.front.finish(), Some(0));
    assert_eq!(w.lobby.finish(), Some(0));
}

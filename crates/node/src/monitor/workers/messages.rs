//! What parts say to fronts in their turn.

use fleetgate_sys::Fd;
use fleetgate_wire::node::Connection;
use fleetgate_wire::node::front::ToFront;
use std::collections::VecDeque;

/// Messages to fronts, each about a connection; its front gets them at the end of the turn, in order. A connection that is
/// gone by then has none.
#[derive(Default)]
pub struct Messages(VecDeque<(Connection, ToFront, Vec<Fd>)>);

impl Messages {
    /// Says `word` about `connection`, with these descriptors beside it.
    pub fn say(&mut self, connection: Connection, word: ToFront, fds: Vec<Fd>) {
        self.0.push_back((connection, word, fds));
    }

    /// The oldest that is left.
    pub fn pop(&mut self) -> Option<(Connection, ToFront, Vec<Fd>)> {
        self.0.pop_front()
    }
}

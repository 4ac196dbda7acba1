//! What parts say to fronts in their turn.

use fleetgate_sys::Fd;
use fleetgate_wire::node::ConnectionNumber;
use fleetgate_wire::node::front::ToFront;
use std::collections::VecDeque;

/// Messages to fronts, each about a connection. `event_loop::deliver` gives them to its front at the end of the wake-up, in
/// order. A connection that is gone by then has no front.
#[derive(Default)]
pub struct Messages(VecDeque<(ConnectionNumber, ToFront, Vec<Fd>)>);

impl Messages {
    /// Says `message` about `connection`, with these descriptors beside it.
    pub fn say(&mut self, connection: ConnectionNumber, message: ToFront, fds: Vec<Fd>) {
        self.0.push_back((connection, message, fds));
    }

    /// The oldest that is left.
    pub fn pop(&mut self) -> Option<(ConnectionNumber, ToFront, Vec<Fd>)> {
        self.0.pop_front()
    }
}

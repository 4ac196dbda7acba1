//! What parts say to fronts in their turn.

use fleetgate_orders::SessionRefusal;
use fleetgate_policy::text::printable_lines;
use fleetgate_sys::Fd;
use fleetgate_wire::net::Done;
use fleetgate_wire::node::ConnectionNumber;
use fleetgate_wire::node::front::{Ticket, ToFront};
use fleetgate_wire::{Failure, Reason};
use std::collections::VecDeque;
use std::ffi::CString;

/// Messages to fronts, each about a connection. `event_loop::deliver` gives them to its front at the end of the wake-up, in
/// order. A connection that is gone by then has no front.
#[derive(Default)]
pub struct Messages(VecDeque<(ConnectionNumber, ToFront, Vec<Fd>)>);

impl Messages {
    /// Says `message` about `connection`, with these descriptors beside it.
    pub fn say(&mut self, connection: ConnectionNumber, message: ToFront, fds: Vec<Fd>) {
        self.0.push_back((connection, message, fds));
    }

    /// A session that was asked for is not begun.
    // The words may repeat what others chose, such as a container's name, and a user's terminal shows them.
    pub fn not_started(&mut self, connection: ConnectionNumber, ticket: Ticket, why: &SessionRefusal) {
        let message = ToFront::NotStarted {
            connection,
            ticket,
            why: CString::new(printable_lines(&why.words)).unwrap_or_default(),
            is_final: why.is_final,
        };
        self.say(connection, message, Vec::new());
    }

    /// A socket that was asked for is not opened.
    pub fn no_socket(&mut self, connection: ConnectionNumber, ticket: Ticket, reason: Reason, why: CString) {
        let failure = Failure {
            reason,
            errno: 0,
            subject: CString::new(printable_lines(&why.to_string_lossy())).unwrap_or_default(),
        };
        let message = ToFront::Network {
            connection,
            ticket,
            done: Done::Failed { failure },
        };
        self.say(connection, message, Vec::new());
    }

    /// The oldest that is left.
    pub fn pop(&mut self) -> Option<(ConnectionNumber, ToFront, Vec<Fd>)> {
        self.0.pop_front()
    }
}

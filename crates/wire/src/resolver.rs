//! What the server says on the resolver's control socket (its descriptor 3). Each frame carries one descriptor,
//! a message socket, and there is no answer here: the answer is what happens on that socket.
//!
//! Whoever holds a socket that came with [`ToResolver::Names`] can ask about names and do nothing else; so a
//! front end or helper may be given one. Only the control socket can begin a PAM session.

use crate::choice;
use crate::pam::Start;

choice! {
    /// A frame on the control socket; one descriptor beside it.
    pub enum ToResolver("message to the resolver") {
        /// Serve names on this socket: [`crate::names::Question`] in, [`crate::names::Answer`] out, until it closes.
        0 => Names,
        /// Begin a PAM session that talks on this socket: [`crate::pam`].
        1 => Pam { start: Start },
    }
}

//! Packets: the version lines, the binary packet protocol, what waits to be read and what waits to be sent.

pub(crate) mod buffer;
pub(crate) mod inbox;
pub(crate) mod outbox;
pub(crate) mod outgoing;
pub(crate) mod version;

pub(crate) use inbox::Inbox;
pub(crate) use outbox::Outbox;
pub(crate) use outgoing::Outgoing;

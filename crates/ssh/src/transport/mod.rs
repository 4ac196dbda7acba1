//! Packets: the version lines, the binary packet protocol, what waits to be read and what waits to be sent.

pub(crate) mod outbox;

pub(crate) use outbox::Outbox;

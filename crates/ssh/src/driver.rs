//! The thin layer between a connection and its socket, whichever kind that is: read(2) goes straight into the
//! connection's own room, write(2) straight from its output. It copies, allocates and waits for nothing, and knows no
//! runtime: the closures are `recv` and `send` on a raw socket, `try_read` and `try_write` on tokio's.
//!
//! System calls on a bulk path, each way: one read per what has arrived (up to the room, 64 KB and more), one write per
//! filled output. The socket should have TCP_NODELAY: what is written is always all that there is.

use crate::Connection;

/// What a read should be given at least: fewer calls than with less, and a buffer that the next read finds in the cache.
pub const READ_AT_LEAST: usize = 64 * 1024;

/// Reads once, where the connection wants input. 0: the peer sends nothing more. None: there was no room, and the next
/// call may be made after [`Connection::poll`] gave its events.
pub fn read<E>(
    connection: &mut Connection,
    at_least: usize,
    read: impl FnOnce(&mut [u8]) -> Result<usize, E>,
) -> Result<Option<usize>, E> {
    let room = connection.room(at_least);
    if room.is_empty() {
        return Ok(None);
    }
    let n = read(room);
    // Also where nothing was read: a connection that holds no bytes then gives its buffer back.
    connection.received(*n.as_ref().unwrap_or(&0));
    n.map(Some)
}

/// Writes until nothing is left, or `write` fails; "would block" is a failure here, and what is left stays.
pub fn write<E>(
    connection: &mut Connection,
    mut write: impl FnMut(&[u8]) -> Result<usize, E>,
) -> Result<(), E> {
    while !connection.output().is_empty() {
        let n = write(connection.output())?;
        connection.sent(n);
    }
    Ok(())
}

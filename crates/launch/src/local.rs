//! What a session that a command launches itself has of it: its streams; and an id of its own.

use fleetgate_sys::Fd;
use fleetgate_wire::common::SessionId;
use fleetgate_wire::order::Role;
use std::io;
use std::os::fd::AsFd;

/// This command's own streams.
pub fn own_streams() -> io::Result<Vec<(Role, Fd)>> {
    let streams = [
        (Role::Stdin, io::stdin().as_fd().try_clone_to_owned()?),
        (Role::Stdout, io::stdout().as_fd().try_clone_to_owned()?),
        (Role::Stderr, io::stderr().as_fd().try_clone_to_owned()?),
    ];
    Ok(streams.map(|(role, fd)| (role, Fd::from(fd))).into())
}

/// A fresh name for a session.
pub fn session_id() -> SessionId {
    let [high, low] = fleetgate_sys::exe::random();
    (u128::from(high) << 64 | u128::from(low)).to_be_bytes()
}

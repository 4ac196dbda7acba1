//! Opening sockets as the user.

/// Serves one order on the control socket.
pub fn run() -> i32 {
    70
}

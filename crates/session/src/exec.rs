//! Becoming the user's shell or command.

/// Serves one order on the control socket.
pub fn run() -> i32 {
    70
}

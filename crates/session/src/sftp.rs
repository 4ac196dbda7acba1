//! The SFTP server.

/// Serves one order on the control socket.
pub fn run_order() -> i32 {
    70
}

/// Serves standard input and output as the calling user, as OpenSSH's sftp-server does.
pub fn run_standalone(_args: &[&[u8]]) -> i32 {
    70
}

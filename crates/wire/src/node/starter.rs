//! Between the service's first process, the starter, and the monitor that it executed.
//!
//! The starter owns the listening sockets and talks to systemd; it ends at once when the service stops or restarts, and
//! the monitor goes on with the connections that it has until the last of them ends. So a restart ends no session.
//! The monitor's descriptor 3 is this socket; its listening sockets follow from 4. The socket's end means Drain.

use crate::choice;
use alloc::ffi::CString;

/// The monitor's end of this socket.
pub const CONTROL: i32 = 3;
/// The monitor's first listening socket.
pub const FIRST_LISTENER: i32 = 4;

choice! {
    /// Messages to the monitor.
    pub enum ToMonitor("message to the monitor") {
        /// Read the configuration again.
        0 => Reload,
        /// Accept no more, say [`FromMonitor::Draining`], and end when the last connection has.
        1 => Drain,
        /// End now, with every connection.
        2 => End,
    }
}

choice! {
    /// Messages of the monitor.
    pub enum FromMonitor("message of the monitor") {
        /// Connections are accepted. With it comes the image that the starter may go on as, if there is one.
        0 => Ready,
        /// What became of a reload; the words say why the old configuration stays.
        1 => Reloaded { refused: Option<CString> },
        /// The listening sockets are closed.
        2 => Draining,
        /// One line for `systemctl status`.
        3 => Status { line: CString },
    }
}

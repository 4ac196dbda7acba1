//! What is said to systemd (sd_notify(3)). Without systemd it is said to nobody.

use crate::start::Log;
use fleetgate_sys::{Fd, clock, socket};

/// systemd's notification socket, or nobody.
pub struct Systemd {
    notify: Option<Fd>,
    log: Log,
}

impl Systemd {
    /// On this socket.
    pub fn on(notify: Option<Fd>, log: Log) -> Systemd {
        Systemd { notify, log }
    }

    /// The socket.
    pub fn socket(&self) -> Option<&Fd> {
        self.notify.as_ref()
    }

    /// Says one line, or several.
    pub fn say(&self, words: &str) {
        self.hand(words, &[]);
    }

    /// A reload begins; systemd wants to know when.
    pub fn reloading(&self) {
        let now = clock::monotonic().as_nanos() / 1000;
        self.say(&format!("RELOADING=1\nMONOTONIC_USEC={now}"));
    }

    /// Says it with descriptors.
    pub fn hand(&self, words: &str, fds: &[i32]) {
        if let Some(notify) = &self.notify
            && let Err(e) = socket::send_now(notify, words.as_bytes(), fds)
        {
            self.log
                .warn(&format_args!("systemd was not told {words:?}: {e}"));
        }
    }
}

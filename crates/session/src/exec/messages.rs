//! What the user is shown, in sshd's words.

use super::localtime;
use alloc::vec::Vec;
use core::ffi::CStr;
use fleetgate_logins::LastLogin;
use fleetgate_sys::Fd;
use fleetgate_sys::file::{self, flags};
use fleetgate_wire::exec::Exec;

/// The most of /etc/motd that is shown.
const MAX_MOTD: usize = 1 << 20;

/// Writes `parts` to standard error as one piece. Nobody may be there to read it.
pub fn error(parts: &[&[u8]]) {
    let _ = file::write_all(2, &parts.concat());
}

/// `Last login: …` and the message of the day, unless the user's `.hushlogin` says otherwise.
pub fn greet(order: &Exec, last: Option<&LastLogin>) {
    let Some(login) = &order.login else { return };
    if hushed(&order.account.home) {
        return;
    }
    if let Some(last) = last {
        let _ = file::write_all(1, &last_login(last));
    }
    if login.motd
        && let Some(text) = open(c"/etc/motd").and_then(|fd| file::read_up_to(&fd, MAX_MOTD).ok())
    {
        let _ = file::write_all(1, &text);
    }
}

fn open(path: &CStr) -> Option<Fd> {
    // Not waiting: a fifo in its place must hold nobody up.
    let how = flags::O_RDONLY | flags::O_NONBLOCK | flags::O_NOCTTY;
    file::openat(file::CWD, path, how, 0).ok()
}

/// Whether `.hushlogin` is there, of whatever kind, readable or not: sshd only asks stat.
fn hushed(home: &CStr) -> bool {
    let path = super::paths::joined(home.to_bytes(), b".hushlogin");
    file::openat(file::CWD, &path, flags::O_PATH, 0).is_ok()
}

fn last_login(last: &LastLogin) -> Vec<u8> {
    let mut out = b"Last login: ".to_vec();
    out.extend_from_slice(localtime::text(last.sec).as_bytes());
    if !last.host.is_empty() {
        out.extend_from_slice(b" from ");
        out.extend_from_slice(&last.host);
    }
    out.extend_from_slice(b"\r\n");
    out
}

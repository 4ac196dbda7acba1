//! The login records of one order, written before the privileges drop.

use core::ffi::CStr;
use fleetgate_logins::audit::Event;
use fleetgate_logins::{Entry, LastLogin, Places, audit};
use fleetgate_sys::Result;
use fleetgate_sys::clock::Time;
use fleetgate_wire::Failure;
use fleetgate_wire::exec::{Exec, Login};
use fleetgate_wire::reply::Reason;

/// The entry of `order`'s login.
fn entry(order: &Exec, login: &Login) -> Entry {
    Entry {
        user: order.account.name.clone(),
        uid: order.account.ids.uid,
        line: order.terminal.clone().unwrap_or_else(|| c"ssh".into()),
        host: login.host.clone(),
        address: login.address,
        pid: fleetgate_sys::process::id(),
        at: Time {
            sec: login.at.sec,
            nsec: login.at.nsec,
        },
    }
}

/// What came of the records.
#[derive(Default)]
pub struct RecordResult {
    /// The last login before this one, when it is to be shown.
    pub last: Option<LastLogin>,
    /// The first record that could not be written.
    pub failure: Option<Failure>,
}

/// Writes the records that the order asks for.
///
/// A record that cannot be written (a full disk, a lock that a user sits on) keeps nobody out, as with sshd:
/// an operator locked out by a full disk could not come in to empty it. The server is told.
pub fn write(order: &Exec) -> RecordResult {
    let Some(login) = &order.login else {
        return RecordResult::default();
    };
    let places = Places::system();
    let entry = entry(order, login);
    let last = if login.last_login_message {
        fleetgate_logins::last_login(&places, entry.uid).ok().flatten()
    } else {
        None
    };
    // A launch that is made again finds its own record: that is this login, not the last one.
    let line = entry.line.to_bytes();
    let own = |l: &LastLogin| l.sec == entry.at.sec && line.ends_with(&l.line);
    let mut failure = None;
    let mut note = |name: &CStr, written: Result<()>| {
        if let (None, Err(errno)) = (&failure, written) {
            failure = Some(Failure {
                reason: Reason::System,
                errno: errno.0,
                subject: name.into(),
            });
        }
    };
    if login.utmp {
        note(c"utmp and wtmp", fleetgate_logins::login(&places, &entry));
    }
    if login.lastlog {
        note(c"lastlog", fleetgate_logins::record_last_login(&places, &entry));
    }
    if login.audit {
        let events = [Event::CredentialsAcquired, Event::Login, Event::SessionStart];
        note(c"the kernel's audit log", audit::tell(&entry, &events, true));
    }
    RecordResult {
        last: last.filter(|l| !own(l)),
        failure,
    }
}

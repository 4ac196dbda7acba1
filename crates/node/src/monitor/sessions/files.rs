//! What the file server tells of what was done, as audit events.

use super::Session;
use crate::monitor::audit::Event;
use crate::monitor::tools::Tools;
use fleetgate_sys::{Errno, Fd, clock, socket};
use fleetgate_wire::{Reply, sftp};

/// The most events of one session that are taken in one turn of the loop: others have a turn between.
const AT_ONCE: usize = 64;
/// How often that is done at a session's end: a socket's buffer holds no more.
pub const TURNS_AT_THE_END: usize = 32;
/// The longest event: two paths.
const MAX_EVENT: usize = 16 << 10;

/// Takes what is there; whether there may be more later.
pub(super) fn hear(from: &Fd, tools: &mut Tools, session: &Session) -> bool {
    let mut buffer = [0; MAX_EVENT];
    for _ in 0..AT_ONCE {
        let got = match socket::receive(from, &mut buffer, false) {
            Err(Errno::EAGAIN) => return true,
            Ok(got) if got.len > 0 => got,
            _ => return false,
        };
        let done = match fleetgate_wire::decode(&buffer[..got.len]) {
            Ok(event) if !got.truncated => event,
            // The helper runs as the user, who may have taken it over: what cannot be read is lost.
            _ => sftp::Event::Lost { count: 1 },
        };
        tell(tools, session, done);
    }
    true
}

/// The helper's last message: how many events nobody took in time.
pub(super) fn last_word(control: &Fd, tools: &mut Tools, session: &Session) {
    let mut buffer = [0; 1024];
    let Ok(got) = socket::receive(control, &mut buffer, false) else {
        return;
    };
    let Ok(Reply::Failed { failure }) = fleetgate_wire::decode(&buffer[..got.len.min(1024)]) else {
        return;
    };
    let words = failure.subject.to_string_lossy().into_owned();
    if let Some(count) = words.split(' ').next().and_then(|count| count.parse().ok()) {
        tell(tools, session, sftp::Event::Lost { count });
    }
}

fn tell(tools: &mut Tools, session: &Session, done: sftp::Event) {
    let event = Event::File {
        connection: session.connection,
        session: session.id,
        login: session.login.clone(),
        done,
    };
    tools.tell_recorded(&session.id, clock::wall(), event);
}

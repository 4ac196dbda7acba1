//! One connection's networking helper: what was asked of it and not answered, what it keeps listening, what waits to be
//! sent. It decides nothing about who may ask.

use super::{MAX_UNANSWERED, frame};
use crate::monitor::containers::{Entry, SeenLabels};
use fleetgate_launch::within_pam::PamEntry;
use fleetgate_policy::AccountName;
use fleetgate_sys::{Errno, Fd, socket};
use fleetgate_wire::common::Ids;
use fleetgate_wire::net::{Done, HELPER, Response, What};
use fleetgate_wire::node::ConnectionNumber;
use fleetgate_wire::node::front::Ticket;
use fleetgate_wire::{Failure, MAX_INLINE, Reason};
use std::collections::{HashMap, VecDeque};
use std::ffi::CString;
use std::sync::Arc;

/// A request that the helper was given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PendingRequest {
    /// The front's number.
    pub ticket: Ticket,
    /// As the helper was told it.
    pub what: What,
    /// It listens: its number stays.
    pub kept: Option<Listener>,
}

/// What a listener is known by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListenerName {
    /// A unix socket's path.
    Path(CString),
    /// A display's number.
    Display(u16),
}

/// A listener that is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listener(Option<ListenerName>);

#[derive(Debug)]
enum State {
    Asleep,
    /// Until it is launched, whom it is to be, and in which PAM session.
    Launching(Option<(Ids, Option<PamEntry>)>),
    Running {
        pid: i32,
        control: Fd,
        buffer: Vec<u8>,
    },
}

/// The helper.
#[derive(Debug)]
pub struct Helper {
    connection: ConnectionNumber,
    login: AccountName,
    container: Option<Entry>,
    state: State,
    next: u32,
    /// By the helper's number: unanswered, or listening.
    asked: HashMap<u32, PendingRequest>,
    by_ticket: HashMap<Ticket, u32>,
    unsent: VecDeque<u32>,
}

impl Helper {
    /// Not launched yet.
    pub fn new(connection: ConnectionNumber, login: AccountName, container: Option<Entry>) -> Helper {
        Helper {
            connection,
            login,
            container,
            state: State::Asleep,
            next: HELPER,
            asked: HashMap::new(),
            by_ticket: HashMap::new(),
            unsent: VecDeque::new(),
        }
    }

    /// Whose it is.
    pub fn connection(&self) -> ConnectionNumber {
        self.connection
    }

    /// As whom.
    pub fn login(&self) -> &AccountName {
        &self.login
    }

    /// The container that it is to be in.
    pub fn container(&self) -> Option<&Entry> {
        self.container.as_ref()
    }

    /// The labels of that container, where roles look at them.
    pub fn labels(&self) -> Option<&Arc<SeenLabels>> {
        self.container.as_ref()?.labels.as_ref()
    }

    /// Its process, once it runs.
    pub fn pid(&self) -> i32 {
        match self.state {
            State::Running { pid, .. } => pid,
            _ => 0,
        }
    }

    /// Takes a request that is allowed, within the bounds.
    pub fn accept(&mut self, ticket: Ticket, what: What, listeners: usize) -> Result<(), (Reason, String)> {
        if ticket == 0 || self.by_ticket.contains_key(&ticket) {
            return Err((Reason::BadRequest, "the request's number is in use".to_owned()));
        }
        let unanswered = self.asked.values().filter(|a| a.kept.is_none()).count();
        if unanswered >= MAX_UNANSWERED {
            return Err((
                Reason::TooMany,
                format!("more than {MAX_UNANSWERED} sockets are being opened"),
            ));
        }
        let kept = self.asked.values().filter(|a| listens(&a.what)).count();
        if listens(&what) && kept >= listeners {
            return Err((
                Reason::TooMany,
                format!("a connection has at most {listeners} listeners (limits.listeners)"),
            ));
        }
        let what = match what {
            What::Cancel { of } => match self.by_ticket.get(&of) {
                Some(id) => What::Cancel { of: *id },
                None => {
                    return Err((
                        Reason::Missing,
                        "there is nothing of that number to cancel".to_owned(),
                    ));
                }
            },
            what => what,
        };
        // 2^32 requests of one connection take longer than it lasts; a number still in use is passed over.
        loop {
            self.next = self.next.wrapping_add(1);
            if self.next != HELPER && !self.asked.contains_key(&self.next) {
                break;
            }
        }
        self.asked.insert(
            self.next,
            PendingRequest {
                ticket,
                what,
                kept: None,
            },
        );
        self.by_ticket.insert(ticket, self.next);
        self.unsent.push_back(self.next);
        Ok(())
    }

    /// Whether there is work and nobody to do it.
    pub fn wants_launch(&self) -> bool {
        matches!(self.state, State::Asleep) && !self.unsent.is_empty()
    }

    /// It is being launched, to be this user's, in this PAM session.
    pub fn launching(&mut self, ids: Ids, pam: Option<PamEntry>) {
        self.state = State::Launching(Some((ids, pam)));
    }

    /// Whom it is to be and in which PAM session, once.
    pub fn launched_as(&mut self) -> Option<(Ids, Option<PamEntry>)> {
        match &mut self.state {
            State::Launching(whom) => whom.take(),
            _ => None,
        }
    }

    /// It runs.
    pub fn run(&mut self, pid: i32, control: Fd) {
        self.state = State::Running {
            pid,
            control,
            buffer: vec![0; MAX_INLINE],
        };
    }

    /// Sends what there is room for. What there is none for goes after its next answer.
    pub fn flush(&mut self) -> Result<(), Errno> {
        let State::Running { control, .. } = &self.state else {
            return Ok(());
        };
        while let Some(id) = self.unsent.front() {
            if let Some(asked) = self.asked.get(id) {
                match socket::send_now(control, &frame(*id, &asked.what), &[]) {
                    Ok(()) => {}
                    Err(Errno::EAGAIN) => return Ok(()),
                    Err(e) => return Err(e),
                }
            }
            self.unsent.pop_front();
        }
        Ok(())
    }

    /// The next answer; an error says how the helper ended.
    pub fn hear(&mut self) -> Result<Option<(Response, Vec<Fd>)>, String> {
        let State::Running { control, buffer, .. } = &mut self.state else {
            return Ok(None);
        };
        let got = match socket::receive(control, buffer, false) {
            Err(Errno::EAGAIN) => return Ok(None),
            Err(e) => return Err(format!("its socket failed: {e}")),
            Ok(got) if got.len == 0 => return Err("it ended".to_owned()),
            Ok(got) if got.truncated => return Err("it said more than an answer may be long".to_owned()),
            Ok(got) => got,
        };
        let response: Response = fleetgate_wire::decode(&buffer[..got.len])
            .map_err(|e| format!("its answer cannot be read: {e}"))?;
        match response {
            Response {
                id: HELPER,
                done: Done::Failed { failure },
            } => Err(format!(
                "it gave up: {} ({:?}, error {})",
                failure.subject.to_string_lossy(),
                failure.reason,
                failure.errno
            )),
            response => Ok(Some((response, got.fds))),
        }
    }

    /// Whom an answer is for. A listener's number stays in use until it was cancelled.
    pub fn answered(&mut self, id: u32, done: &Done) -> Option<PendingRequest> {
        let asked = self.asked.get_mut(&id)?;
        let whole = asked.clone();
        match (done, &asked.what) {
            (Done::Accepted { .. }, _) => {}
            (Done::Listening { .. }, _) => asked.kept = Some(Listener(None)),
            (Done::UnixListening { path }, _) => {
                asked.kept = Some(Listener(Some(ListenerName::Path(path.clone()))))
            }
            (Done::Display { number }, _) => {
                asked.kept = Some(Listener(Some(ListenerName::Display(*number))))
            }
            // A display is not the helper's any more once its sockets were handed out: it knows of nothing to cancel.
            (Done::Cancelled, What::Cancel { of })
            | (
                Done::Failed {
                    failure:
                        Failure {
                            reason: Reason::Missing,
                            ..
                        },
                },
                What::Cancel { of },
            ) => {
                let of = *of;
                self.forget(of);
                self.forget(id);
            }
            _ => self.forget(id),
        }
        Some(whole)
    }

    /// What the listener of `ticket` is known by.
    pub fn listening(&self, ticket: Ticket) -> Option<&ListenerName> {
        let asked = self.asked.get(self.by_ticket.get(&ticket)?)?;
        asked.kept.as_ref()?.0.as_ref()
    }

    /// The tickets that wait for an answer.
    pub fn unanswered(&self) -> Vec<Ticket> {
        let mut tickets: Vec<Ticket> = self
            .asked
            .values()
            .filter(|a| a.kept.is_none())
            .map(|a| a.ticket)
            .collect();
        tickets.sort_unstable();
        tickets
    }

    fn forget(&mut self, id: u32) {
        if let Some(asked) = self.asked.remove(&id) {
            self.by_ticket.remove(&asked.ticket);
        }
    }
}

fn listens(what: &What) -> bool {
    matches!(
        what,
        What::Listen { .. }
            | What::Accept { .. }
            | What::ListenUnix { .. }
            | What::AgentSocket
            | What::X11Display { .. }
    )
}

#[cfg(test)]
mod tests;

//! What a connection holds beside its SSH core: its channels, what listens for it, and what the monitor's answers are for.
//! Types and what they say of themselves; what happens to them is in `session` and `forward`.

use super::pump::Pump;
use fleetgate_ssh::event::{Pty, ReplyId, WindowSize};
use fleetgate_sys::{Fd, terminal};
use fleetgate_wire::node::front::{self, ClientVariable, Program, Ticket};
use fleetgate_wire::node::{MAX_ENVIRONMENT, MAX_VARIABLES};
use std::ffi::CString;
use std::time::Instant;

/// One channel.
pub(super) enum Channel {
    /// Shells, commands, subsystems.
    Session(Box<Session>),
    /// A socket on this side.
    Forward(Box<Forward>),
}

/// A channel over a socket.
pub(super) struct Forward {
    /// The ticket that its socket came by, or of the listener.
    pub(super) ticket: Ticket,
    /// For the audit log.
    pub(super) to: CString,
    /// The socket, until the peer agreed to the channel.
    pub(super) waiting: Option<Fd>,
    /// It leads to the port of SSH servers.
    pub(super) is_ssh_port: bool,
    pub(super) pump: Pump,
    pub(super) eof_sent: bool,
    pub(super) closed: bool,
    pub(super) queued: bool,
}

impl Forward {
    pub(super) fn new(ticket: Ticket, to: CString, waiting: Option<Fd>) -> Box<Forward> {
        Box::new(Forward {
            ticket,
            to,
            waiting,
            is_ssh_port: false,
            pump: Pump::default(),
            eof_sent: false,
            closed: false,
            queued: false,
        })
    }
}

impl Channel {
    pub(super) fn pump(&mut self) -> &mut Pump {
        match self {
            Channel::Session(session) => &mut session.pump,
            Channel::Forward(forward) => &mut forward.pump,
        }
    }

    pub(super) fn queued(&mut self) -> &mut bool {
        match self {
            Channel::Session(session) => &mut session.queued,
            Channel::Forward(forward) => &mut forward.queued,
        }
    }
}

/// One session.
#[derive(Default)]
pub(super) struct Session {
    pub(super) pump: Pump,
    pub(super) queued: bool,
    /// The client sent EOF before the program ran.
    pub(super) no_input: bool,
    pub(super) pty: Option<Pty>,
    pub(super) environment: Vec<ClientVariable>,
    pub(super) environment_len: usize,
    pub(super) agent: Option<Ticket>,
    pub(super) x11: Option<front::X11>,
    /// Answers about the agent's socket and the display that the start waits for.
    pub(super) awaited: u32,
    pub(super) wanted: Option<(Program, Option<ReplyId>)>,
    /// The last ticket when it was wanted: what the client asked to listen for before starts listening before.
    pub(super) earlier_ticket: Ticket,
    /// A subsystem is: its client reads answers, not words.
    pub(super) subsystem: bool,
    pub(super) stage: Stage,
    /// When its start was asked of the monitor, if that is told.
    pub(super) asked_at: Option<Instant>,
    /// The exit status was said, or there is none to be said.
    pub(super) exited: bool,
    /// Somebody ends it, and the text about it is still to come.
    pub(super) is_ending: bool,
    pub(super) eof_sent: bool,
    /// The client closed the channel.
    pub(super) left: bool,
    pub(super) closed: bool,
}

/// How far a session's program is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Stage {
    /// Nothing was asked for yet.
    #[default]
    Before,
    /// Asked of the client, not yet of the monitor.
    Wanted,
    /// Asked of the monitor.
    Starting(Ticket),
    Running(Ticket),
    /// Its program ended; there may be output left.
    Ended(Ticket),
    Over,
}

impl Session {
    /// One that the client opened.
    pub(super) fn new() -> Session {
        Session {
            pump: Pump::before(),
            ..Session::default()
        }
    }

    /// The number under which the monitor knows it, once it runs.
    pub(super) fn ticket(&self) -> Option<Ticket> {
        match self.stage {
            Stage::Running(ticket) | Stage::Ended(ticket) => Some(ticket),
            _ => None,
        }
    }

    /// The client closed it: nothing more can be said to it but how the program ended.
    pub(super) fn leave(&mut self) {
        self.left = true;
        self.pump.end_output();
        self.pump.finish();
    }

    /// Its output ended, and the client was not told, and is to be.
    pub(super) fn owes_eof(&self) -> bool {
        let is_due = !self.eof_sent && !self.is_ending;
        matches!(self.stage, Stage::Running(_)) && self.pump.is_drained() && is_due
    }

    /// One variable more, within the bounds.
    pub(super) fn set(&mut self, name: Vec<u8>, value: Vec<u8>) -> bool {
        let len = name.len() + value.len();
        if self.environment.len() >= MAX_VARIABLES || self.environment_len + len > MAX_ENVIRONMENT {
            return false;
        }
        self.environment_len += len;
        self.environment.push(ClientVariable { name, value });
        true
    }

    pub(super) fn resize(&mut self, size: WindowSize) -> bool {
        let Some(pty) = &mut self.pty else { return false };
        pty.size = size;
        let least = |n: u32| u16::try_from(n).unwrap_or(u16::MAX);
        let (columns, rows) = (least(size.columns), least(size.rows));
        if let Some(tap) = self.pump.tap() {
            tap.resized(columns, rows);
        }
        if let Some(views) = &mut self.pump.views {
            views.resized(columns, rows);
        }
        match self.pump.master() {
            Some(master) => {
                let pixels = (least(size.width), least(size.height));
                terminal::set_window(master, (columns, rows), pixels).is_ok()
            }
            None => true,
        }
    }
}

/// What the monitor's answer by a ticket is for.
pub(super) enum Use {
    /// A session's program, and the client's request for it.
    Start(u32, Option<ReplyId>),
    /// A socket for a channel.
    Connect(u32),
    /// The agent's socket, and the sessions that wait for it.
    Agent(Vec<(u32, Option<ReplyId>)>),
    /// A session's display.
    Display {
        channel: u32,
        reply: Option<ReplyId>,
        single: bool,
    },
    /// TCP that the helper listens for; stays as long as that.
    Tcp {
        host: Vec<u8>,
        port: u32,
        reply: Option<ReplyId>,
        bound: Option<u16>,
    },
    /// A unix-domain socket that is to listen.
    Unix(Vec<u8>, Option<ReplyId>),
    /// Something that listened and is to listen no more.
    Cancel(Option<ReplyId>),
    /// Proofs of host keys.
    Prove(Option<ReplyId>),
}

impl Use {
    /// Something that is to listen, of which it is not known yet whether it does.
    pub(super) fn is_undecided_listener(&self) -> bool {
        matches!(self, Use::Tcp { bound: None, .. } | Use::Unix(..))
    }
}

/// A socket that listens here.
pub(super) struct Listener {
    pub(super) fd: Fd,
    pub(super) ticket: Ticket,
    pub(super) what: Listens,
}

/// For what.
pub(super) enum Listens {
    Agent,
    Display { single: bool },
    Unix(Vec<u8>),
}

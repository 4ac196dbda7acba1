//! A command's session by the master: it hands over its standard streams and what is to be done, and has nothing left to do
//! but to end at signals, to pass on its terminal's size and to keep its modes.
//!
//! Warm, a command without a terminal makes six calls on the socket, beside fcntl and epoll's: socket, connect, getsockopt (who listens), sendmsg (all of it, with
//! three descriptors), and recvmsg twice (it began; it ended). The master's are recvmsg, sendmsg to the proxy's connection,
//! and what the session itself has to move.

use super::terminal::{self, Raw};
use super::{Plan, Signals, SshError, Work, collector};
use crate::master_client::lend::{start, target};
use crate::master_client::socket::MessageSocket;
use crate::master_client::{DEADLINE, KERNEL_TIME, Keep, Kind};
use crate::profile::Home;
use crate::stderr;
use crate::waiting::with_notice;
use fleetgate_net::dial;
use fleetgate_wire::master;
use fleetgate_wire::master::{FromMaster, SessionOrder, Target, ToMaster, Way};
use std::ffi::CString;
use std::io;
use tokio::time::timeout;

/// What became of a session that the master was asked for.
pub(crate) enum SessionOutcome {
    /// It is over.
    Over(i32),
    /// Nothing was begun: the command makes a connection of its own.
    Cold,
}

/// Whether the master can run it: a session, and nothing beside it. What tells of its steps, and what asks, is the command's.
pub(crate) fn can_run(plan: &Plan) -> bool {
    let options = &plan.options;
    matches!(options.work, Work::Shell | Work::Exec(_) | Work::Subsystem(_))
        && options.locals.is_empty()
        && options.remotes.is_empty()
        && !options.agent
        && plan.display.is_none()
        && plan.starter.is_none()
        && options.verbose == 0
        && options.explain.is_none()
        && options.has_usual_algorithms()
        && collector::is_untraced()
}

/// Runs the session of the plan on a node by the way's master; one is started where there is none. `whom` is who answers, for
/// people.
pub(crate) async fn run(
    home: &Home,
    way: Way,
    node: &str,
    whom: &str,
    plan: &Plan,
) -> Result<SessionOutcome, SshError> {
    let Keep::For(persist) = plan.options.keep else {
        return Ok(SessionOutcome::Cold);
    };
    let kind = Kind::of(&way);
    let time = plan.options.connect_time.unwrap_or(match kind {
        Kind::Login => dial::DEADLINE,
        Kind::Direct => KERNEL_TIME,
    });
    let Some(word) = order(target(way, persist, time), node, plan) else {
        return Ok(SessionOutcome::Cold);
    };
    let patience = time + DEADLINE;
    let mut present = MessageSocket::connect(&home.file(kind.socket())).ok();
    loop {
        let is_there = present.is_some();
        let Some(socket) = present.take().or_else(|| start(home, kind).ok()) else {
            return Ok(SessionOutcome::Cold);
        };
        // The directory is the user's alone; whoever else got in there is given nothing all the same.
        if !socket.is_ours() || socket.send(&word, &[0, 1, 2]).is_err() {
            return Ok(SessionOutcome::Cold);
        }
        match timeout(patience, with_notice(whom, hear(&socket))).await {
            Ok(Ok(FromMaster::Other)) if is_there => {}
            Ok(first) => return follow(&socket, first?, plan).await,
            Err(_) => {
                if is_there {
                    // Nobody else shall wait for it. Until it ends there is no other one.
                    let _ = std::fs::remove_file(home.file(kind.socket()));
                }
                return Err(SshError::Lost(format!("the master does not answer; {UNKNOWN}")));
            }
        }
    }
}

/// What cannot be said here.
const UNKNOWN: &str = "whether the command was begun, the node's audit log says";

/// The next word. From the order on, a master that is gone may have begun it: it is not asked for again.
async fn hear(socket: &MessageSocket) -> Result<FromMaster, SshError> {
    match socket.receive().await {
        Ok((word, _)) => Ok(word),
        // Of another version, which begins nothing for us.
        Err(e) if e.kind() == io::ErrorKind::InvalidData => Ok(FromMaster::Other),
        Err(_) => Err(SshError::Lost(format!("the master ended; {UNKNOWN}"))),
    }
}

fn order(target: Target, node: &str, plan: &Plan) -> Option<ToMaster> {
    let terminal = plan.terminal.then(|| {
        let wanted = terminal::wanted();
        master::Terminal {
            term: wanted.term,
            size: size(),
            modes: wanted.modes,
            escape: plan.escape,
        }
    });
    let variable = |(name, value): &(Vec<u8>, Vec<u8>)| master::Variable {
        name: name.clone(),
        value: value.clone(),
    };
    let order = SessionOrder {
        node: CString::new(node).ok()?,
        login: CString::new(plan.user.as_str()).ok()?,
        work: match &plan.options.work {
            Work::Shell => master::Work::Shell,
            Work::Exec(command) => master::Work::Exec {
                command: command.clone(),
            },
            Work::Subsystem(name) => master::Work::Subsystem { name: name.clone() },
            Work::None | Work::To(_) => return None,
        },
        terminal,
        environment: plan.environment.iter().map(variable).collect(),
        input: plan.options.input,
    };
    let word = ToMaster::Run { target, order };
    // Longer ones go their own way.
    (fleetgate_wire::encode(&word).len() <= master::MAX_FRAME).then_some(word)
}

fn size() -> master::Size {
    let size = terminal::size();
    master::Size {
        columns: size.columns,
        rows: size.rows,
    }
}

/// From the master's first word to its last.
async fn follow(socket: &MessageSocket, first: FromMaster, plan: &Plan) -> Result<SessionOutcome, SshError> {
    let mut signals = Signals::new().map_err(|e| SshError::Local(format!("signals: {e}")))?;
    let mut raw = None;
    let mut next = Some(first);
    loop {
        let word = match next.take() {
            Some(word) => word,
            None => tokio::select! {
                word = hear(socket) => word?,
                end = signals.next() => match end {
                    Some(number) => return Err(SshError::Signal(number)),
                    None => {
                        if plan.terminal {
                            let _ = socket.send(&ToMaster::Window { size: size() }, &[]);
                        }
                        continue;
                    }
                },
            },
        };
        match word {
            FromMaster::Began { terminal } => {
                if plan.terminal && !terminal {
                    stderr::raw_line("the other side gives no terminal");
                }
                if terminal {
                    raw = Raw::begin().filter(|_| plan.options.input);
                    let _ = socket.send(&ToMaster::Resume, &[]);
                }
            }
            FromMaster::Say { words, .. } => say(&words),
            FromMaster::Suspend => {
                let was_raw = raw.take().is_some();
                terminal::stop();
                raw = was_raw.then(Raw::begin).flatten();
                let _ = socket.send(&ToMaster::Resume, &[]);
                let _ = socket.send(&ToMaster::Window { size: size() }, &[]);
            }
            FromMaster::Ended { code, words } => {
                drop(raw);
                match words {
                    Some(words) if words.as_bytes().ends_with(b"\n") => say(&words),
                    Some(words) => return Err(SshError::Lost(words.to_string_lossy().into_owned())),
                    None => {}
                }
                return Ok(SessionOutcome::Over(code));
            }
            FromMaster::Failed { why } => return Err(SshError::Connect(why.to_string_lossy().into_owned())),
            FromMaster::Cold
            | FromMaster::Refused
            | FromMaster::Other
            | FromMaster::Lent { .. }
            | FromMaster::Status { .. } => return Ok(SessionOutcome::Cold),
        }
    }
}

/// Lines that end as a terminal in raw mode wants them.
fn say(words: &std::ffi::CStr) {
    let words = words.to_string_lossy().replace("\r\n", "\n");
    stderr::write(fleetgate_policy::text::printable_lines(&words).replace('\n', "\r\n"));
}

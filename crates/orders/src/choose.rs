//! What a request comes to, held against the connection's grant: a program, a list of commands, or the text of a refusal.
//! Pure: nothing is opened and nobody is asked.

use crate::facts::ProgramChoice;
use crate::refusal::SessionRefusal;
use fleetgate_audit::SessionKind;
use fleetgate_policy::cluster::listing;
use fleetgate_policy::permits::Program as Permitted;
use fleetgate_policy::{Grant, GrantRequest, What};
use fleetgate_wire::node::front::{self, Start, Terminal};
use fleetgate_wire::node::{
    FrontPermit, FrontPermits, MAX_COMMAND, MAX_ENVIRONMENT, MAX_MODES, MAX_TERM, MAX_VARIABLES,
};
use std::time::Duration;

/// The subsystems that list the named commands: `ssh -s NODE fleetgate-commands`.
const LIST_AS_TABLE: &[u8] = b"fleetgate-commands";
const LIST_AS_JSON: &[u8] = b"fleetgate-commands-json";
/// For who may run any command line.
pub(crate) const ANY_COMMAND: &str =
    "This login may run any command line on this node, and so no named command.\n";
/// The longest list: what a pipe holds.
pub const MAX_LIST: usize = 1 << 20;

/// Checks a request against the grant and the bounds of frames.
pub fn choose_program(grant: &Grant, start: &Start, now: Duration) -> Result<ProgramChoice, SessionRefusal> {
    bounds(start).map_err(SessionRefusal::finally)?;
    let ask = |what| GrantRequest {
        login: &grant.login,
        now,
        what,
    };
    let denied = |e: fleetgate_policy::Denied| SessionRefusal::new(e.to_string());
    let what = match &start.program {
        front::Program::Shell => What::Shell,
        front::Program::Exec { command } => What::Exec(command),
        front::Program::Subsystem { name } => What::Subsystem(name),
    };
    let program = grant.program(&ask(what)).map_err(denied)?;
    if let Permitted::Named(command) = &program {
        let is_sent = |name: &&String| start.environment.iter().any(|v| v.name == name.as_bytes());
        if let Some(missing) = command.secrets.iter().find(|name| !is_sent(name)) {
            return Err(SessionRefusal::new(format!(
                "the command {:?} needs its secret {missing}: check_fleetgate --secret {missing}=FILE sends it",
                command.name
            )));
        }
    }
    for (wanted, what) in [
        (start.terminal.is_some(), What::Pty),
        (start.agent.is_some(), What::Agent),
        (start.x11.is_some(), What::X11),
    ] {
        if wanted {
            grant.allows(&ask(what)).map_err(denied)?;
        }
    }
    let (kind, original) = match &program {
        Permitted::Shell => (SessionKind::Shell, None),
        Permitted::Line { original, .. } => (SessionKind::Exec, original.clone()),
        Permitted::Named(_) => match &start.program {
            front::Program::Exec { command } => (SessionKind::Command, Some(command.clone())),
            _ => (SessionKind::Command, None),
        },
        Permitted::Sftp { .. } => (SessionKind::Sftp, None),
        Permitted::Subsystem(name) => {
            let words = format!("there is no subsystem {:?} here", printable(name));
            return Err(SessionRefusal::new(words).finally());
        }
    };
    Ok(ProgramChoice {
        program,
        kind,
        original,
    })
}

/// What a client is told who asks which named commands he may run; none: he asks for something else, or it is decided as any
/// program is.
pub fn command_list(grant: &Grant, start: &Start) -> Option<String> {
    let front::Program::Subsystem { name } = &start.program else {
        return None;
    };
    let write = match &name[..] {
        LIST_AS_TABLE => listing::table,
        LIST_AS_JSON => listing::json_lines,
        _ => return None,
    };
    let permits = &grant.permits;
    let mut text = match permits.named_commands() {
        Some(commands) => write(&commands, listing::Reader::Client),
        None if permits.forced().is_some() || permits.allow_kind(fleetgate_policy::Kind::Exec).is_err() => {
            return None;
        }
        None if name == LIST_AS_JSON => String::new(),
        None => ANY_COMMAND.to_owned(),
    };
    shorten(&mut text, MAX_LIST, name == LIST_AS_JSON);
    Some(text)
}

/// Cuts a list at a line's end where it is longer than may be, and says in its last line how many lines that left out.
pub fn shorten(list: &mut String, most: usize, is_json: bool) {
    /// Room for that line.
    const LAST_LINE: usize = 64;
    if list.len() <= most {
        return;
    }
    let kept = &list.as_bytes()[..most.saturating_sub(LAST_LINE)];
    let end = kept.iter().rposition(|b| *b == b'\n').map_or(0, |end| end + 1);
    let left_out = list.as_bytes()[end..].iter().filter(|b| **b == b'\n').count();
    list.truncate(end);
    *list += &match is_json {
        true => format!("{{\"left_out\":{left_out}}}\n"),
        false => format!("{left_out} more are left out: the list is too long.\n"),
    };
}

/// The kinds that are worth asking for, for the front to refuse the others early.
pub fn front_permits(grant: &Grant, now: Duration) -> FrontPermits {
    let ask = |what| {
        grant
            .allows(&GrantRequest {
                login: &grant.login,
                now,
                what,
            })
            .is_ok()
    };
    let permits = &grant.permits;
    let any =
        |kinds: [fleetgate_policy::Kind; 2]| kinds.into_iter().any(|kind| permits.allow_kind(kind).is_ok());
    use fleetgate_policy::Kind as P;
    // With a list of named commands only its own lines are allowed, so no particular line can be asked about.
    let exec = permits.allow_kind(P::Exec).is_ok();
    [
        (FrontPermit::Shell, ask(What::Shell)),
        (FrontPermit::Exec, exec || ask(What::Exec(b"true"))),
        (FrontPermit::Sftp, ask(What::Subsystem(b"sftp"))),
        (FrontPermit::Pty, ask(What::Pty)),
        (FrontPermit::ConnectForward, any([P::ConnectTcp, P::ConnectUnix])),
        (FrontPermit::ListenForward, any([P::ListenTcp, P::ListenUnix])),
        (FrontPermit::Agent, ask(What::Agent)),
        (FrontPermit::X11, ask(What::X11)),
    ]
    .into_iter()
    .filter(|(_, allowed)| *allowed)
    .fold(FrontPermits::default(), |permits, (kind, _)| permits.with(kind))
}

fn bounds(start: &Start) -> Result<(), SessionRefusal> {
    let line = match &start.program {
        front::Program::Shell => &[][..],
        front::Program::Exec { command } => command,
        front::Program::Subsystem { name } => name,
    };
    // The kernel's bound of one argument counts the zero byte too.
    if line.len() >= MAX_COMMAND {
        return Err(SessionRefusal::new(format!(
            "the command is longer than {} bytes",
            MAX_COMMAND - 1
        )));
    }
    if line.contains(&0) {
        return Err(SessionRefusal::new("the command holds a zero byte"));
    }
    if start.environment.len() > MAX_VARIABLES {
        return Err(SessionRefusal::new(format!(
            "more than {MAX_VARIABLES} environment variables were sent"
        )));
    }
    let bytes: usize = start
        .environment
        .iter()
        .map(|v| v.name.len() + v.value.len())
        .sum();
    if bytes > MAX_ENVIRONMENT {
        return Err(SessionRefusal::new(format!(
            "the environment that was sent is longer than {MAX_ENVIRONMENT} bytes"
        )));
    }
    match &start.terminal {
        Some(Terminal { modes, .. }) if modes.len() > MAX_MODES => Err(SessionRefusal::new(format!(
            "the terminal modes are longer than {MAX_MODES} bytes"
        ))),
        Some(Terminal { term, .. }) if term.len() > MAX_TERM || term.contains(&0) => {
            Err(SessionRefusal::new(format!(
                "the terminal type is longer than {MAX_TERM} bytes or holds a zero byte"
            )))
        }
        _ => Ok(()),
    }
}

pub(crate) fn printable(bytes: &[u8]) -> String {
    String::from_utf8_lossy(&bytes[..bytes.len().min(64)]).into_owned()
}

//! From what a client asked for to an order for the helper, or to the text of a refusal. Pure: the grant, the
//! configuration and the account are given, nothing is opened and nobody is asked.
//!
//! A program has a type in each step:
//!
//! | step | type |
//! |---|---|
//! | the client asks | `front::Program` (as `policy::What` to the grant) |
//! | the grant answers | `policy::permits::Program` |
//! | the monitor has decided | [`ProgramChoice`], and `SessionKind` for the audit log |
//! | the helper is told | `wire::exec::Program`, or `wire::sftp::Sftp` |

use super::environment;
use super::facts::{OrderFacts, ProgramChoice};
use crate::monitor::audit::SessionKind;
use fleetgate_policy::cluster::listing;
use fleetgate_policy::permits::Program as Permitted;
use fleetgate_policy::{Grant, GrantRequest, What};
use fleetgate_wire::common::{Account, Ageing, Moment};
use fleetgate_wire::exec::{Checks, Environment, Exec, Login, Program, Resources};
use fleetgate_wire::node::front::{self, Start, Terminal};
use fleetgate_wire::node::{
    FrontPermit, FrontPermits, MAX_COMMAND, MAX_ENVIRONMENT, MAX_MODES, MAX_TERM, MAX_VARIABLES, MAX_X11,
};
use fleetgate_wire::sftp::Sftp;
use std::ffi::CString;
use std::time::Duration;

/// The subsystems that list the named commands: `ssh -s NODE fleetgate-commands`.
const LIST_AS_TABLE: &[u8] = b"fleetgate-commands";
const LIST_AS_JSON: &[u8] = b"fleetgate-commands-json";
/// For who may run any command line.
const ANY_COMMAND: &str = "This login may run any command line on this node, and so no named command.\n";
/// The longest list: what a pipe holds.
const MAX_LIST: usize = 1 << 20;

/// Why a session is not begun: a sentence that the user may be shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionRefusal(pub String);

impl SessionRefusal {
    pub(super) fn new(words: impl Into<String>) -> SessionRefusal {
        SessionRefusal(words.into())
    }
}

/// Checks a request against the grant and the bounds of frames.
pub fn choose_program(grant: &Grant, start: &Start, now: Duration) -> Result<ProgramChoice, SessionRefusal> {
    bounds(start)?;
    let ask = |what| GrantRequest {
        login: &grant.login,
        now,
        what,
    };
    let denied = |e: fleetgate_policy::Denied| SessionRefusal(e.to_string());
    let what = match &start.program {
        front::Program::Shell => What::Shell,
        front::Program::Exec { command } => What::Exec(command),
        front::Program::Subsystem { name } => What::Subsystem(name),
    };
    let program = grant.program(&ask(what)).map_err(denied)?;
    if let Permitted::Named(command) = &program {
        let is_sent = |name: &&String| start.environment.iter().any(|v| v.name == name.as_bytes());
        if let Some(missing) = command.secrets.iter().find(|name| !is_sent(name)) {
            return Err(SessionRefusal(format!(
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
            return Err(SessionRefusal(format!(
                "there is no subsystem {:?} here",
                printable(name)
            )));
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
fn shorten(list: &mut String, most: usize, is_json: bool) {
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

/// The order for a shell or a command.
pub fn exec(facts: &OrderFacts<'_>, decided: &ProgramChoice) -> Result<Exec, SessionRefusal> {
    let OrderFacts {
        config,
        start,
        account,
        root,
        pam,
        ..
    } = *facts;
    let must_change = facts.grant.must_change_password;
    let mut account = account.clone();
    if must_change {
        // PAM said so; the helper knows that of shadow(5), and executes `passwd` then.
        account.ageing = Some(Ageing {
            last_change: 0,
            max_days: -1,
            inactive_days: -1,
            expires: -1,
            locked: false,
        });
    }
    let terminal = start.terminal.is_some();
    let program = match &decided.program {
        Permitted::Line { command, .. } => Program::Command {
            line: string(command, "the command")?,
        },
        Permitted::Named(command) => Program::Direct {
            argv: command
                .argv
                .iter()
                .map(|word| string(word, "an argument"))
                .collect::<Result<_, _>>()?,
        },
        _ => Program::Shell,
    };
    let login = (decided.is_login() && root).then(|| Login {
        at: Moment {
            sec: facts.at.sec,
            nsec: facts.at.nsec,
        },
        host: environment::address(&facts.addresses.peer),
        address: facts.addresses.peer.address,
        // As sshd: who has no terminal is not in utmp, and was not here for `last`.
        utmp: terminal,
        lastlog: terminal,
        audit: true,
        last_login_message: config.last_login && terminal,
        motd: config.motd && terminal,
    });
    let inherited = facts.inherited;
    // Nobody logs in as the account of such a command, and nothing that its client says becomes a variable of it.
    let is_other = decided.other_account(&facts.grant.login).is_some();
    let client = match is_other {
        true => Vec::new(),
        false => environment::of_client(facts.grant, start),
    };
    Ok(Exec {
        terminal: facts.terminal.cloned(),
        environment: Environment {
            client,
            accept: config
                .accept_env
                .iter()
                .filter_map(|p| CString::new(p.as_str()).ok())
                .collect(),
            set: environment::set(facts, decided),
            etc_environment: !pam,
            user_environment: config.user_environment && !is_other,
            path: CString::default(),
            root_path: CString::default(),
        },
        login,
        checks: Checks {
            nologin: root && !is_other,
            expiry: root && (!pam || must_change) && !is_other,
        },
        resources: Resources {
            // Inside PAM the limits are pam_limits' own.
            limits: if pam { Vec::new() } else { inherited.limits.clone() },
            umask: None,
            nice: None,
            oom_score_adj: inherited.oom_score_adj.filter(|_| root),
            keyring: root,
            loginuid: root && decided.is_login(),
        },
        selinux: facts.context.cloned(),
        ..Exec::new(facts.session, account, program)
    })
}

/// The order for the file server. A forced `internal-sftp` may have `-R`, `-d DIRECTORY` and `-u UMASK`; what says
/// where it logs (`-e`, `-l`, `-f`) changes nothing here.
pub fn sftp(facts: &OrderFacts<'_>, arguments: &[u8]) -> Result<Sftp, SessionRefusal> {
    let OrderFacts { config, account, .. } = *facts;
    let chroot = match &config.sftp_chroot {
        Some(path) => Some(string(&expanded(path, account), "sftp_chroot")?),
        None => None,
    };
    let mut order = Sftp {
        ids: account.ids.clone(),
        home: account.home.clone(),
        chroot,
        start: None,
        read_only: config.sftp_read_only,
        umask: None,
        selinux: facts.context.cloned(),
    };
    let mut words = arguments
        .split(u8::is_ascii_whitespace)
        .filter(|word| !word.is_empty());
    let bad = |word: &[u8]| {
        SessionRefusal(format!(
            "the forced internal-sftp has an argument that is not known here: {:?}",
            printable(word)
        ))
    };
    while let Some(word) = words.next() {
        match word {
            b"-R" => order.read_only = true,
            b"-e" => {}
            b"-d" => {
                let path = words.next().ok_or_else(|| bad(word))?;
                let path = expanded(&String::from_utf8_lossy(path), account);
                order.start = Some(string(&path, "the directory to start in")?);
            }
            b"-u" => {
                let mask = words.next().and_then(|mask| std::str::from_utf8(mask).ok());
                let mask = mask.and_then(|mask| u32::from_str_radix(mask, 8).ok());
                order.umask = Some(mask.filter(|mask| *mask <= 0o777).ok_or_else(|| bad(word))?);
            }
            b"-l" | b"-f" => drop(words.next().ok_or_else(|| bad(word))?),
            _ => return Err(bad(word)),
        }
    }
    Ok(order)
}

/// What xauth reads for a display: never in its arguments, which everybody may look at. As sshd, the display on
/// loopback goes by the name that local clients use.
pub fn xauth_script(x11: &front::X11, display: u16) -> Result<Vec<u8>, SessionRefusal> {
    let name = |b: &u8| b.is_ascii_alphanumeric() || b"-_.".contains(b);
    let fits = |bytes: &[u8]| !bytes.is_empty() && x11.protocol.len() + x11.cookie.len() <= MAX_X11;
    if !fits(&x11.protocol) || x11.protocol.starts_with(b"-") || !x11.protocol.iter().all(name) {
        return Err(SessionRefusal::new("the X11 authentication protocol is no name"));
    }
    if !fits(&x11.cookie)
        || !x11.cookie.len().is_multiple_of(2)
        || !x11.cookie.iter().all(u8::is_ascii_hexdigit)
    {
        return Err(SessionRefusal::new("the X11 cookie is not hexadecimal"));
    }
    let screen = x11.screen;
    let shown = format!("unix:{display}.{screen}");
    let mut script = format!("remove {shown}\nadd {shown} ").into_bytes();
    for part in [&x11.protocol[..], b" ", &x11.cookie, b"\n"] {
        script.extend_from_slice(part);
    }
    Ok(script)
}

fn bounds(start: &Start) -> Result<(), SessionRefusal> {
    let line = match &start.program {
        front::Program::Shell => &[][..],
        front::Program::Exec { command } => command,
        front::Program::Subsystem { name } => name,
    };
    // The kernel's bound of one argument counts the zero byte too.
    if line.len() >= MAX_COMMAND {
        return Err(SessionRefusal(format!(
            "the command is longer than {} bytes",
            MAX_COMMAND - 1
        )));
    }
    if line.contains(&0) {
        return Err(SessionRefusal::new("the command holds a zero byte"));
    }
    if start.environment.len() > MAX_VARIABLES {
        return Err(SessionRefusal(format!(
            "more than {MAX_VARIABLES} environment variables were sent"
        )));
    }
    let bytes: usize = start
        .environment
        .iter()
        .map(|v| v.name.len() + v.value.len())
        .sum();
    if bytes > MAX_ENVIRONMENT {
        return Err(SessionRefusal(format!(
            "the environment that was sent is longer than {MAX_ENVIRONMENT} bytes"
        )));
    }
    match &start.terminal {
        Some(Terminal { modes, .. }) if modes.len() > MAX_MODES => Err(SessionRefusal(format!(
            "the terminal modes are longer than {MAX_MODES} bytes"
        ))),
        Some(Terminal { term, .. }) if term.len() > MAX_TERM || term.contains(&0) => Err(SessionRefusal(
            format!("the terminal type is longer than {MAX_TERM} bytes or holds a zero byte"),
        )),
        _ => Ok(()),
    }
}

/// `%u` is the user, `%h` his home directory, `%%` a percent sign.
fn expanded(text: &str, account: &Account) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        let (put, left): (&[u8], &[u8]) = match (first, after) {
            (b'%', [b'u', left @ ..]) => (account.name.to_bytes(), left),
            (b'%', [b'h', left @ ..]) => (account.home.to_bytes(), left),
            (b'%', [b'%', left @ ..]) => (b"%", left),
            _ => (&rest[..1], after),
        };
        out.extend_from_slice(put);
        rest = left;
    }
    out
}

fn string(bytes: &[u8], what: &str) -> Result<CString, SessionRefusal> {
    CString::new(bytes).map_err(|_| SessionRefusal(format!("{what} holds a zero byte")))
}

fn printable(bytes: &[u8]) -> String {
    String::from_utf8_lossy(&bytes[..bytes.len().min(64)]).into_owned()
}

#[cfg(test)]
mod tests;

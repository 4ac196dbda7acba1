//! The order for the helper, of what was decided (`choose`). Pure: the grant, the configuration and the account are given,
//! nothing is opened and nobody is asked.
//!
//! A program has a type in each step:
//!
//! | step | type |
//! |---|---|
//! | the client asks | `front::Program` (as `policy::What` to the grant) |
//! | the grant answers | `policy::permits::Program` |
//! | the monitor has decided | [`ProgramChoice`], and `SessionKind` for the audit log |
//! | the helper is told | `wire::exec::Program`, or `wire::sftp::Sftp` |

use crate::choose::printable;
use crate::environment;
use crate::facts::{OrderFacts, ProgramChoice};
use crate::refusal::SessionRefusal;
use fleetgate_policy::permits::Program as Permitted;
use fleetgate_wire::common::{Account, Ageing, Moment};
use fleetgate_wire::exec::{Checks, Environment, Exec, Login, Program, Resources};
use fleetgate_wire::node::MAX_X11;
use fleetgate_wire::node::front::{self};
use fleetgate_wire::sftp::Sftp;
use std::ffi::CString;

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
    // Nobody is there of this machine's accounts, and their files say nothing of him.
    let inside = facts.grant.login.container().is_some();
    let login = (decided.is_login() && root && !inside).then(|| Login {
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
            nologin: root && !is_other && !inside,
            expiry: root && (!pam || must_change) && !is_other && !inside,
        },
        resources: Resources {
            // Inside PAM the limits are pam_limits' own.
            limits: match pam || inside {
                true => Vec::new(),
                false => inherited.limits.clone(),
            },
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
        // The container is a root of its own.
        _ if facts.grant.login.container().is_some() => None,
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
        SessionRefusal::new(format!(
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
    CString::new(bytes).map_err(|_| SessionRefusal::new(format!("{what} holds a zero byte")))
}

#[cfg(test)]
mod tests;

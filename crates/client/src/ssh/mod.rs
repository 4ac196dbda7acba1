//! `fleetgate ssh`: SSH over any byte stream. All that is known is sent at once: the version, KEXINIT and a guessed share
//! first, then keys, login, channel and command in one flight, so a command costs two round trips on the carrier.
//! Most sessions run on the master's connection ([`by_master`]); what this module's engine does is the same there. The
//! connection to the proxy may be one that was kept ([`crate::master_client`]).

mod by_master;
pub mod capture;
mod carrier;
mod collector;
mod command;
pub(crate) mod direct;
mod engine;
mod escape;
mod flow;
pub mod forward;
pub(crate) mod guests;
mod hosts;
pub(crate) mod keeping;
mod local;
mod login;
pub mod options;
mod plan;
mod server_memory;
mod signals;
pub(crate) mod socks;
pub(crate) mod terminal;
#[cfg(test)]
mod tests;
pub(crate) mod x11;

pub use carrier::Carrier;
pub use command::{command, in_background, run_options, run_to_end};
pub use engine::MAX_OPENING;
pub use hosts::{Hosts, Strict};
pub use local::StandardStream;
pub use login::{Credential, LoginMethods};
pub use options::{Explain, Options};
pub use server_memory::ServerMemory;
use signals::Signals;

use crate::background::Starter;
use crate::error::ClientError;
use crate::stderr;
use crate::timings::Timings;
use crate::transport::Refused;
use engine::{Client, Engine};
use fleetgate_ssh::Connection;
use fleetgate_ssh::cipher::{Cipher, Mac};
use fleetgate_ssh::kex::Method;
use fleetgate_ssh::settings::{Keepalive, Settings};
use forward::{Listener, Target};
use login::Login;
use options::LogLevel;
use std::fmt;
use std::sync::Arc;
use x11::Display;

/// Exit codes, as ssh has them.
pub mod exit {
    /// The connection failed, or the command was ended by a signal.
    pub const FAILED: i32 = 255;
}

/// What is to be done on a connection.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The account.
    pub user: String,
    /// What the far side is called, for people.
    pub place: String,
    /// Between whom the SSH bytes go: "client-node".
    pub leg: &'static str,
    /// What the command line says.
    pub options: Options,
    /// With a terminal.
    pub terminal: bool,
    /// Variables for the session.
    pub environment: Vec<(Vec<u8>, Vec<u8>)>,
    /// What begins an escape.
    pub escape: Option<u8>,
    /// A silent peer is asked whether it lives.
    pub keepalive: Option<Keepalive>,
    /// The display to which X11 connections of the far side lead.
    pub display: Option<Display>,
    /// Who waits for all to stand: `-f`.
    pub starter: Option<Starter>,
}

/// What is offered in key exchanges, best first; none: all that there is.
#[derive(Clone, Debug, Default)]
pub struct Algorithms {
    /// Ciphers.
    pub ciphers: Option<Vec<Cipher>>,
    /// MACs.
    pub macs: Option<Vec<Mac>>,
    /// Key exchange methods.
    pub kex: Option<Vec<Method>>,
    /// Host key algorithms.
    pub host_keys: Option<Vec<String>>,
}

/// The work of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Work {
    /// A shell.
    Shell,
    /// A command line.
    Exec(Vec<u8>),
    /// A subsystem.
    Subsystem(Vec<u8>),
    /// Forwards alone.
    None,
    /// Standard input and output are a connection to there.
    To(Target),
}

/// Why a connection came to nothing.
#[derive(Debug)]
pub enum SshError {
    /// The other side was not reached.
    Connect(String),
    /// It is not who it should be.
    Host(String),
    /// The login could not be asked for.
    Login(String),
    /// It was, and was refused; or what was to be done.
    Refused(String),
    /// A proxy refused to open the way.
    Denied(Refused),
    /// The connection was lost.
    Lost(String),
    /// Something on this machine.
    Local(String),
    /// This program was told to end.
    Signal(i32),
    /// All is done.
    Over(i32),
    /// To be tried again, one step after the other.
    Again,
    /// The server is not as it was remembered, and nothing was begun: to be tried again.
    Changed,
}

impl SshError {
    /// The exit code: 255, unless the work was done.
    pub fn code(&self) -> i32 {
        match self {
            SshError::Over(code) => *code,
            _ => exit::FAILED,
        }
    }
}

impl fmt::Display for SshError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SshError::Connect(words)
            | SshError::Host(words)
            | SshError::Login(words)
            | SshError::Refused(words)
            | SshError::Local(words) => f.write_str(words),
            SshError::Denied(refused) => refused.fmt(f),
            SshError::Lost(words) => write!(f, "the connection was lost: {words}"),
            SshError::Signal(number) => write!(f, "ended by signal {number}"),
            SshError::Over(code) => write!(f, "ended with {code}"),
            SshError::Changed => f.write_str("the server is not as it was; it is to be tried again"),
            SshError::Again => f.write_str("the server took the login apart; it is to be tried again"),
        }
    }
}

impl std::error::Error for SshError {}

impl From<ClientError> for SshError {
    fn from(error: ClientError) -> SshError {
        match error {
            ClientError::Unreachable(..) => SshError::Connect(error.to_string()),
            error => SshError::Local(error.to_string()),
        }
    }
}

/// Does what the plan says, as this user, over this carrier. The exit code as ssh has it.
pub async fn run<C: Carrier>(
    plan: &Plan,
    hosts: &Hosts,
    memory: &mut ServerMemory,
    keys: Vec<Credential>,
    carrier: &mut C,
    timings: &mut Timings,
) -> Result<i32, SshError> {
    let mut listeners = listen(plan).await?;
    let say: fn(&str) = match plan.options.level >= LogLevel::Error {
        true => |line| stderr::line(line),
        false => |_| {},
    };
    let mut login = Login::new(
        plan.user.clone(),
        keys,
        plan.options.batch,
        plan.options.ways,
        say,
    );
    let mut ahead = login.is_sure();
    loop {
        let mut connection = Connection::client(settings(plan, hosts, memory));
        let first = connection.output().to_vec();
        connection.sent(first.len());
        let stream = carrier.open(first, timings).await?;
        timings.begin("key exchange", plan.leg);
        timings.request("key exchange");
        let engine = Engine::new(
            stream,
            connection,
            plan,
            hosts,
            memory,
            &mut login,
            timings,
            &mut listeners,
            ahead,
            Client::Own,
        )?;
        match engine.run().await {
            Err(SshError::Again) if ahead => {
                ahead = false;
                login.again();
            }
            Err(SshError::Changed) => login.again(),
            Err(SshError::Over(code)) => return Ok(code),
            other => return other,
        }
    }
}

/// What is offered to the server.
fn settings(plan: &Plan, hosts: &Hosts, memory: &ServerMemory) -> Arc<Settings> {
    let defaults = Settings::default();
    let wanted = plan.options.algorithms.clone();
    let host_key_algorithms = match wanted.host_keys {
        Some(names) => names,
        None => hosts.algorithms(&defaults.host_key_algorithms),
    };
    let kex = wanted.kex.unwrap_or(defaults.kex);
    Arc::new(Settings {
        first_share: memory.first_share(&kex, &host_key_algorithms),
        host_key_algorithms,
        kex,
        ciphers: wanted.ciphers.unwrap_or(defaults.ciphers),
        macs: wanted.macs.unwrap_or(defaults.macs),
        keepalive: plan.keepalive,
        ..defaults
    })
}

/// Our own listeners, before anything is connected: a port that is taken is said at once, one address family's too.
async fn listen(plan: &Plan) -> Result<Vec<(Listener, Target)>, SshError> {
    let mut listeners = Vec::new();
    for forward in &plan.options.locals {
        let failed: Vec<String> = match Listener::open(&forward.listen).await {
            Ok(opened) => {
                listeners.extend(opened.listeners.into_iter().map(|l| (l, forward.to.clone())));
                let words = |(address, e)| format!("cannot listen at {address}: {e}");
                opened.taken.into_iter().map(words).collect()
            }
            Err(e) => vec![format!("cannot listen at {}: {e}", forward.listen)],
        };
        for words in failed {
            if plan.options.exit_on_forward_failure {
                return Err(SshError::Local(words));
            }
            if plan.options.level >= LogLevel::Error {
                stderr::line(words);
            }
        }
    }
    Ok(listeners)
}

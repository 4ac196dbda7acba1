//! What a session's order is made of: what was decided, and what is known of connection, account and service.

use fleetgate_audit::SessionKind;
use fleetgate_node_config::Config;
use fleetgate_node_config::cluster::ClusterLogin;
use fleetgate_policy::commands::NamedCommand;
use fleetgate_policy::permits::Program as Permitted;
use fleetgate_policy::{AccountName, Grant};
use fleetgate_sys::clock::Time;
use fleetgate_wire::common::{Account, SessionId};
use fleetgate_wire::exec::Limit;
use fleetgate_wire::node::ConnectionAddresses;
use fleetgate_wire::node::front::Start;
use std::ffi::CString;

/// What the grant makes of a request: decided without the account.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProgramChoice {
    /// What to start.
    pub program: Permitted,
    /// Its kind.
    pub kind: SessionKind,
    /// What the client asked for, when something else runs.
    pub original: Option<Vec<u8>>,
}

impl ProgramChoice {
    /// Whether a PAM session goes around it: named commands are no logins.
    pub fn is_login(&self) -> bool {
        self.kind != SessionKind::Command
    }

    /// The named command that it is.
    pub fn named_command(&self) -> Option<&NamedCommand> {
        match &self.program {
            Permitted::Named(command) => Some(command),
            _ => None,
        }
    }

    /// The account that it runs as, where that is not the login.
    pub fn other_account(&self, login: &AccountName) -> Option<&AccountName> {
        self.named_command()?.user.as_ref().filter(|user| *user != login)
    }

    /// What is told of the command: a command line, or the words of a named one.
    pub fn command(&self) -> Option<Vec<u8>> {
        match &self.program {
            Permitted::Line { command, .. } => Some(command.clone()),
            Permitted::Named(command) => Some(command.argv.join(&b' ')),
            _ => None,
        }
    }
}

/// All that an order is made of, beside what was decided.
#[derive(Clone, Copy, Debug)]
pub struct OrderFacts<'a> {
    /// The configuration.
    pub config: &'a Config,
    /// The connection's grant.
    pub grant: &'a Grant,
    /// Where it comes from and arrived.
    pub addresses: &'a ConnectionAddresses,
    /// What was asked for.
    pub start: &'a Start,
    /// The account as the name service has it now.
    pub account: &'a Account,
    /// The session's name.
    pub session: SessionId,
    /// The wall clock.
    pub at: Time,
    /// The terminal's path, where there is one.
    pub terminal: Option<&'a CString>,
    /// The forwarded agent's socket.
    pub agent: Option<&'a CString>,
    /// The forwarded display's number.
    pub display: Option<u16>,
    /// Who it is in the cluster.
    pub cluster_user: &'a ClusterUser,
    /// What sessions must not inherit.
    pub inherited: &'a Inherited,
    /// The SELinux context.
    pub context: Option<&'a CString>,
    /// A PAM session goes around it.
    pub pam: bool,
    /// This process is root, and so does what only root can.
    pub root: bool,
}

/// Who somebody is in the cluster, as his programs read it; empty without one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClusterUser {
    /// The cluster's user.
    pub user: String,
    /// The roles that let him in, between commas.
    pub roles: String,
}

impl ClusterUser {
    /// Of somebody with these certificates: the first counts, as in the audit log.
    pub fn of(cluster_logins: &[ClusterLogin]) -> ClusterUser {
        let Some(cluster_login) = cluster_logins.first() else {
            return ClusterUser::default();
        };
        ClusterUser {
            user: cluster_login.user().map(ToString::to_string).unwrap_or_default(),
            roles: cluster_login.roles(),
        }
    }
}

/// What the service's own process has that its sessions must not inherit, noted before it raised anything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inherited {
    /// Limits by number.
    pub limits: Vec<Limit>,
    /// The score of the out-of-memory killer; none: it may not be read.
    pub oom_score_adj: Option<i32>,
}

impl Inherited {
    /// As this process has them now. Call it before raising anything.
    pub fn now() -> Inherited {
        let numbers = [fleetgate_sys::process::numbers::RLIMIT_NOFILE];
        let limits = numbers.into_iter().filter_map(|resource| {
            let limit = fleetgate_sys::process::limit(resource).ok()?;
            Some(Limit {
                resource,
                soft: limit.soft,
                hard: limit.hard,
            })
        });
        let score = std::fs::read_to_string("/proc/self/oom_score_adj").ok();
        Inherited {
            limits: limits.collect(),
            // A service is protected (OOMScoreAdjust=-900); what people run in it is not.
            oom_score_adj: score
                .and_then(|text| text.trim().parse::<i32>().ok())
                .map(|score| score.max(0)),
        }
    }
}

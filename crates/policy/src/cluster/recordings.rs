//! Who may see whose recordings, and whose sessions while they run. A pure decision, asked by auth about what it keeps and by a
//! node's monitor about what runs there. Without a role that says so only administrators may.

use super::decide::{self, Attempt};
use super::identity::Identity;
use super::labels::Labels;
use super::lock::Locks;
use super::name::Name;
use super::refusal::{Reason, Refusal};
use super::role::{ContainerLabels, Role, USER};
use super::selector::Selector;
use crate::pattern;
use std::collections::BTreeMap;
use std::time::Duration;

/// How old a second factor may be for administering from afar.
pub const ADMIN_MFA: Duration = Duration::from_secs(3600);

/// What may be done with a recording, or with a session that runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "documents", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "documents", serde(rename_all = "lowercase"))]
pub enum RecordingRight {
    /// See that a recording is there, and what it says of itself.
    List,
    /// Read a recording.
    Play,
    /// See what a session shows that runs.
    Watch,
    /// Type in a session that runs.
    Join,
    /// Remove a recording.
    Delete,
}

impl RecordingRight {
    /// All of them.
    pub const ALL: [RecordingRight; 5] = [
        RecordingRight::List,
        RecordingRight::Play,
        RecordingRight::Watch,
        RecordingRight::Join,
        RecordingRight::Delete,
    ];

    /// In files, messages and audit events.
    pub const fn name(self) -> &'static str {
        match self {
            RecordingRight::List => "list",
            RecordingRight::Play => "play",
            RecordingRight::Watch => "watch",
            RecordingRight::Join => "join",
            RecordingRight::Delete => "delete",
        }
    }

    /// `play recordings`
    const fn words(self) -> &'static str {
        match self {
            RecordingRight::List => "list recordings",
            RecordingRight::Play => "play recordings",
            RecordingRight::Watch => "watch sessions",
            RecordingRight::Join => "join sessions",
            RecordingRight::Delete => "delete recordings",
        }
    }

    /// It is about a session that runs, and not about a recording.
    const fn is_live(self) -> bool {
        matches!(self, RecordingRight::Watch | RecordingRight::Join)
    }

    /// Whether who has this one has the other too.
    fn includes(self, other: RecordingRight) -> bool {
        self == other
            || matches!(
                (self, other),
                (RecordingRight::Play, RecordingRight::List) | (RecordingRight::Join, RecordingRight::Watch)
            )
    }
}

/// What a role's users may see.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordingRights {
    /// Whose: users' names, patterns of them, or [`USER`], one's own. `*` is everybody's, also of those who came in without the
    /// cluster.
    pub of: Vec<String>,
    /// On which nodes; one of them has to match.
    pub nodes: Vec<Selector>,
    /// As which accounts, `ACCOUNT+CONTAINER` for those in containers: names, patterns of them, or [`USER`] as in a role's logins.
    pub logins: Vec<String>,
    /// What, ascending.
    pub may: Vec<RecordingRight>,
}

impl RecordingRights {
    /// Whether they have this right, about some session.
    fn has(&self, right: RecordingRight) -> bool {
        self.may.iter().any(|own| own.includes(right))
    }

    /// Whether they are about this session.
    fn is_for(&self, session: &ViewedSession<'_>, user: &Name) -> bool {
        let fits = |patterns: &[String], text: &str| {
            patterns.iter().any(|one| match one.strip_prefix(USER) {
                // The name itself is no pattern; what stands behind it, a container, may be one.
                Some(behind) => text
                    .strip_prefix(user.as_str())
                    .is_some_and(|rest| pattern::fits(behind.as_bytes(), rest.as_bytes())),
                None => pattern::fits(one.as_bytes(), text.as_bytes()),
            })
        };
        let on = |selector: &Selector| selector.matches_named(session.node, session.labels);
        fits(&self.of, session.owner) && self.nodes.iter().any(on) && fits(&self.logins, session.login)
    }

    /// `list, play: of *, on env=prod or web1, as root`
    pub fn words(&self) -> String {
        let may: Vec<&str> = self.may.iter().map(|right| right.name()).collect();
        format!("{}: {}", may.join(", "), self.whose())
    }

    fn whose(&self) -> String {
        let nodes: Vec<String> = self.nodes.iter().map(ToString::to_string).collect();
        format!(
            "of {}, on {}, as {}",
            self.of.join(" or "),
            nodes.join(" or "),
            self.logins.join(" or ")
        )
    }
}

/// The session that is to be seen, or whose recording.
#[derive(Clone, Copy, Debug)]
pub struct ViewedSession<'a> {
    /// Its user; empty: it came in without the cluster.
    pub owner: &'a str,
    /// The node; empty: nobody knows it, and only `*` fits.
    pub node: &'a str,
    /// The node's labels; none: nobody knows them, and only names and patterns of names fit.
    pub labels: Option<&'a Labels>,
    /// As which account.
    pub login: &'a str,
}

/// Who wants to see what. Times are Unix seconds.
#[derive(Clone, Copy, Debug)]
pub struct ViewAttempt<'a> {
    /// Who, as the verified certificate says.
    pub identity: &'a Identity,
    /// When the certificate ends; none where somebody else looks after that.
    pub expires: Option<u64>,
    /// The cluster that decides.
    pub cluster: &'a Name,
    /// The machine that is asked.
    pub machine: &'a Name,
    /// The cluster's roles.
    pub roles: &'a BTreeMap<Name, Role>,
    /// Its locks.
    pub locks: &'a Locks,
    /// What is wanted.
    pub right: RecordingRight,
    /// Of which session; none: of any at all.
    pub session: Option<ViewedSession<'a>>,
    /// The time.
    pub now: u64,
    /// How far clocks may be apart, seconds.
    pub skew: u64,
}

/// A yes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ViewAllowed {
    /// The role that allows it.
    pub role: Name,
    /// When this yes ends if nothing changes: the second factor grows too old, the certificate expires.
    pub until: Option<u64>,
}

/// What one role says.
enum Says {
    Yes(Option<u64>),
    /// It gives the right, about other sessions.
    Others,
    /// It does not give the right.
    No,
    /// It would, with these.
    Lacks(Refusal),
}

/// Decides: the certificate's time, then locks, then roles. A lock on a node or an account keeps nobody from its recordings, as
/// those who look into the reason of the lock need them; what runs there nobody watches.
pub fn may_see(attempt: &ViewAttempt<'_>) -> Result<ViewAllowed, Refusal> {
    let user = who(attempt)?;
    let held = || {
        let names = attempt.identity.roles.iter();
        names.filter_map(|name| attempt.roles.get(name))
    };
    let (mut lacks, mut yes): (Option<Refusal>, Option<ViewAllowed>) = (None, None);
    for role in held() {
        match ask(role, attempt, user) {
            Says::Yes(until) => {
                // The one that holds for longest.
                let is_longer = |yes: &ViewAllowed| {
                    let both = yes.until.zip(until);
                    both.map_or(until.is_none() && yes.until.is_some(), |(old, new)| new > old)
                };
                if yes.as_ref().is_none_or(is_longer) {
                    let role = role.name.clone();
                    yes = Some(ViewAllowed { role, until });
                }
            }
            // A second factor is shown in a moment, so that is what the user is told first.
            Says::Lacks(refusal) if lacks.as_ref().is_none_or(|l| l.reason != Reason::Mfa) => {
                lacks = Some(refusal);
            }
            _ => {}
        }
    }
    yes.ok_or_else(|| {
        let others = held().filter(|role| matches!(ask(role, attempt, user), Says::Others));
        lacks.unwrap_or_else(|| no_role(attempt, user, others))
    })
}

/// What a role says about recordings of a node's sessions, for a person; none: nothing.
pub fn explain_view(role: &Role) -> Option<String> {
    match (&role.recordings, role.admin) {
        (_, true) => Some(format!(
            "role {} administers the cluster, and so sees every recording, with a second factor not older than {}",
            role.name,
            decide::time(ADMIN_MFA.as_secs())
        )),
        (Some(rights), false) => Some(format!("by role {}: {}", role.name, rights.words())),
        (None, false) => None,
    }
}

/// Whose the certificate is, in its time, with no lock on it.
fn who<'a>(attempt: &ViewAttempt<'a>) -> Result<&'a Name, Refusal> {
    let session = attempt.session.filter(|_| attempt.right.is_live());
    let labels = Labels::new();
    let as_login = Attempt {
        identity: attempt.identity,
        expires: attempt.expires,
        cluster: attempt.cluster,
        roles: attempt.roles,
        locks: attempt.locks,
        node: attempt.machine,
        labels: &labels,
        login: "",
        container: ContainerLabels::NoContainers,
        now: attempt.now,
        skew: attempt.skew,
    };
    decide::decide_identity(&as_login)?;
    if let Some(session) = session
        && let Ok(node) = Name::parse(session.node)
        && let Some(lock) = attempt
            .locks
            .against(attempt.identity, &node, session.login, attempt.now)
    {
        return Err(lock.refusal());
    }
    // `decide_identity` let in a user alone.
    attempt.identity.user().ok_or_else(|| Refusal {
        reason: Reason::Role,
        rule: "the certificate".to_owned(),
        words: "the certificate is no user's".to_owned(),
    })
}

fn ask(role: &Role, attempt: &ViewAttempt<'_>, user: &Name) -> Says {
    let needs = |most: Option<Duration>| {
        let end = attempt.expires.map(|end| end.saturating_add(attempt.skew));
        match decide::is_proven(role, most, attempt.identity, (attempt.now, attempt.skew), end) {
            Ok(until) => Says::Yes(until),
            Err(refusal) => Says::Lacks(refusal),
        }
    };
    let by_table = match &role.recordings {
        Some(rights) if rights.has(attempt.right) => match attempt.session {
            Some(session) if !rights.is_for(&session, user) => Says::Others,
            _ => needs(role.require_mfa),
        },
        _ => Says::No,
    };
    match by_table {
        Says::Yes(_) => by_table,
        _ if role.admin => needs(Some(
            role.require_mfa.map_or(ADMIN_MFA, |most| most.min(ADMIN_MFA)),
        )),
        other => other,
    }
}

fn no_role<'a>(attempt: &ViewAttempt<'_>, user: &Name, others: impl Iterator<Item = &'a Role>) -> Refusal {
    let what = attempt.right.words();
    let others: Vec<&Role> = others.collect();
    let names = others.iter().map(|role| &role.name);
    let (rule, words) = match (attempt.session, others.is_empty()) {
        (Some(session), false) => {
            let roles = decide::roles_in_words(names);
            let whose = others.iter().filter_map(|role| role.recordings.as_ref());
            let whose: Vec<String> = whose.map(RecordingRights::whose).collect();
            let owner = match session.owner {
                "" => "of nobody of the cluster".to_owned(),
                owner => format!("of {owner}"),
            };
            let node = match session.node {
                "" => "an unknown node",
                node => node,
            };
            let words = format!(
                "by {roles}, {user} may {what} {}, and this one is {owner} on {node} as {}: ask an administrator for a role \
                 that allows it",
                whose.join("; and "),
                session.login
            );
            (roles, words)
        }
        _ => (
            "no role".to_owned(),
            format!(
                "{user} has no role that may {what}: ask an administrator for one ([role.NAME.recordings] of a role file)"
            ),
        ),
    };
    Refusal {
        reason: Reason::Role,
        rule,
        words,
    }
}

#[cfg(test)]
mod tests;

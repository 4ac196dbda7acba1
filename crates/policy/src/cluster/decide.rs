//! The decision: may this identity log in to that node as that account now, and what may it do there. A pure function,
//! asked by the proxy before a node is touched and by the node's monitor on every way in.

use super::identity::Identity;
use super::labels::Labels;
use super::lock::Locks;
use super::name::Name;
use super::recordings::{RecordingRight, ViewAttempt, may_see};
use super::refusal::{Reason, Refusal};
use super::role::{ContainerLabels, Limits, Role};
use super::selector::Selector;
use crate::account_name::{VIEWER, account_and_container};
use crate::commands::Commands;
use crate::permits::{Kind, Permits};
use crate::recording::{self, OnwardSsh, Recipient, Recording, RecordingFailure};
use crate::rule::Rule;
use crate::watching::Watching;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Who wants in where. Times are Unix seconds.
#[derive(Clone, Copy, Debug)]
pub struct Attempt<'a> {
    /// Who, as the verified certificate says.
    pub identity: &'a Identity,
    /// When the certificate ends; none where somebody else looks after that.
    pub expires: Option<u64>,
    /// The cluster that decides.
    pub cluster: &'a Name,
    /// Its roles.
    pub roles: &'a BTreeMap<Name, Role>,
    /// Its locks.
    pub locks: &'a Locks,
    /// The node.
    pub node: &'a Name,
    /// The node's labels.
    pub labels: &'a Labels,
    /// The account.
    pub login: &'a str,
    /// The container that the login leads into, if it leads into one.
    pub container: ContainerLabels<'a>,
    /// The time.
    pub now: u64,
    /// How far clocks may be apart, seconds.
    pub skew: u64,
}

/// A yes.
#[derive(Clone, Debug, PartialEq)]
pub struct Allowed {
    /// What may be done: what any of the roles allows.
    pub permits: Permits,
    /// The widest of the roles', since each of them alone would allow it; the lifetime is the shortest.
    pub limits: Limits,
    /// The most that any of the roles asks for.
    pub recording: Recording,
    /// What happens to a session that cannot be recorded so: the strictest of the roles that ask for a recording.
    pub recording_failure: RecordingFailure,
    /// Whether forwarded connections may go on to SSH servers: if any of the roles lets them.
    pub onward_ssh: OnwardSsh,
    /// For whom the recording is encrypted: everybody whom one of the roles names.
    pub recording_recipients: Vec<Recipient>,
    /// A role that asks for a recording, and for that: the one to name in words. None: no role does.
    pub recording_role: Option<Name>,
    /// For how long the cluster keeps the recording: the longest that such a role says. None: as long as it keeps others.
    pub recording_keep: Option<Duration>,
    /// How closely a session's programs are watched: the strongest of the roles'.
    pub watching: Watching,
    /// The roles that allow it.
    pub roles: Vec<Name>,
    /// What the login calls its container may be an id; else it is a name, because the roles have a pattern of names.
    pub container_by_id: bool,
    /// When this yes ends if nothing changes: the second factor grows too old, the certificate expires.
    pub until: Option<u64>,
}

/// The rule of a refusal because the account does not exist on the node.
pub const NO_ACCOUNT: &str = "no account";
/// Why nobody enters containers of a node.
pub const NO_CONTAINERS: &str =
    "this node lets nobody into containers (`containers = []` in its configuration)";

const ASK_FOR_A_ROLE: &str = "ask an administrator for a role that allows it";

/// What one role says to an attempt.
enum Says {
    /// Yes, up to then.
    Yes(Option<u64>),
    /// It is for other nodes.
    OtherNodes,
    /// It is for this node, and other accounts.
    OtherLogins,
    /// It is for this node and account, and other containers.
    OtherContainers,
    /// It would, with these.
    Lacks(Refusal),
}

/// Decides: the certificate's time, then locks, then roles.
pub fn decide(attempt: &Attempt<'_>) -> Result<Allowed, Refusal> {
    let user = before_roles(attempt)?;
    if attempt.login == VIEWER && !matches!(attempt.container, ContainerLabels::PlainSshd) {
        return viewer(attempt, user);
    }
    let mut yes: Vec<(&Role, Option<u64>)> = Vec::new();
    let mut lacks: Option<Refusal> = None;
    for role in held(attempt) {
        match ask(role, attempt, user) {
            Says::Yes(until) => yes.push((role, until)),
            // A second factor is shown in a moment, so that is what the user is told first.
            Says::Lacks(refusal) if lacks.as_ref().is_none_or(|l| l.reason != Reason::Mfa) => {
                lacks = Some(refusal)
            }
            _ => {}
        }
    }
    if yes.is_empty() {
        return Err(lacks.unwrap_or_else(|| no_role(attempt, user)));
    }
    Ok(together(attempt, user, &yes))
}

/// Decides about a login by which nothing runs: who may see sessions somewhere comes in, and each session is decided about then.
fn viewer(attempt: &Attempt<'_>, user: &Name) -> Result<Allowed, Refusal> {
    let yes = may_see(&ViewAttempt {
        identity: attempt.identity,
        expires: attempt.expires,
        cluster: attempt.cluster,
        machine: attempt.node,
        roles: attempt.roles,
        locks: attempt.locks,
        right: RecordingRight::Watch,
        session: None,
        now: attempt.now,
        skew: attempt.skew,
    })?;
    let mut role = Role::new(yes.role);
    role.kinds = Vec::new();
    Ok(together(attempt, user, &[(&role, yes.until)]))
}

/// Whether this identity comes in anywhere: whose it is, its time, and locks on the user, the device and the roles. The node of
/// the attempt is the machine that is asked, and no lock on a node or an account counts.
pub fn decide_identity<'a>(attempt: &Attempt<'a>) -> Result<&'a Name, Refusal> {
    let user = whose(attempt)?;
    match attempt.locks.against_identity(attempt.identity, attempt.now) {
        Some(lock) => Err(lock.refusal()),
        None => Ok(user),
    }
}

/// The steps that lead to a decision, one line each, the last one the decision.
pub fn explain(attempt: &Attempt<'_>) -> Vec<String> {
    let mut steps = Vec::new();
    let user = match before_roles(attempt) {
        Ok(user) => user,
        Err(refusal) => return vec![refused(&refusal)],
    };
    steps.push(format!(
        "no lock holds against {user}, {} or {}",
        attempt.login, attempt.node
    ));
    for name in &attempt.identity.roles {
        let Some(role) = attempt.roles.get(name) else {
            steps.push(format!("role {name} does not exist any more: it allows nothing"));
            continue;
        };
        steps.push(match ask(role, attempt, user) {
            Says::Yes(_) => {
                let condition = match attempt.container {
                    ContainerLabels::Unknown if role.looks_at_labels(attempt.login) => {
                        format!(
                            ", if the container has {} (nobody looked: the node does, at the login)",
                            any_of(&role.containers)
                        )
                    }
                    _ => String::new(),
                };
                format!(
                    "role {name} allows {} on {}{condition}: {}{}",
                    attempt.login,
                    attempt.node,
                    can(role),
                    recorded(role)
                )
            }
            Says::OtherNodes => format!("role {name} is for {}, not for {}", nodes_of(role), attempt.node),
            Says::OtherContainers => format!(
                "role {name} is for containers with {}, and {}",
                any_of(&role.containers),
                not_one_of(&role.containers, attempt).0
            ),
            Says::OtherLogins => format!(
                "role {name} is for the logins {}, not {}",
                role.logins.join(", "),
                attempt.login
            ),
            Says::Lacks(refusal) => refusal.words,
        });
    }
    steps.push(match decide(attempt) {
        Ok(allowed) => format!("allowed by {}", roles_in_words(&allowed.roles)),
        Err(refusal) => refused(&refusal),
    });
    steps
}

/// By which rule, once: some refusals begin with it.
fn refused(refusal: &Refusal) -> String {
    let words = refusal.words.strip_prefix(&format!("by {}, ", refusal.rule));
    match words {
        // A step before says why.
        None if refusal.words.starts_with(&refusal.rule) => format!("refused by {}", refusal.rule),
        words => format!("refused by {}: {}", refusal.rule, words.unwrap_or(&refusal.words)),
    }
}

/// The accounts that a user with these roles may have somewhere: the principals of the certificate, sorted.
pub fn logins_of<'a>(roles: impl IntoIterator<Item = &'a Role>, user: &Name) -> Vec<String> {
    let mut logins: Vec<String> = roles
        .into_iter()
        .flat_map(|role| {
            role.logins_for(user)
                .map(|login| login.into_owned())
                .collect::<Vec<_>>()
        })
        .collect();
    logins.sort();
    logins.dedup();
    logins
}

/// How long a certificate with these roles may live: as long as the strictest of them says.
pub fn lifetime_of<'a>(roles: impl IntoIterator<Item = &'a Role>) -> Duration {
    let shortest = roles.into_iter().map(|role| role.limits.lifetime).min();
    shortest.unwrap_or(Limits::default().lifetime)
}

/// For how long after the login it may be renewed with nobody there: as long as the strictest of these roles says. None: one
/// of them says nothing of it.
pub fn renewal_of<'a>(roles: impl IntoIterator<Item = &'a Role>) -> Option<Duration> {
    let all: Option<Vec<Duration>> = roles.into_iter().map(|role| role.limits.renewal).collect();
    all?.into_iter().min()
}

/// What is asked before any role: whose it is, its time, locks.
fn before_roles<'a>(attempt: &Attempt<'a>) -> Result<&'a Name, Refusal> {
    let user = whose(attempt)?;
    let locks = attempt.locks;
    match locks.against(attempt.identity, attempt.node, attempt.login, attempt.now) {
        Some(lock) => Err(lock.refusal()),
        None => Ok(user),
    }
}

/// The user whose certificate it is, in its time.
fn whose<'a>(attempt: &Attempt<'a>) -> Result<&'a Name, Refusal> {
    let identity = attempt.identity;
    let refuse = |reason, rule: &str, words| {
        let rule = rule.to_string();
        Err(Refusal { reason, rule, words })
    };
    if identity.cluster != *attempt.cluster {
        let words = format!(
            "the certificate is of the cluster {}, and {} belongs to {}: log in there",
            identity.cluster, attempt.node, attempt.cluster
        );
        return refuse(Reason::Role, "the certificate", words);
    }
    let Some(user) = identity.user() else {
        let words = format!(
            "the certificate is for {}, and only users log in",
            identity.subject
        );
        return refuse(Reason::Role, "the certificate", words);
    };
    if attempt
        .expires
        .is_some_and(|end| attempt.now >= end.saturating_add(attempt.skew))
    {
        let ago = time(attempt.now.saturating_sub(attempt.expires.unwrap_or_default()));
        let words = format!("the certificate of {user} expired {ago} ago: run fleetgate login");
        return refuse(Reason::Expired, "the certificate", words);
    }
    if identity.issued > attempt.now.saturating_add(attempt.skew) {
        let ahead = time(identity.issued - attempt.now);
        let words = format!(
            "the certificate of {user} was made {ahead} from now (clocks may be {} apart): set the clock of {}",
            time(attempt.skew),
            attempt.node
        );
        return refuse(Reason::Expired, "the certificate", words);
    }
    Ok(user)
}

fn held<'a>(attempt: &Attempt<'a>) -> impl Iterator<Item = &'a Role> {
    let roles = attempt.roles;
    attempt
        .identity
        .roles
        .iter()
        .filter_map(move |name| roles.get(name))
}

fn ask(role: &Role, attempt: &Attempt<'_>, user: &Name) -> Says {
    if !role.nodes.iter().any(|s| s.matches(attempt.node, attempt.labels)) {
        return Says::OtherNodes;
    }
    if !role.is_for(attempt.login, user) {
        return Says::OtherLogins;
    }
    if !role.is_for_container(attempt.login, attempt.container) {
        return Says::OtherContainers;
    }
    let until = attempt.expires.map(|end| end.saturating_add(attempt.skew));
    let times = (attempt.now, attempt.skew);
    match is_proven(role, role.require_mfa, attempt.identity, times, until) {
        Ok(until) => Says::Yes(until),
        Err(refusal) => Says::Lacks(refusal),
    }
}

/// Whether the identity has what a role asks for: a second factor that is not older than `most`, and a device. Until when that is
/// so, or what is missing.
pub(super) fn is_proven(
    role: &Role,
    most: Option<Duration>,
    identity: &Identity,
    (now, skew): (u64, u64),
    mut until: Option<u64>,
) -> Result<Option<u64>, Refusal> {
    let mut missing = Vec::new();
    let mut reason = Reason::Mfa;
    if let Some(most) = most {
        let asks = format!("a second factor not older than {}", time(most.as_secs()));
        match identity.mfa {
            None => missing.push(format!("{asks} and you showed none")),
            Some(at) => {
                let end = at.saturating_add(most.as_secs()).saturating_add(skew);
                if now > end {
                    let age = time(now.saturating_sub(at));
                    missing.push(format!("{asks} and yours is {age} old"));
                }
                until = Some(until.map_or(end, |u| u.min(end)));
            }
        }
    }
    let mut remedy = "run fleetgate login --mfa";
    if role.require_trusted_device && identity.device.is_none() {
        missing.push("a trusted device and yours is none".to_string());
        reason = Reason::Device;
        remedy = "run fleetgate device enroll, have it approved and log in again";
    }
    if missing.is_empty() {
        return Ok(until);
    }
    Err(Refusal {
        reason,
        rule: format!("role {}", role.name),
        words: format!(
            "role {} asks for {}: {remedy}",
            role.name,
            missing.join(", and for ")
        ),
    })
}

fn no_role(attempt: &Attempt<'_>, user: &Name) -> Refusal {
    let Attempt { login, node, .. } = attempt;
    let remedy = ASK_FOR_A_ROLE;
    let of = |wanted: fn(&Says) -> bool| held(attempt).filter(move |role| wanted(&ask(role, attempt, user)));
    let here: Vec<&Role> = of(|says| matches!(says, Says::OtherLogins)).collect();
    let other_containers: Vec<&Role> = of(|says| matches!(says, Says::OtherContainers)).collect();
    let (rule, words) = if !other_containers.is_empty() {
        let roles = roles_in_words(other_containers.iter().map(|role| &role.name));
        let selectors = other_containers.iter().flat_map(|role| &role.containers);
        let wanted = any_of(selectors.clone());
        let (account, _) = account_and_container(login);
        let (why, remedy) = not_one_of(selectors, attempt);
        (
            roles.clone(),
            format!(
                "by {roles}, {user} enters containers with {wanted} as {account} on {node}, and {why}{remedy}"
            ),
        )
    } else if attempt.identity.roles.is_empty() {
        (
            "no role".to_string(),
            format!("{user} has no role that would allow {login} on {node}: {remedy}"),
        )
    } else if here.is_empty() {
        let roles = roles_in_words(&attempt.identity.roles);
        (
            roles.clone(),
            format!("{user} has {roles}, and none is for {node}: {remedy}"),
        )
    } else {
        let roles = roles_in_words(here.iter().map(|role| &role.name));
        let logins = logins_of(here, user).join(", ");
        (
            roles.clone(),
            format!(
                "by {roles}, {user} has the logins {logins} on {node}, not {login}: name one of these, or {remedy}"
            ),
        )
    };
    Refusal {
        reason: Reason::Role,
        rule,
        words,
    }
}

/// Why the container of the login is none of those that roles choose by their labels, and what to do.
fn not_one_of<'a>(
    selectors: impl IntoIterator<Item = &'a Selector, IntoIter: Clone>,
    attempt: &Attempt<'_>,
) -> (String, String) {
    let (login, node) = (attempt.login, attempt.node);
    let container = account_and_container(login).1.unwrap_or_default();
    let mut selectors = selectors.into_iter();
    let unknown =
        |why: &str| format!("it is not known whether {container} is one of those: its labels {why}");
    match attempt.container {
        ContainerLabels::NoContainers => (NO_CONTAINERS.to_owned(), String::new()),
        ContainerLabels::PlainSshd => (
            format!("{node} has a plain sshd, which enters no containers"),
            String::new(),
        ),
        ContainerLabels::Known {
            labels,
            are_all: false,
            missing,
        } if selectors.clone().any(|s| s.may_match_container(labels)) => match missing {
            Some(why) => (
                unknown(&format!("of Kubernetes are not known: {why}")),
                String::new(),
            ),
            None => (
                unknown(
                    "are kept where the node does not read (Podman's, and containerd's without Kubernetes)",
                ),
                format!(
                    ": ask an administrator for a role that names {login} in its logins, without `containers`"
                ),
            ),
        },
        _ => {
            let why = match selectors.any(Selector::excludes) {
                true => "is not one of those",
                false => "has none of that",
            };
            (format!("{container} {why}"), format!(": {ASK_FOR_A_ROLE}"))
        }
    }
}

/// What the roles that said yes allow together.
fn together(attempt: &Attempt<'_>, user: &Name, yes: &[(&Role, Option<u64>)]) -> Allowed {
    let roles: Vec<Name> = yes.iter().map(|(role, _)| role.name.clone()).collect();
    let rule = Rule::new(roles_in_words(&roles));
    let has = |kind: Kind| yes.iter().any(|(role, _)| role.kinds.contains(&kind));
    let commands: Vec<&str> = yes
        .iter()
        .flat_map(|(role, _)| role.commands.iter().map(String::as_str))
        .collect();
    let mut permits = Permits::all();
    let mut forbidden: Vec<Kind> = Kind::ALL.into_iter().filter(|&kind| !has(kind)).collect();
    let defined = yes
        .iter()
        .fold(Commands::new(), |all, (role, _)| all.or(&role.defined));
    let has_commands = !commands.is_empty() || !defined.is_empty();
    if !has(Kind::Exec) && has_commands {
        forbidden.retain(|&kind| kind != Kind::Exec);
        permits.only_exec(&commands, defined, &rule);
    }
    permits.forbid(&forbidden, &rule);
    let session = widest(yes.iter().map(|(r, _)| r.limits.session.map(|s| s.as_secs())));
    let sessions = widest(yes.iter().map(|(r, _)| r.limits.sessions.map(u64::from)));
    let recordings = yes
        .iter()
        .map(|(role, _)| (role.recording, role.recording_failure));
    let (recording, recording_failure) = recording::strictest(recordings);
    let recording_role = yes
        .iter()
        .map(|(role, _)| role)
        .find(|role| role.recording.is_wanted() && role.recording_failure == recording_failure);
    Allowed {
        permits,
        limits: Limits {
            lifetime: lifetime_of(held(attempt)),
            renewal: renewal_of(held(attempt)),
            session: session.map(Duration::from_secs),
            sessions: sessions.map(|n| u32::try_from(n).unwrap_or(u32::MAX)),
        },
        recording,
        recording_failure,
        onward_ssh: yes
            .iter()
            .map(|(role, _)| role.onward_ssh)
            .min()
            .unwrap_or_default(),
        recording_recipients: recording::union(yes.iter().map(|(role, _)| &role.recording_recipients[..])),
        recording_role: recording_role.map(|role| role.name.clone()),
        recording_keep: yes
            .iter()
            .filter(|(role, _)| role.recording.is_wanted())
            .filter_map(|(role, _)| role.recording_keep)
            .max(),
        watching: yes
            .iter()
            .map(|(role, _)| role.watching)
            .fold(Watching::default(), Watching::and),
        container_by_id: yes.iter().any(|(role, _)| role.is_for_id(attempt.login, user)),
        roles,
        until: widest(yes.iter().map(|(_, until)| *until)),
    }
}

/// The largest of them; none is no limit at all.
fn widest(mut limits: impl Iterator<Item = Option<u64>>) -> Option<u64> {
    limits.try_fold(0, |most, one| one.map(|one| most.max(one)))
}

/// What a role allows, for a person.
fn can(role: &Role) -> String {
    let mut words = super::role::words_of(&role.kinds).join(", ");
    let names = role.commands.iter().map(String::as_str);
    let names: BTreeSet<&str> = names.chain(role.defined.names()).collect();
    if !names.is_empty() && !role.kinds.contains(&Kind::Exec) {
        let comma = if words.is_empty() { "" } else { ", " };
        let names: Vec<&str> = names.into_iter().collect();
        words.push_str(&format!("{comma}the commands {}", names.join(", ")));
    }
    words
}

/// What a role says about the recording of its sessions, for a person; nothing where nothing is recorded.
fn recorded(role: &Role) -> String {
    let onward = match role.onward_ssh {
        OnwardSsh::Allow => "",
        OnwardSsh::Refuse => "; no SSH on from there",
    };
    let failure = match (role.recording.is_wanted(), role.recording_failure) {
        (false, _) => return onward.to_owned(),
        (true, RecordingFailure::End) => "or it ends",
        (true, RecordingFailure::GoOn) => "or goes on without",
    };
    let kept = role
        .recording_keep
        .map_or_else(String::new, |keep| format!(", kept for {}", time(keep.as_secs())));
    format!("; recorded ({}{kept}), {failure}{onward}", role.recording.name())
}

fn nodes_of(role: &Role) -> String {
    match &role.nodes[..] {
        [] => "no nodes".to_string(),
        nodes => any_of(nodes),
    }
}

/// `env=prod or web1`
fn any_of<'a>(selectors: impl IntoIterator<Item = &'a Selector>) -> String {
    let words: Vec<String> = selectors.into_iter().map(ToString::to_string).collect();
    words.join(" or ")
}

/// `role dba`, `roles dba and ops`
pub(super) fn roles_in_words<'a>(roles: impl IntoIterator<Item = &'a Name>) -> String {
    let roles: Vec<&str> = roles.into_iter().map(Name::as_str).collect();
    match &roles[..] {
        [one] => format!("role {one}"),
        [some @ .., last] => format!("roles {} and {last}", some.join(", ")),
        [] => "no role".to_string(),
    }
}

/// A time as a person says it: its largest unit, rounded down.
pub(super) fn time(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3600 => format!("{}m", seconds / 60),
        3600..172_800 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests;

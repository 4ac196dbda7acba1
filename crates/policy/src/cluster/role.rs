//! Roles: who has one may log in to some nodes as some accounts, and do some things there. It decides nothing.

use super::name::Name;
use super::recordings::RecordingRights;
use super::selector::Selector;
use crate::account_name::{AccountName, account_and_container, login_matches, may_be_id};
use crate::commands::Commands;
use crate::permits::Kind;
use crate::recording::{OnwardSsh, Recipient, Recording, RecordingFailure};
use crate::watching::Watching;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::Duration;

/// In a role's logins: the user's own name.
pub const USER: &str = "{user}";
/// The most nodes, logins or commands that one role lists.
pub const MAX_ROLE_ENTRIES: usize = 256;
/// The shortest time that a certificate may live.
pub const MIN_LIFETIME: Duration = Duration::from_secs(60);
/// The longest.
pub const MAX_LIFETIME: Duration = Duration::from_secs(30 * 86_400);
/// The longest time for which a role may have recordings kept.
pub const MAX_RECORDING_KEEP: Duration = Duration::from_secs(36_500 * 86_400);
/// The shortest: retention counts days.
pub const MIN_RECORDING_KEEP: Duration = Duration::from_secs(86_400);
/// The longest time for which a login may be renewed.
pub const MAX_RENEWAL: Duration = Duration::from_secs(365 * 86_400);

/// A role.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Role {
    /// Its name.
    pub name: Name,
    /// On which nodes; one of them has to match.
    pub nodes: Vec<Selector>,
    /// As which accounts; [`USER`] is the user's own name.
    pub logins: Vec<String>,
    /// Which containers its logins `ACCOUNT+CONTAINER` lead into, by their labels; one of them has to match. Empty: any that a
    /// login's pattern fits.
    pub containers: Vec<Selector>,
    /// What may be done there.
    pub kinds: Vec<Kind>,
    /// Commands of the node's own list that may be run, where [`Kind::Exec`] is not among the kinds.
    pub commands: Vec<String>,
    /// Commands that the role defines for its nodes, which may be run like those; a node's own of the same name counts before.
    pub defined: Commands,
    /// The second factor must not be older.
    pub require_mfa: Option<Duration>,
    /// Only from an approved device.
    pub require_trusted_device: bool,
    /// How much of a session is recorded.
    pub recording: Recording,
    /// What happens to one that cannot be.
    pub recording_failure: RecordingFailure,
    /// Whether forwarded connections may go on to SSH servers.
    pub onward_ssh: OnwardSsh,
    /// For how long the cluster keeps such a recording; none: as long as it keeps others.
    pub recording_keep: Option<Duration>,
    /// Whose recordings and sessions its users may see; none: nobody's.
    pub recordings: Option<RecordingRights>,
    /// For whom recordings of its sessions are encrypted, beside those that others name; none by anybody: they are readable.
    pub recording_recipients: Vec<Recipient>,
    /// How closely its programs are watched.
    pub watching: Watching,
    /// How long and how many.
    pub limits: Limits,
    /// May administer the cluster.
    pub admin: bool,
}

/// What is known of the container that a login `ACCOUNT+CONTAINER` leads into.
#[derive(Clone, Copy, Debug)]
pub enum ContainerLabels<'a> {
    /// There are none to enter: the node lets nobody in, or the login names none.
    NoContainers,
    /// There is no fleetgate that could enter one: the name is an account's.
    PlainSshd,
    /// Nothing yet. Only the node can look, and it does so before anything runs there.
    Unknown,
    /// These.
    Known {
        /// By their keys.
        labels: &'a BTreeMap<String, String>,
        /// There are no others.
        are_all: bool,
        /// Why those are missing that were asked of a runtime: a sentence.
        missing: Option<&'a str>,
    },
}

impl ContainerLabels<'_> {
    /// Before anybody looked at the container.
    pub fn before_looking(login: &AccountName) -> ContainerLabels<'static> {
        match login.container() {
            Some(_) => ContainerLabels::Unknown,
            None => ContainerLabels::NoContainers,
        }
    }
}

/// How long and how many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// How long a certificate lives.
    pub lifetime: Duration,
    /// For how long after the login it may be renewed with nobody there; none: not at all.
    pub renewal: Option<Duration>,
    /// How long a session may last; none: as long as its connection.
    pub session: Option<Duration>,
    /// How many sessions of one connection at once; none: as many as the node has for everybody.
    pub sessions: Option<u32>,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            lifetime: Duration::from_secs(12 * 3600),
            renewal: None,
            session: None,
            sessions: None,
        }
    }
}

impl Role {
    /// What a role allows that does not say what: everything but showing windows on the user's screen and listening on
    /// the node for others.
    pub const DEFAULT_KINDS: [Kind; 10] = [
        Kind::Shell,
        Kind::Exec,
        Kind::Sftp,
        Kind::Subsystem,
        Kind::Pty,
        Kind::ConnectTcp,
        Kind::ConnectUnix,
        Kind::Agent,
        Kind::Environment,
        Kind::UserRc,
    ];

    /// One that allows nothing anywhere yet.
    pub fn new(name: Name) -> Role {
        Role {
            name,
            nodes: Vec::new(),
            logins: Vec::new(),
            containers: Vec::new(),
            kinds: Role::DEFAULT_KINDS.to_vec(),
            commands: Vec::new(),
            defined: Commands::new(),
            require_mfa: None,
            require_trusted_device: false,
            recording: Recording::default(),
            recording_failure: RecordingFailure::default(),
            onward_ssh: OnwardSsh::default(),
            recording_keep: None,
            recordings: None,
            recording_recipients: Vec::new(),
            watching: Watching::default(),
            limits: Limits::default(),
            admin: false,
        }
    }

    /// The accounts that it means for this user, and with them the containers (`ACCOUNT+PATTERN`).
    pub fn logins_for<'a>(&'a self, user: &'a Name) -> impl Iterator<Item = Cow<'a, str>> {
        self.logins
            .iter()
            .map(move |login| match login.strip_prefix(USER) {
                Some("") => Cow::Borrowed(user.as_str()),
                Some(container) => Cow::Owned(format!("{user}{container}")),
                None => Cow::Borrowed(login.as_str()),
            })
    }

    /// Whether one of them is this login. A container is fitted by its own part alone, which is a pattern.
    pub fn is_for(&self, login: &str, user: &Name) -> bool {
        self.logins_for(user).any(|own| login_matches(&own, login))
    }

    /// Whether one of them means this login whatever its container is called: by its name or by its id.
    pub fn is_for_id(&self, login: &str, user: &Name) -> bool {
        self.logins_for(user).any(|own| may_be_id(&own, login))
    }

    /// Whether it looks at the labels of the container that this login leads into.
    pub fn looks_at_labels(&self, login: &str) -> bool {
        !self.containers.is_empty() && account_and_container(login).1.is_some()
    }

    /// Whether this login leads into a container that the role is for, as far as that is known.
    pub fn is_for_container(&self, login: &str, known: ContainerLabels<'_>) -> bool {
        !self.looks_at_labels(login)
            || match known {
                ContainerLabels::NoContainers | ContainerLabels::PlainSshd => false,
                ContainerLabels::Unknown => true,
                ContainerLabels::Known { labels, are_all, .. } => self
                    .containers
                    .iter()
                    .any(|s| s.matches_container(labels, are_all)),
            }
    }
}

/// What stands for kinds in a role file. The first words are the shortest way to say what they mean.
const WORDS: [(&str, &[Kind]); 15] = [
    ("all", &Kind::ALL),
    ("shell", &[Kind::Shell]),
    ("exec", &[Kind::Exec]),
    ("sftp", &[Kind::Sftp]),
    ("subsystem", &[Kind::Subsystem]),
    ("terminal", &[Kind::Pty]),
    ("forward", &Kind::FORWARDING),
    ("connect-tcp", &[Kind::ConnectTcp]),
    ("listen-tcp", &[Kind::ListenTcp]),
    ("connect-unix", &[Kind::ConnectUnix]),
    ("listen-unix", &[Kind::ListenUnix]),
    ("agent", &[Kind::Agent]),
    ("x11", &[Kind::X11]),
    ("environment", &[Kind::Environment]),
    ("user-rc", &[Kind::UserRc]),
];

/// These kinds in a role file's words.
pub(super) fn words_of(kinds: &[Kind]) -> Vec<&'static str> {
    let mut left: Vec<Kind> = kinds.to_vec();
    let mut words = Vec::new();
    for (word, means) in WORDS {
        if means.iter().all(|kind| left.contains(kind)) {
            left.retain(|kind| !means.contains(kind));
            words.push(word);
        }
    }
    words
}

/// What a word of a role file means.
#[cfg(feature = "documents")]
pub(super) fn kinds_of(word: &str) -> Result<&'static [Kind], String> {
    let found = WORDS.into_iter().find(|(known, _)| *known == word);
    found.map(|(_, means)| means).ok_or_else(|| {
        let known: Vec<&str> = WORDS.iter().map(|(word, _)| *word).collect();
        format!(
            "{:?} is no kind: there are {}",
            crate::text::shortened(word),
            known.join(", ")
        )
    })
}

//! What a node goes by: `node.toml`, which this file describes, its [`identity`] in its cluster with the [`renewal`] of its
//! certificates, the [`cluster`]'s signed state with the decisions that follow from it, its [`host_keys`], and the [`node_lock`].
//! What `node.toml` and the files that it names come to is [`trust`] (who may log in, and how), [`publickey`] (whether a key or
//! certificate lets somebody in), [`offer`] (what a connection may negotiate), [`recording`], [`strangers`] (what is remembered of
//! who is not logged in) and [`labels`].
#![cfg_attr(
    not(test),
    warn(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_possible_wrap
    )
)]
#![forbid(unsafe_code)]

pub mod cluster;
pub mod host_keys;
pub mod identity;
pub mod labels;
pub mod node_lock;
pub mod offer;
pub mod publickey;
pub mod recording;
pub mod renewal;
pub mod strangers;
#[cfg(feature = "testing")]
pub mod testing;
pub mod trust;
mod types;

pub use fleetgate_policy::cluster::{CommandEntry, Size};
pub use types::{Duration, LabelCommand, PamUse, RootLogin, SelinuxUse};

use fleetgate_base::StartError;
use fleetgate_policy::pam_turns::Places;
use fleetgate_policy::strangers::{Form, Offence, Settings as Strangers};
use fleetgate_policy::toml_mistake::Mistake;
use fleetgate_policy::{Audit, Stance, Watching};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

/// Where it is, unless told otherwise.
pub const PATH: &str = "/etc/fleetgate/node.toml";
/// How the parser ends its complaint about a table beside those of the services.
const SECTIONS: &str = "expected one of `node`, `auth`, `proxy`";
/// The longest file that is read.
const MAX_FILE: u64 = 1 << 20;

/// A node's configuration. Every key has a default; an empty file is a good one.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Addresses to listen on.
    pub listen: Vec<SocketAddr>,
    /// Private host keys; a certificate beside one (`KEY-cert.pub`) is shown too. Empty: the machine's own
    /// (/etc/ssh/ssh_host_*_key), or new ones in the state directory.
    pub host_keys: Vec<PathBuf>,
    /// Where the node keeps what it makes: host keys, if it had to make them.
    #[serde(deserialize_with = "types::from_root")]
    pub state_directory: PathBuf,
    /// Where notes of running sessions are.
    #[serde(deserialize_with = "types::from_root")]
    pub runtime_directory: PathBuf,
    /// The system user that lobby and fronts run as.
    pub user: String,

    /// User CA keys (a file as sshd's TrustedUserCAKeys).
    pub trusted_user_ca: Option<PathBuf>,
    /// Names that a certificate has to carry for a login, per login (`AuthorizedPrincipalsFile`); `%u`, `%h`.
    /// Without it the certificate has to carry the login's own name.
    pub principals_file: Option<String>,
    /// Revoked keys and certificates (a KRL, or a list of public keys).
    pub revoked_keys: Option<PathBuf>,
    /// How far a certificate's validity may be off by the clock.
    pub clock_skew: Duration,
    /// Let people in by ~/.ssh/authorized_keys. Not said: only where no `trusted_user_ca` is given
    /// and the machine joined no cluster.
    pub authorized_keys: Option<bool>,
    /// Which files those are; relative ones in the home directory; `%u`, `%h`.
    pub authorized_keys_files: Vec<String>,
    /// Refuse key files and homes that others may write.
    pub strict_modes: bool,
    /// Passwords, through PAM only.
    pub password: bool,
    /// Keyboard-interactive, through PAM only.
    pub keyboard_interactive: bool,
    /// Use PAM: `auto` is when /etc/pam.d/SERVICE exists.
    pub pam: PamUse,
    /// PAM's service.
    pub pam_service: String,
    /// Whether sessions, sftp and forwardings need SELinux contexts.
    pub selinux: SelinuxUse,
    /// What a login needs, as sshd's AuthenticationMethods: each entry a list in order
    /// (`publickey,keyboard-interactive`); one of the entries has to be gone through. Empty: any one method.
    pub authentication_methods: Vec<String>,

    /// Only these users (patterns, `user@address`), as sshd's AllowUsers. Empty: all.
    pub allow_users: Vec<String>,
    /// None of these.
    pub deny_users: Vec<String>,
    /// Only members of these groups.
    pub allow_groups: Vec<String>,
    /// No member of these.
    pub deny_groups: Vec<String>,
    /// How root may come in.
    pub root_login: RootLogin,
    /// Which containers those may enter whom the node lets in by itself: `ACCOUNT+CONTAINER`, the container a pattern. Roles say it
    /// of users of the cluster. Empty: nobody enters any, and a `+` is a letter like others in an account's name.
    #[serde(deserialize_with = "types::containers")]
    pub containers: Vec<String>,

    /// Variables that clients may set, by pattern.
    #[serde(deserialize_with = "types::patterns")]
    pub accept_env: Vec<String>,
    /// Variables that every session has.
    #[serde(deserialize_with = "fleetgate_policy::cluster::variables")]
    pub set_env: BTreeMap<String, String>,
    /// Run this instead of what was asked for.
    #[serde(deserialize_with = "types::command")]
    pub force_command: Option<String>,
    /// Terminals may be had.
    pub pty: bool,
    /// -L, -D, -W.
    pub connect_forwarding: bool,
    /// -R.
    pub listen_forwarding: bool,
    /// Remote listeners may be reached from other machines, if the client asks for that.
    pub gateway_ports: bool,
    /// Agent forwarding.
    pub agent_forwarding: bool,
    /// X11 forwarding.
    pub x11_forwarding: bool,
    /// The xauth program.
    pub xauth: PathBuf,
    /// sftp; off: the subsystem is refused.
    pub sftp: bool,
    /// sftp users are confined to this directory; `%u`, `%h`.
    #[serde(deserialize_with = "types::chroot")]
    pub sftp_chroot: Option<String>,
    /// sftp refuses whatever changes anything.
    pub sftp_read_only: bool,
    /// ~/.ssh/environment and `environment=` in authorized_keys.
    pub user_environment: bool,
    /// Print /etc/motd.
    pub motd: bool,
    /// Print when the last login was.
    pub last_login: bool,
    /// Shown before the login.
    pub banner: Option<PathBuf>,
    /// Kill what a session leaves running (needs cgroup v2).
    pub kill_user_processes: bool,
    /// What is told of the programs that sessions run; a role may ask for more.
    pub audit: Audit,
    /// Whether watched sessions may use io_uring, which hides what it does.
    pub io_uring: Stance,
    /// Whether a session may begin that should be watched and cannot be.
    pub unwatched: Stance,
    /// Which sessions are recorded, and where recordings are.
    #[serde(default = "recording::unplaced")]
    pub recording: recording::Settings,
    /// Named commands, for keys that may run nothing else.
    pub commands: BTreeMap<String, CommandEntry>,

    /// Key exchange methods, instead of the built-in list.
    pub key_exchanges: Vec<String>,
    /// Ciphers, instead of the built-in list.
    pub ciphers: Vec<String>,
    /// MACs, instead of the built-in list.
    pub macs: Vec<String>,
    /// New keys after so many bytes; 0: by the cipher.
    #[serde(deserialize_with = "types::rekey_bytes")]
    pub rekey_bytes: Size,
    /// New keys after so long; 0: never.
    #[serde(deserialize_with = "types::rekey_after")]
    pub rekey_after: Duration,
    /// Ask a silent client for a sign of life after so long; 0: never.
    pub alive_interval: Duration,
    /// Give it up after so many unanswered ones.
    pub alive_count: u32,

    /// In a cluster: what roles and people choose this node by.
    pub labels: BTreeMap<String, String>,
    /// The same, by commands that say the values.
    pub label_commands: BTreeMap<String, LabelCommand>,

    /// The bounds.
    pub limits: Limits,
    /// How those are treated who are not logged in.
    #[serde(deserialize_with = "read_strangers")]
    pub strangers: Strangers,
    /// Where audit events go; `-`: standard output.
    #[serde(deserialize_with = "types::from_root")]
    pub audit_log: PathBuf,
    /// Where metrics are served; loopback only. Absent: nowhere.
    pub metrics: Option<SocketAddr>,
}

/// Garbage is the lobby's word, which counts for nothing.
const OFFENCES: [Offence; 4] = [
    Offence::WrongPassword,
    Offence::WrongKey,
    Offence::NoLogin,
    Offence::TooLate,
];

fn read_strangers<'de, D: Deserializer<'de>>(from: D) -> Result<Strangers, D::Error> {
    let form = Form::deserialize(from)?;
    form.settings(&OFFENCES).map_err(D::Error::custom)
}

/// A file of several services. What the others say is theirs to read.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Sections {
    #[serde(default)]
    node: Config,
    #[serde(default, rename = "auth")]
    _auth: serde::de::IgnoredAny,
    #[serde(default, rename = "proxy")]
    _proxy: serde::de::IgnoredAny,
}

/// Bounds that an operator may set.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// A connection has so long to log in.
    #[serde(deserialize_with = "types::a_second_or_more")]
    pub login_grace: Duration,
    /// Connections that are not logged in, altogether.
    #[serde(deserialize_with = "types::one_or_more")]
    pub unauthenticated: u32,
    /// Of one address (IPv6: of one /64).
    #[serde(deserialize_with = "types::one_or_more")]
    pub unauthenticated_per_source: u32,
    /// Tries to log in, per connection.
    #[serde(deserialize_with = "types::one_or_more")]
    pub tries: u32,
    /// Passwords and accounts that PAM decides about at once; those who have proven a key have as many places of their
    /// own. More wait.
    pub deciding: u32,
    /// Conversations in which PAM asks a person at once, counted the same way.
    pub conversations: u32,
    /// Connections, altogether.
    #[serde(deserialize_with = "types::one_or_more")]
    pub connections: u32,
    /// Channels per connection.
    pub channels: u32,
    /// Sessions per connection, as sshd's MaxSessions.
    pub sessions: u32,
    /// Listeners per connection.
    pub listeners: u32,
    /// What one channel may have under way.
    pub window: Size,
    /// Bytes that wait to be sent on one connection.
    pub buffered: Size,
    /// The name service has so long for an answer.
    pub name_service: Duration,
    /// A helper has so long to its word.
    pub launch: Duration,
    /// A connection forwarded from here has so long to come up.
    pub connect: Duration,
}

impl Limits {
    /// How many may talk to PAM at once.
    pub fn pam_places(&self) -> Places {
        Places {
            deciding: self.deciding,
            conversations: self.conversations,
        }
    }
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            login_grace: Duration::from_secs(60),
            unauthenticated: 512,
            unauthenticated_per_source: 256,
            tries: 6,
            deciding: 64,
            conversations: 128,
            connections: 16_384,
            channels: 256,
            sessions: 64,
            listeners: 32,
            window: Size(2 << 20),
            buffered: Size(2 << 20),
            name_service: Duration::from_secs(10),
            launch: Duration::from_secs(30),
            connect: Duration::from_secs(60),
        }
    }
}

impl Default for Config {
    fn default() -> Config {
        Config {
            listen: vec![
                SocketAddr::from(([0u16; 8], 22)),
                SocketAddr::from(([0u8; 4], 22)),
            ],
            host_keys: Vec::new(),
            state_directory: "/var/lib/fleetgate".into(),
            runtime_directory: "/run/fleetgate".into(),
            user: "fleetgate".into(),
            trusted_user_ca: None,
            principals_file: None,
            revoked_keys: None,
            clock_skew: Duration::from_secs(60),
            authorized_keys: None,
            authorized_keys_files: vec![".ssh/authorized_keys".into()],
            strict_modes: true,
            password: false,
            keyboard_interactive: false,
            pam: PamUse::Auto,
            pam_service: "fleetgate".into(),
            selinux: SelinuxUse::Auto,
            authentication_methods: Vec::new(),
            containers: vec!["root+*".to_owned()],
            allow_users: Vec::new(),
            deny_users: Vec::new(),
            allow_groups: Vec::new(),
            deny_groups: Vec::new(),
            root_login: RootLogin::ProhibitPassword,
            accept_env: ["LANG", "LC_*", "COLORTERM", "NO_COLOR"]
                .map(String::from)
                .to_vec(),
            set_env: BTreeMap::new(),
            force_command: None,
            pty: true,
            connect_forwarding: true,
            listen_forwarding: true,
            gateway_ports: false,
            agent_forwarding: true,
            x11_forwarding: false,
            xauth: "/usr/bin/xauth".into(),
            sftp: true,
            sftp_chroot: None,
            sftp_read_only: false,
            user_environment: false,
            motd: true,
            last_login: true,
            banner: None,
            kill_user_processes: false,
            audit: Watching::default().audit,
            io_uring: Watching::default().io_uring,
            unwatched: Watching::default().unwatched,
            recording: recording::Settings::default(),
            commands: BTreeMap::new(),
            key_exchanges: Vec::new(),
            ciphers: Vec::new(),
            macs: Vec::new(),
            rekey_bytes: Size(0),
            rekey_after: Duration::from_secs(3600),
            alive_interval: Duration::from_secs(0),
            alive_count: 3,
            labels: BTreeMap::new(),
            label_commands: BTreeMap::new(),
            limits: Limits::default(),
            strangers: Strangers::default(),
            audit_log: "/var/log/fleetgate/audit.jsonl".into(),
            metrics: None,
        }
    }
}

/// Why a configuration cannot be used. Its words name the file, the line and the remedy.
#[derive(Debug)]
pub enum ConfigError {
    /// The file cannot be read.
    Unreadable(PathBuf, std::io::Error),
    /// Others may change it.
    Untrusted(StartError),
    /// It is larger than a configuration can be.
    TooLarge(PathBuf),
    /// This line says what cannot be.
    Invalid {
        /// The file.
        path: PathBuf,
        /// Counted from 1.
        line: usize,
        /// Counted from 1.
        column: usize,
        /// What is wrong.
        why: String,
    },
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ConfigError::Unreadable(path, e) => write!(f, "{}: {e}", path.display()),
            ConfigError::Untrusted(why) => why.fmt(f),
            ConfigError::TooLarge(path) => {
                write!(
                    f,
                    "{}: larger than {MAX_FILE} bytes: is it a configuration?",
                    path.display()
                )
            }
            ConfigError::Invalid {
                path,
                line,
                column,
                why,
            } => {
                write!(f, "{}:{line}:{column}: {why}", path.display())
            }
        }
    }
}

impl std::error::Error for ConfigError {}

impl Config {
    /// Where a node without root has its own: below the user's directories.
    pub fn user_path() -> PathBuf {
        let home = || std::env::var_os("HOME").map_or_else(|| PathBuf::from("/"), PathBuf::from);
        let base = std::env::var_os("XDG_CONFIG_HOME").map(PathBuf::from);
        base.filter(|base| base.is_absolute())
            .unwrap_or_else(|| home().join(".config"))
            .join("fleetgate/node.toml")
    }

    /// Reads `path`. A file that is not there is an empty one only for the usual paths.
    pub fn load(path: &Path) -> Result<Config, ConfigError> {
        let unreadable = |e| ConfigError::Unreadable(path.to_owned(), e);
        match std::fs::metadata(path) {
            Err(e)
                if e.kind() == std::io::ErrorKind::NotFound
                    && (path == Path::new(PATH) || path == Config::user_path()) =>
            {
                return Ok(Config::default());
            }
            Err(e) => return Err(unreadable(e)),
            Ok(meta) if meta.len() > MAX_FILE => return Err(ConfigError::TooLarge(path.to_owned())),
            Ok(_) => {}
        }
        fleetgate_base::own::unchanged(path).map_err(ConfigError::Untrusted)?;
        Config::parse(path, &std::fs::read_to_string(path).map_err(unreadable)?)
    }

    /// Reads `text`; `path` is for the errors. In a file of sections, one for each service, the node's is `[node]`.
    pub fn parse(path: &Path, text: &str) -> Result<Config, ConfigError> {
        let sections = text.lines().any(|line| {
            let line = line.trim_start();
            ["[node]", "[node.", "[auth]", "[proxy]"]
                .iter()
                .any(|s| line.starts_with(s))
        });
        let read = match sections {
            true => toml::from_str(text).map(|sections: Sections| sections.node),
            false => toml::from_str(text),
        };
        read.map(Config::with_recordings_placed).map_err(|e| {
            let mistake = Mistake::new(text, &e, &types::EXAMPLES);
            ConfigError::Invalid {
                path: path.to_owned(),
                line: mistake.line,
                column: mistake.column,
                why: match mistake.why {
                    why if sections && why.ends_with(SECTIONS) => {
                        format!("{why}: what stands in node.toml stands below `node` here, as [node.limits]")
                    }
                    why => why,
                },
            }
        })
    }

    /// Recordings lie in the state directory where the file names no other place for them.
    fn with_recordings_placed(mut self) -> Config {
        if self.recording.directory.as_os_str().is_empty() {
            self.recording.directory = self.state_directory.join(recording::BELOW_STATE);
        }
        self
    }

    /// How closely everybody's sessions are watched.
    pub fn watching(&self) -> Watching {
        Watching {
            audit: self.audit,
            io_uring: self.io_uring,
            unwatched: self.unwatched,
        }
    }

    /// Puts what has its default where it belongs without root: below the user's own directories.
    pub fn settle(&mut self, user_mode: bool) {
        if !user_mode {
            return;
        }
        let plain = Config::default();
        let home = std::env::var_os("HOME").map_or_else(|| PathBuf::from("/tmp"), PathBuf::from);
        let state = std::env::var_os("XDG_STATE_HOME").map(PathBuf::from);
        let state = state.unwrap_or_else(|| home.join(".local/state"));
        if self.state_directory == plain.state_directory {
            self.state_directory = state.join("fleetgate");
        }
        if self.runtime_directory == plain.runtime_directory {
            self.runtime_directory = match std::env::var_os("XDG_RUNTIME_DIR") {
                Some(run) => PathBuf::from(run).join("fleetgate"),
                None => self.state_directory.join("run"),
            };
        }
        if self.audit_log == plain.audit_log {
            self.audit_log = self.state_directory.join("audit.jsonl");
        }
        if self.recording.directory == plain.recording.directory {
            self.recording.directory = self.state_directory.join(recording::BELOW_STATE);
        }
    }

    /// Whether PAM is used.
    pub fn uses_pam(&self, user_mode: bool) -> bool {
        match (self.pam, user_mode) {
            (_, true) | (PamUse::Off, _) => false,
            (PamUse::On, _) => true,
            (PamUse::Auto, _) => self.has_pam_service(),
        }
    }

    /// Whether PAM's service has a file.
    pub fn has_pam_service(&self) -> bool {
        Path::new("/etc/pam.d").join(&self.pam_service).exists()
    }

    /// Whether ~/.ssh/authorized_keys lets people in. `joined`: the machine belongs to a cluster.
    pub fn uses_authorized_keys(&self, joined: bool) -> bool {
        self.authorized_keys
            .unwrap_or(self.trusted_user_ca.is_none() && !joined)
    }
}

/// A file that `key` of node.toml names, of at most `max` bytes.
fn named_file(key: &str, path: &Path, max: u64) -> Result<Vec<u8>, String> {
    let failed = |e: std::io::Error| format!("`{key}`, {}: {e}", path.display());
    if std::fs::metadata(path).map_err(failed)?.len() > max {
        return Err(format!("`{key}`, {}: longer than {max} bytes", path.display()));
    }
    std::fs::read(path).map_err(failed)
}

#[cfg(test)]
mod tests;

//! Whom the node trusts and how it lets them in, read from the configuration and the files that it names, at start and at each reload: user
//! CAs, revoked keys, allow and deny lists, methods, and what every login may do at most.

use crate::{CommandEntry, Config, named_file};
use fleetgate_policy::access::{Access, RootLogin};
use fleetgate_policy::commands::Commands;
use fleetgate_policy::{
    AccountName, Invalid, Kind, Permits, Rule, account_and_container, login_matches, may_be_id,
};
use fleetgate_ssh::key::krl::{Krl, MAX_KRL};
use fleetgate_ssh::key::{KeyOrCertificate, PublicKey};
use std::collections::BTreeMap;
use std::path::Path;

/// The most key files; `checkhomedir` takes no more with the principals file.
pub const MAX_KEY_FILES: usize = 15;
/// The longest file of CA keys.
pub const MAX_CA_FILE: u64 = 1 << 20;
/// The most lists of `authentication_methods`, and methods of one.
pub const MAX_METHODS: usize = 16;

/// A way to log in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum LoginMethod {
    /// A key or certificate.
    PublicKey,
    /// A password, asked by PAM.
    Password,
    /// PAM's questions.
    KeyboardInteractive,
}

impl LoginMethod {
    /// Its name in SSH.
    pub const fn name(self) -> &'static str {
        match self {
            LoginMethod::PublicKey => "publickey",
            LoginMethod::Password => "password",
            LoginMethod::KeyboardInteractive => "keyboard-interactive",
        }
    }

    const ALL: [LoginMethod; 3] = [
        LoginMethod::PublicKey,
        LoginMethod::Password,
        LoginMethod::KeyboardInteractive,
    ];
}

/// All of it.
#[derive(Debug)]
pub struct Trust {
    cas: Vec<PublicKey>,
    revoked: Krl,
    /// Which accounts may log in from where.
    pub access: Access,
    /// Which containers may be entered by whom the node lets in by itself; none: nobody enters any.
    pub containers: Vec<String>,
    /// The lists ask about groups.
    pub asks_groups: bool,
    /// Ways that are on.
    pub ways: Vec<LoginMethod>,
    /// Lists of which one has to be gone through in order; none: any one way.
    pub required: Vec<Vec<LoginMethod>>,
    /// What every login may do at most.
    pub permits: Permits,
    /// Named commands, for keys that may run nothing else.
    pub commands: Commands,
    /// authorized_keys files, or none.
    pub key_files: Vec<String>,
    /// The principals file.
    pub principals_file: Option<String>,
    /// Check modes and owners of those files.
    pub strict_modes: bool,
    /// By how many seconds clocks may differ.
    pub skew: u64,
    /// Whether `environment=` counts.
    pub user_environment: bool,
}

impl Trust {
    /// Reads it all. `pam`: PAM is used; `joined`: a cluster says who its users are. An error is a sentence that names the key of node.toml.
    pub fn new(config: &Config, pam: bool, joined: bool) -> Result<Trust, String> {
        let cas = match &config.trusted_user_ca {
            Some(path) => read_cas(path)?,
            None => Vec::new(),
        };
        let revoked = match &config.revoked_keys {
            Some(path) => Krl::parse(&named_file("revoked_keys", path, MAX_KRL as u64)?)
                .map_err(|e| format!("`revoked_keys`, {}: {e}", path.display()))?,
            None => Krl::default(),
        };
        for (on, key) in [
            (config.password, "password"),
            (config.keyboard_interactive, "keyboard_interactive"),
        ] {
            if on && !pam {
                return Err(format!(
                    "`{key}` needs PAM, which is not used here: install /etc/pam.d/{} or switch it off",
                    config.pam_service
                ));
            }
        }
        if config.authorized_keys_files.len() > MAX_KEY_FILES {
            return Err(format!(
                "`authorized_keys_files` has more than {MAX_KEY_FILES} files"
            ));
        }
        let mut ways = vec![LoginMethod::PublicKey];
        if config.password {
            ways.push(LoginMethod::Password);
        }
        if config.keyboard_interactive {
            ways.push(LoginMethod::KeyboardInteractive);
        }
        let root = match config.root_login {
            crate::RootLogin::Yes => RootLogin::Yes,
            crate::RootLogin::ProhibitPassword => RootLogin::ProhibitPassword,
            crate::RootLogin::ForcedCommandsOnly => RootLogin::ForcedCommandsOnly,
            crate::RootLogin::No => RootLogin::No,
        };
        let access = Access::parse(
            &refs(&config.allow_users),
            &refs(&config.deny_users),
            &refs(&config.allow_groups),
            &refs(&config.deny_groups),
            root,
        )?;
        let commands = commands(&config.commands)?;
        Ok(Trust {
            cas,
            revoked,
            access,
            containers: config.containers.clone(),
            asks_groups: !(config.allow_groups.is_empty() && config.deny_groups.is_empty()),
            required: required(&config.authentication_methods, &ways)?,
            ways,
            permits: permits(config),
            commands,
            key_files: match config.uses_authorized_keys(joined) {
                true => config.authorized_keys_files.clone(),
                false => Vec::new(),
            },
            principals_file: config.principals_file.clone(),
            strict_modes: config.strict_modes,
            skew: config.clock_skew.0.as_secs(),
            user_environment: config.user_environment,
        })
    }

    /// The name of a login that is asked for; none: no login has such a name.
    pub fn login(&self, name: &[u8]) -> Option<AccountName> {
        match self.containers.is_empty() {
            true => AccountName::parse(name).ok(),
            false => AccountName::parse_login(name).ok(),
        }
    }

    /// Whether this is a name with a container's where nobody is let into any.
    pub fn enters_no_container(&self, login: &str) -> bool {
        self.containers.is_empty() && account_and_container(login).1.is_some()
    }

    /// Whether whom the node lets in by itself may enter this login's container, if it has one.
    pub fn lets_into(&self, login: &AccountName) -> bool {
        let matches = |own: &String| login_matches(own, login.as_str());
        login.container().is_none() || self.containers.iter().any(matches)
    }

    /// Whether that holds whatever the container is called, by its name or by its id.
    pub fn lets_into_by_id(&self, login: &AccountName) -> bool {
        self.containers.iter().any(|own| may_be_id(own, login.as_str()))
    }

    /// Whether this CA's user certificates are believed.
    pub fn is_ca(&self, key: &PublicKey) -> bool {
        self.cas.contains(key)
    }

    /// Why this key or certificate is not taken, if it is revoked.
    pub fn revoked(&self, presented: &KeyOrCertificate) -> Option<String> {
        self.revoked.revoked(presented).map(|why| why.to_string())
    }
}

fn refs(list: &[String]) -> Vec<&str> {
    list.iter().map(String::as_str).collect()
}

fn read_cas(path: &Path) -> Result<Vec<PublicKey>, String> {
    let bytes = named_file("trusted_user_ca", path, MAX_CA_FILE)?;
    let text = String::from_utf8_lossy(&bytes);
    let lines = text.lines().enumerate().map(|(n, line)| (n + 1, line.trim()));
    let keys = lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
    let keys: Vec<PublicKey> = keys
        .map(|(n, line)| {
            PublicKey::from_line(line)
                .map_err(|e| format!("`trusted_user_ca`, {} line {n}: {e}", path.display()))
        })
        .collect::<Result<_, _>>()?;
    if keys.is_empty() {
        return Err(format!("`trusted_user_ca`, {}: no key in it", path.display()));
    }
    Ok(keys)
}

fn required(lists: &[String], on: &[LoginMethod]) -> Result<Vec<Vec<LoginMethod>>, String> {
    let bad = |why: String| Err(format!("`authentication_methods`: {why}"));
    if lists.len() > MAX_METHODS {
        return bad(format!("more than {MAX_METHODS} lists"));
    }
    let mut required = Vec::new();
    for list in lists {
        if list == "any" && lists.len() == 1 {
            return Ok(Vec::new());
        }
        let mut ways = Vec::new();
        for name in list.split(',') {
            let Some(way) = LoginMethod::ALL.into_iter().find(|w| w.name() == name) else {
                return bad(format!(
                    "{name:?} is not publickey, password or keyboard-interactive"
                ));
            };
            if !on.contains(&way) {
                return bad(format!("{name:?} is switched off"));
            }
            ways.push(way);
        }
        if ways.len() > MAX_METHODS {
            return bad(format!("more than {MAX_METHODS} methods in {list:?}"));
        }
        required.push(ways);
    }
    Ok(required)
}

/// What node.toml takes away from everybody.
fn permits(config: &Config) -> Permits {
    let mut permits = Permits::all();
    let switches: [(bool, &str, &[Kind]); 6] = [
        (config.pty, "pty", &[Kind::Pty]),
        (
            config.connect_forwarding,
            "connect_forwarding",
            &[Kind::ConnectTcp, Kind::ConnectUnix],
        ),
        (
            config.listen_forwarding,
            "listen_forwarding",
            &[Kind::ListenTcp, Kind::ListenUnix],
        ),
        (config.agent_forwarding, "agent_forwarding", &[Kind::Agent]),
        (config.x11_forwarding, "x11_forwarding", &[Kind::X11]),
        (config.sftp, "sftp", &[Kind::Sftp]),
    ];
    for (on, key, kinds) in switches {
        if !on {
            permits.forbid(kinds, &Rule::new(format!("node.toml ({key} = false)")));
        }
    }
    // Other subsystems than sftp are not there either: an order for one says so.
    permits.forbid(&[Kind::UserRc], &Rule::new("this program: it has no ~/.ssh/rc"));
    if let Some(command) = &config.force_command {
        permits.force_for_all(
            command.as_bytes().to_vec(),
            &Rule::new("node.toml (force_command)"),
        );
    }
    permits
}

fn commands(entries: &BTreeMap<String, CommandEntry>) -> Result<Commands, String> {
    let mut commands = Commands::new();
    for (name, entry) in entries {
        let added = entry.define().and_then(|command| commands.add(name, command));
        added.map_err(|why: Invalid| format!("`commands.{name}`: {why}"))?;
    }
    Ok(commands)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn trust(text: &str, pam: bool) -> Result<Trust, String> {
        Trust::new(
            &Config::parse(Path::new("node.toml"), text).expect("a configuration"),
            pam,
            false,
        )
    }

    #[test]
    fn what_cannot_be_used_is_named_by_its_key() {
        for (text, part) in [
            ("password = true", "`password` needs PAM"),
            ("keyboard_interactive = true", "`keyboard_interactive` needs PAM"),
            (
                "trusted_user_ca = \"/nonexistent/ca\"",
                "`trusted_user_ca`, /nonexistent/ca: ",
            ),
            (
                "trusted_user_ca = \"/dev/null\"",
                "`trusted_user_ca`, /dev/null: no key",
            ),
            (
                "revoked_keys = \"/nonexistent/krl\"",
                "`revoked_keys`, /nonexistent/krl: ",
            ),
            (
                "authentication_methods = [\"hostbased\"]",
                "`authentication_methods`: \"hostbased\"",
            ),
            (
                "authentication_methods = [\"publickey,password\"]",
                "`authentication_methods`: \"password\" is switched off",
            ),
            (
                "[commands.x]\nargv = [\"/bin/true\", \"{}\"]",
                "`commands.x`: `argv` has 1 times {}",
            ),
            ("[commands.x]\nargv = [\"true\"]", "`commands.x`: "),
        ] {
            let error = trust(text, false).expect_err(text);
            assert!(error.starts_with(part), "{text}: {error}");
        }
    }

    #[test]
    fn files_and_lists_are_bounded() {
        let directory = std::env::temp_dir().join(format!("fleetgate-trust-{}", std::process::id()));
        std::fs::create_dir(&directory).expect("a fresh directory");
        let large = |name: &str, len: u64| {
            let path = directory.join(name);
            let file = std::fs::File::create(&path).expect("a file");
            file.set_len(len).expect("a length");
            path.display().to_string()
        };
        let many = |n: usize| vec!["\"publickey\""; n].join(",");
        for (text, part) in [
            (
                format!("trusted_user_ca = \"{}\"", large("ca", MAX_CA_FILE + 1)),
                "longer than 1048576 bytes",
            ),
            (
                format!("revoked_keys = \"{}\"", large("krl", MAX_KRL as u64 + 1)),
                "longer than",
            ),
            (
                format!("authentication_methods = [{}]", many(MAX_METHODS + 1)),
                "more than 16 lists",
            ),
            (
                format!("authorized_keys_files = [{}]", many(MAX_KEY_FILES + 1)),
                "more than 15 files",
            ),
        ] {
            let error = trust(&text, false).expect_err(part);
            assert!(error.contains(part), "{error}");
        }
        for text in [
            format!("authentication_methods = [{}]", many(MAX_METHODS)),
            format!("authorized_keys_files = [{}]", many(MAX_KEY_FILES)),
        ] {
            assert!(trust(&text, false).is_ok(), "{text}");
        }
        std::fs::remove_dir_all(&directory).expect("clean");
    }

    #[test]
    fn ways_and_required_lists() {
        use LoginMethod::*;
        for (text, ways, lists) in [
            ("", vec![PublicKey], vec![]),
            ("password = true", vec![PublicKey, Password], vec![]),
            ("authentication_methods = [\"any\"]", vec![PublicKey], vec![]),
            (
                "keyboard_interactive = true\nauthentication_methods = [\"publickey,keyboard-interactive\"]",
                vec![PublicKey, KeyboardInteractive],
                vec![vec![PublicKey, KeyboardInteractive]],
            ),
        ] {
            let trust = trust(text, true).expect(text);
            assert_eq!((trust.ways, trust.required), (ways, lists), "{text}");
        }
    }

    #[test]
    fn a_named_command_takes_what_its_patterns_say() {
        let trust = trust(
            "[commands.disk]\nargv = [\"/bin/df\", \"--output={}\", \"{}\"]\nargs = [\"word\", \"path\"]",
            false,
        )
        .expect("good");
        let rule = Rule::new("node.toml");
        let command = trust.commands.find(b"disk pcent /var", &rule).expect("fits");
        assert_eq!(command.argv, [&b"/bin/df"[..], b"--output=pcent", b"/var"]);
        assert!(trust.commands.find(b"disk pcent", &rule).is_err());
        let limits = command.limits;
        assert_eq!(
            (limits.timeout, limits.concurrency),
            (Some(Duration::from_secs(60)), None)
        );
    }

    #[test]
    fn a_named_command_has_arguments_with_names_defaults_and_limits() {
        let text = "[commands.load]\nargv = [\"/bin/load\", \"-w\", \"{warn}\", \"-c{critical}\"]\ntimeout = \"5s\"\n\
                    concurrency = 2\narguments = [{ name = \"warn\", form = \"1..100\" }, \
                    { name = \"critical\", form = \"1..100\", default = \"90\" }]";
        let good = trust(text, false).expect("good");
        let rule = Rule::new("node.toml");
        let command = good.commands.find(b"load 80", &rule).expect("fits");
        assert_eq!(command.argv, [&b"/bin/load"[..], b"-w", b"80", b"-c90"]);
        let limits = command.limits;
        assert_eq!(
            (limits.timeout, limits.concurrency),
            (Some(Duration::from_secs(5)), Some(2))
        );
        assert!(good.commands.find(b"load 80 101", &rule).is_err());
        assert!(good.commands.find(b"load", &rule).is_err());
        let none = trust(&text.replace("\"5s\"", "0"), false).expect("good");
        assert_eq!(
            none.commands
                .find(b"load 80", &rule)
                .expect("fits")
                .limits
                .timeout,
            None
        );
        for (wrong, why) in [
            (text.replace("{warn}", "x"), "stands nowhere"),
            (text.replace("-c{critical}", "-c{other}"), "other"),
            (text.replace("1..100\", d", "100..1\", d"), "100..1"),
            (format!("{text}\nargs = [\"word\"]"), "keep one"),
        ] {
            let said = trust(&wrong, false).map(|_| ()).expect_err(&wrong);
            assert!(said.contains(why), "{wrong}: {said}");
        }
    }
}

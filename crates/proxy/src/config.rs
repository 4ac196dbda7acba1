//! `[proxy]` of `fleetgate.toml`, or a file of its own: what it may say, and what goes without it. It reads one file and
//! opens none that is named in it.

use fleetgate_net::otlp;
use fleetgate_policy::cluster::Size;
use fleetgate_policy::strangers::{self, Bounds, Offence, Settings as Strangers};
use fleetgate_policy::toml_mistake::Mistake;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use std::fmt;
use std::io::Read;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

/// Where it is, unless told otherwise.
pub const PATH: &str = "/etc/fleetgate/fleetgate.toml";
/// The longest file that is read.
const FILE_MAX: u64 = 1 << 20;
/// More than any proxy begins.
const MAX_DIALS: u32 = 100_000;

/// A proxy's configuration.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// The one address.
    pub listen: SocketAddr,
    /// Where the auth service is, `host:port`.
    pub auth: String,
    /// Where the proxy keeps its key, its certificate, the cluster's state and audit events not yet delivered.
    pub state_directory: PathBuf,
    /// What users and nodes are told to dial, `host:port`; empty: the address that it listens on.
    pub public_address: String,
    /// A certificate that was made elsewhere for the public name (PEM), for browsers and `login` without an invite.
    pub tls_certificate: Option<PathBuf>,
    /// Its key (PEM).
    pub tls_key: Option<PathBuf>,
    /// The system user that it runs as, where root started it.
    pub user: String,
    /// Connections to nodes of one user at once.
    pub sessions_per_user: u32,
    /// Connections to nodes that one user may begin in a second, over a time; ten seconds' worth may come at once. The default
    /// is three times what the most demanding honest tools need: 10,000 checks a minute are 167 a second. Ansible and other
    /// runs on a fleet begin one for each node, and have the burst.
    pub dials_per_second: u32,
    /// Connections of people who have not shown who they are, in sum.
    pub unauthenticated: u32,
    /// Of one source.
    pub unauthenticated_per_source: u32,
    /// How those are treated.
    #[serde(deserialize_with = "strangers")]
    pub strangers: Strangers,
    /// Where metrics are served; loopback only. Absent: nowhere.
    pub metrics: Option<SocketAddr>,
    /// What recordings of sessions on plain sshds may take in the state directory until auth has them; 0: any number of bytes.
    pub recordings_size: Size,
    /// An OpenTelemetry collector, `http://host:port`, that gets the steps of every connection, the nodes' among them.
    pub collector: Option<String>,
}

/// A configuration that cannot be used: the place and the reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigError(String);

impl Default for Config {
    fn default() -> Config {
        Config {
            listen: SocketAddr::from(([0, 0, 0, 0], 3080)),
            auth: "127.0.0.1:3025".to_owned(),
            state_directory: "/var/lib/fleetgate/proxy".into(),
            public_address: String::new(),
            tls_certificate: None,
            tls_key: None,
            user: "fleetgate".to_owned(),
            sessions_per_user: 1_000,
            dials_per_second: 500,
            unauthenticated: 4_096,
            unauthenticated_per_source: 256,
            strangers: Strangers::default(),
            metrics: None,
            recordings_size: Size(10 << 30),
            collector: None,
        }
    }
}

/// A proxy takes no passwords, and whoever leaves without a try may have looked at a page.
const OFFENCES: [Offence; 3] = [Offence::WrongKey, Offence::TooLate, Offence::Garbage];

fn strangers<'de, D: Deserializer<'de>>(from: D) -> Result<Strangers, D::Error> {
    let form = strangers::Form::deserialize(from)?;
    form.settings(&OFFENCES).map_err(D::Error::custom)
}

impl Config {
    /// From a file: its `[proxy]` section, or all of it where it has none.
    pub fn load(path: &Path) -> Result<Config, ConfigError> {
        let failed = |why: String| ConfigError(format!("{}: {why}", path.display()));
        fleetgate_base::own::unchanged(path).map_err(|e| ConfigError(e.into()))?;
        let file = std::fs::File::open(path).map_err(|e| failed(e.to_string()))?;
        let mut text = String::new();
        file.take(FILE_MAX + 1)
            .read_to_string(&mut text)
            .map_err(|e| failed(e.to_string()))?;
        if text.len() as u64 > FILE_MAX {
            return Err(failed(format!("longer than {FILE_MAX} bytes")));
        }
        Config::parse(&text).map_err(|e| failed(e.0))
    }

    /// From the text of such a file.
    pub fn parse(text: &str) -> Result<Config, ConfigError> {
        /// Sections of other roles are none of ours.
        #[derive(Deserialize)]
        struct Sections {
            proxy: Option<Config>,
        }
        let words = |e: toml::de::Error| ConfigError(Mistake::new(text, &e, &[]).to_string());
        let sections: Sections = toml::from_str(text).map_err(words)?;
        let config = match sections.proxy {
            Some(config) => config,
            None => toml::from_str(text).map_err(words)?,
        };
        config.check()?;
        Ok(config)
    }

    /// How many strangers there may be.
    pub(crate) fn bounds(&self) -> Bounds {
        Bounds {
            all: self.unauthenticated as usize,
            of_source: self.unauthenticated_per_source as usize,
        }
    }

    fn check(&self) -> Result<(), ConfigError> {
        if self.tls_certificate.is_some() != self.tls_key.is_some() {
            return Err(ConfigError(
                "tls_certificate and tls_key belong together: give both or none".to_owned(),
            ));
        }
        let port = self.auth.rsplit_once(':').map(|(_, port)| port.parse::<u16>());
        if !matches!(port, Some(Ok(_))) {
            return Err(ConfigError("auth is to be host:port".to_owned()));
        }
        if let Some(address) = self.metrics {
            fleetgate_base::scrape::check(address).map_err(ConfigError)?;
        }
        if let Some(collector) = &self.collector {
            otlp::target(collector).map_err(|why| ConfigError(format!("collector: {why}")))?;
        }
        if self.sessions_per_user == 0 {
            return Err(ConfigError(
                "sessions_per_user is 0: nobody could come in".to_owned(),
            ));
        }
        if !(1..=MAX_DIALS).contains(&self.dials_per_second) {
            return Err(ConfigError(format!(
                "dials_per_second is to be from 1 to {MAX_DIALS}"
            )));
        }
        if self.unauthenticated == 0 || self.unauthenticated_per_source == 0 {
            return Err(ConfigError(
                "unauthenticated and unauthenticated_per_source are to be 1 or more: nobody could come in"
                    .to_owned(),
            ));
        }
        Ok(())
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ConfigError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_section_or_a_whole_file() {
        let parsed = |text: &str| Config::parse(text).map_err(|e| e.to_string());
        let port = |text: &str| parsed(text).map(|c| c.listen.port());
        assert_eq!(port(""), Ok(3080));
        assert_eq!(port("listen = \"127.0.0.1:1\""), Ok(1));
        assert_eq!(port("[auth]\nx = 1\n[proxy]\nlisten = \"[::]:2\""), Ok(2));
        for (text, words) in [
            ("listne = \"\"", "line 1: unknown field `listne`"),
            (
                "[proxy]\nlisten = 3080",
                "line 2: `proxy.listen` is an address with its port, as \"127.0.0.1:22\" or \"[::]:22\", not the number 3080",
            ),
            (
                "[proxy]\ntls_key = \"k\"",
                "tls_certificate and tls_key belong together",
            ),
            ("auth = \"nowhere\"", "auth is to be host:port"),
            ("unauthenticated = 0", "nobody could come in"),
            ("[strangers]\nwrong_password = 1", "does not count"),
            ("[proxy.strangers]\nexempt = [\"x\"]", "is no network"),
            ("sessions_per_user = 0", "nobody could come in"),
            ("dials_per_second = 0", "from 1 to 100000"),
            ("dials_per_second = 100001", "from 1 to 100000"),
            ("metrics = \"0.0.0.0:9100\"", "use 127.0.0.1:9100"),
            (
                "collector = \"collector\"",
                "collector: \"collector\" is no collector",
            ),
        ] {
            let error = parsed(text).unwrap_err();
            assert!(error.contains(words), "{text}: {error}");
        }
    }
}

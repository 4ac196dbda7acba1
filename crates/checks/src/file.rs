//! The file that says which checks run where: what it may say, and what goes without it. A file that cannot be used is refused
//! with the line, the reason and what would be right.

use fleetgate_check::options::{
    ASKED, Invocation, KEEP, MAX_KEEP, MAX_TIMEOUT, Options, TIMEOUT, add_secret, parse,
};
use fleetgate_check::secret::{Secret, Values, is_name};
use fleetgate_client::error::ClientError;
use fleetgate_policy::cluster::{Selector, Span};
use fleetgate_policy::text;
use fleetgate_wire::master::ALWAYS;
use serde::de::Error as _;
use serde::de::value::StrDeserializer;
use serde::{Deserialize, Deserializer};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::ops::RangeInclusive;
use std::path::Path;
use std::time::Duration;

/// The longest file.
const MAX_FILE: u64 = 1 << 20;
/// The most services, and selectors of one.
const MAX_SERVICES: usize = 256;
const MAX_SELECTORS: usize = 64;
/// The longest name of a service.
const MAX_NAME: usize = 128;
/// How often a check may run.
const INTERVALS: RangeInclusive<u64> = 1..=86_400;
const USUAL_INTERVAL: Duration = Duration::from_secs(60);

/// What is checked.
#[derive(Clone, Debug, PartialEq)]
pub struct ChecksFile {
    /// By name.
    pub services: BTreeMap<String, Service>,
}

/// A check, on the nodes that have it.
#[derive(Clone, Debug, PartialEq)]
pub struct Service {
    /// The nodes: those of any of these selectors.
    pub on: Vec<String>,
    /// How often it runs.
    pub interval: Duration,
    /// What runs. The node is still to be filled in.
    pub options: Options,
}

impl Service {
    /// Whether the files of its secrets can be read, as each run reads them. The error is for people.
    pub fn read_secrets(&self) -> Result<(), String> {
        Values::read(&self.options.secrets).map(drop)
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FileForm {
    #[serde(default, deserialize_with = "interval")]
    interval: Option<Duration>,
    #[serde(default, deserialize_with = "keep")]
    keep: Option<u32>,
    #[serde(default)]
    service: BTreeMap<ServiceName, ServiceForm>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ServiceForm {
    #[serde(deserialize_with = "selectors")]
    on: Vec<String>,
    #[serde(deserialize_with = "check")]
    check: String,
    #[serde(default, deserialize_with = "arguments")]
    arguments: Vec<String>,
    #[serde(default, deserialize_with = "secrets")]
    secrets: Vec<Secret>,
    #[serde(default, deserialize_with = "login")]
    login: Option<String>,
    #[serde(default, deserialize_with = "interval")]
    interval: Option<Duration>,
    #[serde(default, deserialize_with = "timeout")]
    timeout: Option<u32>,
}

/// A service's name: what Nagios and Icinga take as one, and no field of theirs ends with.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct ServiceName(String);

impl<'de> Deserialize<'de> for ServiceName {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<ServiceName, D::Error> {
        let name = String::deserialize(from)?;
        let fits = |c: char| c.is_ascii_alphanumeric() || "-_.:/@ ".contains(c);
        match (1..=MAX_NAME).contains(&name.len()) && name.chars().all(fits) && name.trim() == name {
            true => Ok(ServiceName(name)),
            false => Err(D::Error::custom(format!(
                "the service {:?} has a name that is not taken: use 1 to {MAX_NAME} letters, digits, spaces and -_.:/@",
                text::printable(&name)
            ))),
        }
    }
}

/// For how long connections are kept, in seconds: a time, or `always`.
fn keep<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u32>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Form {
        Seconds(u64),
        Text(String),
    }
    let wrong = || D::Error::custom("keep is a time from 1s to 1d, or \"always\"");
    let seconds = match Form::deserialize(from).map_err(|_| wrong())? {
        Form::Text(text) if text == "always" => return Ok(Some(ALWAYS)),
        Form::Text(text) => {
            let Span(time) =
                Span::deserialize(StrDeserializer::<D::Error>::new(&text)).map_err(|_| wrong())?;
            time.as_secs()
        }
        Form::Seconds(seconds) => seconds,
    };
    match u32::try_from(seconds) {
        Ok(seconds @ 1..=MAX_KEEP) => Ok(Some(seconds)),
        _ => Err(wrong()),
    }
}

fn interval<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Duration>, D::Error> {
    let Span(time) = Span::deserialize(from)?;
    match INTERVALS.contains(&time.as_secs()) {
        true => Ok(Some(time)),
        false => Err(D::Error::custom("an interval is from 1s to 1d")),
    }
}

fn timeout<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u32>, D::Error> {
    let Span(time) = Span::deserialize(from)?;
    match u32::try_from(time.as_secs()) {
        Ok(seconds @ 1..=MAX_TIMEOUT) => Ok(Some(seconds)),
        _ => Err(D::Error::custom(format!(
            "a timeout is from 1s to {MAX_TIMEOUT}s"
        ))),
    }
}

fn selectors<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<String>, D::Error> {
    let selectors = Vec::<String>::deserialize(from)?;
    if !(1..=MAX_SELECTORS).contains(&selectors.len()) {
        return Err(D::Error::custom(format!(
            "on has 1 to {MAX_SELECTORS} selectors of nodes; every node: on = [\"*\"]"
        )));
    }
    for selector in &selectors {
        // Elsewhere an empty one is all nodes.
        if selector.trim().is_empty() {
            return Err(D::Error::custom("a selector is empty; every node: on = [\"*\"]"));
        }
        Selector::parse(selector).map_err(D::Error::custom)?;
    }
    Ok(selectors)
}

fn check<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    let check = String::deserialize(from)?;
    options(&[b"-c", check.as_bytes()]).map_err(D::Error::custom)?;
    Ok(check)
}

fn login<'de, D: Deserializer<'de>>(from: D) -> Result<Option<String>, D::Error> {
    let login = String::deserialize(from)?;
    options(&[b"-c", b"check", b"-l", login.as_bytes()]).map_err(D::Error::custom)?;
    Ok(Some(login))
}

fn arguments<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<String>, D::Error> {
    let arguments = Vec::<String>::deserialize(from)?;
    let mut words = vec![&b"-c"[..], b"check"];
    words.extend(
        arguments
            .iter()
            .flat_map(|argument| [&b"-a"[..], argument.as_bytes()]),
    );
    options(&words).map_err(D::Error::custom)?;
    Ok(arguments)
}

/// A table: the variable and the file of its value.
fn secrets<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<Secret>, D::Error> {
    let mut secrets = Vec::new();
    for (name, file) in BTreeMap::<String, String>::deserialize(from)? {
        if !is_name(&name) || !file.starts_with('/') {
            return Err(D::Error::custom(
                "secrets has a variable's name and the absolute path of the file in which its value stands: \
                 secrets = { DB_PASSWORD = \"/etc/fleetgate/db.password\" }",
            ));
        }
        let file = file.into_bytes();
        add_secret(&mut secrets, Secret { name, file }).map_err(D::Error::custom)?;
    }
    Ok(secrets)
}

/// Reads words as `check_fleetgate` does, whose bounds are the same. The node is left empty.
fn options(words: &[&[u8]]) -> Result<Options, String> {
    let words: Vec<&[u8]> = [&b"-H"[..], b"node"]
        .into_iter()
        .chain(words.iter().copied())
        .collect();
    match parse(&words)? {
        Invocation::Run(options) => Ok(Options {
            host: Vec::new(),
            ..options
        }),
        Invocation::Say(_) => Err("that is no check".to_owned()),
    }
}

impl ChecksFile {
    /// Reads it.
    pub fn load(path: &Path) -> Result<ChecksFile, ClientError> {
        let broken = |why: String| ClientError::Broken(path.to_owned(), why);
        let file = File::open(path).map_err(ClientError::file(path))?;
        let mut text = String::new();
        let read = file.take(MAX_FILE + 1).read_to_string(&mut text);
        read.map_err(ClientError::file(path))?;
        if text.len() as u64 > MAX_FILE {
            return Err(broken(format!(
                "it has more than {MAX_FILE} bytes: is it a file of checks?"
            )));
        }
        ChecksFile::parse(&text).map_err(|why| broken(why.to_string()))
    }

    /// From its text.
    fn parse(text: &str) -> Result<ChecksFile, BadFile> {
        let form: FileForm = toml::from_str(text).map_err(|error| BadFile::new(text, &error))?;
        let whole = |why: String| Err(BadFile { line: 1, why });
        if form.service.is_empty() {
            return whole(
                "it has no service: begin one with [service.NAME], and say `on` and `check`".to_owned(),
            );
        }
        if form.service.len() > MAX_SERVICES {
            return whole(format!(
                "it has more than {MAX_SERVICES} services: use several files"
            ));
        }
        let usual = form.interval.unwrap_or(USUAL_INTERVAL);
        let services = form.service.into_iter().map(|(ServiceName(name), service)| {
            let interval = service.interval.unwrap_or(usual);
            // For two turns at least.
            let two = u32::try_from(interval.as_secs() * 2).unwrap_or(MAX_KEEP);
            let keep = form.keep.unwrap_or(two.clamp(KEEP, MAX_KEEP));
            let options = Options {
                host: Vec::new(),
                command: service.check.into_bytes(),
                arguments: service.arguments.into_iter().map(String::into_bytes).collect(),
                secrets: service.secrets,
                timeout: service.timeout.unwrap_or(TIMEOUT),
                at_timeout: fleetgate_check::verdict::State::Unknown,
                address: None,
                login: service.login.map(String::into_bytes),
                home: None,
                keep,
                asked: None,
            };
            let service = Service {
                on: service.on,
                interval,
                options,
            };
            (name, service)
        });
        Ok(ChecksFile {
            services: services.collect(),
        })
    }
}

/// What is wrong with a file.
#[derive(Debug)]
struct BadFile {
    line: usize,
    why: String,
}

impl BadFile {
    fn new(text: &str, error: &toml::de::Error) -> BadFile {
        let before = error
            .span()
            .and_then(|span| text.get(..span.start))
            .unwrap_or_default();
        BadFile {
            line: before.matches('\n').count() + 1,
            why: text::printable(&error.message().replace('\n', ", ")),
        }
    }
}

impl std::fmt::Display for BadFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "line {}: {}", self.line, self.why)
    }
}

/// The words that run a check of `options` on its node by `fleetgate check run`.
#[must_use]
pub fn words(options: &Options) -> Vec<Vec<u8>> {
    let mut words = vec![
        b"-H".to_vec(),
        options.host.clone(),
        b"-c".to_vec(),
        options.command.clone(),
        b"-t".to_vec(),
        format!("{}:{}", options.timeout, options.at_timeout.name()).into_bytes(),
    ];
    for (flag, value) in [
        ("--address", &options.address),
        ("-l", &options.login),
        ("--home", &options.home),
    ] {
        if let Some(value) = value {
            words.extend([flag.as_bytes().to_vec(), value.clone()]);
        }
    }
    words.extend(
        options
            .arguments
            .iter()
            .flat_map(|argument| [b"-a".to_vec(), argument.clone()]),
    );
    if let Some(asked) = options.asked {
        words.push(format!("{ASKED}={asked}").into_bytes());
    }
    if options.keep != KEEP {
        let keep = match options.keep {
            ALWAYS => "always".to_owned(),
            seconds => seconds.to_string(),
        };
        words.extend([b"--keep".to_vec(), keep.into_bytes()]);
    }
    for secret in &options.secrets {
        let value = [secret.name.as_bytes(), b"=", &secret.file].concat();
        words.extend([b"--secret".to_vec(), value]);
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = r#"
interval = "5m"
[service.load]
on = ["env=prod", "db*"]
check = "load"
arguments = ["15,10,5", "-1", ""]
interval = "60s"
timeout = "30s"
login = "nagios"
secrets = { PASSWORD = "/etc/x=y", TOKEN = "/etc/token" }
[service."disk of /"]
on = ["*"]
check = "disk"
"#;

    #[test]
    fn a_file_says_what_runs_where_and_how_often() {
        let file = ChecksFile::parse(GOOD).expect("read");
        let load = &file.services["load"];
        assert_eq!(load.on, ["env=prod", "db*"]);
        assert_eq!((load.interval.as_secs(), load.options.timeout), (60, 30));
        assert_eq!(load.options.login.as_deref(), Some(&b"nagios"[..]));
        let disk = &file.services["disk of /"];
        assert_eq!((disk.interval.as_secs(), disk.options.timeout), (300, TIMEOUT));
        let usual = ChecksFile::parse("[service.x]\non = [\"*\"]\ncheck = \"x\"").expect("read");
        assert_eq!(usual.services["x"].interval, USUAL_INTERVAL);
        // For two turns at least, unless the file says for how long.
        assert_eq!(usual.services["x"].options.keep, KEEP);
        let kept = |lines: &str| {
            let file = ChecksFile::parse(&format!("{lines}\n[service.x]\non = [\"*\"]\ncheck = \"x\""));
            file.expect("read").services["x"].options.keep
        };
        assert_eq!(kept("interval = \"1h\""), 7200);
        assert_eq!(kept("interval = \"1d\""), MAX_KEEP);
        assert_eq!((kept("keep = \"5m\""), kept("keep = 300")), (300, 300));
        assert_eq!(kept("interval = \"1h\"\nkeep = \"always\""), ALWAYS);
        // What is started with these words is the same check.
        let options = Options {
            host: b"web1".to_vec(),
            home: Some(b"/h".to_vec()),
            ..load.options.clone()
        };
        let words = words(&options);
        let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
        assert_eq!(parse(&words), Ok(Invocation::Run(options)));
    }

    #[test]
    fn a_bad_file_is_refused_with_the_line_and_the_remedy() {
        let service = |line: &str| format!("[service.x]\non = [\"*\"]\ncheck = \"x\"\n{line}");
        let many: String = (0..=MAX_SERVICES)
            .map(|n| format!("[service.s{n}]\non = [\"*\"]\ncheck = \"x\"\n"))
            .collect();
        for (text, line, why) in [
            (String::new(), 1, "begin one with [service.NAME]"),
            (many, 1, "use several files"),
            (
                "intervall = \"5m\"".into(),
                1,
                "unknown field `intervall`, expected one of `interval`, `keep`, `service`",
            ),
            (
                service("argument = []"),
                4,
                "unknown field `argument`, expected one of",
            ),
            (
                service("secrets = { PASSWORD = \"hunter2\" }"),
                4,
                "the absolute path of the file",
            ),
            (
                service("secrets = { 1 = \"/etc/x\" }"),
                4,
                "the absolute path of the file",
            ),
            (
                "keep = \"0s\"".into(),
                1,
                "keep is a time from 1s to 1d, or \"always\"",
            ),
            ("keep = \"2d\"".into(), 1, "keep is a time from 1s to 1d"),
            ("keep = \"ever\"".into(), 1, "keep is a time from 1s to 1d"),
            ("keep = -1".into(), 1, "keep is a time from 1s to 1d"),
            ("keep = true".into(), 1, "keep is a time from 1s to 1d"),
            (service("interval = \"0s\""), 4, "from 1s to 1d"),
            (service("interval = \"2d\""), 4, "from 1s to 1d"),
            (service("interval = \"soon\""), 4, "\"90s\""),
            (service("timeout = \"0s\""), 4, "from 1s to 3600s"),
            (service("timeout = \"1d\""), 4, "from 1s to 3600s"),
            (service("arguments = [\"a\\nb\"]"), 4, "control characters"),
            (service("login = \"a b\""), 4, "the account has a name"),
            (
                "\n[service.x]\non = []\ncheck = \"x\"".into(),
                3,
                "1 to 64 selectors",
            ),
            (
                "[service.x]\non = [\" \"]\ncheck = \"x\"".into(),
                2,
                "every node: on = [\"*\"]",
            ),
            (
                "[service.x]\non = [\"a=b=c,,\"]\ncheck = \"x\"".into(),
                2,
                "the selector",
            ),
            (
                "[service.x]\non = [\"*\"]\ncheck = \"x;id\"".into(),
                3,
                "the check has a name",
            ),
            ("[service.x]\non = [\"*\"]".into(), 1, "missing field `check`"),
            (
                "[service.\"x;y\"]\non = [\"*\"]\ncheck = \"x\"".into(),
                1,
                "a name that is not taken",
            ),
            (
                "[service.\"\"]\non = [\"*\"]\ncheck = \"x\"".into(),
                1,
                "a name that is not taken",
            ),
            ("x".into(), 1, ""),
        ] {
            let error = ChecksFile::parse(&text).expect_err(&text);
            assert!(error.why.contains(why), "{text}: {error}");
            assert_eq!(error.line, line, "{text}: {error}");
            assert!(!error.to_string().contains('\n'), "{error}");
        }
    }
}

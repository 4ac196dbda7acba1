//! The file that says which checks run where: what it may say, and what goes without it. A file that cannot be used is refused
//! with the line, the reason and what would be right.

use crate::probe::Thresholds;
use fleetgate_check::options::{
    ALONE, ASKED, Invocation, KEEP, MAX_KEEP, MAX_TIMEOUT, Options, TIMEOUT, add_secret, parse,
};
use fleetgate_check::secret::{Secret, Values, is_name};
use fleetgate_client::error::ClientError;
use fleetgate_policy::cluster::{Selector, Span};
use fleetgate_policy::text;
use fleetgate_policy::toml_mistake::{Example, Mistake};
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
/// How many results in a row a state may take.
const THRESHOLDS: RangeInclusive<u32> = 1..=1000;

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
    /// How long it waits for its first turn, from the program's start on or from when its node was first there.
    pub initial_delay: Duration,
    /// How many results in a row change the state that is given away.
    pub thresholds: Thresholds,
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
#[serde(try_from = "ServiceTable")]
struct ServiceForm(ServiceTable);

impl TryFrom<ServiceTable> for ServiceForm {
    type Error = String;

    /// Whether its keys go together.
    fn try_from(table: ServiceTable) -> Result<ServiceForm, String> {
        match (&table.login, &table.container) {
            (Some(login), Some(_)) if login.contains('+') => Err(format!(
                "login: {login:?} names a container already: leave out what is behind the +, or leave out container"
            )),
            _ => Ok(ServiceForm(table)),
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ServiceTable {
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
    #[serde(default, deserialize_with = "container")]
    container: Option<String>,
    #[serde(default, deserialize_with = "interval")]
    interval: Option<Duration>,
    #[serde(default, deserialize_with = "initial_delay")]
    initial_delay: Option<Duration>,
    #[serde(default, deserialize_with = "timeout")]
    timeout: Option<u32>,
    #[serde(default, deserialize_with = "failure_threshold")]
    failure_threshold: Option<u32>,
    #[serde(default, deserialize_with = "success_threshold")]
    success_threshold: Option<u32>,
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

fn initial_delay<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Duration>, D::Error> {
    let Span(time) = Span::deserialize(from)?;
    match INTERVALS.contains(&time.as_secs()) {
        true => Ok(Some(time)),
        false => Err(D::Error::custom(
            "an initial_delay is from 1s to 1d; without it a check waits for its place in the interval alone",
        )),
    }
}

fn failure_threshold<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u32>, D::Error> {
    threshold("failure_threshold", from)
}

fn success_threshold<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u32>, D::Error> {
    threshold("success_threshold", from)
}

fn threshold<'de, D: Deserializer<'de>>(name: &str, from: D) -> Result<Option<u32>, D::Error> {
    let number = u32::deserialize(from).ok();
    match number.filter(|number| THRESHOLDS.contains(number)) {
        Some(number) => Ok(Some(number)),
        None => Err(D::Error::custom(format!(
            "{name} is a number of results in a row, from 1 to {}: write {name} = 3",
            THRESHOLDS.end()
        ))),
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
        Selector::parse(selector).map_err(|why| match selector.split_once('+') {
            Some((nodes, container)) if !selector.contains('=') => D::Error::custom(format!(
                "on has nodes alone: write on = [{nodes:?}] and container = {container:?}"
            )),
            _ => D::Error::custom(why),
        })?;
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

fn container<'de, D: Deserializer<'de>>(from: D) -> Result<Option<String>, D::Error> {
    let container = String::deserialize(from)?;
    if container.contains(['*', '?']) {
        return Err(D::Error::custom(format!(
            "{:?} is a pattern, and a check runs in one container: write its name, and a service for each",
            text::printable(&container)
        )));
    }
    options(&[b"-c", b"check", b"--container", container.as_bytes()]).map_err(D::Error::custom)?;
    Ok(Some(container))
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
        let services = form
            .service
            .into_iter()
            .map(|(ServiceName(name), ServiceForm(service))| {
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
                    container: service.container.map(String::into_bytes),
                    home: None,
                    keep,
                    asked: None,
                    is_alone: false,
                };
                let service = Service {
                    on: service.on,
                    interval,
                    initial_delay: service.initial_delay.unwrap_or_default(),
                    thresholds: Thresholds {
                        failure: service.failure_threshold.unwrap_or(1),
                        success: service.success_threshold.unwrap_or(1),
                    },
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
        let mistake = Mistake::new(text, error, &EXAMPLES);
        BadFile {
            line: mistake.line,
            why: mistake.why,
        }
    }
}

/// Lines that are right, for keys whose type does not say what they hold.
const EXAMPLES: [Example; 7] = [
    ("service", "[service.NAME] and its keys in the lines below"),
    ("on", "on = [\"env=prod\", \"db*\"]"),
    ("check", "check = \"load\""),
    ("arguments", "arguments = [\"15,10,5\"]"),
    (
        "secrets",
        "secrets = { DB_PASSWORD = \"/etc/fleetgate/db.password\" }",
    ),
    ("login", "login = \"nagios\""),
    ("container", "container = \"web\""),
];

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
        ("--container", &options.container),
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
    if options.is_alone {
        words.push(ALONE.to_bytes().to_vec());
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
mod tests;

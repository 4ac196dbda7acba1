//! Checks for a monitoring system.

mod named;

pub use named::{list, test};

use crate::cluster::SYSTEM_CONFIG;
use crate::flags::{Arguments, Outcome};
use crate::output::{json_line, print};
use fleetgate_checks::file::{ChecksFile, Service};
use fleetgate_checks::nrpe::{Import, import};
use fleetgate_checks::{CheckResult, Listen, ServeOptions, State, Status, Thresholds, Token};
use fleetgate_client::error::ClientError;
use fleetgate_client::profile::Home;
use fleetgate_policy::text;
use serde_json::json;
use std::fmt::Write as _;
use std::io::Read;
use std::path::Path;

/// The longest configuration of NRPE's that is read.
const MAX_FILE: u64 = 1 << 20;

/// `check run`
pub fn run(given: &Arguments) -> Outcome {
    Ok(fleetgate_checks::plugin::command(&given.operands))
}

/// `check import`
pub fn import_nrpe(given: &Arguments) -> Outcome {
    let path = Path::new(given.word().unwrap_or_default());
    let table = match (given.value("role"), given.has("cluster")) {
        (Some(_), true) => {
            return Err(given
                .wrong("--role is for a role file, and --cluster for a machine's: leave one out")
                .into());
        }
        (Some(role), false) => format!("role.\"{role}\".command"),
        (None, true) => "node.commands".to_owned(),
        (None, false) => "commands".to_owned(),
    };
    let failed = |e| ClientError::File(path.to_owned(), e);
    let mut text = String::new();
    let file: Box<dyn Read> = match path == Path::new("-") {
        true => Box::new(std::io::stdin()),
        false => Box::new(std::fs::File::open(path).map_err(failed)?),
    };
    file.take(MAX_FILE + 1)
        .read_to_string(&mut text)
        .map_err(failed)?;
    if text.len() as u64 > MAX_FILE {
        let why = format!("it has more than {MAX_FILE} bytes: is it NRPE's configuration?");
        return Err(ClientError::Broken(path.to_owned(), why).into());
    }
    let Import { toml, notes } = import(&text, &table);
    if toml.is_empty() {
        let why = "there is no line `command[NAME]=...`: is it NRPE's configuration?".to_owned();
        return Err(ClientError::Broken(path.to_owned(), why).into());
    }
    if let Some(role) = given.value("role") {
        eprintln!(
            "note: these tables belong into the file of the role {}, whose `kinds` leave `exec` out; applied alone they would \
             be a role without nodes and logins",
            text::printable(role)
        );
    }
    if table == "commands" && Path::new(SYSTEM_CONFIG).exists() {
        eprintln!(
            "note: {SYSTEM_CONFIG} is there: where it has a section for the node, node.toml is not read, and --cluster makes tables for it"
        );
    }
    for note in notes {
        eprintln!("note: {}", text::printable(&note));
    }
    print(&toml)
}

/// `check serve`
pub fn serve(given: &Arguments) -> Outcome {
    let home = Home::find(given.value("home"))?;
    let path = |flag| given.value(flag).map(Into::into);
    let listen: Result<Vec<Listen>, _> = given.values("listen").map(Listen::parse).collect();
    let listen = listen.map_err(|wants| given.wrong(format!("--listen wants {wants}")))?;
    let has_port = listen.iter().any(|place| matches!(place, Listen::Loopback(_)));
    match (has_port, given.value("token-file")) {
        (true, None) => {
            return Err(given
                .wrong(
                    "every local user can connect to a port: give --token-file FILE, or --listen unix:PATH",
                )
                .into());
        }
        (false, Some(_)) => {
            return Err(given
                .wrong("--token-file is for a port: give --listen 127.0.0.1:PORT too")
                .into());
        }
        _ => {}
    }
    let token = given
        .value("token-file")
        .map(|file| Token::read(Path::new(file)))
        .transpose()?;
    let options = ServeOptions {
        file: path("file").unwrap_or_default(),
        listen,
        token,
        textfile: path("textfile"),
        command_file: path("nagios"),
    };
    if given.has("check") {
        let (plan, is_good) = plan(&home, &options, given.has("once"))?;
        return print(&plan).map(|_| i32::from(!is_good));
    }
    let (is_json, is_once) = (given.has("json"), given.has("once"));
    let mut report = |result: &CheckResult, status: &Status| match (is_json, is_once) {
        (true, _) => Some(result_json(result, status)),
        (false, true) => Some(result_line(result)),
        (false, false) => None,
    };
    match is_once {
        true => fleetgate_checks::once(&home, &options, &mut report).map(|is_ok| i32::from(!is_ok)),
        false => fleetgate_checks::serve(&home, &options, &mut report).map(|()| 0),
    }
    .map_err(Into::into)
}

/// What would be done, for `--check`, and whether it can be.
fn plan(home: &Home, options: &ServeOptions, is_once: bool) -> Result<(String, bool), ClientError> {
    let file = ChecksFile::load(&options.file)?;
    let (mut plan, mut is_good) = (String::new(), true);
    for (name, service) in &file.services {
        let words = [&service.options.command]
            .into_iter()
            .chain(&service.options.arguments);
        let words: Vec<String> = words
            .map(|word| String::from_utf8_lossy(word).into_owned())
            .collect();
        let container = service.options.container.as_deref().map(String::from_utf8_lossy);
        let _ = writeln!(
            plan,
            "{name}: {words:?} on {}{}, every {} s, {} s at most{}",
            service.on.join(" and "),
            container.map_or_else(String::new, |name| format!(", in the container {name}")),
            service.interval.as_secs(),
            service.options.timeout,
            probe_words(service)
        );
        if let Err(why) = service.read_secrets() {
            let _ = writeln!(plan, "{name}: UNKNOWN, as long as {why}");
            is_good = false;
        }
    }
    let usual = [Listen::usual(home)];
    let listen = if options.listen.is_empty() {
        &usual[..]
    } else {
        &options.listen
    };
    if !is_once {
        for place in listen {
            let _ = writeln!(plan, "results are read at {place}");
        }
    }
    for file in [&options.textfile, &options.command_file].into_iter().flatten() {
        let _ = writeln!(plan, "results are written to {}", file.display());
    }
    Ok((plan, is_good))
}

/// What a service has beside its interval and timeout.
fn probe_words(service: &Service) -> String {
    let Thresholds { failure, success } = service.thresholds;
    let mut words = String::new();
    if failure > 1 {
        let _ = write!(words, ", {failure} failures in a row to fail");
    }
    if success > 1 {
        let _ = write!(words, ", {success} successes in a row to recover");
    }
    if !service.initial_delay.is_zero() {
        let _ = write!(words, ", {} s after the start", service.initial_delay.as_secs());
    }
    words
}

fn result_line(result: &CheckResult) -> String {
    let output = String::from_utf8_lossy(&result.output);
    let first = output.lines().next().unwrap_or_default();
    let (target, state) = (&result.target, result.raw_state.name());
    text::printable_lines(&format!(
        "{} {}: {state}: {}\n",
        target.node,
        target.service,
        text::printable(first)
    ))
}

fn result_json(result: &CheckResult, status: &Status) -> String {
    json_line(&json!({
        "node": result.target.node,
        "service": result.target.service,
        "state": status.name(),
        "code": status.state.map(State::code),
        "raw_state": result.raw_state.name(),
        "attempt": status.attempt,
        "attempts": status.attempts,
        "output": String::from_utf8_lossy(&result.output),
        "cut": result.is_cut,
        "seconds": (result.time.as_secs_f64() * 1e3).round() / 1e3,
        "ended": result.ended as f64 / 1e3,
    }))
}

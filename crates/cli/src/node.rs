//! `fleetgate node`: its flags become the starter's options and the monitor's command line.

use crate::flags::{Arguments, Outcome};
use crate::output::print;
use crate::{cluster, images};
use fleetgate_node::config::{Config, ConfigError, PATH};
use fleetgate_node::monitor;
use fleetgate_seal::{Embedded, Source};
use fleetgate_starter as starter;
use fleetgate_sys::process;
use fleetgate_worker::start::Format;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// The word under which the starter executes the monitor.
pub const MONITOR: &str = "monitor";

/// Checks the configuration, or serves.
pub fn run(given: &Arguments) -> Outcome {
    let config = configuration(given);
    if given.has("check") {
        monitor::check(&Config::load(&config)?, given.has("user-mode"))
            .map_err(|why| format!("{}: {why}", config.display()))?;
        print(&checked(&config))?;
        return Ok(0);
    }
    let mut monitor: Vec<OsString> = Vec::new();
    for flag in ["log-format", "log-level"] {
        if let Some(value) = given.value(flag) {
            monitor.extend([format!("--{flag}").into(), value.into()]);
        }
    }
    monitor.extend([MONITOR.into(), "--config".into(), config.clone().into()]);
    if given.has("user-mode") {
        monitor.push("--user-mode".into());
    }
    Ok(starter::run(&starter::Options {
        config,
        listen: given.values("listen").filter_map(|a| a.parse().ok()).collect(),
        user_mode: given.has("user-mode"),
        format: match given.value("log-format") {
            Some("json") => Format::Json,
            _ => Format::Text,
        },
        monitor,
    })?)
}

/// What is said of a configuration with which nothing is wrong.
fn checked(config: &Path) -> String {
    match config.exists() {
        true => format!("{}: nothing is wrong with it\n", config.display()),
        false => format!(
            "{} is not there: the defaults hold, and nothing is wrong with them\n",
            config.display()
        ),
    }
}

/// The monitor, executed by the starter.
pub fn monitor(given: &Arguments) -> Outcome {
    let source =
        |embedded: &'static Option<Embedded>| embedded.as_ref().map_or(Source::Itself, Source::Embedded);
    monitor::run(monitor::Options {
        config: configuration(given),
        user_mode: given.has("user-mode"),
        sources: monitor::Sources {
            session: source(&images::SESSION),
            enter: source(&images::ENTER),
            front: source(&images::FRONT),
            resolver: source(&images::RESOLVER),
            tunnel: source(&images::TUNNEL),
            recorder: source(&images::RECORDER),
        },
    })?;
    Ok(0)
}

/// Where the configuration is: that of all services, if it has a section for the node, which `fleetgate up` runs by it; else
/// the node's own file. A node without root has nothing to do with either: what they say is about the machine's node.
pub fn configuration(given: &Arguments) -> PathBuf {
    match given.value("config") {
        Some(path) => path.into(),
        None if given.has("user-mode") => Config::user_path(),
        None => of_the_machine(Path::new(PATH), Path::new(cluster::SYSTEM_CONFIG)),
    }
}

/// The node that a command reads about, and whether it is one without root: for others than root that of the user's own, where
/// it has left something.
pub fn read_about(given: &Arguments) -> Result<(Config, bool), ConfigError> {
    if process::effective_uid() != 0 {
        let path = given
            .value("config")
            .map_or_else(Config::user_path, PathBuf::from);
        if let Ok(mut config) = Config::load(&path) {
            config.settle(true);
            let sessions = config.runtime_directory.join("sessions");
            if config.recording.directory.is_dir() || sessions.is_dir() {
                return Ok((config, true));
            }
        }
    }
    Ok((Config::load(&configuration(given))?, false))
}

fn of_the_machine(own: &Path, of_all: &Path) -> PathBuf {
    let has_node = || cluster::roles(of_all).is_ok_and(|roles| roles.contains(&cluster::Role::Node));
    match of_all.exists() && (!own.exists() || has_node()) {
        true => of_all.into(),
        false => own.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_check_says_when_there_is_no_file() {
        let there = std::env::current_exe().expect("this program");
        assert!(checked(&there).ends_with(": nothing is wrong with it\n"));
        let missing = checked(Path::new("/nonexistent/node.toml"));
        assert!(
            missing.starts_with("/nonexistent/node.toml is not there: the defaults hold"),
            "{missing}"
        );
    }

    #[test]
    fn a_machine_without_a_file_of_the_nodes_own_has_it_in_that_of_all_services() {
        let there = std::env::current_exe().expect("this program");
        let missing = Path::new("/nonexistent/node.toml");
        assert_eq!(of_the_machine(missing, &there), there);
        assert_eq!(of_the_machine(missing, missing), missing);
        assert_eq!(of_the_machine(&there, missing), there);
    }
}

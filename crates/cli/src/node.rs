//! `fleetgate node`: its flags become the starter's options and the monitor's command line.

use crate::flags::{Given, Outcome};
use crate::{cluster, images, print};
use fleetgate_node::config::{Config, PATH};
use fleetgate_node::seat::Format;
use fleetgate_node::{monitor, starter};
use fleetgate_seal::{Embedded, Source};
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// The word under which the starter executes the monitor.
pub const MONITOR: &str = "monitor";

/// Checks the configuration, or serves.
pub fn run(given: &Given) -> Outcome {
    let config = configuration(given);
    if given.has("check") {
        monitor::check(&Config::load(&config)?, given.has("user-mode"))
            .map_err(|why| format!("{}: {why}", config.display()))?;
        print(&format!("{}: nothing is wrong with it\n", config.display()))?;
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

/// The monitor, executed by the starter.
pub fn monitor(given: &Given) -> Outcome {
    let source =
        |embedded: &'static Option<Embedded>| embedded.as_ref().map_or(Source::Itself, Source::Embedded);
    monitor::run(monitor::Options {
        config: configuration(given),
        user_mode: given.has("user-mode"),
        sources: monitor::Sources {
            session: source(&images::SESSION),
            front: source(&images::FRONT),
            resolver: source(&images::RESOLVER),
            tunnel: source(&images::TUNNEL),
        },
    })?;
    Ok(0)
}

/// Where the configuration is: the node's own file, or where there is none that of all services.
pub fn configuration(given: &Given) -> PathBuf {
    let own = PathBuf::from(PATH);
    match given.value("config") {
        Some(path) => path.into(),
        None if !own.exists() && Path::new(cluster::SYSTEM_CONFIG).exists() => cluster::SYSTEM_CONFIG.into(),
        None => own,
    }
}

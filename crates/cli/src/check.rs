//! Checks for a monitoring system.

use crate::flags::{Arguments, Outcome};
use crate::output::print;
use fleetgate_client::error::ClientError;
use fleetgate_client::nrpe::{Import, import};
use fleetgate_policy::text;
use std::io::Read;
use std::path::Path;

/// The longest configuration of NRPE's that is read.
const MAX_FILE: u64 = 1 << 20;

/// `check run`
pub fn run(given: &Arguments) -> Outcome {
    Ok(fleetgate_client::check::command(&given.operands))
}

/// `check import`
pub fn import_nrpe(given: &Arguments) -> Outcome {
    let path = Path::new(given.word().unwrap_or_default());
    let table = match given.has("cluster") {
        true => "node.commands",
        false => "commands",
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
    let Import { toml, notes } = import(&text, table);
    if toml.is_empty() {
        let why = "there is no line `command[NAME]=...`: is it NRPE's configuration?".to_owned();
        return Err(ClientError::Broken(path.to_owned(), why).into());
    }
    for note in notes {
        eprintln!("note: {}", text::printable(&note));
    }
    print(&toml)
}

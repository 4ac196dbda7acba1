//! `fleetgate container exec`: its command line and its terminal. The crate `container-exec` does the rest.

use crate::flags::{Arguments, Outcome, UsageError};
use crate::{images, relay};
use fleetgate_container_exec::{NOT_RUN, Named, Request, Terminal, needs_root, options, run};
use fleetgate_containers::Overrides;
use fleetgate_policy::text;
use fleetgate_seal::Source;
use fleetgate_sys::terminal;
use fleetgate_wire::common::Variable;
use fleetgate_wire::container::Window;
use std::error::Error;
use std::ffi::{CString, OsString};
use std::io::IsTerminal;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

/// `container exec`
pub fn exec(given: &Arguments) -> Outcome {
    match enter(given) {
        Err(e) if !e.is::<UsageError>() => {
            match given.value("log-format") {
                Some("json") => tracing::error!("{e}"),
                _ => eprintln!("fleetgate: {}", text::printable_lines(&e.to_string())),
            }
            Ok(NOT_RUN)
        }
        done => done,
    }
}

fn enter(given: &Arguments) -> Outcome {
    needs_root()?;
    let on_terminal =
        !given.has("no-terminal") && std::io::stdin().is_terminal() && std::io::stdout().is_terminal();
    let (container, command) = subject(given)?;
    let request = Request {
        container,
        root: given.value("root").map(PathBuf::from),
        wanted: Overrides {
            user: given.value("user").map(str::to_owned),
            directory: given.value("workdir").map(str::to_owned),
        },
        variables: variables(given, on_terminal)?,
        command: command
            .iter()
            .map(|word| CString::new(word.as_bytes()))
            .collect::<Result<_, _>>()?,
    };
    let terminal = on_terminal.then(|| Terminal {
        window: window(),
        carry: |session, signals| relay::carry(session, Some(signals)),
    });
    let helper = images::ENTER.as_ref().map_or(Source::Itself, Source::Embedded);
    run(request, terminal, helper)
}

/// The container, and the words of the command: `--` between the two is for whoever is used to it.
fn subject(given: &Arguments) -> Result<(Named, &[OsString]), Box<dyn Error>> {
    let words = given.operands.as_slice();
    let (container, command) = match (given.value("pid"), words) {
        (Some(pid), words) => (Named::Process(pid.parse()?), words),
        (None, [name, command @ ..]) => {
            let name = name.to_str().ok_or("a container's name is text")?;
            (Named::Name(name.to_owned()), command)
        }
        (None, []) => {
            return Err(given
                .wrong("which container? `fleetgate container ls` shows them; --pid takes a process")
                .into());
        }
    };
    let command = match command {
        [dashes, command @ ..] if dashes == "--" => command,
        command => command,
    };
    match command.first() {
        Some(program) if program.is_empty() => Err(given.wrong("the COMMAND has no name").into()),
        Some(program) if program.as_bytes().starts_with(b"-") => Err(given
            .wrong(format!(
                "{}: flags stand before the container's NAME",
                program.to_string_lossy()
            ))
            .into()),
        _ => Ok((container, command)),
    }
}

fn variables(given: &Arguments, on_terminal: bool) -> Result<Vec<Variable>, Box<dyn Error>> {
    let mut all = Vec::new();
    if let (true, Some(term)) = (on_terminal, std::env::var_os("TERM")) {
        all.push(Variable {
            name: c"TERM".into(),
            value: CString::new(term.into_vec())?,
        });
    }
    for pair in given.values("env") {
        let wrong = || given.wrong(format!("--env {pair}: it is NAME=VALUE"));
        all.push(options::variable(pair).ok_or_else(wrong)?);
    }
    Ok(all)
}

/// This terminal's size and modes.
fn window() -> Window {
    let (columns, rows) = terminal::size(0).unwrap_or_default();
    Window {
        columns,
        rows,
        modes: terminal::modes(0).map_or_else(|_| Vec::new(), |modes| modes.encoded()),
        ..Window::default()
    }
}

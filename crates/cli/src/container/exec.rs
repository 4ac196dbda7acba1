//! `fleetgate container exec`: its command line and its terminal. The crate `container-exec` does the rest.

use crate::flags::{Arguments, Outcome, UsageError};
use crate::{images, relay};
use fleetgate_container_exec::{Named, Request, Terminal, exit_code, needs_root, options, run};
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
            Ok(exit_code(&*e))
        }
        done => done,
    }
}

fn enter(given: &Arguments) -> Outcome {
    let (container, command) = subject(given)?;
    let has_terminal = std::io::stdin().is_terminal() && std::io::stdout().is_terminal();
    let on_terminal = has_terminal && !given.has("no-terminal");
    if given.has("tty") && !on_terminal {
        return Err(given
            .wrong(match has_terminal {
                true => "`-t` and `-T` contradict each other: leave one out",
                false => "`-t`: standard input and output are not both a terminal: leave it out, and the command has them as they are",
            })
            .into());
    }
    needs_root()?;
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

/// Where a container's name is found.
const WHICH: &str = "`fleetgate container ls` shows the containers; --pid takes a process";

/// The container, and the words of the command: `--` between the two is for whoever is used to it.
fn subject(given: &Arguments) -> Result<(Named, &[OsString]), Box<dyn Error>> {
    let words = given.operands.as_slice();
    let (container, command) = match (given.value("pid"), words) {
        (Some(pid), words) => (Named::Process(pid.parse()?), words),
        (None, [name, ..]) if name.is_empty() => {
            return Err(given.wrong(format!("NAME is empty: {WHICH}")).into());
        }
        (None, [name, command @ ..]) => {
            let name = name.to_str().ok_or("a container's name is text")?;
            (Named::Name(name.to_owned()), command)
        }
        (None, []) => {
            return Err(given.wrong(format!("NAME is missing: {WHICH}")).into());
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
                "{}: flags stand before the container's NAME, as `fleetgate container exec -u app NAME COMMAND`",
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
        let wrong = || given.wrong(format!("--env {pair}: it is NAME=VALUE, as --env LANG=C"));
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

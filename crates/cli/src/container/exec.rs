//! `fleetgate container exec`: a program in a container of this machine, as `docker exec` and `runc exec` run one.
//!
//! Without a terminal the program has this command's own streams, so nothing is copied; this command only waits for its end.

use super::{needs_root, search_paths};
use crate::flags::{Arguments, Outcome, UsageError};
use crate::{account, images, local_session, relay};
use fleetgate_containers::{ContainerRecord, Overrides, find, open};
use fleetgate_launch::{Launch, LaunchError, Launcher, RunningHelper};
use fleetgate_policy::text;
use fleetgate_seal::{FallbackChain, Options, Source};
use fleetgate_sys::process::Exit;
use fleetgate_sys::{Errno, Fd, poll, signals, socket, terminal};
use fleetgate_wire::Reason;
use fleetgate_wire::common::Variable;
use fleetgate_wire::container::Window;
use fleetgate_wire::exec::{Exec, Program};
use fleetgate_wire::order::{Role, Work};
use std::error::Error;
use std::ffi::{CString, OsString};
use std::io::IsTerminal;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::sync::Arc;

/// The exit code of what is not the program's: as Docker's, so that a script can tell.
const NOT_RUN: i32 = 125;

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
    let (found, command) = subject(given)?;
    // Before anything is started: whoever waits for this command ends the program with it.
    let signals = signals::descriptor(&[signals::TERM, signals::INT, signals::HUP, signals::WINDOW])
        .map_err(|e| format!("hearing of signals: {e}"))?;
    let wanted = Overrides {
        user: given.value("user").map(str::to_owned),
        directory: given.value("workdir").map(str::to_owned),
    };
    let mut opened = open(&found, &wanted)?;
    let on_terminal =
        !given.has("no-terminal") && std::io::stdin().is_terminal() && std::io::stdout().is_terminal();
    let mut order = Exec::new(local_session::id(), account::own()?, program(command)?);
    order.environment.set = variables(given, on_terminal)?;

    let mut terminal = None;
    let fds = if on_terminal {
        let (ours, theirs) = socket::pair().map_err(|e| format!("a pair of sockets: {e}"))?;
        // Its name is known only inside.
        order.terminal = Some(c"/dev/pts/ptmx".into());
        opened.container.window = window();
        terminal = Some(ours);
        vec![(Role::Console, theirs)]
    } else {
        local_session::own_streams()?
    };
    let launch = Launch::new(Work::Exec(order), fds).entering(
        opened.container,
        opened.first,
        opened.root,
        opened.cgroup,
    );
    let (running, _) = match launcher()?.launch(launch) {
        Ok(launched) => launched,
        // The helper has said so where the program would have spoken; the codes are those of shells.
        Err(LaunchError::Refused(failure)) if failure.reason == Reason::NoProgram => {
            return Ok(if failure.errno == Errno::ENOENT.0 {
                127
            } else {
                126
            });
        }
        Err(e) => return Err(format!("container {}: {e}", found.display_name()).into()),
    };
    if let Some(console) = terminal {
        let mut message = socket::receive(&console, &mut [0], false)
            .map_err(|e| format!("taking the container's terminal: {e}"))?;
        if let Some(ours) = message.fds.pop()
            && let Some(signal) = relay::carry(&ours, Some(&signals))
        {
            let _ = running.signal(signal);
        }
    }
    wait(&running, &signals)
}

/// A launcher of the image for containers, for one launch.
fn launcher() -> Result<Launcher, Box<dyn Error>> {
    let source = images::ENTER.as_ref().map_or(Source::Itself, Source::Embedded);
    let options = Options {
        name: Some(c"fleetgate-enter".into()),
        container: true,
        launches_once: true,
        ..Options::default()
    };
    let chain = FallbackChain::open(source, options)?;
    Ok(Launcher::new(Arc::new(chain))?)
}

/// The container, and the words of the command: `--` between the two is for whoever is used to it.
fn subject(given: &Arguments) -> Result<(ContainerRecord, &[OsString]), Box<dyn Error>> {
    let words = given.operands.as_slice();
    let (found, command) = match (given.value("pid"), words) {
        (Some(pid), words) => (ContainerRecord::process(pid.parse()?), words),
        (None, [name, command @ ..]) => {
            let name = name.to_str().ok_or("a container's name is text")?;
            (find(&search_paths(given)?, name)?, command)
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
        _ => Ok((found, command)),
    }
}

fn program(command: &[OsString]) -> Result<Program, Box<dyn Error>> {
    if command.is_empty() {
        return Ok(Program::Shell);
    }
    let argv = command.iter().map(|word| CString::new(word.as_bytes()));
    Ok(Program::Direct {
        argv: argv.collect::<Result<_, _>>()?,
    })
}

fn variables(given: &Arguments, on_terminal: bool) -> Result<Vec<Variable>, Box<dyn Error>> {
    let mut all = Vec::new();
    if let (true, Some(term)) = (on_terminal, std::env::var_os("TERM")) {
        all.push((CString::new("TERM")?, CString::new(term.into_vec())?));
    }
    for pair in given.values("env") {
        let (name, value) = pair
            .split_once('=')
            .filter(|(name, _)| !name.is_empty())
            .ok_or_else(|| given.wrong(format!("--env {pair}: it is NAME=VALUE")))?;
        all.push((CString::new(name)?, CString::new(value)?));
    }
    let variable = |(name, value)| Variable { name, value };
    Ok(all.into_iter().map(variable).collect())
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

/// Its exit code; a signal that this command gets goes to it.
fn wait(running: &RunningHelper, signals: &Fd) -> Outcome {
    loop {
        let mut watches = [
            poll::Watch::new(running.pidfd.raw(), poll::READ),
            poll::Watch::new(signals.raw(), poll::READ),
        ];
        poll::poll(&mut watches, None).map_err(|e| format!("waiting for it: {e}"))?;
        if watches[1].happened() != 0
            && let Ok(Some(signal)) = signals::next(signals)
            && signal != signals::WINDOW
        {
            let _ = running.signal(signal);
        }
        if watches[0].happened() != 0 {
            return Ok(
                match running.wait_exit().map_err(|e| format!("waiting for it: {e}"))? {
                    Exit::Code(code) => code,
                    Exit::Signal { number, .. } => 128 + number,
                },
            );
        }
    }
}

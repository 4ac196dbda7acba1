//! `fleetgate demo`: the way of a session on this machine, step by step, with what each step cost; then a login by plain
//! `ssh` through a node of the user's own; then a cluster of the user's own.
//!
//! A session for the current user and nobody else, without login records: it leaves nothing behind. It looks
//! nobody up but in /etc/passwd; real sessions ask the resolver.

mod cluster;
mod login;

use crate::flags::Outcome;
use crate::output::print;
use crate::{account, images, relay, seal};
use fleetgate_launch::{
    Begun, Launch, LaunchThreads, RunningHelper, SessionReaper, SessionToClose, Threads, local,
};
use fleetgate_seal::{FallbackChain, Options, Source};
use fleetgate_sys::process::{self, Exit};
use fleetgate_sys::terminal;
use fleetgate_wire::common::Account;
use fleetgate_wire::exec::{Exec, Program};
use fleetgate_wire::order::{Role, Work};
use std::error::Error;
use std::ffi::{CString, OsString};
use std::io::IsTerminal;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::sync::Arc;
use std::sync::mpsc;
use std::time::{Duration, Instant};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// Shows it; `command` is what the session runs, without one the login shell where there is a terminal.
pub fn run(command: &[OsString]) -> Outcome {
    println!("1. Where can the session helper be executed from?\n");
    seal::doctor(false)?;

    println!("\n2. A session for you\n");
    let mut costs = Costs::default();
    let source = images::SESSION.as_ref().map_or(Source::Itself, Source::Embedded);
    let ladder = costs.time("seal and prove the helper (once per server start)", || {
        FallbackChain::open(source, Options::default())
    })?;
    let threads = costs.time("launch thread (once)", || {
        LaunchThreads::new(Arc::new(ladder), Threads::default())
    })?;
    let directory = std::env::temp_dir().join(format!("fleetgate-demo-{}", process::id()));
    let session_reaper = costs.time("session reaper (once)", || {
        SessionReaper::start(&directory, fleetgate_launch::Places::system())
    })?;
    let code = session(command, &threads, &session_reaper, &mut costs);
    drop(session_reaper);
    let _ = std::fs::remove_dir(&directory);
    let code = code?;

    println!("\n3. A login with plain ssh\n");
    login::run(&mut costs)?;

    println!("\n4. A cluster of your own\n");
    cluster::run(&account::own()?.name.to_string_lossy(), &mut costs)?;

    println!("\n5. What each step cost\n");
    print(&costs.table())?;
    Ok(code)
}

fn session(
    command: &[OsString],
    threads: &LaunchThreads,
    session_reaper: &SessionReaper,
    costs: &mut Costs,
) -> Result<i32> {
    let account = account::own()?;
    let on_terminal = std::io::stdin().is_terminal() && std::io::stdout().is_terminal();
    let mut order = order(account, program(command, on_terminal));
    let (fds, ours) = if on_terminal {
        let (ours, user, path) = terminal::open().map_err(|e| format!("opening a pseudo terminal: {e}"))?;
        if let Ok((columns, rows)) = terminal::size(0) {
            let _ = terminal::set_size(&user, columns, rows);
        }
        order.terminal = Some(path);
        (vec![(Role::Terminal, user)], Some(ours))
    } else {
        (local::own_streams()?, None)
    };
    if on_terminal && command.is_empty() {
        println!("(your shell, in a session of its own; end it with `exit`)\n");
    }

    let exec = order.clone();
    let asked = Instant::now();
    let (running, begun) = threads.launch(Launch::new(Work::Exec(order), fds))?;
    let answered = asked.elapsed();
    let RunningHelper {
        pid,
        pidfd,
        strategy,
        spent,
        tries,
        ..
    } = running;
    let (ended, end) = mpsc::channel();
    costs.time("note the session down", || {
        session_reaper.keep(pidfd, SessionToClose::of(&exec, pid), move |end| {
            let _ = ended.send(end.exit);
        })
    })?;
    if let Some(ours) = &ours {
        relay::carry(ours, None);
    }
    let exit = end.recv()?;

    costs.add("control socket and order", spent.order);
    costs.add("clone3 until the helper is executed", spent.spawn);
    if let Begun::Executed { timings, .. } = begun {
        for timing in timings {
            let step = format!("  helper: {}", timing.step.to_string_lossy());
            costs.add(&step, Duration::from_nanos(timing.nanos.into()));
        }
    }
    costs.add("from there to your program's execution", spent.ready);
    costs.add("all of the launch, hand-off to its thread included", answered);
    println!(
        "\nprocess {pid}, launched by the strategy `{strategy}`{}, {}",
        if tries > 1 {
            format!(" at try {tries}")
        } else {
            String::new()
        },
        match exit {
            Some(Exit::Code(code)) => format!("ended with code {code}"),
            Some(Exit::Signal { number, .. }) => format!("was ended by signal {number}"),
            None => "ended".to_owned(),
        }
    );
    Ok(match exit {
        Some(Exit::Code(code)) => code,
        Some(Exit::Signal { number, .. }) => 128 + number,
        None => 1,
    })
}

fn program(command: &[OsString], on_terminal: bool) -> Program {
    let strings = || {
        command
            .iter()
            .filter_map(|word| CString::new(word.as_bytes()).ok())
    };
    match (command, on_terminal) {
        ([], true) => Program::Shell,
        ([], false) => Program::Command {
            line: c"echo \"hello from $(id -un), process $$, in $PWD\"".into(),
        },
        _ => Program::Direct {
            argv: strings().collect(),
        },
    }
}

fn order(account: Account, program: Program) -> Exec {
    let mut order = Exec::new(local::session_id(), account, program);
    order.environment.set = terminal_type();
    order.environment.etc_environment = true;
    order.timings = true;
    order
}

fn terminal_type() -> Vec<fleetgate_wire::common::Variable> {
    let value = std::env::var_os("TERM").and_then(|term| CString::new(term.into_vec()).ok());
    let variable = |value| fleetgate_wire::common::Variable {
        name: c"TERM".into(),
        value,
    };
    value.map(variable).into_iter().collect()
}

/// Steps and what they cost, in the order in which they were taken.
#[derive(Default)]
struct Costs(Vec<(String, Duration)>);

impl Costs {
    fn add(&mut self, step: &str, cost: Duration) {
        self.0.push((step.to_owned(), cost));
    }

    fn time<T>(&mut self, step: &str, work: impl FnOnce() -> T) -> T {
        let start = Instant::now();
        let done = work();
        self.add(step, start.elapsed());
        done
    }

    fn table(&self) -> String {
        let width = self.0.iter().map(|(step, _)| step.len()).max().unwrap_or(0);
        let line = |(step, cost): &(String, Duration)| {
            format!("  {step:<width$}  {:>9.1} µs\n", cost.as_secs_f64() * 1e6)
        };
        self.0.iter().map(line).collect()
    }
}

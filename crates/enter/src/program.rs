//! The program: its environment, the process that becomes it, and the last steps before its exec.

use crate::host::in_container;
use crate::privileges;
use alloc::format;
use fleetgate_session::exec::environment::{ROOT_PATH, Variables};
use fleetgate_session::exec::{Stop, program, refused, streams, timings::StepTimer, watch};
use fleetgate_session::order::{Control, failure};
use fleetgate_sys::{Errno, Fd, exec, file, process, seccomp};
use fleetgate_wire::container::{Container, InsideUser};
use fleetgate_wire::exec::Exec;
use fleetgate_wire::{Failure, Reason, Reply};

/// What stands in the way of a process more.
const PIDS_LIMIT: &str = "the container's pids limit (raise it, or end a process there)";

/// The helper's own end, when a copy of it became the program.
const DONE: i32 = 0;

/// The container's variables, then the account's, then what the client and the server set.
pub fn environment(container: &Container, order: &Exec) -> Variables {
    let account = &order.account;
    let mut out = Variables::default();
    out.set(b"PATH", ROOT_PATH);
    for variable in &container.environment {
        out.set(variable.name.to_bytes(), variable.value.to_bytes());
    }
    let own = matches!(container.user, InsideUser::Numbers { .. });
    if !own || out.get(b"HOME").is_none() {
        out.set(b"HOME", account.home.to_bytes());
    }
    out.set(b"USER", account.name.to_bytes());
    out.set(b"LOGNAME", account.name.to_bytes());
    out.set(b"SHELL", account.shell.to_bytes());
    out.of_client(&order.environment);
    for variable in &order.environment.set {
        out.set(variable.name.to_bytes(), variable.value.to_bytes());
    }
    if let Some(terminal) = &order.terminal {
        out.set(b"SSH_TTY", terminal.to_bytes());
    }
    out.settle()
}

/// Becomes the program, or lets a copy become it: where the container's processes have numbers of their own, only a child
/// is among them. The helper's exit code, then.
pub fn start(
    control: &Control,
    container: &Container,
    order: &Exec,
    terminal: Option<&Fd>,
    environment: &Variables,
    (timer, unwatched): (StepTimer, Option<Failure>),
) -> Result<i32, Stop> {
    enter_directory(container, order)?;
    let program = program::of(order, environment)?;
    // Inherited by the copy. Where privileges may be gained it takes a capability, which the copy must not have.
    if !container.no_new_privileges {
        bind(container)?;
        privileges::forget_binding(container)?;
    }
    if fleetgate_sys::namespaces::enters_process_namespace(container.namespaces) {
        // The copy waits for this: what the launching side does not know of must not run.
        let (told, tell) = file::pipe().map_err(refused("making a pipe"))?;
        let copy = process::fork_sibling().map_err(|errno| match errno {
            Errno::ENOMEM => Stop::from(failure(Reason::Ended, errno, "the container")),
            Errno::EAGAIN => Stop::from(failure(Reason::TooMany, errno, PIDS_LIMIT)),
            errno => refused("making a process in the container")(errno),
        })?;
        if let Some(pid) = copy {
            control.say(&Reply::Entered { pid });
            let _ = file::write_all(tell.raw(), b"t");
            return Ok(DONE);
        }
        drop(tell);
        if file::read(told.raw(), &mut [0]) != Ok(1) {
            return Ok(DONE);
        }
    }
    streams::lead_session(order, terminal, false)?;
    exec::reset_signals();
    control.say(&Reply::Leaving {
        timings: timer.into_timings(),
        unrecorded: None,
        unwatched,
    });
    if container.no_new_privileges {
        bind(container)?;
    }
    Err(program.execute(environment))
}

/// The container's own filter.
fn bind(container: &Container) -> Result<(), Stop> {
    if container.filter.is_empty() {
        return Ok(());
    }
    let program = watch::instructions(&container.filter)?;
    seccomp::install(&program, container.filter_flags)
        .map(drop)
        .map_err(refused("binding the process by the container's seccomp profile"))
}

/// Goes to the working directory, which must lie inside: a link to a directory of the machine's that some process has open
/// would lead out (CVE-2024-21626).
fn enter_directory(container: &Container, order: &Exec) -> Result<(), Stop> {
    let directory = container.directory.as_ref().unwrap_or(&order.account.home);
    let refused = |errno| {
        Stop::from(failure(
            Reason::Missing,
            errno,
            &in_container(&directory.to_string_lossy()),
        ))
    };
    match exec::change_directory(directory) {
        // A home directory that is not there keeps nobody out.
        Err(_) if container.directory.is_none() => exec::change_directory(c"/").map_err(refused)?,
        entered => entered.map_err(refused)?,
    }
    exec::current_directory().map(drop).map_err(|errno| {
        let subject = in_container(&format!("{}, or outside its root", directory.to_string_lossy()));
        Stop::from(failure(Reason::Missing, errno, &subject))
    })
}

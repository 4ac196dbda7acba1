//! A program in a container of this machine, as `docker exec` and `runc exec` run one: all of `fleetgate container exec` but
//! its command line and its terminal.
//!
//! Without a terminal the program has the caller's own streams, so nothing is copied; the caller only waits for its end.
//! The program `fleetgate-exec` is this and little more. `fleetgate` maps 23 MB and moves 40,000 pointers before it begins,
//! which takes longer than all that is done here.
#![forbid(unsafe_code)]

pub mod options;

use fleetgate_containers::{ContainerRecord, Overrides, SearchPaths, find, kept_by_users, open};
use fleetgate_launch::{Launch, LaunchError, Launcher, RunningHelper, failure_words, local};
use fleetgate_seal::{FallbackChain, Options, Source};
use fleetgate_sys::process::{self, Exit};
use fleetgate_sys::{Errno, Fd, poll, signals, socket};
use fleetgate_wire::common::{Account, Ids, Variable};
use fleetgate_wire::container::Window;
use fleetgate_wire::exec::{Exec, Program};
use fleetgate_wire::order::{Role, Work};
use fleetgate_wire::{Failure, Reason};
use std::error::Error;
use std::ffi::CString;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The exit code of what is not the program's: as Docker's, so that a script can tell.
pub const NOT_RUN: i32 = 125;

/// What is to be run, and where.
#[derive(Debug)]
pub struct Request {
    /// The container.
    pub container: Named,
    /// The one directory of a runtime's to look in; none: the usual places.
    pub root: Option<PathBuf>,
    /// Whom to be inside, and where, if not as the container has it.
    pub wanted: Overrides,
    /// Variables more.
    pub variables: Vec<Variable>,
    /// The command's words; none: a shell.
    pub command: Vec<CString>,
}

/// How a container is meant.
#[derive(Debug, PartialEq, Eq)]
pub enum Named {
    /// By its name or id.
    Name(String),
    /// By a process that is in it.
    Process(i32),
}

/// The caller's side of a terminal.
#[derive(Debug)]
pub struct Terminal {
    /// The caller's size and modes.
    pub window: Window,
    /// Carries bytes between the caller's terminal and this one; the signal that ended it.
    pub carry: fn(&Fd, &Fd) -> Option<i32>,
}

/// Runs it by the helper `program`; the exit code.
pub fn run(request: Request, terminal: Option<Terminal>, program: Source) -> Result<i32, Box<dyn Error>> {
    needs_root()?;
    let root = request.root.as_deref();
    let found = match request.container {
        Named::Process(pid) if !Path::new(&format!("/proc/{pid}")).exists() => {
            return Err(format!(
                "--pid {pid}: there is no such process; {LIST} shows containers with one of theirs"
            )
            .into());
        }
        Named::Process(pid) => ContainerRecord::process(pid),
        Named::Name(name) => find(&search_paths(root)?, &name).map_err(|e| with_remedy(&e, root))?,
    };
    // Before anything is started: whoever waits for the caller ends the program with it.
    let signals = signals::descriptor(&[signals::TERM, signals::INT, signals::HUP, signals::WINDOW])
        .map_err(|e| format!("hearing of signals: {e}"))?;
    let mut opened = open(&found, &request.wanted)?;
    let is_shell = request.command.is_empty();
    let mut order = Exec::new(local::session_id(), nobody_yet(), program_of(request.command));
    order.environment.set = request.variables;

    let mut console = None;
    let fds = match &terminal {
        Some(terminal) => {
            let (ours, theirs) = socket::pair().map_err(|e| format!("a pair of sockets: {e}"))?;
            // Its name is known only inside.
            order.terminal = Some(c"/dev/pts/ptmx".into());
            opened.container.window = terminal.window.clone();
            console = Some((ours, terminal.carry));
            vec![(Role::Console, theirs)]
        }
        None => local::own_streams()?,
    };
    let launch = Launch::new(Work::Exec(order), fds).entering(
        opened.container,
        opened.first,
        opened.root,
        opened.cgroup,
    );
    let (running, _) = match launcher(program)?.launch(launch) {
        Ok(launched) => launched,
        Err(LaunchError::Refused(failure)) if failure.reason == Reason::NoProgram => {
            return Err(NotExecuted::new(found.display_name(), &failure, is_shell).into());
        }
        Err(LaunchError::Refused(failure)) => {
            let (why, remedy) = (words(&failure), remedy(&failure));
            return Err(format!("container {}: {why}{remedy}", found.display_name()).into());
        }
        Err(e) => return Err(format!("container {}: {e}", found.display_name()).into()),
    };
    if let Some((console, carry)) = console {
        let mut message = socket::receive(&console, &mut [0], false)
            .map_err(|e| format!("taking the container's terminal: {e}"))?;
        if let Some(ours) = message.fds.pop()
            && let Some(signal) = carry(&ours, &signals)
        {
            let _ = running.signal(signal);
        }
    }
    wait(&running, &signals)
}

/// What was to be run is not there, or is no program. The helper has said which system call failed, where the program would
/// have spoken.
#[derive(Debug)]
pub struct NotExecuted {
    code: i32,
    why: String,
}

impl NotExecuted {
    fn new(container: &str, failure: &Failure, is_shell: bool) -> NotExecuted {
        let program = failure.subject.to_string_lossy();
        let is_missing = failure.errno == Errno::ENOENT.0;
        let why = match (is_missing, is_shell) {
            (true, true) => {
                format!("container {container} has no shell: write a COMMAND that it has, behind its name")
            }
            (true, false) => format!(
                "container {container} has no program {program:?}, or not what that needs (an interpreter, a loader): write a \
                 path, or look into its image"
            ),
            _ => format!(
                "container {container}: {program:?} cannot be executed: is it a program, and may this user execute it (--user \
                 root)?"
            ),
        };
        // The codes of shells.
        let code = if is_missing { 127 } else { 126 };
        NotExecuted { code, why }
    }
}

impl fmt::Display for NotExecuted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.why)
    }
}

impl Error for NotExecuted {}

/// The exit code where [`run`] failed so.
pub fn exit_code(error: &(dyn Error + 'static)) -> i32 {
    error
        .downcast_ref::<NotExecuted>()
        .map_or(NOT_RUN, |not| not.code)
}

/// The command that says which containers there are.
const LIST: &str = "`fleetgate container ls`";

/// Why no container was found, with the way to those that there are. `root`: the one place in which it was looked for.
fn with_remedy(error: &fleetgate_containers::Error, root: Option<&Path>) -> String {
    use fleetgate_containers::Error::{Mistyped, None as NoContainer, Several, ShortId};
    if let (NoContainer { name, there }, Some(root)) = (error, root) {
        let users = kept_by_users(root);
        if users.contains(name) {
            return format!(
                "container {name:?} in {} does not belong to root, and so has no name here: --pid N enters it, where N is the \
                 number of its first process",
                root.display()
            );
        }
        if let (true, Some(note)) = (there.is_empty(), note_on_users(root)) {
            return format!("no container {name:?} of root's runs here; {note}");
        }
    }
    match (error, root) {
        (NoContainer { name, there }, Some(root)) if there.is_empty() => format!(
            "no container {name:?} runs here, nor any other by what --root {} has: without it the usual places are searched",
            root.display()
        ),
        (NoContainer { name, there }, None) if there.is_empty() => format!(
            "no container {name:?} runs here, nor any other: --root names a runtime's own directory, --pid a process of a \
             container"
        ),
        (Mistyped { .. }, None) => format!("{error} {LIST} shows all"),
        (NoContainer { .. } | ShortId { .. } | Several { .. }, None) => format!("{error}; {LIST} shows all"),
        _ => error.to_string(),
    }
}

/// That there are containers in a runtime's directory which no list has, because they are not root's.
pub fn note_on_users(root: &Path) -> Option<String> {
    let what = match kept_by_users(root).len() {
        0 => return None,
        1 => "1 container".to_owned(),
        many => format!("{many} containers"),
    };
    Some(format!(
        "{what} in {} not belonging to root, and so without a name here: `fleetgate container exec --pid N` enters one, where N is \
         the number of its first process",
        root.display()
    ))
}

/// Why the helper refused.
fn words(failure: &Failure) -> String {
    match failure.reason {
        Reason::Missing if failure.errno == Errno::ENOTDIR.0 => {
            format!("{}: it is no directory", failure.subject.to_string_lossy())
        }
        _ => failure_words(failure),
    }
}

/// What helps against a refusal of the helper's.
fn remedy(failure: &Failure) -> &'static str {
    match failure.reason {
        Reason::NoUser => {
            "; --user takes a name of its /etc/passwd (a group: of its /etc/group), or a number"
        }
        _ if failure.subject.to_bytes().ends_with(b"/dev/pts") => "; -T does without a terminal",
        // Its working directory.
        Reason::Missing if failure.subject.to_bytes().ends_with(b", in the container") => {
            "; begin elsewhere, as with -w /"
        }
        _ => "",
    }
}

/// Where to look: the usual places, or the runtime's root that was named.
pub fn search_paths(root: Option<&Path>) -> Result<SearchPaths, String> {
    match root {
        None => Ok(SearchPaths::default()),
        Some(root) if !root.is_dir() => Err(format!("--root {}: there is no such directory", root.display())),
        Some(root) => Ok(SearchPaths {
            runtimes: vec![root.to_owned()],
            ..SearchPaths::none()
        }),
    }
}

/// What runtimes keep is root's to read, and containers root's to enter.
pub fn needs_root() -> Result<(), &'static str> {
    match process::effective_uid() {
        0 => Ok(()),
        _ => Err("this takes root: become root, or go by the machine's node (`ssh ACCOUNT+CONTAINER@NODE`)"),
    }
}

/// A launcher of the helper for containers, for one launch.
fn launcher(program: Source) -> Result<Launcher, Box<dyn Error>> {
    let options = Options {
        name: Some(c"fleetgate-enter".into()),
        container: true,
        launches_once: true,
        ..Options::default()
    };
    Ok(Launcher::new(Arc::new(FallbackChain::open(program, options)?))?)
}

fn program_of(command: Vec<CString>) -> Program {
    match command.is_empty() {
        true => Program::Shell,
        false => Program::Direct { argv: command },
    }
}

/// An order has an account; who that is inside is found out inside.
fn nobody_yet() -> Account {
    Account {
        name: CString::default(),
        ids: Ids {
            uid: 0,
            gid: 0,
            groups: Vec::new(),
        },
        home: c"/".into(),
        shell: CString::default(),
        ageing: None,
    }
}

/// Its exit code; a signal that the caller gets goes to it.
fn wait(running: &RunningHelper, signals: &Fd) -> Result<i32, Box<dyn Error>> {
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

//! `fleetgate check run`: what `check_fleetgate` becomes where the master cannot run a check at once. It makes the connection, by
//! a master that it starts if it can, and keeps the plugins' contract whatever happens on the way.

use fleetgate_check::options::Options as CheckOptions;
pub use fleetgate_check::secret::{Secret, Values};
use fleetgate_check::verdict::{MAX_ERRORS, Verdict};
use fleetgate_check::warm::now;
use fleetgate_check::{Begun, begin, late};
use fleetgate_client::master_client::Keep;
use fleetgate_client::ssh::options::{Invocation, LogLevel, Options, Tty};
use fleetgate_client::ssh::{SshError, Work, run_options};
use fleetgate_client::stderr;
use fleetgate_policy::Invalid;
use fleetgate_policy::text::printable_lines;
use fleetgate_sys::{Fd, file};
use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::time::timeout;

/// The longest list of commands that is shown; a node says none that is longer.
const MAX_LIST: usize = 2 << 20;
/// What the client says of a request that the node does not know.
const NOT_RUN: &str = " does not run that for ";
/// How a node's list begins that has no container.
const NO_CONTAINER: &str = "no container runs here";
/// How long the last words of a check may take to come through.
const LAST_WORDS: Duration = Duration::from_millis(200);

/// Does what the words behind `check run` say; the exit code is a plugin's.
pub fn command(words: &[OsString]) -> i32 {
    let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
    match begin(&words) {
        Begun::Over(code) => code,
        Begun::Cold(options) => cold(&options).of(&options).print(),
    }
}

/// What a node lists for a login: the word behind `fleetgate-` in its subsystem's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Listing {
    /// The named commands that it may run there.
    Commands,
    /// The containers there that its account may enter.
    Containers,
}

/// Where a list is asked for: the words of `check list` and `ls --containers`.
pub struct Place<'a> {
    /// `NODE`, or `NODE+CONTAINER`.
    pub node: &'a str,
    /// `--container`.
    pub container: Option<&'a str>,
    /// `--login`.
    pub login: Option<&'a str>,
    /// `--address`.
    pub address: Option<&'a str>,
    /// `--home`.
    pub home: Option<&'a str>,
}

impl Place<'_> {
    /// As `fleetgate ssh` reads these words.
    fn options(&self) -> Result<Options, Invalid> {
        let flags = [
            ("-l", self.login),
            ("--container", self.container),
            ("--address", self.address),
            ("--home", self.home),
        ];
        let given = flags
            .into_iter()
            .filter_map(|(flag, value)| Some([flag, value?]))
            .flatten();
        let words = given.chain(["--", self.node]).map(OsString::from);
        match Options::parse(&words.collect::<Vec<_>>())? {
            Invocation::Run(options) => Ok(*options),
            Invocation::Help | Invocation::Version => Err("that is no node".into()),
        }
    }
}

/// `check list NODE` and `ls --containers NODE`: what the node says. As a table, or a line of JSON for each. The error says what is
/// wrong with the words. `if_none` is said where the node shows no container.
pub fn list(place: &Place<'_>, listing: Listing, is_json: bool, if_none: &str) -> Result<i32, Invalid> {
    let subsystem: &[u8] = match (listing, is_json) {
        (Listing::Commands, true) => b"fleetgate-commands-json",
        (Listing::Commands, false) => b"fleetgate-commands",
        (Listing::Containers, true) => b"fleetgate-containers-json",
        (Listing::Containers, false) => b"fleetgate-containers",
    };
    let options = Options {
        work: Work::Subsystem(subsystem.to_vec()),
        tty: Tty::No,
        input: false,
        ..place.options()?
    };
    // The node's words are shown on a terminal: they are to be text alone.
    let mut listed = match Taken::stdout(MAX_LIST) {
        Ok(listed) => listed,
        Err(e) => {
            let error = SshError::Local(format!("this machine: {e}"));
            stderr::line(&error);
            return Ok(error.code());
        }
    };
    let outcome = ask(&options);
    let list = listed.give_back();
    let shown = printable_lines(&String::from_utf8_lossy(&list));
    // Nobody reads it: that is no failure of the list's.
    let _ = io::stdout().write_all(shown.as_bytes());
    let code = outcome.unwrap_or_else(|error| {
        let said = error.to_string();
        stderr::line(&said);
        if said.contains(NOT_RUN) {
            stderr::line("such a list takes a node of this version of fleetgate: bring the node up to it");
        }
        error.code()
    });
    if code == 0 && listing == Listing::Containers && (shown.is_empty() || shown.starts_with(NO_CONTAINER)) {
        stderr::line(if_none);
    }
    Ok(code)
}

/// Has the node do it.
fn ask(options: &Options) -> Result<i32, SshError> {
    let local = |e: io::Error| SshError::Local(format!("the runtime: {e}"));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(local)?;
    let outcome = runtime.block_on(run_options(options));
    // A look-up of a name that hangs holds nobody up.
    runtime.shutdown_background();
    outcome
}

fn cold(options: &CheckOptions) -> Verdict {
    let local = |e: io::Error| Verdict::unknown(format!("this machine: {e}"));
    // What is said on standard error explains a failure to the monitoring, which reads standard output alone.
    let mut complaints = match Taken::stderr(MAX_ERRORS) {
        Ok(complaints) => complaints,
        Err(e) => return local(e),
    };
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(e) => return local(e),
    };
    let outcome = runtime.block_on(async {
        let secrets = Values::read(&options.secrets);
        let secrets = secrets.map_err(SshError::Local);
        let left = options.end(now()) - now();
        let patience = Duration::from_nanos(left.try_into().unwrap_or(0));
        timeout(patience, async {
            run_options(&ssh_options(options, &secrets?)).await
        })
        .await
    });
    // What hangs in a look-up of a name holds nobody up.
    runtime.shutdown_background();
    let said = complaints.give_back();
    match outcome {
        Ok(Ok(code)) => Verdict::ended(code, said),
        Ok(Err(SshError::Signal(_))) => Verdict::unknown("it was interrupted".into()),
        Ok(Err(error)) => Verdict::unknown(error.to_string()),
        Err(_) => late(options, false),
    }
}

/// The session, as ssh's options have it: nobody is asked, and there is no terminal and no input.
fn ssh_options(options: &CheckOptions, secrets: &Values) -> Options {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Options {
        host: text(&options.host),
        user: options.login.as_deref().map(text),
        container: options.container.as_deref().map(text),
        address: options.address.as_deref().map(text),
        home: options.home.as_deref().map(text),
        set_env: secrets
            .variables()
            .iter()
            .map(|variable| (text(&variable.name), text(&variable.value)))
            .collect(),
        work: Work::Exec(fleetgate_check::line::line(options)),
        tty: Tty::No,
        input: false,
        batch: true,
        level: LogLevel::Error,
        connect_time: Some(Duration::from_secs(options.timeout.into())),
        keep: match options.is_alone {
            true => Keep::No,
            false => Keep::For(Duration::from_secs(options.keep.into())),
        },
        ..Options::default()
    }
}

/// Standard output or standard error, taken for a while: what is said there is kept, up to a bound.
struct Taken {
    descriptor: i32,
    /// The descriptor as it was.
    before: Option<OwnedFd>,
    said: Arc<Mutex<Vec<u8>>>,
    over: std::sync::mpsc::Receiver<()>,
}

impl Taken {
    fn stdout(bound: usize) -> io::Result<Taken> {
        Taken::take(1, io::stdout().as_fd().try_clone_to_owned()?, bound)
    }

    fn stderr(bound: usize) -> io::Result<Taken> {
        Taken::take(2, io::stderr().as_fd().try_clone_to_owned()?, bound)
    }

    fn take(descriptor: i32, before: OwnedFd, bound: usize) -> io::Result<Taken> {
        let (reader, writer) = file::pipe()?;
        writer.place_at(descriptor, false)?;
        let said = Arc::<Mutex<Vec<u8>>>::default();
        let (ended, over) = std::sync::mpsc::channel();
        let shared = said.clone();
        std::thread::spawn(move || {
            let mut reader = std::fs::File::from(OwnedFd::from(reader));
            let mut room = [0; 4096];
            while let Ok(len @ 1..) = reader.read(&mut room) {
                if let Ok(mut said) = shared.lock() {
                    let left = bound.saturating_sub(said.len());
                    said.extend_from_slice(&room[..len.min(left)]);
                }
            }
            let _ = ended.send(());
        });
        Ok(Taken {
            descriptor,
            before: Some(before),
            said,
            over,
        })
    }

    /// The descriptor is what it was, and what was said is here.
    fn give_back(&mut self) -> Vec<u8> {
        if let Some(before) = self.before.take() {
            let _ = Fd::from(before).place_at(self.descriptor, false);
        }
        // A process that still has the pipe is not waited for.
        let _ = self.over.recv_timeout(LAST_WORDS);
        self.said
            .lock()
            .map(|mut said| std::mem::take(&mut *said))
            .unwrap_or_default()
    }
}

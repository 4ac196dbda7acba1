//! `fleetgate check serve`: checks that run by themselves, and their last results for Prometheus, Nagios and Icinga. And
//! `fleetgate check run` ([`plugin`]): one check, for a monitoring system that runs its checks itself.
//!
//! Read in this order: [`file`](mod@file) (what runs where), [`list`] (the nodes), [`schedule`] (when), [`run`] (one check), [`probe`]
//! (which state counts), [`results`] (what is kept, and the page), [`listen`], [`textfile`] and [`passive`] (where results go). This file has the loop that
//! calls them: one thread, and a task for each check that runs. It opens no connection to a node: the user's master does.
#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    warn(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_possible_wrap
    )
)]

pub mod file;
mod list;
mod listen;
pub mod nrpe;
mod passive;
pub mod perfdata;
pub mod plugin;
mod probe;
mod results;
mod run;
mod schedule;
mod textfile;

pub use listen::{Listen, Token};
pub use probe::{Status, Thresholds};
pub use results::{CheckResult, MAX_OUTPUT};
pub use schedule::Target;

use file::ChecksFile;
use fleetgate_base::notify::Notify;
pub use fleetgate_check::verdict::State;
use fleetgate_client::connect;
use fleetgate_client::error::ClientError;
use fleetgate_client::profile::Home;
use fleetgate_client::standard_output::{MAX_UNREAD, Out};
use fleetgate_client::stderr;
use list::{Found, NodeLists};
use listen::Listener;
use passive::CommandFile;
use results::{Counts, Results};
use run::{Runner, now};
use schedule::{Schedule, Turns};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;
use textfile::Textfile;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::task::{JoinSet, LocalSet};
use tokio::time::{Instant, sleep_until, timeout};

/// So many checks run at a time. Each has three descriptors, and a process has 1,024 as a rule.
const MAX_RUNNING: usize = 200;
/// The most checks: a service on a node each.
const MAX_TARGETS: usize = 20_000;
/// How often the proxy is asked which nodes there are, and how long its answer may take.
const LIST_INTERVAL: Duration = Duration::from_secs(60);
const LIST_TIME: Duration = Duration::from_secs(30);
/// The textfile is written at most so often.
const TEXTFILE_INTERVAL: Duration = Duration::from_secs(5);
/// How soon a full command file is tried again, and how long it is at the end.
const RETRY: Duration = Duration::from_millis(50);
const LAST_WORDS: Duration = Duration::from_secs(2);
/// The clock is looked at so often: somebody may set it.
const CLOCK: Duration = Duration::from_secs(5);

/// What is served, and where.
pub struct ServeOptions {
    /// The file of checks.
    pub file: PathBuf,
    /// Where the page is read. Empty: on the usual socket.
    pub listen: Vec<Listen>,
    /// What readers of a port have to show.
    pub token: Option<Token>,
    /// The page as a file.
    pub textfile: Option<PathBuf>,
    /// The external command file of Nagios or Icinga.
    pub command_file: Option<PathBuf>,
}

/// Receives each result, and where its check is after it. Returns what is to be written to standard output.
pub type Report<'a> = &'a mut dyn FnMut(&CheckResult, &Status) -> Option<String>;

/// Runs the checks until SIGTERM or SIGINT.
pub fn serve(home: &Home, options: &ServeOptions, report: Report<'_>) -> Result<(), ClientError> {
    let work = async {
        let mut server = Server::new(home, options, report)?;
        let mut listeners = JoinSet::new();
        let usual = [Listen::usual(home)];
        let places = if options.listen.is_empty() {
            &usual[..]
        } else {
            &options.listen
        };
        for place in places {
            let listener = Listener::bind(place, home, options.token.as_ref()).await?;
            listeners.spawn_local(listener.serve(server.results.clone()));
        }
        let notify = Notify::from_environment();
        notify.say("READY=1");
        server.turns(options).await;
        notify.say("STOPPING=1");
        server.last_words().await;
        Ok(())
    };
    connect::run(async { LocalSet::new().run_until(work).await })
}

/// Runs each check once; there is no row of results, so each one counts at once. False: one was not OK, or not all of the results were written.
pub fn once(home: &Home, options: &ServeOptions, report: Report<'_>) -> Result<bool, ClientError> {
    let work = async {
        let mut server = Server::new(home, options, report)?;
        server.is_once = true;
        let found = list::ask(home.clone(), server.selectors()).await?;
        let is_matched = found.iter().all(|(_, nodes)| !nodes.is_empty());
        // The other services are checked all the same, and who matches nothing is told of.
        if let Some((selector, _)) = found.iter().next()
            && found.iter().all(|(_, nodes)| nodes.is_empty())
        {
            return Err(ClientError::NothingMatches(selector.clone()));
        }
        server.listed(Ok(found));
        let is_whole = server.each_once().await;
        server.last_words().await;
        Ok(is_whole && is_matched && server.is_all_ok && server.out.unread() == 0 && !server.out.is_gone)
    };
    connect::run(async { LocalSet::new().run_until(work).await })
}

struct Server<'a> {
    home: &'a Home,
    /// Each check runs once.
    is_once: bool,
    file: ChecksFile,
    report: Report<'a>,
    lists: NodeLists,
    /// What is said of the list of nodes, so that it is said once.
    list_error: Option<String>,
    unmatched: BTreeSet<String>,
    schedule: Schedule,
    results: Rc<RefCell<Results>>,
    counts: Counts,
    runner: Rc<Runner>,
    tasks: JoinSet<CheckResult>,
    listing: JoinSet<Result<Found, ClientError>>,
    list_at: Instant,
    textfile: Option<Textfile>,
    /// When the textfile is to be written: a result has come.
    textfile_at: Option<Instant>,
    /// It is not written again before.
    textfile_rest: Instant,
    commands: Option<CommandFile>,
    out: Out,
    /// It was said that standard output is behind.
    has_complained: bool,
    is_all_ok: bool,
}

impl<'a> Server<'a> {
    /// To be made within a runtime.
    fn new(home: &'a Home, options: &ServeOptions, report: Report<'a>) -> Result<Server<'a>, ClientError> {
        let commands = options
            .command_file
            .as_ref()
            .map(|path| CommandFile::new(path).map_err(ClientError::file(path)));
        Ok(Server {
            home,
            is_once: false,
            file: ChecksFile::load(&options.file)?,
            report,
            lists: NodeLists::default(),
            list_error: None,
            unmatched: BTreeSet::new(),
            schedule: Schedule::default(),
            results: Rc::default(),
            counts: Counts::default(),
            runner: Rc::new(Runner::new(home.clone())),
            tasks: JoinSet::new(),
            listing: JoinSet::new(),
            list_at: Instant::now(),
            textfile: options.textfile.as_deref().map(Textfile::new),
            textfile_at: None,
            textfile_rest: Instant::now(),
            commands: commands.transpose()?,
            out: Out::open(),
            has_complained: false,
            is_all_ok: true,
        })
    }

    async fn turns(&mut self, options: &ServeOptions) {
        let mut signals = match Signals::new() {
            Ok(signals) => signals,
            Err(e) => return stderr::line(format_args!("signals: {e}")),
        };
        loop {
            self.begin_due();
            self.write_textfile();
            let wake = self.wake();
            tokio::select! {
                Some(ended) = self.tasks.join_next() => match ended {
                    Ok(result) => self.ended(&result),
                    Err(e) => stderr::line(format_args!("a check was not ended: {e}")),
                },
                Some(Ok(found)) = self.listing.join_next() => self.listed(found),
                () = self.out.written(), if self.out.unread() > 0 => {}
                signal = signals.next() => match signal {
                    Word::Reload => self.reload(options),
                    Word::End => return,
                },
                () = sleep_until(wake) => {}
            }
        }
    }

    /// Each check once, as soon as there is room. False: a signal came first.
    async fn each_once(&mut self) -> bool {
        let Ok(mut signals) = Signals::new() else {
            return false;
        };
        let mut queue: VecDeque<Target> = self.wanted().into_keys().collect();
        loop {
            while self.tasks.len() < MAX_RUNNING && self.out.unread() <= MAX_UNREAD {
                let Some(target) = queue.pop_front() else { break };
                self.begin(target);
            }
            if queue.is_empty() && self.tasks.is_empty() {
                return true;
            }
            let wake = self.wake();
            tokio::select! {
                Some(Ok(result)) = self.tasks.join_next() => self.ended(&result),
                () = self.out.written(), if self.out.unread() > 0 => {}
                _ = signals.next() => return false,
                () = sleep_until(wake) => {}
            }
            self.write_textfile();
        }
    }

    /// When there is something to do, if nothing happens before.
    fn wake(&mut self) -> Instant {
        let at = Instant::now();
        let mut wake = at + CLOCK;
        if self.listing.is_empty() {
            wake = wake.min(self.list_at);
        }
        wake = self.textfile_at.map_or(wake, |time| wake.min(time));
        if let Some(commands) = &mut self.commands {
            commands.write();
            if commands.is_waiting() {
                wake = wake.min(at + RETRY);
            }
        }
        // Without room the end of a check is what is waited for.
        if self.tasks.len() < MAX_RUNNING
            && let Some(next) = self.schedule.next()
        {
            wake = wake.min(at + Duration::from_millis(next.saturating_sub(now())));
        }
        wake
    }

    fn begin_due(&mut self) {
        let at = Instant::now();
        if self.listing.is_empty() && at >= self.list_at {
            self.list_at = at + LIST_INTERVAL;
            let (home, selectors) = (self.home.clone(), self.selectors());
            self.listing.spawn_local(async move {
                let late = || {
                    ClientError::Unreachable("the list of nodes".to_owned(), "no answer in time".to_owned())
                };
                timeout(LIST_TIME, list::ask(home, selectors))
                    .await
                    .unwrap_or_else(|_| Err(late()))
            });
        }
        let due = self
            .schedule
            .due(now(), MAX_RUNNING - self.tasks.len().min(MAX_RUNNING));
        for target in due.begin {
            self.begin(Target::clone(&target));
        }
        if due.skipped > 0 {
            self.counts.skipped += due.skipped;
            self.results.borrow_mut().count(self.counts);
        }
    }

    fn begin(&mut self, target: Target) {
        let Some(service) = self.file.services.get(&target.service).cloned() else {
            return self.schedule.ended(&target);
        };
        let runner = self.runner.clone();
        self.tasks
            .spawn_local(async move { runner.run(target, service.options).await });
    }

    fn ended(&mut self, result: &CheckResult) {
        self.schedule.ended(&result.target);
        let service = self.file.services.get(&result.target.service);
        let thresholds = match service {
            Some(service) if !self.is_once => service.thresholds,
            _ => Thresholds::ONE,
        };
        let Some(status) = self.results.borrow_mut().add(result, thresholds) else {
            return;
        };
        self.is_all_ok &= result.raw_state == State::Ok;
        if self.textfile.is_some() {
            let rest = self.textfile_rest;
            self.textfile_at.get_or_insert_with(|| rest.max(Instant::now()));
        }
        if let Some(commands) = &mut self.commands
            && let Some(line) = passive::line(result, &status)
        {
            commands.put(line);
            self.counts.dropped = commands.dropped();
            self.results.borrow_mut().count(self.counts);
        }
        let text = (self.report)(result, &status);
        if self.out.unread() <= MAX_UNREAD {
            self.out.put(text);
        } else if !std::mem::replace(&mut self.has_complained, true) {
            stderr::line(
                "nobody reads standard output: results are not written there until that has changed",
            );
        }
        self.has_complained &= self.out.unread() > 0;
    }

    /// The proxy has said which nodes there are, or has not.
    fn listed(&mut self, found: Result<Found, ClientError>) {
        match found {
            Ok(found) => {
                self.list_error = None;
                self.counts.listed = now() / 1000;
                self.results.borrow_mut().count(self.counts);
                let unmatched = found.iter().filter(|(_, nodes)| nodes.is_empty());
                let unmatched: BTreeSet<String> = unmatched.map(|(selector, _)| selector.clone()).collect();
                for selector in unmatched.difference(&self.unmatched) {
                    stderr::line(ClientError::NothingMatches(selector.clone()));
                }
                self.unmatched = unmatched;
                self.lists.take(found);
                self.retarget();
            }
            Err(error) => {
                let error = error.to_string();
                if self.list_error.as_ref() != Some(&error) {
                    stderr::line(format_args!("the list of nodes stays as it was: {error}"));
                }
                self.list_error = Some(error);
            }
        }
    }

    fn reload(&mut self, options: &ServeOptions) {
        match ChecksFile::load(&options.file) {
            Ok(file) => {
                self.file = file;
                self.list_at = Instant::now();
                self.listing.abort_all();
                self.listing = JoinSet::new();
                self.retarget();
                stderr::line(format_args!("{}: read anew", options.file.display()));
            }
            Err(error) => stderr::line(format_args!("{error}; the checks stay as they were")),
        }
    }

    fn retarget(&mut self) {
        let wanted = self.wanted();
        self.results.borrow_mut().set(&wanted);
        self.schedule.set(&wanted, now());
    }

    fn selectors(&self) -> BTreeSet<String> {
        self.file
            .services
            .values()
            .flat_map(|service| service.on.iter().cloned())
            .collect()
    }

    /// What is to be checked, and when.
    fn wanted(&self) -> BTreeMap<Target, Turns> {
        let milliseconds = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let mut wanted = BTreeMap::new();
        for (name, service) in &self.file.services {
            let turns = Turns {
                interval: milliseconds(service.interval),
                delay: milliseconds(service.initial_delay),
            };
            for node in service.on.iter().flat_map(|selector| self.lists.nodes(selector)) {
                if wanted.len() == MAX_TARGETS {
                    stderr::line(format_args!(
                        "there are more than {MAX_TARGETS} checks: the rest is left out; divide them among several users"
                    ));
                    return wanted;
                }
                let target = Target {
                    node: node.clone(),
                    service: name.clone(),
                };
                wanted.insert(target, turns);
            }
        }
        wanted
    }

    fn write_textfile(&mut self) {
        if let Some(textfile) = &mut self.textfile
            && self.textfile_at.is_some_and(|at| at <= Instant::now())
        {
            textfile.write(&self.results.borrow_mut().page());
            self.textfile_at = None;
            self.textfile_rest = Instant::now() + TEXTFILE_INTERVAL;
        }
    }

    /// Writes what is left. Nobody is waited for long.
    async fn last_words(&mut self) {
        let end = Instant::now() + LAST_WORDS;
        if let Some(textfile) = &mut self.textfile
            && self.textfile_at.is_some()
        {
            textfile.write(&self.results.borrow_mut().page());
        }
        while let Some(commands) = &mut self.commands
            && commands.is_waiting()
            && Instant::now() < end
        {
            tokio::time::sleep(RETRY).await;
            commands.write();
        }
        while self.out.unread() > 0 && timeout(LAST_WORDS, self.out.written()).await.is_ok() {}
    }
}

/// What a signal asks for.
enum Word {
    End,
    Reload,
}

/// The signals of a service manager and of a terminal.
struct Signals {
    hangup: Signal,
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    fn new() -> io::Result<Signals> {
        Ok(Signals {
            hangup: signal(SignalKind::hangup())?,
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    async fn next(&mut self) -> Word {
        tokio::select! {
            _ = self.hangup.recv() => Word::Reload,
            _ = self.terminate.recv() => Word::End,
            _ = self.interrupt.recv() => Word::End,
        }
    }
}

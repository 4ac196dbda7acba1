//! One command on many nodes, by one process with one connection to the proxy. Each node that runs has a task, all on one
//! thread. Results go to a [`Report`], and its text is written without waiting for the reader.

mod groups;
mod limit;
mod names;
mod node;
mod result;

pub use crate::ssh::capture::{Cut, MAX_OUTPUT, Output};
pub use groups::{Group, Groups};
pub use limit::FailLimit;
pub use names::fold;
pub use result::{End, Leftover, NodeResult, Tally};

use crate::connect;
use crate::error::ClientError;
use crate::profile::{Home, Profile};
use crate::ssh::capture::{MAX_ALL, Room};
use crate::standard_output::{MAX_UNREAD, Out};
use crate::timings::Timings;
use crate::transport::Proxy;
use node::{Job, Outcome};
use std::collections::{BTreeSet, VecDeque};
use std::io;
use std::rc::Rc;
use std::time::Duration;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;
use tokio::task::{JoinSet, LocalSet};
use tokio::time::{Instant, MissedTickBehavior, sleep};

/// On so many nodes at a time, unless told otherwise.
pub const BATCH: usize = 100;
/// At most: a proxy has room for 1,024 streams on a connection.
pub const MAX_BATCH: usize = 1000;
/// How long a proxy that went away has to come back, and how often it is looked for.
const RESTART: Duration = Duration::from_secs(10);
const RETRY: Duration = Duration::from_millis(300);
/// How often a report is asked for a line about how far it is.
const PROGRESS: Duration = Duration::from_millis(200);

/// What a run does.
pub struct RunOptions {
    /// The nodes: those of any of these.
    pub selectors: Vec<String>,
    /// The account; none: the login's own.
    pub login: Option<String>,
    /// What a shell on the node is given.
    pub command: Vec<u8>,
    /// On so many nodes at a time.
    pub batch: usize,
    /// After so many failures nothing more is begun.
    pub fail: FailLimit,
    /// How long a node has, its connection too.
    pub timeout: Option<Duration>,
}

/// Receives results and progress of a run.
pub trait Report {
    /// A node is done. Returns what is to be written to standard output at once.
    fn ended(&mut self, result: NodeResult) -> Option<String>;
    /// How far the run is, a few times a second and at each end of a node.
    fn progress(&mut self, tally: &Tally, running: usize);
    /// A sentence for people.
    fn note(&mut self, words: &str);
    /// The run is over. Returns the last text to write.
    fn over(&mut self, tally: &Tally) -> Option<String>;
}

/// The end of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunEnd {
    /// In numbers.
    pub tally: Tally,
    /// The signal that cancelled it.
    pub signal: Option<i32>,
    /// Standard output took not all of it.
    pub is_unread: bool,
}

/// Runs the command on all nodes.
pub fn run(home: &Home, options: RunOptions, report: &mut dyn Report) -> Result<RunEnd, ClientError> {
    connect::run(async { LocalSet::new().run_until(run_all(home, options, report)).await })
}

async fn run_all(home: &Home, options: RunOptions, report: &mut dyn Report) -> Result<RunEnd, ClientError> {
    let profile = home.login()?;
    let mut signals =
        Signals::new().map_err(|e| ClientError::Unreachable("signals".to_owned(), e.to_string()))?;
    let begin = async {
        let proxy = proxy(home, &profile).await?;
        let nodes = nodes(&proxy, &options.selectors).await?;
        Ok::<_, ClientError>((proxy, nodes))
    };
    let (proxy, nodes) = tokio::select! {
        begun = begin => begun?,
        // Nothing was asked for.
        signal = signals.next() => {
            return Ok(RunEnd {
                tally: Tally::default(),
                signal: Some(signal),
                is_unread: false,
            });
        }
    };
    let (cancel, _) = watch::channel(false);
    let mut run = Run {
        home,
        job: Rc::new(Job {
            home: home.clone(),
            login: options.login.clone().unwrap_or_else(|| profile.account(None)),
            command: options.command.clone(),
            timeout: options.timeout,
            room: Room::new(MAX_ALL),
        }),
        proxy,
        profile,
        tally: Tally {
            nodes: nodes.len(),
            ..Tally::default()
        },
        enough: options.fail.of(nodes.len()),
        batch: options.batch.clamp(1, MAX_BATCH),
        queue: nodes.into(),
        again: BTreeSet::new(),
        tasks: JoinSet::new(),
        cancel,
        signal: None,
        out: Out::open(),
        why_not: None,
    };
    run.turns(&mut signals, report).await;
    Ok(RunEnd {
        tally: run.tally,
        signal: run.signal,
        is_unread: run.out.is_gone,
    })
}

async fn proxy(home: &Home, profile: &Profile) -> Result<Proxy, ClientError> {
    let (believe, credentials) = (connect::believe(home)?, connect::credentials(home)?);
    Proxy::connect(
        &profile.proxy,
        &believe,
        &credentials,
        None,
        &mut Timings::default(),
    )
    .await
}

/// The same, of a proxy that was there a moment ago: it is given time to start again.
async fn proxy_again(home: &Home, profile: &Profile) -> Result<Proxy, ClientError> {
    let until = Instant::now() + RESTART;
    loop {
        match proxy(home, profile).await {
            Err(ClientError::Unreachable(..)) if Instant::now() < until => sleep(RETRY).await,
            other => return other,
        }
    }
}

/// The names of all nodes that the selectors mean, each once.
async fn nodes(proxy: &Proxy, selectors: &[String]) -> Result<Vec<String>, ClientError> {
    let mut names = BTreeSet::new();
    for selector in selectors {
        let found = proxy.nodes(selector, &mut Timings::default()).await?;
        if found.is_empty() {
            return Err(ClientError::NothingMatches(selector.clone()));
        }
        names.extend(found.into_iter().map(|node| node.name));
    }
    Ok(names.into_iter().collect())
}

/// A run, from the first node to the last.
struct Run<'a> {
    home: &'a Home,
    profile: Profile,
    job: Rc<Job>,
    proxy: Proxy,
    tally: Tally,
    /// So many failures are enough.
    enough: Option<usize>,
    batch: usize,
    queue: VecDeque<String>,
    /// Nodes that are asked a second time.
    again: BTreeSet<String>,
    tasks: JoinSet<Outcome>,
    /// True: everything is to end.
    cancel: watch::Sender<bool>,
    signal: Option<i32>,
    out: Out,
    /// Why nothing more is begun.
    why_not: Option<String>,
}

impl Run<'_> {
    async fn turns(&mut self, signals: &mut Signals, report: &mut dyn Report) {
        let mut tick = tokio::time::interval(PROGRESS);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            // No node is begun meanwhile, and no result is taken.
            let behind = self.out.unread() > MAX_UNREAD;
            if !behind && !self.begin_nodes(signals, report).await {
                return;
            }
            report.progress(&self.tally, self.tasks.len());
            if self.tasks.is_empty() && (self.queue.is_empty() || self.why_not.is_some()) {
                break;
            }
            tokio::select! {
                // A task ends by itself: nothing aborts one, and a panic ends the process.
                Some(Ok(outcome)) = self.tasks.join_next(), if !behind => self.ended(outcome, report),
                () = self.out.written(), if self.out.unread() > 0 => {}
                signal = signals.next() => if !self.cancelled(signal, report) { return },
                _ = tick.tick() => {}
            }
            if self.out.is_gone && !*self.cancel.borrow() {
                self.cancelled_for("nobody reads what it says");
            }
        }
        let why = self.why_not.take().unwrap_or_default();
        for node in std::mem::take(&mut self.queue) {
            let end = End::NotBegun(why.clone());
            self.tell(NodeResult::without_output(node, end, &self.job.room), report);
        }
        let last = report.over(&self.tally);
        self.out.put(last);
        while self.out.unread() > 0 && !self.out.is_gone {
            tokio::select! {
                () = self.out.written() => {}
                signal = signals.next() => if !self.cancelled(signal, report) { return },
            }
        }
    }

    /// As many as there is room for. False: this process ends.
    async fn begin_nodes(&mut self, signals: &mut Signals, report: &mut dyn Report) -> bool {
        while self.tasks.len() < self.batch && self.why_not.is_none() {
            if self.queue.is_empty() {
                return true;
            }
            // A proxy that drains goes on with what it has, and its successor takes what is new. Where none comes nobody else is
            // asked: each would take as long to fail.
            if !self.proxy.takes_requests() {
                tokio::select! {
                    another = proxy_again(self.home, &self.profile) => match another {
                        Ok(another) => self.proxy = another,
                        Err(error) => self.why_not = Some(error.to_string()),
                    },
                    signal = signals.next() => if !self.cancelled(signal, report) { return false },
                }
                continue;
            }
            let Some(node) = self.queue.pop_front() else {
                return true;
            };
            let cancel = self.cancel.subscribe();
            self.tasks
                .spawn_local(node::run(self.job.clone(), self.proxy.clone(), node, cancel));
        }
        true
    }

    fn ended(&mut self, outcome: Outcome, report: &mut dyn Report) {
        match outcome {
            Outcome::Again(node, _) if self.why_not.is_none() && self.again.insert(node.clone()) => {
                self.queue.push_back(node);
            }
            Outcome::Again(_, result) | Outcome::Done(result) => self.tell(result, report),
        }
        let failures = self.tally.failures();
        if self.enough.is_some_and(|enough| failures >= enough) && self.why_not.is_none() {
            self.why_not = Some(format!("{failures} of {} nodes failed", self.tally.nodes));
        }
    }

    fn tell(&mut self, result: NodeResult, report: &mut dyn Report) {
        self.tally.add(&result.end);
        let text = report.ended(result);
        self.out.put(text);
    }

    /// A signal came. False: it is the second one, and this process ends.
    fn cancelled(&mut self, signal: i32, report: &mut dyn Report) -> bool {
        let is_first = self.signal.replace(signal).is_none();
        if is_first {
            self.cancelled_for("the run was cancelled");
            if !self.tasks.is_empty() {
                report.note(&format!(
                    "cancelled: the command is ended on the nodes that run it, {}; again: without waiting for them",
                    self.tasks.len()
                ));
            }
        }
        is_first
    }

    fn cancelled_for(&mut self, why: &str) {
        self.cancel.send_replace(true);
        self.why_not.get_or_insert_with(|| why.to_owned());
    }
}

/// Signals that cancel a run.
struct Signals(Vec<(Signal, i32)>);

impl Signals {
    fn new() -> io::Result<Signals> {
        let kinds = [
            SignalKind::interrupt(),
            SignalKind::terminate(),
            SignalKind::hangup(),
        ];
        let each = kinds.map(|kind| Ok((signal(kind)?, kind.as_raw_value())));
        each.into_iter().collect::<io::Result<_>>().map(Signals)
    }

    async fn next(&mut self) -> i32 {
        std::future::poll_fn(|cx| {
            for (signal, number) in &mut self.0 {
                if signal.poll_recv(cx).is_ready() {
                    return std::task::Poll::Ready(*number);
                }
            }
            std::task::Poll::Pending
        })
        .await
    }
}

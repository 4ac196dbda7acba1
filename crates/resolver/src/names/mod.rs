//! Questions about names: who asks what, what is known, who is looking it up, and until when.
//!
//! Everything here runs in the broker and blocks nowhere. `lookup` alone calls the name services, in a worker.

mod cache;
mod clients;
mod lookup;
mod workers;

use crate::stamp::Stamps;
use cache::Cache;
use clients::Clients;
use fleetgate_sys::poll::Watch;
use fleetgate_sys::{Fd, clock};
use fleetgate_wire::names::{About, Answer, Found, MAX_DEADLINE_MS, MAX_IDS, MAX_NAME, Question};
use std::path::PathBuf;
use workers::Workers;

/// A moment of the boot clock, in nanoseconds.
type Nanos = i64;
const MS: Nanos = 1_000_000;

/// The most different questions that are being looked up or wait for a worker.
const MAX_JOBS: usize = 1024;
/// The most workers that one asking side occupies; with [`workers::MAX_WORKERS`] of 16 nobody stalls the others.
const MAX_BUSY_PER_CLIENT: usize = 4;
/// The most workers that look up hosts: names of users are asked for at every login, and DNS may be down.
const MAX_BUSY_WITH_HOSTS: usize = 8;
/// A worker is not killed before this, however short the deadline: killing costs more than waiting.
const MIN_RUN: Nanos = 1000 * MS;

/// What the answers depend on; a change drops the cache and the workers that have read the old files.
const FILES: [&str; 7] = [
    "/etc/passwd",
    "/etc/group",
    "/etc/shadow",
    "/etc/nsswitch.conf",
    "/etc/hosts",
    "/etc/resolv.conf",
    "/etc/gai.conf",
];

/// One question being looked up, with everybody who asked it.
struct Job {
    number: u32,
    key: Vec<u8>,
    about: About,
    /// The state of [`FILES`] it was asked in.
    epoch: u64,
    /// Whose worker it counts as.
    owner: u64,
    waiters: Vec<Waiter>,
    /// Since when a worker is at it, and until when it may be.
    running: Option<(Nanos, Nanos)>,
}

struct Waiter {
    client: u64,
    id: u32,
    deadline: Nanos,
}

/// All of it.
pub struct Names {
    clients: Clients,
    workers: Workers,
    cache: Cache,
    jobs: Vec<Job>,
    files: Stamps,
    epoch: u64,
    next_job: u32,
}

impl Names {
    /// Nobody asks yet. `selinux_required`: no SELinux is an error.
    pub fn new(selinux_required: bool) -> Names {
        Names {
            clients: Clients::default(),
            workers: Workers::new(selinux_required),
            cache: Cache::default(),
            jobs: Vec::new(),
            files: Stamps::of(FILES.iter().map(PathBuf::from)),
            epoch: 0,
            next_job: 0,
        }
    }

    /// Serves `socket` too.
    pub fn attach(&mut self, socket: Fd) {
        self.clients.add(socket);
    }

    /// Whether anybody may still ask.
    pub fn is_idle(&self) -> bool {
        self.clients.is_empty()
    }

    /// Adds what is to be waited for.
    pub fn watch(&self, watches: &mut Vec<Watch>) {
        self.clients.watch(watches);
        self.workers.watch(watches);
    }

    /// The next moment at which something is due without any descriptor's news.
    pub fn due(&self) -> Option<Nanos> {
        let waiters = self.jobs.iter().flat_map(|j| &j.waiters).map(|w| w.deadline);
        let running = self.jobs.iter().filter_map(|j| Some(j.running?.1));
        waiters.chain(running).chain(self.workers.due()).min()
    }

    /// Acts on what [`Names::watch`] brought, and on what is due.
    pub fn turn(&mut self, ready: &[Watch]) {
        let now = clock::boot().as_nanos();
        for (number, found) in self.workers.collect(ready, now) {
            self.finish(number, found, now);
        }
        let (questions, gone) = self.clients.collect(ready);
        for client in gone {
            self.forget(client);
        }
        if !questions.is_empty() && self.files.changed() {
            self.epoch += 1;
            self.cache.clear();
            self.workers.retire();
        }
        for (client, question) in questions {
            self.ask(client, question, now);
        }
        self.expire(now);
        self.start(now);
        self.workers.rest(now);
    }

    fn ask(&mut self, client: u64, question: Question, now: Nanos) {
        let id = question.id;
        if let Err(found) = check(&question.about) {
            return self.clients.answer(client, &Answer { id, found });
        }
        let key = fleetgate_wire::encode(&question.about);
        if let Some(found) = self.cache.get(&key, now) {
            let found = found.clone();
            return self.clients.answer(client, &Answer { id, found });
        }
        let ms = match question.deadline_ms {
            0 => MAX_DEADLINE_MS,
            ms => ms.min(MAX_DEADLINE_MS),
        };
        let deadline = now + Nanos::from(ms) * MS;
        let waiter = Waiter { client, id, deadline };
        let epoch = self.epoch;
        if let Some(job) = self.jobs.iter_mut().find(|j| j.epoch == epoch && j.key == key) {
            if let Some((since, until)) = &mut job.running {
                // A later asker may wait longer, but a hung look-up is not kept alive by askers that keep coming.
                *until = deadline
                    .max(*until)
                    .min(*since + Nanos::from(MAX_DEADLINE_MS) * MS);
            }
            job.waiters.push(waiter);
            return;
        }
        if self.jobs.len() >= MAX_JOBS {
            let found = failed("too many questions wait for the name service");
            return self.clients.answer(client, &Answer { id, found });
        }
        self.next_job = self.next_job.wrapping_add(1);
        self.jobs.push(Job {
            number: self.next_job,
            key,
            about: question.about,
            epoch,
            owner: client,
            waiters: vec![waiter],
            running: None,
        });
    }

    /// A worker has answered, or died (`Failed`).
    fn finish(&mut self, number: u32, found: Found, now: Nanos) {
        let Some(at) = self.jobs.iter().position(|j| j.number == number) else {
            return;
        };
        let job = self.jobs.remove(at);
        if job.epoch == self.epoch {
            self.cache.put(job.key, &found, now);
        }
        for waiter in job.waiters {
            let found = found.clone();
            self.clients
                .answer(waiter.client, &Answer { id: waiter.id, found });
        }
    }

    fn forget(&mut self, client: u64) {
        for job in &mut self.jobs {
            job.waiters.retain(|w| w.client != client);
        }
        self.jobs.retain(|j| j.running.is_some() || !j.waiters.is_empty());
    }

    /// Tells those whose time is up, and kills the workers whose time is up.
    fn expire(&mut self, now: Nanos) {
        for job in &mut self.jobs {
            job.waiters.retain(|w| {
                let over = w.deadline <= now;
                if over {
                    let found = Found::TimedOut;
                    self.clients.answer(w.client, &Answer { id: w.id, found });
                }
                !over
            });
            if job.running.is_some_and(|(_, until)| until <= now) {
                crate::log(format_args!(
                    "a look-up is over its deadline, its worker is replaced: {}",
                    describe(&job.about)
                ));
                self.workers.kill(job.number);
                job.running = None;
            }
        }
        self.jobs.retain(|j| j.running.is_some() || !j.waiters.is_empty());
    }

    /// Gives jobs to workers: of those that may run, first the one whose owner has the fewest running.
    fn start(&mut self, now: Nanos) {
        while self.workers.has_room() {
            let running = |owner: u64| {
                let mine = |j: &&Job| j.owner == owner && j.running.is_some();
                self.jobs.iter().filter(mine).count()
            };
            let is_host = |j: &Job| matches!(j.about, About::Host { .. });
            let hosts = self
                .jobs
                .iter()
                .filter(|j| j.running.is_some() && is_host(j))
                .count();
            let next = self
                .jobs
                .iter()
                .enumerate()
                .filter(|(_, j)| j.running.is_none() && !(is_host(j) && hosts >= MAX_BUSY_WITH_HOSTS))
                .map(|(at, j)| (running(j.owner), at))
                .filter(|(busy, _)| *busy < MAX_BUSY_PER_CLIENT)
                .min();
            let Some((_, at)) = next else { return };
            let job = &mut self.jobs[at];
            let latest = job.waiters.iter().map(|w| w.deadline).max().unwrap_or(now);
            let question = Question {
                id: job.number,
                deadline_ms: 0,
                about: job.about.clone(),
            };
            match self.workers.give(&question) {
                Ok(()) => job.running = Some((now, latest.max(now + MIN_RUN))),
                Err(e) => {
                    let number = job.number;
                    self.finish(number, failed(&format!("no process for the look-up: {e}")), now);
                }
            }
        }
    }
}

/// What can be answered without asking anybody: names that no account or host has, lists beyond their bound.
#[doc(hidden)]
pub fn check(about: &About) -> Result<(), Found> {
    let good = |name: &std::ffi::CStr, forbidden: &[u8]| {
        let name = name.to_bytes();
        !name.is_empty()
            && name.len() <= MAX_NAME
            && !name.iter().any(|b| b.is_ascii_control() || forbidden.contains(b))
    };
    let fine = match about {
        // Modules build file lines, paths and queries of names: none of these is ever part of one.
        About::User { name } | About::Group { name } | About::Context { user: name } => good(name, b":/"),
        About::Host { name, .. } => good(name, b" /"),
        About::UserById { .. } => true,
        About::Names { uids, gids } => {
            if uids.len() + gids.len() > MAX_IDS {
                return Err(failed("more ids in one question than it may have"));
            }
            true
        }
    };
    if fine { Ok(()) } else { Err(Found::Unknown) }
}

fn failed(why: &str) -> Found {
    Found::Failed {
        why: std::ffi::CString::new(why).unwrap_or_default(),
    }
}

/// The question in words. Names come from outside: shown escaped.
fn describe(about: &About) -> String {
    match about {
        About::User { name } => format!("user {name:?}"),
        About::UserById { uid } => format!("user number {uid}"),
        About::Names { uids, gids } => format!("names of {} users and {} groups", uids.len(), gids.len()),
        About::Group { name } => format!("group {name:?}"),
        About::Host { name, .. } => format!("host {name:?}"),
        About::Context { user } => format!("SELinux context of {user:?}"),
    }
}

//! Launching away from the caller: a bounded queue, a few threads, completions.
//!
//! Why threads: between clone and exec the launching thread stands still, and endpoint security may hold up an
//! exec for as long as it likes. One such exec holds up one thread; another thread is started when work waits
//! and none is idle. A watchdog ends a helper whose exec is held up beyond its deadline, which its own thread
//! cannot do.

use crate::{Begun, Launch, LaunchError, Launcher, RunningHelper};
use fleetgate_seal::FallbackChain;
use fleetgate_sys::spawn::InFlight;
use fleetgate_sys::{Errno, Fd, epoll};
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// What a launch came to.
pub type LaunchOutcome = Result<(RunningHelper, Begun), LaunchError>;

/// How many threads and waiting launches there may be.
#[derive(Clone, Copy, Debug)]
pub struct Threads {
    /// The most threads: so many execs may be held up at once before others wait.
    pub most: usize,
    /// The most launches that wait for a thread; one more is refused.
    pub queue: usize,
    /// How long a thread beyond the first stays without work.
    pub idle: Duration,
}

impl Default for Threads {
    fn default() -> Threads {
        Threads {
            most: 32,
            queue: 1024,
            idle: Duration::from_secs(10),
        }
    }
}

/// The launch threads. Dropping it refuses what waits and ends what is held up.
pub struct LaunchThreads {
    shared: Arc<Shared>,
}

struct Shared {
    chain: Arc<FallbackChain>,
    bounds: Threads,
    state: Mutex<State>,
    /// Work came, or the end.
    work: Condvar,
    /// The watchdog has something to watch, or the end.
    watch: Condvar,
}

#[derive(Default)]
struct State {
    queue: VecDeque<Job>,
    threads: usize,
    idle: usize,
    running: Vec<WatchEntry>,
    next: u64,
    /// When the watchdog wakes by itself; none: not at all.
    wakes_at: Option<Instant>,
    stopping: bool,
}

struct Job {
    launch: Launch,
    done: Box<dyn FnOnce(LaunchOutcome) + Send>,
}

struct WatchEntry {
    id: u64,
    deadline: Instant,
    helper: Arc<InFlight>,
}

/// How often the watchdog looks again at an overdue launch.
const OVERDUE: Duration = Duration::from_millis(50);

impl LaunchThreads {
    /// Starts the first thread and the watchdog.
    pub fn new(chain: Arc<FallbackChain>, bounds: Threads) -> Result<LaunchThreads, LaunchError> {
        let shared = Arc::new(Shared {
            chain,
            bounds,
            state: Mutex::default(),
            work: Condvar::new(),
            watch: Condvar::new(),
        });
        let this = LaunchThreads {
            shared: shared.clone(),
        };
        start_thread("launch-watch", {
            let shared = shared.clone();
            move || shared.watchdog()
        })?;
        let mut state = shared.lock();
        shared.grow(&mut state)?;
        drop(state);
        Ok(this)
    }

    /// Queues a launch. `done` is called on a launch thread and must not wait for anything.
    pub fn submit(
        &self,
        launch: Launch,
        done: impl FnOnce(LaunchOutcome) + Send + 'static,
    ) -> Result<(), LaunchError> {
        let shared = &self.shared;
        let mut state = shared.lock();
        let waiting = state.queue.len();
        if waiting >= shared.bounds.queue {
            return Err(LaunchError::Busy { waiting });
        }
        state.queue.push_back(Job {
            launch,
            done: Box::new(done),
        });
        if state.idle < state.queue.len() && state.threads < shared.bounds.most {
            // Without a new thread an old one takes it, later.
            if let Err(e) = shared.grow(&mut state) {
                tracing::warn!("a launch waits for a thread: {e}");
            }
        }
        drop(state);
        shared.work.notify_one();
        Ok(())
    }

    /// Launches and waits: for callers that have nothing else to do.
    pub fn launch(&self, launch: Launch) -> LaunchOutcome {
        let (send, receive) = std::sync::mpsc::sync_channel(1);
        self.submit(launch, move |outcome| {
            let _ = send.send(outcome);
        })?;
        receive.recv().unwrap_or(Err(LaunchError::Stopped))
    }
}

impl Drop for LaunchThreads {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        state.stopping = true;
        let refused: Vec<Job> = state.queue.drain(..).collect();
        for watched in &state.running {
            watched.helper.kill();
        }
        drop(state);
        self.shared.work.notify_all();
        self.shared.watch.notify_all();
        for job in refused {
            (job.done)(Err(LaunchError::Stopped));
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // A panic ends the whole process, so a poisoned lock is never seen.
        self.state.lock().expect("no panic is survived")
    }

    fn grow(self: &Arc<Shared>, state: &mut State) -> Result<(), LaunchError> {
        let launcher = Launcher::new(self.chain.clone())?;
        let shared = self.clone();
        start_thread("launch", move || shared.serve(launcher))?;
        state.threads += 1;
        Ok(())
    }

    /// One thread's life.
    fn serve(&self, mut launcher: Launcher) {
        let mut state = self.lock();
        loop {
            if state.stopping {
                break;
            }
            let Some(job) = state.queue.pop_front() else {
                state.idle += 1;
                let (woken, timeout) = self
                    .work
                    .wait_timeout(state, self.bounds.idle)
                    .expect("no panic is survived");
                state = woken;
                state.idle -= 1;
                if timeout.timed_out() && state.queue.is_empty() && state.threads > 1 {
                    break;
                }
                continue;
            };
            let id = state.next;
            state.next += 1;
            let deadline = Instant::now() + job.launch.deadline;
            state.running.push(WatchEntry {
                id,
                deadline,
                helper: launcher.in_flight(),
            });
            let wake = state.wakes_at.is_none_or(|at| deadline < at);
            drop(state);
            if wake {
                self.watch.notify_one();
            }
            let outcome = launcher.launch(job.launch);
            state = self.lock();
            state.running.retain(|watched| watched.id != id);
            drop(state);
            (job.done)(outcome);
            state = self.lock();
        }
        state.threads -= 1;
    }

    /// The watchdog's life. It is woken when there is something to watch after nothing was; then it sleeps until
    /// the first deadline, whether or not that launch is done by then, so a busy server wakes it rarely.
    fn watchdog(&self) {
        let mut state = self.lock();
        while !state.stopping {
            let now = Instant::now();
            for watched in state.running.iter().filter(|w| w.deadline <= now) {
                watched.helper.kill();
            }
            let next = state.running.iter().map(|w| w.deadline).min();
            state.wakes_at = next;
            state = match next {
                None => self.watch.wait(state).expect("no panic is survived"),
                Some(at) => {
                    let wait = at.saturating_duration_since(now).max(OVERDUE);
                    self.watch
                        .wait_timeout(state, wait)
                        .expect("no panic is survived")
                        .0
                }
            };
        }
    }
}

fn start_thread(name: &str, run: impl FnOnce() + Send + 'static) -> Result<(), LaunchError> {
    std::thread::Builder::new()
        .name(name.to_owned())
        .stack_size(256 << 10)
        .spawn(run)
        .map(drop)
        .map_err(|e| LaunchError::system("starting a launch thread")(Errno::from(e)))
}

/// Outcomes for a caller that waits with poll or epoll: a descriptor that is readable while there are any.
pub struct Completions<T = LaunchOutcome> {
    bell: Fd,
    done: Mutex<VecDeque<(u64, T)>>,
}

impl<T: Send + 'static> Completions<T> {
    /// An empty list with its descriptor.
    pub fn new() -> Result<Arc<Completions<T>>, LaunchError> {
        Ok(Arc::new(Completions {
            bell: epoll::bell().map_err(LaunchError::system("making an eventfd"))?,
            done: Mutex::default(),
        }))
    }

    /// What to hand to [`LaunchThreads::submit`]: the outcome is filed under `token`.
    pub fn file(self: &Arc<Completions<T>>, token: u64) -> impl FnOnce(T) + Send + 'static + use<T> {
        let this = self.clone();
        move |outcome| {
            let mut done = this.done.lock().expect("no panic is survived");
            done.push_back((token, outcome));
            drop(done);
            epoll::ring(&this.bell);
        }
    }

    /// The descriptor to wait for.
    pub fn bell(&self) -> &Fd {
        &self.bell
    }

    /// All outcomes so far, oldest first.
    pub fn take(&self) -> VecDeque<(u64, T)> {
        epoll::quiet(&self.bell);
        std::mem::take(&mut self.done.lock().expect("no panic is survived"))
    }
}

//! Containers of this machine, for those who log in as `ACCOUNT+CONTAINER`: which run, and launches in them. Each is a thread of
//! its own: finding a container reads files, and a hostile container can delay a launch until its deadline. No login waits for
//! either.
//!
//! The images are opened with the first of them: a node that enters no container has none in memory.

use super::late_chain::{LateChain, named};
use fleetgate_containers::{ContainerRecord, Overrides, SearchPaths, find, list, open};
use fleetgate_launch::{Completions, Launch, LaunchError, LaunchOutcome, Launcher};
use fleetgate_seal::{Options, Source};
use fleetgate_sys::Fd;
use fleetgate_wire::common::Account;
use fleetgate_wire::container::Window;
use fleetgate_wire::node::ConnectionNumber;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Arc, Mutex};

/// The most launches and looks at a time, each of which has a thread for that long; and of them in one container, whose root can
/// hold up who enters.
const MAX_THREADS: usize = 32;
const MAX_OF_ONE: usize = 8;
/// Where those count that look at all containers: no container has this name.
const ALL: &str = "";

/// What they are launched from.
pub struct Containers {
    shared: Arc<Shared>,
    seen: Arc<Completions<Seen>>,
}

/// What was seen, and the account of the login that it was looked at for.
pub type Seen = (Account, Vec<ContainerRecord>);

struct Shared {
    under_way: Mutex<HashMap<String, usize>>,
    images: Mutex<LateChain>,
}

/// Which container a launch is to be in.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The name or id that was asked for.
    pub name: String,
    /// The labels by which roles let somebody in; none: no role looks at them. A container that has others is not entered.
    pub labels: Option<Arc<BTreeMap<String, String>>>,
    /// The terminal's size and modes.
    pub window: Window,
}

impl Containers {
    /// Of the program `source`.
    pub fn new(source: Source) -> Result<Containers, LaunchError> {
        let options = Options {
            container: true,
            ..named(c"fleetgate-enter")
        };
        Ok(Containers {
            shared: Arc::new(Shared {
                under_way: Mutex::default(),
                images: Mutex::new(LateChain::new(source, options)),
            }),
            seen: Completions::new()?,
        })
    }

    /// Launches in a container; `done` is called on the thread.
    pub fn begin(
        &self,
        entry: Entry,
        launch: Launch,
        done: impl FnOnce(LaunchOutcome) + Send + 'static,
    ) -> Result<(), LaunchError> {
        let name = entry.name.clone();
        self.shared
            .on_thread(&name, move |shared| shared.launch(entry, launch), done)
    }

    /// Looks which containers run, for this connection and its account.
    pub fn look(&self, connection: ConnectionNumber, account: Account) -> Result<(), LaunchError> {
        let done = self.seen.file(connection);
        self.shared
            .on_thread(ALL, |_| (account, list(&SearchPaths::default())), done)
    }

    /// Readable when somebody has looked.
    pub fn bell(&self) -> &Fd {
        self.seen.bell()
    }

    /// For which connections, and what was seen.
    pub fn take_seen(&self) -> VecDeque<(ConnectionNumber, Seen)> {
        self.seen.take()
    }
}

impl Shared {
    /// Does `work` on a thread that counts for `name`, and gives its result to `done` there.
    fn on_thread<T: 'static>(
        self: &Arc<Shared>,
        name: &str,
        work: impl FnOnce(&Shared) -> T + Send + 'static,
        done: impl FnOnce(T) + Send + 'static,
    ) -> Result<(), LaunchError> {
        self.begin(name)?;
        let (shared, own) = (self.clone(), name.to_owned());
        let thread = std::thread::Builder::new()
            .name("container".to_owned())
            .stack_size(256 << 10);
        let spawned = thread.spawn(move || {
            let outcome = work(&shared);
            shared.ended(&own);
            done(outcome);
        });
        spawned.map(drop).map_err(|e| {
            self.ended(name);
            LaunchError::Container(format!("no thread can be started: {e}"))
        })
    }

    /// Takes a place.
    fn begin(&self, name: &str) -> Result<(), LaunchError> {
        let mut under_way = self.under_way.lock().expect("no panic is survived");
        let waiting: usize = under_way.values().sum();
        let own = under_way.get(name).copied().unwrap_or(0);
        if waiting >= MAX_THREADS || own >= MAX_OF_ONE {
            return Err(LaunchError::Busy { waiting });
        }
        under_way.insert(name.to_owned(), own + 1);
        Ok(())
    }

    /// Gives it back.
    fn ended(&self, name: &str) {
        let mut under_way = self.under_way.lock().expect("no panic is survived");
        if let Some(own) = under_way.get_mut(name) {
            *own -= 1;
        }
        under_way.retain(|_, own| *own > 0);
    }

    fn launch(&self, entry: Entry, launch: Launch) -> LaunchOutcome {
        let failed = |e: fleetgate_containers::Error| LaunchError::Container(e.without_others().to_string());
        let found = find(&SearchPaths::default(), &entry.name).map_err(failed)?;
        // Another container may have the name since roles were asked about this one.
        if entry.labels.is_some_and(|labels| *labels != found.labels) {
            let name = &entry.name;
            return Err(LaunchError::Container(format!(
                "container {name}: it has been replaced by one with other labels: try again"
            )));
        }
        let opened = open(&found, &Overrides::default()).map_err(failed)?;
        let mut container = opened.container;
        container.window = entry.window;
        let launch = launch.entering(container, opened.first, opened.root, opened.cgroup);
        let chain = self.images.lock().expect("no panic is survived").chain();
        let launched = Launcher::new(chain.map_err(LaunchError::NoImage)?)?.launch(launch);
        launched.map(|(mut running, begun)| {
            running.container = Some(found.id);
            (running, begun)
        })
    }
}

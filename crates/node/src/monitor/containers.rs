//! Launches in containers of this machine, each on a thread of its own: finding a container reads files, and a hostile
//! container can delay a launch until its deadline. No login waits for either.
//!
//! The images are opened with the first of them: a node that enters no container has none in memory.

use super::late_chain::{LateChain, named};
use fleetgate_containers::{Overrides, SearchPaths, find, open};
use fleetgate_launch::{Launch, LaunchError, LaunchOutcome, Launcher};
use fleetgate_seal::{Options, Source};
use fleetgate_wire::container::Window;
use std::collections::HashMap;
use std::sync::{Arc, Mutex};

/// The most launches at a time, each of which has a thread for that long; and of them in one container, whose root can hold up
/// who enters.
const MAX_THREADS: usize = 32;
const MAX_OF_ONE: usize = 8;

/// What they are launched from.
pub struct Containers {
    shared: Arc<Shared>,
}

struct Shared {
    under_way: Mutex<HashMap<String, usize>>,
    images: Mutex<LateChain>,
}

impl Containers {
    /// Of the program `source`.
    pub fn new(source: Source) -> Containers {
        let options = Options {
            container: true,
            ..named(c"fleetgate-enter")
        };
        Containers {
            shared: Arc::new(Shared {
                under_way: Mutex::default(),
                images: Mutex::new(LateChain::new(source, options)),
            }),
        }
    }

    /// Launches in the container that `name` stands for; `done` is called on the thread.
    pub fn begin(
        &self,
        name: &str,
        window: Window,
        launch: Launch,
        done: impl FnOnce(LaunchOutcome) + Send + 'static,
    ) -> Result<(), LaunchError> {
        let shared = self.shared.clone();
        shared.begin(name)?;
        let (name, named) = (name.to_owned(), name.to_owned());
        let thread = std::thread::Builder::new()
            .name("container".to_owned())
            .stack_size(256 << 10);
        let spawned = thread.spawn({
            let shared = shared.clone();
            move || {
                let outcome = shared.launch(&name, window, launch);
                shared.ended(&name);
                done(outcome);
            }
        });
        spawned.map(drop).map_err(|e| {
            shared.ended(&named);
            LaunchError::Container(format!("no thread can be started: {e}"))
        })
    }
}

impl Shared {
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

    fn launch(&self, name: &str, window: Window, launch: Launch) -> LaunchOutcome {
        let failed = |e: fleetgate_containers::Error| LaunchError::Container(e.without_others().to_string());
        let found = find(&SearchPaths::default(), name).map_err(failed)?;
        let opened = open(&found, &Overrides::default()).map_err(failed)?;
        let mut container = opened.container;
        container.window = window;
        let launch = launch.entering(container, opened.first, opened.root, opened.cgroup);
        let chain = self.images.lock().expect("no panic is survived").chain();
        Launcher::new(chain.map_err(LaunchError::NoImage)?)?.launch(launch)
    }
}

//! Containers of this machine, for those who log in as `ACCOUNT+CONTAINER`: which run, and launches in them. Both are done on
//! threads: finding a container reads files, and a hostile container can delay a launch until its deadline. No login waits for
//! either. What finds no place waits in a queue; a container that delays its launches has a part of the threads and no more.
//!
//! The images are opened with the first launch: a node that enters no container has none in memory.

use fleetgate_containers::{ContainerRecord, Error, Overrides, SearchPaths, find, find_among, list, open};
use fleetgate_cri::{PodLabels, Sockets};
use fleetgate_launch::{Completions, Launch, LaunchError, LaunchOutcome, Launcher};
use fleetgate_policy::cluster::ContainerLabels;
use fleetgate_seal::late_chain::named;
use fleetgate_seal::{LateChain, Options, Source};
use fleetgate_sys::{Errno, Fd};
use fleetgate_wire::common::Account;
use fleetgate_wire::container::Window;
use fleetgate_wire::node::ConnectionNumber;
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};

/// The most launches at a time, each of which has a thread for that long; and of them in one container, whose root can hold up
/// who enters.
const MAX_THREADS: usize = 32;
const MAX_OF_ONE: usize = 8;
/// The most launches that wait for a thread or for their container.
const MAX_WAITING: usize = 1024;

/// What was seen, and the account of the login that it was looked at for.
pub type Seen = (Account, Arc<Vec<ContainerRecord>>);

/// Of one node.
pub struct Containers {
    shared: Arc<Shared>,
}

struct Shared {
    launches: Mutex<Waiting>,
    images: Mutex<LateChain>,
    looks: Mutex<Looks>,
    pods: PodLabels,
    seen: Arc<Completions<Seen>>,
}

/// Whose labels somebody wants to know who looks at containers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LabelsOf {
    /// Of all.
    All,
    /// Of the one with this name or id.
    Container(String),
}

/// Which container a launch is to be in.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The name or id that was asked for.
    pub name: String,
    /// It may be an id; else only a name counts.
    pub by_id: bool,
    /// The labels by which roles let somebody in; none: no role looks at them. A container that has others is not entered.
    pub labels: Option<Arc<SeenLabels>>,
    /// The terminal's size and modes.
    pub window: Window,
}

/// The labels of a container, as they were when it was looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeenLabels {
    labels: BTreeMap<String, String>,
    are_all: bool,
}

/// Launches that wait, and how many are under way.
#[derive(Default)]
struct Waiting {
    queue: VecDeque<Job>,
    threads: usize,
    /// By the containers' ids.
    inside: HashMap<String, usize>,
}

/// A launch that is to be made.
struct Job {
    entry: Entry,
    launch: Launch,
    done: Box<dyn FnOnce(LaunchOutcome) + Send>,
    /// The container's id, where that had no room when it was found.
    id: Option<String>,
}

/// Who waits for the next look: it begins after they asked.
#[derive(Default)]
struct Looks {
    waiting: Vec<(ConnectionNumber, Account, LabelsOf)>,
    under_way: bool,
}

impl SeenLabels {
    /// Of this container.
    pub fn of(found: &ContainerRecord) -> SeenLabels {
        SeenLabels {
            labels: found.labels.clone(),
            are_all: found.labels_are_all,
        }
    }

    /// For a decision, with why some of a pod's are missing.
    pub fn known<'a>(&'a self, missing: Option<&'a str>) -> ContainerLabels<'a> {
        ContainerLabels::Known {
            labels: &self.labels,
            are_all: self.are_all,
            missing,
        }
    }
}

impl Containers {
    /// Launches from the program `source`.
    pub fn new(source: Source) -> Result<Containers, LaunchError> {
        let options = Options {
            container: true,
            ..named(c"fleetgate-enter")
        };
        Ok(Containers {
            shared: Arc::new(Shared {
                launches: Mutex::default(),
                images: Mutex::new(LateChain::new(source, options)),
                looks: Mutex::default(),
                pods: PodLabels::new(Sockets::default()),
                seen: Completions::new()?,
            }),
        })
    }

    /// Launches in a container; `done` is called on a thread.
    pub fn begin(
        &self,
        entry: Entry,
        launch: Launch,
        done: impl FnOnce(LaunchOutcome) + Send + 'static,
    ) -> Result<(), LaunchError> {
        let mut launches = self.shared.launches();
        let waiting = launches.queue.len();
        if waiting >= MAX_WAITING {
            return Err(LaunchError::Busy { waiting });
        }
        launches.queue.push_back(Job {
            entry,
            launch,
            done: Box::new(done),
            id: None,
        });
        if launches.threads == MAX_THREADS {
            return Ok(());
        }
        let shared = self.shared.clone();
        match start_thread(move || shared.launch_all()) {
            Ok(()) => launches.threads += 1,
            // With others at work it waits for them.
            Err(_) if launches.threads > 0 => {}
            Err(e) => {
                launches.queue.pop_back();
                return Err(e);
            }
        }
        Ok(())
    }

    /// Looks which containers run, for this connection and its account. One look serves all who asked before it began.
    pub fn look(
        &self,
        connection: ConnectionNumber,
        account: Account,
        labels: LabelsOf,
    ) -> Result<(), LaunchError> {
        let mut looks = self.shared.looks();
        looks.waiting.push((connection, account, labels));
        if looks.under_way {
            return Ok(());
        }
        let shared = self.shared.clone();
        start_thread(move || shared.look_for_all()).inspect_err(|_| looks.waiting.clear())?;
        looks.under_way = true;
        Ok(())
    }

    /// Readable when somebody has looked.
    pub fn bell(&self) -> &Fd {
        self.shared.seen.bell()
    }

    /// For which connections, and what was seen.
    pub fn take_seen(&self) -> VecDeque<(ConnectionNumber, Seen)> {
        self.shared.seen.take()
    }
}

impl Shared {
    fn launches(&self) -> MutexGuard<'_, Waiting> {
        self.launches.lock().expect("no panic is survived")
    }

    fn looks(&self) -> MutexGuard<'_, Looks> {
        self.looks.lock().expect("no panic is survived")
    }

    /// Makes launches until none is left that could be made.
    fn launch_all(&self) {
        loop {
            let mut launches = self.launches();
            let Some(job) = launches.next() else {
                launches.threads -= 1;
                return;
            };
            drop(launches);
            self.launch_one(job);
        }
    }

    fn launch_one(&self, mut job: Job) {
        let mut found = match find(&SearchPaths::default(), &job.entry.name) {
            Ok(found) => found,
            Err(e) => return (job.done)(Err(refused(e))),
        };
        if job.entry.labels.is_some() {
            self.pods.add_to([&mut found]);
        }
        let mut launches = self.launches();
        let own = launches.inside.entry(found.id.clone()).or_default();
        if *own >= MAX_OF_ONE {
            // Who leaves the container next goes on with it.
            job.id = Some(found.id);
            return launches.queue.push_front(job);
        }
        *own += 1;
        drop(launches);
        let id = found.id.clone();
        let outcome = self.launch(job.entry, job.launch, found);
        self.launches().left(&id);
        (job.done)(outcome);
    }

    fn launch(&self, entry: Entry, launch: Launch, found: ContainerRecord) -> LaunchOutcome {
        let name = &entry.name;
        let other = |why: &str| Err(LaunchError::Container(format!("container {name}: {why}")));
        if !entry.by_id && !found.has_name(name) {
            return other(
                "that is its id or the beginning of it, and you may enter containers by their names",
            );
        }
        // Another container may have the name since roles were asked about this one.
        if entry
            .labels
            .is_some_and(|labels| *labels != SeenLabels::of(&found))
        {
            return Err(LaunchError::Replaced(format!(
                "container {name}: it has been replaced by one with other labels: try again"
            )));
        }
        let opened = open(&found, &Overrides::default()).map_err(refused)?;
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

    /// Looks until nobody waits for it.
    fn look_for_all(&self) {
        loop {
            let mut looks = self.looks();
            if looks.waiting.is_empty() {
                looks.under_way = false;
                return;
            }
            let waiting = std::mem::take(&mut looks.waiting);
            drop(looks);
            let seen = Arc::new(self.look_for(waiting.iter().map(|(_, _, labels)| labels)));
            for (connection, account, _) in waiting {
                self.seen.file(connection)((account, seen.clone()));
            }
        }
    }
}

impl Shared {
    /// The containers that run, with these labels.
    fn look_for<'a>(&self, labels: impl Iterator<Item = &'a LabelsOf>) -> Vec<ContainerRecord> {
        let mut seen = list(&SearchPaths::default());
        let (mut of_all, mut of) = (false, BTreeSet::new());
        for wanted in labels {
            match wanted {
                LabelsOf::All => of_all = true,
                LabelsOf::Container(name) => of.extend(find_among(&seen, name).map(|found| found.pid)),
            }
        }
        self.pods
            .add_to(seen.iter_mut().filter(|found| of_all || of.contains(&found.pid)));
        // Many containers of one runtime lack their labels for one reason.
        let missing = || seen.iter().filter(|found| found.labels_missing.is_some());
        if let Some((found, why)) = missing().find_map(|found| Some((found, found.labels_missing.as_ref()?)))
        {
            let (container, containers) = (found.display_name(), missing().count());
            tracing::warn!(container, containers, "labels of Kubernetes are not known: {why}");
        }
        seen
    }
}

impl Waiting {
    /// The first that may have room in its container.
    fn next(&mut self) -> Option<Job> {
        let inside = &self.inside;
        let has_room = |job: &Job| {
            let own = job.id.as_ref().and_then(|id| inside.get(id));
            own.is_none_or(|own| *own < MAX_OF_ONE)
        };
        let at = self.queue.iter().position(has_room)?;
        self.queue.remove(at)
    }

    /// A launch in this container is over.
    fn left(&mut self, id: &str) {
        if let Some(own) = self.inside.get_mut(id) {
            *own -= 1;
        }
        self.inside.retain(|_, own| *own > 0);
    }
}

/// In words for its user; the log has the machine's paths too.
fn refused(e: Error) -> LaunchError {
    tracing::info!("{e}");
    LaunchError::Container(e.without_others().to_string())
}

fn start_thread(run: impl FnOnce() + Send + 'static) -> Result<(), LaunchError> {
    let thread = std::thread::Builder::new()
        .name("container".to_owned())
        .stack_size(256 << 10);
    thread.spawn(run).map(drop).map_err(|e| LaunchError::System {
        doing: "starting a thread for a container",
        errno: Errno(e.raw_os_error().unwrap_or(Errno::EAGAIN.0)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use fleetgate_wire::common::Ids;
    use fleetgate_wire::net::Networking;
    use fleetgate_wire::order::Work;

    fn job(name: &str, id: Option<&str>) -> Job {
        let work = Networking {
            ids: Ids {
                uid: 0,
                gid: 0,
                groups: Vec::new(),
            },
            max_pending: 1,
            selinux: None,
        };
        Job {
            entry: Entry {
                name: name.to_owned(),
                by_id: false,
                labels: None,
                window: Window::default(),
            },
            launch: Launch::new(Work::Networking(work), Vec::new()),
            done: Box::new(|_| {}),
            id: id.map(str::to_owned),
        }
    }

    #[test]
    fn a_container_that_is_full_holds_up_no_other() {
        let mut waiting = Waiting::default();
        waiting.inside.insert("slow".to_owned(), MAX_OF_ONE);
        for (name, id) in [
            ("a", Some("slow")),
            ("b", Some("slow")),
            ("c", Some("quick")),
            ("d", None),
        ] {
            waiting.queue.push_back(job(name, id));
        }
        let mut next = || waiting.next().map(|job| job.entry.name);
        assert_eq!(
            [next(), next(), next()],
            [Some("c".into()), Some("d".into()), None]
        );
        waiting.left("slow");
        assert_eq!(waiting.next().map(|job| job.entry.name), Some("a".into()));
        for _ in 1..MAX_OF_ONE {
            waiting.left("slow");
        }
        assert!(waiting.inside.is_empty());
    }
}

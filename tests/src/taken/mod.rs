//! A real monitor whose lobby and fronts are the test itself: it holds the other end of their sockets and says what it
//! likes. The monitor, its resolver and its helpers are the real ones; what stands in for a seat's process is a program
//! that waits to be killed. It never changes what the monitor does: [`WorkerStarter`] is the monitor's own.

mod front;
mod lobby;
mod scene;
mod seat;
mod stage;
mod tries;
mod tunnel;
mod watcher;

pub use front::{Front, Handed, command, read_all};
pub use lobby::{Accepted, Arrival, Lobby, Side, Visit};
pub use scene::{Key, Scene};
pub use seat::{Fate, Sitting};
pub use stage::{SESSION, Stage, Want};
pub use tries::{Garbage, Row, front_tries, garbage, is_rejected, lobby_tries};
pub use tunnel::Tunnel;
pub use watcher::Watcher;

use crate::world::{PATIENCE_MS, wait_until};
use fleetgate_node::config::Config;
use fleetgate_node::monitor::sessions::Inherited;
use fleetgate_node::monitor::workers::{Executor, Images, Process, StartOrder, WorkerKind, WorkerStarter};
use fleetgate_node::monitor::{Parts, open};
use fleetgate_seal::late_chain::named;
use fleetgate_seal::{Death, FallbackChain, Image, LateChain, Options, Source};
use fleetgate_sys::spawn::{Program, Spawn, Stack, Strings, spawn};
use fleetgate_sys::{Fd, file, socket};
use fleetgate_wire::node::starter::ToMonitor;
use serde_json::Value;
use std::io::Write;
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex, OnceLock, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

/// A monitor that serves.
pub struct Node {
    address: SocketAddr,
    audit: std::path::PathBuf,
    log: Arc<Mutex<Vec<u8>>>,
    taken: mpsc::Receiver<Taken>,
    /// Seats that started before they were asked for.
    early: Vec<Taken>,
    starter: Fd,
    thread: Option<JoinHandle<()>>,
}

/// A seat that the test has.
struct Taken {
    seat: WorkerKind,
    control: Fd,
    alive: Fd,
    pid: i32,
}

/// Executes the resolver, and gives the other seats to the test.
struct Gives {
    real: Executor,
    taken: mpsc::Sender<Taken>,
    stack: Stack,
}

impl WorkerStarter for Gives {
    fn died_early(&mut self, seat: WorkerKind, image: Arc<Image>, death: Death) {
        self.real.died_early(seat, image, death);
    }

    fn start(&mut self, order: StartOrder) {
        if order.kind == WorkerKind::Resolver {
            return self.real.start(order);
        }
        let (waits, alive) = file::pipe().expect("a pipe");
        let argv = Strings::new([c"cat"]);
        let envp = Strings::new([]);
        let what = Spawn {
            program: Program::Path(c"/bin/cat"),
            argv: &argv,
            envp: &envp,
            fds: &[waits.raw(), order.log.raw(), order.log.raw()],
            cgroup: None,
        };
        let child = spawn(&what, &mut self.stack).expect("cat starts");
        // The test may be over.
        let _ = self.taken.send(Taken {
            seat: order.kind,
            control: order.control,
            alive,
            pid: child.pid,
        });
        (order.done)(Ok(Process {
            pid: child.pid,
            pidfd: child.pidfd,
            image: None,
        }));
    }
}

/// The log, as the monitor's thread writes it.
#[derive(Clone)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().expect("no panic holds it").extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// The images, proven once for all tests of this program.
fn chains() -> (Arc<FallbackChain>, Arc<FallbackChain>) {
    static LADDERS: OnceLock<(Arc<FallbackChain>, Arc<FallbackChain>)> = OnceLock::new();
    let open = || {
        let options = Options {
            name: Some(c"fleetgate-resolver".into()),
            ..Options::default()
        };
        let resolver = FallbackChain::open(Source::File(crate::resolver()), options).expect("a chain");
        (crate::launching::chain(), Arc::new(resolver))
    };
    LADDERS.get_or_init(open).clone()
}

impl Node {
    /// WorkerStarter one in the calling thread's world. Its files are in the scene's directory.
    pub fn start(config: Config) -> Node {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let (session, resolver) = chains();
        let real = Executor::new(Images {
            // Never executed: those seats are the test's.
            front: session.clone(),
            tunnel: LateChain::new(Source::File(crate::resolver()), named(c"fleetgate-tunnel")),
            recorder: LateChain::new(Source::File(crate::resolver()), named(c"fleetgate-recorder")),
            resolver,
            resolver_arguments: Vec::new(),
            guardian_cgroup: None,
            user: None,
        });
        let (give, taken) = mpsc::channel();
        let starts = Gives {
            real: real.expect("a thread"),
            taken: give,
            stack: Stack::new().expect("a stack"),
        };
        let (starter, control) = socket::pair().expect("a pair");
        let audit = config.audit_log.clone();
        let parts = Parts {
            config,
            config_path: None,
            user_mode: false,
            session,
            enter: Source::Itself,
            starts: Box::new(starts),
            listeners: vec![std::os::fd::OwnedFd::from(listener).into()],
            control: Some(control),
            small: None,
            signals: None,
            inherited: Inherited::default(),
            cgroups: None,
        };
        let log = Arc::new(Mutex::new(Vec::new()));
        let writer = Log(log.clone());
        let serve = move || {
            let subscriber = tracing_subscriber::fmt()
                .with_ansi(false)
                .with_writer(move || writer.clone())
                .finish();
            tracing::subscriber::with_default(subscriber, || {
                open(parts)
                    .expect("the monitor starts")
                    .serve()
                    .expect("it serves");
            });
        };
        let thread = std::thread::Builder::new().name("monitor".into()).spawn(serve);
        Node {
            address,
            audit,
            log,
            taken,
            early: Vec::new(),
            starter,
            thread: Some(thread.expect("a thread")),
        }
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The lobby that is started next; it says Ready.
    pub fn lobby(&mut self) -> Lobby {
        Lobby::sit(self.take(WorkerKind::Lobby))
    }

    /// The front that is started next; it says Ready.
    pub fn front(&mut self) -> Front {
        Front::sit(self.take(WorkerKind::Front))
    }

    /// The tunnel that is started next; it says Ready.
    pub fn tunnel(&mut self) -> Tunnel {
        Tunnel::sit(self.take(WorkerKind::Tunnel))
    }

    /// The watcher that is started next; it says Ready.
    pub fn watcher(&mut self) -> Watcher {
        Watcher::sit(self.take(WorkerKind::Watcher))
    }

    fn take(&mut self, seat: WorkerKind) -> Sitting {
        let taken = match self.early.iter().position(|t| t.seat == seat) {
            Some(at) => self.early.remove(at),
            None => loop {
                let taken = self.taken.recv_timeout(Duration::from_millis(PATIENCE_MS.into()));
                let taken =
                    taken.unwrap_or_else(|_| panic!("no {} is started:\n{}", seat.name(), self.log()));
                if taken.seat == seat {
                    break taken;
                }
                self.early.push(taken);
            },
        };
        Sitting::new(taken.control, taken.alive, taken.pid)
    }

    /// The log so far.
    pub fn log(&self) -> String {
        String::from_utf8_lossy(&self.log.lock().expect("no panic holds it")).into_owned()
    }

    /// The audit events so far.
    pub fn audit(&self) -> Vec<Value> {
        let text = std::fs::read_to_string(&self.audit).unwrap_or_default();
        let lines = text.lines().filter(|line| line.ends_with('}'));
        lines
            .map(|line| serde_json::from_str(line).expect("each line is an event"))
            .collect()
    }

    /// Waits for an event of this name whose text holds all of these.
    pub fn audited(&self, event: &str, parts: &[&str]) {
        let is = |e: &Value| {
            let text = e.to_string();
            e["event"] == event && parts.iter().all(|part| text.contains(part))
        };
        wait_until(&format!("the event {event} {parts:?}"), || {
            self.audit().iter().any(is)
        });
    }

    /// How many events of this name there are.
    pub fn count(&self, event: &str) -> usize {
        self.audit().iter().filter(|e| e["event"] == event).count()
    }

    /// Whether the monitor lives.
    pub fn lives(&self) -> bool {
        self.thread.as_ref().is_some_and(|t| !t.is_finished())
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the monitor's log:\n{}", self.log());
        }
        let _ = socket::send_now(&self.starter, &fleetgate_wire::encode(&ToMonitor::End), &[]);
        let thread = self.thread.take().expect("it was started");
        if !std::thread::panicking() {
            wait_until("the monitor ends", || thread.is_finished());
            thread.join().expect("the monitor ended well");
        }
    }
}

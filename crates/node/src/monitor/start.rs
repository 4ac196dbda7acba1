//! The monitor's start: its own protection, the images, the processes that are executed before any key is loaded, then
//! the keys, then the loop.

use super::Monitor;
use super::accept::Listeners;
use super::audit::{Audit, Event};
use super::connections::Connections;
use super::error::MonitorError;
use super::fronts::Fronts;
use super::label_commands::LabelCommands;
use super::launches::Launches;
use super::lobby::Lobby;
use super::metrics::{self, Metrics};
use super::names::Names;
use super::network::Networks;
use super::recorder::{Housekeeping, RecorderProcess};
use super::sessions::{Inherited, Sessions, needs_contexts, usage};
use super::settings::{can_record, is_reachable, offer, worker_user};
use super::spans::Spans;
use super::starter::Starter;
use super::strangers::Strangers;
use super::timers::Timers;
use super::tools::{Tools, ZombieCollector};
use super::tunnel::joined;
use super::views::Views;
use super::wakes::{Key, Owner, Wakes};
use super::watcher::{WatchedSessions, WatcherProcesses};
use super::workers::{Executor, Images, Messages, WorkerEvent, WorkerId, WorkerKind, WorkerStarter, Workers};
use crate::config::host_keys::HostKeys;
use crate::config::node_lock::{HANDOVER, NodeLock};
use crate::config::offer::Offer;
use crate::config::trust::Trust;
use crate::config::{CommandEntry, Config, SelinuxUse, labels};
use crate::identity::{DIRECTORY, is_joined, load_tls_key};
use fleetgate_base::own;
use fleetgate_launch::cgroup::{Cgroups, outside};
use fleetgate_launch::{Places, SessionReaper, SessionToClose, Wtmpdb};
use fleetgate_policy::Audit as Level;
use fleetgate_policy::pam_turns::Turns;
use fleetgate_recorder::recordings::Recordings;
use fleetgate_seal::late_chain::{self, named};
use fleetgate_seal::{FallbackChain, LateChain, Source};
use fleetgate_sys::poll::READ;
use fleetgate_sys::process::numbers::RLIMIT_NOFILE;
use fleetgate_sys::process::{self, Limit};
use fleetgate_sys::{Fd, credentials, net, signals};
use fleetgate_wire::node::lobby::ToLobby;
use fleetgate_wire::node::starter::{CONTROL, FIRST_LISTENER};
use std::ffi::CString;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

/// What the monitor was told.
#[derive(Clone, Debug)]
pub struct Options {
    /// The configuration's path.
    pub config: PathBuf,
    /// Without root: for the user who started it.
    pub user_mode: bool,
    /// The programs that this build carries; none: it executes itself under their names.
    pub sources: Sources,
}

/// Where the images come from.
#[derive(Clone, Debug)]
pub struct Sources {
    /// `fleetgate-session`.
    pub session: Source,
    /// `fleetgate-enter`.
    pub enter: Source,
    /// `fleetgate-front`.
    pub front: Source,
    /// `fleetgate-resolver`.
    pub resolver: Source,
    /// `fleetgate-tunnel`.
    pub tunnel: Source,
    /// `fleetgate-recorder`.
    pub recorder: Source,
}

/// An error at a step.
fn at<E: fmt::Display>(doing: &'static str) -> impl Fn(E) -> MonitorError {
    move |e| MonitorError(format!("{doing}: {e}"))
}

/// The most descriptors: a connection has one, a session's control socket and pidfd two more.
const DESCRIPTORS: u64 = 1 << 19;
/// The out-of-memory killer takes others before the monitor; sessions get the score back that the service had.
const OOM_SCORE: &str = "-500";
/// How long the first processes may take to be executed.
const FIRST_START_MS: u32 = 60_000;

/// Where a node with this configuration writes its audit log.
pub fn audit_log(config: &Config, user_mode: bool) -> PathBuf {
    let mut config = config.clone();
    config.settle(user_mode);
    config.audit_log
}

/// What is wrong with this configuration, beyond its form: the files it names, its lists, its names of algorithms.
pub fn check(config: &Config, user_mode: bool) -> Result<(), MonitorError> {
    let mut config = config.clone();
    config.settle(user_mode);
    let config = &config;
    labels::check(config)?;
    is_own(config)?;
    can_record(config)?;
    joined(config)?;
    if let Some(address) = config.metrics {
        metrics::check(address).map_err(|e| e.to_string())?;
    }
    if user_mode && config.audit != Level::None {
        return Err(MonitorError(format!(
            "`audit = \"{}\"`: sessions are watched by a node that runs as root; leave it out",
            config.audit.name()
        )));
    }
    let other_account = |(name, entry): (&String, &CommandEntry)| Some((name.clone(), entry.user.clone()?));
    if user_mode && let Some((name, user)) = config.commands.iter().find_map(other_account) {
        return Err(MonitorError(format!(
            "`commands.{name}`: only a node that runs as root can run it as {user}; leave `user` out"
        )));
    }
    let joined = is_joined(&config.state_directory);
    Trust::new(config, config.uses_pam(user_mode), joined)?;
    let keys = match config.host_keys.is_empty() {
        // Loading would make one.
        true => HostKeys::of(Vec::new()),
        false => HostKeys::load(config, user_mode).map_err(|e| e.to_string())?,
    };
    Offer::new(config, keys)?;
    Ok(())
}

/// The public host keys (blobs) that a node with this configuration shows; its own is made where there is none.
pub fn host_keys(config: &Config, user_mode: bool) -> Result<Vec<Vec<u8>>, MonitorError> {
    let mut config = config.clone();
    config.settle(user_mode);
    let keys = HostKeys::load(&config, user_mode).map_err(|e| e.to_string())?;
    Ok(keys.public())
}

/// Serves on the sockets that the starter handed over, until it is told to end and the last connection has ended.
pub fn run(options: Options) -> Result<(), MonitorError> {
    let signals =
        signals::descriptor(&[signals::TERM, signals::INT, signals::HUP]).map_err(at("taking signals"))?;
    let (control, listeners) = inherited()?;
    let mut config = Config::load(&options.config).map_err(|e| MonitorError(e.to_string()))?;
    config.settle(options.user_mode);
    is_own(&config).map_err(MonitorError)?;
    // Sessions that need not be recorded go on, and somebody has to come in to mend it.
    if let Err(why) = can_record(&config) {
        tracing::error!("{why}");
    }
    is_reachable(!listeners.is_empty(), is_joined(&config.state_directory)).map_err(MonitorError)?;
    // Before our own limits are raised: sessions get these back.
    let inherited = Inherited::now();
    protect(options.user_mode)?;
    let session = chain(&options.sources.session, c"fleetgate-session")?;
    let front = chain(&options.sources.front, c"fleetgate-front")?;
    // Where this very program is the image, the starter would go on as what it is.
    let small = (!matches!(options.sources.front, Source::Itself)).then(|| front.clone());
    let images = Images {
        front,
        resolver: chain(&options.sources.resolver, c"fleetgate-resolver")?,
        tunnel: LateChain::new(options.sources.tunnel, named(c"fleetgate-tunnel")),
        recorder: LateChain::new(options.sources.recorder, named(c"fleetgate-recorder")),
        resolver_arguments: resolver_arguments(&config, config.uses_pam(options.user_mode)),
        guardian_cgroup: (!options.user_mode).then(outside).flatten(),
        user: (!options.user_mode).then(|| worker_user(&config.user)),
    };
    let starts = Executor::new(images).map_err(at("starting a thread"))?;
    let parts = Parts {
        config,
        config_path: Some(options.config),
        user_mode: options.user_mode,
        session,
        enter: options.sources.enter,
        starts: Box::new(starts),
        listeners,
        control: Some(control),
        small,
        signals: Some(signals),
        inherited,
        cgroups: Cgroups::find()
            .inspect_err(|why| tracing::info!("sessions have no cgroups of their own: {why}"))
            .ok(),
    };
    open(parts)?.serve().map_err(at("waiting"))
}

/// What a node is made of.
pub struct Parts {
    /// The configuration.
    pub config: Config,
    /// Where it is read again from.
    pub config_path: Option<PathBuf>,
    /// Without root.
    pub user_mode: bool,
    /// The session helper's images.
    pub session: Arc<FallbackChain>,
    /// The session helper for containers.
    pub enter: Source,
    /// Who starts lobby, fronts and resolver.
    pub starts: Box<dyn WorkerStarter>,
    /// Listening sockets.
    pub listeners: Vec<Fd>,
    /// The starter.
    pub control: Option<Fd>,
    /// What the starter may go on as.
    pub small: Option<Arc<FallbackChain>>,
    /// Signals.
    pub signals: Option<Fd>,
    /// What sessions get back.
    pub inherited: Inherited,
    /// Where sessions get cgroups of their own; none: they get none.
    pub cgroups: Option<Cgroups>,
}

/// Makes the node: executes resolver and lobby, and only then loads the keys.
pub fn open(parts: Parts) -> Result<Monitor, MonitorError> {
    let config = Arc::new(parts.config);
    let node_lock = match is_joined(&config.state_directory) {
        true => NodeLock::begin(&config.state_directory, HANDOVER).map_err(MonitorError)?,
        false => None,
    };
    let mut wakes = Wakes::new().map_err(at("making an epoll"))?;
    let mut workers = Workers::new(parts.starts, &wakes).map_err(at("making an eventfd"))?;
    let (resolver, resolver_control) = workers
        .start_resolver(&wakes)
        .map_err(at("starting the resolver"))?;
    let lobby = workers
        .start(WorkerKind::Lobby, &wakes)
        .map_err(at("starting the lobby"))?;
    let heard = executed(&mut workers, &[resolver, lobby], &mut wakes)?;

    let pam = config.uses_pam(parts.user_mode);
    match (pam, parts.user_mode) {
        (true, _) => tracing::info!(service = config.pam_service, "PAM is used"),
        (false, false) => tracing::warn!(
            "PAM is not used: /etc/pam.d/{} is missing, or pam = \"off\"; sessions have no PAM session",
            config.pam_service
        ),
        (false, true) => {}
    }
    let trust = Trust::new(&config, pam, is_joined(&config.state_directory)).map_err(MonitorError)?;
    let offer = offer(&config, parts.user_mode).map_err(MonitorError)?;
    labels::check(&config).map_err(MonitorError)?;
    // It serves on by itself: nobody is to be locked out of a machine because a part of that was lost.
    let joined = joined(&config)
        .inspect_err(|why| tracing::error!("the node serves without its cluster: {why}"))
        .unwrap_or_default();
    let (tunnel, cluster) = joined.unzip();
    let settings = offer.settings.clone();
    workers.say(lobby, &ToLobby::Begin { settings }, Vec::new(), &wakes);

    let (audit, writing) = Audit::start(&config.audit_log)
        .map_err(|e| MonitorError(format!("`audit_log`, {}: {e}", config.audit_log.display())))?;
    let metrics = Arc::new(Metrics::default());
    metrics.joined(is_joined(&config.state_directory));
    let page = config
        .metrics
        .map(|address| metrics::serve(address, metrics.clone(), audit.clone()))
        .transpose()
        .map_err(at("serving metrics"))?;
    let launches =
        Launches::new(parts.session.clone(), parts.enter).map_err(at("starting launch threads"))?;
    wakes
        .watch(launches.bell(), READ, Key::new(Owner::Launches, 0))
        .and_then(|()| wakes.watch(launches.containers().bell(), READ, Key::new(Owner::Launches, 1)))
        .map_err(at("watching launches"))?;
    let session_reaper = session_reaper(&config, parts.user_mode, audit.clone())?;
    let starter = Starter::new(parts.control, parts.signals, parts.small, &wakes)
        .map_err(at("watching the starter"))?;
    let mut listeners =
        Listeners::new(parts.listeners, &wakes).map_err(at("watching the listening sockets"))?;
    // Until the lobby is ready, what arrives waits in the kernel.
    listeners.pause(&wakes);
    let strangers = Strangers::new(&config.strangers);
    let mut tools = Tools {
        config,
        user_mode: parts.user_mode,
        pam,
        cluster,
        state_writer: None,
        resolver: Arc::new(resolver_control),
        wakes,
        timers: Timers::default(),
        launches,
        names: Names::new(),
        pam_turns: Turns::default(),
        to_fronts: Messages::default(),
        zombies: ZombieCollector::default(),
        watching: WatchedSessions::default(),
        recordings: Recordings::default(),
        views: Views::default(),
        strangers,
        audit,
        metrics,
        spans: Spans::default(),
    };
    let sessions = Sessions::new(Arc::new(session_reaper), parts.cgroups, parts.inherited, &tools)
        .map_err(at("making an eventfd"))?;
    let networks = Networks::new(needs_contexts(&tools.config));
    let housekeeping = Housekeeping::of(&mut tools, &offer);
    let mut monitor = Monitor {
        tools,
        workers,
        listeners,
        connections: Connections::default(),
        fronts: Fronts::default(),
        sessions,
        networks,
        starter,
        offer,
        trust: trust.into(),
        lobby: Lobby::new(lobby),
        tunnel,
        parted: Vec::new(),
        tunnels: 0,
        resolver,
        config_path: parts.config_path,
        writing: Some(writing),
        page,
        draining: false,
        node_lock,
        watchers: WatcherProcesses::default(),
        recorder: RecorderProcess::default(),
        housekeeping,
        age_timer: None,
        label_commands: LabelCommands::default(),
        next: None,
        strangers_timer: None,
        untold_ends: Vec::new(),
        grants: 0,
        done: false,
    };
    monitor.attach_names();
    monitor.join_cluster();
    monitor.take(heard);
    monitor.open_tunnel();
    monitor.tools.audit.tell(Event::NodeStarted {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        sessions: monitor.sessions.ids(&monitor.tools.config.runtime_directory),
    });
    Ok(monitor)
}

/// Waits until these were executed: keys are loaded after that, so that no process is made from memory with keys in it.
fn executed(
    workers: &mut Workers,
    ids: &[WorkerId],
    wakes: &mut Wakes,
) -> Result<Vec<WorkerEvent>, MonitorError> {
    let (mut keys, mut news) = (Vec::new(), Vec::new());
    let mut heard_early = Vec::new();
    while !ids.iter().all(|id| workers.runs(*id)) {
        keys.clear();
        wakes
            .wait(Some(FIRST_START_MS), &mut keys)
            .map_err(at("waiting"))?;
        if keys.is_empty() {
            return Err(MonitorError(
                "lobby and resolver are not executed in time".to_owned(),
            ));
        }
        for key in &keys {
            match key.owner {
                Owner::StartedWorkers => workers.started(wakes, &mut news),
                Owner::Workers => workers.woken(key.id, wakes, &mut news),
                _ => {}
            }
        }
        for one in news.drain(..) {
            match one {
                WorkerEvent::Gone(_, worker, _, how) => {
                    return Err(MonitorError(format!("the {}: {how}", worker.name())));
                }
                heard => heard_early.push(heard),
            }
        }
    }
    Ok(heard_early)
}

/// Whether nobody else may change what the node keeps: who may says whom it believes.
fn is_own(config: &Config) -> Result<(), String> {
    let state = &config.state_directory;
    for directory in [state, &state.join(DIRECTORY)] {
        own::unchanged(directory)?;
    }
    load_tls_key(state).map(drop).map_err(|e| e.to_string())
}

/// The session reaper. What an earlier monitor left is mended here: the ends of its sessions are told too.
fn session_reaper(config: &Config, user_mode: bool, audit: Audit) -> Result<SessionReaper, MonitorError> {
    let directory = config.runtime_directory.join("sessions");
    let wtmpdb = (!user_mode).then(Wtmpdb::system);
    let tell = move |session: &SessionToClose, lasted| {
        audit.tell(Event::SessionEnded {
            connection: session.connection,
            session: session.id,
            login: session.entry.user.to_string_lossy().into_owned(),
            code: None,
            signal: None,
            lasted,
            usage: usage(session.cgroup.as_deref(), None),
            end_command: None,
            inherited: true,
        });
    };
    SessionReaper::start_telling(&directory, Places::system(), wtmpdb, tell).map_err(at("keeping sessions"))
}

/// The resolver keeps what PAM needs loaded only where PAM is used: it is 1.6 MB. Should a reload begin to use it, the first session
/// loads it.
fn resolver_arguments(config: &Config, pam: bool) -> Vec<CString> {
    let selinux = match config.selinux {
        SelinuxUse::Auto => c"auto",
        SelinuxUse::Required => c"required",
    };
    let mut words: Vec<CString> = vec![c"--selinux".into(), selinux.into()];
    if pam {
        let service = CString::new(config.pam_service.clone()).unwrap_or_default();
        words.extend([c"--service".into(), service]);
    }
    words
}

fn chain(source: &Source, name: &std::ffi::CStr) -> Result<Arc<FallbackChain>, MonitorError> {
    late_chain::open(source, &named(name))
        .map(Arc::new)
        .map_err(MonitorError)
}

/// The starter's socket, and the listening sockets behind it.
fn inherited() -> Result<(Fd, Vec<Fd>), MonitorError> {
    let control = Fd::from_raw(CONTROL);
    if control.set_cloexec(true).is_err() {
        std::mem::forget(control);
        return Err(MonitorError(
            "descriptor 3 is no starter's socket: the monitor is started by `fleetgate node`".to_owned(),
        ));
    }
    let mut listeners = Vec::new();
    for raw in FIRST_LISTENER.. {
        let listener = Fd::from_raw(raw);
        if net::local(&listener).is_err() {
            std::mem::forget(listener);
            break;
        }
        listener
            .set_cloexec(true)
            .map_err(at("taking a listening socket"))?;
        listeners.push(listener);
    }
    Ok((control, listeners))
}

/// Nobody reads this process's memory, and it is the last to die of want.
fn protect(user_mode: bool) -> Result<(), MonitorError> {
    credentials::set_dumpable(false).map_err(at("protecting the monitor's memory"))?;
    let raised = process::limit(RLIMIT_NOFILE).and_then(|limit| {
        let hard = match user_mode {
            true => limit.hard,
            false => limit.hard.max(DESCRIPTORS),
        };
        let raised = Limit { soft: hard, hard };
        process::set_limit(RLIMIT_NOFILE, raised).or_else(|_| {
            let soft = limit.hard;
            process::set_limit(RLIMIT_NOFILE, Limit { soft, ..limit })
        })
    });
    if let Err(e) = raised {
        tracing::warn!("the limit of open descriptors is not raised: {e}");
    }
    if !user_mode && let Err(e) = std::fs::write("/proc/self/oom_score_adj", OOM_SCORE) {
        tracing::warn!("the out-of-memory killer may take the monitor: {e}");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_resolver_has_pam_loaded_where_it_is_used() {
        let config = Config {
            pam_service: "sshd".to_owned(),
            selinux: SelinuxUse::Required,
            ..Config::default()
        };
        let words = |pam| resolver_arguments(&config, pam);
        assert_eq!(words(false), [c"--selinux", c"required"].map(CString::from));
        let all = [c"--selinux", c"required", c"--service", c"sshd"];
        assert_eq!(words(true), all.map(CString::from));
    }
}

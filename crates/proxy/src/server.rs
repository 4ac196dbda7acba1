//! The proxy's life: made of a configuration and what its state directory holds, run on one thread until it is told to
//! stop. It opens nothing to the world but the one address.

use crate::audit::{self, Events};
use crate::config::Config;
use crate::dial_rates::DialRates;
use crate::error::ServerError;
use crate::identity::Identity;
use crate::mux::Mux;
use crate::open_dials::OpenDials;
use crate::quota::{Quota, Turns};
use crate::reachable::Reachable;
use crate::recorder::{Recorder, housekeeping};
use crate::shared::{CONNECTIONS_BESIDE, Local, Shared, tls_server};
use crate::state::View;
use crate::strangers::Strangers;
use crate::tunnel_control::LAST_WORDS;
use crate::tunnels::Tunnels;
use crate::{audit_delivery, auth, auth_relay, metrics, probes, recording_delivery, sandbox, ssh_service};
use fleetgate_net::Credentials;
use fleetgate_net::otlp::Exporter;
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::pin;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use tokio::net::TcpListener;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::sync::{Notify, oneshot, watch};
use tokio::task::{AbortHandle, JoinSet, LocalSet};

/// How long what is open has to end when the proxy stops.
pub const STOP: Duration = Duration::from_secs(5);
/// How long a proxy that drains serves the sessions that it has. It renews its certificate no more, and a third of that
/// one's seven days is left at least.
pub const DRAIN: Duration = Duration::from_secs(48 * 3600);
/// How long a proxy that stops waits for its last audit events to be written.
const LAST_EVENTS: Duration = Duration::from_secs(2);
/// How long it waits for the last of the recordings.
const LAST_FRAMES: Duration = Duration::from_secs(2);
/// Sessions of all users at once.
pub const SESSIONS: usize = 1 << 17;
/// A proxy.
pub struct Server {
    shared: Arc<Shared>,
    events: Events,
    local: UnboundedReceiver<Local>,
}

impl Server {
    /// By its configuration and its state directory.
    pub fn new(config: Config) -> Result<Server, ServerError> {
        let (identity, state) = Identity::load(&config.state_directory)?;
        let view = View::first(state).map_err(|why| {
            let path = config.state_directory.join("state");
            ServerError(format!("{}: {why}", path.display()))
        })?;
        let given = given(&config)?;
        let tls = tls_server(&view, &identity, given.as_ref())?;
        let (audit, events) = audit::audit(identity.name.as_str());
        let audit = Arc::new(audit);
        let host_key = identity
            .host_key(identity.host_certificate.as_ref())
            .or_else(|_| identity.host_key(None))
            .map_err(ServerError)?;
        let signing = identity.host_key(None).map_err(ServerError)?;
        let recorder = Recorder::new(
            &config.state_directory,
            config.recordings_size.0,
            Arc::new(signing),
            audit.clone(),
        );
        let (to_local, local) = unbounded_channel();
        let shared = Shared {
            host_key: watch::Sender::new(Arc::new(host_key)),
            local: to_local,
            name: identity.name.clone(),
            identity: watch::Sender::new(identity),
            tls: watch::Sender::new(tls),
            public_credentials: given,
            view: watch::Sender::new(view),
            inventory: watch::Sender::new(BTreeMap::new()),
            auth: watch::Sender::new(None),
            recordings: Default::default(),
            reports: Notify::new(),
            tunnels: Tunnels::default(),
            reachable: Reachable::default(),
            auth_relay_slots: auth_relay::places(&config),
            auth_relay_turns: Turns::new(auth_relay::REACHING, auth_relay::REACHING_OF_ONE),
            strangers: Arc::new(Strangers::new(config.strangers.clone(), config.bounds())),
            sessions: Quota::new(SESSIONS, config.sessions_per_user as usize),
            dial_rates: DialRates::new(&config),
            dials: Arc::new(OpenDials::new(audit.clone())),
            certified: Quota::new(
                usize::MAX,
                (config.sessions_per_user as usize).saturating_add(CONNECTIONS_BESIDE),
            ),
            audit,
            recorder,
            collector: OnceLock::new(),
            inventory_is_whole: watch::Sender::new(false),
            leaving: watch::Sender::new(false),
            stopping: watch::Sender::new(false),
            user_connections: watch::Sender::new(0),
            began: Instant::now(),
            config,
        };
        Ok(Server {
            shared: Arc::new(shared),
            events,
            local,
        })
    }

    /// Gives up root and all files but its own: for a process that is a proxy and nothing else, has one thread, and has its
    /// listener. Relative paths mean something else afterwards.
    pub fn confine(&mut self) -> Result<(), ServerError> {
        let shared =
            Arc::get_mut(&mut self.shared).ok_or_else(|| ServerError("the proxy runs already".to_owned()))?;
        sandbox::enter(&shared.config)?;
        shared.config.state_directory = ".".into();
        shared.recorder = shared.recorder.at(&shared.config.state_directory);
        Ok(())
    }

    /// Serves on this listener. After `drain` it accepts no more and ends with its last session; after `stop` what is open
    /// has a moment to end.
    pub async fn run(
        self,
        listener: std::net::TcpListener,
        drain: impl Future<Output = ()>,
        stop: impl Future<Output = ()>,
    ) -> Result<(), ServerError> {
        let failed = |e: std::io::Error| ServerError(format!("the listener cannot be used: {e}"));
        listener.set_nonblocking(true).map_err(failed)?;
        let listener = TcpListener::from_std(listener).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let shared = self.shared;
        match shared.config.public_address.as_str() {
            "" => tracing::info!(proxy = %shared.name, "listening on {address}"),
            public => {
                tracing::info!(proxy = %shared.name, "listening on {address}, which others reach as {public}")
            }
        }
        if let Some(collector) = &shared.config.collector {
            let exporter = Exporter::start(collector).map_err(String::from)?;
            let _ = shared.collector.set(exporter);
        }
        // They end with this function: nothing of a proxy outlives it but connections that drain.
        let mut tasks = JoinSet::new();
        tasks.spawn(auth::run(shared.clone()));
        let (close_audit, audit_closing) = oneshot::channel();
        let mut writing = JoinSet::new();
        writing.spawn(audit_delivery::run(shared.clone(), self.events, audit_closing));
        tasks.spawn(recording_delivery::run(shared.clone()));
        tasks.spawn(housekeeping::run(shared.recorder.clone()));
        tasks.spawn(probes::run(Arc::downgrade(&shared)));
        // It holds no shared state: who does is at work.
        let (strangers, held) = (shared.strangers.clone(), Arc::downgrade(&shared));
        tasks.spawn(async move {
            loop {
                strangers.summed().await;
                let Some(shared) = held.upgrade() else { return };
                strangers.tell(&shared.audit);
            }
        });
        let page = shared
            .config
            .metrics
            .map(|address| tasks.spawn(metrics::serve(address, Arc::downgrade(&shared))));
        let mux = Arc::new(Mux::new(shared.clone()));
        let (close, closing) = oneshot::channel();
        let accepting = tokio::spawn(mux.run(listener, closing));
        // SSH is not sent between threads: its tasks belong to this one.
        let ssh = LocalSet::new();
        ssh.spawn_local(ssh_service::run(shared.clone(), self.local));
        let mut stop = pin!(stop);
        let drains = async {
            tokio::select! {
                () = drain => true,
                () = &mut stop => false,
            }
        };
        let drains = ssh.run_until(drains).await;
        // Nodes dial again when they hear that this process leaves: by then it accepts nobody.
        let _ = close.send(());
        let _ = accepting.await;
        // The next proxy serves the page from here on.
        page.iter().for_each(AbortHandle::abort);
        shared.leaving.send_replace(true);
        if drains {
            let user_connections = *shared.user_connections.borrow();
            tracing::info!("draining: accepting no more; {user_connections} connections of users are open");
            let over = async {
                tokio::select! {
                    () = shared.empty() => "the last user has left",
                    () = tokio::time::sleep(DRAIN) => "it has drained for as long as it may",
                    () = stop => "it was told to stop",
                }
            };
            let why = ssh.run_until(over).await;
            tracing::info!("stopping: {why}");
        }
        shared.stopping.send_replace(true);
        tracing::info!("stopping; {} nodes are told", shared.tunnels.names().len());
        let ended = async {
            // Whoever holds the shared state is still at work.
            while Arc::strong_count(&shared) > 1 + 4 {
                tokio::time::sleep(LAST_WORDS / 40).await;
            }
        };
        let _ = tokio::time::timeout(STOP, ssh.run_until(ended)).await;
        // What has not ended by itself ends with this process: nobody is told of it but the audit log.
        if tokio::time::timeout(LAST_FRAMES, shared.recorder.settle())
            .await
            .is_err()
        {
            tracing::error!(
                "the last of the recordings could not be written in time: the next proxy finishes them"
            );
        }
        shared.dials.end();
        shared.strangers.tell(&shared.audit);
        let _ = close_audit.send(());
        if tokio::time::timeout(LAST_EVENTS, writing.join_next())
            .await
            .is_err()
        {
            tracing::error!("the last audit events could not be written in time");
        }
        Ok(())
    }
}

fn given(config: &Config) -> Result<Option<Credentials>, ServerError> {
    let (Some(certificate), Some(key)) = (&config.tls_certificate, &config.tls_key) else {
        return Ok(None);
    };
    let read = |path: &std::path::Path| {
        std::fs::read(path)
            .map(zeroize::Zeroizing::new)
            .map_err(|e| ServerError(format!("{}: {e}", path.display())))
    };
    Credentials::given(&read(certificate)?, &read(key)?)
        .map(Some)
        .map_err(|e| ServerError(format!("{}: {e}", certificate.display())))
}

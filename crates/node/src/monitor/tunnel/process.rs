//! The tunnel's process: started when the node joined a cluster, started again when it ends, and told to take no more sessions
//! when another takes its place.

use super::{keys, proxies};
use crate::config::cluster::StateWriter;
use crate::monitor::Monitor;
use crate::monitor::audit::Shipping;
use crate::monitor::timers::now;
use crate::monitor::workers::{WorkerId, WorkerKind};
use fleetgate_sys::Fd;
use fleetgate_wire::node::tunnel::ToTunnel;
use std::time::Duration;

/// A tunnel that lived for so long is started again at once.
const SETTLED: Duration = Duration::from_secs(10);
/// The first wait of one that did not, doubled each time.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(4));
impl Monitor {
    /// The first start, and all that belongs to it.
    pub(crate) fn open_tunnel(&mut self) {
        let Some(tunnel) = &mut self.tunnel else { return };
        if let Some(cluster) = &self.tools.cluster
            && !cluster.state().proxies.is_empty()
        {
            tunnel.proxies = proxies(&cluster.state().proxies);
        }
        let watched =
            self.tools
                .wakes
                .watch(&tunnel.bell, fleetgate_sys::poll::READ, tunnel.wake(keys::AUDIT));
        match self.tools.audit.file() {
            None => tracing::warn!("the audit log is standard output: the cluster keeps nothing of it"),
            Some(log) => {
                let shipping = Shipping::new(log, tunnel.home.clone(), tunnel.deliver());
                if watched.is_err() || !self.tools.audit.ship(Some(shipping)) {
                    tracing::error!("the audit log is not sent on: the cluster keeps nothing of it");
                }
            }
        }
        self.keep_states();
        self.start_tunnel();
        self.plan_renewal(false);
    }

    /// States that come are kept for the next start from now on.
    pub(crate) fn keep_states(&mut self) {
        let Some(tunnel) = &self.tunnel else { return };
        match StateWriter::start(tunnel.home.clone()) {
            Ok(writer) => self.tools.state_writer = Some(writer),
            Err(e) => tracing::error!("a newer state is not kept for the next start: {e}"),
        }
    }

    pub(super) fn start_tunnel(&mut self) {
        let settings = self.settings();
        let Some((tunnel, settings)) = self.tunnel.as_mut().zip(settings) else {
            return;
        };
        if self.draining || tunnel.worker.is_some() {
            return;
        }
        tunnel.since = now();
        tunnel.ports = settings.proxies.iter().map(|proxy| proxy.port).collect();
        tunnel.pieces.clear();
        tunnel.stated.clear();
        match self.workers.start(WorkerKind::Tunnel, &self.tools.wakes) {
            Ok(worker) => {
                tunnel.worker = Some(worker);
                let batch = tunnel.batch.clone();
                self.tell_tunnel(&ToTunnel::Begin { settings });
                self.housekeeping.tunnel(true);
                if let Some(batch) = batch {
                    self.ship(&batch);
                }
            }
            Err(e) => {
                tracing::error!("the tunnel is not started: {e}");
                self.tunnel_again(BACKOFF.1);
            }
        }
    }

    /// It died: its sessions end by their sockets, and it is started again, later and later if it keeps dying.
    pub(crate) fn tunnel_gone(&mut self, worker: WorkerId) {
        self.parted.retain(|parted| *parted != worker);
        let Some(tunnel) = &mut self.tunnel else { return };
        tunnel.leaving.retain(|leaving| *leaving != worker);
        if tunnel.worker != Some(worker) {
            return;
        }
        tunnel.worker = None;
        self.housekeeping.tunnel(false);
        tunnel.wanted.clear();
        let lived = now().saturating_sub(tunnel.since);
        tunnel.backoff = match lived >= SETTLED {
            true => Duration::ZERO,
            false => (tunnel.backoff * 2).clamp(BACKOFF.0, BACKOFF.1),
        };
        let backoff = tunnel.backoff;
        self.tunnel_again(backoff);
    }

    pub(super) fn tunnel_again(&mut self, wait: Duration) {
        let Some(tunnel) = &mut self.tunnel else { return };
        if let Some(timer) = tunnel.again.take() {
            self.tools.timers.cancel(timer);
        }
        tunnel.again = Some(self.tools.timers.after(wait, tunnel.wake(keys::START)));
    }

    /// No more sessions come by it; those that are there go on.
    pub(crate) fn drain_tunnel(&mut self) {
        if let Some(tunnel) = &mut self.tunnel
            && let Some(worker) = tunnel.worker.take()
        {
            tunnel.leaving.push(worker);
            self.housekeeping.tunnel(false);
            // Nobody else hears what the cluster says until the next monitor has dialled.
            let follows = self.draining;
            let message = ToTunnel::Drain { follows };
            self.workers.say(worker, &message, Vec::new(), &self.tools.wakes);
        }
    }

    pub(super) fn tell_tunnel(&mut self, message: &ToTunnel) {
        self.tell_tunnel_with(message, Vec::new());
    }

    pub(crate) fn tell_tunnel_with(&mut self, message: &ToTunnel, fds: Vec<Fd>) {
        if let Some(worker) = self.tunnel.as_ref().and_then(|tunnel| tunnel.worker) {
            self.workers.say(worker, message, fds, &self.tools.wakes);
        }
    }
}

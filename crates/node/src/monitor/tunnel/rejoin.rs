//! Who the node is may be another at a reload: it joined a cluster, left it, or joined anew. A tunnel is of one identity for
//! its life. What an earlier one brought goes on to its end; beyond that nothing that it says is heard, and nothing is
//! signed for it.

use crate::monitor::Monitor;
use crate::monitor::tunnel::Tunnel;
use crate::monitor::workers::{WorkerId, WorkerKind};
use fleetgate_wire::node::tunnel::{FromTunnel, ToTunnel};
use std::ffi::CString;

impl Monitor {
    /// Who the node is now; none: it is in no cluster.
    pub(crate) fn tunnel_reloaded(&mut self, loaded: Option<Tunnel>) {
        // The one that runs may have newer certificates than the one that was loaded, and has the connections.
        if let (Some(known), Some(loaded)) = (&mut self.tunnel, &loaded)
            && known.is_of(loaded)
        {
            // The configuration may name another state directory.
            if known.home != loaded.home {
                known.home.clone_from(&loaded.home);
                self.keep_states();
            }
            return;
        }
        self.part();
        if let Some(mut tunnel) = loaded {
            self.tunnels += 1;
            tunnel.number = self.tunnels;
            self.tunnel = Some(tunnel);
            self.open_tunnel();
        }
    }

    /// The tunnel takes no more sessions, and all that belonged to it ends.
    fn part(&mut self) {
        self.drain_tunnel();
        let Some(tunnel) = self.tunnel.take() else { return };
        for timer in [tunnel.renewal, tunnel.again].into_iter().flatten() {
            self.tools.timers.cancel(timer);
        }
        // The audit log's thread has the bell too, perhaps for a moment yet.
        self.tools.wakes.forget(&tunnel.bell);
        self.tools.audit.ship(None);
        self.tools.state_writer = None;
        // Whoever waits for an address would never end.
        for (host, worker) in tunnel.looking.into_iter().chain(tunnel.wanted) {
            self.answer_nothing(worker, host);
        }
        self.parted.extend(tunnel.leaving);
        let (cluster, node) = (&tunnel.joined.cluster, &tunnel.joined.node);
        tracing::info!(
            cluster,
            node,
            "the node gave up this identity: it left, or joined again"
        );
    }

    /// A message of a tunnel's whose identity the node no longer has. It may have been sent before that one heard so.
    pub(crate) fn parted_says(&mut self, worker: WorkerId, frame: &[u8]) {
        let message = match fleetgate_wire::decode::<FromTunnel>(frame) {
            Ok(message) => message,
            Err(e) => return self.violated(WorkerKind::Tunnel, worker, None, &e.to_string()),
        };
        let answer = match message {
            FromTunnel::Arrived { ticket, .. } => {
                let why = c"the node is not of this cluster any more".to_owned();
                ToTunnel::NotTaken { ticket, why }
            }
            FromTunnel::Sign { ticket, .. } => {
                let signature = None;
                ToTunnel::Signed { ticket, signature }
            }
            FromTunnel::Resolve { host } => return self.answer_nothing(worker, host),
            _ => return,
        };
        self.workers.say(worker, &answer, Vec::new(), &self.tools.wakes);
    }

    fn answer_nothing(&mut self, worker: WorkerId, host: CString) {
        let found = Vec::new();
        let message = ToTunnel::Addresses { host, found };
        self.workers.say(worker, &message, Vec::new(), &self.tools.wakes);
    }
}

//! What the proxy's tasks have in common: the newest state and inventory, the way to auth, the tunnels. Each part has one
//! task that writes it; the others have the newest by a watch.

use crate::audit::Audit;
use crate::config::Config;
use crate::identity::Identity;
use crate::jump::Local;
use crate::places::Places;
use crate::state::{Inventory, View};
use crate::tunnels::Tunnels;
use fleetgate_net::h2::Channel;
use fleetgate_net::otlp::Exporter;
use fleetgate_net::{Credentials, tls};
use fleetgate_policy::cluster::Name;
use fleetgate_ssh::key::HostKey;
use std::sync::{Arc, OnceLock};
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::{Notify, watch};

/// What the proxy's tasks have in common.
pub(crate) struct Gate {
    pub(crate) config: Config,
    /// This proxy's name.
    pub(crate) name: Name,
    /// Who it is; renewed by `auth`.
    pub(crate) identity: watch::Sender<Identity>,
    /// What it shows and whom it believes; made anew when either changes.
    pub(crate) tls: watch::Sender<tls::Server>,
    /// A certificate that was made elsewhere.
    pub(crate) given: Option<Credentials>,
    /// What it proves itself with by SSH; its certificate is renewed by `auth`.
    pub(crate) host_key: watch::Sender<Arc<HostKey>>,
    /// To the task that speaks SSH.
    pub(crate) local: UnboundedSender<Local>,
    /// The state; written by `auth`.
    pub(crate) view: watch::Sender<View>,
    /// The inventory; written by `auth`.
    pub(crate) inventory: watch::Sender<Inventory>,
    /// The connection to auth, while there is one.
    pub(crate) auth: watch::Sender<Option<Channel>>,
    /// Nodes whose connection came, went or told something new: `auth` reports them.
    pub(crate) reports: Notify,
    pub(crate) tunnels: Tunnels,
    /// Users' sessions, counted.
    pub(crate) sessions: Places<Name>,
    pub(crate) audit: Audit,
    /// Gets every connection's steps, where the configuration names one.
    pub(crate) collector: OnceLock<Exporter>,
    /// The proxy stops.
    pub(crate) leaving: watch::Sender<bool>,
}

impl Gate {
    /// Waits until the proxy stops.
    pub(crate) async fn left(&self) {
        // An error would say that the gate is gone, and this is part of it.
        let _ = self.leaving.subscribe().wait_for(|leaving| *leaving).await;
    }
}

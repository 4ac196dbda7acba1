//! The tunnel: holds the node's connection to each proxy, which it dialled, and serves gRPC on it. It has no key, no file
//! and no user's data: TLS signatures are asked of the monitor, sessions' bytes are carried unread between a stream and
//! a socket, and what proxies say of the cluster goes to the monitor, which checks it.
//!
//! Other seats have a loop of their own; this one has tokio, since TLS and HTTP/2 come with it. One thread.

mod desk;
mod dial;
mod line;
mod pending;
mod quiet;
mod service;
mod session;

use crate::seat::Ended;
use fleetgate_sys::Fd;
use fleetgate_sys::pages::Program;
use fleetgate_wire::node::tunnel::{Settings, ToTunnel};
use quiet::Quiet;
use std::sync::Arc;

/// All that is made before the sandbox is entered: the runtime, whose descriptors the sandbox has no call for, and the
/// settings, which say what ports may be connected to.
pub(crate) struct Prepared {
    runtime: tokio::runtime::Runtime,
    quiet: Arc<Quiet>,
    program: Option<Program>,
    settings: Settings,
}

impl Prepared {
    /// Waits for the monitor's first word on `control`.
    pub(crate) fn new(control: &Fd) -> Result<Prepared, Ended> {
        let ToTunnel::Begin { settings } = line::first(control)? else {
            return Err(Ended::Because("the first word is not Begin".to_owned()));
        };
        let quiet = Arc::new(Quiet::default());
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .on_thread_unpark(quiet.woke())
            .build()
            .map_err(Ended::at("making the runtime"))?;
        Ok(Prepared {
            runtime,
            quiet,
            program: Program::find().ok(),
            settings,
        })
    }

    /// Ports that are to be connected to.
    pub(crate) fn ports(&self) -> Vec<u16> {
        self.settings.proxies.iter().map(|proxy| proxy.port).collect()
    }

    /// Serves until the monitor ends it.
    pub(crate) fn serve(self, control: Fd) -> Ended {
        let Prepared {
            runtime,
            quiet,
            program,
            settings,
        } = self;
        runtime.block_on(async {
            tokio::spawn(quiet.keep(program));
            desk::serve(control, settings).await
        })
    }
}

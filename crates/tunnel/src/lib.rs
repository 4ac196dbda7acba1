//! The tunnel: holds the node's connection to each proxy, which it dialled, and serves gRPC on it. It has no key, no file
//! and no user's data: TLS signatures are asked of the monitor, sessions' bytes are carried unread between a stream and
//! a socket, and what proxies say of the cluster goes to the monitor, which checks it.
//!
//! Other workers have a loop of their own; this one has tokio, since TLS and HTTP/2 come with it. One thread.
#![cfg_attr(
    not(test),
    warn(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_possible_wrap
    )
)]
#![forbid(unsafe_code)]

mod dial;
mod event_loop;
mod idle;
mod monitor_socket;
mod pending;
mod recordings;
mod request;
mod service;
mod session;
mod text;

use fleetgate_sys::Fd;
use fleetgate_sys::pages;
use fleetgate_wire::node::tunnel::{Settings, ToTunnel};
use fleetgate_worker::sandbox::{CONTROL, Worker};
use fleetgate_worker::start::{Program, Start, WorkerEnd};
use idle::IdleDetector;
use std::ffi::OsString;
use std::sync::Arc;

const PROGRAM: Program = Program {
    name: c"fleetgate-tunnel",
    workers: &[(Worker::Tunnel, serve)],
    starter: None,
};

/// Runs the subcommand in `args` (without the program's name); returns the exit code. Before this the process must have
/// made no thread.
pub fn run(args: &[OsString]) -> i32 {
    PROGRAM.run(args)
}

/// The tunnel hears its first word before the sandbox stands: it is the monitor's, and names the ports to connect to.
fn serve(start: &Start) -> WorkerEnd {
    let control = Fd::from_raw(CONTROL);
    let prepared = match Preparation::new(&control) {
        Ok(prepared) => prepared,
        Err(ended) => return ended,
    };
    match start.confine(&prepared.ports()) {
        Ok(()) => prepared.serve(control),
        Err(ended) => ended,
    }
}

/// All that is made before the sandbox is entered: the runtime, whose descriptors the sandbox has no call for, and the
/// settings, which say what ports may be connected to.
struct Preparation {
    runtime: tokio::runtime::Runtime,
    quiet: Arc<IdleDetector>,
    program: Option<pages::Program>,
    settings: Settings,
}

impl Preparation {
    /// Waits for the monitor's first word on `control`.
    fn new(control: &Fd) -> Result<Preparation, WorkerEnd> {
        let ToTunnel::Begin { settings } = monitor_socket::first(control)? else {
            return Err(WorkerEnd::Because("the first word is not Begin".to_owned()));
        };
        let quiet = Arc::new(IdleDetector::default());
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .on_thread_unpark(quiet.woke())
            .build()
            .map_err(WorkerEnd::at("making the runtime"))?;
        Ok(Preparation {
            runtime,
            quiet,
            program: pages::Program::find().ok(),
            settings,
        })
    }

    /// Ports that are to be connected to.
    fn ports(&self) -> Vec<u16> {
        self.settings.proxies.iter().map(|proxy| proxy.port).collect()
    }

    /// Serves until the monitor ends it.
    fn serve(self, control: Fd) -> WorkerEnd {
        let Preparation {
            runtime,
            quiet,
            program,
            settings,
        } = self;
        runtime.block_on(async {
            tokio::spawn(quiet.keep(program));
            event_loop::serve(control, settings).await
        })
    }
}

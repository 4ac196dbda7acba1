//! `fleetgate auth` and `fleetgate proxy`: one service in the foreground, until it is told to end. What it does is its
//! crate's.

use crate::cluster;
use crate::flags::{Given, Outcome};
use fleetgate_auth::clock::MachineClock;
use fleetgate_base::notify::Notify;
use fleetgate_sys::signals;
use serde::Deserialize;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::signal::unix::{SignalKind, signal};

/// `[auth]` of the configuration.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AuthSection {
    /// What `fleetgate init` made.
    state_directory: PathBuf,
    /// Where proxies reach it.
    listen: Option<SocketAddr>,
    /// Proxies on other machines.
    #[serde(default)]
    relays: Vec<IpAddr>,
    /// How large the audit log may be, in bytes.
    audit_size: Option<u64>,
}

/// `auth`
pub fn auth(given: &Given) -> Outcome {
    let config = auth_config(&cluster::configuration(given)?)?;
    fleetgate_auth::sandbox::enter(&config.directory)?;
    runtime()?.block_on(async {
        let socket = config.directory.join(fleetgate_auth::SOCKET);
        let server = fleetgate_auth::Server::open(config).await?;
        ready(&format!(
            "listening on {} and {}",
            server.address()?,
            socket.display()
        ));
        server.run(ended()?).await?;
        Ok(0)
    })
}

/// What `[auth]` says.
pub fn auth_config(path: &Path) -> Result<fleetgate_auth::Config, String> {
    #[derive(Deserialize)]
    struct Sections {
        auth: Option<AuthSection>,
    }
    let failed = |why: &dyn std::fmt::Display| format!("{}: {why}", path.display());
    let text = std::fs::read_to_string(path).map_err(|e| failed(&e))?;
    let sections: Sections = toml::from_str(&text).map_err(|e| failed(&e))?;
    let section = sections
        .auth
        .ok_or_else(|| failed(&"there is no section [auth]"))?;
    let plain = fleetgate_auth::Config::new(&section.state_directory);
    Ok(fleetgate_auth::Config {
        listen: section.listen.unwrap_or(plain.listen),
        relays: section.relays,
        audit_size: section.audit_size.unwrap_or(plain.audit_size),
        clock: Arc::new(MachineClock),
        ..plain
    })
}

/// `proxy`
pub fn proxy(given: &Given) -> Outcome {
    fleetgate_sys::heap::keep_large_apart();
    let config = fleetgate_proxy::config::Config::load(&cluster::configuration(given)?)?;
    let listen = config.listen;
    let mut server = fleetgate_proxy::Server::new(config)?;
    let listener = std::net::TcpListener::bind(listen)
        .map_err(|e| format!("cannot listen on {listen}: {e}; `listen` in [proxy] says where"))?;
    // Its socket may be out of reach for whom the proxy becomes.
    let notify = Notify::from_environment();
    server.confine()?;
    runtime()?.block_on(async {
        let status = format!("listening on {}", listener.local_addr()?);
        notify.say(&format!("STATUS={status}\nREADY=1"));
        tracing::info!("{status}");
        server.run(listener, ended()?).await?;
        Ok(0)
    })
}

/// One thread: state is its owner's alone, and a wake-up across cores costs more than most requests.
fn runtime() -> std::io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()
}

fn ready(status: &str) {
    Notify::from_environment().say(&format!("STATUS={status}\nREADY=1"));
    tracing::info!("{status}");
}

/// SIGTERM or SIGINT. SIGHUP is for services that read their configuration again, and ends none that does not.
fn ended() -> std::io::Result<impl Future<Output = ()>> {
    let mut term = signal(SignalKind::terminate())?;
    let mut int = signal(SignalKind::interrupt())?;
    let mut hup = signal(SignalKind::hangup())?;
    // `fleetgate up` takes them from a descriptor and blocks them therefore; a child begins with what its parent blocks.
    signals::unblock(&[signals::TERM, signals::INT, signals::HUP])
        .map_err(|e| std::io::Error::from_raw_os_error(e.0))?;
    Ok(async move {
        loop {
            tokio::select! {
                _ = term.recv() => break,
                _ = int.recv() => break,
                _ = hup.recv() => tracing::info!("the configuration is read at the next start"),
            }
        }
        Notify::from_environment().say("STOPPING=1");
    })
}

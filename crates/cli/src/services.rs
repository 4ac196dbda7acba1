//! `fleetgate auth` and `fleetgate proxy`: one service in the foreground, until it is told to end. What it does is its
//! crate's.

use crate::cluster::{self, Role};
use crate::flags::{Arguments, Outcome};
use fleetgate_auth::clock::MachineClock;
use fleetgate_base::notify::Notify;
use fleetgate_base::parent;
use fleetgate_base::scrape;
use fleetgate_base::sockets::InheritedSockets;
use fleetgate_policy::toml_mistake::Mistake;
use fleetgate_sys::signals;
use serde::Deserialize;
use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::signal::unix::{Signal, SignalKind, signal};

/// How long a service waits for one before it that is just ending, and has the address still.
const PREDECESSOR: Duration = Duration::from_secs(3);

/// `[auth]` of the configuration.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AuthSection {
    /// What `fleetgate init` made.
    state_directory: PathBuf,
    /// Where the state is, if elsewhere: `sqlite:PATH`, or a path alone.
    state: Option<String>,
    /// Where proxies reach it.
    listen: Option<SocketAddr>,
    /// Does nothing any more, and is refused.
    relays: Option<toml::Value>,
    /// How large the audit log may be, in bytes.
    audit_size: Option<u64>,
    /// Where metrics are served.
    metrics: Option<SocketAddr>,
    /// Where audit events go.
    #[serde(default)]
    export: Vec<fleetgate_export::Form>,
    /// How recordings are kept.
    #[serde(default)]
    recordings: fleetgate_archive::settings::Form,
}

/// `auth`
pub fn auth(given: &Arguments) -> Outcome {
    let config = auth_config(&cluster::configuration(given)?)?;
    let notify = Notify::from_environment();
    let listener = listener(Role::Auth, &notify, config.listen).map_err(|e| {
        let listen = config.listen;
        format!("{listen} cannot be listened on: {e}; is another auth service running?")
    })?;
    // A store's client reads the machine's authorities, and looks names up.
    let looks_up = config.exports.iter().any(fleetgate_export::Sink::looks_up) || config.store.is_some();
    fleetgate_auth::sandbox::enter(&config.directory, &config.state, &config.recordings(), looks_up)?;
    parent::follow()?;
    runtime()?.block_on(async {
        let socket = config.directory.join(fleetgate_auth::SOCKET);
        let server = fleetgate_auth::Server::open(config, listener).await?;
        let status = format!("listening on {} and {}", server.address()?, socket.display());
        ready(&notify, &status);
        let mut signals = signals()?;
        let ended = async move {
            signals.next().await;
            notify.say("STOPPING=1");
        };
        server.run(ended).await?;
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
    let sections: Sections = toml::from_str(&text).map_err(|e| failed(&Mistake::new(&text, &e, &[])))?;
    let section = sections
        .auth
        .ok_or_else(|| failed(&"there is no section [auth]"))?;
    if section.relays.is_some() {
        return Err(failed(
            &"`relays` in [auth] does nothing any more: auth knows a proxy by its certificate, wherever it is; remove the line",
        ));
    }
    let exports = fleetgate_export::read(&text, &section.export).map_err(|mistake| failed(&mistake))?;
    let recordings =
        fleetgate_archive::settings::read(&text, &section.recordings).map_err(|mistake| failed(&mistake))?;
    if let Some(address) = section.metrics {
        scrape::check(address).map_err(|why| failed(&why))?;
    }
    let plain = fleetgate_auth::Config::new(&section.state_directory);
    let state = section
        .state
        .map(|text| fleetgate_auth::Address::parse(&text).map_err(|e| failed(&e)));
    Ok(fleetgate_auth::Config {
        state: state.transpose()?.unwrap_or(plain.state),
        listen: section.listen.unwrap_or(plain.listen),
        audit_size: section.audit_size.unwrap_or(plain.audit_size),
        exports,
        recordings: recordings.directory,
        retention: recordings.retention,
        store: recordings.store,
        metrics: section.metrics,
        clock: Arc::new(MachineClock),
        ..plain
    })
}

/// `proxy`
pub fn proxy(given: &Arguments) -> Outcome {
    fleetgate_sys::heap::keep_large_apart();
    let config = fleetgate_proxy::config::Config::load(&cluster::configuration(given)?)?;
    let listen = config.listen;
    // Whoever started the proxy may be out of reach for whom the proxy becomes.
    let notify = Notify::from_environment();
    let listener = listener(Role::Proxy, &notify, listen)
        .map_err(|e| format!("cannot listen on {listen}: {e}; `listen` in [proxy] says where"))?;
    let mut server = fleetgate_proxy::Server::new(config)?;
    server.confine()?;
    parent::follow()?;
    runtime()?.block_on(async {
        let (drain, draining) = tokio::sync::oneshot::channel();
        let (stop, stopping) = tokio::sync::oneshot::channel();
        let mut signals = signals()?;
        let status = format!("listening on {}", listener.local_addr()?);
        ready(&notify, &status);
        tokio::spawn(async move {
            let told = signals.next().await;
            // Before it is said: `fleetgate up` may end as soon as it hears.
            parent::outlive();
            notify.say("STOPPING=1");
            if told == End::Drain {
                let _ = drain.send(());
                // Told twice, it means now.
                signals.next().await;
            }
            let _ = stop.send(());
            std::future::pending::<()>().await
        });
        let stopping = async {
            let _ = stopping.await;
        };
        let draining = async {
            // A sender that is gone has told to stop.
            if draining.await.is_err() {
                std::future::pending().await
            }
        };
        server.run(listener, draining, stopping).await?;
        Ok(0)
    })
}

/// The listening socket: the one that an earlier process of this service had, or a new one, which is kept for the next.
fn listener(role: Role, notify: &Notify, address: SocketAddr) -> std::io::Result<TcpListener> {
    let handed = InheritedSockets::from_environment();
    let (is_kept, count) = (handed.is_kept, handed.sockets.len());
    if let Some(socket) = handed.take(address) {
        return Ok(TcpListener::from(OwnedFd::from(socket)));
    }
    if count > 0 {
        match is_kept {
            true => notify.forget(role.stored()),
            false => {
                tracing::warn!("the sockets that were handed over do not listen on {address}: one is made")
            }
        }
    }
    let begun = Instant::now();
    let listener = loop {
        match TcpListener::bind(address) {
            // What a `fleetgate up` that was killed had started is just ending.
            Err(e) if e.kind() == ErrorKind::AddrInUse && begun.elapsed() < PREDECESSOR => {
                std::thread::sleep(PREDECESSOR / 60);
            }
            bound => break bound?,
        }
    };
    notify.keep(role.stored(), listener.as_raw_fd());
    Ok(listener)
}

/// One thread: state is its owner's alone, and a wake-up across cores costs more than most requests.
fn runtime() -> std::io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()
}

fn ready(notify: &Notify, status: &str) {
    notify.say(&format!("STATUS={status}\nREADY=1"));
    tracing::info!("{status}");
}

/// How a service is told to end.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    /// SIGTERM: a service manager restarts or stops it. A proxy goes on with what is open.
    Drain,
    /// SIGINT: from a terminal, whose user means all of it.
    Stop,
}

struct Signals([Signal; 3]);

/// SIGTERM and SIGINT. SIGHUP is for services that read their configuration again, and ends none that does not.
fn signals() -> std::io::Result<Signals> {
    let kinds = [
        SignalKind::terminate(),
        SignalKind::interrupt(),
        SignalKind::hangup(),
    ];
    let [term, int, hup] = kinds.map(signal);
    let taken = [term?, int?, hup?];
    // `fleetgate up` takes them from a descriptor and blocks them therefore; a child begins with what its parent blocks.
    signals::unblock(&[signals::TERM, signals::INT, signals::HUP])
        .map_err(|e| std::io::Error::from_raw_os_error(e.0))?;
    Ok(Signals(taken))
}

impl Signals {
    /// Waits for the next one that ends a service.
    async fn next(&mut self) -> End {
        let [term, int, hup] = &mut self.0;
        loop {
            tokio::select! {
                _ = term.recv() => return End::Drain,
                _ = int.recv() => return End::Stop,
                _ = hup.recv() => tracing::info!("the configuration is read at the next start"),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setting_that_does_nothing_is_refused_with_its_remedy() {
        let path = std::env::temp_dir().join(format!("fleetgate-auth-section-{}.toml", std::process::id()));
        let read = |text: &str| {
            std::fs::write(&path, text).expect("written");
            auth_config(&path).map(|config| config.listen.port())
        };
        let plain = "[auth]\nstate_directory = \"/nowhere\"\nlisten = \"127.0.0.1:7\"\n";
        assert_eq!(read(plain), Ok(7), "the control");
        let refused = read(&format!("{plain}relays = [\"192.0.2.1\"]\n")).expect_err("it does nothing");
        assert!(
            refused.contains("`relays`") && refused.contains("remove the line"),
            "{refused}"
        );
        for (more, words) in [
            ("metrics = \"0.0.0.0:9\"\n", "use 127.0.0.1:9"),
            (
                "[[auth.export]]\nname = \"siem\"\ntype = \"sylog\"\n",
                "line 6: `auth.export.type` is one of `syslog`, `otlp`, `webhook`, not `sylog`",
            ),
            (
                "[[auth.export]]\nname = \"siem\"\ntype = \"syslog\"\naddres = \"h:1\"\n",
                "line 7: unknown field `addres`",
            ),
            (
                "[[auth.export]]\nname = \"siem\"\ntype = \"syslog\"\naddress = \"h:1\"\n",
                "line 5: [[auth.export]]: `ca` is missing",
            ),
            (
                "[[auth.export]]\nname = \"siem\"\ntype = \"syslog\"\naddress = \"h:1\"\ntls = false\nurl = \"x\"\n",
                "line 9: [[auth.export]]: `url` does nothing where type = \"syslog\"",
            ),
            (
                "[auth.recordings]\nkeep_days = 30\nendpoint = \"https://minio.example\"\n",
                "line 6: [auth.recordings]: `endpoint` does nothing without `store",
            ),
            (
                "[auth.recordings]\nkeep_dys = 30\n",
                "line 5: unknown field `keep_dys`",
            ),
        ] {
            let refused = read(&format!("{plain}{more}")).expect_err(more);
            assert!(refused.contains(words), "{more}: {refused}");
        }
        let hook = "[[auth.export]]\nname = \"a\"\ntype = \"webhook\"\nurl = \"http://192.0.2.1:8/\"\n";
        assert_eq!(read(&format!("{plain}metrics = \"127.0.0.1:9\"\n{hook}")), Ok(7));
        let elsewhere = |state: &str| {
            std::fs::write(&path, format!("{plain}state = \"{state}\"\n")).expect("written");
            auth_config(&path).map(|config| config.state.to_string())
        };
        assert_eq!(elsewhere("sqlite:/else").as_deref(), Ok("/else"));
        assert_eq!(elsewhere("/else").as_deref(), Ok("/else"));
        let refused = elsewhere("etcd:/else").expect_err("there is no such store");
        assert!(refused.contains("`sqlite:PATH`"), "{refused}");
        std::fs::remove_file(&path).expect("clean");
    }
}

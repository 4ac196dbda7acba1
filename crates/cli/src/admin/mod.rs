//! The commands of administrators: which auth service is asked, and by which way.

pub mod audit;
pub mod authorities;
pub mod devices;
pub mod locks;
pub mod nodes;
pub mod roles;
pub mod sessions;
pub mod tokens;
pub mod users;

use crate::cluster;
use crate::flags::{Arguments, Outcome};
use crate::output;
use fleetgate_client::connect::{self, AdminEndpoint};
use fleetgate_client::error::ClientError;
use fleetgate_client::profile::Home;
use fleetgate_client::time;
use fleetgate_client::waiting::BoundedChannel;
use fleetgate_node::config::Config;
use fleetgate_proto::v1::EventsRequest;
use fleetgate_proto::v1::admin_client::AdminClient;
use serde_json::json;
use std::collections::HashMap;
use std::io::ErrorKind;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use tonic::{Response, Status};

/// A connection to the auth service that takes the calls of administrators.
pub type Admin = AdminClient<BoundedChannel>;

/// Makes one call of the auth service.
fn call<R, T>(
    given: &Arguments,
    method: impl AsyncFnOnce(&mut Admin, R) -> Result<Response<T>, Status>,
    request: R,
) -> Result<T, ClientError> {
    ask(given, async |mut admin| {
        Ok(method(&mut admin, request).await?.into_inner())
    })
}

/// What a command prints that removed something.
fn removed(given: &Arguments, what: &str) -> Outcome {
    output::either(
        given.has("json"),
        || json!({ "removed": what }),
        || format!("{what} was removed\n"),
    )
}

/// Hands the lines of all events that fit to `take`.
async fn events(
    admin: &mut Admin,
    request: EventsRequest,
    mut take: impl FnMut(&str),
) -> Result<(), ClientError> {
    let mut events = admin.events(request).await?.into_inner();
    while let Some(event) = events.message().await? {
        take(&event.line);
    }
    Ok(())
}

/// Asks the auth service.
pub fn ask<T>(
    given: &Arguments,
    work: impl AsyncFnOnce(Admin) -> Result<T, ClientError>,
) -> Result<T, ClientError> {
    let desk = endpoint(given)?;
    connect::run(async { work(desk.admin().await?).await })
}

/// Where the auth service is asked.
pub fn endpoint(given: &Arguments) -> Result<AdminEndpoint, ClientError> {
    Ok(match (desk(given)?, auths_socket(given)) {
        // Auth's own machine, where auth does not run: that is said, and not that some proxy is out of reach.
        (AdminEndpoint::Login(_), Some(socket)) => AdminEndpoint::Socket(socket),
        (desk, _) => desk,
    })
}

/// The auth service's socket, where its audit log is on this machine and nobody chose a login.
fn auths_socket(given: &Arguments) -> Option<PathBuf> {
    let socket = cluster::socket(&cluster::state(given).ok()?);
    let is_here = socket.with_file_name(fleetgate_auth::AUDIT_FILE).exists();
    (is_here && !chose_login(given)).then_some(socket)
}

fn chose_login(given: &Arguments) -> bool {
    given.has("home") || std::env::var_os("FLEETGATE_HOME").is_some_and(|h| !h.is_empty())
}

/// Asks the auth service of this machine by its socket; none: it does not run.
pub fn ask_here<T>(
    socket: &Path,
    work: impl AsyncFnOnce(Admin) -> Result<T, ClientError>,
) -> Result<Option<T>, ClientError> {
    match UnixStream::connect(socket).map_err(|e| e.kind()) {
        Err(ErrorKind::NotFound | ErrorKind::ConnectionRefused) => Ok(None),
        // Any other error is told where it is connected in earnest.
        _ => {
            let desk = AdminEndpoint::Socket(socket.to_owned());
            connect::run(async { work(desk.admin().await?).await }).map(Some)
        }
    }
}

/// Which sessions a command is about.
pub enum Scope {
    /// Those of the cluster, by its auth service.
    Cluster,
    /// Those of this machine, by its node's configuration.
    Here(Box<Config>),
}

/// The cluster's where it is asked for, where auth runs here or somebody is logged in; else, and with `--here`, this
/// machine's.
pub fn scope(given: &Arguments) -> Result<Scope, ClientError> {
    let here = || {
        crate::node::read_about(given)
            .map(|(config, _)| Scope::Here(Box::new(config)))
            .map_err(|e| ClientError::Refused(e.to_string()))
    };
    if given.has("here") || given.has("config") {
        if let Some(state) = given.value("state") {
            return Err(ClientError::Usage(format!(
                "`--state` is auth's directory, and `--here` asks no auth: `--config FILE` says which node of this machine \
                 is meant, not `--state {state}`"
            )));
        }
        return here();
    }
    match desk(given) {
        Ok(AdminEndpoint::Login(home)) if matches!(home.login(), Err(ClientError::NoLogin { .. })) => {
            match here()? {
                Scope::Here(config) if config.runtime_directory.join("sessions").exists() => {
                    Ok(Scope::Here(config))
                }
                _ => Err(home.no_login()),
            }
        }
        Ok(_) => Ok(Scope::Cluster),
        Err(why) => Err(why),
    }
}

/// The unix socket where `--state` says so, or where there is one; else the login, through its proxy.
fn desk(given: &Arguments) -> Result<AdminEndpoint, ClientError> {
    if given.has("state") || !chose_login(given) {
        let socket = cluster::state(given).map(|state| cluster::socket(&state));
        match socket {
            Ok(socket) if given.has("state") || socket.exists() => return Ok(AdminEndpoint::Socket(socket)),
            Err(why) if given.has("state") => return Err(ClientError::Usage(why)),
            _ => {}
        }
    }
    Home::find(given.value("home")).map(AdminEndpoint::Login)
}

/// The one word that the table asks for.
fn word(given: &Arguments) -> String {
    // The parser has read it as text.
    given.word().unwrap_or_default().to_owned()
}

/// A lifetime as messages have it; 0 where none was given.
fn lifetime(given: &Arguments) -> u32 {
    given.seconds("ttl").unwrap_or(0)
}

/// `a=1,b=2`, sorted.
pub fn labels_text(labels: &HashMap<String, String>) -> String {
    let mut pairs: Vec<String> = labels.iter().map(|(k, v)| format!("{k}={v}")).collect();
    pairs.sort();
    pairs.join(",")
}

/// A moment for a table; 0 is the word given.
fn moment(at: u64, never: &str) -> String {
    match at {
        0 => never.to_owned(),
        at => time::seen_from(time::now(), at),
    }
}

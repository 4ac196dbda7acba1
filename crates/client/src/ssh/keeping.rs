//! An SSH connection to a node without anybody at it: nothing is asked for, and nothing is printed. The master keeps such a one: it
//! is made for the first session and carries all that come, until nobody has used it for its time or it breaks. A run on many
//! nodes has one for each of them.

use super::capture::Capture;
use super::carrier::{ProxyCarrier, TcpCarrier};
use super::engine::{Client, Engine};
use super::guests::Guests;
use super::login::Login;
use super::options::{LogLevel, Options, SSH_PORT};
use super::{Carrier, Credential, Hosts, Plan, ServerMemory, SshError, Strict, Work, settings};
use crate::master_client::words;
use crate::profile::Home;
use crate::timings::Timings;
use crate::transport::{DialOptions, Proxy, ReportHandle};
use fleetgate_proto::v1::denied::Reason;
use fleetgate_ssh::Connection;
use fleetgate_ssh::settings::Keepalive;
use fleetgate_wire::master::{FromMaster, Server};
use std::ffi::{CString, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::time::Duration;

/// A connection without words is asked whether the other side lives; after three of these it is given up.
const KEEPALIVE: Keepalive = Keepalive {
    after: Duration::from_secs(30),
    unanswered: 3,
};

/// The way of a connection that is to be made.
pub(crate) enum Route {
    /// Through a proxy.
    Proxy {
        proxy: Box<Proxy>,
        /// Its connection was there before, and may be dead.
        was_there: bool,
    },
    /// To the node's own port.
    Port { host: String, port: u16 },
    /// To an SSH server of no cluster.
    Server(Server),
}

/// To where a connection is to be made.
pub(crate) struct Opening {
    pub(crate) route: Route,
    /// The node, or the server's name or address.
    pub(crate) node: String,
    pub(crate) account: String,
    /// How long it may take.
    pub(crate) time: Duration,
}

/// Makes an SSH connection to a node and runs the guests' sessions on it, until nobody has used it for its time or it breaks.
/// Whoever waits then is answered. False: the server, its keys or the user's are such that a command has to see for itself.
pub(crate) async fn keep_connection(home: &Home, opening: Opening, guests: &mut Guests) -> bool {
    let client = Client::Guests(guests);
    let outcome = connection(home, &opening, Work::None, client, &mut ReportHandle::default()).await;
    let takes_anybody = match &outcome {
        Err(SshError::Host(_) | SshError::Login(_) | SshError::Refused(_) | SshError::Local(_)) => false,
        // A proxy's no stays one; a node that is not there may come.
        Err(SshError::Denied(refused)) => matches!(refused.reason, Reason::Offline | Reason::Busy),
        _ => true,
    };
    let was_there = matches!(opening.route, Route::Proxy { was_there: true, .. });
    let word = match outcome {
        // Its words are the same for a connection of the command's own, which would take as long to fail.
        Err(SshError::Connect(why)) if !was_there => FromMaster::Failed { why: words(&why) },
        Err(SshError::Denied(refused)) if refused.reason != Reason::Mfa => FromMaster::Failed {
            why: words(&refused.to_string()),
        },
        // The command asks the user what has to be asked, and says what is wrong in its own words.
        _ => FromMaster::Cold,
    };
    guests.answer_all(&word);
    takes_anybody
}

/// Runs one command on a node over an SSH connection of its own; what becomes of it stands in `capture`, and what the proxy said
/// beside it in `report`.
pub(crate) async fn run_captured(
    home: &Home,
    opening: &Opening,
    command: Vec<u8>,
    capture: &mut Capture,
    report: &mut ReportHandle,
) -> Result<(), SshError> {
    connection(
        home,
        opening,
        Work::Exec(command),
        Client::Capture(capture),
        report,
    )
    .await
}

async fn connection(
    home: &Home,
    opening: &Opening,
    work: Work,
    client: Client<'_>,
    report: &mut ReportHandle,
) -> Result<(), SshError> {
    let options = Options {
        host: opening.node.clone(),
        work,
        input: false,
        batch: true,
        level: LogLevel::Quiet,
        connect_time: Some(opening.time),
        ..Options::default()
    };
    let plan = Plan {
        user: opening.account.clone(),
        place: opening.node.clone(),
        leg: "client-node",
        options,
        terminal: false,
        environment: Vec::new(),
        escape: None,
        keepalive: Some(KEEPALIVE),
        display: None,
        starter: None,
    };
    let tcp = |host: &str, port| TcpCarrier {
        host: host.to_owned(),
        port,
        time: Some(opening.time),
    };
    match &opening.route {
        Route::Proxy { proxy, .. } => {
            let mut carrier = ProxyCarrier {
                proxy: Proxy::clone(proxy),
                node: opening.node.clone(),
                login: opening.account.clone(),
                options: DialOptions {
                    is_silent: true,
                    ..DialOptions::default()
                },
                report: ReportHandle::default(),
            };
            let peer = Peer::of_cluster(home, &opening.node)?;
            let outcome = over(&mut carrier, &plan, peer, client).await;
            *report = carrier.report;
            outcome
        }
        Route::Port { host, port } => {
            let peer = Peer::of_cluster(home, &opening.node)?;
            over(&mut tcp(host, *port), &plan, peer, client).await
        }
        Route::Server(server) => {
            let port = u16::try_from(server.port).unwrap_or(SSH_PORT);
            let peer = Peer::of_files(home, &opening.node, port, server)?;
            over(&mut tcp(&opening.node, port), &plan, peer, client).await
        }
    }
}

/// What is known of who is at the other end, and what lets the user in there.
struct Peer {
    hosts: Hosts,
    keys: Vec<Credential>,
    memory: ServerMemory,
}

impl Peer {
    /// A node of the cluster, with the login's key.
    fn of_cluster(home: &Home, node: &str) -> Result<Peer, SshError> {
        let key = Credential::of_files(&home.file("id"), Some(&home.file("id-cert.pub")), &Vec::new)?;
        Ok(Peer {
            hosts: Hosts::of_cluster(node, home.file("known_hosts")),
            keys: vec![key],
            memory: ServerMemory::of_node(home, node),
        })
    }

    /// A server that its files know, with keys of files.
    fn of_files(home: &Home, host: &str, port: u16, server: &Server) -> Result<Peer, SshError> {
        let known = server.known_hosts.iter().map(path).collect();
        let hosts = match &server.alias {
            Some(alias) => Hosts::known(&alias.to_string_lossy(), SSH_PORT, known, Strict::Yes),
            None => Hosts::known(host, port, known, Strict::Yes),
        };
        if !hosts.has_entries() {
            return Err(SshError::Host(format!("nobody here knows {host}")));
        }
        let keys: Result<Vec<Credential>, _> = server
            .keys
            .iter()
            .map(|file| Credential::with_certificate_beside(&path(file), &Vec::new))
            .collect();
        Ok(Peer {
            hosts,
            keys: keys.map_err(|e| SshError::Login(e.to_string()))?,
            memory: ServerMemory::of_host(home, host, port),
        })
    }
}

fn path(name: &CString) -> PathBuf {
    PathBuf::from(OsStr::from_bytes(name.as_bytes()))
}

async fn over(
    carrier: &mut impl Carrier,
    plan: &Plan,
    peer: Peer,
    mut client: Client<'_>,
) -> Result<(), SshError> {
    let Peer {
        hosts,
        keys,
        mut memory,
    } = peer;
    let mut login = Login::new(plan.user.clone(), keys, true, plan.options.ways, |_| {});
    let ahead = login.is_sure();
    let mut timings = Timings::default();
    let mut listeners = Vec::new();
    loop {
        let mut connection = Connection::client(settings(plan, &hosts, &memory));
        let first = connection.output().to_vec();
        connection.sent(first.len());
        let stream = carrier.open(first, &mut timings).await?;
        let engine = Engine::new(
            stream,
            connection,
            plan,
            &hosts,
            &mut memory,
            &mut login,
            &mut timings,
            &mut listeners,
            ahead,
            client.lend(),
        )?;
        match engine.run().await {
            Err(SshError::Changed) => login.again(),
            outcome => return outcome.map(drop),
        }
    }
}

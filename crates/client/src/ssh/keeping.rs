//! An SSH connection to a node without anybody at it: nothing is asked for, and nothing is printed. The master keeps such a one: it
//! is made for the first session and carries all that come, until nobody has used it for its time or it breaks. A run on many
//! nodes has one for each of them.

use super::capture::Capture;
use super::carrier::ProxyCarrier;
use super::engine::{Client, Engine};
use super::guests::Guests;
use super::login::Login;
use super::options::{LogLevel, Options};
use super::{Carrier, Credential, Hosts, Plan, ServerMemory, SshError, Work, settings};
use crate::master_client::words;
use crate::profile::Home;
use crate::timings::Timings;
use crate::transport::{DialOptions, Proxy, ReportHandle};
use fleetgate_net::dial;
use fleetgate_proto::v1::denied::Reason;
use fleetgate_ssh::Connection;
use fleetgate_ssh::settings::Keepalive;
use fleetgate_wire::master::FromMaster;
use std::time::Duration;

/// A connection without words is asked whether the other side lives; after three of these it is given up.
const KEEPALIVE: Keepalive = Keepalive {
    after: Duration::from_secs(30),
    unanswered: 3,
};

/// To where a connection is to be made.
pub(crate) struct Opening {
    pub(crate) proxy: Proxy,
    /// The proxy's connection was there before, and may be dead.
    pub(crate) was_there: bool,
    pub(crate) node: String,
    pub(crate) account: String,
}

/// Makes an SSH connection to a node and runs the guests' sessions on it, until nobody has used it for its time or it breaks.
/// Whoever waits then is answered.
pub(crate) async fn keep_connection(home: &Home, opening: Opening, guests: &mut Guests) {
    let client = Client::Guests(guests);
    let outcome = connection(home, &opening, Work::None, client, &mut ReportHandle::default()).await;
    let word = match outcome {
        // Its words are the same for a connection of the command's own, which would take as long to fail.
        Err(SshError::Connect(why)) if !opening.was_there => FromMaster::Failed { why: words(&why) },
        Err(SshError::Denied(refused)) if refused.reason != Reason::Mfa => FromMaster::Failed {
            why: words(&refused.to_string()),
        },
        // The command asks the user what has to be asked, and says what is wrong in its own words.
        _ => FromMaster::Cold,
    };
    guests.answer_all(&word);
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
    mut client: Client<'_>,
    report: &mut ReportHandle,
) -> Result<(), SshError> {
    let options = Options {
        host: opening.node.clone(),
        work,
        input: false,
        batch: true,
        level: LogLevel::Quiet,
        connect_time: Some(dial::DEADLINE),
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
    let hosts = Hosts::of_cluster(&opening.node, home.file("known_hosts"));
    let key = Credential::of_files(&home.file("id"), Some(&home.file("id-cert.pub")), &Vec::new)?;
    let mut login = Login::new(plan.user.clone(), vec![key], true, plan.options.ways, |_| {});
    let mut carrier = ProxyCarrier {
        proxy: opening.proxy.clone(),
        node: opening.node.clone(),
        login: opening.account.clone(),
        options: DialOptions {
            is_silent: true,
            ..DialOptions::default()
        },
        report: ReportHandle::default(),
    };
    let mut memory = ServerMemory::of_node(home, &opening.node);
    let mut timings = Timings::default();
    let mut listeners = Vec::new();
    loop {
        let mut connection = Connection::client(settings(&plan, &hosts, &memory));
        let first = connection.output().to_vec();
        connection.sent(first.len());
        let stream = carrier.open(first, &mut timings).await?;
        *report = carrier.report.clone();
        let engine = Engine::new(
            stream,
            connection,
            &plan,
            &hosts,
            &mut memory,
            &mut login,
            &mut timings,
            &mut listeners,
            true,
            client.lend(),
        )?;
        match engine.run().await {
            Err(SshError::Changed) => login.again(),
            outcome => return outcome.map(drop),
        }
    }
}

//! The way to the auth service: one connection that is made again when it breaks, and what goes over it. While auth is
//! away the proxy goes on with the state that it has.

use crate::identity::{self, Identity};
use crate::log_turns::cut;
use crate::shared::Shared;
use crate::ssh::authenticator::Proof;
use crate::state::{InventoryNode, now};
use fleetgate_net::backoff::{Backoff, random};
use fleetgate_net::h2::{self, AUTH_MESSAGE, Channel, Tuning};
use fleetgate_net::tls::{AUTH, Believe, Client, H2, Stream};
use fleetgate_net::{Trust, dial as tcp};
use fleetgate_policy::cluster::{Name, Retiring, Trust as PolicyTrust};
use fleetgate_policy::text;
use fleetgate_proto::signed;
use fleetgate_proto::v1::cluster_client::ClusterClient;
use fleetgate_proto::v1::{
    AuditBatch, AuditFrom, AuditPosition, NodeReport, Renew, RenewFor, Renewed, SignHostRequest,
    SignLoginRequest, ToNode, WatchRequest, to_node,
};
use fleetgate_ssh::key::Certificate;
use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tonic::{Response, Status};

/// How long a node's request waits for auth.
pub const PATIENCE: Duration = Duration::from_secs(20);
/// How long a user's login at a plain sshd waits for auth.
pub const USER_PATIENCE: Duration = Duration::from_secs(10);
/// How often all that is connected is reported: the heartbeat.
pub const HEARTBEAT: Duration = Duration::from_secs(30);
/// Reports that are under way at once.
const REPORTS: usize = 64;
/// The most nodes of an inventory.
pub const NODES_MAX: usize = 1 << 17;

/// Keeps the connection, and everything that follows from what auth says. It never ends.
pub(crate) async fn run(shared: Arc<Shared>) {
    tokio::join!(
        connect(&shared),
        watch(&shared),
        inventory(&shared),
        report(&shared),
        renew_own(&shared)
    );
}

async fn connect(shared: &Shared) {
    let mut backoff = Backoff::RECONNECT;
    loop {
        match reach(shared).await {
            Ok(channel) => {
                tracing::info!("connected to auth at {}", shared.config.auth);
                backoff.worked();
                let mut closed = channel.closed();
                shared.auth.send_replace(Some(channel));
                let why = closed.wait().await;
                shared.auth.send_replace(None);
                tracing::warn!("the connection to auth at {} broke: {why}", shared.config.auth);
            }
            Err(why) => tracing::warn!("auth is not reached: {}", text::at(&shared.config.auth, &why)),
        }
        sleep(backoff.failed(random())).await;
    }
}

async fn reach(shared: &Shared) -> Result<Channel, String> {
    let stream = dial(shared, H2).await?;
    h2::connect(stream, Tuning::AUTH).await.map_err(|e| e.to_string())
}

/// A connection to auth on which this proxy has proven itself, for one protocol.
pub(crate) async fn dial(shared: &Shared, protocol: &[u8]) -> Result<Stream<TcpStream>, String> {
    let trust = Trust::new(&shared.view.borrow().state.trust.tls_ca).map_err(|e| e.to_string())?;
    let credentials = shared.identity.borrow().credentials.clone();
    let client =
        Client::new(&Believe::Trust(trust), Some(&credentials), &[protocol]).map_err(|e| e.to_string())?;
    let tcp = tcp::connect(&shared.config.auth, tcp::DEADLINE)
        .await
        .map_err(|e| e.to_string())?;
    let (stream, peer) = client.connect(AUTH, tcp).await.map_err(|e| e.to_string())?;
    match peer.alpn.as_deref() == Some(protocol) {
        true => Ok(stream),
        false => Err("it speaks another protocol: upgrade auth before its proxies".to_owned()),
    }
}

/// The service, as soon as it is reached.
async fn service(shared: &Shared) -> ClusterClient<Channel> {
    let mut auth = shared.auth.subscribe();
    match auth
        .wait_for(Option::is_some)
        .await
        .map(|channel| channel.clone())
    {
        Ok(Some(channel)) => ClusterClient::new(channel)
            .max_decoding_message_size(AUTH_MESSAGE)
            .max_encoding_message_size(AUTH_MESSAGE),
        // The shared state is part of whoever asks.
        _ => std::future::pending().await,
    }
}

/// Waits before something is asked of auth again: not for longer than until there is a new connection.
pub(crate) async fn pause(shared: &Shared, backoff: &mut Backoff) {
    let mut auth = shared.auth.subscribe();
    auth.borrow_and_update();
    tokio::select! {
        () = sleep(backoff.failed(random())) => {}
        _ = auth.changed() => {}
    }
}

async fn watch(shared: &Shared) {
    let mut backoff = Backoff::RECONNECT;
    let mut is_saved = true;
    loop {
        let mut service = service(shared).await;
        let serial = shared.view.borrow().state.serial;
        let why = match service.watch(WatchRequest { serial }).await {
            Ok(answer) => {
                let mut stream = answer.into_inner();
                loop {
                    let reply = match stream.message().await {
                        Ok(Some(reply)) => reply,
                        Ok(None) => break "auth ended it".to_owned(),
                        Err(status) => break h2::words(&status),
                    };
                    backoff.worked();
                    for (what, signed) in [(true, reply.state), (false, reply.fresh)] {
                        let Some(signed) = signed else { continue };
                        match take_state(shared, what, signed) {
                            Ok(()) => is_saved &= !what,
                            Err(why) => tracing::error!("a state from auth is not taken: {why}"),
                        }
                    }
                    // It holds already: a disk that is full or gone keeps no lock from being applied.
                    is_saved = is_saved || save_state(shared);
                }
            }
            Err(status) => h2::words(&status),
        };
        tracing::warn!("the cluster's state is not watched: {why}");
        pause(shared, &mut backoff).await;
    }
}

fn take_state(shared: &Shared, whole: bool, signed: fleetgate_proto::v1::Signed) -> Result<(), String> {
    let before = shared.view.borrow().clone();
    let view = if whole {
        before.follow(signed)?
    } else {
        before.refresh(signed)?
    };
    let trusts_others = view.state.trust.tls_ca != before.state.trust.tls_ca;
    shared.view.send_replace(view);
    if trusts_others && let Err(why) = shared.renew_tls() {
        tracing::error!("what this proxy shows is as before: {why}");
    }
    Ok(())
}

/// Keeps the state for the next start. What does not work is tried again when auth says that the state still holds.
fn save_state(shared: &Shared) -> bool {
    // The process that has taken this one's place keeps it.
    if shared.is_leaving() {
        return true;
    }
    let signed = shared.view.borrow().signed.clone();
    let saved = identity::save_state(&shared.config.state_directory, &signed);
    if let Err(why) = &saved {
        tracing::error!(
            "the cluster's state holds, and cannot be kept: with no auth this proxy would begin with an older one: {why}"
        );
    }
    saved.is_ok()
}

async fn inventory(shared: &Shared) {
    let mut backoff = Backoff::RECONNECT;
    loop {
        let mut service = service(shared).await;
        // What is told anew takes the old one's place when it is whole.
        let mut anew: Option<BTreeMap<Name, Arc<InventoryNode>>> = None;
        let why = match service.watch_nodes(WatchRequest { serial: 0 }).await {
            Ok(answer) => {
                let mut stream = answer.into_inner();
                loop {
                    let change = match stream.message().await {
                        Ok(Some(change)) => change,
                        Ok(None) => break "auth ended it".to_owned(),
                        Err(status) => break h2::words(&status),
                    };
                    backoff.worked();
                    if change.begin {
                        anew = Some(BTreeMap::new());
                    }
                    if let Some(node) = change.node
                        && let Ok(name) = Name::parse(&node.name)
                    {
                        let known = Arc::new(InventoryNode::new(node));
                        match &mut anew {
                            Some(anew) if anew.len() < NODES_MAX => _ = anew.insert(name, known),
                            Some(_) => {}
                            None => shared
                                .inventory
                                .send_modify(|nodes| _ = nodes.insert(name, known)),
                        }
                    }
                    if let Ok(name) = Name::parse(&change.removed) {
                        match &mut anew {
                            Some(anew) => _ = anew.remove(&name),
                            None => shared.inventory.send_modify(|nodes| _ = nodes.remove(&name)),
                        }
                    }
                    if change.complete
                        && let Some(whole) = anew.take()
                    {
                        shared.inventory.send_replace(whole);
                        shared.inventory_is_whole.send_replace(true);
                    }
                }
            }
            Err(status) => h2::words(&status),
        };
        tracing::warn!("the inventory is not watched: {why}");
        pause(shared, &mut backoff).await;
    }
}

/// Tells auth who is connected: what changed at once, everything every so often and after auth was away.
async fn report(shared: &Arc<Shared>) {
    let mut under_way = JoinSet::new();
    let mut auth = shared.auth.subscribe();
    loop {
        tokio::select! {
            () = shared.reports.notified() => {}
            () = sleep(HEARTBEAT) => shared.tunnels.names().iter().for_each(|node| shared.tunnels.changed(node)),
            _ = auth.changed() => shared.tunnels.names().iter().for_each(|node| shared.tunnels.changed(node)),
        }
        if auth.borrow_and_update().is_none() {
            continue;
        }
        if shared.is_leaving() {
            // The process that has taken this one's place reports, under the same name.
            shared.tunnels.take_changed();
            continue;
        }
        let service = service(shared).await;
        for node in shared.tunnels.take_changed() {
            let tunnel = shared.tunnels.to(&node);
            let report = NodeReport {
                name: node.to_string(),
                connected: tunnel.is_some(),
                statement: tunnel.as_ref().and_then(|tunnel| tunnel.statement()),
            };
            // Auth takes the node's own word alone, which comes in a moment.
            if report.connected && report.statement.is_none() {
                continue;
            }
            if under_way.len() >= REPORTS {
                let _ = under_way.join_next().await;
            }
            let mut service = service.clone();
            let shared = shared.clone();
            under_way.spawn(async move {
                let stated = report.statement.clone();
                match timeout(PATIENCE, service.report(report)).await {
                    Ok(Ok(_)) => {}
                    // The node's next statement says it again, or the heartbeat.
                    Ok(Err(status)) => {
                        tracing::warn!(%node, "auth does not take what it says of itself: {}", h2::words(&status));
                        let says_more = tunnel.zip(stated).is_some_and(|(tunnel, stated)| tunnel.is_outdated(&stated));
                        if says_more {
                            shared.tunnels.changed(&node);
                            shared.reports.notify_one();
                        }
                    }
                    Err(_) => tracing::debug!(%node, "a report has taken too long"),
                }
            });
        }
        while under_way.try_join_next().is_some() {}
    }
}

/// A node's request for newer certificates. None: auth could not be asked; the node asks again.
pub(crate) async fn renew(shared: &Shared, node: &Name, renew: Renew) -> Option<ToNode> {
    let asked = RenewFor {
        name: node.to_string(),
        renew: Some(renew),
    };
    let renewed = match timeout(PATIENCE, async { service(shared).await.renew(asked).await })
        .await
        .ok()?
    {
        Ok(answer) => answer.into_inner(),
        Err(status) => Renewed {
            refused: h2::words(&status),
            ..Renewed::default()
        },
    };
    Some(ToNode {
        kind: Some(to_node::Kind::Renewed(renewed)),
    })
}

/// A node's audit records, and whether they are kept: where they are not, the node sends them again.
/// `is_told`: a refusal is told in the log.
pub(crate) async fn audit(
    shared: &Shared,
    node: &Name,
    batch: AuditBatch,
    is_told: impl FnOnce() -> bool,
) -> Option<ToNode> {
    let from = AuditPosition {
        log: batch.log.clone(),
        offset: batch.offset,
    };
    let kind = match deliver(shared, node, batch, is_told).await {
        Some(kept) => to_node::Kind::Kept(kept),
        None => to_node::Kind::Unkept(from),
    };
    Some(ToNode { kind: Some(kind) })
}

/// Audit records of a node or of this proxy, and up to where they are kept now. `is_told`: that they are not is told in the
/// log.
pub(crate) async fn deliver(
    shared: &Shared,
    source: &Name,
    batch: AuditBatch,
    is_told: impl FnOnce() -> bool,
) -> Option<AuditPosition> {
    let (log, offset) = (batch.log.clone(), batch.offset);
    let from = AuditFrom {
        source: source.to_string(),
        batch: Some(batch),
    };
    let answer = timeout(PATIENCE, async { service(shared).await.audit(from).await }).await;
    let why = match answer {
        Ok(Ok(answer)) => return Some(answer.into_inner()),
        Ok(Err(status)) => h2::words(&status),
        Err(_) => format!("auth has not answered for {} s", PATIENCE.as_secs()),
    };
    if is_told() {
        let log = cut(&log);
        tracing::warn!(%source, log, offset, "audit events wait until auth takes them: {why}");
    }
    None
}

/// Renews this proxy's own certificate when a third of its time is left.
async fn renew_own(shared: &Shared) {
    let mut backoff = Backoff::new(Duration::from_secs(30), Duration::from_secs(600));
    let mut view = shared.view.subscribe();
    loop {
        let (due_at, _) = due(&shared.identity.borrow(), &view.borrow_and_update().state.trust);
        let left = due_at.saturating_sub(now());
        if left > 0 {
            tokio::select! {
                () = sleep(Duration::from_secs(left)) => {}
                // A newer state may say that an authority signs no more.
                Ok(()) = view.changed() => continue,
            }
        }
        if shared.is_leaving() {
            // It accepts nobody any more, and the next process renews what both have.
            return std::future::pending().await;
        }
        match renew_once(shared).await {
            Ok(()) => {
                backoff.worked();
                tracing::info!("the proxy's certificate was renewed");
            }
            Err(why) => tracing::error!("the proxy's certificate is not renewed: {why}"),
        }
        // Also after it worked: an authority that issues for a moment only is no reason to ask without a pause. One that is
        // soon trusted no more is a reason to hurry, also where that is known during the pause only.
        let (asked, pause) = (Instant::now(), backoff.failed(random()));
        loop {
            let (_, end) = due(&shared.identity.borrow(), &view.borrow_and_update().state.trust);
            let hurry = Duration::from_secs(end.saturating_sub(now()) / 8).max(Duration::from_secs(1));
            tokio::select! {
                () = sleep_until(asked + pause.min(hurry)) => break,
                Ok(()) = view.changed() => {}
            }
        }
    }
}

/// When it is to ask, and until when it has to have an answer: when a third of the time is left; at once where it has no host
/// certificate yet; and where an authority of its certificates signs no more, when half of the time is over for which that
/// one is trusted: users whose logins know the former authority alone log in meanwhile.
fn due(own: &Identity, trust: &PolicyTrust) -> (u64, u64) {
    let third = |start: u64, end: u64| end.saturating_sub(end.saturating_sub(start) / 3);
    let tls = own.credentials.certificate().validity();
    let ssh = own.host_certificate.as_ref();
    let ssh = ssh.map_or(0, |certificate| {
        third(certificate.valid_after(), certificate.valid_before())
    });
    let is_ours = |retiring: &&Retiring| {
        let host = own.host_certificate.as_ref();
        let tls = Trust::new(std::slice::from_ref(&retiring.authority));
        host.is_some_and(|certificate| certificate.ca().blob() == retiring.authority)
            || tls.is_ok_and(|trust| {
                trust
                    .check_client(&own.credentials.chain().collect::<Vec<_>>(), now())
                    .is_ok()
            })
    };
    let replaced = trust.retiring.iter().filter(is_ours);
    let replaced = replaced
        .map(|retiring| (retiring.due(u32::MAX), retiring.until))
        .min();
    let (by_age, end) = (third(tls.start, tls.end).min(ssh), tls.end);
    match replaced {
        Some((due, until)) if due < by_age => (due, until),
        _ => (by_age, end),
    }
}

async fn renew_once(shared: &Shared) -> Result<(), String> {
    let own = shared.identity.borrow().clone();
    let public = own.host_key(None)?.public().blob().to_vec();
    let mut renew = Renew {
        host_keys: vec![public.into()],
        tls_public: own.key.public().spki().to_vec().into(),
        tls_certificate: own.credentials.certificate().der().to_vec().into(),
        ..Renew::default()
    };
    renew.signature = own.key.sign(&signed::renew(&renew)).into();
    let asked = RenewFor {
        name: own.name.to_string(),
        renew: Some(renew),
    };
    let answer = timeout(PATIENCE, async { service(shared).await.renew(asked).await })
        .await
        .map_err(|_| "auth is not reached".to_owned())?
        .map_err(|status| h2::words(&status))?
        .into_inner();
    if !answer.refused.is_empty() {
        return Err(answer.refused);
    }
    let host_certificate = match answer.host_certificates.first() {
        Some(blob) => Some(Certificate::parse(blob).map_err(|e| e.to_string())?),
        None => None,
    };
    let renewed = own.renewed(&answer.tls_chain, host_certificate)?;
    let host_key = renewed.host_key(renewed.host_certificate.as_ref())?;
    let directory = &shared.config.state_directory;
    if let Some(certificate) = &renewed.host_certificate {
        identity::save_host_certificate(directory, certificate)?;
    }
    identity::save_chain(directory, &answer.tls_chain)?;
    shared.identity.send_replace(renewed);
    shared.host_key.send_replace(Arc::new(host_key));
    shared.renew_tls()
}

/// A host certificate for this proxy's key in the name of a plain sshd.
///
/// Beside it the cookie for the key exchange in which it is shown.
pub(crate) async fn sign_host(
    shared: &Shared,
    node: String,
    key: Vec<u8>,
) -> Result<(Certificate, [u8; 16]), String> {
    let asked = SignHostRequest {
        node,
        key: key.into(),
    };
    let answer = for_user(shared, async { service(shared).await.sign_host(asked).await }).await?;
    let certificate = Certificate::parse(&answer.certificate).map_err(|e| e.to_string())?;
    let cookie = <[u8; 16]>::try_from(&answer.cookie[..]).map_err(|_| "auth gave no cookie".to_owned())?;
    Ok((certificate, cookie))
}

/// A certificate for one login on a plain sshd, for what its user proved here.
pub(crate) async fn sign_login(
    shared: &Shared,
    node: String,
    login: String,
    key: Vec<u8>,
    proof: &Proof,
) -> Result<Vec<u8>, String> {
    let asked = SignLoginRequest {
        node,
        login,
        key: key.into(),
        exchange: proof.exchange.to_vec().into(),
        request: proof.request.clone().into(),
    };
    let answer = for_user(shared, async { service(shared).await.sign_login(asked).await }).await?;
    Ok(answer.certificate.to_vec())
}

/// Auth's answer, for a user who waits for it; else words for him.
async fn for_user<T>(
    shared: &Shared,
    ask: impl Future<Output = Result<Response<T>, Status>>,
) -> Result<T, String> {
    match timeout(USER_PATIENCE, ask).await {
        Ok(answer) => answer
            .map(Response::into_inner)
            .map_err(|status| h2::words(&status)),
        Err(_) => {
            let why = match shared.auth.borrow().is_some() {
                true => format!("did not answer the proxy within {} s", USER_PATIENCE.as_secs()),
                false => "is not reached by the proxy".to_owned(),
            };
            Err(format!(
                "the auth service {why}: try again, or have an administrator look on auth's machine whether it runs \
                 (`systemctl status fleetgate`) and what its log says"
            ))
        }
    }
}

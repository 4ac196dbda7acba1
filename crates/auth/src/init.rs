//! The beginning of a cluster: authorities, the first roles. And the first machines, which need no token because they are
//! this one.

use crate::audit::{Event, Log, Settings, event};
use crate::authorities::{Life, make};
use crate::cache;
use crate::caller::{Caller, CallerProof};
use crate::clock::{Clock, rfc3339};
use crate::documents::{Cluster, Kind, Phase, Purpose, Serial};
use crate::error::{Refused, Result};
use crate::service::Service;
use fleetgate_policy::cluster::{MAX_PROXIES, Name, Role, Selector, USER};
use fleetgate_proto::v1;
use fleetgate_store::{Address, Outcome, Store};
use std::path::Path;
use std::sync::Arc;

/// The audit log's name below the directory.
pub const AUDIT_FILE: &str = "audit.db";
/// The role that may administer.
pub const ADMIN: &str = "admin";
/// The role that everybody gets who shall log in everywhere as himself.
pub const ACCESS: &str = "access";

/// Makes a cluster in a directory, which is made with mode 0700 when it is not there. `proxies` are where users and nodes
/// find its proxies, `host:port`.
pub async fn init(directory: &Path, cluster: &Name, proxies: &[String], clock: Arc<dyn Clock>) -> Result<()> {
    if proxies.len() > MAX_PROXIES {
        return Err(Refused::invalid(format!(
            "a cluster has at most {MAX_PROXIES} proxies"
        )));
    }
    let store = open_here(directory)?;
    let now = clock.seconds();
    let serial = Serial {
        serial: clock.millis(),
    };
    let document = Cluster {
        name: cluster.clone(),
        made: now,
        proxies: proxies.to_vec(),
    };
    let exists = || {
        Refused::exists(format!(
            "{} holds a cluster already: start it with fleetgate up, or take another directory",
            directory.display()
        ))
    };
    let mut steps = vec![
        cache::create(cache::key(&["cluster"]), &document),
        cache::create(cache::key(&["serial"]), &serial),
    ];
    for purpose in Purpose::ALL {
        let life = Life {
            phase: Phase::Active,
            made: now,
            until: None,
            grace: 0,
            since: serial.serial,
            sshds_ready: false,
        };
        steps.extend(make(purpose, cluster, life)?.1);
    }
    for role in first_roles() {
        steps.push(cache::create(cache::key(&["roles", role.name.as_str()]), &role));
    }
    match store.transact(steps).await? {
        Outcome::Done(_) => {}
        Outcome::Conflict(_) => return Err(exists()),
    }
    let audit = open_audit(directory, crate::audit::DEFAULT_SIZE, clock.clone())?;
    let event = Event::new(event::CLUSTER_MADE, clock.millis())
        .with("by", local().by())
        .with("cluster", cluster.as_str())
        .with("at", rfc3339(clock.millis()));
    let (service, beside) = Service::open(store, audit, clock, None).await?;
    let mut tasks = beside.start();
    let told = service.ledger.tell(event).await;
    // The store is closed when this returns: another may open it.
    tasks.shutdown().await;
    told
}

/// Joins the machine that the service is on, while it is not running: the same answer as by a token.
pub async fn join_here(
    directory: &Path,
    kind: Kind,
    request: v1::JoinRequest,
    clock: Arc<dyn Clock>,
) -> Result<v1::JoinReply> {
    joined(directory, kind, request, clock, false).await
}

/// The same where the machine takes the place of one that is lost: a member of this name is removed first.
pub async fn join_anew(
    directory: &Path,
    kind: Kind,
    request: v1::JoinRequest,
    clock: Arc<dyn Clock>,
) -> Result<v1::JoinReply> {
    joined(directory, kind, request, clock, true).await
}

async fn joined(
    directory: &Path,
    kind: Kind,
    request: v1::JoinRequest,
    clock: Arc<dyn Clock>,
    anew: bool,
) -> Result<v1::JoinReply> {
    let store = open_here(directory)?;
    let audit = open_audit(directory, crate::audit::DEFAULT_SIZE, clock.clone())?;
    let (service, beside) = Service::open(store, audit, clock, None).await?;
    let mut tasks = beside.start();
    let reply = async {
        let known = service.cache().members(kind).contains_key(&request.name);
        if anew && known {
            service.remove_node(&local(), &request.name, true).await?;
        }
        let reply = service.join_here(&local(), kind, request).await?;
        while service.ledger.post_once().await? {}
        Ok(reply)
    };
    let reply = reply.await;
    tasks.shutdown().await;
    reply
}

/// The state where `init` puts it: in the service's directory.
fn open_here(directory: &Path) -> Result<Arc<dyn Store>> {
    Address::in_directory(directory)
        .open()
        .map_err(|e| Refused::of_store(&e))
}

/// The audit log of a directory.
pub(crate) fn open_audit(directory: &Path, size: u64, clock: Arc<dyn Clock>) -> Result<Log> {
    Ok(Log::open(&directory.join(AUDIT_FILE), Settings { size, clock })?)
}

/// Who runs this program here.
pub(crate) fn local() -> Caller {
    Caller {
        who: CallerProof::Local(fleetgate_sys::process::effective_uid()),
        address: None,
    }
}

fn first_roles() -> [Role; 2] {
    let name = |text| Name::parse(text).expect("a name");
    let mut admin = Role::new(name(ADMIN));
    admin.admin = true;
    admin.kinds.clear();
    let mut access = Role::new(name(ACCESS));
    access.nodes = vec![Selector::all()];
    access.logins = vec![USER.to_string()];
    [admin, access]
}

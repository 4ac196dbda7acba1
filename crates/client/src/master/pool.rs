//! The connections that the master keeps: one to each proxy, and one SSH connection for each way, node and account, or several
//! where one has as many sessions as it takes. All of them belong to one login, with which the master ends, or go to servers
//! that need none.
//!
//! What asks for a connection that is being made waits for it, and makes none of its own. A connection that nobody uses ends
//! after the time that its last user asked for. One that is wanted for always is made anew when it breaks, before a command asks.

mod lasting;

use super::file_stamps::{FileStamp, LoginStamp};
use crate::error::ClientError;
use crate::master_client::socket::MessageSocket;
use crate::master_client::told_step;
use crate::master_client::usage::{Usage, Use};
use crate::master_client::{ALWAYS, DAY};
use crate::profile::{Home, Profile};
use crate::ssh::guests::{Guest, Guests};
use crate::ssh::keeping::{Opening, Route, keep_connection};
use crate::ssh::options::host_and_port;
use crate::timings::Timings;
use crate::transport::Proxy;
use crate::{config, connect};
use fleetgate_net::backoff::Backoff;
use fleetgate_policy::account_name::INTO;
use fleetgate_wire::master::{ConnectionStatus, FromMaster, SessionOrder, Step, Target, Way};
use lasting::{LONGEST_WAIT, WAITS};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::ffi::{CString, OsStr};
use std::fmt;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::rc::Rc;
use std::time::Duration;
use tokio::sync::{Mutex, Notify, mpsc};
use tokio::task::spawn_local;
use tokio::time::{Instant, sleep_until};

/// Sessions on one SSH connection: sshd lets ten in (MaxSessions), and one may be on its way out.
const MAX_SESSIONS: u32 = 8;
/// Sessions that wait for their connection. More than a user's processes, most likely; the next ones go their own way.
const MAX_WAITING_SESSIONS: usize = 1024;
/// SSH connections that are kept at a time.
pub(super) const MAX_CONNECTIONS: usize = 4096;
/// Servers to which no connection is tried for a while. An older one is forgotten for the next, and tried again.
const MAX_LEFT_ALONE: usize = 256;
/// For how long a server is left alone whose commands have to see for themselves. Each try would be a login there, and one more
/// that failed.
const LEFT_ALONE: Duration = Duration::from_mins(10);

/// The connection to one proxy.
struct ProxyLink {
    proxy: Proxy,
    usage: Rc<Usage>,
}

#[derive(Default)]
struct ProxySlot {
    /// Held while the connection is made.
    making: Mutex<()>,
    link: RefCell<Option<ProxyLink>>,
    /// Why the last one was not had, and when that was known.
    failed: RefCell<Option<(Instant, Rc<ClientError>)>>,
}

/// An SSH connection, for a node and an account by one way.
struct NodeLink {
    key: NodeKey,
    sessions: mpsc::Sender<Guest>,
    usage: Rc<Usage>,
    /// How long it might take to be made.
    time: Duration,
    /// By which it goes, once that is known. One that drains carries what it has, and nothing new is begun by it.
    proxy: Rc<RefCell<Option<Proxy>>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct NodeKey {
    /// With its address.
    way: Way,
    node: String,
    account: String,
}

/// How an SSH connection is to be made, and kept.
struct LinkPlan {
    key: NodeKey,
    keep: Duration,
    /// How long it may take to be made.
    time: Duration,
    /// Before another one is made, where one is wanted for always.
    waits: Backoff,
}

impl LinkPlan {
    fn new(key: NodeKey, keep: Duration, time: Duration) -> LinkPlan {
        let waits = WAITS;
        LinkPlan {
            key,
            keep,
            time,
            waits,
        }
    }
}

/// A server to which no connection came about without a person.
struct LeftAlone {
    key: NodeKey,
    since: Instant,
    /// Its files as they were: with other ones it is tried again.
    files: Vec<Option<FileStamp>>,
}

/// All connections.
pub(super) struct Pool {
    home: Home,
    /// None: no login is needed.
    stamp: RefCell<Option<LoginStamp>>,
    /// Of the same login; it is written with the files of the stamp.
    profile: RefCell<Option<Profile>>,
    proxies: RefCell<BTreeMap<String, Rc<ProxySlot>>>,
    nodes: RefCell<Vec<NodeLink>>,
    left_alone: RefCell<VecDeque<LeftAlone>>,
    /// Those that are wanted for always and wait to be made anew.
    awaited: RefCell<Vec<NodeKey>>,
    /// When the login was last renewed, and why it was not since.
    renewed: Cell<Option<Instant>>,
    trouble: RefCell<Option<String>>,
    /// SSH connections that take nothing new, and whose sessions go on.
    draining: RefCell<Vec<Rc<Usage>>>,
    /// Nothing is made anew.
    is_retired: Cell<bool>,
    changed: Rc<Notify>,
}

/// A connection to a proxy, for one use.
pub(super) struct LentProxy {
    pub(super) proxy: Proxy,
    /// The steps of making it, where it was made for this use.
    pub(super) steps: Vec<Step>,
    pub(super) was_there: bool,
    pub(super) one_use: Use,
}

impl Pool {
    /// For the login that the home has now.
    pub(super) fn of_login(home: Home) -> io::Result<Rc<Pool>> {
        let stamp = Some(LoginStamp::of(&home)?);
        let profile = home.profile().ok();
        Ok(Pool::new(home, stamp, profile))
    }

    /// For servers that need no login.
    pub(super) fn of_servers(home: Home) -> Rc<Pool> {
        Pool::new(home, None, None)
    }

    fn new(home: Home, stamp: Option<LoginStamp>, profile: Option<Profile>) -> Rc<Pool> {
        Rc::new(Pool {
            home,
            stamp: RefCell::new(stamp),
            profile: RefCell::new(profile),
            proxies: RefCell::default(),
            nodes: RefCell::default(),
            left_alone: RefCell::default(),
            awaited: RefCell::default(),
            renewed: Cell::default(),
            trouble: RefCell::default(),
            draining: RefCell::default(),
            is_retired: Cell::default(),
            changed: Rc::default(),
        })
    }

    /// Whether the home still has the login that the connections are for.
    pub(super) fn is_current(self: &Rc<Pool>) -> bool {
        let is_as_before = {
            let stamp = self.stamp.borrow();
            stamp
                .as_ref()
                .is_none_or(|stamp| LoginStamp::of(&self.home).is_ok_and(|now| now == *stamp))
        };
        is_as_before || self.was_renewed_by_another()
    }

    /// When the login ends, Unix seconds; none: there is none.
    pub(super) fn end(&self) -> Option<u64> {
        self.profile.borrow().as_ref().map(|profile| profile.expires)
    }

    /// Whether there is anything to keep.
    pub(super) fn is_empty(&self) -> bool {
        let proxies = self.proxies.borrow();
        self.nodes.borrow().is_empty()
            && self.awaited.borrow().is_empty()
            && !self.drains()
            && proxies.values().all(|slot| slot.link.borrow().is_none())
    }

    /// Whether a command uses anything. An SSH connection is a use of its proxy's, and none of anybody's by itself.
    pub(super) fn is_used(&self) -> bool {
        let nodes = self.nodes.borrow();
        let by_nodes = |address: &str| {
            nodes
                .iter()
                .filter(|link| link.key.goes_by_proxy(address))
                .count()
        };
        let proxies = self.proxies.borrow();
        nodes.iter().any(|link| link.usage.uses() > 0)
            || self.drains()
            || proxies.iter().any(|(address, slot)| {
                let link = slot.link.borrow();
                link.as_ref()
                    .is_some_and(|link| link.usage.uses() as usize > by_nodes(address))
            })
    }

    /// Whether sessions run on connections that take nothing new.
    fn drains(&self) -> bool {
        let mut draining = self.draining.borrow_mut();
        draining.retain(|usage| usage.uses() > 0);
        !draining.is_empty()
    }

    /// Nothing is made anew from now on.
    pub(super) fn retire(&self) {
        self.is_retired.set(true);
        self.awaited.borrow_mut().clear();
    }

    /// A use has ended, or a connection.
    pub(super) async fn changed(&self) {
        self.changed.notified().await;
    }

    /// The connection to the proxy at `address`, which is made if it is not there.
    pub(super) async fn proxy(
        self: &Rc<Pool>,
        address: &str,
        keep: Duration,
    ) -> Result<LentProxy, Rc<ClientError>> {
        let slot = self
            .proxies
            .borrow_mut()
            .entry(address.to_owned())
            .or_default()
            .clone();
        let asked = Instant::now();
        let _one_at_a_time = slot.making.lock().await;
        if let Some(lent) = slot.lend(keep) {
            return Ok(lent);
        }
        // Those who waited while it failed are told the same.
        if let Some((_, why)) = slot.failed.borrow().as_ref().filter(|(when, _)| *when >= asked) {
            return Err(why.clone());
        }
        let mut timings = Timings::default();
        let made = async {
            let (believe, credentials) = (connect::believe(&self.home)?, connect::credentials(&self.home)?);
            Proxy::connect(address, &believe, &credentials, None, &mut timings).await
        };
        match made.await {
            Err(error) => {
                let error = Rc::new(error);
                *slot.failed.borrow_mut() = Some((Instant::now(), error.clone()));
                Err(error)
            }
            Ok(proxy) => {
                let usage = Usage::new(keep, &self.changed);
                let one_use = usage.begin(keep);
                *slot.link.borrow_mut() = Some(ProxyLink {
                    proxy: proxy.clone(),
                    usage: usage.clone(),
                });
                spawn_local(slot.clone().watch(proxy.clone(), usage));
                let steps = timings.steps().iter().filter_map(told_step).collect();
                Ok(LentProxy {
                    proxy,
                    steps,
                    was_there: false,
                    one_use,
                })
            }
        }
    }

    /// A session, on the SSH connection for it, which is made if it is not there. It is answered on its socket.
    pub(super) fn run(
        self: &Rc<Pool>,
        target: &Target,
        order: SessionOrder,
        streams: [fleetgate_sys::Fd; 3],
        socket: MessageSocket,
    ) {
        let keep = Duration::from_secs(target.keep.into());
        let mut guest = Guest::new(socket, streams, order);
        let Some(key) = self
            .key(&target.way, &guest)
            .filter(|key| !self.is_left_alone(key))
        else {
            return guest.answer(&FromMaster::Cold);
        };
        let mut nodes = self.nodes.borrow_mut();
        self.let_go(&mut nodes, NodeLink::takes_more);
        let room = |link: &&NodeLink| link.key == key && link.usage.uses() < MAX_SESSIONS;
        for link in nodes.iter().filter(room) {
            guest.set_use(link.usage.begin(keep));
            guest = match link.sessions.try_send(guest) {
                Ok(()) => return,
                Err(mpsc::error::TrySendError::Full(guest) | mpsc::error::TrySendError::Closed(guest)) => {
                    guest
                }
            };
        }
        if nodes.len() + self.awaited.borrow().len() >= MAX_CONNECTIONS {
            return guest.answer(&FromMaster::Cold);
        }
        let time = Duration::from_secs(target.connect.into());
        let link = self.open(LinkPlan::new(key, keep, time));
        guest.set_use(link.usage.begin(keep));
        // It is the first one there.
        let _ = link.sessions.try_send(guest);
        nodes.push(link);
    }

    /// Has an SSH connection made.
    fn open(self: &Rc<Pool>, plan: LinkPlan) -> NodeLink {
        let (sessions, waiting) = mpsc::channel(MAX_WAITING_SESSIONS);
        let usage = Usage::new(plan.keep, &self.changed);
        let link = NodeLink {
            key: plan.key.clone(),
            sessions,
            usage: usage.clone(),
            time: plan.time,
            proxy: Rc::default(),
        };
        spawn_local(self.clone().keep(plan, waiting, usage, link.proxy.clone()));
        link
    }

    /// Those that `stays` does not hold for take nothing new, and end with their last session.
    fn let_go(&self, nodes: &mut Vec<NodeLink>, stays: impl Fn(&NodeLink) -> bool) {
        let gone = nodes.extract_if(.., |link| !stays(link)).map(|link| link.usage);
        let mut draining = self.draining.borrow_mut();
        draining.extend(gone.filter(|usage| usage.uses() > 0));
    }

    /// Where a session goes. What a check leaves out is the login's own.
    fn key(&self, way: &Way, guest: &Guest) -> Option<NodeKey> {
        let (node, account) = guest.place();
        let has_proxy = !matches!(way, Way::Proxy { address } if address.is_empty());
        if has_proxy && !account.is_empty() && !account.starts_with(INTO) {
            let way = way.clone();
            return Some(NodeKey { way, node, account });
        }
        let profile = self.profile.borrow();
        let profile = profile.as_ref()?;
        let way = match has_proxy {
            true => way.clone(),
            false => Way::Proxy {
                address: CString::new(profile.proxy.as_str()).ok()?,
            },
        };
        let node = config::node(&node, &profile.cluster).to_owned();
        let account = profile.login(&account);
        Some(NodeKey { way, node, account })
    }

    /// Whether a connection there came to nothing lately, and nothing has changed since.
    fn is_left_alone(&self, key: &NodeKey) -> bool {
        let mut left_alone = self.left_alone.borrow_mut();
        left_alone
            .retain(|one| one.since.elapsed() < LEFT_ALONE && (one.key != *key || one.files == key.files()));
        left_alone.iter().any(|one| one.key == *key)
    }

    fn leave_alone(&self, key: NodeKey) {
        let mut left_alone = self.left_alone.borrow_mut();
        if left_alone.len() >= MAX_LEFT_ALONE {
            left_alone.pop_front();
        }
        let files = key.files();
        left_alone.push_back(LeftAlone {
            key,
            since: Instant::now(),
            files,
        });
    }

    /// Makes an SSH connection and keeps it until nobody has used it for its time, or it breaks.
    async fn keep(
        self: Rc<Pool>,
        mut plan: LinkPlan,
        waiting: mpsc::Receiver<Guest>,
        usage: Rc<Usage>,
        proxy: Rc<RefCell<Option<Proxy>>>,
    ) {
        let (key, keep, time) = (plan.key.clone(), plan.keep, plan.time);
        let begun = Instant::now();
        let mut guests = Guests::new(waiting, usage.clone(), key.whom());
        let takes_anybody = match self.route(&key, keep).await {
            Err(why) => {
                guests.refuse(&why);
                true
            }
            // It counts as a use of the proxy's connection for as long as it is there.
            Ok((route, _proxy_use)) => {
                if let Route::Proxy { proxy: found, .. } = &route {
                    *proxy.borrow_mut() = Some(Proxy::clone(found));
                }
                let opening = Opening {
                    route,
                    node: key.node.clone(),
                    account: key.account.clone(),
                    time,
                };
                keep_connection(&self.home, opening, &mut guests).await
            }
        };
        self.nodes
            .borrow_mut()
            .retain(|link| !Rc::ptr_eq(&link.usage, &usage));
        match takes_anybody {
            true if usage.is_for_always() => {
                if begun.elapsed() > LONGEST_WAIT {
                    plan.waits.worked();
                }
                plan.keep = ALWAYS;
                self.make_anew(plan);
            }
            // The next try is for a command that asks, once the files have changed.
            false if matches!(key.way, Way::Server { .. }) => self.leave_alone(key),
            _ => {}
        }
        self.changed.notify_one();
    }

    /// The way of a new connection, and the use of what it goes by.
    async fn route(self: &Rc<Pool>, key: &NodeKey, keep: Duration) -> Result<(Route, Option<Use>), String> {
        match &key.way {
            Way::Proxy { address } => {
                let lent = self.proxy(&address.to_string_lossy(), keep).await;
                let lent = lent.map_err(|error| error.to_string())?;
                let route = Route::Proxy {
                    proxy: Box::new(lent.proxy),
                    was_there: lent.was_there,
                };
                Ok((route, Some(lent.one_use)))
            }
            Way::Port { address } => {
                let (host, port) = host_and_port(&address.to_string_lossy())?;
                Ok((Route::Port { host, port }, None))
            }
            Way::Server { server } => Ok((Route::Server(server.clone()), None)),
        }
    }

    /// What there is.
    pub(super) fn status(&self) -> Vec<ConnectionStatus> {
        let proxies = self.proxies.borrow();
        let proxies = proxies.iter().filter_map(|(address, slot)| {
            let link = slot.link.borrow();
            Some(link.as_ref()?.usage.status(format!("proxy {address}")))
        });
        let nodes = self.nodes.borrow();
        let nodes = nodes.iter().map(|link| link.usage.status(link.key.to_string()));
        let awaited = self.awaited.borrow();
        let awaited = awaited.iter().map(|key| ConnectionStatus {
            name: format!("{key}, which broke and is made anew").into_bytes(),
            uses: 0,
            age: 0,
            idle: 0,
            keep: fleetgate_wire::master::ALWAYS,
        });
        proxies.chain(nodes).chain(awaited).collect()
    }

    /// Why the login is not renewed, if it should have been.
    pub(super) fn trouble(&self) -> Option<String> {
        self.trouble.borrow().clone()
    }
}

impl NodeLink {
    /// Whether a session can be begun on it. One whose proxy or node drains ends with its last session.
    fn takes_more(&self) -> bool {
        let by_proxy = self.proxy.borrow();
        !self.sessions.is_closed() && by_proxy.as_ref().is_none_or(Proxy::takes_requests)
    }
}

impl NodeKey {
    fn goes_by_proxy(&self, proxy: &str) -> bool {
        matches!(&self.way, Way::Proxy { address } if address.to_bytes() == proxy.as_bytes())
    }

    /// Who answers, for people.
    fn whom(&self) -> String {
        match &self.way {
            Way::Proxy { address } => {
                format!("{}, through the proxy {}", self.node, address.to_string_lossy())
            }
            Way::Port { address } => format!("{} at {}", self.node, address.to_string_lossy()),
            Way::Server { .. } => self.node.clone(),
        }
    }

    /// What its files are now; none where its way has none of its own.
    fn files(&self) -> Vec<Option<FileStamp>> {
        let Way::Server { server } = &self.way else {
            return Vec::new();
        };
        let stamp = |name: &CString| FileStamp::of(OsStr::from_bytes(name.as_bytes()).as_ref()).ok();
        server.known_hosts.iter().chain(&server.keys).map(stamp).collect()
    }
}

impl fmt::Display for NodeKey {
    /// As `master status` names it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.account, self.node)?;
        match &self.way {
            Way::Proxy { .. } => Ok(()),
            Way::Port { address } => write!(f, " at {}", address.to_string_lossy()),
            Way::Server { server } => write!(f, " port {}", server.port),
        }
    }
}

impl ProxySlot {
    /// The connection that is there, if something new can be asked on it.
    fn lend(&self, keep: Duration) -> Option<LentProxy> {
        let link = self.link.borrow();
        // After a proxy's restart a connection takes nobody new: the next user has one made, to the new process.
        let link = link.as_ref().filter(|link| link.proxy.takes_requests())?;
        Some(LentProxy {
            proxy: link.proxy.clone(),
            steps: Vec::new(),
            was_there: true,
            one_use: link.usage.begin(keep),
        })
    }

    /// Forgets the connection when it broke, or when nobody used it for its time.
    async fn watch(self: Rc<ProxySlot>, proxy: Proxy, usage: Rc<Usage>) {
        let mut closed = proxy.closed();
        drop(proxy);
        loop {
            let until = usage
                .kept_until()
                .unwrap_or_else(|| Instant::now() + usage.keep().min(DAY));
            tokio::select! {
                _ = closed.wait() => break,
                () = sleep_until(until) => {
                    if usage.kept_until().is_some_and(|until| until <= Instant::now()) {
                        break;
                    }
                }
            }
        }
        self.link
            .borrow_mut()
            .take_if(|link| Rc::ptr_eq(&link.usage, &usage));
        usage.tell_change();
    }
}

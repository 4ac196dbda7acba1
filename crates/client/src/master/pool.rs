//! The connections that the master keeps: one to each proxy, and over it one SSH connection for each node and account, or
//! several where one has as many sessions as it takes. All of them belong to one login; the master ends with it.
//!
//! What asks for a connection that is being made waits for it, and makes none of its own. A connection that nobody uses ends
//! after the time that its last user asked for.

use super::login_files::LoginStamp;
use crate::error::ClientError;
use crate::master_client::socket::MessageSocket;
use crate::master_client::told_step;
use crate::master_client::usage::{Usage, Use};
use crate::profile::{Home, Profile};
use crate::ssh::guests::{Guest, Guests};
use crate::ssh::keeping::{Opening, keep_connection};
use crate::timings::Timings;
use crate::transport::Proxy;
use crate::{config, connect};
use fleetgate_wire::master::{ConnectionStatus, FromMaster, SessionOrder, Step};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io;
use std::rc::Rc;
use std::time::Duration;
use tokio::sync::{Mutex, Notify, mpsc};
use tokio::task::spawn_local;
use tokio::time::{Instant, sleep_until};

/// Sessions on one SSH connection: sshd lets ten in (MaxSessions), and one may be on its way out.
const MAX_SESSIONS: u32 = 8;
/// Sessions that wait for their connection. More than a user's processes, most likely; the next ones go their own way.
const MAX_WAITING: usize = 1024;
/// SSH connections that are kept at a time.
pub(super) const MAX_CONNECTIONS: usize = 4096;

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

/// An SSH connection, for a node and an account by a proxy.
struct NodeLink {
    key: NodeKey,
    sessions: mpsc::Sender<Guest>,
    usage: Rc<Usage>,
    /// By which it goes, once that is known. One that drains carries what it has, and nothing new is begun by it.
    proxy: Rc<RefCell<Option<Proxy>>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct NodeKey {
    proxy: String,
    node: String,
    account: String,
}

/// All connections.
pub(super) struct Pool {
    home: Home,
    stamp: LoginStamp,
    /// Of the same login; it is written with the files of the stamp.
    profile: Option<Profile>,
    proxies: RefCell<BTreeMap<String, Rc<ProxySlot>>>,
    nodes: RefCell<Vec<NodeLink>>,
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
    pub(super) fn new(home: Home) -> io::Result<Rc<Pool>> {
        let stamp = LoginStamp::of(&home)?;
        let profile = home.profile().ok();
        Ok(Rc::new(Pool {
            home,
            stamp,
            profile,
            proxies: RefCell::default(),
            nodes: RefCell::default(),
            changed: Rc::default(),
        }))
    }

    /// Whether the home still has the login that the connections are for.
    pub(super) fn is_current(&self) -> bool {
        LoginStamp::of(&self.home).is_ok_and(|now| now == self.stamp)
    }

    /// Whether there is anything to keep.
    pub(super) fn is_empty(&self) -> bool {
        let proxies = self.proxies.borrow();
        self.nodes.borrow().is_empty() && proxies.values().all(|slot| slot.link.borrow().is_none())
    }

    /// Whether a command uses anything. An SSH connection is a use of its proxy's, and none of anybody's by itself.
    pub(super) fn is_used(&self) -> bool {
        let nodes = self.nodes.borrow();
        let by_nodes = |address: &str| nodes.iter().filter(|link| link.key.proxy == address).count();
        let proxies = self.proxies.borrow();
        nodes.iter().any(|link| link.usage.uses() > 0)
            || proxies.iter().any(|(address, slot)| {
                let link = slot.link.borrow();
                link.as_ref()
                    .is_some_and(|link| link.usage.uses() as usize > by_nodes(address))
            })
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
        proxy: &str,
        order: SessionOrder,
        streams: [fleetgate_sys::Fd; 3],
        socket: MessageSocket,
        keep: Duration,
    ) {
        let mut guest = Guest::new(socket, streams, order);
        let Some(key) = self.key(proxy, &guest) else {
            return guest.answer(&FromMaster::Cold);
        };
        let mut nodes = self.nodes.borrow_mut();
        // One whose proxy or node drains ends with its last session.
        let takes_more = |link: &NodeLink| link.proxy.borrow().as_ref().is_none_or(Proxy::takes_requests);
        nodes.retain(|link| !link.sessions.is_closed() && takes_more(link));
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
        if nodes.len() >= MAX_CONNECTIONS {
            return guest.answer(&FromMaster::Cold);
        }
        let (sessions, waiting) = mpsc::channel(MAX_WAITING);
        let usage = Usage::new(keep, &self.changed);
        guest.set_use(usage.begin(keep));
        if sessions.try_send(guest).is_err() {
            return;
        }
        let proxy = Rc::default();
        nodes.push(NodeLink {
            key: key.clone(),
            sessions,
            usage: usage.clone(),
            proxy: Rc::clone(&proxy),
        });
        spawn_local(self.clone().keep(key, waiting, usage, proxy, keep));
    }

    /// Where a session goes. What a check leaves out is the login's own.
    fn key(&self, proxy: &str, guest: &Guest) -> Option<NodeKey> {
        let (node, account) = guest.place();
        if !proxy.is_empty() && !account.is_empty() {
            return Some(NodeKey {
                proxy: proxy.to_owned(),
                node,
                account,
            });
        }
        let profile = self.profile.as_ref()?;
        let or = |given: String, own: &dyn Fn() -> String| if given.is_empty() { own() } else { given };
        Some(NodeKey {
            proxy: or(proxy.to_owned(), &|| profile.proxy.clone()),
            node: config::node(&node, &profile.cluster).to_owned(),
            account: or(account, &|| profile.account()),
        })
    }

    /// Makes an SSH connection and keeps it until nobody has used it for its time, or it breaks.
    async fn keep(
        self: Rc<Pool>,
        key: NodeKey,
        waiting: mpsc::Receiver<Guest>,
        usage: Rc<Usage>,
        proxy: Rc<RefCell<Option<Proxy>>>,
        keep: Duration,
    ) {
        let whom = format!("{}, through the proxy {}", key.node, key.proxy);
        let mut guests = Guests::new(waiting, usage.clone(), whom);
        let lent = match self.proxy(&key.proxy, keep).await {
            Ok(lent) => lent,
            Err(error) => return guests.refuse(&error.to_string()),
        };
        *proxy.borrow_mut() = Some(lent.proxy.clone());
        let opening = Opening {
            proxy: lent.proxy,
            was_there: lent.was_there,
            node: key.node,
            account: key.account,
        };
        keep_connection(&self.home, opening, &mut guests).await;
        // It counts as a use of the proxy's connection for as long as it is there.
        drop(lent.one_use);
        self.nodes
            .borrow_mut()
            .retain(|link| !Rc::ptr_eq(&link.usage, &usage));
        self.changed.notify_one();
    }

    /// What there is.
    pub(super) fn status(&self) -> Vec<ConnectionStatus> {
        let proxies = self.proxies.borrow();
        let proxies = proxies.iter().filter_map(|(address, slot)| {
            let link = slot.link.borrow();
            Some(link.as_ref()?.usage.status(format!("proxy {address}")))
        });
        let nodes = self.nodes.borrow();
        let nodes = nodes.iter().map(|link| {
            link.usage
                .status(format!("{}@{}", link.key.account, link.key.node))
        });
        proxies.chain(nodes).collect()
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
                .unwrap_or_else(|| Instant::now() + usage.keep());
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

//! What lasts: connections that are wanted for always are made anew when they break, and the login that they belong to is renewed
//! before its end, where its roles let it be.

use super::{LinkPlan, MAX_CONNECTIONS, NodeKey, NodeLink, Pool};
use crate::master::file_stamps::LoginStamp;
use crate::master::reached;
use crate::master_client::ALWAYS;
use crate::profile::Profile;
use crate::{connect, login};
use fleetgate_net::backoff::{Backoff, random};
use fleetgate_wire::master::Way;
use std::future::pending;
use std::rc::Rc;
use std::time::Duration;
use tokio::task::spawn_local;
use tokio::time::{Instant, sleep, sleep_until};

/// The longest wait before a connection is made anew that is wanted for always. One that lived for longer begins them anew.
pub(super) const LONGEST_WAIT: Duration = Duration::from_mins(1);
/// These waits.
pub(super) const WAITS: Backoff = Backoff::new(Duration::from_secs(1), LONGEST_WAIT);
/// For how long a proxy that could not be reached is tried only for commands that ask.
const AWAY: Duration = Duration::from_secs(5);
/// Those before a renewal of the login is tried again.
const RENEWALS: Backoff = Backoff::new(Duration::from_secs(5), Duration::from_mins(10));

impl Pool {
    /// Makes a connection anew after a while, unless a command's request has made it by then.
    pub(super) fn make_anew(self: &Rc<Pool>, mut plan: LinkPlan) {
        let mut awaited = self.awaited.borrow_mut();
        if self.is_retired.get() || awaited.contains(&plan.key) {
            return;
        }
        awaited.push(plan.key.clone());
        let pool = self.clone();
        spawn_local(async move {
            loop {
                sleep(plan.waits.failed(random())).await;
                if pool.is_retired.get() {
                    return;
                }
                // Another of this proxy's connections has just found it away.
                if !pool.has_just_failed(&plan.key) {
                    break;
                }
            }
            pool.awaited.borrow_mut().retain(|key| *key != plan.key);
            let mut nodes = pool.nodes.borrow_mut();
            if nodes.len() < MAX_CONNECTIONS && !nodes.iter().any(|link| link.key == plan.key) {
                nodes.push(pool.open(plan));
            }
        });
    }

    /// Whether the proxy of such a connection was found to be away a moment ago.
    fn has_just_failed(&self, key: &NodeKey) -> bool {
        let Way::Proxy { address } = &key.way else {
            return false;
        };
        let proxies = self.proxies.borrow();
        let slot = proxies.get(&*address.to_string_lossy());
        slot.is_some_and(|slot| {
            let failed = slot.failed.borrow();
            slot.link.borrow().is_none() && failed.as_ref().is_some_and(|(when, _)| when.elapsed() < AWAY)
        })
    }

    /// Waits until two thirds of the login's time are over, and renews it; its new end, Unix seconds. Never returns where the
    /// roles do not let it be renewed.
    pub(in crate::master) async fn renewal(self: &Rc<Pool>) -> u64 {
        let mut waits = RENEWALS;
        loop {
            let Some((due, least)) = self.renewal_due() else {
                return pending().await;
            };
            reached(Some(due)).await;
            // By the monotonic clock: where this machine's calendar is ahead of the cluster's, every certificate looks old.
            if let Some(last) = self.renewed.get() {
                sleep_until(last + least).await;
            }
            let before = self.end();
            // Another login has its own master.
            if !self.is_current() {
                return pending().await;
            }
            if let Some(end) = self.end().filter(|_| self.end() != before) {
                return end;
            }
            match login::renew(&self.home).await {
                Ok(profile) => return self.renewed(profile),
                Err(error) => {
                    *self.trouble.borrow_mut() = Some(error.to_string());
                    sleep(waits.failed(random())).await;
                }
            }
        }
    }

    /// Whether `fleetgate login --renew` has put later certificates of the same login into the home; if so the master goes on
    /// with those.
    pub(super) fn was_renewed_by_another(self: &Rc<Pool>) -> bool {
        let Ok(found) = self.home.login() else {
            return false;
        };
        let is_later = self
            .profile
            .borrow()
            .as_ref()
            .is_some_and(|own| found.is_same_login(own) && found.expires > own.expires);
        if is_later {
            self.renewed(found);
            self.changed.notify_one();
        }
        is_later
    }

    /// When the login is to be renewed, Unix seconds, and how long after a renewal at least. None: it cannot be, or not for longer than it holds anyway.
    fn renewal_due(&self) -> Option<(u64, Duration)> {
        let profile = self.profile.borrow();
        let profile = profile.as_ref()?;
        profile.renewable.filter(|until| *until > profile.expires)?;
        let validity = connect::certificate(&self.home).ok()?.validity();
        let lifetime = validity.end.saturating_sub(validity.start);
        Some((validity.end - lifetime / 3, Duration::from_secs(lifetime / 6)))
    }

    /// The login goes on with new certificates. A node begins nothing on a connection whose certificate has ended, so new
    /// sessions get new connections.
    fn renewed(self: &Rc<Pool>, profile: Profile) -> u64 {
        let end = profile.expires;
        *self.stamp.borrow_mut() = LoginStamp::of(&self.home).ok();
        *self.profile.borrow_mut() = Some(profile);
        self.renewed.set(Some(Instant::now()));
        self.trouble.borrow_mut().take();
        for slot in self.proxies.borrow().values() {
            slot.link.borrow_mut().take();
        }
        let mut nodes = self.nodes.borrow_mut();
        let always: Vec<LinkPlan> = nodes.iter().filter_map(NodeLink::plan_for_always).collect();
        self.let_go(&mut nodes, |_| false);
        nodes.extend(always.into_iter().map(|plan| self.open(plan)));
        end
    }
}

impl NodeLink {
    /// How it is made anew, where it is wanted for always.
    fn plan_for_always(&self) -> Option<LinkPlan> {
        let plan = || LinkPlan::new(self.key.clone(), ALWAYS, self.time);
        self.usage.is_for_always().then(plan)
    }
}

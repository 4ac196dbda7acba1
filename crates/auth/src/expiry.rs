//! What is over: invites, tokens, locks and old failures are removed when nobody asks about them any more.

use crate::audit::{Event, event};
use crate::cache;
use crate::error::Result;
use crate::ledger::Plan;
use crate::service::Service;
use crate::tries::FORGOTTEN;
use crate::users::invite_seed_key;
use fleetgate_policy::cluster::Target;
use fleetgate_store::Step;

/// The most that is removed in one turn; the rest in the next.
const AT_ONCE: usize = 50;
/// An invite or token stays known for so long after its time, so that whoever is late is told so.
pub const KNOWN_AFTER: u64 = 86_400;

impl Service {
    /// Removes some of what is over.
    pub(crate) async fn turn_expired(&self) -> Result<()> {
        if !self.is_clock_steady() {
            // None of them is good meanwhile; and if the clock is put right, they are again.
            return Ok(());
        }
        let (now, millis) = (self.now(), self.ledger.millis());
        let silent: Vec<Step> = {
            let cache = self.cache();
            let late = |expires: u64| now >= expires + KNOWN_AFTER;
            let invites = cache.invites.iter().filter(|(_, i)| late(i.document.expires));
            let invites = invites.flat_map(|(hash, i)| {
                let seed = Step::delete(invite_seed_key(hash));
                [Step::remove(cache::key(&["invites", hash]), i.revision), seed]
            });
            let tokens = cache.tokens.iter().filter(|(_, t)| late(t.document.expires));
            let tokens = tokens.map(|(hash, t)| Step::remove(cache::key(&["tokens", hash]), t.revision));
            let tries = cache
                .tries
                .iter()
                .filter(|(_, t)| now >= t.document.last + FORGOTTEN);
            let tries = tries.map(|(entry, t)| Step::remove(cache::key(&["tries", entry]), t.revision));
            invites.chain(tokens).chain(tries).take(AT_ONCE).collect()
        };
        if !silent.is_empty() {
            self.ledger.attempt(silent, Vec::new()).await?;
        }
        let over = |cache: &cache::StateCache| {
            let mut locks = cache.locks.values();
            locks.any(|l| l.document.expires.is_some_and(|end| now >= end))
        };
        if !over(&self.cache()) {
            return Ok(());
        }
        self.ledger
            .change(|cache| {
                let ended = cache
                    .locks
                    .iter()
                    .filter(|(_, l)| l.document.expires.is_some_and(|end| now >= end));
                let mut plan = Plan::new(());
                for (id, stored) in ended.take(AT_ONCE) {
                    let event = Event::new(event::LOCK_EXPIRED, millis).with("lock", id.as_str());
                    let event = match &stored.document.target {
                        Target::User(name) => event.user(name.as_str()),
                        Target::Node(name) => event.node(name.as_str()),
                        Target::Session(id) => event.with("session", id.as_str()),
                        _ => event,
                    };
                    plan = plan
                        .step(Step::remove(cache::key(&["locks", id]), stored.revision))
                        .event(event);
                }
                Ok(plan.publish(cache, millis))
            })
            .await
    }
}

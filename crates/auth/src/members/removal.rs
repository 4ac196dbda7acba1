//! The end of a machine. Its certificates live on for days, so a lock of the cluster ends them at once.

use super::{member_in_event, member_key, target};
use crate::audit::event;
use crate::cache::{self, StateCache};
use crate::caller::Caller;
use crate::clock_watch::all_ended;
use crate::documents::Kind;
use crate::error::{Refused, Result};
use crate::ledger::Plan;
use crate::service::Service;
use fleetgate_policy::cluster::{Lock, Name, REMOVED};
use fleetgate_store::Step;

impl Service {
    /// The machine is none of the cluster's any more; another may have its name. The last proxy goes by force alone.
    pub async fn remove_node(&self, caller: &Caller, name: &str, force: bool) -> Result<()> {
        let name = Name::parse(name).map_err(Refused::invalid)?;
        let millis = self.ledger.millis();
        self.change(|cache| {
            // Nodes first: proxies are few, and few are removed.
            let mut kinds = [Kind::Node, Kind::Proxy].into_iter();
            let found = kinds.find_map(|k| Some((k, cache.members(k).get(name.as_str())?)));
            let (kind, stored) = found.ok_or_else(|| {
                Refused::missing(format!(
                    "there is no node {name}: fleetgate node ls shows those there are"
                ))
            })?;
            if kind == Kind::Proxy && cache.proxies.len() == 1 && !force {
                return Err(Refused::state(format!(
                    "{name} is the cluster's only proxy: without it nobody reaches a node or logs in, and no machine joins. \
                     Let another proxy join first (fleetgate token add --kind proxy), or remove it with --force"
                )));
            }
            let event = self
                .event(event::NODE_REMOVED, caller)
                .node(name.as_str())
                .with("kind", kind.name())
                .with("before", member_in_event(&stored.document));
            // Its certificates live on for days. The lock ends its tunnels now, or those that nodes have to it, and lets alone
            // the machine that joins by this name later.
            Ok(Plan::new(())
                .step(Step::remove(member_key(kind, &name), stored.revision))
                .step(end_machine(cache, kind, &name, millis, &caller.by()))
                .publish(cache, millis)
                .event(event))
        })
        .await?;
        self.inventory.forget(name.as_str());
        Ok(())
    }
}

/// A lock on the certificates of a machine that is removed, in a plan that publishes. A later one takes its place.
fn end_machine(cache: &StateCache, kind: Kind, name: &Name, millis: u64, by: &str) -> Step {
    let (id, now) = (removed_id(kind, name), millis / 1000);
    let lock = Lock {
        id: id.clone(),
        target: target(kind, name),
        // Whoever joins behind this change does so by the state that has the lock, or a later one.
        serial_before: Some(cache.next_serial(millis)),
        expires: Some(all_ended(cache, now, crate::validity::MEMBER_LIFETIME)),
        reason: REMOVED.to_owned(),
        created: now,
        by: by.to_owned(),
    };
    cache::put(cache::key(&["locks", id.as_str()]), &lock)
}

/// Refuses a certificate that a removal has ended while it was made.
pub(super) fn not_ended(cache: &StateCache, kind: Kind, name: &Name, serial: u64) -> Result<()> {
    let ended = cache.locks.get(removed_id(kind, name).as_str());
    match ended.and_then(|lock| lock.document.serial_before) {
        Some(before) if serial < before => Err(Refused::busy(format!(
            "{name} was removed at this very moment: try again"
        ))),
        _ => Ok(()),
    }
}

/// A node and a proxy that had the same name one after the other have a lock each.
fn removed_id(kind: Kind, name: &Name) -> Name {
    let whole = name.as_str();
    // Of the longest names the end is a digest: two that begin alike have a lock each. It is longer than any that is whole.
    let told = match whole.char_indices().nth(96) {
        None => whole.to_string(),
        Some(_) => {
            let digest = ring::digest::digest(&ring::digest::SHA256, whole.as_bytes());
            let begin: String = whole.chars().take(80).collect();
            let end = fleetgate_policy::text::hex(&digest.as_ref()[..8]);
            format!("{begin}-{end}")
        }
    };
    let word = match kind {
        Kind::Node => "removed",
        Kind::Proxy => "proxy-removed",
    };
    Name::parse(&format!("{word}-{told}")).expect("a name behind a word is one")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn machines_whose_long_names_begin_alike_have_a_lock_each() {
        let id = |kind, name: &str| removed_id(kind, &Name::parse(name).expect("a name")).to_string();
        let long = "a".repeat(fleetgate_policy::cluster::MAX_NAME - 1);
        let names = [
            "web1",
            &"a".repeat(96),
            &"a".repeat(97),
            &format!("{long}b"),
            &format!("{long}c"),
        ];
        let ids: std::collections::BTreeSet<String> = [Kind::Node, Kind::Proxy]
            .into_iter()
            .flat_map(|kind| names.map(|name| id(kind, name)))
            .collect();
        assert_eq!(ids.len(), 2 * names.len());
        assert_eq!(id(Kind::Node, "web1"), "removed-web1");
        // No whole name is told like one that was cut.
        let cut = id(Kind::Node, names[3]);
        let alike = cut.strip_prefix("removed-").expect("the word");
        assert_ne!(id(Kind::Node, alike), cut);
    }
}

//! Which nodes a selector means, as the proxy says it each minute. A node that is missing in one answer is forgotten with the
//! next one: a proxy that has just started may not know all nodes yet, and an alert must not go away by that.

use fleetgate_client::error::ClientError;
use fleetgate_client::master_client::{Keep, PERSIST, ProxyConnector};
use fleetgate_client::profile::Home;
use fleetgate_client::timings::Timings;
use fleetgate_policy::cluster::Name;
use fleetgate_proto::v1::Node;
use std::collections::{BTreeMap, BTreeSet};

/// The nodes of each selector.
pub(super) type Found = BTreeMap<String, BTreeSet<String>>;

/// The last two answers.
#[derive(Default)]
pub(super) struct NodeLists {
    now: Found,
    before: Found,
}

impl NodeLists {
    /// A new answer.
    pub(super) fn take(&mut self, found: Found) {
        self.before = std::mem::replace(&mut self.now, found);
    }

    /// The nodes of a selector.
    pub(super) fn nodes(&self, selector: &str) -> impl Iterator<Item = &String> {
        let now = self.now.get(selector).into_iter().flatten();
        now.chain(self.before.get(selector).into_iter().flatten())
    }
}

/// Asks the proxy. The connection is the one that the master keeps, so this starts a master for the checks too.
pub(super) async fn ask(home: Home, selectors: BTreeSet<String>) -> Result<Found, ClientError> {
    let address = home.login()?.proxy;
    let mut timings = Timings::default();
    let mut connector = ProxyConnector::new(&home, Keep::For(PERSIST), None, |_| {});
    let mut found = Found::new();
    for selector in selectors {
        let (_, nodes) = connector.nodes(&address, &selector, &mut timings).await?;
        found.insert(selector, names(&nodes));
    }
    Ok(found)
}

fn names(nodes: &[Node]) -> BTreeSet<String> {
    let names = nodes.iter().filter_map(|node| Name::parse(&node.name).ok());
    names.map(|name| name.to_string()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_forgotten_when_it_is_missing_twice() {
        let mut lists = NodeLists::default();
        for (answer, nodes) in [
            (&["a", "b"][..], &["a", "b"][..]),
            (&[], &["a", "b"]),
            (&["b"], &["b"]),
            (&["b", "c"], &["b", "c"]),
            (&["c"], &["b", "c"]),
            (&["c"], &["c"]),
        ] {
            let answer = answer.iter().map(|n| (*n).to_owned()).collect();
            lists.take(BTreeMap::from([("*".to_owned(), answer)]));
            let known: BTreeSet<&str> = lists.nodes("*").map(String::as_str).collect();
            assert_eq!(known.into_iter().collect::<Vec<_>>(), nodes);
            assert_eq!(lists.nodes("other").count(), 0);
        }
    }
}

//! Who dials, what he may reach, and until when. No node hears of it.

use crate::shared::Shared;
use crate::state::{Inventory, InventoryNode, SKEW, View, now};
use fleetgate_policy::cluster::{
    Allowed, Attempt, ContainerLabels, Identity, Labels, Name, Reason, Refusal, Selector, decide,
    decide_identity, logins_of,
};
use fleetgate_proto::v1::Node;
use fleetgate_ssh::key::Certificate;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

/// Who dials, out of the connection's certificate.
#[derive(Clone)]
pub(crate) struct User {
    pub(crate) identity: Arc<Identity>,
    pub(super) expires: Option<u64>,
    pub(super) source: Option<SocketAddr>,
}

impl User {
    /// By a certificate of SSH that was checked.
    pub(crate) fn by_ssh(identity: &Identity, certificate: &Certificate, source: SocketAddr) -> User {
        User {
            identity: Arc::new(identity.clone()),
            expires: certificate.expires(0),
            source: Some(source),
        }
    }

    /// What he counts by, whatever the number of his connections and certificates.
    pub(super) fn name(&self, shared: &Shared) -> Name {
        self.identity.user().unwrap_or(&shared.name).clone()
    }
}

/// As auth has them; a node that auth has not told of yet speaks for itself.
pub(crate) fn labels_of(shared: &Shared, node: &Name) -> Option<Labels> {
    let known: Option<Arc<InventoryNode>> = shared.inventory.borrow().get(node).cloned();
    match known {
        Some(known) => Some(known.labels.clone()),
        None => shared.tunnels.to(node).map(|tunnel| tunnel.labels()),
    }
}

fn attempt<'a>(
    view: &'a View,
    user: &'a User,
    node: &'a Name,
    labels: &'a Labels,
    login: &'a str,
) -> Attempt<'a> {
    Attempt {
        identity: &user.identity,
        expires: user.expires,
        cluster: &view.state.cluster,
        roles: &view.state.roles,
        locks: &view.state.locks,
        node,
        labels,
        login,
        container: ContainerLabels::Unknown,
        now: now(),
        skew: SKEW,
    }
}

/// An empty login is any that the user may have there: plain ssh's ProxyCommand need not say which, and the node decides by
/// what SSH says.
pub(crate) fn decision(
    view: &View,
    user: &User,
    node: &Name,
    labels: &Labels,
    login: &str,
) -> Result<Allowed, Refusal> {
    let ask = |login: &str| decide(&attempt(view, user, node, labels, login));
    let Some(name) = user.identity.user().filter(|_| login.is_empty()) else {
        return ask(login);
    };
    let roles = user
        .identity
        .roles
        .iter()
        .filter_map(|role| view.state.roles.get(role));
    let mut answers: Vec<_> = logins_of(roles, name).iter().map(|login| ask(login)).collect();
    let missing = |answer: &Result<Allowed, Refusal>| {
        // What he lacks everywhere else says more than that one of the accounts is not his.
        answer
            .as_ref()
            .is_err_and(|refusal| refusal.reason != Reason::Role)
    };
    match answers
        .iter()
        .position(Result::is_ok)
        .or_else(|| answers.iter().position(missing))
        .or(answers.len().checked_sub(1))
    {
        Some(best) => answers.swap_remove(best),
        None => ask(login),
    }
}

/// Comes back when the user may no longer be there: a lock, a role that is gone, the certificate's or the second factor's
/// end. Asked again whenever the state changes and when time runs out.
pub(crate) async fn until_refused(shared: Arc<Shared>, user: User, node: Name, login: String) -> Refusal {
    let mut view = shared.view.subscribe();
    let mut inventory = shared.inventory.subscribe();
    // A plain sshd is known by its registration alone: no lock is on it when it was removed.
    let registered = |all: &Inventory| {
        all.get(&node)
            .filter(|known| !known.node.address.is_empty())
            .is_some()
    };
    let was_registered = registered(&inventory.borrow_and_update());
    loop {
        if was_registered
            && *shared.inventory_is_whole.borrow()
            && !registered(&inventory.borrow_and_update())
        {
            return Refusal {
                reason: Reason::Role,
                rule: "the registration".to_owned(),
                words: format!("{node} was removed from the cluster: ask an administrator"),
            };
        }
        // At once too: since it was decided that he may, the node may have taken its time.
        let labels = labels_of(&shared, &node).unwrap_or_default();
        let until = match decision(&view.borrow_and_update(), &user, &node, &labels, &login) {
            Ok(allowed) => allowed.until,
            // A second factor that has grown too old ends nothing that is open.
            Err(refusal) if refusal.reason == Reason::Mfa => None,
            Err(refusal) => return refusal,
        };
        let left = Duration::from_secs(until.map_or(u64::MAX >> 32, |until| until.saturating_sub(now())));
        tokio::select! {
            _ = view.changed() => {}
            _ = inventory.changed(), if was_registered => {}
            // One more second: `until` itself is still allowed.
            () = tokio::time::sleep(left + Duration::from_secs(1)) => {}
        }
    }
}

/// The nodes of which any account is the user's by a role. Who comes in nowhere, by the decision of a dial, is refused. What
/// else a role asks for (a second factor, a device) is said when one of them is dialled, and so are locks on single nodes
/// and accounts.
pub(super) fn reachable(shared: &Shared, user: &User, selector: &Selector) -> Result<Vec<Node>, Refusal> {
    let view = shared.view.borrow();
    let nowhere = Labels::default();
    let name = decide_identity(&attempt(&view, user, &shared.name, &nowhere, ""))?;
    let roles: Vec<_> = user
        .identity
        .roles
        .iter()
        .filter_map(|role| view.state.roles.get(role))
        .filter(|role| role.logins_for(name).next().is_some())
        .collect();
    let may = |node: &Name, labels: &Labels| {
        selector.matches(node, labels)
            && roles
                .iter()
                .any(|role| role.nodes.iter().any(|nodes| nodes.matches(node, labels)))
    };
    let inventory = shared.inventory.borrow();
    let mut nodes: Vec<Node> = inventory
        .iter()
        .filter(|(name, known)| may(name, &known.labels))
        .map(|(_, known)| Node {
            host_keys: Vec::new(),
            ..known.node.clone()
        })
        .collect();
    // Who is connected here is known here first.
    for name in shared.tunnels.names() {
        let Some(tunnel) = shared.tunnels.to(&name) else {
            continue;
        };
        match nodes.binary_search_by(|node| node.name.as_str().cmp(name.as_str())) {
            Ok(at) => {
                nodes[at].connected = true;
                nodes[at].seen = now();
            }
            Err(at) if !inventory.contains_key(&name) && may(&name, &tunnel.labels()) => {
                let facts = tunnel.facts();
                let node = Node {
                    name: name.to_string(),
                    labels: facts.labels,
                    connected: true,
                    seen: now(),
                    version: facts.version,
                    address: facts.address,
                    ..Node::default()
                };
                nodes.insert(at, node);
            }
            Err(_) => {}
        }
    }
    Ok(nodes)
}

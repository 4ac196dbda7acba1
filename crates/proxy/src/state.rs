//! What the proxy decides by: the cluster's state, its signature checked, and the inventory. Every task has the newest
//! by a watch; nobody locks anything.

use fleetgate_policy::cluster::{Fresh, Labels, Name, State};
use fleetgate_proto::v1::{Node, Signed};
use fleetgate_ssh::codec::Reader;
use fleetgate_ssh::key::{PublicKey, verify};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

/// How far clocks may be apart.
pub const SKEW: u64 = 60;

/// The state as it is now, and as it is passed on to nodes.
#[derive(Clone, Debug)]
pub struct View {
    /// Read.
    pub state: Arc<State>,
    /// As it came.
    pub signed: Signed,
    /// That it still holds, as it came; None: not since the state itself.
    pub fresh: Option<Signed>,
}

/// The nodes that auth knows, by name.
pub type Inventory = BTreeMap<Name, Arc<InventoryNode>>;

/// A node that auth knows.
#[derive(Clone, Debug, PartialEq)]
pub struct InventoryNode {
    /// As auth tells it.
    pub node: Node,
    /// Its labels, read.
    pub labels: Labels,
}

/// Unix seconds.
#[must_use]
pub fn now() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs())
}

impl View {
    /// The first state that a proxy has: the one on its own disk, signed by a key that it names itself.
    pub fn first(signed: Signed) -> Result<View, String> {
        let state = State::parse_json(&signed.document).map_err(|e| e.to_string())?;
        let view = View {
            state: Arc::new(state),
            signed,
            fresh: None,
        };
        view.signs(&State::signed(&view.signed.document), &view.signed)?;
        Ok(view)
    }

    /// Whether this state is of the same cluster, be it older: a key of this one signed it.
    pub(crate) fn is_of_the_same(&self, signed: &Signed) -> bool {
        self.signs(&State::signed(&signed.document), signed).is_ok()
    }

    /// Whether a key of this state signed the message.
    fn signs(&self, message: &[u8], signed: &Signed) -> Result<(), String> {
        signed_by(&self.state.trust.state_keys, message, &signed.signature)
    }

    /// The view with a newer state, signed by a key of this one.
    pub fn follow(&self, signed: Signed) -> Result<View, String> {
        self.signs(&State::signed(&signed.document), &signed)?;
        let state = State::parse_json(&signed.document).map_err(|e| e.to_string())?;
        self.state.follows(&state)?;
        Ok(View {
            state: Arc::new(state),
            signed,
            fresh: None,
        })
    }

    /// The view with a sign that it still holds.
    pub fn refresh(&self, signed: Signed) -> Result<View, String> {
        self.signs(&Fresh::signed(&signed.document), &signed)?;
        let fresh = Fresh::parse_json(&signed.document).map_err(|e| e.to_string())?;
        let mut state = State::clone(&self.state);
        state.refresh(&fresh)?;
        Ok(View {
            state: Arc::new(state),
            signed: self.signed.clone(),
            fresh: Some(signed),
        })
    }
}

impl InventoryNode {
    /// As auth tells it. What is no label is left out: it was checked there.
    #[must_use]
    pub fn new(node: Node) -> InventoryNode {
        let labels = labels_of(node.labels.iter());
        InventoryNode { node, labels }
    }
}

/// Those of the pairs that are labels.
pub(crate) fn labels_of<'a>(pairs: impl Iterator<Item = (&'a String, &'a String)>) -> Labels {
    let mut labels = Labels::new();
    for (key, value) in pairs {
        // One that is none fits no selector either.
        let _ = labels.set(key, value);
    }
    labels
}

/// Whether one of the keys (SSH blobs) signed it.
fn signed_by(keys: &[Vec<u8>], message: &[u8], signature: &[u8]) -> Result<(), String> {
    let algorithm = Reader::new(signature)
        .string("algorithm")
        .ok()
        .and_then(|name| std::str::from_utf8(name).ok())
        .ok_or("the state's signature cannot be read")?;
    let good = |key: &Vec<u8>| {
        PublicKey::parse(key).is_ok_and(|key| verify(&key, algorithm, message, signature).is_ok())
    };
    if keys.iter().any(good) {
        Ok(())
    } else {
        Err("the state is not signed by a state key of this cluster".to_owned())
    }
}

//! What the node says of itself to the cluster by way of a proxy, signed, so that the proxy can neither change nor make it. It
//! sends nothing.

use fleetgate_net::x509::Key;
use fleetgate_proto::signed;
use fleetgate_proto::v1::{NodeFacts, NodeStatement, Statement};
use fleetgate_wire::node::tunnel::NodeDescription;
use prost::Message;
use std::ffi::CString;

/// A `Statement` message: these facts of `node`, which is connected to `proxy`. `as_of` is when auth last signed that the
/// node's state holds, `millis` the node's own clock.
pub fn signed_statement(
    key: &Key,
    node: &str,
    proxy: &str,
    facts: &NodeDescription,
    (as_of, millis): (u64, u64),
) -> Vec<u8> {
    let text = |text: &CString| text.to_string_lossy().into_owned();
    let labels = facts.labels.iter();
    let document = NodeStatement {
        node: node.to_owned(),
        proxy: proxy.to_owned(),
        facts: Some(NodeFacts {
            labels: labels
                .map(|label| (text(&label.name), text(&label.value)))
                .collect(),
            version: text(&facts.version),
            address: text(&facts.address),
            serial: facts.serial,
        }),
        as_of,
        millis,
    }
    .encode_to_vec();
    let statement = Statement {
        signature: key.sign(&signed::statement(&document)).into(),
        document: document.into(),
        key: key.public().spki().to_vec().into(),
    };
    statement.encode_to_vec()
}

//! What a machine does once: shows a token and gets certificates for its keys. Where they are kept is its role's.

use crate::connect;
use crate::error::ClientError;
use fleetgate_net::tls::Believe;
use fleetgate_net::{Admits, Ticket, x509};
use fleetgate_policy::cluster::State;
use fleetgate_proto::v1::{JoinReply, JoinRequest};
use std::collections::HashMap;

/// A machine that wants in.
pub struct Machine {
    /// What it is called.
    pub name: String,
    /// Its SSH host keys, blobs.
    pub host_keys: Vec<Vec<u8>>,
    /// Its labels.
    pub labels: HashMap<String, String>,
    /// Its fleetgate's version.
    pub version: String,
}

/// What it got.
pub struct Joined {
    /// Made here; it never left.
    pub tls_key: x509::Key,
    /// The auth service's answer.
    pub reply: JoinReply,
    /// The state in it.
    pub state: State,
}

/// Reads a token's text.
pub fn token(text: &str) -> Result<Ticket, ClientError> {
    let ticket: Ticket = text
        .parse()
        .map_err(|e| ClientError::Usage(format!("the token: {e}")))?;
    match ticket.admits {
        Admits::Machine => Ok(ticket),
        Admits::User => Err(ClientError::Usage(
            "this is an invite for a person; a machine joins by a token, from `fleetgate token add`"
                .to_owned(),
        )),
    }
}

/// Joins.
pub async fn join(proxy: &str, token: &Ticket, machine: Machine) -> Result<Joined, ClientError> {
    let mut auth = connect::identity(proxy, &Believe::Pin(token.pin), None).await?;
    let tls_key = x509::Key::generate();
    let host_keys = machine.host_keys.len();
    let request = JoinRequest {
        secret: token.secret().to_owned(),
        name: machine.name,
        tls_public: tls_key.public().spki().to_vec().into(),
        host_keys: machine.host_keys.into_iter().map(Into::into).collect(),
        labels: machine.labels,
        version: machine.version,
    };
    let reply = auth.join(request).await?.into_inner();
    let odd = |what: String| ClientError::Refused(format!("the auth service answered with {what}"));
    let document = reply.state.as_ref().map(|s| &s.document[..]).unwrap_or_default();
    let state = State::parse_json(document).map_err(|e| odd(format!("a state that cannot be read ({e})")))?;
    // What is believed from now on has to begin with what the token says.
    let known = state
        .trust
        .tls_ca
        .iter()
        .filter_map(|der| x509::Certificate::read(der).ok());
    if !known.into_iter().any(|authority| authority.pin() == token.pin) {
        return Err(odd("a state that does not know the token's authority".to_owned()));
    }
    if reply.kind == "node" && reply.host_certificates.len() != host_keys {
        return Err(odd(format!(
            "{} host certificates for {host_keys} keys",
            reply.host_certificates.len()
        )));
    }
    Ok(Joined {
        tls_key,
        reply,
        state,
    })
}

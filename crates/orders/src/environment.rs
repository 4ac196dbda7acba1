//! The variables of a session that the server knows, in sshd's order: authorized_keys, PAM, `set_env`, then what the
//! connection is. The helper adds the account's own and filters what the client sent.

use crate::facts::{OrderFacts, ProgramChoice};
use fleetgate_policy::{Grant, What};
use fleetgate_wire::common::{Endpoint, Variable};
use fleetgate_wire::node::front::Start;
use std::ffi::CString;
use std::net::IpAddr;

/// No variable of a client begins so: these are the server's statement of who somebody is.
const OURS: &[u8] = b"FLEETGATE_";

/// What the client sent and the grant lets it send. The configuration's patterns are for the helper.
pub fn of_client(grant: &Grant, start: &Start) -> Vec<Variable> {
    let one = |v: &fleetgate_wire::node::front::ClientVariable| {
        if v.name.starts_with(OURS) {
            return None;
        }
        grant.permits.allow(&What::Environment(&v.name)).ok()?;
        variable(v.name.clone(), v.value.clone())
    };
    start.environment.iter().filter_map(one).collect()
}

/// What the server sets. Key files' variables and the client's line are the login's own: none of them is for a command
/// that runs as another account.
pub fn set(facts: &OrderFacts<'_>, decided: &ProgramChoice) -> Vec<Variable> {
    let mut out = Vec::with_capacity(12);
    let is_other = decided.other_account(&facts.grant.login).is_some();
    if !is_other {
        for (name, value) in facts.grant.permits.environment() {
            out.extend(variable(name.as_str(), value.as_str()));
        }
    }
    for (name, value) in &facts.config.set_env {
        out.extend(variable(name.as_str(), value.as_str()));
    }
    for (name, value) in decided
        .named_command()
        .iter()
        .flat_map(|command| &command.environment)
    {
        out.extend(variable(name.as_str(), value.as_str()));
    }
    for secret in decided
        .named_command()
        .iter()
        .flat_map(|command| &command.secrets)
    {
        let sent = facts
            .start
            .environment
            .iter()
            .rfind(|v| v.name == secret.as_bytes());
        out.extend(sent.and_then(|v| variable(v.name.clone(), v.value.clone())));
    }
    let (peer, local) = (&facts.addresses.peer, &facts.addresses.local);
    let (here, there) = (address(local), address(peer));
    let (here, there) = (here.to_string_lossy(), there.to_string_lossy());
    out.extend(variable(
        "SSH_CLIENT",
        format!("{there} {} {}", peer.port, local.port),
    ));
    out.extend(variable(
        "SSH_CONNECTION",
        format!("{there} {} {here} {}", peer.port, local.port),
    ));
    if let Some(path) = facts.terminal {
        out.extend(variable("SSH_TTY", path.to_bytes()));
    }
    if let Some(terminal) = &facts.start.terminal {
        out.extend(variable("TERM", terminal.term.clone()));
    }
    if let (Some(number), Some(x11)) = (facts.display, &facts.start.x11) {
        out.extend(variable("DISPLAY", format!("localhost:{number}.{}", x11.screen)));
    }
    if let Some(path) = facts.agent {
        out.extend(variable("SSH_AUTH_SOCK", path.to_bytes()));
    }
    if let Some(original) = decided.original.as_ref().filter(|_| !is_other) {
        out.extend(variable("SSH_ORIGINAL_COMMAND", original.clone()));
    }
    // Set whether there is something to say or not: what key files, PAM or the account's own files say of it counts for
    // nothing.
    let session = fleetgate_policy::text::hex(&facts.session);
    out.extend(variable("FLEETGATE_USER", facts.cluster_user.user.as_str()));
    out.extend(variable("FLEETGATE_ROLES", facts.cluster_user.roles.as_str()));
    out.extend(variable("FLEETGATE_SESSION", session));
    out
}

/// An address as text: version 4 as such, a scope after a percent sign.
pub fn address(end: &Endpoint) -> CString {
    let text = match end.ip() {
        IpAddr::V6(address) if end.scope != 0 => format!("{address}%{}", end.scope),
        address => address.to_string(),
    };
    CString::new(text).unwrap_or_default()
}

fn variable(name: impl Into<Vec<u8>>, value: impl Into<Vec<u8>>) -> Option<Variable> {
    let (name, value) = (CString::new(name).ok()?, CString::new(value).ok()?);
    Some(Variable { name, value })
}

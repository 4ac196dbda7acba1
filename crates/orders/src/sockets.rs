//! What of a front's request for a socket is allowed, and what it becomes: bounds are put in, and what only a helper may
//! be told is refused. Pure.

use fleetgate_node_config::Config;
use fleetgate_policy::{Grant, GrantRequest, What as Wish};
use fleetgate_wire::net::{MAX_HOST, MAX_TIMEOUT_MS, What};
use std::ffi::{CStr, CString};
use std::time::Duration;

/// Connections that wait to be accepted, per listener.
const BACKLOG: u32 = 128;
/// Where displays of forwarded X11 begin, and where they end; sshd's numbers.
const FIRST_DISPLAY: u16 = 10;
const LAST_DISPLAY: u16 = 999;
/// Only the user may use a unix socket that is forwarded: sshd's StreamLocalBindMask.
const SOCKET_UMASK: u32 = 0o177;

/// The request as the helper is told it, or why not.
pub fn allow(grant: &Grant, now: Duration, config: &Config, what: What) -> Result<What, String> {
    let ask = |wish| {
        let asked = GrantRequest {
            login: &grant.login,
            now,
            what: wish,
        };
        grant.allows(&asked).map_err(|e| e.to_string())
    };
    match what {
        What::Connect { host, port, .. } => {
            bounded(&host)?;
            ask(Wish::ConnectTcp(host.to_bytes(), port))?;
            Ok(What::Connect {
                host,
                port,
                timeout_ms: timeout(config),
            })
        }
        What::ConnectUnix { path, .. } => {
            ask(Wish::ConnectUnix(path.to_bytes()))?;
            Ok(What::ConnectUnix {
                path,
                timeout_ms: timeout(config),
            })
        }
        // Kept by the helper: a listener that a front held could be used after the grant is gone.
        What::Listen { host, port, .. } | What::Accept { host, port, .. } => {
            bounded(&host)?;
            ask(Wish::ListenTcp(host.to_bytes(), port))?;
            Ok(What::Accept {
                host: reachable(config, host),
                port,
                backlog: BACKLOG,
            })
        }
        What::ListenUnix { path, .. } => {
            ask(Wish::ListenUnix(path.to_bytes()))?;
            Ok(What::ListenUnix {
                path,
                umask: SOCKET_UMASK,
                unlink_first: false,
                backlog: BACKLOG,
            })
        }
        What::AgentSocket => ask(Wish::Agent).map(|()| What::AgentSocket),
        What::X11Display { .. } => {
            ask(Wish::X11)?;
            Ok(What::X11Display {
                first: FIRST_DISPLAY,
                last: LAST_DISPLAY,
                any_address: false,
            })
        }
        What::Cancel { of } => Ok(What::Cancel { of }),
        What::Bind { .. } | What::Stop => Err("a request that only the node itself may make".to_owned()),
    }
}

/// Without `gateway_ports` everything listens on loopback, whatever was asked for, as with sshd.
fn reachable(config: &Config, host: CString) -> CString {
    match config.gateway_ports {
        true => host,
        false => match host.to_bytes() {
            b"127.0.0.1" | b"::1" => host,
            _ => c"localhost".into(),
        },
    }
}

fn timeout(config: &Config) -> u32 {
    config.limits.connect.as_millis().clamp(1, MAX_TIMEOUT_MS)
}

fn bounded(host: &CStr) -> Result<(), String> {
    match host.to_bytes().len() > MAX_HOST {
        true => Err(format!("a host's name is longer than {MAX_HOST} bytes")),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests;

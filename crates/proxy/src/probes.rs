//! Whether registered plain sshds are reached from this proxy: it tries each now and then, notes each login's dial, and reports
//! the result to auth. People are shown it; it decides nothing, and a login is tried all the same.
//!
//! A look connects, reads the server's version line, sends the proxy's own and hangs up: one line in the sshd's log, and one
//! second of its `PerSourcePenalties`, which are over long before the next look.

use crate::shared::Shared;
use crate::ssh::authenticator::version_line;
use crate::state::InventoryNode;
use fleetgate_net::dial as tcp;
use fleetgate_policy::cluster::Name;
use fleetgate_proto::v1::cluster_client::ClusterClient;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

/// How often the proxy checks which looks are due. A sshd that was registered just now waits no longer for its first one.
const TURN: Duration = Duration::from_secs(2);
/// The longest look, and the longest report.
const PATIENCE: Duration = Duration::from_secs(5);
/// Looks and reports at once.
const AT_ONCE: usize = 32;
/// The longest version line that is read (RFC 4253, 4.2).
const MAX_LINE: usize = 255;

/// Looks and reports until the shared state is gone or a newer process has taken its place. It holds the shared state in no wait: who does is
/// at work.
pub(crate) async fn run(held: Weak<Shared>) {
    let Some(mut auth) = held.upgrade().map(|shared| shared.auth.subscribe()) else {
        return;
    };
    loop {
        tokio::select! {
            () = sleep(TURN) => {}
            // Auth may have started anew and know nothing.
            changed = auth.changed() => match (changed, held.upgrade()) {
                (Ok(()), Some(shared)) => shared.reachable.report_again(),
                _ => return,
            },
        }
        let due = match held.upgrade() {
            Some(shared) if !shared.is_leaving() => due(&shared),
            _ => return,
        };
        let mut under_way = JoinSet::new();
        for (name, address) in due {
            if under_way.len() >= AT_ONCE {
                let _ = under_way.join_next().await;
            }
            let held = held.clone();
            under_way.spawn(async move {
                let greeted = timeout(PATIENCE, greets(&address)).await;
                if let Some(shared) = held.upgrade() {
                    shared.reachable.note(&name, greeted.unwrap_or(false));
                }
            });
        }
        while under_way.join_next().await.is_some() {}
        let channel = auth.borrow().clone();
        let (Some(channel), Some(reports)) = (
            channel,
            held.upgrade().map(|shared| shared.reachable.take_unreported()),
        ) else {
            continue;
        };
        for report in reports {
            if under_way.len() >= AT_ONCE {
                let _ = under_way.join_next().await;
            }
            let mut service = ClusterClient::new(channel.clone());
            under_way.spawn(async move {
                let name = report.name.clone();
                // The next look is reported again.
                match timeout(PATIENCE, service.report_reach(report)).await {
                    Ok(Ok(_)) => {}
                    Ok(Err(status)) => {
                        tracing::debug!(%name, "auth does not take whether it is reached: {status}")
                    }
                    Err(_) => tracing::debug!(%name, "a report has taken too long"),
                }
            });
        }
        while under_way.join_next().await.is_some() {}
    }
}

/// The sshds that are to be looked at now, and their addresses.
fn due(shared: &Shared) -> Vec<(Name, String)> {
    let inventory = shared.inventory.borrow();
    let is_plain = |known: &Arc<InventoryNode>| known.node.plain;
    shared
        .reachable
        .keep(|name| inventory.get(name).is_some_and(is_plain));
    inventory
        .iter()
        .filter(|(name, known)| is_plain(known) && shared.reachable.is_due(name))
        .map(|(name, known)| (name.clone(), known.node.address.clone()))
        .collect()
}

/// Whether an SSH server answers there.
async fn greets(address: &str) -> bool {
    let Ok(mut stream) = tcp::connect(address, PATIENCE).await else {
        return false;
    };
    let mut line = Vec::new();
    let mut reader = (&mut stream).take(MAX_LINE as u64);
    while !line.ends_with(b"\n") {
        match reader.read_u8().await {
            Ok(byte) => line.push(byte),
            Err(_) => return false,
        }
    }
    // It is polite to say who it was; whether the server still reads it is the same to us.
    let _ = stream.write_all(version_line().as_bytes()).await;
    line.starts_with(b"SSH-")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::TcpListener;

    #[tokio::test]
    async fn a_server_that_says_ssh_is_reached_and_nothing_else_is() {
        let long = [b"SSH-2.0-".to_vec(), vec![b'x'; MAX_LINE], b"\r\n".to_vec()].concat();
        for (says, reached) in [
            (&b"SSH-2.0-x\r\n"[..], true),
            (b"HTTP/1.1 400\r\n", false),
            (b"SSH-2.0-x", false),
            (b"", false),
            (&long, false),
        ] {
            let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
            let address = listener.local_addr().expect("an address").to_string();
            let words = says.to_vec();
            let server = std::thread::spawn(move || {
                let (mut to, _) = listener.accept().expect("a look");
                to.write_all(&words).expect("written");
                let _ = to.shutdown(std::net::Shutdown::Write);
                let mut heard = Vec::new();
                let _ = to.read_to_end(&mut heard);
                heard
            });
            assert_eq!(greets(&address).await, reached, "{says:?}");
            let heard = server.join().expect("it ended");
            if reached {
                assert_eq!(heard, version_line().as_bytes(), "it says who it is");
            }
            assert!(!greets(&address).await, "nobody listens there any more");
        }
    }
}

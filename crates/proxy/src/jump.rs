//! SSH at the proxy's own address: `ssh -J` and nodes without fleetgate. The connection comes here with what was read of
//! it; from here on it is SSH's.

use crate::gate::Gate;
use crate::mux::Begun;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

/// What the client is told until it is served here: RFC 4253 §4.2 lets a server send lines before its version.
const NOT_HERE: &[u8] = b"fleetgate: use `fleetgate ssh`, or `fleetgate config ssh` for plain ssh\r\n";

/// A connection that begins with `S`.
pub(crate) async fn serve(_gate: Arc<Gate>, mut connection: Begun<TcpStream>, address: SocketAddr) {
    tracing::debug!(%address, "SSH at the proxy's own address");
    // It leaves either way.
    let _ = connection.write_all(NOT_HERE).await;
    let _ = connection.shutdown().await;
}

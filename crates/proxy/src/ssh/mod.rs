//! SSH at the proxy: for `ssh -J`, and for nodes without fleetgate, whose SSH ends here. It knows no sockets and no
//! gRPC: streams are handed to it, and what the proxy knows is asked through [`JumpAccess`].

pub(crate) mod authenticator;
pub mod endpoint;
pub(crate) mod jump;
pub(crate) mod terminate;
#[cfg(test)]
mod tests;

use authenticator::Caller;
use fleetgate_policy::cluster::Identity;
use fleetgate_ssh::key::{Certificate, HostKey};
use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;

/// What one channel's peer may send that was not passed on yet.
pub const WINDOW: u32 = 2 * 1024 * 1024;
/// Channels of one connection.
pub const MAX_CHANNELS: u32 = 64;

/// A byte stream to a node's SSH.
pub type Stream = Box<dyn endpoint::Bytes>;
/// It is under way; an error is a sentence for the user.
pub(crate) type StreamFuture = Pin<Box<dyn Future<Output = Result<Stream, String>>>>;

/// What the rest of the proxy does for a connection by SSH.
pub(crate) trait JumpAccess {
    /// The proxy's key with its certificate, as they are now.
    fn host_key(&self) -> Arc<HostKey>;
    /// Whether this certificate lets its user in at the proxy, where he gave this name.
    fn check_user(&self, certificate: &Certificate, name: &str) -> Result<Identity, String>;
    /// A way to a node's SSH.
    fn reach(&self, caller: &Rc<Caller>, node: &str) -> StreamFuture;
    /// Somebody is in.
    fn entered(&self, source: SocketAddr);
    /// A try that was refused, for the audit log.
    fn refused(&self, source: SocketAddr, why: &str);
    /// Comes when somebody must not be in any more (a lock, the certificate's end), with a sentence that says why.
    fn ended(&self, identity: &Identity, certificate: &Certificate) -> Pin<Box<dyn Future<Output = String>>>;
}

//! The connection to the proxy, kept for the next command. The first command starts a process of the user's own, the
//! *holder*, which makes the connection and lends it to whoever of the same user asks on a socket in the login's
//! directory; it ends by itself when nobody asked for a while. A later command has neither TCP nor TLS to wait for.
//!
//! The holder decides nothing and sees no more than the proxy does: SSH is between the command and the node. Where there is
//! none and none can be started, a command makes a connection of its own.

mod client;
pub(crate) mod protocol;
pub mod server;
mod service;

use crate::connect;
use crate::error::ClientError;
use crate::profile::Home;
use crate::timings::Timings;
use crate::transport::Proxy;
use client::{MasterError, SharedConnection, connect};
use fleetgate_net::dial;
use fleetgate_proto::v1::Node;
use fleetgate_sys::process::{self, effective_uid};
use protocol::MasterRequest;
use std::fmt;
use std::io::{self, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// The name under which this program is the holder.
pub const NAME: &str = "fleetgate-holder";
/// The holder's socket, in the login's directory: beside those of ssh's ControlMaster, since it is for the same.
pub const SOCKET: &str = "mux/proxy";
/// How long the connection is kept after the last command that used it: as long as our ssh_config has ssh keep its own.
pub const PERSIST: Duration = Duration::from_secs(600);
/// How long a holder that is there may take to say so. One that still connects is waited for as long as a connection may take.
const DEADLINE: Duration = Duration::from_secs(5);

/// How long another connection may take at least, after the one that was kept was found to be dead.
const ANOTHER: Duration = Duration::from_secs(3);

/// Ends a process that does nothing about it (signal(7)).
const SIGTERM: i32 = 15;

/// Whether the connection shall be kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// A connection of the command's own, which ends with it.
    No,
    /// For so long after its last use.
    For(Duration),
}

/// One command's way to the proxy: by the connection that is kept, or by one of its own. A connection that was there before
/// the command may be dead without anybody knowing; what it did not bring is brought by another one, once.
pub struct ProxyConnector<'a, N> {
    home: &'a Home,
    keep: Keep,
    time: Option<Duration>,
    note: N,
    was_there: bool,
    /// When a connection was wanted last.
    begun: Instant,
}

impl<'a, N: Fn(fmt::Arguments<'_>)> ProxyConnector<'a, N> {
    /// With the login in `home`. A connection takes `time` at most. What does not work about keeping is told to `note`, and
    /// costs nobody his connection.
    pub fn new(home: &'a Home, keep: Keep, time: Option<Duration>, note: N) -> ProxyConnector<'a, N> {
        ProxyConnector {
            home,
            keep,
            time,
            note,
            was_there: false,
            begun: Instant::now(),
        }
    }

    /// The proxy at `address`.
    pub async fn proxy(&mut self, address: &str, timings: &mut Timings) -> Result<Proxy, ClientError> {
        self.begun = Instant::now();
        self.was_there = false;
        if let Keep::For(persist) = self.keep {
            match connect(self.home, address, persist, self.time, timings).await {
                Ok(SharedConnection { proxy, was_there }) => {
                    self.was_there = was_there;
                    return Ok(proxy);
                }
                Err(MasterError::Proxy(error)) => return Err(error),
                Err(MasterError::Unavailable(why)) => {
                    (self.note)(format_args!("the connection to the proxy is not kept: {why}"));
                }
            }
        }
        let (believe, credentials) = (connect::believe(self.home)?, connect::credentials(self.home)?);
        Proxy::connect(address, &believe, &credentials, self.time, timings).await
    }

    /// The proxy at `address`, and what it has of the nodes that a selector means.
    pub async fn nodes(
        &mut self,
        address: &str,
        selector: &str,
        timings: &mut Timings,
    ) -> Result<(Proxy, Vec<Node>), ClientError> {
        loop {
            let proxy = self.proxy(address, timings).await?;
            match proxy.nodes(selector, timings).await {
                Ok(nodes) => return Ok((proxy, nodes)),
                Err(error @ ClientError::Unreachable(..)) if self.try_again(&error) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Whether the connection may be dead without anybody knowing.
    #[must_use]
    pub fn may_be_dead(&self) -> bool {
        self.was_there
    }

    /// After a connection brought nothing, for this reason: whether another one shall be had. The one that is kept is lent
    /// to nobody from then on.
    #[must_use]
    pub fn try_again(&mut self, why: &dyn fmt::Display) -> bool {
        if !self.was_there {
            return false;
        }
        (self.note)(format_args!(
            "the connection that was kept is dead ({why}); another one is made"
        ));
        retire(self.home);
        // Both together take hardly longer than one.
        let left = dial::DEADLINE.saturating_sub(self.begun.elapsed()).max(ANOTHER);
        self.time = Some(self.time.map_or(left, |time| time.min(left)));
        (self.keep, self.was_there) = (Keep::No, false);
        true
    }
}

/// The process that holds the connection.
pub async fn process_id(home: &Home) -> io::Result<i32> {
    let stream = tokio::net::UnixStream::connect(home.file(SOCKET)).await?;
    let holder = stream.peer_cred()?;
    match holder.pid() {
        Some(pid) if holder.uid() == effective_uid() => Ok(pid),
        _ => Err(io::Error::other("somebody else's process holds it")),
    }
}

/// Ends the holder, and with it whatever uses its connection.
pub async fn stop(home: &Home) -> io::Result<()> {
    let errno = |e: fleetgate_sys::Errno| io::Error::from_raw_os_error(e.0);
    let pid = process_id(home).await?;
    let holder = process::pidfd_open(pid).map_err(errno)?;
    // It is still there, so the number is still its own: then it has not ended since it took the connection.
    if process_id(home).await? == pid {
        process::signal(&holder, SIGTERM).map_err(errno)?;
    }
    // Nobody listens there any more.
    crate::files::remove(&home.file(SOCKET)).map_err(io::Error::other)
}

/// Has the holder lend its connection to nobody any more; it ends with the last command that uses it. For a login that is
/// over, or another one.
pub fn retire(home: &Home) {
    if let Ok(mut holder) = UnixStream::connect(home.file(SOCKET)) {
        // It ends by itself a while later if it does not hear.
        let _ = holder.set_write_timeout(Some(DEADLINE));
        let _ = holder.write_all(&MasterRequest::End.word());
    }
}

#[cfg(test)]
mod tests;

//! The connection to the proxy, kept for the next command. The first command starts a process of the user's own, the
//! *holder*, which makes the connection and lends it to whoever of the same user asks on a socket in the login's
//! directory; it ends by itself when nobody asked for a while. A later command has neither TCP nor TLS to wait for.
//!
//! The holder decides nothing and sees no more than the proxy does: SSH is between the command and the node. Where there is
//! none and none can be started, a command makes a connection of its own.

mod desk;
pub mod holder;
mod lend;

use crate::error::ClientError;
use crate::ledger::Ledger;
use crate::profile::Home;
use crate::reach;
use crate::transport::{LEG, Proxy};
use desk::{Ask, Reply};
use fleetgate_net::dial;
use fleetgate_net::h2::{self, Tuning};
use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::Duration;
use tokio::net::UnixStream;
use tokio::time::timeout;

/// The name under which this program is the holder.
pub const NAME: &str = "fleetgate-holder";
/// The holder's socket, in the login's directory: beside those of ssh's ControlMaster, since it is for the same.
pub const SOCKET: &str = "mux/proxy";
/// How long the connection is kept after the last command that used it: as long as our ssh_config has ssh keep its own.
pub const PERSIST: Duration = Duration::from_secs(600);
/// How long a holder that is there may take to say so. One that still connects is waited for as long as a connection may take.
const DEADLINE: Duration = Duration::from_secs(5);

/// Whether the connection shall be kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// A connection of the command's own, which ends with it.
    No,
    /// For so long after its last use.
    For(Duration),
}

/// A way to the proxy.
pub struct Way {
    /// The connection.
    pub proxy: Proxy,
    /// It was there before this command: it may be dead without anybody knowing.
    pub was_there: bool,
}

/// Why there is no connection to borrow.
enum Unlent {
    /// There is nobody who could lend one.
    Nobody(String),
    /// The proxy cannot be reached.
    Failed(ClientError),
}

/// The proxy, with the login in this home: by the connection that is kept, or by a new one. What does not work about keeping
/// is told to `note`, and costs nobody his connection.
pub async fn proxy(
    home: &Home,
    address: &str,
    keep: Keep,
    time: Option<Duration>,
    ledger: &mut Ledger,
    note: impl Fn(fmt::Arguments<'_>),
) -> Result<Way, ClientError> {
    if let Keep::For(persist) = keep {
        match borrow(home, address, persist, time, ledger).await {
            Ok(way) => return Ok(way),
            Err(Unlent::Failed(error)) => return Err(error),
            Err(Unlent::Nobody(why)) => {
                note(format_args!("the connection to the proxy is not kept: {why}"));
            }
        }
    }
    let (believe, credentials) = (reach::believe(home)?, reach::credentials(home)?);
    Ok(Way {
        proxy: Proxy::connect(address, &believe, &credentials, time, ledger).await?,
        was_there: false,
    })
}

/// Has the holder lend its connection to nobody any more; it ends with the last command that uses it. For a login that is
/// over, or another one.
pub fn end(home: &Home) {
    if let Ok(mut holder) = std::os::unix::net::UnixStream::connect(home.file(SOCKET)) {
        // It ends by itself a while later if it does not hear.
        let _ = holder.set_write_timeout(Some(DEADLINE));
        let _ = io::Write::write_all(&mut holder, &Ask::End.word());
    }
}

async fn borrow(
    home: &Home,
    address: &str,
    persist: Duration,
    time: Option<Duration>,
    ledger: &mut Ledger,
) -> Result<Way, Unlent> {
    let nobody = |e: &dyn fmt::Display| Unlent::Nobody(e.to_string());
    let key = desk::key(home, address).map_err(|e| nobody(&e))?;
    let patience = time.unwrap_or(dial::DEADLINE) + DEADLINE;
    ledger.begin("kept connection", LEG);
    if let Ok(stream) = UnixStream::connect(home.file(SOCKET)).await {
        let answered = ask(stream, &key, patience).await.map_err(|e| {
            if e.kind() == io::ErrorKind::TimedOut {
                // Nobody else shall wait for it. Until it ends there is no other one to share.
                let _ = std::fs::remove_file(home.file(SOCKET));
            }
            nobody(&e)
        });
        match answered? {
            (stream, Reply::Lent { .. }) => {
                ledger.end();
                return lent(stream, address, true).await;
            }
            (_, Reply::Failed { why }) => return Err(failed(address, why)),
            // Of another login or another version: it makes room.
            (_, Reply::Other) => {}
        }
    }
    let (ours, its) = std::os::unix::net::UnixStream::pair().map_err(|e| nobody(&e))?;
    start(home, address, persist, its.into()).map_err(|e| nobody(&e))?;
    let ours = ours
        .set_nonblocking(true)
        .and_then(|()| UnixStream::from_std(ours))
        .map_err(|e| nobody(&e))?;
    match ask(ours, &key, patience).await.map_err(|e| nobody(&e))? {
        (stream, Reply::Lent { steps }) => {
            ledger.end();
            for step in &steps {
                ledger.extend(step.step());
            }
            lent(stream, address, false).await
        }
        (_, Reply::Failed { why }) => Err(failed(address, why)),
        (_, Reply::Other) => Err(Unlent::Nobody("the login changed meanwhile".to_owned())),
    }
}

async fn ask(stream: UnixStream, key: &str, patience: Duration) -> io::Result<(UnixStream, Reply)> {
    // The directory is the user's alone; whoever else got in there is not believed all the same.
    if stream.peer_cred()?.uid() != fleetgate_sys::process::effective_uid() {
        return Err(io::Error::other("somebody else's process holds it"));
    }
    timeout(patience, desk::ask(stream, key))
        .await
        .unwrap_or_else(|_| {
            Err(io::Error::new(
                io::ErrorKind::TimedOut,
                "its holder does not answer",
            ))
        })
}

async fn lent(stream: UnixStream, address: &str, was_there: bool) -> Result<Way, Unlent> {
    let channel = h2::connect(stream, Tuning::HERE).await;
    let channel = channel.map_err(|e| Unlent::Nobody(e.to_string()))?;
    Ok(Way {
        proxy: Proxy::new(channel, address),
        was_there,
    })
}

fn failed(address: &str, why: String) -> Unlent {
    Unlent::Failed(ClientError::Unreachable(address.to_owned(), why))
}

/// Starts the holder, with its first user as standard input. Nothing else of ours is its business: its environment is empty,
/// it looks at no terminal, and it outlives us.
fn start(home: &Home, address: &str, persist: Duration, first: OwnedFd) -> io::Result<()> {
    // Not by its path: this very program, whatever lies there now.
    Command::new("/proc/self/exe")
        .arg0(NAME)
        .arg(home.path())
        .arg(address)
        .arg(persist.as_secs().to_string())
        .env_clear()
        .current_dir("/")
        .stdin(Stdio::from(first))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .map(drop)
}

#[cfg(test)]
mod tests;

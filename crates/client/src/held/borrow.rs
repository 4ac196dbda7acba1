//! A command's side of a connection that is lent: it asks the holder that is there, or starts one and is its first user.

use super::desk::{self, Reply};
use super::{DEADLINE, NAME, SOCKET};
use crate::error::ClientError;
use crate::ledger::Ledger;
use crate::profile::Home;
use crate::transport::{LEG, Proxy};
use crate::waiting::{Awaited, noticed};
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

/// A connection that was lent.
pub(super) struct Loan {
    pub(super) proxy: Proxy,
    /// It was there before this command.
    pub(super) was_there: bool,
}

/// Why there is no connection to borrow.
pub(super) enum Unlent {
    /// There is nobody who could lend one.
    Nobody(String),
    /// The proxy cannot be reached.
    Failed(ClientError),
}

/// The connection to the proxy at `address`, by the holder.
pub(super) async fn borrow(
    home: &Home,
    address: &str,
    persist: Duration,
    time: Option<Duration>,
    ledger: &mut Ledger,
) -> Result<Loan, Unlent> {
    let nobody = |e: &dyn fmt::Display| Unlent::Nobody(e.to_string());
    let key = desk::key(home, address).map_err(|e| nobody(&e))?;
    let patience = time.unwrap_or(dial::DEADLINE) + DEADLINE;
    ledger.begin("kept connection", LEG);
    if let Ok(stream) = UnixStream::connect(home.file(SOCKET)).await {
        let answered = ask(stream, &key, patience, address).await.map_err(|e| {
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
    match ask(ours, &key, patience, address).await.map_err(|e| nobody(&e))? {
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

async fn ask(
    stream: UnixStream,
    key: &str,
    patience: Duration,
    address: &str,
) -> io::Result<(UnixStream, Reply)> {
    // The directory is the user's alone; whoever else got in there is not believed all the same.
    if stream.peer_cred()?.uid() != fleetgate_sys::process::effective_uid() {
        return Err(io::Error::other("somebody else's process holds it"));
    }
    // Its holder connects to the proxy, and says nothing itself.
    let whom = Awaited::proxy(address).whom;
    timeout(patience, noticed(&whom, desk::ask(stream, key)))
        .await
        .unwrap_or_else(|_| {
            Err(io::Error::new(
                io::ErrorKind::TimedOut,
                "its holder does not answer",
            ))
        })
}

async fn lent(stream: UnixStream, address: &str, was_there: bool) -> Result<Loan, Unlent> {
    let channel = h2::connect(stream, Tuning::HERE).await;
    let channel = channel.map_err(|e| Unlent::Nobody(e.to_string()))?;
    Ok(Loan {
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

//! A command's side of a connection that is lent: it asks the holder that is there, or starts one and is its first user.

use super::protocol::{self, MasterReply};
use super::{DEADLINE, NAME, SOCKET};
use crate::error::ClientError;
use crate::profile::Home;
use crate::timings::Timings;
use crate::transport::{LEG, Proxy};
use crate::waiting::{Peer, with_notice};
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
pub(super) struct SharedConnection {
    pub(super) proxy: Proxy,
    /// It was there before this command.
    pub(super) was_there: bool,
}

/// Why there is no connection to borrow.
pub(super) enum MasterError {
    /// There is nobody who could lend one.
    Unavailable(String),
    /// The proxy cannot be reached.
    Proxy(ClientError),
}

/// The connection to the proxy at `address`, by the holder.
pub(super) async fn connect(
    home: &Home,
    address: &str,
    persist: Duration,
    time: Option<Duration>,
    timings: &mut Timings,
) -> Result<SharedConnection, MasterError> {
    let nobody = |e: &dyn fmt::Display| MasterError::Unavailable(e.to_string());
    let key = protocol::key(home, address).map_err(|e| nobody(&e))?;
    let patience = time.unwrap_or(dial::DEADLINE) + DEADLINE;
    timings.begin("kept connection", LEG);
    if let Ok(stream) = UnixStream::connect(home.file(SOCKET)).await {
        let answered = ask(stream, &key, patience, address).await.map_err(|e| {
            if e.kind() == io::ErrorKind::TimedOut {
                // Nobody else shall wait for it. Until it ends there is no other one to share.
                let _ = std::fs::remove_file(home.file(SOCKET));
            }
            nobody(&e)
        });
        match answered? {
            (stream, MasterReply::Lent { .. }) => {
                timings.end();
                return lent(stream, address, true).await;
            }
            (_, MasterReply::Failed { why }) => return Err(failed(address, why)),
            // Of another login or another version: it makes room.
            (_, MasterReply::Other) => {}
        }
    }
    let (ours, its) = std::os::unix::net::UnixStream::pair().map_err(|e| nobody(&e))?;
    start(home, address, persist, its.into()).map_err(|e| nobody(&e))?;
    let ours = ours
        .set_nonblocking(true)
        .and_then(|()| UnixStream::from_std(ours))
        .map_err(|e| nobody(&e))?;
    match ask(ours, &key, patience, address).await.map_err(|e| nobody(&e))? {
        (stream, MasterReply::Lent { steps }) => {
            timings.end();
            for step in &steps {
                timings.extend(step.step());
            }
            lent(stream, address, false).await
        }
        (_, MasterReply::Failed { why }) => Err(failed(address, why)),
        (_, MasterReply::Other) => Err(MasterError::Unavailable("the login changed meanwhile".to_owned())),
    }
}

async fn ask(
    stream: UnixStream,
    key: &str,
    patience: Duration,
    address: &str,
) -> io::Result<(UnixStream, MasterReply)> {
    // The directory is the user's alone; whoever else got in there is not believed all the same.
    if stream.peer_cred()?.uid() != fleetgate_sys::process::effective_uid() {
        return Err(io::Error::other("somebody else's process holds it"));
    }
    // Its holder connects to the proxy, and says nothing itself.
    let whom = Peer::proxy(address).name;
    timeout(patience, with_notice(&whom, protocol::ask(stream, key)))
        .await
        .unwrap_or_else(|_| {
            Err(io::Error::new(
                io::ErrorKind::TimedOut,
                "its holder does not answer",
            ))
        })
}

async fn lent(stream: UnixStream, address: &str, was_there: bool) -> Result<SharedConnection, MasterError> {
    let channel = h2::connect(stream, Tuning::HERE).await;
    let channel = channel.map_err(|e| MasterError::Unavailable(e.to_string()))?;
    Ok(SharedConnection {
        proxy: Proxy::new(channel, address),
        was_there,
    })
}

fn failed(address: &str, why: String) -> MasterError {
    MasterError::Proxy(ClientError::Unreachable(address.to_owned(), why))
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

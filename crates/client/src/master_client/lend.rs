//! A command's side: it asks the master that is there, or starts one and is its first user.

use super::socket::MessageSocket;
use super::{DEADLINE, Kind, NAME, SOCKET, VERSION, heard_step};
use crate::error::ClientError;
use crate::profile::Home;
use crate::timings::Timings;
use crate::transport::{LEG, Proxy};
use crate::waiting::{Peer, with_notice};
use fleetgate_net::dial;
use fleetgate_net::h2::{self, Tuning};
use fleetgate_sys::{Fd, net};
use fleetgate_wire::master::{FromMaster, Target, ToMaster, Way};
use std::ffi::CString;
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

/// For what a connection is wanted: kept for so long, and made in so much time.
pub(crate) fn target(way: Way, persist: Duration, time: Duration) -> Target {
    let seconds = |time: Duration| u32::try_from(time.as_secs()).unwrap_or(u32::MAX);
    Target {
        version: VERSION.into(),
        network: net::namespace(),
        way,
        keep: seconds(persist),
        connect: seconds(time).max(1),
    }
}

/// By the proxy at `address`.
pub(crate) fn by_proxy(address: &str) -> io::Result<Way> {
    let address = CString::new(address)?;
    Ok(Way::Proxy { address })
}

/// The connection to the proxy at `address`, by the master.
pub(super) async fn connect(
    home: &Home,
    address: &str,
    persist: Duration,
    time: Option<Duration>,
    timings: &mut Timings,
) -> Result<SharedConnection, MasterError> {
    let nobody = |e: &dyn fmt::Display| MasterError::Unavailable(e.to_string());
    // Without a login there is nobody to keep it for; the command says so in its own words.
    let way = by_proxy(address).map_err(|e| nobody(&e))?;
    let time = time.unwrap_or(dial::DEADLINE);
    let (target, patience) = (target(way, persist, time), time + DEADLINE);
    timings.begin("kept connection", LEG);
    let mut present = MessageSocket::connect(&home.file(SOCKET)).ok();
    loop {
        let is_there = present.is_some();
        let socket = match present.take() {
            Some(socket) => socket,
            None => start(home, Kind::Login).map_err(|e| nobody(&e))?,
        };
        let asked = ToMaster::Lend {
            target: target.clone(),
        };
        let answer = ask(&socket, &asked, &[], patience, address).await.map_err(|e| {
            if is_there && e.kind() == io::ErrorKind::TimedOut {
                // Nobody else shall wait for it. Until it ends there is no other one to share.
                let _ = std::fs::remove_file(home.file(SOCKET));
            }
            nobody(&e)
        });
        match answer? {
            (FromMaster::Lent { steps, was_there }, descriptors) => {
                timings.end();
                for step in &steps {
                    timings.extend(heard_step(step));
                }
                let stream = descriptors.into_iter().next();
                let stream = stream.ok_or_else(|| nobody(&"the master lends nothing"))?;
                return lent(stream, address, was_there).await;
            }
            (FromMaster::Failed { why }, _) => {
                let why = why.to_string_lossy().into_owned();
                return Err(MasterError::Proxy(ClientError::Unreachable(
                    address.to_owned(),
                    why,
                )));
            }
            // Of another login or another version: it makes room.
            (FromMaster::Other, _) if is_there => {}
            (FromMaster::Cold, _) => return Err(nobody(&"the master is in another network namespace")),
            _ => return Err(nobody(&"the login changed meanwhile")),
        }
    }
}

/// Asks, and waits for the first answer.
pub(super) async fn ask(
    socket: &MessageSocket,
    word: &ToMaster,
    descriptors: &[i32],
    patience: Duration,
    address: &str,
) -> io::Result<(FromMaster, Vec<Fd>)> {
    // The directory is the user's alone; whoever else got in there is not believed all the same.
    if !socket.is_ours() {
        return Err(io::Error::other("it is somebody else's process"));
    }
    socket.send(word, descriptors)?;
    // The master connects to the proxy, and says nothing itself.
    let whom = Peer::proxy(address).name;
    match timeout(patience, with_notice(&whom, socket.receive())).await {
        // Words of another version: as if it said that it is one.
        Ok(Err(e)) if e.kind() == io::ErrorKind::InvalidData => Ok((FromMaster::Other, Vec::new())),
        Ok(Err(e)) if e.kind() == io::ErrorKind::UnexpectedEof => {
            Err(io::Error::other("the master ended and did not say why"))
        }
        Ok(answer) => answer,
        Err(_) => Err(io::Error::new(
            io::ErrorKind::TimedOut,
            "the master does not answer",
        )),
    }
}

async fn lent(stream: Fd, address: &str, was_there: bool) -> Result<SharedConnection, MasterError> {
    let unavailable = |e: &dyn fmt::Display| MasterError::Unavailable(e.to_string());
    let stream = std::os::unix::net::UnixStream::from(OwnedFd::from(stream));
    let stream = stream
        .set_nonblocking(true)
        .and_then(|()| UnixStream::from_std(stream))
        .map_err(|e| unavailable(&e))?;
    let channel = h2::connect(stream, Tuning::HERE).await;
    let channel = channel.map_err(|e| unavailable(&e))?;
    Ok(SharedConnection {
        proxy: Proxy::new(channel, address),
        was_there,
    })
}

/// Starts a master, with its first user's socket as standard input. Nothing else of ours is its business: its environment is
/// empty, it looks at no terminal, and it outlives us.
pub(crate) fn start(home: &Home, kind: Kind) -> io::Result<MessageSocket> {
    let (ours, its) = MessageSocket::pair()?;
    // Not by its path: this very program, whatever lies there now.
    Command::new("/proc/self/exe")
        .arg0(NAME)
        .arg(home.path())
        .arg(kind.name())
        .env_clear()
        .current_dir("/")
        .stdin(Stdio::from(OwnedFd::from(its)))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    Ok(ours)
}

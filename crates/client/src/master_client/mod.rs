//! A command's side of the master, a process of the user's own that the first command starts and that keeps what later
//! commands need ([`crate::master`]): how it is found or started, its connection to the proxy lent, and its end. What it does
//! for a session is `ssh::by_master`'s.
//!
//! Where there is no master and none can be started, a command makes a connection of its own.

pub(crate) mod lend;
pub mod socket;
pub(crate) mod usage;

use crate::connect;
use crate::error::ClientError;
use crate::profile::Home;
use crate::timings::{self, Timings};
use crate::transport::{LEG, Proxy};
use fleetgate_net::dial;
use fleetgate_proto::v1::Node;
use fleetgate_wire::master::{ConnectionStatus, FromMaster, MAX_WORDS, Step, ToMaster, Way};
use lend::{MasterError, SharedConnection, connect};
use socket::MessageSocket;
use std::ffi::{CStr, CString};
use std::fmt;
use std::io;
use std::time::{Duration, Instant};
use tokio::time::timeout;

/// The name under which this program is the master.
pub const NAME: &str = "fleetgate-master";
/// The login's master's socket, in the login's directory: beside those of ssh's ControlMaster, since it is for the same.
pub const SOCKET: &str = "mux/master";
/// How long the kernel tries to connect, and some more: for a command that leaves that to it.
pub(crate) const KERNEL_TIME: Duration = Duration::from_secs(180);
/// How long a connection is kept after its last use.
pub const PERSIST: Duration = Duration::from_secs(1800);
/// Of times for which a connection is kept: for as long as the login lasts.
pub const ALWAYS: Duration = Duration::from_secs(fleetgate_wire::master::ALWAYS as u64);
/// How long a master waits for commands that keeps nothing.
pub(crate) const DAY: Duration = Duration::from_secs(86_400);
/// How long a master that is there may take to say so. One that still connects is waited for as long as a connection may take.
pub(crate) const DEADLINE: Duration = Duration::from_secs(5);
/// How long another connection may take at least, after the one that was kept was found to be dead.
const ANOTHER: Duration = Duration::from_secs(3);
/// The version of this program.
pub(crate) const VERSION: &CStr =
    match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
        Ok(version) => version,
        Err(_) => c"unknown",
    };

/// Whether connections shall be kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// A connection of the command's own, which ends with it.
    No,
    /// For so long after its last use.
    For(Duration),
}

/// A user's masters. Each is a process of its own, at a socket of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Of a login: connections to proxies and to the cluster's nodes. It ends with the login.
    Login,
    /// For `--direct`: connections to SSH servers, with keys of the user's files. It needs no login.
    Direct,
}

impl Kind {
    /// Both.
    pub const ALL: [Kind; 2] = [Kind::Login, Kind::Direct];

    /// Its socket, in the login's directory.
    #[must_use]
    pub fn socket(self) -> &'static str {
        match self {
            Kind::Login => SOCKET,
            Kind::Direct => "mux/direct",
        }
    }

    /// What it is called, on its command line and in `master status`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Kind::Login => "login",
            Kind::Direct => "direct",
        }
    }

    /// The one of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Kind> {
        Kind::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// Whose connections go by such a way.
    pub(crate) fn of(way: &Way) -> Kind {
        match way {
            Way::Proxy { .. } | Way::Port { .. } => Kind::Login,
            Way::Server { .. } => Kind::Direct,
        }
    }
}

/// A running master.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// Its process.
    pub pid: u32,
    /// Its program's version.
    pub version: String,
    /// For how many seconds it has run.
    pub age: u64,
    /// What it keeps.
    pub connections: Vec<ConnectionStatus>,
    /// How many more there are than it could say.
    pub more: u32,
    /// Why the login was not renewed.
    pub trouble: Option<String>,
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

    /// After a connection brought nothing, for this reason: whether another one shall be had. The master that kept it begins
    /// nothing more.
    #[must_use]
    pub fn try_again(&mut self, why: &dyn fmt::Display) -> bool {
        if !self.was_there {
            return false;
        }
        (self.note)(format_args!(
            "the connection that was kept is dead ({why}); another one is made"
        ));
        retire(self.home, Kind::Login);
        // Both together take hardly longer than one.
        let left = dial::DEADLINE.saturating_sub(self.begun.elapsed()).max(ANOTHER);
        self.time = Some(self.time.map_or(left, |time| time.min(left)));
        (self.keep, self.was_there) = (Keep::No, false);
        true
    }
}

/// A master that has its socket in `home`.
pub async fn status(home: &Home, kind: Kind) -> io::Result<Status> {
    let socket = here(home, kind)?;
    socket.send(&ToMaster::Status, &[])?;
    heard_status(&socket).await
}

async fn heard_status(socket: &MessageSocket) -> io::Result<Status> {
    match timeout(DEADLINE, socket.receive()).await {
        Ok(answer) => match answer?.0 {
            FromMaster::Status {
                pid,
                version,
                age,
                connections,
                more,
                trouble,
            } => Ok(Status {
                pid,
                version: version.to_string_lossy().into_owned(),
                age,
                connections,
                more,
                trouble: trouble.map(|why| why.to_string_lossy().into_owned()),
            }),
            FromMaster::Cold => Err(io::Error::other(
                "a master runs in another network namespace: fleetgate master stop ends it",
            )),
            FromMaster::Other => Err(io::Error::new(
                io::ErrorKind::AddrInUse,
                "a master of another login or version ends with its last session",
            )),
            _ => Err(io::Error::other("the master says something else")),
        },
        Err(_) => Err(io::Error::new(
            io::ErrorKind::TimedOut,
            "the master does not answer",
        )),
    }
}

/// A master of the login that does not end for want of commands: the one that runs, or one that is started. It is held for as
/// long as this value lives.
pub struct StayingMaster {
    socket: MessageSocket,
    /// What it said at first.
    pub status: Status,
}

impl StayingMaster {
    /// To be called within a runtime.
    pub async fn new(home: &Home) -> io::Result<StayingMaster> {
        let socket = match here(home, Kind::Login) {
            Err(e) if is_nobody(&e) => lend::start(home, Kind::Login),
            socket => socket,
        }?;
        let target = lend::target(lend::by_proxy("")?, PERSIST, dial::DEADLINE);
        socket.send(&ToMaster::Stay { target }, &[])?;
        let heard = heard_status(&socket).await?;
        // One that could not have the socket is of no use to anybody, and ends.
        match status(home, Kind::Login).await {
            Ok(found) if found.pid == heard.pid => Ok(StayingMaster {
                socket,
                status: heard,
            }),
            _ => Err(io::Error::new(
                io::ErrorKind::AddrInUse,
                "no master can listen there: the directory cannot be written, or another process holds master.lock",
            )),
        }
    }

    /// Waits until it ends.
    pub async fn ended(&self) {
        // Whatever it says is an end: it has nothing more to say.
        let _ = self.socket.receive::<FromMaster>().await;
    }
}

/// Ends a master, and with it whatever uses its connections.
pub async fn stop(home: &Home, kind: Kind) -> io::Result<()> {
    let socket = here(home, kind)?;
    socket.send(&ToMaster::Stop, &[])?;
    // It says nothing more, and closes the socket when it ends.
    match timeout(DEADLINE, socket.receive::<FromMaster>()).await {
        Ok(_) => Ok(()),
        Err(_) => Err(io::Error::new(io::ErrorKind::TimedOut, "the master does not end")),
    }
}

/// Has a master begin nothing more; it ends with its last session. For a login that is over, or another one. To be called
/// from anywhere.
pub fn retire(home: &Home, kind: Kind) {
    use fleetgate_sys::{net, socket};
    use std::os::unix::ffi::OsStrExt;
    let path = std::ffi::CString::new(home.file(kind.socket()).as_os_str().as_bytes());
    // It ends by itself a while later if it does not hear.
    if let (Ok(master), Ok(path)) = (socket::unconnected(), path)
        && net::connect_unix(&master, &path).is_ok()
    {
        let _ = socket::send_now(&master, &fleetgate_wire::encode(&ToMaster::Retire), &[]);
    }
}

/// Nobody listens there, or what listened was killed.
#[must_use]
pub fn is_nobody(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused
    )
}

fn here(home: &Home, kind: Kind) -> io::Result<MessageSocket> {
    let socket = MessageSocket::connect(&home.file(kind.socket()))?;
    match socket.is_ours() {
        true => Ok(socket),
        false => Err(io::Error::other("it is somebody else's process")),
    }
}

/// What another process is told of a step; none of a step that only its own process has.
pub(crate) fn told_step(step: &timings::Step) -> Option<Step> {
    let kind = match step.name {
        "tcp" => 0,
        "tls" => 1,
        _ => return None,
    };
    Some(Step {
        kind,
        start: step.start,
        end: step.end,
    })
}

/// The same step, in the process that was told.
fn heard_step(step: &Step) -> timings::Step {
    let (name, request) = match step.kind {
        0 => ("tcp", "connect"),
        _ => ("tls", "handshake"),
    };
    timings::Step {
        name,
        leg: LEG,
        start: step.start,
        end: step.end,
        round_trips: 1,
        requests: vec![request],
    }
}

/// Words for a frame, cut to what it may have.
pub(crate) fn words(text: &str) -> CString {
    let cut = &text[..text.floor_char_boundary(MAX_WORDS)];
    CString::new(cut.replace('\0', " ")).unwrap_or_default()
}

/// Why a proxy is not reached, without its address, which the command adds.
pub(crate) fn reason(error: &ClientError) -> String {
    match error {
        ClientError::Unreachable(_, why) => why.clone(),
        error => error.to_string(),
    }
}

#[cfg(test)]
mod tests;

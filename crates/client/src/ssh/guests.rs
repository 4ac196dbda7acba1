//! Sessions of other processes on one connection: in the master, each command is a guest with its own standard streams and a
//! socket on which it hears what became of its session.

use super::carrier::ProxyCarrier;
use super::engine::Engine;
use super::local::{StandardStream, Streams};
use super::login::Login;
use super::options::{LogLevel, Options};
use super::{Credential, Hosts, Plan, SshError, Work, settings};
use crate::master::pool::{Usage, Use, words};
use crate::master::socket::MessageSocket;
use crate::profile::Home;
use crate::timings::Timings;
use crate::transport::{DialOptions, Proxy, ReportHandle};
use bytes::Bytes;
use fleetgate_net::dial;
use fleetgate_proto::v1::denied::Reason;
use fleetgate_ssh::Connection;
use fleetgate_ssh::settings::Keepalive;
use fleetgate_sys::Fd;
use fleetgate_wire::master::{FromMaster, SessionOrder};
use std::collections::VecDeque;
use std::io;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::Instant;

/// A connection without words is asked whether the other side lives; after three of these it is given up.
const KEEPALIVE: Keepalive = Keepalive {
    after: Duration::from_secs(30),
    unanswered: 3,
};

/// A command's session, before its channel.
pub(crate) struct Guest {
    pub(super) socket: MessageSocket,
    streams: [Fd; 3],
    pub(super) order: SessionOrder,
    one_use: Option<Use>,
}

/// The sessions of one connection that are still to be begun.
pub(crate) struct Guests {
    arrivals: mpsc::Receiver<Guest>,
    /// Those that were taken for a connection that came to nothing.
    again: VecDeque<Guest>,
    usage: Rc<Usage>,
    /// Who answers, for people.
    whom: String,
}

/// To where a connection is to be made.
pub(crate) struct Opening {
    pub(crate) proxy: Proxy,
    /// The proxy's connection was there before, and may be dead.
    pub(crate) was_there: bool,
    pub(crate) node: String,
    pub(crate) login: String,
}

impl Guest {
    pub(crate) fn new(socket: MessageSocket, streams: [Fd; 3], order: SessionOrder) -> Guest {
        Guest {
            socket,
            streams,
            order,
            one_use: None,
        }
    }

    /// What counts it among the connection's uses.
    pub(crate) fn set_use(&mut self, one_use: Use) {
        self.one_use = Some(one_use);
    }

    /// Says what became of it.
    pub(crate) fn answer(self, word: &FromMaster) {
        let _ = self.socket.send(word, &[]);
    }

    /// Its standard streams, as ends of a channel: each an open file of its own, so that flags that other processes share are
    /// left alone.
    pub(super) fn streams(&self) -> io::Result<Streams> {
        let [input, output, error] = &self.streams;
        let again = |fd: &Fd| fd.duplicate(0).map_err(|e| io::Error::from_raw_os_error(e.0));
        let input = match self.order.input {
            true => Some(StandardStream::new(again(input)?, true)?),
            false => None,
        };
        Ok(Streams {
            input,
            output: Some(StandardStream::new(again(output)?, false)?),
            error: Some(StandardStream::new(again(error)?, false)?),
        })
    }
}

impl Guests {
    pub(crate) fn new(arrivals: mpsc::Receiver<Guest>, usage: Rc<Usage>, whom: String) -> Guests {
        Guests {
            arrivals,
            again: VecDeque::new(),
            usage,
            whom,
        }
    }

    /// The next session. None: the master wants no more.
    pub(super) fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Guest>> {
        match self.again.pop_front() {
            Some(guest) => Poll::Ready(Some(guest)),
            None => self.arrivals.poll_recv(cx),
        }
    }

    /// The next one that is there.
    pub(super) fn present(&mut self) -> Option<Guest> {
        self.again.pop_front().or_else(|| self.arrivals.try_recv().ok())
    }

    /// One whose session was not begun waits for the next connection.
    pub(super) fn put_back(&mut self, guest: Guest) {
        self.again.push_back(guest);
    }

    pub(super) fn whom(&self) -> &str {
        &self.whom
    }

    /// Until when the connection is kept, if nobody uses it.
    pub(super) fn kept_until(&self) -> Option<Instant> {
        self.usage.kept_until()
    }

    /// Nothing of what waits is begun, for this reason.
    pub(crate) fn refuse(&mut self, why: &str) {
        self.answer_all(&FromMaster::Failed { why: words(why) });
    }

    fn answer_all(&mut self, word: &FromMaster) {
        self.arrivals.close();
        while let Some(guest) = self.present() {
            guest.answer(word);
        }
    }
}

/// Makes an SSH connection to a node and runs the guests' sessions on it, until nobody has used it for its time or it breaks.
/// Whoever waits then is answered.
pub(crate) async fn keep_connection(home: &Home, opening: Opening, guests: &mut Guests) {
    let outcome = connection(home, &opening, guests).await;
    let word = match outcome {
        // Its words are the same for a connection of the command's own, which would take as long to fail.
        Err(SshError::Connect(why)) if !opening.was_there => FromMaster::Failed { why: words(&why) },
        Err(SshError::Denied(refused)) if refused.reason != Reason::Mfa => FromMaster::Failed {
            why: words(&refused.to_string()),
        },
        // The command asks the user what has to be asked, and says what is wrong in its own words.
        _ => FromMaster::Cold,
    };
    guests.answer_all(&word);
}

async fn connection(home: &Home, opening: &Opening, guests: &mut Guests) -> Result<(), SshError> {
    let options = Options {
        host: opening.node.clone(),
        work: Work::None,
        batch: true,
        level: LogLevel::Quiet,
        connect_time: Some(dial::DEADLINE),
        ..Options::default()
    };
    let plan = Plan {
        user: opening.login.clone(),
        place: opening.node.clone(),
        leg: "client-node",
        options,
        terminal: false,
        environment: Vec::new(),
        escape: None,
        keepalive: Some(KEEPALIVE),
        display: None,
        starter: None,
    };
    let hosts = Hosts::of_cluster(&opening.node, home.file("known_hosts"));
    let key = Credential::of_files(&home.file("id"), Some(&home.file("id-cert.pub")), &Vec::new)?;
    let mut login = Login::new(plan.user.clone(), vec![key], true, plan.options.ways, |_| {});
    let mut carrier = ProxyCarrier {
        proxy: opening.proxy.clone(),
        node: opening.node.clone(),
        login: opening.login.clone(),
        options: DialOptions {
            trace: Bytes::new(),
            explain: false,
        },
        report: ReportHandle::default(),
    };
    let settings = settings(&plan, &hosts);
    let mut timings = Timings::default();
    let mut connection = Connection::client(settings);
    let first = connection.output().to_vec();
    connection.sent(first.len());
    let stream = super::Carrier::open(&mut carrier, first, &mut timings).await?;
    let mut listeners = Vec::new();
    let engine = Engine::new(
        stream,
        connection,
        &plan,
        &hosts,
        &mut login,
        &mut timings,
        &mut listeners,
        true,
        Some(guests),
    )?;
    engine.run().await.map(drop)
}

//! Every connection, from accept to its end: its socket, its exchanges, its way to a login, its grant. Who
//! may speak of it is decided here: the lobby before its hand-over, its own front after it, nobody else ever.

mod ending;
pub mod exchanges;
mod places;

pub(crate) use ending::{FRONTS_REPORT, quoted};

use crate::config::Limits;
use crate::config::offer::Offer;
use crate::monitor::accept::Via;
use crate::monitor::login::LoginAttempt;
use crate::monitor::open_login::OpenLogin;
use crate::monitor::strangers::{Strangers, random};
use crate::monitor::timers::Timer;
use crate::monitor::workers::WorkerId;
use exchanges::Exchanges;
use fleetgate_policy::address::Network;
use fleetgate_policy::strangers::{Admission, Bounds, Full as NoRoom, WaitingConnections};
use fleetgate_sys::poll::{PEER_CLOSED, Watch, poll};
use fleetgate_sys::{Fd, net};
use fleetgate_wire::node::front::{Start, Ticket};
use fleetgate_wire::node::{ConnectionAddresses, ConnectionNumber};
use places::ProxyPlaces;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

/// The lobby ends a login that takes too long. If it does not, the monitor does, so much later.
pub const GRACE_MARGIN: Duration = Duration::from_secs(2);

/// A request that waits for the account.
pub enum PendingRequest {
    /// A session.
    Session(Ticket, Start),
    /// A socket.
    Network(Ticket, fleetgate_wire::net::What),
}

/// One.
pub struct Connection {
    /// Its number.
    pub number: ConnectionNumber,
    /// Where from and where to.
    pub addresses: ConnectionAddresses,
    /// The peer.
    pub source: SocketAddr,
    /// What that counts as where sources are counted.
    pub counts_as: Network,
    /// The proxy that it came by, whose claim the peer is then.
    pub via: Option<Via>,
    /// Its socket; lobby and front have duplicates. Shutting this down ends it for them too.
    pub socket: Fd,
    /// Since when.
    pub since: Duration,
    /// What it was offered.
    pub offer: Arc<Offer>,
    /// Its key exchanges.
    pub exchanges: Exchanges,
    /// How far it is.
    pub stage: Stage,
    /// When the monitor ends it itself: the login, the hand-over or the front's report took too long.
    pub deadline: Option<Timer>,
    /// When the step began that is timed next.
    pub step_began: Duration,
    /// It hung up: its grant is gone, and only its front's report about it is waited for.
    pub hung_up: bool,
    /// How many host keys were proven on it, or asked about.
    pub proofs: usize,
    /// What the lobby was told to end it with.
    pub parting: Option<String>,
    /// Requests of its front that wait for the account to be looked up.
    pub waiting: Vec<PendingRequest>,
}

/// How far a connection is.
pub enum Stage {
    /// In the lobby.
    LoggingIn(Box<LoginAttempt>),
    /// Logged in, and not handed over yet: still the lobby's.
    Accepted(Box<OpenLogin>, WorkerId),
    /// With its front.
    Open(Box<OpenLogin>, WorkerId),
    /// Being changed from one to the other; never seen between two calls.
    Moving,
}

/// Why a connection is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Full {
    /// `limits.connections`.
    All,
    /// One of the bounds of those that are not logged in.
    NotLoggedIn(NoRoom),
}

impl Full {
    /// As a text.
    pub const fn why(self) -> &'static str {
        match self {
            Full::All => "there are as many connections as may be (limits.connections)",
            Full::NotLoggedIn(NoRoom::All) => {
                "there are as many connections that are not logged in as may be (limits.unauthenticated)"
            }
            Full::NotLoggedIn(NoRoom::Share) => {
                "its address has more than its share of the connections that are not logged in \
                 (limits.unauthenticated)"
            }
            Full::NotLoggedIn(NoRoom::Source) => {
                "its address has as many connections that are not logged in as it may \
                 (limits.unauthenticated_per_source)"
            }
        }
    }
}

/// All of them.
#[derive(Default)]
pub struct Connections {
    table: HashMap<ConnectionNumber, Connection>,
    last: ConnectionNumber,
    direct: WaitingConnections<ConnectionNumber>,
    /// Those that came by a proxy have bounds of their own: the peers are somebody's claim, and whoever makes them up
    /// takes no room from those who come by themselves.
    tunnelled: ProxyPlaces,
}

impl Connections {
    /// Whether one more may come from here, by this proxy or by itself; the connection that gives way to it where one has to.
    pub fn room(
        &self,
        source: Network,
        proxy: Option<&str>,
        limits: &Limits,
        strangers: &Strangers,
    ) -> Result<Option<ConnectionNumber>, Full> {
        if self.table.len() >= limits.connections as usize {
            return Err(Full::All);
        }
        let bounds = Bounds {
            all: limits.unauthenticated as usize,
            of_source: limits.unauthenticated_per_source as usize,
        };
        let is_known = |source: &Network| strangers.is_known(source, proxy.is_some());
        let admission = match proxy {
            Some(proxy) => self.tunnelled.admit(proxy, &source, bounds, is_known),
            None => self.direct.admit(&source, bounds, is_known, random),
        };
        match admission {
            Admission::Free => Ok(None),
            Admission::InPlaceOf(other) => Ok(Some(other)),
            Admission::Refused(why) => Err(Full::NotLoggedIn(why)),
        }
    }

    /// A number that no connection had before.
    pub fn number(&mut self) -> ConnectionNumber {
        self.last += 1;
        self.last
    }

    /// Takes one in; it is not logged in.
    pub fn add(&mut self, connection: Connection) {
        let (source, number) = (connection.counts_as, connection.number);
        match &connection.via {
            Some(via) => self.tunnelled.add(&via.proxy, source, number),
            None => self.direct.add(source, number),
        }
        self.table.insert(connection.number, connection);
    }

    /// It is logged in: the bounds for others do not count it any more.
    pub fn logged_in(&mut self, number: ConnectionNumber, open_login: Box<OpenLogin>, front: WorkerId) {
        if let Some(connection) = self.table.get_mut(&number)
            && matches!(connection.stage, Stage::LoggingIn(_))
        {
            connection.stage = Stage::Accepted(open_login, front);
            let (source, proxy) = (connection.counts_as, connection.proxy());
            self.waits_no_more(number, &source, proxy.as_deref());
        }
    }

    /// The one of this number, whoever asks.
    pub fn get(&mut self, number: ConnectionNumber) -> Option<&mut Connection> {
        self.table.get_mut(&number)
    }

    /// The one of this number, if it is the lobby's.
    pub fn of_lobby(&mut self, number: ConnectionNumber) -> Option<&mut Connection> {
        self.table.get_mut(&number).filter(|c| c.front().is_none())
    }

    /// The one of this number, if it is this front's.
    pub fn of_front(&mut self, number: ConnectionNumber, front: WorkerId) -> Option<&mut Connection> {
        self.table
            .get_mut(&number)
            .filter(|c| !c.hung_up && c.front() == Some(front))
    }

    /// The one of this number, if it was this front's until it hung up.
    pub fn was_of_front(&mut self, number: ConnectionNumber, front: WorkerId) -> bool {
        let known = self.table.get(&number);
        known.is_some_and(|c| c.hung_up && c.front() == Some(front))
    }

    /// Ends it: its socket is shut for everybody who holds it, and nobody knows its number any more.
    pub fn end(&mut self, number: ConnectionNumber) -> Option<Connection> {
        let connection = self.table.remove(&number)?;
        // ENOTCONN: the peer was first.
        let _ = net::shut(&connection.socket);
        if matches!(connection.stage, Stage::LoggingIn(_)) {
            self.waits_no_more(number, &connection.counts_as, connection.proxy().as_deref());
        }
        Some(connection)
    }

    /// Those for which `which` holds.
    pub fn numbers(&self, which: impl Fn(&Connection) -> bool) -> Vec<ConnectionNumber> {
        let mut numbers: Vec<ConnectionNumber> = self
            .table
            .values()
            .filter(|c| which(c))
            .map(|c| c.number)
            .collect();
        numbers.sort_unstable();
        numbers
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.table.len()
    }

    fn waits_no_more(&mut self, number: ConnectionNumber, source: &Network, proxy: Option<&str>) {
        match proxy {
            Some(proxy) => self.tunnelled.remove(proxy, source, number),
            None => self.direct.remove(source, number),
        }
    }
}

impl Connection {
    /// It is handed over: from now on it is its front's. None: it is not logged in, or was handed over before.
    pub fn hand_over(&mut self) -> Option<WorkerId> {
        let front = match &self.stage {
            Stage::Accepted(_, front) => *front,
            _ => return None,
        };
        self.stage = match std::mem::replace(&mut self.stage, Stage::Moving) {
            Stage::Accepted(open_login, front) => Stage::Open(open_login, front),
            other => other,
        };
        Some(front)
    }

    /// The front that has it.
    pub fn front(&self) -> Option<WorkerId> {
        match &self.stage {
            Stage::Open(_, front) => Some(*front),
            _ => None,
        }
    }

    /// Whether the client has closed its end.
    pub fn is_left(&self) -> bool {
        poll(&mut [Watch::new(self.socket.raw(), PEER_CLOSED)], Some(0)) != Ok(0)
    }

    /// The proxy that it came by, for log and audit.
    pub fn proxy(&self) -> Option<String> {
        self.via.as_ref().map(|via| via.proxy.clone())
    }

    /// What was granted on it.
    pub fn open_login(&mut self) -> Option<&mut OpenLogin> {
        match &mut self.stage {
            Stage::LoggingIn(_) | Stage::Moving => None,
            Stage::Accepted(open_login, _) | Stage::Open(open_login, _) => Some(open_login),
        }
    }

    /// The login, for log and audit.
    pub fn account_name(&self) -> Option<String> {
        match &self.stage {
            Stage::LoggingIn(_) | Stage::Moving => None,
            Stage::Accepted(open_login, _) | Stage::Open(open_login, _) => {
                Some(open_login.grant.login.to_string())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::config::host_keys::HostKeys;
    use crate::config::trust::Trust;
    use fleetgate_policy::strangers::Settings;
    use fleetgate_wire::common::Endpoint;

    fn from(source: &str) -> Network {
        Settings::default().source(source.parse().expect("an address"))
    }

    fn connection(all: &mut Connections, source: &str) -> ConnectionNumber {
        arrived(all, source, None)
    }

    fn arrived(all: &mut Connections, source: &str, via: Option<Via>) -> ConnectionNumber {
        let config = Config::default();
        let end = Endpoint {
            address: [0; 16],
            scope: 0,
            port: 0,
        };
        let number = all.number();
        all.add(Connection {
            number,
            addresses: ConnectionAddresses {
                peer: end.clone(),
                local: end,
            },
            source: SocketAddr::new(source.parse().expect("an address"), 9),
            counts_as: from(source),
            via,
            socket: net::unix().expect("a socket"),
            since: Duration::ZERO,
            offer: Offer::new(&config, HostKeys::of(Vec::new())).expect("an offer"),
            exchanges: Exchanges::new([0; 16]),
            stage: Stage::LoggingIn(Box::new(LoginAttempt::new(
                Trust::new(&config, false, false).expect("trust").into(),
            ))),
            deadline: None,
            step_began: Duration::ZERO,
            hung_up: false,
            parting: None,
            proofs: 0,
            waiting: Vec::new(),
        });
        number
    }

    #[test]
    fn bounds_are_in_sum_and_per_source_and_end_with_the_connection() {
        let limits = Limits {
            connections: 6,
            unauthenticated: 4,
            unauthenticated_per_source: 3,
            ..Limits::default()
        };
        let strangers = Strangers::new(&Settings::default());
        let mut all = Connections::default();
        let room = |all: &Connections, source: &str| all.room(from(source), None, &limits, &strangers);
        let mut numbers = Vec::new();
        for source in ["10.0.0.1", "::ffff:10.0.0.1", "2001:db8::1", "2001:db8::2"] {
            numbers.push(connection(&mut all, source));
        }
        // A third source has the place of one of the two that have most; they themselves wait.
        let gives_way = room(&all, "10.0.0.9")
            .expect("there is room")
            .expect("somebody goes");
        assert!(numbers.contains(&gives_way));
        assert_eq!(room(&all, "10.0.0.1"), Err(Full::NotLoggedIn(NoRoom::All)));
        assert!(all.end(gives_way).is_some());
        assert!(all.end(gives_way).is_none());
        connection(&mut all, "10.0.0.9");
        let left = numbers
            .iter()
            .find(|number| **number != gives_way)
            .expect("three");
        all.end(*left).expect("there");
        assert_eq!(room(&all, "192.0.2.1"), Ok(None));
        for source in ["10.0.0.7", "10.0.0.7", "10.0.0.7"] {
            connection(&mut all, source);
        }
        assert_eq!(room(&all, "192.0.2.1"), Err(Full::All));
        assert_eq!(
            all.room(
                from("10.0.0.7"),
                None,
                &Limits {
                    connections: 9,
                    ..limits.clone()
                },
                &strangers
            ),
            Err(Full::NotLoggedIn(NoRoom::Source))
        );
    }

    #[test]
    fn those_who_come_by_a_proxy_take_no_room_from_others() {
        let limits = Limits {
            unauthenticated: 4,
            unauthenticated_per_source: 2,
            ..Limits::default()
        };
        let via = Via {
            proxy: "p1".into(),
            user: "ann".into(),
            worker: 1,
            ticket: 1,
        };
        let mut all = Connections::default();
        let strangers = Strangers::new(&Settings::default());
        let room = |all: &Connections, proxy| all.room(from("10.0.0.1"), proxy, &limits, &strangers);
        let first = arrived(&mut all, "10.0.0.1", Some(via.clone()));
        arrived(&mut all, "10.0.0.1", Some(via.clone()));
        assert_eq!(room(&all, Some("p1")), Err(Full::NotLoggedIn(NoRoom::Source)));
        arrived(&mut all, "10.0.0.2", Some(via.clone()));
        arrived(&mut all, "10.0.0.2", Some(via));
        assert_eq!(room(&all, None), Ok(None));
        all.end(first).expect("there");
        assert!(room(&all, Some("p1")).is_ok());
    }

    #[test]
    fn a_proxy_that_takes_all_places_shuts_no_other_out() {
        let limits = Limits {
            unauthenticated: 8,
            unauthenticated_per_source: 4,
            ..Limits::default()
        };
        let via = |proxy: &str| Via {
            proxy: proxy.into(),
            user: "ann".into(),
            worker: 1,
            ticket: 1,
        };
        let strangers = Strangers::new(&Settings::default());
        let mut all = Connections::default();
        // One more by this proxy; the proxy of the one that gives way to it.
        let comes = |all: &mut Connections, source: String, proxy: &str| {
            let given_up = all.room(from(&source), Some(proxy), &limits, &strangers)?;
            let given_up = given_up.map(|other| all.end(other).expect("it is there"));
            arrived(all, &source, Some(via(proxy)));
            Ok::<_, Full>(given_up.and_then(|other| other.proxy()))
        };
        let has = |all: &Connections, proxy: &str| {
            let of = |c: &Connection| c.proxy().as_deref() == Some(proxy);
            all.numbers(of).len()
        };
        // Each of a source of its own, as the proxy says.
        for n in 0..8 {
            assert_eq!(comes(&mut all, format!("10.0.1.{n}"), "p1"), Ok(None));
        }
        assert_eq!(has(&all, "p1"), 8, "the control: it has all");
        // Another proxy's come in until they have as many.
        for n in 0..4 {
            let gone = comes(&mut all, format!("10.0.2.{}", n / 2), "p2");
            assert_eq!(gone, Ok(Some("p1".to_owned())));
        }
        // From then on each takes from its own.
        for n in 0..50 {
            let gone = comes(&mut all, format!("10.0.3.{n}"), "p1");
            assert_eq!(gone, Ok(Some("p1".to_owned())));
        }
        let gone = comes(&mut all, "10.0.4.1".to_owned(), "p2");
        assert_eq!(gone, Ok(Some("p2".to_owned())));
        let more = comes(&mut all, "10.0.3.49".to_owned(), "p1");
        assert_eq!(
            more,
            Err(Full::NotLoggedIn(NoRoom::All)),
            "its source has as many"
        );
        assert_eq!((has(&all, "p1"), has(&all, "p2")), (4, 4));
        for number in all.numbers(|_| true) {
            all.end(number);
        }
        assert!(
            all.tunnelled.is_empty(),
            "nothing is kept of proxies that are gone"
        );
    }

    #[test]
    fn a_connection_in_the_lobby_is_no_fronts() {
        let mut all = Connections::default();
        let number = connection(&mut all, "10.0.0.1");
        assert!(all.of_lobby(number).is_some());
        assert!(all.of_front(number, 1).is_none());
        assert!(all.of_lobby(number + 1).is_none());
    }
}

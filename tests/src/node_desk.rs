//! The monitor's sessions and sockets without lobby, fronts and resolver: a test sits at the front's desk, asks, and looks
//! at what is said and which descriptors come.

use crate::folder::Folder;
use crate::launching::chain;
use crate::orders::{self, PATIENCE_MS};
use fleetgate_launch::cgroup::Cgroups;
use fleetgate_launch::{Places, SessionReaper};
use fleetgate_node::config::Config;
use fleetgate_node::monitor::audit::{Audit, WriterThread};
use fleetgate_node::monitor::launches::Launches;
use fleetgate_node::monitor::metrics::Metrics;
use fleetgate_node::monitor::names::Names;
use fleetgate_node::monitor::network::Networks;
use fleetgate_node::monitor::sessions::{Inherited, Sessions};
use fleetgate_node::monitor::spans::Spans;
use fleetgate_node::monitor::strangers::Strangers;
use fleetgate_node::monitor::timers::{Timers, now};
use fleetgate_node::monitor::tools::ZombieCollector;
use fleetgate_node::monitor::wakes::{Key, Owner, Wakes};
use fleetgate_node::monitor::workers::Messages;
use fleetgate_node::monitor::{OpenLogin, Tools};
use fleetgate_policy::{AccountName, Grant, GrantId, How, Permits, Proofs};
use fleetgate_seal::Source;
use fleetgate_sys::{Fd, socket};
use fleetgate_wire::common::{Account, Endpoint};
use fleetgate_wire::net::{Done, What};
use fleetgate_wire::node::front::{Program, Start, Terminal, Ticket, ToFront};
use fleetgate_wire::node::{ConnectionAddresses, ProcessEnd};
use serde_json::Value;
use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;

/// The number of the one connection.
pub const CONNECTION: u64 = 7;

/// The desk.
pub struct Desk {
    /// What the parts use.
    pub tools: Tools,
    /// The sessions.
    pub sessions: Sessions,
    /// The sockets.
    pub networks: Networks,
    /// The connection.
    pub granted: OpenLogin,
    /// Whose it is.
    pub account: Account,
    directory: Arc<Folder>,
    writing: Option<WriterThread>,
    said: VecDeque<(ToFront, Vec<Fd>)>,
    next: Ticket,
}

impl Default for Desk {
    fn default() -> Desk {
        Desk::new()
    }
}

impl Desk {
    /// A login of [`orders::user`] that may do everything.
    pub fn new() -> Desk {
        Desk::with(Config::default(), Permits::all())
    }

    /// The same with this configuration and these permits.
    pub fn with(config: Config, permits: Permits) -> Desk {
        let directory = Arc::new(Folder::below(Path::new("/var/tmp")));
        let (audit, writing) = Audit::start(&directory.join("audit.jsonl")).expect("an audit log");
        let (resolver, _nobody) = socket::pair().expect("a pair");
        let tools = Tools {
            strangers: Strangers::new(&config.strangers),
            config: Arc::new(config),
            user_mode: false,
            pam: false,
            cluster: None,
            state_writer: None,
            watching: Default::default(),
            recordings: Default::default(),
            views: Default::default(),
            resolver: Arc::new(resolver),
            wakes: Wakes::new().expect("an epoll"),
            timers: Timers::default(),
            launches: Launches::new(chain(), Source::Itself).expect("launch threads"),
            names: Names::new(),
            pam_turns: Default::default(),
            to_fronts: Messages::default(),
            zombies: ZombieCollector::default(),
            audit,
            metrics: Arc::new(Metrics::default()),
            spans: Spans::default(),
        };
        tools
            .wakes
            .watch(
                tools.launches.bell(),
                fleetgate_sys::poll::READ,
                Key::new(Owner::Launches, 0),
            )
            .expect("watched");
        let places = Places::system();
        let session_reaper =
            SessionReaper::start(&directory.join("sessions"), places).expect("a session reaper");
        let cgroups = Cgroups::find().ok();
        let sessions =
            Sessions::new(Arc::new(session_reaper), cgroups, Inherited::now(), &tools).expect("sessions");
        let account = orders::user();
        let granted = granted(&account, permits);
        Desk {
            tools,
            sessions,
            networks: Networks::new(false),
            granted,
            account,
            directory,
            writing: Some(writing),
            said: VecDeque::new(),
            next: 0,
        }
    }

    /// Asks for a session; its ticket.
    pub fn start(&mut self, start: Start) -> Ticket {
        self.next += 1;
        let account = self.account.clone();
        self.sessions.start(
            &mut self.tools,
            &self.networks,
            &mut self.granted,
            account,
            self.next,
            start,
        );
        self.next
    }

    /// Asks for a socket; its ticket.
    pub fn ask(&mut self, what: What) -> Ticket {
        self.next += 1;
        let ids = self.account.ids.clone();
        self.networks
            .ask(&mut self.tools, &mut self.granted, &ids, self.next, what);
        self.next
    }

    /// The next word, waited for.
    pub fn hear(&mut self) -> (ToFront, Vec<Fd>) {
        loop {
            while let Some((connection, word, fds)) = self.tools.to_fronts.pop() {
                assert_eq!(connection, CONNECTION);
                self.said.push_back((word, fds));
            }
            match self.said.pop_front() {
                Some(said) => return said,
                None => self.turn(),
            }
        }
    }

    /// Waits until `done` says so, not for ever.
    pub fn until(&mut self, done: impl Fn(&Desk) -> bool) {
        while !done(self) {
            self.turn();
        }
    }

    /// Begins a session and waits until it runs; our descriptors.
    pub fn started(&mut self, start: Start) -> (Ticket, Vec<Fd>) {
        let asked = self.start(start);
        match self.hear() {
            (
                ToFront::Started {
                    connection: CONNECTION,
                    ticket,
                    ..
                },
                fds,
            ) if ticket == asked => (ticket, fds),
            other => panic!("{other:?}"),
        }
    }

    /// The end of that session.
    pub fn ended(&mut self, of: Ticket) -> ProcessEnd {
        match self.hear() {
            (ToFront::Ended { ticket, ended, .. }, _) if ticket == of => ended,
            other => panic!("{other:?}"),
        }
    }

    /// The words of a refusal.
    pub fn refused(&mut self, of: Ticket) -> String {
        match self.hear() {
            (ToFront::NotStarted { ticket, why, .. }, _) if ticket == of => {
                why.to_string_lossy().into_owned()
            }
            other => panic!("{other:?}"),
        }
    }

    /// The answer to a request for a socket.
    pub fn socket(&mut self, of: Ticket) -> (Done, Vec<Fd>) {
        match self.hear() {
            (ToFront::Network { ticket, done, .. }, fds) if ticket == of => (done, fds),
            other => panic!("{other:?}"),
        }
    }

    /// Closes everything; what the audit log says.
    pub fn close(mut self) -> Vec<Value> {
        self.networks.connection_ended(CONNECTION);
        self.sessions
            .connection_ended(CONNECTION, &self.granted.cluster_logins);
        self.until(|desk| desk.sessions.count() == 0);
        let writing = self.writing.take();
        let directory = self.directory.clone();
        drop(self);
        writing.expect("once").finish();
        let text = directory.text("audit.jsonl");
        text.lines()
            .map(|line| serde_json::from_str(line).expect("JSON"))
            .collect()
    }

    fn turn(&mut self) {
        let mut keys = Vec::new();
        let wait = self
            .tools
            .timers
            .wait_ms(now())
            .unwrap_or(PATIENCE_MS)
            .min(PATIENCE_MS);
        self.tools.wakes.wait(Some(wait), &mut keys).expect("a wait");
        let timers: Vec<Key> = std::iter::from_fn(|| self.tools.timers.pop(now())).collect();
        assert!(
            !keys.is_empty() || !timers.is_empty(),
            "nothing happened in {PATIENCE_MS} ms"
        );
        for key in keys.into_iter().chain(timers) {
            match key.owner {
                Owner::Launches => {
                    for (key, outcome) in self.tools.launches.take() {
                        match key.owner {
                            Owner::Sessions => self.sessions.launched(&mut self.tools, key.id, outcome),
                            _ => self.networks.launched(&mut self.tools, key.id, outcome),
                        }
                    }
                }
                Owner::Sessions => self.sessions.woken(&mut self.tools, key.id),
                Owner::Networks => self.networks.woken(&mut self.tools, key.id),
                Owner::Zombies => self.tools.zombies.ended(key.id),
                other => panic!("nobody is {other:?} here"),
            }
        }
    }
}

/// A connection of `account` that may do this.
pub fn granted(account: &Account, permits: Permits) -> OpenLogin {
    let end = |port| Endpoint {
        address: [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 192, 0, 2, 7],
        scope: 0,
        port,
    };
    OpenLogin {
        container_labels: None,
        container_by_id: false,
        connection: CONNECTION,
        addresses: ConnectionAddresses {
            peer: end(4711),
            local: end(22),
        },
        grant: Grant {
            id: GrantId(1),
            proofs: Proofs {
                proven: vec![How::Password],
            },
            login: AccountName::parse(account.name.to_bytes()).expect("a name"),
            permits,
            must_change_password: false,
            source: "192.0.2.7:4711".parse().expect("an address"),
            expires: None,
        },
        uid: account.ids.uid,
        cluster_logins: Vec::new(),
        base: Permits::all(),
        pam: Default::default(),
        denials: 0,
        forwards: Default::default(),
    }
}

/// A request for `program`, with nothing else.
pub fn asked(program: Program) -> Start {
    Start {
        program,
        terminal: None,
        environment: Vec::new(),
        agent: None,
        x11: None,
    }
}

/// A command line.
pub fn command(line: &str) -> Start {
    asked(Program::Exec { command: line.into() })
}

/// A shell or a command in a terminal.
pub fn on_terminal(start: Start) -> Start {
    Start {
        terminal: Some(Terminal {
            term: b"vt100".to_vec(),
            columns: 101,
            rows: 33,
            width: 0,
            height: 0,
            // ECHO off, then the end.
            modes: vec![53, 0, 0, 0, 0, 0],
        }),
        ..start
    }
}

//! The monitor's side: what the lobby and the front say to it, and its answers.

use super::{World, nowhere};
use fleetgate_ssh::event::Exchange;
use fleetgate_sys::{Errno, Fd, process};
use fleetgate_wire::common::Endpoint;
use fleetgate_wire::net::{Done, What};
use fleetgate_wire::node::front::{FromFront, Program, Recorded, Start, Ticket, ToFront};
use fleetgate_wire::node::lobby::{FromLobby, ToLobby};
use fleetgate_wire::node::{self, ConnectionAddresses, Verdict};
use std::ffi::{CStr, CString};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};

/// A program that runs.
pub(super) struct Running {
    connection: node::ConnectionNumber,
    ticket: Ticket,
    child: Child,
    pub(super) pidfd: Fd,
}

impl World {
    pub(super) fn lobby_said(&mut self, word: FromLobby) {
        match word {
            FromLobby::Sign { connection, exchange } => {
                let signature = self.sign(&exchange);
                let cookie = self.cookie();
                let word = ToLobby::Signed {
                    connection,
                    signature,
                    cookie,
                };
                self.lobby.say(&word, &[]);
            }
            FromLobby::Auth { connection, .. } if !self.undecided => {
                let verdict = Verdict::Accepted { notes: Vec::new() };
                self.lobby.say(&ToLobby::Verdict { connection, verdict }, &[]);
            }
            FromLobby::HandOver { connection, frozen } => {
                self.longest_frozen = self.longest_frozen.max(frozen.expose().len());
                let word = ToFront::Arrived {
                    connection,
                    addresses: ConnectionAddresses {
                        peer: nowhere(),
                        local: nowhere(),
                    },
                    frozen,
                    permits: self.permits,
                    cookie: self.cookie(),
                };
                self.front.say(&word, &[self.sockets[&connection].raw()]);
            }
            FromLobby::Closed { connection, ref why } => {
                let why = why.to_string_lossy().into_owned();
                self.over(connection, why);
                self.lobby_told.push(word);
            }
            other => self.lobby_told.push(other),
        }
    }

    fn over(&mut self, connection: node::ConnectionNumber, why: String) {
        self.sockets.remove(&connection);
        if let Some(c) = self.clients.iter_mut().find(|c| c.number == connection) {
            c.over = Some(why);
        }
    }

    fn sign(&self, exchange: &[u8]) -> Vec<u8> {
        let exchange = Exchange::decode(exchange).expect("an exchange");
        let hash = exchange.hash().expect("a known method");
        self.host_key
            .sign(&exchange.host_key_algorithm, hash.as_ref())
            .expect("it signs")
    }

    pub(super) fn front_said(&mut self, word: FromFront) {
        match word {
            FromFront::Sign { connection, exchange } => {
                let signature = self.sign(&exchange);
                let cookie = self.cookie();
                let word = ToFront::Signed {
                    connection,
                    signature,
                    cookie,
                };
                self.front.say(&word, &[]);
            }
            FromFront::Start {
                connection,
                ticket,
                start,
            } => self.start(connection, ticket, start),
            FromFront::Network { .. } if self.unreachable => self.told.push(word),
            FromFront::Network {
                connection,
                ticket,
                what,
            } => self.network(connection, ticket, what),
            FromFront::Closed {
                connection, ref why, ..
            } => {
                let why = why.to_string_lossy().into_owned();
                self.over(connection, why);
                self.told.push(word);
            }
            other => self.told.push(other),
        }
    }

    fn start(&mut self, connection: node::ConnectionNumber, ticket: Ticket, start: Start) {
        self.starts.push(start.clone());
        if start.terminal.is_some() {
            let (ours, theirs, _) = fleetgate_sys::terminal::open().expect("a terminal");
            self.terminals.push(theirs);
            let mut word = begun(connection, ticket);
            let pipe = self.recorded.take();
            if let (ToFront::Started { recorded, .. }, true) = (&mut word, pipe.is_some()) {
                *recorded = Some(Recorded {
                    input: false,
                    since: 0,
                });
            }
            let fds: Vec<i32> = [Some(&ours), pipe.as_ref()]
                .into_iter()
                .flatten()
                .map(Fd::raw)
                .collect();
            self.front.say(&word, &fds);
            return;
        }
        if self.viewing {
            return self.view(connection, ticket);
        }
        let command = match &start.program {
            Program::Exec { command } if command == b"refused" => {
                return self
                    .front
                    .say(&not_started(connection, ticket, c"not today"), &[]);
            }
            Program::Exec { command } => String::from_utf8_lossy(command).into_owned(),
            Program::Subsystem { name } if name == b"refused" => {
                let word = not_started(connection, ticket, c"no such subsystem");
                return self.front.say(&word, &[]);
            }
            _ => "exec cat".to_owned(),
        };
        let mut child = Command::new("/bin/sh")
            .args(["-c", &command])
            .envs(start.environment.iter().map(|v| {
                let text = |b: &[u8]| String::from_utf8_lossy(b).into_owned();
                (text(&v.name), text(&v.value))
            }))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("a shell");
        let pidfd = process::pidfd_open(child.id() as i32).expect("it was not waited for");
        let stdin = OwnedFd::from(child.stdin.take().expect("piped"));
        let stdout = OwnedFd::from(child.stdout.take().expect("piped"));
        let stderr = OwnedFd::from(child.stderr.take().expect("piped"));
        let fds = [stdin.as_raw_fd(), stdout.as_raw_fd(), stderr.as_raw_fd()];
        self.front.say(&begun(connection, ticket), &fds);
        self.programs.push(Running {
            connection,
            ticket,
            child,
            pidfd,
        });
    }

    /// The session shows another one: the other end of its socket is among the terminals.
    fn view(&mut self, connection: node::ConnectionNumber, ticket: Ticket) {
        let (ours, theirs) = UnixStream::pair().expect("a pair");
        self.terminals.push(Fd::from(OwnedFd::from(ours)));
        let path = std::env::temp_dir().join(format!("fleetgate-viewing-{}", std::process::id()));
        // More than is said to be there.
        std::fs::write(&path, vec![7; World::RECORDED + 9]).expect("room");
        let file = std::fs::File::open(&path).expect("it was written");
        std::fs::remove_file(&path).expect("ours");
        let word = ToFront::Viewing {
            connection,
            ticket,
            at: 77,
            recorded: World::RECORDED as u64,
        };
        self.front.say(&word, &[theirs.as_raw_fd(), file.as_raw_fd()]);
    }

    /// Says that a session is about to be ended.
    pub fn announce_end(&mut self, client: usize, ticket: Ticket) {
        let connection = self.clients[client].number;
        self.front.say(&ToFront::Ending { connection, ticket }, &[]);
    }

    /// Says how a session ended whose terminal is kept here.
    pub fn end_session(&mut self, client: usize, ticket: Ticket, status: i32, why: &str) {
        let word = ToFront::Ended {
            connection: self.clients[client].number,
            ticket,
            ended: node::ProcessEnd {
                status,
                signalled: false,
                core: false,
            },
            why: CString::new(why).expect("no zero"),
        };
        self.front.say(&word, &[]);
    }

    pub(super) fn reap(&mut self) {
        use std::os::unix::process::ExitStatusExt;
        let mut left = Vec::new();
        for mut p in std::mem::take(&mut self.programs) {
            match p.child.try_wait().expect("ours") {
                None => left.push(p),
                Some(status) => {
                    let word = ToFront::Ended {
                        connection: p.connection,
                        ticket: p.ticket,
                        ended: node::ProcessEnd {
                            status: status.code().or(status.signal()).unwrap_or(255),
                            signalled: status.signal().is_some(),
                            core: status.core_dumped(),
                        },
                        why: CString::default(),
                    };
                    self.front.say(&word, &[]);
                }
            }
        }
        self.programs = left;
    }

    fn network(&mut self, connection: node::ConnectionNumber, ticket: Ticket, what: What) {
        let failed = |errno: Errno| Done::Failed {
            failure: fleetgate_wire::Failure {
                reason: fleetgate_wire::Reason::System,
                errno: errno.0,
                subject: CString::default(),
            },
        };
        let mut fds: Vec<Fd> = Vec::new();
        let done = match what {
            What::Connect { host, port, .. } => {
                let host = host.to_string_lossy().into_owned();
                match std::net::TcpStream::connect((host, port)) {
                    Ok(socket) => {
                        fds.push(OwnedFd::from(socket).into());
                        Done::Connected { peer: None }
                    }
                    Err(e) => failed(e.into()),
                }
            }
            What::Accept { port, .. } => {
                let listener = std::net::TcpListener::bind(("127.0.0.1", port)).expect("a port");
                listener.set_nonblocking(true).expect("set");
                let port = listener.local_addr().expect("bound").port();
                self.listeners.push((connection, ticket, listener));
                let local = vec![Endpoint { port, ..nowhere() }];
                Done::Listening { local }
            }
            What::AgentSocket => {
                let path = std::env::temp_dir().join(format!("worker-agent-{}-{ticket}", std::process::id()));
                let _ = std::fs::remove_file(&path);
                let listener = std::os::unix::net::UnixListener::bind(&path).expect("a path");
                listener.set_nonblocking(true).expect("set");
                fds.push(OwnedFd::from(listener).into());
                let path = CString::new(path.to_string_lossy().into_owned()).expect("no zero");
                Done::UnixListening { path }
            }
            What::Cancel { of } => {
                self.listeners.retain(|l| l.1 != of);
                Done::Cancelled
            }
            _ => failed(Errno::EOPNOTSUPP),
        };
        let raw: Vec<i32> = fds.iter().map(Fd::raw).collect();
        let word = ToFront::Network {
            connection,
            ticket,
            done,
        };
        self.front.say(&word, &raw);
    }

    /// Answers the requests for sockets that were only told.
    pub fn answer_sockets(&mut self) {
        for word in std::mem::take(&mut self.told) {
            match word {
                FromFront::Network {
                    connection,
                    ticket,
                    what,
                } => self.network(connection, ticket, what),
                other => self.told.push(other),
            }
        }
    }

    pub(super) fn accept(&mut self) {
        for (connection, ticket, listener) in &self.listeners {
            while let Ok((socket, _)) = listener.accept() {
                socket.set_nonblocking(true).expect("set");
                let done = Done::Accepted {
                    peer: Endpoint { port: 7, ..nowhere() },
                    local: 0,
                };
                let word = ToFront::Network {
                    connection: *connection,
                    ticket: *ticket,
                    done,
                };
                self.front.say(&word, &[socket.as_raw_fd()]);
            }
        }
    }
}

fn begun(connection: node::ConnectionNumber, ticket: Ticket) -> ToFront {
    ToFront::Started {
        connection,
        ticket,
        is_socket: false,
        output_limit: None,
        recorded: None,
    }
}

fn not_started(connection: node::ConnectionNumber, ticket: Ticket, why: &CStr) -> ToFront {
    ToFront::NotStarted {
        connection,
        ticket,
        why: why.to_owned(),
        is_final: true,
    }
}

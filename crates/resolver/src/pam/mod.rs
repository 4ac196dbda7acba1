//! PAM sessions, the broker's half: the queue of those that wait, and the warm server that makes a process for each.
//!
//! The warm server is renewed when a file that it has read or loaded changes: the session that notices waits for the
//! new one, so that none is ever begun with modules that an upgrade has replaced. Running sessions keep theirs.

mod conversation;
mod keep;
pub mod session;
pub mod stack;
mod warm;

use crate::log;
use crate::stamp::Stamps;
use fleetgate_sys::poll::{READ, Watch};
use fleetgate_sys::{Errno, Fd, clock, process, socket};
use fleetgate_wire::pam::FromPam;
use std::collections::VecDeque;
use std::ffi::{CStr, CString};
use warm::{Depth, Warm};

/// The most sessions that wait for the warm server at once.
const MAX_WAITING_SESSIONS: usize = 256;
/// The most services that are kept warm.
const MAX_SERVICES: usize = 8;
/// The most processes that the warm server is asked for at once.
const MAX_ASKED: usize = 16;
/// How long loading may take; a name service or module that hangs there is left out the next time.
const LOAD_NANOS: i64 = 3_000_000_000;

/// The broker's half.
pub struct Pam {
    services: Vec<CString>,
    files: Stamps,
    server: Option<Server>,
    depth: Depth,
    waiting: VecDeque<(Vec<u8>, Fd)>,
}

struct Server {
    process: Warm,
    /// Loading since then; none: ready.
    loading: Option<i64>,
    /// Sockets of processes that wait for a session.
    made: VecDeque<Fd>,
    /// How many more it was asked for.
    asked: usize,
}

impl Pam {
    /// Nothing runs yet.
    pub fn new(mut services: Vec<CString>) -> Pam {
        services.truncate(MAX_SERVICES);
        Pam {
            services,
            files: Stamps::of([]),
            server: None,
            depth: Depth::Everything,
            waiting: VecDeque::new(),
        }
    }

    /// Starts the warm server, before anybody needs it.
    pub fn warm_up(&mut self) {
        let found = stack::Files::of_services(&self.services);
        self.files = Stamps::of(found.read.iter().chain(&found.modules).cloned());
        let service = self.services.first().map_or(c"other", CString::as_c_str);
        match Warm::start(found.modules, self.depth, service) {
            Ok(process) => {
                self.server = Some(Server {
                    process,
                    loading: Some(clock::boot().as_nanos()),
                    made: VecDeque::new(),
                    asked: 1,
                });
            }
            Err(e) => self.refuse_all(&format!("no process for the warm server: {e}")),
        }
    }

    /// Begins a session: `frame` is the request as it came, `peer` where the session talks.
    pub fn begin(&mut self, service: &CStr, frame: &[u8], peer: Fd) {
        if !stack::is_service(service.to_bytes()) {
            return refuse(&peer, "the service is not a file name of /etc/pam.d");
        }
        if self.waiting.len() >= MAX_WAITING_SESSIONS {
            return refuse(&peer, "too many logins wait for PAM: try again");
        }
        let known = self.services.iter().any(|s| s.as_c_str() == service);
        if !known && self.services.len() < MAX_SERVICES {
            self.services.push(service.to_owned());
        }
        let learned = !known && self.services.last().is_some_and(|s| s.as_c_str() == service);
        if self.server.is_none() || learned || self.files.changed() {
            self.depth = Depth::Everything;
            self.server = None;
            self.waiting.push_back((frame.to_vec(), peer));
            self.warm_up();
        } else {
            self.waiting.push_back((frame.to_vec(), peer));
            self.flush();
        }
    }

    /// Adds what is to be waited for.
    pub fn watch(&self, watches: &mut Vec<Watch>) {
        if let Some(server) = &self.server {
            watches.push(Watch::new(server.process.socket.raw(), READ));
        }
    }

    /// When loading has taken too long.
    pub fn due(&self) -> Option<i64> {
        Some(self.server.as_ref()?.loading? + LOAD_NANOS)
    }

    /// Acts on what [`Pam::watch`] brought, and on what is due.
    pub fn turn(&mut self, ready: &[Watch]) {
        let Some(server) = &mut self.server else { return };
        let raw = server.process.socket.raw();
        if ready.iter().any(|w| w.fd() == raw && w.happened() != 0) {
            let mut word = [0u8; 1];
            match socket::receive(&server.process.socket, &mut word, false) {
                Ok(mut m) if m.len == 1 => {
                    server.loading = None;
                    server.asked = server.asked.saturating_sub(1);
                    match m.fds.pop() {
                        Some(process) => server.made.push_back(process),
                        None => {
                            if let Some((_, peer)) = self.waiting.pop_front() {
                                refuse(&peer, "no process for the session: see the resolver's log");
                            }
                        }
                    }
                }
                Err(Errno::EAGAIN) => {}
                _ => return self.died("ended"),
            }
        }
        if self.due().is_some_and(|due| due <= clock::boot().as_nanos()) {
            return self.died("did not finish loading in time");
        }
        self.flush();
    }

    /// No new sessions. The warm server ends when its socket closes; the sessions it began stay.
    pub fn end(&mut self) {
        self.server = None;
        self.waiting.clear();
    }

    fn died(&mut self, how: &str) {
        let Some(server) = self.server.take() else { return };
        let _ = process::signal(&server.process.pidfd, process::SIGKILL);
        if server.loading.is_none() {
            log(format_args!(
                "the warm PAM server {how}; the next session starts another"
            ));
            if !self.waiting.is_empty() {
                self.warm_up();
            }
            return;
        }
        let Some(less) = self.depth.less() else {
            log(format_args!("the warm PAM server {how}, with nothing loaded"));
            return self.refuse_all("the warm PAM server cannot be started: see the resolver's log");
        };
        log(format_args!(
            "the warm PAM server {how} while loading {}; going on with {}",
            self.depth, less
        ));
        self.depth = less;
        self.warm_up();
    }

    /// Gives what waits to the processes that wait, and sees to it that there will be one for the next.
    fn flush(&mut self) {
        let Some(server) = &mut self.server else { return };
        while let Some((frame, peer)) = self.waiting.front()
            && let Some(process) = server.made.pop_front()
        {
            // One that was killed while it waited takes nothing with it: the next one gets the session.
            if socket::send(&process, frame, &[peer.raw()]).is_ok() {
                self.waiting.pop_front();
            }
        }
        let wanted = (self.waiting.len() + 1).min(MAX_ASKED);
        while server.loading.is_none() && server.made.len() + server.asked < wanted {
            if socket::send(&server.process.socket, &[0], &[]).is_err() {
                return self.died("ended");
            }
            server.asked += 1;
        }
    }

    fn refuse_all(&mut self, why: &str) {
        for (_, peer) in self.waiting.drain(..) {
            refuse(&peer, why);
        }
    }
}

/// Says why no session was begun. The peer's socket is empty: this does not wait.
fn refuse(peer: &Fd, why: &str) {
    let word = FromPam::Refused {
        call: c"resolver".to_owned(),
        code: 4,
        message: CString::new(why).unwrap_or_default(),
    };
    let _ = peer.set_nonblocking(true);
    let _ = socket::send(peer, &fleetgate_wire::encode(&word), &[]);
}

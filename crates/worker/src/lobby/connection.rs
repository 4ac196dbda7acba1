//! One connection in the lobby: its socket, its SSH core, and what it waits for. A peer that sends garbage loses this
//! and nothing else.

use crate::start::{Control, Log, WorkerEnd};
use fleetgate_ssh::auth::{Method, Request};
use fleetgate_ssh::event::{AuthAnswer, End, Event, Reason};
use fleetgate_ssh::settings::Settings;
use fleetgate_ssh::{Connection, driver};
use fleetgate_sys::{Errno, Fd, net, stream};
use fleetgate_wire::node::lobby::FromLobby;
use fleetgate_wire::node::{self, Prompt, Verdict};
use std::sync::Arc;
use std::time::{Duration, Instant};
use zeroize::{Zeroize, Zeroizing};

/// What one read takes at most. The core reads on only when it wants more, so that this and one packet is all that is
/// ever unread.
pub(super) const READ_MAX: usize = 12 * 1024;
/// How long a peer may take to read our closing message.
const CLOSING_TIME: Duration = Duration::from_secs(2);

/// One connection.
pub(super) struct LobbyConnection {
    core: Connection,
    socket: Fd,
    deadline: Duration,
    readable: bool,
    writable: bool,
    /// A banner is to be shown before the first answer.
    banner: bool,
    /// What the request under way asked about, for USERAUTH_PK_OK.
    asked: Option<(Vec<u8>, Vec<u8>)>,
    /// Something was read, and neither the peer nor the monitor has been told anything since.
    unanswered: bool,
    /// When the monitor was last asked, if that is told.
    asked_at: Option<Instant>,
    accepted: bool,
    /// It ends: DISCONNECT is in the output, or nothing more can be said.
    ending: Option<String>,
    /// The peer said that it ends: nothing is to be said to it.
    gone: bool,
    /// The deadline is the one for our closing message.
    said: bool,
}

/// Where a connection's messages to the monitor go.
pub(super) struct Context<'a> {
    pub(super) control: &'a mut Control,
    pub(super) log: Log,
    pub(super) connection: node::ConnectionNumber,
    pub(super) banner: &'a [u8],
}

/// What is to be done with a connection after its turn.
pub(super) enum AfterTurn {
    Stay,
    /// It ended, for this reason.
    Leave(String),
    /// Its login was accepted.
    Move,
}

impl LobbyConnection {
    pub(super) fn new(
        settings: Arc<Settings>,
        socket: Fd,
        cookie: [u8; 16],
        deadline: Duration,
        banner: bool,
    ) -> LobbyConnection {
        // The listening socket's own setting may have been inherited; once more costs one call a connection. Not a TCP
        // socket (a test's, a proxy's): nothing to set.
        let _ = net::set_no_delay(&socket);
        let mut core = Connection::server(settings, cookie);
        core.will_move();
        LobbyConnection {
            core,
            socket,
            deadline,
            // The first edges may have been before it was watched.
            readable: true,
            writable: true,
            banner,
            asked: None,
            unanswered: false,
            asked_at: None,
            accepted: false,
            ending: None,
            gone: false,
            said: false,
        }
    }

    pub(super) fn socket(&self) -> &Fd {
        &self.socket
    }

    pub(super) fn deadline(&self) -> Duration {
        self.deadline
    }

    pub(super) fn ready(&mut self, readable: bool, writable: bool) {
        self.readable |= readable;
        self.writable |= writable;
    }

    /// When what the monitor answers now was asked.
    pub(super) fn answered(&mut self) -> Option<Instant> {
        self.asked_at.take()
    }

    pub(super) fn signed(&mut self, signature: &[u8], cookie: [u8; 16]) {
        self.core.signed(signature, cookie);
    }

    /// The time to log in is over, or that for our closing message.
    pub(super) fn late(&mut self) {
        match self.ending {
            None => self.end(Reason::ByApplication, "the time to log in is over"),
            // Whatever is not read by now will not be.
            Some(_) => self.gone = true,
        }
    }

    /// Ends it with a DISCONNECT.
    pub(super) fn end(&mut self, reason: Reason, text: &str) {
        if self.ending.is_none() {
            self.core.disconnect(reason, text);
            self.ending = Some(text.to_owned());
        }
    }

    /// The monitor's answer to a login request.
    pub(super) fn decided(&mut self, verdict: Verdict) {
        let asked = self.asked.take();
        let answer = match verdict {
            Verdict::Accepted { notes } => {
                if !notes.is_empty() {
                    self.core.banner(&notes);
                }
                self.accepted = true;
                AuthAnswer::Accept
            }
            Verdict::Rejected { methods, partial } => AuthAnswer::Reject {
                methods: methods.iter().map(|m| m.to_string_lossy().into_owned()).collect(),
                partial,
            },
            Verdict::Refused { methods, words } => {
                // A banner (RFC 4252 §5.4) is the only thing that clients show of a refusal.
                let mut text = words.into_bytes();
                text.extend_from_slice(b"\r\n");
                self.core.banner(&text);
                AuthAnswer::Reject {
                    methods: methods.iter().map(|m| m.to_string_lossy().into_owned()).collect(),
                    partial: false,
                }
            }
            Verdict::KeyOk => match asked {
                Some((algorithm, key)) => AuthAnswer::KeyOk { algorithm, key },
                None => AuthAnswer::Reject {
                    methods: Vec::new(),
                    partial: false,
                },
            },
            Verdict::Ask {
                name,
                instruction,
                prompts,
            } => AuthAnswer::Ask {
                name,
                instruction,
                prompts: prompts
                    .into_iter()
                    .map(|Prompt { text, echo }| (text, echo))
                    .collect(),
            },
            Verdict::End { reason, text } => {
                return self.end(super::reason_of(reason), &text.to_string_lossy());
            }
        };
        self.core.answer_auth(answer);
    }

    /// Reads, deals with and writes all there is.
    pub(super) fn turn(
        &mut self,
        now: Duration,
        may_read: bool,
        mut context: Context<'_>,
    ) -> Result<AfterTurn, WorkerEnd> {
        self.core.tick(now);
        loop {
            if self.ending.is_none() && !self.accepted {
                self.deal(&mut context)?;
            }
            if let Err(e) = self.write() {
                return Ok(AfterTurn::Leave(format!("writing: {e}")));
            }
            if let Some(why) = &self.ending {
                if self.gone || self.core.output().is_empty() {
                    return Ok(AfterTurn::Leave(why.clone()));
                }
                if !self.said {
                    self.said = true;
                    self.deadline = now + CLOSING_TIME;
                }
                return Ok(AfterTurn::Stay);
            }
            if self.accepted && self.core.may_move() {
                return Ok(AfterTurn::Move);
            }
            if !may_read || !self.readable || self.accepted || !self.core.wants_input() {
                self.confirm();
                return Ok(AfterTurn::Stay);
            }
            if let Some(why) = self.read() {
                return Ok(AfterTurn::Leave(why));
            }
        }
    }

    /// Every event there is.
    fn deal(&mut self, context: &mut Context<'_>) -> Result<(), WorkerEnd> {
        let connection = context.connection;
        loop {
            let event = match self.core.poll() {
                Ok(Some(event)) => event,
                Ok(None) => return Ok(()),
                Err(end) => {
                    self.gone = matches!(end, End::Theirs { .. });
                    self.ending = Some(end.to_string());
                    return Ok(());
                }
            };
            if let Event::SignExchange(_) | Event::Auth(_) | Event::AuthInfo(_) = event {
                self.unanswered = false;
                self.asked_at = context.log.start();
            }
            match event {
                Event::SignExchange(exchange) => {
                    let exchange = exchange.encode().to_vec();
                    let mut message = FromLobby::Sign { connection, exchange };
                    context.control.say(&message)?;
                    if let FromLobby::Sign { exchange, .. } = &mut message {
                        // It holds the shared secret.
                        exchange.zeroize();
                    }
                }
                Event::Auth(request) => {
                    let request = request.to_vec();
                    self.asked = asked_key(&request);
                    if std::mem::take(&mut self.banner) {
                        self.core.banner(context.banner);
                    }
                    let mut message = FromLobby::Auth { connection, request };
                    context.control.say(&message)?;
                    if let FromLobby::Auth { request, .. } = &mut message {
                        // It may hold a password.
                        request.zeroize();
                    }
                }
                Event::AuthInfo(response) => {
                    let mut message = FromLobby::AuthInfo {
                        connection,
                        response: response.to_vec(),
                    };
                    context.control.say(&message)?;
                    if let FromLobby::AuthInfo { response, .. } = &mut message {
                        response.zeroize();
                    }
                }
                // The monitor sends the next exchange's cookie with each signature, and no exchange of our own begins
                // before the hand-over.
                _ => {}
            }
        }
    }

    /// What came of one read; a text: the connection is over.
    fn read(&mut self) -> Option<String> {
        let socket = self.socket.raw();
        let read = driver::read(&mut self.core, READ_MAX, |room| {
            let most = room.len().min(READ_MAX);
            stream::receive_now(socket, &mut room[..most])
        });
        match read {
            Ok(Some(0)) => Some("the peer closed the connection before it logged in".to_owned()),
            Ok(_) => {
                self.unanswered = true;
                None
            }
            Err(Errno::EAGAIN) => {
                self.readable = false;
                None
            }
            Err(e) => Some(format!("reading: {e}")),
        }
    }

    /// OpenSSH's client logs in without TCP_NODELAY: it holds its key exchange back until its KEXINIT was confirmed,
    /// and its first request until its NEWKEYS was, to neither of which there is an answer. The kernel would confirm
    /// each 40 ms later.
    fn confirm(&mut self) {
        if std::mem::take(&mut self.unanswered) {
            // Not a TCP socket: nothing is held back.
            let _ = net::confirm_now(&self.socket);
        }
    }

    fn write(&mut self) -> Result<(), Errno> {
        if !self.writable {
            return Ok(());
        }
        self.unanswered &= self.core.output().is_empty();
        let socket = self.socket.raw();
        match driver::write(&mut self.core, |output| stream::send_now(socket, output)) {
            Err(Errno::EAGAIN) => {
                self.writable = false;
                Ok(())
            }
            other => other,
        }
    }

    /// Ends the connection itself: the monitor has a descriptor of it too, so closing ours would not. It sees the
    /// hang-up, so that it has to be told the reason before.
    pub(super) fn leave(self) {
        // Unread bytes would make the kernel reset the connection, and the peer lose our closing message.
        let mut rest = [0u8; 4096];
        while matches!(stream::receive_now(self.socket.raw(), &mut rest), Ok(n) if n == rest.len()) {}
        rest.zeroize();
        let _ = net::shut(&self.socket);
    }

    /// The socket, open, and the frozen connection.
    pub(super) fn hand_over(self) -> (Fd, Zeroizing<Vec<u8>>) {
        (self.socket, self.core.freeze().unwrap_or_default())
    }
}

/// The algorithm and key of a request that asks whether they would do.
fn asked_key(request: &[u8]) -> Option<(Vec<u8>, Vec<u8>)> {
    match Request::parse(request).ok()?.method {
        Method::PublicKey(key) if key.signature.is_none() => Some((key.algorithm.into(), key.key.into())),
        _ => None,
    }
}

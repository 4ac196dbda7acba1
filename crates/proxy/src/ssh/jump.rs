//! `ssh -J alice@proxy node`: an SSH connection to the proxy whose only use is to reach nodes. Each channel is a way to
//! one node's SSH, end to end between the user and the node; nothing is run here, and no other address is connected to.
//!
//! One task for a connection: it owns the protocol and every leg, and a leg holds no more than its channel's window.

use super::authenticator::{Authenticator, Caller, GRACE, cookie, settings};
use super::endpoint::{Bytes, Endpoint};
use super::{JumpAccess, MAX_CHANNELS};
use fleetgate_ssh::Connection;
use fleetgate_ssh::event::{ChannelId, ChannelKind, Event, Reason, Stream};
use std::collections::{BTreeMap, VecDeque};
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// RFC 4254 §5.1.
const PROHIBITED: u32 = 1;
const CONNECT_FAILED: u32 = 2;
const UNKNOWN_KIND: u32 = 3;
/// What is read from a node at once.
const PART: usize = 32 * 1024;
/// How long a peer may take to read our last words.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// Serves one connection until it ends; the words say why, for the log.
pub async fn serve(stream: impl Bytes, source: SocketAddr, ways: Rc<dyn JumpAccess>) -> String {
    let key = ways.host_key();
    let core = Connection::server(settings(&key).into(), cookie());
    let mut jump = Jump {
        end: Endpoint::new(core, stream),
        authenticator: Authenticator::new(key, source),
        ways,
        caller: None,
        legs: BTreeMap::new(),
    };
    let why = match jump.login().await {
        Ok(caller) => {
            let ended = jump.ways.ended(&caller.identity, &caller.certificate);
            jump.caller = Some(caller);
            tokio::select! {
                why = jump.run() => why,
                why = ended => jump.end(Reason::ByApplication, why),
            }
        }
        Err(why) => why,
    };
    jump.end.last_words(LAST_WORDS).await;
    why
}

struct Jump<S> {
    end: Endpoint<S>,
    authenticator: Authenticator,
    ways: Rc<dyn JumpAccess>,
    caller: Option<Rc<Caller>>,
    legs: BTreeMap<u32, Leg>,
}

/// A channel and what it leads to.
enum Leg {
    /// The node is being reached.
    StreamFuture(super::StreamFuture),
    /// It was.
    Open(OpenLeg),
}

/// Both ways of an open leg.
struct OpenLeg {
    stream: super::Stream,
    /// From the client, not yet taken by the node: no more than the window.
    kept: VecDeque<u8>,
    client_done: bool,
    node_told: bool,
    node_done: bool,
}

impl<S: Bytes> Jump<S> {
    /// Until somebody is in.
    async fn login(&mut self) -> Result<Rc<Caller>, String> {
        match tokio::time::timeout(GRACE, poll_fn(|cx| self.poll_login(cx))).await {
            Ok(done) => done,
            Err(_) => Err(self.end(Reason::ByApplication, "nobody logged in in time".to_owned())),
        }
    }

    fn poll_login(&mut self, cx: &mut Context<'_>) -> Poll<Result<Rc<Caller>, String>> {
        let (ways, source) = (&self.ways, self.authenticator.source());
        let check = |c: &_, name: &str| ways.check_user(c, name);
        let refused = |why: &str| ways.refused(source, why);
        let done = ready!(self.authenticator.poll_login(&mut self.end, &check, &refused, cx));
        let mut caller = done.map_err(|e| lost(&e))??;
        // Nodes ask for proofs of their own.
        caller.proof = Rc::default();
        ways.entered(source);
        Poll::Ready(Ok(Rc::new(caller)))
    }

    async fn run(&mut self) -> String {
        poll_fn(|cx| self.poll_run(cx)).await
    }

    fn poll_run(&mut self, cx: &mut Context<'_>) -> Poll<String> {
        loop {
            if let Err(why) = self.deal() {
                return Poll::Ready(why);
            }
            let ids: Vec<u32> = self.legs.keys().copied().collect();
            for id in ids {
                self.poll_leg(id, cx);
            }
            match self.end.poll_move(cx) {
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(e)) => return Poll::Ready(lost(&e)),
                Poll::Pending => return Poll::Pending,
            }
        }
    }

    /// Every event there is.
    fn deal(&mut self) -> Result<(), String> {
        while let Some(event) = self.end.core.poll().map_err(|e| e.to_string())? {
            match event {
                Event::SignExchange(exchange) => self.authenticator.sign(&mut self.end.core, &exchange)?,
                Event::Open { channel, kind } => self.open(channel, &kind),
                Event::Data { channel, bytes, .. } => {
                    if let Some(Leg::Open(way)) = self.legs.get_mut(&channel.0) {
                        way.kept.extend(bytes);
                    }
                }
                Event::Eof(channel) => {
                    if let Some(Leg::Open(way)) = self.legs.get_mut(&channel.0) {
                        way.client_done = true;
                    }
                }
                Event::Closed(channel) => {
                    self.legs.remove(&channel.0);
                }
                Event::Request {
                    reply: Some(reply), ..
                } => self.end.core.answer(reply, false),
                Event::Global {
                    reply: Some(reply), ..
                } => self.end.core.answer_global(reply, None),
                _ => {}
            }
        }
        Ok(())
    }

    fn open(&mut self, channel: ChannelId, kind: &ChannelKind) {
        let core = &mut self.end.core;
        let Some(caller) = &self.caller else {
            return core.refuse(channel, PROHIBITED, "nobody is logged in");
        };
        let ChannelKind::DirectTcpip { host, port, .. } = kind else {
            let words = "the proxy runs nothing: it reaches nodes by `ssh -J`, and fleetgate by gRPC";
            return core.refuse(channel, UNKNOWN_KIND, words);
        };
        let Ok(host) = std::str::from_utf8(host) else {
            return core.refuse(channel, PROHIBITED, "the node's name is no UTF-8");
        };
        if *port != 22 {
            let words = "the proxy reaches the SSH of nodes alone: leave the port out, or say 22";
            return core.refuse(channel, PROHIBITED, words);
        }
        if self.legs.len() >= MAX_CHANNELS as usize {
            return core.refuse(channel, CONNECT_FAILED, "too many nodes at once");
        }
        let reaching = self.ways.reach(caller, host);
        self.legs.insert(channel.0, Leg::StreamFuture(reaching));
    }

    fn poll_leg(&mut self, id: u32, cx: &mut Context<'_>) {
        let core = &mut self.end.core;
        let channel = ChannelId(id);
        let Some(leg) = self.legs.get_mut(&id) else {
            return;
        };
        if let Leg::StreamFuture(reaching) = leg {
            match reaching.as_mut().poll(cx) {
                Poll::Pending => return,
                Poll::Ready(Err(words)) => {
                    core.refuse(channel, PROHIBITED, &words);
                    self.legs.remove(&id);
                    return;
                }
                Poll::Ready(Ok(stream)) => {
                    core.accept(channel);
                    *leg = Leg::Open(OpenLeg {
                        stream,
                        kept: VecDeque::new(),
                        client_done: false,
                        node_told: false,
                        node_done: false,
                    });
                }
            }
        }
        let Some(Leg::Open(way)) = self.legs.get_mut(&id) else {
            return;
        };
        if way.poll(core, channel, cx).is_err() {
            core.close(channel);
            self.legs.remove(&id);
        }
    }

    fn end(&mut self, reason: Reason, why: String) -> String {
        self.end.core.disconnect(reason, &why);
        why
    }
}

impl OpenLeg {
    /// Moves what can be moved. An error ends the leg.
    fn poll(&mut self, core: &mut Connection, channel: ChannelId, cx: &mut Context<'_>) -> io::Result<()> {
        self.towards_node(core, channel, cx)?;
        self.towards_client(core, channel, cx)?;
        if self.node_told && self.node_done {
            core.close(channel);
        }
        Ok(())
    }

    fn towards_node(
        &mut self,
        core: &mut Connection,
        channel: ChannelId,
        cx: &mut Context<'_>,
    ) -> io::Result<()> {
        while !self.kept.is_empty() {
            let (first, _) = self.kept.as_slices();
            match Pin::new(&mut self.stream).poll_write(cx, first) {
                Poll::Ready(n) => {
                    let n = n?;
                    self.kept.drain(..n);
                    core.consumed(channel, n);
                }
                Poll::Pending => return Ok(()),
            }
        }
        if let Poll::Ready(done) = Pin::new(&mut self.stream).poll_flush(cx) {
            done?;
        }
        if self.client_done
            && !self.node_told
            && let Poll::Ready(done) = Pin::new(&mut self.stream).poll_shutdown(cx)
        {
            done?;
            self.node_told = true;
        }
        Ok(())
    }

    fn towards_client(
        &mut self,
        core: &mut Connection,
        channel: ChannelId,
        cx: &mut Context<'_>,
    ) -> io::Result<()> {
        let mut part = [0; PART];
        while !self.node_done {
            let room = core.writable(channel).min(PART);
            if room == 0 {
                return Ok(());
            }
            let mut buffer = ReadBuf::new(&mut part[..room]);
            match Pin::new(&mut self.stream).poll_read(cx, &mut buffer) {
                Poll::Ready(read) => read?,
                Poll::Pending => return Ok(()),
            }
            match buffer.filled() {
                [] => {
                    self.node_done = true;
                    core.eof(channel);
                }
                bytes => {
                    core.write(channel, Stream::Main, bytes);
                }
            }
        }
        Ok(())
    }
}

fn lost(e: &io::Error) -> String {
    match e.kind() {
        io::ErrorKind::UnexpectedEof => "the peer closed the connection".to_owned(),
        _ => format!("the connection was lost: {e}"),
    }
}

//! The way through a proxy: one TLS connection for any number of SSH connections, each a stream of frames. The first
//! flight of SSH rides on the first frame, and no answer to it is waited for. What the frames say beside SSH's bytes
//! (opened, denied, where the time went) is kept apart from them.

use crate::connect::handshake_failed;
use crate::error::ClientError;
use crate::stderr;
use crate::timings::Timings;
use crate::waiting::{Notice, Peer, with_notice};
use bytes::Bytes;
use fleetgate_net::dial;
use fleetgate_net::h2::{self, AUTH_MESSAGE, Channel, Closed, TRANSPORT_MESSAGE, Tuning};
use fleetgate_net::tls::{self, Believe, Client, Credentials};
use fleetgate_proto::v1::frame::Kind;
use fleetgate_proto::v1::transport_client::TransportClient;
use fleetgate_proto::v1::{Denied, Dial, Frame, Node, NodesRequest, Opened, Span, denied};
use std::fmt;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::timeout;
use tonic::codegen::tokio_stream::Stream;
use tonic::{Response, Status, Streaming};

/// SSH bytes in one frame, at most: with what is around them, what HTTP/2 carries in one of its own.
pub const FRAME_BYTES: usize = h2::FRAME as usize - 32;
/// Spans that are kept of one connection, at most.
pub const MAX_SPANS: usize = 1024;
/// How long the end of a connection may take to say why it came.
const LAST_WORDS: Duration = Duration::from_secs(1);
/// The leg from us to the proxy.
pub const LEG: &str = "client-proxy";

/// A connection to a proxy. Dials on it do not wait for each other.
#[derive(Clone)]
pub struct Proxy {
    client: TransportClient<Channel>,
    channel: Channel,
    address: String,
}

/// What is said with a dial.
#[derive(Clone, Debug, Default)]
pub struct DialOptions {
    /// Trace and parent span; empty: not traced.
    pub trace: Bytes,
    /// Send spans.
    pub explain: bool,
    /// Nobody reads on standard error for whom it waits.
    pub is_silent: bool,
}

/// SSH bytes to a node and from it.
pub struct DialStream {
    out: Arc<Outgoing>,
    from: Incoming,
    /// The node's name, and the proxy's address.
    node: String,
    proxy: String,
    /// Until the first SSH bytes.
    notice: Notice,
    /// SSH bytes of the last frame that were not read yet.
    rest: Bytes,
    ended: bool,
    heard: bool,
    report: ReportHandle,
}

/// What a stream said beside SSH's bytes. It outlives the stream.
#[derive(Clone, Debug, Default)]
pub struct ReportHandle(Arc<Mutex<DialReport>>);

/// The same, at one moment.
#[derive(Clone, Debug, Default)]
pub struct DialReport {
    /// The node was reached.
    pub opened: Option<Opened>,
    /// Where the time went, as proxy and node tell it.
    pub spans: Vec<Span>,
    /// Anything came at all, SSH's bytes included: before that, nothing can have been done for us.
    pub heard: bool,
}

/// A proxy's refusal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// Of which kind.
    pub reason: denied::Reason,
    /// A sentence that names the rule, or what is missing, and the remedy.
    pub words: String,
    /// The role or lock that refused, where there is one.
    pub rule: String,
}

/// One frame at a time: the next one is made when this one is on its way.
#[derive(Default)]
struct Outgoing(Mutex<Slot>);

#[derive(Default)]
struct Slot {
    frame: Option<Frame>,
    /// Nothing more comes.
    ended: bool,
    /// The other side takes nothing more.
    gone: bool,
    writer: Option<Waker>,
    reader: Option<Waker>,
}

/// The end of the slot that HTTP/2 takes frames from.
struct Frames(Arc<Outgoing>);

type Answer = Pin<Box<dyn Future<Output = Result<Response<Streaming<Frame>>, Status>> + Send>>;

enum Incoming {
    /// The other side has not said anything yet.
    Waiting(Answer),
    Frames(Box<Streaming<Frame>>),
    Nothing,
}

impl Proxy {
    /// Connects: TCP, TLS. HTTP/2 begins with the first request, which need not wait.
    pub async fn connect(
        address: &str,
        believe: &Believe,
        credentials: &Credentials,
        time: Option<Duration>,
        timings: &mut Timings,
    ) -> Result<Proxy, ClientError> {
        let failed = |e: &dyn fmt::Display| ClientError::Unreachable(address.to_owned(), e.to_string());
        let client = Client::new(believe, Some(credentials), &[tls::H2]).map_err(|e| failed(&e))?;
        timings.begin("tcp", LEG);
        timings.request("connect");
        timings.round_trip();
        let proxy = Peer::proxy(address);
        let connect = dial::connect(address, time.unwrap_or(dial::DEADLINE));
        let stream = with_notice(&proxy.name, connect).await;
        let stream = stream.map_err(|e| proxy.unreached(&e))?;
        timings.begin("tls", LEG);
        timings.request("handshake");
        timings.round_trip();
        let time = time.unwrap_or(tls::HANDSHAKE).min(tls::HANDSHAKE);
        let handshake = client.connect(tls::PROXY, stream);
        let (stream, _) = match timeout(time, with_notice(&proxy.name, handshake)).await {
            Ok(Err(e)) if !e.is_late() => return Err(handshake_failed(address, believe, &e)),
            Ok(Ok(connected)) => connected,
            _ => {
                let why = proxy.late_after(time);
                return Err(ClientError::Unreachable(proxy.name.clone(), why));
            }
        };
        timings.end();
        let channel = h2::connect(stream, Tuning::USER).await.map_err(|e| failed(&e))?;
        Ok(Proxy::new(channel, address))
    }

    /// Over a connection that is there.
    pub fn new(channel: Channel, address: &str) -> Proxy {
        Proxy {
            client: TransportClient::new(channel.clone()).max_encoding_message_size(TRANSPORT_MESSAGE),
            channel,
            address: address.to_owned(),
        }
    }

    /// Asks it, with answers of at most so many bytes.
    pub(crate) fn client(&self, answer: usize) -> TransportClient<Channel> {
        self.client.clone().max_decoding_message_size(answer)
    }

    /// Tells of the connection's end.
    pub(crate) fn closed(&self) -> Closed {
        self.channel.closed()
    }

    /// Whether something new can be asked. A proxy that drains goes on with what was begun, and takes no more.
    pub(crate) fn takes_requests(&self) -> bool {
        self.channel.takes_requests()
    }

    /// Where it is.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Begins an SSH connection to a node, with SSH's first flight. Nothing is waited for: whether the node is reached
    /// is told by the first read.
    pub fn dial(&self, node: &str, login: &str, first_flight: Bytes, options: &DialOptions) -> DialStream {
        let first = Frame {
            kind: Some(Kind::Dial(Dial {
                node: node.to_owned(),
                login: login.to_owned(),
                ssh: first_flight,
                trace: options.trace.clone(),
                explain: options.explain,
                via: None,
            })),
        };
        let out = Arc::new(Outgoing::default());
        out.slot().frame = Some(first);
        let frames = Frames(out.clone());
        let mut client = self.client(TRANSPORT_MESSAGE);
        let closed = self.closed();
        DialStream {
            out,
            from: Incoming::Waiting(Box::pin(async move {
                match client.dial(frames).await {
                    Err(status) => Err(why(status, closed).await),
                    answer => answer,
                }
            })),
            node: node.to_owned(),
            proxy: self.address.clone(),
            notice: match options.is_silent {
                true => Notice::none(),
                false => Notice::new(),
            },
            rest: Bytes::new(),
            ended: false,
            heard: false,
            report: ReportHandle::default(),
        }
    }

    /// The nodes that a selector means, of those that the caller may reach.
    pub async fn nodes(&self, selector: &str, timings: &mut Timings) -> Result<Vec<Node>, ClientError> {
        timings.begin("nodes", LEG);
        timings.request("nodes");
        timings.round_trip();
        // A large fleet's inventory is longer than a transport's frame.
        let mut client = self.client(AUTH_MESSAGE);
        let selector = selector.to_owned();
        let asked = client.nodes(NodesRequest { selector });
        let answer = match with_notice(&Peer::proxy(&self.address).name, asked).await {
            Err(status) => Err(why(status, self.closed()).await),
            answer => answer,
        };
        timings.end();
        answer
            .map(|reply| reply.into_inner().nodes)
            .map_err(ClientError::from)
    }
}

impl DialStream {
    /// What is said beside SSH's bytes, now and later.
    pub fn report(&self) -> ReportHandle {
        self.report.clone()
    }

    /// For whom it waits until SSH's first bytes. In front of a node whose SSH ends at the proxy that is the auth service
    /// alone, which signs what the proxy shows.
    fn awaited(&self) -> String {
        let opened = self.report.lock().opened.clone();
        match opened.is_some_and(|opened| opened.terminated) {
            true => Peer::auth_behind(&self.proxy).name,
            false => format!("{}, through the proxy {}", self.node, self.proxy),
        }
    }

    /// The request is on its way once it is asked about.
    fn start(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if let Incoming::Waiting(answer) = &mut self.from {
            let answer = ready!(answer.as_mut().poll(cx));
            self.from = Incoming::Nothing;
            let answer = answer.map_err(|status| lost(&status))?;
            self.from = Incoming::Frames(Box::new(answer.into_inner()));
        }
        Poll::Ready(Ok(()))
    }

    /// The next frame; none: there are no more.
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Option<Kind>>> {
        loop {
            match &mut self.from {
                Incoming::Waiting(_) => ready!(self.start(cx))?,
                Incoming::Frames(frames) => {
                    return Poll::Ready(match ready!(Pin::new(frames).poll_next(cx)) {
                        // A kind that is not known is skipped: an older client goes on working with a newer proxy.
                        Some(Ok(Frame { kind: None })) => continue,
                        Some(Ok(Frame { kind })) => Ok(kind),
                        Some(Err(status)) => Err(lost(&status)),
                        None => Ok(None),
                    });
                }
                Incoming::Nothing => return Poll::Ready(Ok(None)),
            }
        }
    }
}

impl AsyncRead for DialStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            if !self.rest.is_empty() {
                let n = self.rest.len().min(buffer.remaining());
                buffer.put_slice(&self.rest.split_to(n));
                return Poll::Ready(Ok(()));
            }
            if self.ended {
                return Poll::Ready(Ok(()));
            }
            let frame = match self.poll_frame(cx) {
                Poll::Ready(frame) => frame?,
                Poll::Pending => {
                    if self.notice.is_due(cx) {
                        stderr::line(format_args!("waiting for {}", self.awaited()));
                    }
                    return Poll::Pending;
                }
            };
            if frame.is_some() && !self.heard {
                self.heard = true;
                self.report.lock().heard = true;
            }
            match frame {
                Some(Kind::Ssh(bytes)) => {
                    self.notice.end();
                    self.rest = bytes;
                }
                Some(Kind::Opened(opened)) => self.report.lock().opened = Some(opened),
                Some(Kind::Spans(more)) => {
                    let mut said = self.report.lock();
                    let room = MAX_SPANS - said.spans.len();
                    said.spans.extend(more.spans.into_iter().take(room));
                }
                Some(Kind::Denied(denied)) => {
                    self.ended = true;
                    return Poll::Ready(Err(io::Error::new(
                        io::ErrorKind::PermissionDenied,
                        Refused::from(denied),
                    )));
                }
                // Spans may come behind SSH's end, so the stream is read until its own.
                Some(Kind::SshEnd(_) | Kind::Dial(_)) => {}
                None => self.ended = true,
            }
        }
    }
}

impl AsyncWrite for DialStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        // A writer that does not read moves the request too.
        if let Poll::Ready(Err(e)) = self.start(cx) {
            return Poll::Ready(Err(e));
        }
        let mut slot = self.out.slot();
        if slot.gone || slot.ended {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        if slot.frame.is_some() {
            slot.writer = Some(cx.waker().clone());
            return Poll::Pending;
        }
        let n = bytes.len().min(FRAME_BYTES);
        slot.put(Kind::Ssh(Bytes::copy_from_slice(&bytes[..n])));
        Poll::Ready(Ok(n))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut slot = self.out.slot();
        if slot.gone {
            return Poll::Ready(Ok(()));
        }
        if slot.frame.is_some() {
            slot.writer = Some(cx.waker().clone());
            return Poll::Pending;
        }
        if !slot.ended {
            slot.put(Kind::SshEnd(true));
            slot.ended = true;
        }
        Poll::Ready(Ok(()))
    }
}

impl Drop for DialStream {
    fn drop(&mut self) {
        let mut slot = self.out.slot();
        slot.ended = true;
        if let Some(reader) = slot.reader.take() {
            reader.wake();
        }
    }
}

impl Stream for Frames {
    type Item = Frame;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Frame>> {
        let mut slot = self.0.slot();
        if let Some(frame) = slot.frame.take() {
            if let Some(writer) = slot.writer.take() {
                writer.wake();
            }
            return Poll::Ready(Some(frame));
        }
        if slot.ended {
            return Poll::Ready(None);
        }
        slot.reader = Some(cx.waker().clone());
        Poll::Pending
    }
}

impl Drop for Frames {
    fn drop(&mut self) {
        let mut slot = self.0.slot();
        slot.gone = true;
        if let Some(writer) = slot.writer.take() {
            writer.wake();
        }
    }
}

impl Slot {
    fn put(&mut self, kind: Kind) {
        self.frame = Some(Frame { kind: Some(kind) });
        if let Some(reader) = self.reader.take() {
            reader.wake();
        }
    }
}

impl Outgoing {
    fn slot(&self) -> MutexGuard<'_, Slot> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ReportHandle {
    /// What was said until now.
    pub fn snapshot(&self) -> DialReport {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, DialReport> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl From<Denied> for Refused {
    fn from(denied: Denied) -> Refused {
        Refused {
            reason: denied.reason(),
            words: denied.words,
            rule: denied.rule,
        }
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = match self.words.is_empty() {
            true => "the proxy refuses, and does not say why",
            false => &self.words,
        };
        f.write_str(words)?;
        match self.rule.is_empty() || words.contains(&self.rule) {
            true => Ok(()),
            false => write!(f, " ({})", self.rule),
        }
    }
}

impl std::error::Error for Refused {}

/// What a request died of: where it was the connection, what that died of; a proxy that does not take our certificate says
/// so there.
pub(crate) async fn why(status: Status, mut closed: Closed) -> Status {
    if std::error::Error::source(&status).is_none() {
        return status;
    }
    match timeout(LAST_WORDS, closed.wait()).await {
        Ok(why) => Status::unavailable(why),
        Err(_) => status,
    }
}

fn lost(status: &Status) -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionAborted, h2::words(status))
}

#[cfg(test)]
mod tests;

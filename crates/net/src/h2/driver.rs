//! Driving a connection of the asking side: what it writes is sent at the end of each turn, and a peer that is silent is
//! asked whether it is there.

use super::error::{CallError, reason};
use super::wire::SharedWire;
use super::{Tuning, Wire};
use bytes::Bytes;
use h2::client::Connection;
use h2::{Ping, PingPong};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{Instant, Sleep, sleep_until};

/// A request behind which nothing came for so long is followed by a ping, where there may be doubt.
pub const UNANSWERED: Duration = Duration::from_secs(3);

/// A connection until its end, which is told.
pub(super) struct ConnectionDriver<IO: Wire> {
    connection: Connection<SharedWire<IO>, Bytes>,
    wire: SharedWire<IO>,
    pulse: Option<Pulse>,
    tell: watch::Sender<Option<String>>,
    asking: Asking,
}

/// Set with each request: the turn that sends it looks at it.
pub(super) type Asking = Arc<AtomicBool>;

/// Whether the peer lives.
struct Pulse {
    pings: PingPong,
    /// A ping is under way.
    asked: bool,
    /// How long it may take.
    patience: Duration,
    due: Pin<Box<Sleep>>,
    quiet: Duration,
    answer: Duration,
    doubt: Option<(Duration, Duration)>,
    /// When the first request was made behind which nothing has come.
    requested: Option<Instant>,
}

impl<IO: Wire> ConnectionDriver<IO> {
    pub(super) fn new(
        mut connection: Connection<SharedWire<IO>, Bytes>,
        wire: SharedWire<IO>,
        tuning: Tuning,
        tell: watch::Sender<Option<String>>,
        asking: Asking,
    ) -> ConnectionDriver<IO> {
        let pulse = tuning.ping.zip(connection.ping_pong());
        ConnectionDriver {
            connection,
            wire,
            pulse: pulse.map(|(quiet, pings)| Pulse {
                pings,
                asked: false,
                patience: tuning.answer,
                due: Box::pin(sleep_until(Instant::now() + quiet)),
                quiet,
                answer: tuning.answer,
                doubt: tuning.doubt,
                requested: None,
            }),
            tell,
            asking,
        }
    }

    fn turn(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), CallError>> {
        if let Some(pulse) = &mut self.pulse {
            if self.asking.swap(false, Relaxed) {
                pulse.doubt(self.wire.heard());
            }
            if let Poll::Ready(broken) = pulse.poll(self.wire.heard(), cx) {
                return Poll::Ready(Err(broken));
            }
        }
        let ended = Pin::new(&mut self.connection).poll(cx);
        self.wire.send(cx);
        ended.map_err(CallError::from)
    }
}

impl<IO: Wire> Future for ConnectionDriver<IO> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        self.turn(cx).map(|ended| {
            let why = match ended {
                Ok(()) => "the connection was closed".to_owned(),
                Err(error) => reason(&error),
            };
            self.tell.send_replace(Some(why));
        })
    }
}

impl<IO: Wire> Drop for ConnectionDriver<IO> {
    /// Ended before its end, by a `Closer` or with the runtime.
    fn drop(&mut self) {
        self.tell.send_if_modified(|told| match told {
            Some(_) => false,
            None => {
                *told = Some("this side ended the connection".to_owned());
                true
            }
        });
    }
}

impl Pulse {
    /// A request is on its way. Behind a long silence nobody knows whether the peer is still there; behind a short one it is
    /// asked when nothing comes.
    fn doubt(&mut self, heard: Instant) {
        let Some((silence, answer)) = self.doubt else {
            return;
        };
        let now = Instant::now();
        if heard.elapsed() < silence {
            if !self.asked && self.requested.is_none_or(|at| heard > at) {
                self.requested = Some(now);
                let due = self.due.deadline().min(now + UNANSWERED);
                self.due.as_mut().reset(due);
            }
            return;
        }
        let due = now + answer;
        if !self.asked {
            self.ask(answer);
        } else if due < self.due.deadline() {
            self.patience = answer;
            self.due.as_mut().reset(due);
        }
    }

    /// Sends a ping. It fails where the connection has ended.
    fn ask(&mut self, answer: Duration) -> bool {
        self.asked = self.pings.send_ping(Ping::opaque()).is_ok();
        self.patience = answer;
        if self.asked {
            self.due.as_mut().reset(Instant::now() + answer);
        }
        self.asked
    }

    /// Ready when the peer is given up. `heard`: when something came last.
    fn poll(&mut self, heard: Instant, cx: &mut Context<'_>) -> Poll<CallError> {
        loop {
            if self.asked {
                // An error is the connection's too, which tells it.
                if self.pings.poll_pong(cx).is_ready() {
                    self.asked = false;
                    self.due.as_mut().reset(Instant::now() + self.quiet);
                    continue;
                }
                return self
                    .due
                    .as_mut()
                    .poll(cx)
                    .map(|()| CallError::Silent(self.patience));
            }
            if self.due.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
            let is_unanswered = self.requested.take().is_some_and(|at| heard <= at);
            match self.doubt.filter(|_| is_unanswered) {
                Some((_, answer)) => {
                    if !self.ask(answer) {
                        return Poll::Pending;
                    }
                }
                None if Instant::now() < heard + self.quiet => {
                    self.due.as_mut().reset(heard + self.quiet);
                }
                None => {
                    if !self.ask(self.answer) {
                        return Poll::Pending;
                    }
                }
            }
        }
    }
}

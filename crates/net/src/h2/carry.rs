//! Driving a connection of the asking side: what it writes is sent at the end of each turn, and a peer that is silent is
//! asked whether it is there.

use super::channel::{Broken, reason};
use super::wire::Shared;
use super::{Tuning, Wire};
use bytes::Bytes;
use h2::client::Connection;
use h2::{Ping, PingPong};
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{Instant, Sleep, sleep_until};

/// A connection until its end, which is told.
pub(super) struct Carrying<IO: Wire> {
    connection: Connection<Shared<IO>, Bytes>,
    wire: Shared<IO>,
    pulse: Option<Pulse>,
    tell: watch::Sender<Option<String>>,
}

/// Whether the peer lives.
struct Pulse {
    pings: PingPong,
    /// A ping is under way.
    asked: bool,
    due: Pin<Box<Sleep>>,
    quiet: Duration,
    answer: Duration,
}

impl<IO: Wire> Carrying<IO> {
    pub(super) fn new(
        mut connection: Connection<Shared<IO>, Bytes>,
        wire: Shared<IO>,
        tuning: Tuning,
        tell: watch::Sender<Option<String>>,
    ) -> Carrying<IO> {
        let pulse = tuning.ping.zip(connection.ping_pong());
        Carrying {
            connection,
            wire,
            pulse: pulse.map(|(quiet, pings)| Pulse {
                pings,
                asked: false,
                due: Box::pin(sleep_until(Instant::now() + quiet)),
                quiet,
                answer: tuning.answer,
            }),
            tell,
        }
    }

    fn turn(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Broken>> {
        if let Some(pulse) = &mut self.pulse
            && let Poll::Ready(broken) = pulse.poll(self.wire.heard(), cx)
        {
            return Poll::Ready(Err(broken));
        }
        let ended = Pin::new(&mut self.connection).poll(cx);
        self.wire.send(cx);
        ended.map_err(Broken::from)
    }
}

impl<IO: Wire> Future for Carrying<IO> {
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

impl Pulse {
    /// Ready when the peer is given up. `heard`: when something came last.
    fn poll(&mut self, heard: Instant, cx: &mut Context<'_>) -> Poll<Broken> {
        loop {
            if self.asked {
                // An error is the connection's too, which tells it.
                if self.pings.poll_pong(cx).is_ready() {
                    self.asked = false;
                    self.due.as_mut().reset(Instant::now() + self.quiet);
                    continue;
                }
                return self.due.as_mut().poll(cx).map(|()| Broken::Silent(self.answer));
            }
            match self.due.as_mut().poll(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(()) if Instant::now() < heard + self.quiet => {
                    self.due.as_mut().reset(heard + self.quiet);
                }
                Poll::Ready(()) => {
                    // It fails where the connection has ended.
                    if self.pings.send_ping(Ping::opaque()).is_err() {
                        return Poll::Pending;
                    }
                    self.asked = true;
                    self.due.as_mut().reset(Instant::now() + self.answer);
                }
            }
        }
    }
}

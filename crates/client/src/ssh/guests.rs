//! Sessions of other processes on one connection: in the master, each command is a guest with its own standard streams and a
//! socket on which it hears what became of its session.

use super::local::{StandardStream, Streams};
use crate::master_client::socket::MessageSocket;
use crate::master_client::usage::{Usage, Use};
use crate::master_client::words;
use fleetgate_sys::Fd;
use fleetgate_wire::master::{FromMaster, SessionOrder};
use fleetgate_wire::pam::wipe;
use std::collections::VecDeque;
use std::io;
use std::rc::Rc;
use std::task::{Context, Poll};
use tokio::sync::mpsc;
use tokio::time::Instant;

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

impl Drop for Guest {
    /// A variable may be a check's secret.
    fn drop(&mut self) {
        for variable in &mut self.order.environment {
            wipe(&mut variable.value);
        }
    }
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

    /// Its node and account.
    pub(crate) fn place(&self) -> (String, String) {
        let text = |name: &std::ffi::CStr| name.to_string_lossy().into_owned();
        (text(&self.order.node), text(&self.order.login))
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
        let again = |fd: &Fd| fd.duplicate(0).map_err(io::Error::from);
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

    /// No more come: the next session has a connection of its own made.
    pub(super) fn close(&mut self) {
        self.arrivals.close();
    }

    pub(super) fn whom(&self) -> &str {
        &self.whom
    }

    /// Nobody waits, and nobody can come.
    pub(super) fn are_over(&self) -> bool {
        self.again.is_empty() && self.arrivals.is_closed() && self.arrivals.is_empty()
    }

    /// Until when the connection is kept, if nobody uses it.
    pub(super) fn kept_until(&self) -> Option<Instant> {
        self.usage.kept_until()
    }

    /// Nothing of what waits is begun, for this reason.
    pub(crate) fn refuse(&mut self, why: &str) {
        self.answer_all(&FromMaster::Failed { why: words(why) });
    }

    pub(super) fn answer_all(&mut self, word: &FromMaster) {
        self.arrivals.close();
        while let Some(guest) = self.present() {
            guest.answer(word);
        }
    }
}

//! A front: the connections of one login, after it. Their bytes go straight between the network and the pipes, terminals
//! and sockets that the monitor handed over; whatever makes a process, a socket or a signature is asked of the monitor.
//! It opens nothing itself and knows no other login's bytes.
//!
//! One loop for all connections. What is under way on one holds up no other: every read and write takes what there is,
//! and a busy connection gets its share of a turn. Calls for a command on a connection that stands (`ssh -S`, the answer
//! in three packets): 5 waits, 2 receives and 3 sends on its socket, 1 frame out and 2 in (4 receives: the last of each
//! turn finds nothing), 3 to make the pipes non-blocking, 2 to watch them, 4 reads and 3 closes.

mod channel;
mod connection;
mod flow;
mod forward;
mod key;
mod listen;
mod opening;
mod pump;
mod ring;
mod session;
mod tap;
mod viewing;
mod views;

use crate::rest::Rest;
use crate::start::{Control, Log, Start, WorkerEnd, c_text, ssh_settings};
use channel::Session;
use connection::{FrontConnection, TurnResult};
use fleetgate_ssh::settings::{Limits, Settings};
use fleetgate_sys::Fd;
use fleetgate_sys::epoll::{Epoll, Event};
use fleetgate_wire::node;
use fleetgate_wire::node::front::{self, FromFront, ToFront};
use key::Key;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tap::Tap;

/// So many events are taken at once.
const EVENTS: usize = 64;
/// What sessions showed that are gone waits for the recorder so long, of so many of them; it is tried again so often.
const LEFT_PATIENCE: Duration = Duration::from_millis(front::RECORDER_PATIENCE_MS);
const MAX_LEFT: usize = 64;
const LEFT_AGAIN_MS: u32 = 20;

/// What a connection needs of the front in its turn.
struct Context<'a> {
    control: &'a mut Control,
    epoll: &'a Epoll,
    log: Log,
    now: Duration,
    left: &'a mut LeftTaps,
}

/// Ways to the recorder of sessions that are gone here, each until that has taken all of it.
#[derive(Default)]
struct LeftTaps(Vec<(Tap, Duration)>);

impl Context<'_> {
    /// A session's channel is gone. What it showed before is recorded for all that.
    fn keep_recording(&mut self, session: &mut Session) {
        if let Some(tap) = session.pump.left_to_record()
            && self.left.0.len() < MAX_LEFT
        {
            self.left.0.push((tap, self.now + LEFT_PATIENCE));
        }
    }
}

impl LeftTaps {
    /// Writes what there is room for, and gives up what waited too long: the recorder sees that it ends in a frame.
    fn flush(&mut self, now: Duration) {
        self.0.retain_mut(|(tap, until)| {
            tap.flush();
            !tap.has_room() && now < *until
        });
    }
}

/// All of it.
struct Front {
    control: Control,
    epoll: Epoll,
    rest: Rest,
    log: Log,
    started: Instant,
    settings: Option<Arc<Settings>>,
    /// By place.
    connections: Vec<Option<Box<FrontConnection>>>,
    /// The place of each connection.
    places: BTreeMap<node::ConnectionNumber, u32>,
    /// Places that have more to do than one turn.
    due: VecDeque<u32>,
    left: LeftTaps,
}

/// Serves until the monitor ends it.
pub(crate) fn run(start: &Start) -> WorkerEnd {
    // Most fronts end before they ever rest, so where the program lies is read when one does.
    let rest = Rest::later();
    let epoll = match Epoll::new() {
        Ok(epoll) => epoll,
        Err(e) => return WorkerEnd::at("making an epoll")(e),
    };
    if let Err(ended) = start.confine(&[]) {
        return ended;
    }
    let mut front = Front {
        control: Control::inherited(),
        epoll,
        rest,
        log: start.log,
        started: Instant::now(),
        settings: None,
        connections: Vec::new(),
        places: BTreeMap::new(),
        due: VecDeque::new(),
        left: LeftTaps::default(),
    };
    let Err(ended) = front.run();
    ended
}

impl Front {
    fn run(&mut self) -> Result<std::convert::Infallible, WorkerEnd> {
        self.control.watch(&self.epoll, Key::Control.to_number())?;
        self.control.say(&FromFront::Ready)?;
        let mut events = [Event::EMPTY; EVENTS];
        loop {
            let timeout = if self.due.is_empty() {
                self.next_deadline()
            } else {
                Some(0)
            };
            let timeout = match self.left.0.is_empty() {
                true => timeout,
                false => Some(timeout.map_or(LEFT_AGAIN_MS, |timeout| timeout.min(LEFT_AGAIN_MS))),
            };
            // Without a connection it is ended in a moment, or has the next one.
            let timeout = match self.places.is_empty() {
                true => self.rest.wait_for_the_end(timeout),
                false => self.rest.wait(timeout),
            };
            self.control.will_wait(&self.epoll)?;
            let count = self
                .epoll
                .wait(&mut events, timeout)
                .map_err(WorkerEnd::at("waiting"))?;
            if self.rest.woke(count) {
                fleetgate_ssh::release_buffers();
                ring::release();
            }
            // First what happened, of all of them, then one turn for each: one write for all that it brings.
            let mut hear = false;
            for event in &events[..count] {
                match Key::from_number(event.key()) {
                    Key::Control => hear = true,
                    Key::Socket(place) => {
                        if let Some(connection) = self.connection(place) {
                            connection.ready(event.readable(), event.writable(), event.hung_up());
                            self.becomes_due(place);
                        }
                    }
                    Key::Channel(place, which, channel) => {
                        if let Some(connection) = self.connection(place) {
                            connection.channel_ready(channel, which, event);
                            self.becomes_due(place);
                        }
                    }
                    Key::Listener(place, listener) => {
                        if let Some(connection) = self.connection(place) {
                            connection.listener_ready(listener);
                            self.becomes_due(place);
                        }
                    }
                }
            }
            if hear {
                self.hear()?;
            }
            self.pass_deadlines();
            if !self.left.0.is_empty() {
                self.left.flush(self.started.elapsed());
            }
            for _ in 0..self.due.len() {
                if let Some(place) = self.due.pop_front() {
                    self.turn(place)?;
                }
            }
        }
    }

    fn connection(&mut self, place: u32) -> Option<&mut FrontConnection> {
        self.connections.get_mut(place as usize)?.as_deref_mut()
    }

    fn becomes_due(&mut self, place: u32) {
        if let Some(connection) = self.connection(place)
            && connection.becomes_due()
        {
            self.due.push_back(place);
        }
    }

    /// Everything the monitor has to say now.
    fn hear(&mut self) -> Result<(), WorkerEnd> {
        let was_congested = self.control.is_congested();
        self.control.flush()?;
        while let Some((message, fds)) = self.control.receive::<ToFront>()? {
            self.obey(message, fds)?;
        }
        if was_congested && !self.control.is_congested() {
            // They were not read meanwhile, and their edges are gone.
            for place in (0..).take(self.connections.len()) {
                self.becomes_due(place);
            }
        }
        Ok(())
    }

    fn obey(&mut self, message: ToFront, fds: Vec<Fd>) -> Result<(), WorkerEnd> {
        let number = match &message {
            ToFront::Begin { settings } => {
                self.settings = Some(ssh_settings(settings, Limits::default()).map_err(WorkerEnd::Because)?);
                return Ok(());
            }
            ToFront::Arrived { connection, .. }
            | ToFront::Signed { connection, .. }
            | ToFront::Started { connection, .. }
            | ToFront::NotStarted { connection, .. }
            | ToFront::Ended { connection, .. }
            | ToFront::Network { connection, .. }
            | ToFront::Proved { connection, .. }
            | ToFront::Draining { connection }
            | ToFront::Ending { connection, .. }
            | ToFront::RecordAnew { connection, .. }
            | ToFront::Viewing { connection, .. }
            | ToFront::View { connection, .. }
            | ToFront::EndView { connection, .. }
            | ToFront::End { connection, .. } => *connection,
        };
        if let ToFront::Arrived {
            frozen,
            permits,
            cookie,
            ..
        } = message
        {
            let (Some(settings), Some(socket)) = (self.settings.clone(), fds.into_iter().next()) else {
                return Err(WorkerEnd::Because(
                    "a connection came without a socket, or before the settings".to_owned(),
                ));
            };
            let place = match self.connections.iter().position(Option::is_none) {
                Some(place) => place,
                None if self.connections.len() < key::MAX_PLACES => {
                    self.connections.push(None);
                    self.connections.len() - 1
                }
                None => {
                    return self
                        .control
                        .say(&closed(number, "there are too many connections", 0, 0));
                }
            };
            #[expect(clippy::cast_possible_truncation, reason = "there are at most MAX_PLACES")]
            let at = place as u32;
            let thawed =
                FrontConnection::thaw(number, at, (settings, frozen.expose()), socket, permits, cookie);
            let connection = match thawed {
                Ok(connection) => connection,
                Err(why) => return self.control.say(&closed(number, &why, 0, 0)),
            };
            if let Err(e) = self
                .epoll
                .add_edges(connection.socket(), Key::Socket(at).to_number())
            {
                let why = format!("watching its socket: {e}");
                return self.control.say(&closed(number, &why, 0, 0));
            }
            self.connections[place] = Some(Box::new(connection));
            self.places.insert(number, at);
            self.becomes_due(at);
            return Ok(());
        }
        // A connection that is gone by now is no error: our message about it and this one crossed.
        let Some(&place) = self.places.get(&number) else {
            return Ok(());
        };
        let mut context = Context {
            control: &mut self.control,
            epoll: &self.epoll,
            log: self.log,
            now: self.started.elapsed(),
            left: &mut self.left,
        };
        if let Some(connection) = self
            .connections
            .get_mut(place as usize)
            .and_then(Option::as_deref_mut)
        {
            connection.obey(message, fds, &mut context)?;
        }
        self.becomes_due(place);
        Ok(())
    }

    /// Gives a connection its turn, and says to the monitor when that was its last.
    fn turn(&mut self, place: u32) -> Result<(), WorkerEnd> {
        let mut context = Context {
            control: &mut self.control,
            epoll: &self.epoll,
            log: self.log,
            now: self.started.elapsed(),
            left: &mut self.left,
        };
        let Some(connection) = self
            .connections
            .get_mut(place as usize)
            .and_then(Option::as_deref_mut)
        else {
            return Ok(());
        };
        match connection.turn(&mut context)? {
            TurnResult::Idle => {}
            TurnResult::More => self.becomes_due(place),
            TurnResult::Ended(why) => {
                connection.channels_end(&mut context)?;
                let (number, received, sent) = connection.leave(&self.epoll);
                self.connections[place as usize] = None;
                self.places.remove(&number);
                if self.places.is_empty() {
                    // For the next connection there are new ones; until then this process is as small as it can be.
                    fleetgate_ssh::release_buffers();
                    ring::release();
                    self.connections.clear();
                }
                self.control.say(&closed(number, &why, received, sent))?;
            }
        }
        Ok(())
    }

    fn next_deadline(&self) -> Option<u32> {
        let next = self
            .connections
            .iter()
            .flatten()
            .filter_map(|l| l.deadline())
            .min()?;
        let left = next.saturating_sub(self.started.elapsed());
        // Rounded up: a wait that ends too early would be made again for nothing.
        Some(u32::try_from(left.as_micros().div_ceil(1000)).unwrap_or(u32::MAX))
    }

    fn pass_deadlines(&mut self) {
        let Some(next) = self
            .connections
            .iter()
            .flatten()
            .filter_map(|l| l.deadline())
            .min()
        else {
            return;
        };
        let now = self.started.elapsed();
        if next > now {
            return;
        }
        for place in (0..).take(self.connections.len()) {
            if self
                .connection(place)
                .is_some_and(|l| l.deadline().is_some_and(|d| d <= now))
            {
                self.becomes_due(place);
            }
        }
    }
}

fn closed(connection: node::ConnectionNumber, why: &str, received: u64, sent: u64) -> FromFront {
    FromFront::Closed {
        connection,
        why: c_text(why.as_bytes()),
        received,
        sent,
    }
}

//! Bytes of channels: what a channel has for the client goes to the core, what the client sent goes on to the program or socket,
//! and EOF and CLOSE are said where they are due. How a read and a write are made is in `pump`.

use super::Context;
use super::channel::{Channel, Stage};
use super::connection::FrontConnection;
use super::key::Key;
use super::pump::{PourStop, Which};
use crate::start::WorkerEnd;
use fleetgate_ssh::event::ChannelId;
use fleetgate_sys::Errno;
use fleetgate_wire::node::front::{FromFront, RECORDER_PATIENCE_MS};
use std::time::Duration;

/// So long a session waits for its recorder.
const RECORDER_PATIENCE: Duration = Duration::from_millis(RECORDER_PATIENCE_MS);

/// What one channel may send in a row.
const SHARE: usize = 128 * 1024;

impl FrontConnection {
    /// Passes on what channels have for the client; whether there is more.
    pub(super) fn pour(&mut self) -> bool {
        for _ in 0..self.busy.len() {
            let Some(channel) = self.busy.pop_front() else {
                break;
            };
            let Some(ch) = self.channels.get_mut(&channel) else {
                continue;
            };
            *ch.queued() = false;
            let poured = ch.pump().pour(&mut self.core, ChannelId(channel), SHARE);
            self.notice_recording(channel);
            self.settle(channel);
            if poured == PourStop::Share {
                self.queue(channel);
            }
        }
        !self.busy.is_empty()
    }

    /// The channel may have something for the client.
    pub(super) fn queue(&mut self, channel: u32) {
        if let Some(ch) = self.channels.get_mut(&channel)
            && ch.pump().is_readable()
            && !std::mem::replace(ch.queued(), true)
        {
            self.busy.push_back(channel);
        }
    }

    /// Has the loop told of a channel's descriptors.
    pub(super) fn watch(&mut self, channel: u32, context: &Context<'_>) -> Result<(), Errno> {
        let Some(ch) = self.channels.get_mut(&channel) else {
            return Ok(());
        };
        for (which, fd) in ch.pump().watched() {
            context
                .epoll
                .add_edges(fd, Key::Channel(self.place, which, channel).to_number())?;
        }
        Ok(())
    }

    /// Has the loop tell of room in a pipe that turned out to be full.
    pub(super) fn watch_if_full(&mut self, channel: u32, context: &mut Context<'_>) {
        if let Some(ch) = self.channels.get_mut(&channel)
            && let Some(fd) = ch.pump().newly_full()
        {
            let key = Key::Channel(self.place, Which::Input, channel);
            // Where it cannot be watched the program reads on, and is given more with the next data.
            let _ = context.epoll.add_edges(fd, key.to_number());
        }
    }

    /// The recorder may have no room for a channel: it is looked at once the turn is over.
    pub(super) fn notice_recording(&mut self, channel: u32) {
        if let Some(tap) = self.channels.get_mut(&channel).and_then(|ch| ch.pump().tap())
            && !tap.has_room()
            && !self.held.contains(&channel)
        {
            self.held.push(channel);
        }
    }

    /// Has the loop tell when the recorder takes more of the channels that wait for it, and the monitor hear of those that have
    /// waited too long.
    pub(super) fn watch_recordings(&mut self, context: &mut Context<'_>) -> Result<(), WorkerEnd> {
        let mut held = std::mem::take(&mut self.held);
        let mut late = Vec::new();
        held.retain(|channel| {
            let Some(Channel::Session(session)) = self.channels.get_mut(channel) else {
                return false;
            };
            let stage = session.stage;
            let Some(tap) = session.pump.tap() else {
                return false;
            };
            tap.note(context.now);
            if let Some(pipe) = tap.newly_full() {
                let key = Key::Channel(self.place, Which::Recording, *channel);
                // Where it cannot be watched it is tried again at the deadline, and then told.
                let _ = context.epoll.add_edges(pipe, key.to_number());
            }
            let Some(since) = tap.stuck_since() else {
                return !tap.has_room();
            };
            if context.now.saturating_sub(since) >= RECORDER_PATIENCE {
                tap.told();
                if let Stage::Running(ticket) | Stage::Ended(ticket) = stage {
                    late.push(ticket);
                }
            }
            true
        });
        let since = held.iter().filter_map(|channel| {
            let ch = self.channels.get_mut(channel)?;
            ch.pump().tap()?.stuck_since()
        });
        self.recorder_due = since.min().map(|since| since + RECORDER_PATIENCE);
        self.held = held;
        late.into_iter().try_for_each(|ticket| {
            context.control.say(&FromFront::NotRecorded {
                connection: self.number,
                ticket,
            })
        })
    }

    /// Passes on what is kept of a channel.
    pub(super) fn flush(&mut self, channel: u32) {
        if let Some(ch) = self.channels.get_mut(&channel) {
            let done = ch.pump().flush();
            if done > 0 {
                self.kept -= done;
                self.core.consumed(ChannelId(channel), done);
            }
            self.settle(channel);
        }
    }

    /// Nobody reads a channel's input any more.
    pub(super) fn drop_input(&mut self, channel: u32) {
        if let Some(ch) = self.channels.get_mut(&channel) {
            let dropped = ch.pump().shut();
            self.kept -= dropped;
            self.core.consumed(ChannelId(channel), dropped);
        }
    }

    /// Says EOF and CLOSE where they are due.
    pub(super) fn settle(&mut self, channel: u32) {
        match self.channels.get_mut(&channel) {
            Some(Channel::Session(_)) => self.settle_session(channel),
            Some(Channel::Forward(forward)) if forward.waiting.is_none() && !forward.closed => {
                let pump = &forward.pump;
                if pump.is_drained() && !forward.eof_sent {
                    forward.eof_sent = true;
                    self.core.eof(ChannelId(channel));
                }
                if pump.dead || pump.is_drained() && pump.is_shut() {
                    forward.closed = true;
                    self.core.close(ChannelId(channel));
                    self.drop_input(channel);
                }
            }
            _ => {}
        }
    }
}

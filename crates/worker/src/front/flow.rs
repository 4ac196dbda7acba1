//! Bytes of channels: what a channel has for the client goes to the core, what the client sent goes on to the program or socket,
//! and EOF and CLOSE are said where they are due. How a read and a write are made is in `pump`.

use super::Context;
use super::channel::Channel;
use super::connection::FrontConnection;
use super::key::Key;
use super::pump::{PourStop, Which};
use fleetgate_ssh::event::ChannelId;
use fleetgate_sys::Errno;

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

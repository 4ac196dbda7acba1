//! Data out and windows: what an owner may write, and how a peer learns that it may send more. Nothing is kept here:
//! what does not fit stays with the owner, who is told when it does.

use super::message::data_header;
use super::one::Stage;
use super::{Channels, Message, TOP, send};
use crate::codec::number;
use crate::event::{ChannelId, Event, Stream};
use crate::transport::Outbox;
use std::convert::Infallible;
use std::sync::atomic::Ordering;

impl Channels {
    /// How much may be written in one packet now. After a 0, `Event::Writable` follows when there is more.
    pub(crate) fn writable(&self, channel: ChannelId, out: &impl Outbox) -> usize {
        let Some(ch) = self.get(channel.0) else { return 0 };
        let sendable = ch.sendable();
        let n = sendable.min(out.room());
        if n == 0 {
            ch.starve();
            if sendable > 0 {
                self.room_wanted.store(true, Ordering::Relaxed);
            }
        }
        n
    }

    /// Sends bytes, in as many packets as they need; how many were taken.
    pub(crate) fn write(
        &mut self,
        channel: ChannelId,
        stream: Stream,
        bytes: &[u8],
        out: &mut impl Outbox,
    ) -> usize {
        let mut taken = 0;
        while taken < bytes.len() {
            let rest = &bytes[taken..];
            let fill = |room: &mut [u8]| {
                let n = room.len().min(rest.len());
                room[..n].copy_from_slice(&rest[..n]);
                Ok::<usize, Infallible>(n)
            };
            match self.write_with(channel, stream, rest.len(), out, fill) {
                Ok(0) => break,
                Ok(n) => taken += n,
                Err(never) => match never {},
            }
        }
        taken
    }

    /// Sends one packet of at most `max` bytes that `fill` puts where they are sealed. `fill` is not called where
    /// nothing can be sent; nothing is sent where it fails or has nothing.
    pub(crate) fn write_with<E>(
        &mut self,
        channel: ChannelId,
        stream: Stream,
        max: usize,
        out: &mut impl Outbox,
        fill: impl FnOnce(&mut [u8]) -> Result<usize, E>,
    ) -> Result<usize, E> {
        let most = self.writable(channel, out).min(max);
        self.write_parts(channel, stream, most, out, |places| match places {
            [place, ..] => fill(place),
            [] => Ok(0),
        })
    }

    /// Sends packets of at most `max` bytes together, which `fill` puts where they are sealed, each in its own place.
    pub(crate) fn write_parts<E>(
        &mut self,
        channel: ChannelId,
        stream: Stream,
        max: usize,
        out: &mut impl Outbox,
        fill: impl FnOnce(&mut [&mut [u8]]) -> Result<usize, E>,
    ) -> Result<usize, E> {
        let part = self.writable(channel, out);
        let Some(ch) = self.get_mut(channel.0) else {
            return Ok(0);
        };
        let Some(theirs) = ch.theirs else { return Ok(0) };
        let most = max.min(ch.send_window as usize);
        if part == 0 || most == 0 {
            return Ok(0);
        }
        let (header, len) = data_header(theirs, stream);
        let n = out.data(&header[..len], part.min(most), most, fill)?;
        ch.send_window = ch.send_window.saturating_sub(number(n));
        Ok(n)
    }

    /// The owner passed on so many bytes of `Event::Data`.
    pub(crate) fn consumed(&mut self, channel: ChannelId, n: usize, out: &mut impl Outbox) {
        let (most, mut growth) = (self.window, self.growth);
        if let Some(ch) = self.get_mut(channel.0)
            && let Some(bytes) = ch.consume(n, most, &mut growth)
            && let Some(theirs) = ch.theirs
        {
            send(out, &Message::Adjust { ours: theirs, bytes });
        }
        self.growth = growth;
    }

    /// The next channel that there is room for again. They take turns, so that none waits for ever.
    pub(super) fn next_writable(&mut self, out: &impl Outbox) -> Option<Event<'static>> {
        if !*self.room_wanted.get_mut() || out.room() == 0 {
            return None;
        }
        let wants = |ch: &super::Channel| ch.starved() && ch.stage == Stage::Open && ch.sendable() > 0;
        let found = if self.turn & TOP == 0 {
            let after = self.low.find_from(self.turn, wants);
            match after.filter(|&n| n >= self.turn) {
                Some(n) => Some(n),
                None => self.high.find_from(0, wants).map(|n| n | TOP).or(after),
            }
        } else {
            let after = self.high.find_from(self.turn & !TOP, wants).map(|n| n | TOP);
            match after.filter(|&n| n >= self.turn) {
                Some(n) => Some(n),
                None => self.low.find_from(0, wants).or(after),
            }
        };
        let Some(n) = found else {
            *self.room_wanted.get_mut() = false;
            return None;
        };
        self.turn = n.wrapping_add(1);
        self.get_mut(n)?.fed();
        Some(Event::Writable(ChannelId(n)))
    }
}

//! A forwarded agent beside the SSH bytes: where SSH ends at the proxy, connections to the user's agent go to the client
//! as frames of their own on the stream of the dial. Each has a credit, so an agent that stalls holds up its own
//! connection and never the SSH bytes.

use fleetgate_proto::v1::Agent;
use fleetgate_ssh::Connection;
use fleetgate_ssh::event::{ChannelId, ChannelKind, Event, Stream};
use std::collections::BTreeMap;
use std::task::{Context, Poll};
use tokio::sync::mpsc;

/// What each side may send of one connection before it was read.
pub const CREDIT: u32 = 64 * 1024;
/// Connections to the agent at a time; more are refused.
pub const MAX_CONNECTIONS: usize = 16;

/// The frames of one dial.
pub struct AgentFrames {
    /// Bounded by the credits: never more than [`CREDIT`] of each connection.
    to_client: mpsc::UnboundedSender<Agent>,
    from_client: mpsc::UnboundedReceiver<Agent>,
    links: BTreeMap<u32, Link>,
    last: u32,
}

/// One connection to the agent.
struct Link {
    /// Its number in frames.
    number: u32,
    /// What the client may still be sent.
    credit: u32,
    up: Vec<u8>,
    up_done: bool,
    up_told: bool,
    /// From the client, not yet taken by the node.
    down: Vec<u8>,
    down_done: bool,
    closed: bool,
}

impl AgentFrames {
    /// Frames to and from the client of a dial.
    pub fn new(
        to_client: mpsc::UnboundedSender<Agent>,
        from_client: mpsc::UnboundedReceiver<Agent>,
    ) -> AgentFrames {
        AgentFrames {
            to_client,
            from_client,
            links: BTreeMap::new(),
            last: 0,
        }
    }

    /// Whether an event of the node's side is about the agent.
    pub(super) fn takes(&self, event: &Event<'_>) -> bool {
        match event {
            Event::Open { kind, .. } => *kind == ChannelKind::Agent && self.links.len() < MAX_CONNECTIONS,
            Event::Data { channel, .. } | Event::Eof(channel) | Event::Closed(channel) => {
                self.links.contains_key(&channel.0)
            }
            _ => false,
        }
    }

    /// Deals with it; a channel is to be accepted.
    pub(super) fn event(&mut self, event: &Event<'_>) -> Option<ChannelId> {
        match event {
            Event::Open { channel, .. } => {
                self.last += 1;
                let link = Link {
                    number: self.last,
                    credit: CREDIT,
                    up: Vec::new(),
                    up_done: false,
                    up_told: false,
                    down: Vec::new(),
                    down_done: false,
                    closed: false,
                };
                self.links.insert(channel.0, link);
                return Some(*channel);
            }
            Event::Data { channel, bytes, .. } => {
                if let Some(link) = self.links.get_mut(&channel.0) {
                    link.up.extend_from_slice(bytes);
                }
            }
            Event::Eof(channel) => {
                if let Some(link) = self.links.get_mut(&channel.0) {
                    link.up_done = true;
                }
            }
            Event::Closed(channel) => {
                if let Some(link) = self.links.remove(&channel.0)
                    && !link.up_told
                {
                    self.say(link.number, Vec::new(), true, 0);
                }
            }
            _ => {}
        }
        None
    }

    /// Moves what can be moved.
    pub(super) fn poll(&mut self, host: &mut Connection, cx: &mut Context<'_>) {
        while let Poll::Ready(Some(frame)) = self.from_client.poll_recv(cx) {
            let Some(link) = self.links.values_mut().find(|l| l.number == frame.connection) else {
                continue;
            };
            link.credit = link.credit.saturating_add(frame.credit).min(CREDIT);
            // A client that sends more than it may loses the rest of that connection.
            let fits = link.down.len() + frame.data.len() <= CREDIT as usize;
            if fits {
                link.down.extend_from_slice(&frame.data);
            }
            link.down_done |= frame.end || !fits;
        }
        let channels: Vec<u32> = self.links.keys().copied().collect();
        for channel in channels {
            self.pass(channel, host);
        }
    }

    fn pass(&mut self, id: u32, host: &mut Connection) {
        let channel = ChannelId(id);
        let Some(link) = self.links.get_mut(&id) else {
            return;
        };
        let number = link.number;
        let n = link.up.len().min(link.credit as usize);
        let data: Vec<u8> = link.up.drain(..n).collect();
        link.credit = link.credit.saturating_sub(u32::try_from(n).unwrap_or(u32::MAX));
        let end = link.up_done && link.up.is_empty() && !link.up_told;
        link.up_told |= end;
        let taken = host.write(channel, Stream::Main, &link.down);
        link.down.drain(..taken);
        let close = link.down_done && link.down.is_empty() && !std::mem::replace(&mut link.closed, true);
        if n > 0 {
            host.consumed(channel, n);
        }
        if n > 0 || end || taken > 0 {
            self.say(number, data, end, u32::try_from(taken).unwrap_or(u32::MAX));
        }
        if close {
            host.eof(channel);
            host.close(channel);
        }
    }

    /// A client that is gone takes the whole dial with it: nothing is to be done here.
    fn say(&self, connection: u32, data: Vec<u8>, end: bool, credit: u32) {
        let _ = self.to_client.send(Agent {
            connection,
            data: data.into(),
            end,
            credit,
        });
    }
}

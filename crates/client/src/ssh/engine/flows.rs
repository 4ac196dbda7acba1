//! Channels that are joined to their ends here: each is moved in turn, and is gone when both of its ends are over.

use super::{Engine, EscapeCommand, Flow};
use crate::ssh::{SshError, exit};
use crate::stderr;
use fleetgate_ssh::event::ChannelId;
use std::task::Context;
use tokio::io::{AsyncRead, AsyncWrite};

impl<S: AsyncRead + AsyncWrite + Unpin> Engine<'_, S> {
    /// Joins a channel and its local end. The number belongs to them until both are over.
    pub(super) fn join(&mut self, flow: Flow) {
        self.connection.close_later(flow.id);
        self.flows.insert(flow.id.0, flow);
    }

    /// Both are over.
    pub(super) fn part(&mut self, channel: ChannelId) {
        self.flows.remove(&channel.0);
        if Some(channel) == self.main {
            self.main = None;
        }
        if let Some(visitor) = self.visitors.remove(&channel.0) {
            visitor.ended();
        }
    }

    pub(super) fn flow(&mut self, cx: &mut Context<'_>) -> Result<bool, SshError> {
        let (mut moved, mut wish) = (false, None);
        for flow in self.flows.values_mut() {
            let mut own = None;
            moved |= flow.turn(cx, &mut self.connection, &mut own);
            if let Some(asked) = own {
                match self.visitors.contains_key(&flow.id.0) {
                    true => self.asked_by_escape.push((flow.id, asked)),
                    false => wish = Some(asked),
                }
            }
        }
        let over = self.flows.values().filter(|flow| flow.is_over());
        for channel in over.map(|flow| flow.id).collect::<Vec<_>>() {
            // Of its end an event is told before another channel can have its number.
            self.connection.close(channel);
            self.part(channel);
            moved = true;
        }
        for (channel, asked) in std::mem::take(&mut self.asked_by_escape) {
            self.grant_visitor(channel, &asked);
        }
        match wish {
            None => {}
            Some(EscapeCommand::End) => {
                stderr::write(format_args!("Connection to {} ended.\r\n", self.plan.place));
                return Err(SshError::Over(exit::FAILED));
            }
            Some(wish) => self.grant(wish),
        }
        Ok(moved)
    }
}

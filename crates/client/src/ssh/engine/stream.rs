//! The carrier's bytes: they are read from it and written to it, and its end is told apart by how far the connection was. It
//! never waits: what does not move now is moved in a later turn.

use super::{Engine, Stage};
use crate::ssh::SshError;
use crate::transport::Refused;
use fleetgate_sys::clock;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;

/// What a read of the carrier has room for at least.
const READ_AT_LEAST: usize = 64 * 1024;

impl<S: AsyncRead + AsyncWrite + Unpin> Engine<'_, S> {
    pub(super) fn read(&mut self, cx: &mut Context<'_>) -> Result<bool, SshError> {
        if self.lost || !self.connection.wants_input() {
            return Ok(false);
        }
        let room = self.connection.room(READ_AT_LEAST);
        if room.is_empty() {
            return Ok(false);
        }
        let mut buffer = ReadBuf::new(room);
        let got = Pin::new(&mut self.stream).poll_read(cx, &mut buffer);
        let n = buffer.filled().len();
        self.connection.received(n);
        match got {
            Poll::Pending => Ok(false),
            Poll::Ready(Ok(())) => {
                self.lost = n == 0;
                if self.guests.is_some() {
                    (self.heard, self.heard_at) = (clock::boot(), Instant::now());
                }
                Ok(true)
            }
            Poll::Ready(Err(e)) => match e.get_ref().and_then(|e| e.downcast_ref::<Refused>()) {
                Some(refused) => Err(SshError::Denied(refused.clone())),
                None => Err(self.gone(&e.to_string())),
            },
        }
    }

    pub(super) fn write(&mut self, cx: &mut Context<'_>) -> Result<bool, SshError> {
        let mut moved = false;
        while !self.connection.output().is_empty() {
            match Pin::new(&mut self.stream).poll_write(cx, self.connection.output()) {
                Poll::Pending => return Ok(moved),
                Poll::Ready(Ok(n)) if n > 0 => {
                    self.connection.sent(n);
                    self.spoke |= std::mem::take(&mut self.asks);
                    moved = true;
                }
                Poll::Ready(Ok(_)) => return Err(self.gone("the carrier takes nothing more")),
                // What the other side said last may still be there to be read.
                Poll::Ready(Err(e)) if self.lost => return Err(self.gone(&e.to_string())),
                Poll::Ready(Err(_)) => return Ok(moved),
            }
        }
        if let Poll::Ready(Err(e)) = Pin::new(&mut self.stream).poll_flush(cx) {
            return Err(self.gone(&e.to_string()));
        }
        Ok(moved)
    }

    /// The carrier is gone: no error where the work was done.
    pub(super) fn gone(&self, why: &str) -> SshError {
        match self.code {
            _ if self.was_misled() => SshError::Changed,
            Some(code) if self.main.is_none() => SshError::Over(code),
            _ if self.stage == Stage::Up => SshError::Lost(why.to_owned()),
            _ => SshError::Connect(format!("the connection ended before the login: {why}")),
        }
    }
}

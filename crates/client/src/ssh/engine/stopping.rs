//! The end of a session that its owner wants ended. A node lets a command go on whose client has gone, and so does sshd: so
//! its program gets signals first, and the channel is closed when it has ended or does not.

use super::Engine;
use crate::ssh::capture::StopStep;
use crate::ssh::{SshError, exit};
use fleetgate_ssh::event::{LEAVE_NOTHING, Request};
use std::task::Context;
use tokio::io::{AsyncRead, AsyncWrite};

impl<S: AsyncRead + AsyncWrite + Unpin> Engine<'_, S> {
    /// Takes the step that is due. Whether there was one.
    pub(super) fn heed_stop(&mut self, cx: &mut Context<'_>) -> Result<bool, SshError> {
        let Some(step) = self
            .capture
            .as_deref_mut()
            .and_then(|capture| capture.poll_step(cx))
        else {
            return Ok(false);
        };
        if let Some(channel) = self.main {
            let signal = |name: &[u8]| Request::Signal { name: name.to_vec() };
            match step {
                StopStep::Interrupt => {
                    let leave_nothing = Request::Other {
                        name: LEAVE_NOTHING.to_vec(),
                        payload: Vec::new(),
                    };
                    self.connection.request(channel, &leave_nothing, false);
                    self.connection.request(channel, &signal(b"INT"), false);
                }
                StopStep::Kill => self.connection.request(channel, &signal(b"KILL"), false),
                StopStep::Leave => self.connection.close(channel),
            }
        }
        match step {
            StopStep::Leave => Err(SshError::Over(exit::FAILED)),
            _ => Ok(true),
        }
    }
}

//! What the user of this very process does at his terminal: escapes, another size of the window, signals.

use super::{Engine, EscapeCommand, Raw, SshError, escape, terminal};
use crate::stderr;
use fleetgate_ssh::event::Request;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite};

impl<S: AsyncRead + AsyncWrite + Unpin> Engine<'_, S> {
    pub(super) fn grant(&mut self, wish: EscapeCommand) {
        match wish {
            EscapeCommand::Help => stderr::write(escape::HELP),
            EscapeCommand::List => {
                stderr::write("Open:\r\n");
                for flow in self.flows.values() {
                    stderr::write(format_args!("  #{} {}\r\n", flow.id.0, flow.name));
                }
            }
            EscapeCommand::Break => {
                if let Some(channel) = self.main {
                    self.connection
                        .request(channel, &Request::Break { milliseconds: 1000 }, false);
                }
            }
            EscapeCommand::Rekey => self.connection.rekey(),
            EscapeCommand::Suspend => {
                let raw = self.raw.take().is_some();
                terminal::stop();
                if raw {
                    self.raw = Raw::begin();
                }
                self.window();
            }
            EscapeCommand::End => {}
        }
    }

    /// Signals to this program.
    pub(super) fn heed(&mut self, cx: &mut Context<'_>) -> Result<(), SshError> {
        let Some(signals) = &mut self.signals else {
            return Ok(());
        };
        let mut resized = false;
        while let Poll::Ready(Some(())) = signals.window.poll_recv(cx) {
            resized = true;
        }
        for (signal, number) in &mut signals.ends {
            if let Poll::Ready(Some(())) = signal.poll_recv(cx) {
                return Err(SshError::Signal(*number));
            }
        }
        if resized {
            self.window();
        }
        Ok(())
    }

    fn window(&mut self) {
        if let Some(channel) = self.main.filter(|_| self.plan.terminal) {
            self.connection
                .request(channel, &Request::WindowChange(terminal::size()), false);
        }
    }
}

//! What the connection uses of what is known of its server, and what it leaves behind for the next one.

use super::{Engine, Stage, tell};
use crate::ssh::server_memory::LoginFlight;
use crate::ssh::{SshError, Work};
use fleetgate_ssh::event::ChannelId;
use fleetgate_ssh::settings::FirstShare;
use tokio::io::{AsyncRead, AsyncWrite};

impl<S: AsyncRead + AsyncWrite + Unpin> Engine<'_, S> {
    /// What may go with the login. Sessions of others are not tried out on a server.
    pub(super) fn remembered_flight(&self) -> LoginFlight {
        match self.guests.is_none() && self.capture.is_none() {
            true => self.memory.login_flight(&self.connection.info().peer_version),
            false => LoginFlight::Login,
        }
    }

    /// Whether the connection ended because the server is not as it was, and nothing was begun on it.
    pub(super) fn was_misled(&self) -> bool {
        let info = self.connection.info();
        match self.stage {
            // A server that refuses connections says no version.
            Stage::Exchange => {
                matches!(self.connection.settings().first_share, FirstShare::Known(_))
                    && !info.peer_version.is_empty()
                    && info.share_held != Some(true)
            }
            Stage::Login => self.ahead && self.flight == LoginFlight::Channel,
            Stage::Keyed | Stage::Up => false,
        }
    }

    /// How the connection failed, for the next one.
    pub(super) fn note_failure(&mut self, outcome: &Result<i32, SshError>) {
        match (outcome, self.stage) {
            (Err(SshError::Changed), Stage::Exchange) => self.memory.share_was_wrong(self.connection.info()),
            (Err(SshError::Changed), _) => self.memory.flight_was_lost(Some(false)),
            // The command was in this flight, so nothing is tried again. The next connection sends less.
            (Err(SshError::Connect(_)), Stage::Login) if self.flight == LoginFlight::Session => {
                self.memory.flight_was_lost(None);
            }
            _ => {}
        }
    }

    /// The login succeeded.
    pub(super) fn note_login(&mut self) {
        if self.known_peer() || matches!(self.plan.options.work, Work::None) {
            self.note(None);
        }
    }

    /// A channel stands.
    pub(super) fn note_channel(&mut self, channel: ChannelId) {
        if Some(channel) == self.main
            && !self.known_peer()
            && let Some(number) = self.connection.peer_number(channel)
        {
            self.note(Some((self.flight, number)));
        }
    }

    fn note(&mut self, channel: Option<(LoginFlight, u32)>) {
        let settings = self.connection.settings();
        let lists = (settings.kex.as_slice(), settings.host_key_algorithms.as_slice());
        let is_well_known = self.known_peer();
        self.memory
            .note(self.connection.info(), lists, channel, is_well_known);
    }

    /// For `-v`: what became of the share that was sent ahead.
    pub(super) fn tell_share(&self) {
        let settings = self.connection.settings();
        let what = match (settings.first_share, settings.kex.first()) {
            (FirstShare::Waits, _) | (FirstShare::Guessed, None) => return,
            (FirstShare::Guessed, Some(method)) => format!("a guess of {}", method.name()),
            (FirstShare::Known(method), _) => format!("{}, which the server took before", method.name()),
        };
        let held = match self.connection.info().share_held {
            Some(true) => "held",
            _ => "did not hold",
        };
        tell(self.plan, 1, || format!("sent ahead: {what}; it {held}"));
    }
}

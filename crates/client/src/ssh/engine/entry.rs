//! The way in: keys are there, the login is asked for, and behind it all that is to be done, in one flight where the
//! server is known to read on.

use super::{Engine, Flow, Local, PendingRequest, Raw, Stage, tell};
use crate::ssh::login::LoginStep;
use crate::ssh::server_memory::LoginFlight;
use crate::ssh::{SshError, Work, escape, terminal};
use crate::stderr::printable;
use fleetgate_ssh::cipher::{Cipher, Mac};
use fleetgate_ssh::event::{AuthReply, ChannelId, ChannelKind, Request};
use fleetgate_ssh::info::Algorithms;
use fleetgate_wire::master::MAX_WORDS;
use tokio::io::{AsyncRead, AsyncWrite};

impl<S: AsyncRead + AsyncWrite + Unpin> Engine<'_, S> {
    pub(super) fn begin_login(&mut self) -> Result<(), SshError> {
        self.stage = Stage::Login;
        let facts = self.connection.info();
        tell(self.plan, 1, || {
            format!("the server is {}", printable(&facts.peer_version))
        });
        tell(self.plan, 2, || {
            facts.algorithms.as_ref().map_or_else(String::new, agreed)
        });
        self.tell_share();
        if !self.known_peer() {
            self.flight = self.remembered_flight();
            // Otherwise its channel numbers are its own business, and so is what it does with what came too early.
            self.ahead &= self.flight != LoginFlight::Login;
            if self.flight != LoginFlight::Session {
                self.connection.wait_for_channel_numbers();
            }
        }
        let session = self.connection.session_id().unwrap_or_default().to_vec();
        let algorithms = self.connection.info().extensions.server_sig_algs.clone();
        let tried = match self.ahead {
            true => self.login.sure(&session, algorithms.as_deref()),
            false => self.login.next(&session, algorithms.as_deref(), None),
        };
        match tried.map_err(SshError::Login)? {
            LoginStep::Request(request) => {
                self.timings.request("login");
                self.connection.authenticate(&request);
            }
            LoginStep::Nothing => return Err(self.no_way_in(&[])),
        }
        if self.ahead {
            self.open_all();
        }
        Ok(())
    }

    /// Servers of which is known how they number channels, and that they read on behind a login.
    pub(super) fn known_peer(&self) -> bool {
        let version = &self.connection.info().peer_version;
        [&b"SSH-2.0-OpenSSH"[..], b"SSH-2.0-fleetgate"]
            .iter()
            .any(|v| version.starts_with(v))
    }

    pub(super) fn login_replied(&mut self, reply: AuthReply) -> Result<(), SshError> {
        let session = self.connection.session_id().unwrap_or_default().to_vec();
        let algorithms = self.connection.info().extensions.server_sig_algs.clone();
        let tried = match reply {
            AuthReply::Accepted => {
                self.stage = Stage::Up;
                self.note_login();
                let tried = self.login.tried.last().map_or("nothing at all", String::as_str);
                tell(self.plan, 1, || {
                    format!("logged in as {} with {tried}", self.plan.user)
                });
                if !self.opened {
                    self.open_all();
                }
                // Visitors hear what the server said once they are in: others make connections of their own, where it is said again.
                let banner = std::mem::take(&mut self.banner);
                if !banner.is_empty() {
                    self.visitors
                        .values()
                        .for_each(|visitor| visitor.say(&banner, true));
                }
                if matches!(self.plan.options.work, Work::None) && self.plan.options.remotes.is_empty() {
                    self.timings.end();
                }
                if self.plan.terminal
                    && self.plan.options.input
                    && matches!(
                        self.plan.options.work,
                        Work::Shell | Work::Exec(_) | Work::Subsystem(_)
                    )
                {
                    self.raw = Raw::begin();
                }
                return Ok(());
            }
            // What was sent behind the login is lost, and a server may end the connection over it.
            AuthReply::Rejected { methods, .. } if self.opened => {
                let asks = |m: &String| m == "password" || m == "keyboard-interactive";
                return Err(match methods.iter().any(asks) && !self.plan.options.batch {
                    true => SshError::Again,
                    false => self.no_way_in(&methods),
                });
            }
            AuthReply::Rejected { methods, .. } => {
                let tried = self.login.next(&session, algorithms.as_deref(), Some(&methods));
                match tried.map_err(SshError::Login)? {
                    LoginStep::Nothing => return Err(self.no_way_in(&methods)),
                    tried => tried,
                }
            }
            AuthReply::KeyOk => {
                let tried = self.login.key_would_do(&session, algorithms.as_deref());
                tried.map_err(SshError::Login)?
            }
            AuthReply::Ask {
                name,
                instruction,
                prompts,
            } => {
                let answers = self.login.answer(&name, &instruction, &prompts);
                let answers = answers.map_err(SshError::Login)?;
                let answers: Vec<&[u8]> = answers.iter().map(|a| a.as_bytes()).collect();
                self.connection.answer_prompts(&answers);
                return Ok(());
            }
        };
        match tried {
            LoginStep::Request(request) => {
                self.timings.request("login");
                self.connection.authenticate(&request);
                Ok(())
            }
            LoginStep::Nothing => Err(self.no_way_in(&[])),
        }
    }

    pub(super) fn no_way_in(&self, methods: &[String]) -> SshError {
        let tried = match self.login.tried.is_empty() {
            true => "nothing could be tried".to_owned(),
            false => format!("tried: {}", self.login.tried.join(", ")),
        };
        let takes = match methods.is_empty() {
            true => String::new(),
            false => format!("; it takes {}", methods.join(", ")),
        };
        // Where it is not printed, what the server said is the reason.
        let why = match self.banner.lines().rfind(|line| !line.trim().is_empty()) {
            Some(line) => format!(": {}", line.trim()),
            // A node knows nothing of a certificate whose authority was replaced, so it has nothing to say.
            None if !self.plan.options.direct && !self.login.tried.is_empty() && !self.has_banner => {
                ". If the cluster has had another user authority since your login, `fleetgate login` again"
                    .to_owned()
            }
            None => String::new(),
        };
        SshError::Refused(format!(
            "{} does not let {} in ({tried}{takes}){why}",
            self.plan.place, self.plan.user
        ))
    }

    /// All that is to be done on the connection, asked for in one go.
    pub(super) fn open_all(&mut self) {
        self.opened = true;
        for (i, forward) in self.plan.options.remotes.iter().enumerate() {
            self.connection.global(&forward.request(), true);
            self.remotes_asked.push_back(i);
            self.timings.request("remote forward");
        }
        self.admit_present();
        let kind = match &self.plan.options.work {
            Work::None => return,
            Work::To(to) => to.channel(("127.0.0.1", 0)),
            _ => Some(ChannelKind::Session),
        };
        let channel = kind.and_then(|kind| self.connection.open(&kind));
        let (Some(channel), Some(streams)) = (channel, self.streams.take()) else {
            return;
        };
        self.main = Some(channel);
        self.timings.request("channel");
        let mut flow = Flow::new(channel, Local::Streams(streams), "session".into());
        flow.main = true;
        let session = !matches!(self.plan.options.work, Work::To(_));
        if session {
            self.ask_session(channel);
            if self.plan.terminal && self.plan.options.input {
                flow.escapes = self.plan.escape.map(escape::Escapes::new);
            }
        }
        if !self.plan.options.input {
            self.connection.eof(channel);
            flow = flow.without_input();
        }
        self.join(flow);
    }

    pub(super) fn ask_session(&mut self, channel: ChannelId) {
        let mut ask = |request: &Request, asked: Option<PendingRequest>, name| {
            self.connection.request(channel, request, asked.is_some());
            self.asked.extend(asked);
            self.timings.request(name);
        };
        if self.plan.options.agent {
            ask(&Request::Agent, Some(PendingRequest::Agent), "agent");
        }
        if let Some(display) = &self.plan.display {
            ask(&display.request(), Some(PendingRequest::X11), "x11");
        }
        if self.plan.terminal {
            ask(
                &Request::Pty(terminal::wanted()),
                Some(PendingRequest::Terminal),
                "terminal",
            );
        }
        for (name, value) in &self.plan.environment {
            let request = Request::Env {
                name: name.clone(),
                value: value.clone(),
            };
            ask(&request, None, "variable");
        }
        if let Some(capture) = &mut self.capture {
            capture.is_asked = true;
        }
        match &self.plan.options.work {
            Work::Exec(command) => {
                let command = command.clone();
                ask(&Request::Exec { command }, Some(PendingRequest::Work), "command");
            }
            Work::Subsystem(name) => {
                let name = name.clone();
                ask(
                    &Request::Subsystem { name },
                    Some(PendingRequest::Work),
                    "subsystem",
                );
            }
            _ => ask(&Request::Shell, Some(PendingRequest::Work), "shell"),
        }
    }

    pub(super) fn replied(&mut self, done: bool) -> Result<(), SshError> {
        tell(self.plan, 2, || {
            let what = self
                .asked
                .front()
                .map_or("nothing that was asked for", |a| a.name());
            let took = if done { "takes" } else { "refuses" };
            format!("the server {took} {what}")
        });
        match (self.asked.pop_front(), done) {
            (Some(PendingRequest::Work), true) => {
                self.timings.end();
                if let Some(capture) = &mut self.capture {
                    capture.has_begun = true;
                }
            }
            (Some(PendingRequest::Work), false) => {
                return Err(SshError::Refused(format!(
                    "{} does not run that for {}",
                    self.plan.place, self.plan.user
                )));
            }
            (Some(PendingRequest::Terminal), false) => {
                self.raw = None;
                self.warn("the other side gives no terminal");
            }
            (Some(PendingRequest::Agent), true) => self.lends_agent = true,
            (Some(PendingRequest::X11), true) => self.lends_display = true,
            (Some(PendingRequest::Agent), false) => match self.plan.user.contains('+') {
                true => {
                    self.warn("the other side takes no forwarded agent: into a container none is forwarded")
                }
                false => self.warn("the other side takes no forwarded agent"),
            },
            (Some(PendingRequest::X11), false) => self.warn("the other side forwards no X11"),
            _ => {}
        }
        Ok(())
    }

    pub(super) fn refused(&mut self, channel: ChannelId, text: &str) -> Result<(), SshError> {
        if Some(channel) == self.main {
            return Err(SshError::Refused(format!("{}: {text}", self.plan.place)));
        }
        if self.visitor_refused(channel) {
            return Ok(());
        }
        if let Some(mut flow) = self.flows.remove(&channel.0) {
            self.warn(&format!("{}: {text}", flow.name));
            if let (Some(version), Local::Tcp(stream)) = (flow.socks(), &flow.local) {
                let _ = stream.try_write(&version.answer(false));
            }
        }
        Ok(())
    }
}

/// What the server says before the login, to the bound of what a command of the master's is told.
pub(super) fn keep_banner(banner: &mut String, text: &str) {
    if banner.len() + text.len() <= MAX_WORDS {
        banner.push_str(text);
    }
}

/// What a key exchange agreed on, in words.
fn agreed(chosen: &Algorithms) -> String {
    let direction = |cipher: Cipher, mac: Option<Mac>| match mac {
        Some(mac) => format!("{} with {}", cipher.name(), mac.name()),
        None => cipher.name().to_owned(),
    };
    let (out, back) = (
        direction(chosen.cipher_out, chosen.mac_out),
        direction(chosen.cipher_in, chosen.mac_in),
    );
    let strict = if chosen.strict { "strict" } else { "not strict" };
    format!(
        "agreed on: key exchange {} ({strict}), host key {}, to the server {out}, from it {back}",
        chosen.kex.name(),
        chosen.host_key
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use fleetgate_ssh::kex::Method;

    #[test]
    fn what_was_agreed_on_is_said_in_words() {
        let chosen = Algorithms {
            kex: Method::ALL[0],
            host_key: "ssh-ed25519".into(),
            cipher_in: Cipher::ALL[0],
            cipher_out: Cipher::named("aes256-ctr").unwrap_or(Cipher::ALL[0]),
            mac_in: None,
            mac_out: Some(Mac::ALL[0]),
            strict: true,
        };
        assert_eq!(
            agreed(&chosen),
            format!(
                "agreed on: key exchange {} (strict), host key ssh-ed25519, to the server aes256-ctr with {}, from it {}",
                Method::ALL[0].name(),
                Mac::ALL[0].name(),
                Cipher::ALL[0].name()
            )
        );
    }
}

//! Forwarded connections: from our listeners to the far side, from there to here, and the agent's.

use super::{Engine, Flow, Local, MAX_OPENING, Stage, TaskResult};
use crate::ssh::forward::{Listen, Listener, Target};
use crate::ssh::options::LogLevel;
use crate::ssh::{SshError, Work, socks};
use crate::stderr;
use fleetgate_ssh::Connection;
use fleetgate_ssh::channel::refusal;
use fleetgate_ssh::event::{ChannelId, ChannelKind};
use std::io;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};

impl<S: AsyncRead + AsyncWrite + Unpin> Engine<'_, S> {
    pub(super) fn remote_answered(&mut self, done: Option<Vec<u8>>) -> Result<(), SshError> {
        let Some(i) = self.remotes_asked.pop_front() else {
            return Ok(());
        };
        let forward = &self.plan.options.remotes[i];
        match done {
            Some(fields) => {
                let port = fields
                    .get(..4)
                    .and_then(|b| b.try_into().ok())
                    .map(u32::from_be_bytes);
                let asked = match forward.listen {
                    Listen::Tcp { port, .. } => port,
                    Listen::Unix(_) => 0,
                };
                let port = port.and_then(|p| u16::try_from(p).ok()).unwrap_or(asked);
                self.remote_ports[i] = Some(port);
                if asked == 0 && port != 0 && self.plan.options.level >= LogLevel::Info {
                    stderr::write(format_args!(
                        "Allocated port {port} for remote forward to {}\r\n",
                        forward.to
                    ));
                }
            }
            None => {
                let words = format!(
                    "the other side does not listen at {} for us: no role permits it, or the address is taken",
                    forward.listen
                );
                if self.plan.options.exit_on_forward_failure {
                    return Err(SshError::Refused(words));
                }
                self.warn(&words);
            }
        }
        if self.remotes_asked.is_empty() && matches!(self.plan.options.work, Work::None) {
            self.timings.end();
        }
        Ok(())
    }

    /// The far side opens a channel: the other end of it is here.
    pub(super) fn far_side_opens(&mut self, channel: ChannelId, kind: ChannelKind) {
        let refuse = |connection: &mut Connection, words: &str| {
            connection.refuse(channel, refusal::PROHIBITED, words);
        };
        if self.pending.len() >= MAX_OPENING {
            return self
                .connection
                .refuse(channel, refusal::SHORTAGE, "too many at once");
        }
        if let (ChannelKind::X11 { .. }, Some(display), true) =
            (&kind, &self.plan.display, self.lends_display)
        {
            return match (display.is_open(), UnixStream::pair()) {
                (true, Ok((ours, its))) => {
                    // It ends with either end; a client that shows no cookie of ours ends there.
                    tokio::spawn(display.clone().carry(its));
                    self.connection.accept(channel);
                    let mut flow = Flow::new(channel, Local::Unix(ours), "X11".into());
                    flow.open = true;
                    self.join(flow);
                }
                (false, _) => refuse(&mut self.connection, "the time for X11 is over"),
                (_, Err(_)) => refuse(&mut self.connection, "nothing more can be opened here"),
            };
        }
        let to =
            match &kind {
                ChannelKind::Agent if self.lends_agent => {
                    std::env::var_os(crate::agent::SOCKET).map(|p| Target::Unix(p.into()))
                }
                kind => {
                    let owner = self.plan.options.remotes.iter().zip(&self.remote_ports).find_map(
                        |(forward, port)| {
                            let port = (*port)?;
                            forward.owns(kind, port).then(|| forward.to.clone())
                        },
                    );
                    match owner {
                        Some(to) => Some(to),
                        None => return refuse(&mut self.connection, "nobody here asked for that"),
                    }
                }
            };
        let Some(to) = to else {
            return refuse(&mut self.connection, "there is no agent here");
        };
        self.pending.spawn(async move {
            let name = format!("from the other side to {to}");
            let local = match &to {
                Target::Tcp { host, port } => {
                    TcpStream::connect((host.as_str(), *port)).await.map(Local::Tcp)
                }
                Target::Unix(path) => UnixStream::connect(path).await.map(Local::Unix),
                Target::Socks => Err(io::ErrorKind::Unsupported.into()),
            };
            TaskResult::Reached(channel, local, name)
        });
    }

    /// What took its time and is done.
    pub(super) fn ready(&mut self, cx: &mut Context<'_>) -> Result<bool, SshError> {
        let mut moved = false;
        while let Poll::Ready(Some(done)) = self.pending.poll_join_next(cx) {
            moved = true;
            match done {
                Ok(TaskResult::Reached(channel, Ok(local), name)) => {
                    self.connection.accept(channel);
                    let mut flow = Flow::new(channel, local, name);
                    flow.open = true;
                    self.join(flow);
                }
                Ok(TaskResult::Reached(channel, Err(e), name)) => {
                    self.warn(&format!("{name}: {e}"));
                    self.connection
                        .refuse(channel, refusal::CONNECT_FAILED, &e.to_string());
                }
                Ok(TaskResult::Wants(stream, Ok((to, version)))) => {
                    if let Some(channel) = self.lead(Local::Tcp(stream), &to)
                        && let Some(flow) = self.flows.get_mut(&channel.0)
                    {
                        flow.greet(version);
                    }
                }
                Ok(TaskResult::Wants(_, Err(e))) => self.warn(&format!("SOCKS: {e}")),
                Err(_) => {}
            }
        }
        Ok(moved)
    }

    /// A channel for a connection that came here.
    pub(super) fn lead(&mut self, local: Local, to: &Target) -> Option<ChannelId> {
        let from = match &local {
            Local::Tcp(stream) => stream.peer_addr().ok(),
            _ => None,
        };
        let address = from.map_or_else(|| "127.0.0.1".into(), |a| a.ip().to_string());
        let kind = to.channel((&address, from.map_or(0, |a| a.port())))?;
        let Some(channel) = self.connection.open(&kind) else {
            self.warn(&format!("to {to}: too many connections"));
            return None;
        };
        self.join(Flow::new(channel, local, format!("to {to}")));
        Some(channel)
    }

    pub(super) fn accept(&mut self, cx: &mut Context<'_>) -> bool {
        if self.stage != Stage::Up {
            return false;
        }
        let mut came = Vec::new();
        for (listener, to) in self.listeners.iter() {
            // A listener that fails, for want of descriptors, is asked again when something else happens.
            let local = match listener {
                Listener::Tcp(l) => l.poll_accept(cx).map(|r| r.map(|(s, _)| Local::Tcp(s))),
                Listener::Unix(l, _) => l.poll_accept(cx).map(|r| r.map(|(s, _)| Local::Unix(s))),
            };
            if let Poll::Ready(Ok(local)) = local {
                came.push((local, to.clone()));
            }
        }
        let moved = !came.is_empty();
        for (local, to) in came {
            match (local, to) {
                (Local::Tcp(_), Target::Socks) if self.pending.len() >= MAX_OPENING => {
                    self.warn("SOCKS: too many at once")
                }
                (Local::Tcp(mut stream), Target::Socks) => {
                    self.pending.spawn(async move {
                        let asked = tokio::time::timeout(socks::ASK_TIME, socks::ask(&mut stream)).await;
                        let asked = asked.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
                        TaskResult::Wants(stream, asked)
                    });
                }
                (local, to) => {
                    if let Local::Tcp(stream) = &local {
                        let _ = stream.set_nodelay(true);
                    }
                    self.lead(local, &to);
                }
            }
        }
        moved
    }
}

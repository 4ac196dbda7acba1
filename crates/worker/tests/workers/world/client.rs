//! An SSH client that accepts whatever the server opens, and writes down what happens to it.

use fleetgate_ssh::auth;
use fleetgate_ssh::event::{AuthReply, ChannelId, ChannelKind, Global, Reason, Request, Stream};
use fleetgate_ssh::{Connection, driver};
use fleetgate_sys::{Errno, Fd, net, stream};
use fleetgate_wire::node;

/// One client.
pub struct Client {
    pub core: Connection,
    pub socket: Fd,
    pub number: node::ConnectionNumber,
    pub said: Vec<Said>,
    /// The front's part of it ended, in its words.
    pub over: Option<String>,
    /// What comes on this channel is not consumed.
    pub hoard: Option<ChannelId>,
    /// No more is read from the socket.
    pub deaf: bool,
    /// The server's DISCONNECT, or our own end.
    pub end: Option<String>,
}

/// What happened to a client, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Said {
    LoggedIn,
    Opened(u32),
    OpenFailed(u32, u32),
    Open(u32, ChannelKind),
    Data(u32, Stream, Vec<u8>),
    Replied(u32, bool),
    Exit(u32, u32),
    Signal(u32, String),
    Eof(u32),
    Closed(u32),
    Global(bool, Vec<u8>),
    HostKeys(usize),
}

impl Client {
    /// Writes and reads what there is.
    pub(super) fn turn(&mut self) {
        use fleetgate_ssh::event::Event;
        if self.end.is_some() {
            return;
        }
        loop {
            let fd = self.socket.raw();
            let written = driver::write(&mut self.core, |out| stream::send_now(fd, out));
            if written.is_err_and(|e| e != Errno::EAGAIN) && self.deaf {
                return;
            }
            match self.core.poll() {
                Err(end) => {
                    self.end = Some(end.to_string());
                    let _ = driver::write(&mut self.core, |out| stream::send_now(fd, out));
                    return;
                }
                Ok(Some(event)) => {
                    let said = match event {
                        Event::HostKey(_) => {
                            self.core.trust_host(true);
                            None
                        }
                        Event::Established => {
                            let request = auth::Request::none(b"somebody");
                            self.core.authenticate(&request);
                            None
                        }
                        Event::AuthReply(AuthReply::Accepted) => Some(Said::LoggedIn),
                        Event::Opened(c) => Some(Said::Opened(c.0)),
                        Event::OpenFailed { channel, reason, .. } => {
                            Some(Said::OpenFailed(channel.0, reason))
                        }
                        Event::Open { channel, kind } => {
                            self.core.accept(channel);
                            Some(Said::Open(channel.0, kind))
                        }
                        Event::Data {
                            channel,
                            stream,
                            bytes,
                        } => {
                            let (n, said) = (bytes.len(), Said::Data(channel.0, stream, bytes.to_vec()));
                            if self.hoard != Some(channel) {
                                self.core.consumed(channel, n);
                            }
                            Some(said)
                        }
                        Event::Replied { channel, done } => Some(Said::Replied(channel.0, done)),
                        Event::Request { channel, request, .. } => match request {
                            Request::ExitStatus { code } => Some(Said::Exit(channel.0, code)),
                            Request::ExitSignal { name, .. } => Some(Said::Signal(
                                channel.0,
                                String::from_utf8_lossy(&name).into_owned(),
                            )),
                            _ => None,
                        },
                        Event::Eof(c) => Some(Said::Eof(c.0)),
                        Event::Closed(c) => Some(Said::Closed(c.0)),
                        Event::GlobalReplied { done } => {
                            Some(Said::Global(done.is_some(), done.unwrap_or_default().to_vec()))
                        }
                        Event::Global {
                            request: Global::HostKeys { keys },
                            ..
                        } => Some(Said::HostKeys(keys.len())),
                        _ => None,
                    };
                    self.said.extend(said);
                }
                Ok(None) if self.deaf => return,
                Ok(None) => match driver::read(&mut self.core, 65536, |room| stream::receive_now(fd, room)) {
                    Ok(Some(0)) => {
                        self.end = Some("closed".to_owned());
                        return;
                    }
                    Ok(_) => {}
                    Err(Errno::EAGAIN) => return,
                    Err(e) => {
                        self.end = Some(e.to_string());
                        return;
                    }
                },
            }
        }
    }

    /// Everything said about a channel but data, in order.
    pub fn steps(&self, channel: ChannelId) -> Vec<Said> {
        let about = |s: &&Said| match s {
            Said::Opened(c) | Said::Replied(c, _) | Said::Exit(c, _) | Said::Signal(c, _) => *c == channel.0,
            Said::Eof(c) | Said::Closed(c) => *c == channel.0,
            _ => false,
        };
        self.said.iter().filter(about).cloned().collect()
    }

    /// What was said about a number before it was used again.
    pub(super) fn forget(&mut self, channel: ChannelId) {
        self.said
            .retain(|s| !matches!(s, Said::Data(c, ..) if *c == channel.0));
        let steps = self.steps(channel);
        self.said.retain(|s| !steps.contains(s));
    }

    /// Cuts the connection.
    pub fn cut(&mut self) {
        net::shut(&self.socket).expect("it is connected");
        self.end = Some("cut".to_owned());
    }

    /// Disconnects.
    pub fn disconnect(&mut self) {
        self.core.disconnect(Reason::ByApplication, "bye");
    }
}

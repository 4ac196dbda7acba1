//! The launching side of a PAM session: asks the resolver for one, carries the conversation to a callback, has the
//! helper started inside it, hears of its end. It never calls PAM itself and keeps no answer.
//!
//! What differs from a launch without PAM: the helper is a child of the PAM process, so its exit code comes as a
//! word ([`PamSession::wait_end`]) and not from waiting. The PAM session is held open from the first try of a launch to
//! its last: a helper that dies of its image is started again in it, and nobody is asked for his password twice.

use crate::LaunchError;
use fleetgate_sys::poll::{READ, Watch, poll};
use fleetgate_sys::process::Exit;
use fleetgate_sys::spawn::{Child, SpawnError, Step};
use fleetgate_sys::{Errno, Fd, socket};
use fleetgate_wire::common::Variable;
use fleetgate_wire::pam::{FromPam, Prompt, Secret, Start, ToPam, answers_frame, wipe};
use fleetgate_wire::resolver::ToResolver;
use std::ffi::{CStr, CString};
use std::fmt;
use std::time::{Duration, Instant};

/// Why there is no PAM session.
#[derive(Debug)]
pub enum PamError {
    /// A module said no; nothing is open.
    Refused {
        /// The call: `pam_authenticate`, `pam_acct_mgmt`, …
        call: CString,
        /// PAM's code.
        code: i32,
        /// PAM's words.
        message: CString,
    },
    /// The PAM process is gone: a module crashed, or hung beyond its bound.
    Died,
    /// It did not answer in time.
    TimedOut(Duration),
    /// It said what does not belong there.
    Unexpected(String),
    /// A system call failed.
    System(&'static str, Errno),
}

impl fmt::Display for PamError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PamError::Refused { call, code, message } => write!(
                f,
                "PAM refused: {}: {} (code {code}); see the service's file in /etc/pam.d",
                call.to_string_lossy(),
                message.to_string_lossy()
            ),
            PamError::Died => f.write_str(
                "the PAM process ended without a word: one of the service's modules in /etc/pam.d crashed or hung",
            ),
            PamError::TimedOut(after) => write!(
                f,
                "PAM did not answer within {} ms: one of the service's modules in /etc/pam.d hangs",
                after.as_millis()
            ),
            PamError::Unexpected(word) => write!(
                f,
                "the PAM process said {word}, which does not belong there; server and resolver are of different builds"
            ),
            PamError::System(doing, errno) => write!(f, "{doing}: {errno}"),
        }
    }
}

impl std::error::Error for PamError {}

/// Who answers prompts: one answer per prompt that asks; none gives up.
pub type Prompter<'a> = &'a mut dyn FnMut(&[Prompt]) -> Option<Vec<Secret>>;

/// What an opened PAM session gives to the order.
#[derive(Debug)]
pub struct PamSetup {
    /// Variables that the modules set.
    pub environment: Vec<Variable>,
    /// The supplementary groups as the modules left them.
    pub groups: Vec<u32>,
    /// The PAM process.
    pub process: i32,
}

/// The way into a PAM session that is open, for another launch. It keeps no session open.
#[derive(Debug)]
pub struct PamDoor(Fd);

impl PamDoor {
    /// A launching side of its own, which hears of its own helpers alone; none: the session is over.
    pub fn join(&self, patience: Duration) -> Option<(PamSession, PamSetup)> {
        let (ours, theirs) = socket::pair().ok()?;
        socket::send(&self.0, &fleetgate_wire::encode(&ToPam::Join), &[theirs.raw()]).ok()?;
        drop(theirs);
        let mut session = PamSession::accepted(ours, patience);
        let (opened, _) = session.hear(Some(patience)).ok()?;
        Some((session, setup(opened).ok()?))
    }
}

/// What is heard of a PAM session after its launch.
#[derive(Debug, PartialEq, Eq)]
pub enum PamEvent {
    /// Its helper, or the program that it became, ended so.
    Exited(Exit),
    /// It is closed; a sentence for each close call that failed.
    Ended(Vec<CString>),
}

/// A PAM session being made, open, or ending. Dropping it before a launch closes it.
pub struct PamSession {
    socket: Fd,
    buffer: Vec<u8>,
    patience: Duration,
}

impl PamSession {
    /// Asks the resolver on its control socket. Returns when the user may come in, with his name as the modules
    /// have it. `patience` bounds each wait for a word, the user's own time to answer not counted.
    pub fn begin(
        resolver: &Fd,
        start: Start,
        patience: Duration,
        talk: Prompter<'_>,
    ) -> Result<(PamSession, CString), PamError> {
        let (ours, theirs) = socket::pair().map_err(|e| PamError::System("making the PAM socket", e))?;
        let frame = fleetgate_wire::encode(&ToResolver::Pam { start });
        socket::send(resolver, &frame, &[theirs.raw()])
            .map_err(|e| PamError::System("asking the resolver for a PAM session", e))?;
        drop(theirs);
        let mut session = PamSession {
            socket: ours,
            buffer: vec![0; fleetgate_wire::MAX_INLINE],
            patience,
        };
        match session.converse(talk)? {
            FromPam::Accepted { user, .. } => Ok((session, user)),
            other => Err(unexpected(&other)),
        }
    }

    /// Takes up a conversation that somebody else led to [`FromPam::Accepted`] on `socket`.
    pub fn accepted(socket: Fd, patience: Duration) -> PamSession {
        PamSession {
            socket,
            buffer: vec![0; fleetgate_wire::MAX_INLINE],
            patience,
        }
    }

    /// Establishes credentials and opens the session in this terminal.
    pub fn open(&mut self, tty: &CStr, talk: Prompter<'_>) -> Result<PamSetup, PamError> {
        self.say(&ToPam::Open { tty: tty.into() }, &[])?;
        setup(self.converse(talk)?)
    }

    /// The same, with a door for others.
    pub fn open_with_door(
        &mut self,
        tty: &CStr,
        talk: Prompter<'_>,
    ) -> Result<(PamSetup, PamDoor), PamError> {
        let (ours, theirs) = socket::pair().map_err(|e| PamError::System("making the PAM socket", e))?;
        self.say(&ToPam::Open { tty: tty.into() }, &[theirs.raw()])?;
        drop(theirs);
        Ok((setup(self.converse(talk)?)?, PamDoor(ours)))
    }

    /// Readable when [`PamSession::heard`] has something, for who waits with epoll.
    pub fn socket(&self) -> &Fd {
        &self.socket
    }

    /// What there is to hear of a session whose helper was launched; none: nothing yet. After [`PamEvent::Ended`] and after
    /// an error there is nothing more.
    pub fn heard(&mut self) -> Result<Option<PamEvent>, PamError> {
        loop {
            let mut watch = [Watch::new(self.socket.raw(), READ)];
            if poll(&mut watch, Some(0)).map_err(|e| PamError::System("listening to PAM", e))? == 0 {
                return Ok(None);
            }
            match self.hear(None)?.0 {
                FromPam::Exited {
                    signalled,
                    status,
                    core,
                    ..
                } => return Ok(Some(PamEvent::Exited(exit(signalled, status, core)))),
                FromPam::Ended { close_errors } => return Ok(Some(PamEvent::Ended(close_errors))),
                // Modules that close a session may say something, and whom they said it to is gone.
                FromPam::Ask { prompts } => {
                    if prompts.iter().any(Prompt::asks) {
                        self.say(&ToPam::Abort, &[])?;
                    }
                }
                other => return Err(unexpected(&other)),
            }
        }
    }

    /// Waits, without bound, for the helper's end and for the PAM session's: how the helper ended, and a sentence
    /// for each close call that failed.
    pub fn wait_end(mut self) -> Result<(Exit, Vec<CString>), PamError> {
        let mut exit = None;
        loop {
            let (word, _) = self.hear(None)?;
            match word {
                FromPam::Exited {
                    signalled,
                    status,
                    core,
                    ..
                } => {
                    exit = Some(self::exit(signalled, status, core));
                }
                FromPam::Ended { close_errors } => {
                    return exit.map(|exit| (exit, close_errors)).ok_or(PamError::Died);
                }
                FromPam::Ask { prompts } if !prompts.iter().any(Prompt::asks) => {}
                other => return Err(unexpected(&other)),
            }
        }
    }

    /// Has the PAM process start a helper.
    pub(crate) fn start(
        &mut self,
        subcommand: &CStr,
        image: &Fd,
        control: &Fd,
        null: &Fd,
        cgroup: Option<&Fd>,
    ) -> Result<Result<Child, SpawnError>, LaunchError> {
        let word = ToPam::Launch {
            subcommand: subcommand.into(),
            cgroup: cgroup.is_some(),
            hold: true,
        };
        let mut fds = vec![image.raw(), control.raw(), null.raw()];
        fds.extend(cgroup.map(Fd::raw));
        socket::send(&self.socket, &fleetgate_wire::encode(&word), &fds)
            .map_err(LaunchError::system("asking the PAM process for the helper"))?;
        let patience = self.patience;
        let heard = loop {
            match self.hear(Some(patience)) {
                // A helper of an earlier try; its end is known already.
                Ok((FromPam::Exited { .. }, _)) => {}
                Ok(heard) => break heard,
                Err(e) => return Err(LaunchError::Pam(e.to_string())),
            }
        };
        match heard {
            (FromPam::Started { pid }, fds) => match fds.into_iter().next() {
                Some(pidfd) => Ok(Ok(Child {
                    pid,
                    pidfd,
                    fallback: None,
                })),
                None => Err(LaunchError::BadReply("Started came without a pidfd".to_owned())),
            },
            (FromPam::NotStarted { step, errno }, _) => {
                let step = match step {
                    1 => Step::Clone,
                    2 => Step::Descriptors,
                    3 => Step::Exec,
                    4 => Step::Cgroup,
                    5 => Step::Stack,
                    other => return Err(LaunchError::BadReply(format!("not started at step {other}"))),
                };
                let errno = Errno(errno);
                Ok(Err(SpawnError { step, errno }))
            }
            (other, _) => Err(LaunchError::Pam(unexpected(&other).to_string())),
        }
    }

    /// No other try is coming: the session ends with its last helper. Who is gone needs not be told.
    pub(crate) fn settle(&self) {
        let _ = self.say(&ToPam::Settled, &[]);
    }

    /// Answers prompts until another word comes.
    fn converse(&mut self, talk: Prompter<'_>) -> Result<FromPam, PamError> {
        loop {
            let (word, _) = self.hear(Some(self.patience))?;
            let prompts = match word {
                FromPam::Ask { prompts } => prompts,
                other => return Ok(other),
            };
            match talk(&prompts) {
                // Messages alone want no answer.
                _ if !prompts.iter().any(Prompt::asks) => {}
                Some(answers) => {
                    let mut frame = answers_frame(answers);
                    let sent = socket::send(&self.socket, &frame, &[]);
                    wipe(&mut frame);
                    sent.map_err(|e| PamError::System("answering PAM", e))?;
                }
                None => self.say(&ToPam::Abort, &[])?,
            }
        }
    }

    fn say(&self, word: &ToPam, fds: &[i32]) -> Result<(), PamError> {
        match socket::send(&self.socket, &fleetgate_wire::encode(word), fds) {
            Err(Errno::EPIPE | Errno::ECONNRESET) => Err(PamError::Died),
            other => other.map_err(|e| PamError::System("speaking to the PAM process", e)),
        }
    }

    /// The next word. A refusal is an error whenever it comes.
    fn hear(&mut self, patience: Option<Duration>) -> Result<(FromPam, Vec<Fd>), PamError> {
        let started = Instant::now();
        let wait_ms = patience.map(fleetgate_sys::poll::milliseconds);
        let mut watch = [Watch::new(self.socket.raw(), READ)];
        let ready = poll(&mut watch, wait_ms).map_err(|e| PamError::System("waiting for PAM", e))?;
        if ready == 0 {
            return Err(PamError::TimedOut(started.elapsed()));
        }
        let got = match socket::receive(&self.socket, &mut self.buffer, true) {
            Err(Errno::ECONNRESET) => return Err(PamError::Died),
            other => other.map_err(|e| PamError::System("hearing PAM", e))?,
        };
        if got.len == 0 {
            return Err(PamError::Died);
        }
        if got.truncated {
            return Err(PamError::Unexpected("a frame that is too long".to_owned()));
        }
        let word = fleetgate_wire::decode(&self.buffer[..got.len])
            .map_err(|e| PamError::Unexpected(format!("no word of its own ({e})")))?;
        match word {
            FromPam::Refused { call, code, message } => Err(PamError::Refused { call, code, message }),
            word => Ok((word, got.fds)),
        }
    }
}

fn setup(word: FromPam) -> Result<PamSetup, PamError> {
    match word {
        FromPam::Opened {
            environment,
            groups,
            process,
        } => Ok(PamSetup {
            environment,
            groups,
            process,
        }),
        other => Err(unexpected(&other)),
    }
}

fn exit(signalled: bool, status: i32, core: bool) -> Exit {
    match signalled {
        true => Exit::Signal { number: status, core },
        false => Exit::Code(status),
    }
}

fn unexpected(word: &FromPam) -> PamError {
    PamError::Unexpected(
        match word {
            FromPam::Ask { .. } => "Ask",
            FromPam::Accepted { .. } => "Accepted",
            FromPam::Opened { .. } => "Opened",
            FromPam::Started { .. } => "Started",
            FromPam::NotStarted { .. } => "NotStarted",
            FromPam::Exited { .. } => "Exited",
            FromPam::Ended { .. } => "Ended",
            FromPam::Refused { .. } => "Refused",
        }
        .to_owned(),
    )
}

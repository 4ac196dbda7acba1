//! The monitor's side: which sessions are recorded, how far each recording is, and what the recorder is to be told. It decides
//! nothing about sessions; what it finds out, the caller acts on. The recorder is not believed: a chain only grows, and what
//! was signed stays signed.

use crate::directory::begun::Begun;
use crate::directory::{self, Made};
use crate::shares::{PARTS, Shares};
use crate::upload::Extent;
use fleetgate_policy::recording::{Recipient, Recording, RecordingFailure};
use fleetgate_record::age::{MAX_RECIPIENTS, Recipients};
use fleetgate_record::block::{HEAD, MAX_STORED};
use fleetgate_record::frame::{Frame, Kind};
use fleetgate_record::signature::{self, Statement};
use fleetgate_record::writer::{Position, Writer};
use fleetgate_sys::{Fd, clock, file};
use fleetgate_wire::common::SessionId;
use fleetgate_wire::node::ConnectionNumber;
use fleetgate_wire::node::front::{Recorded, Ticket};
use fleetgate_wire::node::recorder::{self as wire, CREDIT, MAX_JSON, ToRecorder};
use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// A running recording is signed so often at most. The next signature covers what came meanwhile, and the end has its own.
const SIGN_EVERY: Duration = Duration::from_secs(1);
/// Behind its end so many at most: the one that was under way, one that came too late, and the last one. An honest recorder
/// needs no more.
const END_SIGNATURES: u32 = 4;

/// Of the events that the recorder may still be sent, one session may have one in so many under way.
const SHARE: usize = 4;

/// All of one monitor.
#[derive(Default)]
pub struct Recordings {
    all: BTreeMap<SessionId, OpenRecording>,
    outbox: Vec<(ToRecorder, Vec<Fd>)>,
    /// Of which sessions the events are that the recorder has not taken yet, in its order.
    under_way: VecDeque<SessionId>,
    /// The directory holds as much as it may; whoever looks after it says so.
    full: Arc<AtomicBool>,
    /// Little is left of it, likewise.
    scarce: Arc<AtomicBool>,
    shares: Shares,
    grew: Option<Grew>,
}

/// Hears how far a recording can be sent to others.
pub type Grew = Box<dyn Fn(SessionId, PathBuf, Extent)>;

/// Whose recording it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Whose {
    /// The session's connection.
    pub connection: ConnectionNumber,
    /// Its number there.
    pub ticket: Ticket,
    /// The account.
    pub login: String,
    /// The user, or else the account: whose share of the directory it takes.
    pub user: String,
}

/// What follows from something that the recorder said.
#[derive(Debug, PartialEq, Eq)]
pub enum Next {
    /// Nothing.
    Nothing,
    /// This is to be signed ([`Recordings::signed`]).
    Sign(Statement),
    /// It is whole.
    Done {
        /// Whose.
        whose: Whose,
        /// How it is.
        at: Position,
    },
}

/// The files of a session that may begin. They are removed where it does not.
pub struct Prepared {
    session: SessionId,
    begun: Begun,
    made: Option<Made>,
    /// Where frames go, unless nothing but events comes.
    pipe: Option<(Fd, Fd)>,
    input: bool,
    on_failure: RecordingFailure,
    recipients: Vec<[u8; 32]>,
}

struct OpenRecording {
    whose: Whose,
    begun: Begun,
    made: Made,
    on_failure: RecordingFailure,
    /// For whom it is encrypted.
    recipients: Vec<[u8; 32]>,
    /// Microseconds of CLOCK_MONOTONIC.
    since: u64,
    at: Position,
    /// A signature is on its way.
    is_signing: bool,
    signed_at: Option<Duration>,
    /// Blocks that a signature covers.
    signed: u64,
    /// The length of the file that the signature covers which is on its way.
    covers: u64,
    /// How it ended.
    end: Option<(u64, Vec<u8>)>,
    /// Its events that the recorder has not taken yet.
    under_way: usize,
    /// Its end is in the file.
    has_end: bool,
    /// So many signatures were asked for since.
    end_signatures: u32,
    /// Events that were not sent, because the recorder is behind.
    lost: u64,
}

/// Makes the files of a session, which is noted in `begun`; an error is a sentence. `has_stream`: it has a terminal or pipes, and is no file server.
pub fn prepare(
    (root, begun): (&Path, Begun),
    session: SessionId,
    (recording, on_failure): (Recording, RecordingFailure),
    recipients: &[Recipient],
    has_stream: bool,
) -> Result<Prepared, String> {
    let recipients: Vec<[u8; 32]> = recipients.iter().map(|recipient| recipient.0).collect();
    if !recipients.is_empty() && Recipients::new(&recipients).is_none() {
        return Err(format!(
            "it cannot be encrypted for its {} recipients: there are more than {MAX_RECIPIENTS}, or one is no sound key",
            recipients.len()
        ));
    }
    let pipe = has_stream.then(pipe).transpose()?;
    begun.note(&session)?;
    let made = directory::make(root, &session).inspect_err(|_| begun.forget(&session))?;
    Ok(Prepared {
        session,
        begun,
        made: Some(made),
        pipe,
        input: recording == Recording::Full,
        on_failure,
        recipients,
    })
}

fn pipe() -> Result<(Fd, Fd), String> {
    let made = file::pipe().and_then(|(read, write)| {
        read.set_nonblocking(true)?;
        write.set_nonblocking(true)?;
        Ok((read, write))
    });
    made.map_err(|e| format!("making a pipe: {e}"))
}

impl Drop for Prepared {
    fn drop(&mut self) {
        if let Some(made) = &self.made {
            directory::discard(&made.path);
            self.begun.forget(&self.session);
        }
    }
}

fn now() -> Duration {
    Duration::from_nanos(clock::monotonic().as_nanos().cast_unsigned())
}

/// Days since 1970.
fn today() -> i64 {
    clock::wall().sec / 86_400
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

impl Recordings {
    /// Whether the directory holds as much as it may.
    pub fn fullness(&self) -> &Arc<AtomicBool> {
        &self.full
    }

    /// Whether little is left of it.
    pub fn scarcity(&self) -> &Arc<AtomicBool> {
        &self.scarce
    }

    /// Whether this user gets no more of what is left of a directory of this size.
    pub fn has_enough(&self, user: &str, max_size: u64) -> bool {
        self.scarce.load(Ordering::Relaxed)
            && max_size > 0
            && self.shares.of(user, today()) > max_size / PARTS
    }

    /// The same of the user of a session that runs.
    pub fn has_enough_of(&self, session: &SessionId, max_size: u64) -> bool {
        let recording = self.all.get(session);
        recording.is_some_and(|recording| self.has_enough(&recording.whose.user, max_size))
    }

    /// Tells from now on how far recordings can be sent.
    pub fn tell_growth(&mut self, grew: Grew) {
        self.grew = Some(grew);
    }

    /// Whether there are some.
    pub fn is_needed(&self) -> bool {
        !self.all.is_empty()
    }

    /// Whether the recorder is to be told something.
    pub fn has_outbox(&self) -> bool {
        !self.outbox.is_empty()
    }

    /// What it is to be told, in this order.
    pub fn take_outbox(&mut self) -> Vec<(ToRecorder, Vec<Fd>)> {
        std::mem::take(&mut self.outbox)
    }

    /// The session runs: its front's end of the pipe, and what is recorded. `json` is the recording's first frame.
    pub fn begin(
        &mut self,
        mut prepared: Prepared,
        whose: Whose,
        json: &[u8],
    ) -> Result<Option<(Fd, Recorded)>, String> {
        let session = prepared.session;
        let (read, write) = prepared.pipe.take().unzip();
        let Some(made) = &prepared.made else {
            return Ok(None);
        };
        // Whose it is stands in the file before anything can be lost of it, with whatever process.
        let mut writer = Writer::at(Position::start(&session));
        writer.push(&Frame {
            kind: Kind::Begin,
            at: 0,
            bytes: json,
        });
        let block = writer.close(None).unwrap_or_default();
        file::write_all(made.blocks.raw(), &block).map_err(|e| format!("{}: {e}", made.path.display()))?;
        let fds = descriptors(made, read)?;
        let since = micros(now());
        let recording = OpenRecording {
            whose,
            begun: prepared.begun.clone(),
            made: prepared.made.take().ok_or("it has no files")?,
            on_failure: prepared.on_failure,
            recipients: std::mem::take(&mut prepared.recipients),
            since,
            at: *writer.position(),
            is_signing: false,
            signed_at: None,
            signed: 0,
            covers: 0,
            end: None,
            under_way: 0,
            has_end: false,
            end_signatures: 0,
            lost: 0,
        };
        let message = ToRecorder::Begin {
            session,
            at: on_the_wire(writer.position()),
            recipients: recording.recipients.clone(),
        };
        self.all.insert(session, recording);
        self.outbox.push((message, fds));
        let input = prepared.input;
        Ok(write.map(|write| (write, Recorded { input, since })))
    }

    /// Something of the session's audit log, as JSON.
    pub fn event(&mut self, session: &SessionId, json: &[u8]) {
        let Some(recording) = self.all.get_mut(session) else {
            return;
        };
        let json = json.trim_ascii();
        // One session has a part of what is left, so that something is left for others however many it has.
        let left = (CREDIT as usize).saturating_sub(self.under_way.len());
        if recording.under_way >= left.div_ceil(SHARE) || json.len() > MAX_JSON {
            recording.lost += 1;
            return;
        }
        let at = micros(now()).saturating_sub(recording.since);
        let lost = std::mem::take(&mut recording.lost);
        let mut event = |json: Vec<u8>| {
            self.under_way.push_back(*session);
            recording.under_way += 1;
            let session = *session;
            self.outbox
                .push((ToRecorder::Event { session, at, json }, Vec::new()));
        };
        match lost {
            0 => {}
            lost => event(format!(r#"{{"event":"recording_lost","count":{lost}}}"#).into_bytes()),
        }
        event(json.to_vec());
    }

    /// Whether a session of this connection is recorded.
    pub fn is_of(&self, connection: ConnectionNumber) -> bool {
        self.all.values().any(|of| of.whose.connection == connection)
    }

    /// What is in the pipe of a session is to be in its file; the recorder says when.
    pub fn flush(&mut self, session: &SessionId) {
        let session = *session;
        self.outbox.push((ToRecorder::Flush { session }, Vec::new()));
    }

    /// The file of a session's blocks, and how many of its bytes are whole blocks.
    pub fn file(&self, session: &SessionId) -> Option<(&Path, u64)> {
        let of = self.all.get(session)?;
        Some((&of.made.path, of.at.length))
    }

    /// Whether this session is recorded.
    pub fn is_recorded(&self, session: &SessionId) -> bool {
        self.all.contains_key(session)
    }

    /// The same for all sessions of a connection.
    pub fn event_of_connection(&mut self, connection: ConnectionNumber, json: &[u8]) {
        let of_it = self
            .all
            .iter()
            .filter(|(_, of)| of.whose.connection == connection);
        let sessions: Vec<SessionId> = of_it.map(|(session, _)| *session).collect();
        for session in sessions {
            self.event(&session, json);
        }
    }

    /// The session ended. Its recording does when its front has closed the pipe.
    pub fn end(&mut self, session: &SessionId, json: Vec<u8>) {
        if let Some(recording) = self.all.get_mut(session) {
            let at = micros(now()).saturating_sub(recording.since);
            recording.end = Some((at, json.clone()));
            let session = *session;
            self.outbox
                .push((ToRecorder::End { session, at, json }, Vec::new()));
        }
    }

    /// The recorder took so many events.
    pub fn took(&mut self, events: u32) {
        for session in self
            .under_way
            .drain(..(events as usize).min(self.under_way.len()))
        {
            if let Some(recording) = self.all.get_mut(&session) {
                recording.under_way -= 1;
            }
        }
    }

    /// The recorder says that the file is so long. An error: no honest recorder says that.
    pub fn closed(
        &mut self,
        session: &SessionId,
        at: &wire::Position,
        ended: bool,
    ) -> Result<Next, &'static str> {
        let Some(recording) = self.all.get_mut(session) else {
            return Ok(Next::Nothing);
        };
        let blocks = at.blocks.saturating_sub(recording.at.blocks);
        let most = blocks.saturating_mul((HEAD + MAX_STORED) as u64);
        let grew = blocks > 0 && at.length > recording.at.length && at.length - recording.at.length <= most;
        if !grew || ended && recording.end.is_none() || recording.has_end && !ended {
            return Err(CANNOT_BE);
        }
        self.shares
            .grew(&recording.whose.user, today(), at.length - recording.at.length);
        recording.has_end = ended;
        recording.at = Position {
            blocks: at.blocks,
            chain: at.chain,
            anchor: at.anchor,
            length: at.length,
            last: at.last,
        };
        let is_signature = at.chain != at.anchor;
        if is_signature {
            recording.is_signing = false;
            // The end is a block as any other, and has to be covered as well.
            if ended && recording.signed + 1 >= at.blocks {
                return Ok(self.done(session));
            }
            if let Some(grew) = &self.grew {
                let (signed, length) = (recording.covers, at.length);
                grew(
                    *session,
                    recording.made.path.clone(),
                    Extent::Signed { signed, length },
                );
            }
        }
        let now = now();
        let is_due = recording
            .signed_at
            .is_none_or(|at| now.saturating_sub(at) >= SIGN_EVERY);
        let has_new = !is_signature || ended;
        if recording.is_signing || !has_new || !ended && !is_due {
            return Ok(Next::Nothing);
        }
        recording.sign(session)
    }

    /// A statement was signed, or cannot be: then what is whole stays unsigned.
    pub fn signed(&mut self, statement: &Statement, signature: Option<Vec<u8>>) -> Next {
        let session = statement.session;
        let Some(recording) = self.all.get_mut(&session) else {
            return Next::Nothing;
        };
        let Some(signature) = signature else {
            recording.is_signing = false;
            let is_whole = recording.end.is_some() && recording.at.blocks == statement.blocks;
            return if is_whole {
                self.done(&session)
            } else {
                Next::Nothing
            };
        };
        recording.signed = statement.blocks;
        let message = ToRecorder::Signature {
            session,
            blocks: statement.blocks,
            bytes: signature::encode(statement, &signature),
        };
        self.outbox.push((message, Vec::new()));
        Next::Nothing
    }

    /// A signature came too late to stand in the file. An error: no honest recorder says that.
    pub fn too_late(&mut self, session: &SessionId) -> Result<Next, &'static str> {
        let Some(recording) = self.all.get_mut(session).filter(|of| of.is_signing) else {
            return Ok(Next::Nothing);
        };
        let is_soon = recording
            .signed_at
            .is_some_and(|at| now().saturating_sub(at) < SIGN_EVERY);
        // The next block asks for one. Behind the end no block comes.
        if is_soon && !recording.has_end {
            recording.is_signing = false;
            return Ok(Next::Nothing);
        }
        recording.sign(session)
    }

    fn done(&mut self, session: &SessionId) -> Next {
        let Some(recording) = self.all.remove(session) else {
            return Next::Nothing;
        };
        directory::finish(&recording.made.path);
        recording.begun.forget(session);
        let session = *session;
        self.outbox.push((ToRecorder::Done { session }, Vec::new()));
        let OpenRecording { whose, at, made, .. } = recording;
        // Its lock goes with the file: others may have all of it.
        let Made { path, blocks, .. } = made;
        drop(blocks);
        if let Some(grew) = &self.grew {
            grew(session, path, Extent::Whole);
        }
        Next::Done { whose, at }
    }

    /// A session's recording cannot be gone on with: whose, and what is to follow. What is there stays, and is finished later
    /// as what a crash leaves.
    pub fn give_up(&mut self, session: &SessionId) -> Option<(Whose, RecordingFailure)> {
        let recording = self.all.remove(session)?;
        let session = *session;
        self.outbox.push((ToRecorder::Done { session }, Vec::new()));
        Some((recording.whose, recording.on_failure))
    }

    /// The session of a connection by its number there.
    pub fn by_ticket(&self, connection: ConnectionNumber, ticket: Ticket) -> Option<SessionId> {
        let is = |of: &OpenRecording| of.whose.connection == connection && of.whose.ticket == ticket;
        self.all
            .iter()
            .find(|(_, of)| is(of))
            .map(|(session, _)| *session)
    }

    /// The recorder is gone, and another one will be: every recording that can be gone on with, with its front's new end of the
    /// pipe; and those that cannot, with the reason.
    pub fn resume_all(&mut self) -> Vec<(SessionId, Whose, Result<Fd, String>)> {
        self.outbox.clear();
        self.under_way.clear();
        self.all
            .values_mut()
            .for_each(|recording| recording.under_way = 0);
        let mut resumed = Vec::new();
        let outbox = &mut self.outbox;
        // One that has its end lacks a signature only, which it gets as those do that a crash leaves.
        self.all.retain(|session, recording| {
            let written = match recording.resume(session) {
                Ok(None) => return false,
                Ok(Some((messages, write))) => {
                    outbox.extend(messages);
                    Ok(write)
                }
                Err(why) => Err(why),
            };
            resumed.push((*session, recording.whose.clone(), written));
            true
        });
        resumed
    }
}

type Message = (ToRecorder, Vec<Fd>);

/// Of a recorder that said what no honest one says.
const CANNOT_BE: &str = "it told of a recording that cannot be";

impl OpenRecording {
    /// Asks for a signature over what is there.
    fn sign(&mut self, session: &SessionId) -> Result<Next, &'static str> {
        self.end_signatures += u32::from(self.has_end);
        if self.end_signatures > END_SIGNATURES {
            return Err(CANNOT_BE);
        }
        self.is_signing = true;
        self.covers = self.at.length;
        self.signed_at = Some(now());
        Ok(Next::Sign(directory::statement(session, &self.at)))
    }

    /// What the next recorder is told of it, and the front's new end of the pipe; nothing if it is whole.
    fn resume(&mut self, session: &SessionId) -> Result<Option<(Vec<Message>, Fd)>, String> {
        match directory::mend(&self.made, &self.at).map_err(|e| e.to_string())? {
            Some(at) => self.at = at,
            None => return Ok(None),
        }
        self.is_signing = false;
        let (read, write) = pipe()?;
        let fds = descriptors(&self.made, Some(read))?;
        let at = on_the_wire(&self.at);
        let gap_at = micros(now()).saturating_sub(self.since);
        let missing = gap_at.saturating_sub(self.at.last) / 1000;
        let json = format!(r#"{{"reason":"the recorder was lost","after_ms":{missing}}}"#);
        let session = *session;
        let resume = ToRecorder::Resume {
            session,
            at,
            recipients: self.recipients.clone(),
            gap_at,
            json: json.into_bytes(),
        };
        let mut messages = vec![(resume, fds)];
        if let Some((at, json)) = self.end.clone() {
            messages.push((ToRecorder::End { session, at, json }, Vec::new()));
        }
        Ok(Some((messages, write)))
    }
}

fn on_the_wire(at: &Position) -> wire::Position {
    wire::Position {
        blocks: at.blocks,
        chain: at.chain,
        anchor: at.anchor,
        length: at.length,
        last: at.last,
    }
}

/// What goes to the recorder of a recording.
fn descriptors(made: &Made, pipe: Option<Fd>) -> Result<Vec<Fd>, String> {
    let mut fds: Vec<Fd> = directory::for_writing(&made.path)?.into();
    fds.extend(pipe);
    Ok(fds)
}

#[cfg(test)]
mod tests;

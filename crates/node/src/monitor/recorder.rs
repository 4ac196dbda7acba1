//! Recordings of sessions: the recorder is started with the first, and told what is to be recorded; it hears nothing else of
//! the node. What it says is held against what is known of each recording (`fleetgate_recorder::recordings`). Here is what
//! follows for sessions, for the audit log, and what is signed.

mod housekeeping;

use super::Monitor;
use super::audit::Event;
use super::live;
use super::sessions::ENOUGH;
use super::timers::Timer;
use super::tools::Tools;
use super::wakes::{Key, Owner};
use super::workers::{WorkerId, WorkerKind};
use fleetgate_policy::recording::RecordingFailure;
use fleetgate_recorder::recordings::{Next, Whose};
use fleetgate_sys::clock::Time;
use fleetgate_wire::common::SessionId;
use fleetgate_wire::node::ConnectionNumber;
use fleetgate_wire::node::front::{Ticket, ToFront};
use fleetgate_wire::node::recorder::FromRecorder;
use std::time::Duration;

pub use housekeeping::{Answer, Housekeeping};

/// So long the recorder stays when nothing is recorded: the next session is often close behind.
const IDLE: Duration = Duration::from_secs(60);
/// So long none is started after one died before it was ready.
const PAUSE: Duration = Duration::from_secs(1);
/// What the user of such a session reads.
const UNRECORDED: &str =
    "the session was ended: it has to be recorded, and cannot be any more; the host's log says why";
/// One session gets no more of the directory than one part of so many: nobody fills it with one.
const SHARE: u64 = 10;
/// So long the last recordings of a node that ends may take to be finished.
const FINISH: Duration = Duration::from_secs(10);
const FINISH_KEY: Key = Key::new(Owner::Recorder, 2);
const IDLE_KEY: Key = Key::new(Owner::Recorder, 0);
/// Recordings are there for the tunnel.
const GREW_KEY: Key = Key::new(Owner::Recorder, 3);
const AGAIN_KEY: Key = Key::new(Owner::Recorder, 1);

/// The process.
#[derive(Default)]
pub struct RecorderProcess {
    worker: Option<WorkerId>,
    ready: bool,
    idle: Option<Timer>,
    pause: Option<Timer>,
    /// The last session has ended; until when its recording is waited for.
    finish: Option<Timer>,
    /// That is over.
    is_late: bool,
}

impl RecorderProcess {
    pub(crate) fn is(&self, worker: WorkerId) -> bool {
        self.worker == Some(worker)
    }
}

impl Tools {
    /// Tells an event of a session to the audit log, and to its recording.
    pub(crate) fn tell_recorded(&mut self, session: &SessionId, at: Time, event: Event) {
        if self.recordings.is_recorded(session) {
            let mut line = Vec::new();
            event.write_line(at, &mut line);
            self.recordings.event(session, &line);
        }
        self.audit.tell_at(at, event);
    }
}

impl Monitor {
    /// Recordings that were begun, or about which there is something new, in this turn.
    pub(crate) fn record_sessions(&mut self) {
        if !self.tools.recordings.has_outbox() {
            return;
        }
        if let Some(timer) = self.recorder.idle.take() {
            self.tools.timers.cancel(timer);
        }
        if self.recorder.worker.is_none() {
            if self.recorder.pause.is_some() {
                return;
            }
            if !self.housekeeping.runs() {
                self.housekeeping.run(&mut self.tools, &self.offer);
            }
            match self.workers.start(WorkerKind::Recorder, &self.tools.wakes) {
                Ok(id) => self.recorder.worker = Some(id),
                Err(e) => {
                    tracing::error!("the recorder is not started: {e}");
                    return self.pause_recorder();
                }
            }
        }
        let Some(worker) = self.recorder.worker else {
            return;
        };
        for (message, fds) in self.tools.recordings.take_outbox() {
            self.workers.say(worker, &message, fds, &self.tools.wakes);
        }
    }

    fn pause_recorder(&mut self) {
        if self.recorder.pause.is_none() {
            self.recorder.pause = Some(self.tools.timers.after(PAUSE, AGAIN_KEY));
        }
    }

    /// The recorder says something.
    pub(crate) fn recorder_says(&mut self, worker: WorkerId, frame: &[u8]) {
        let message = match fleetgate_wire::decode::<FromRecorder>(frame) {
            Ok(message) => message,
            Err(e) => {
                let why = format!("it asked for what it may not: {e}");
                return self.workers.end(worker, &why);
            }
        };
        match message {
            FromRecorder::Ready => self.recorder.ready = true,
            FromRecorder::Closed { session, at, ended } => {
                match self.tools.recordings.closed(&session, &at, ended) {
                    Ok(next) => {
                        self.recording_next(&session, next);
                        let max_size = self.tools.config.recording.max_size.0;
                        let most = max_size / SHARE;
                        if self.tools.recordings.has_enough_of(&session, max_size) {
                            self.not_recorded(&session, ENOUGH);
                        } else if most > 0 && at.length > most {
                            self.not_recorded(
                                &session,
                                "its recording has come to a tenth of recording.max_size",
                            );
                        }
                    }
                    Err(why) => self.workers.end(worker, why),
                }
            }
            FromRecorder::Flushed { session } => live::recorded(&mut self.tools, &session),
            FromRecorder::TooLate { session } => match self.tools.recordings.too_late(&session) {
                Ok(next) => self.recording_next(&session, next),
                Err(why) => self.workers.end(worker, why),
            },
            FromRecorder::More { events } => self.tools.recordings.took(events),
            FromRecorder::Failed { session, why } => {
                self.not_recorded(&session, &why.to_string_lossy());
            }
        }
        self.recorder_perhaps_idle();
    }

    fn recording_next(&mut self, session: &SessionId, next: Next) {
        match next {
            Next::Nothing => {}
            Next::Sign(statement) => {
                let signature = self.offer.keys.sign_recording(&statement.text());
                let next = self.tools.recordings.signed(&statement, signature);
                if next != Next::Nothing {
                    self.recording_next(session, next);
                }
            }
            Next::Done { whose, at } => self.tools.audit.tell(Event::Recorded {
                connection: Some(whose.connection),
                login: Some(whose.login),
                session: *session,
                blocks: at.blocks,
                bytes: at.length,
                chain: hex(&at.chain),
                recovered: false,
            }),
        }
    }

    /// A front says that the recorder takes nothing of a session.
    pub(crate) fn recorder_is_stuck(&mut self, connection: ConnectionNumber, ticket: Ticket) {
        if let Some(session) = self.tools.recordings.by_ticket(connection, ticket) {
            self.not_recorded(&session, "the recorder took nothing for 5 s");
        }
    }

    /// A session's recording cannot go on: the session ends, or it goes on without.
    fn not_recorded(&mut self, session: &SessionId, why: &str) {
        let Some((whose, on_failure)) = self.tools.recordings.give_up(session) else {
            return;
        };
        tracing::error!(
            connection = whose.connection,
            login = whose.login,
            "a session is recorded no more: {why}"
        );
        let ended = on_failure == RecordingFailure::End;
        let Whose {
            connection, ticket, ..
        } = whose;
        self.tools.audit.tell(Event::NotRecorded {
            connection,
            login: whose.login,
            session: *session,
            reason: why.to_owned(),
            ended,
        });
        if ended {
            self.sessions.end_announced(&mut self.tools, session, UNRECORDED);
        }
        // Without a pipe: its output waits for the recorder no more.
        let message = ToFront::RecordAnew { connection, ticket };
        self.tools.to_fronts.say(connection, message, Vec::new());
    }

    /// It is gone. The next one goes on where it was.
    pub(crate) fn recorder_gone(&mut self, worker: WorkerId) {
        if !self.recorder.is(worker) {
            return;
        }
        self.recorder.worker = None;
        if !std::mem::take(&mut self.recorder.ready) {
            self.pause_recorder();
        }
        for (session, whose, pipe) in self.tools.recordings.resume_all() {
            let Whose {
                connection, ticket, ..
            } = whose;
            match pipe {
                Ok(pipe) => {
                    let message = ToFront::RecordAnew { connection, ticket };
                    self.tools.to_fronts.say(connection, message, vec![pipe]);
                }
                Err(why) => self.not_recorded(&session, &why),
            }
        }
        live::recorder_gone(&mut self.tools);
        self.record_sessions();
    }

    /// Whether no recording waits for its end and its signature, of a node that ends. The next one would finish it, and could
    /// not say how its session ended.
    pub(crate) fn recordings_are_done(&mut self) -> bool {
        let is_done = !self.tools.recordings.is_needed() || self.recorder.is_late;
        if !is_done && self.recorder.finish.is_none() {
            self.recorder.finish = Some(self.tools.timers.after(FINISH, FINISH_KEY));
        }
        is_done
    }

    /// A timer of its, or its thread.
    pub(crate) fn recorder_woken(&mut self, id: u64) {
        if live::woken(&mut self.tools, id) {
            return;
        }
        if id == FINISH_KEY.id {
            self.recorder.is_late = true;
            return;
        }
        if id == GREW_KEY.id {
            for (message, file) in self.housekeeping.offers() {
                self.tell_tunnel_with(&message, vec![file]);
            }
            return;
        }
        if id == AGAIN_KEY.id {
            self.recorder.pause = None;
            return self.record_sessions();
        }
        self.recorder.idle = None;
        if !self.tools.recordings.is_needed()
            && let Some(worker) = self.recorder.worker.take()
        {
            self.recorder.ready = false;
            self.workers.dismiss(worker);
        }
    }

    fn recorder_perhaps_idle(&mut self) {
        if !self.tools.recordings.is_needed() && self.recorder.idle.is_none() {
            self.recorder.idle = Some(self.tools.timers.after(IDLE, IDLE_KEY));
        }
    }
}

pub(super) fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::new(), |mut out, byte| {
        let _ = write!(out, "{byte:02x}");
        out
    })
}

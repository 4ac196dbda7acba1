//! What a recorded session's recording begins and ends with. Its files are made before the launch: a session that must be
//! recorded and cannot be is refused before anything of it runs.

use super::Session;
use super::pending::PendingSession;
use crate::monitor::audit::Event;
use crate::monitor::tools::Tools;
use fleetgate_base::own;
use fleetgate_orders::SessionRefusal;
use fleetgate_policy::permits::Program as Permitted;
use fleetgate_policy::recording::RecordingFailure;
use fleetgate_recorder::directory::KEPT_DAYS;
use fleetgate_recorder::directory::begun::Begun;
use fleetgate_recorder::recordings::{self, Prepared, Whose};
use fleetgate_sys::{Fd, clock};
use fleetgate_wire::common::SessionId;
use fleetgate_wire::node::ConnectionNumber;
use fleetgate_wire::node::front::Recorded;
use fleetgate_wire::node::recorder::MAX_JSON;
use serde_json::{Map, Value, json};
use std::sync::atomic::Ordering;
use std::time::Duration;

/// The most of a command line that is in a recording's first frame; the audit log has all of it.
const MAX_COMMAND: usize = MAX_JSON / 8;

/// Why there is no more room for one user.
pub(in crate::monitor) const ENOUGH: &str = "little is left of recording.max_size, and this user's recordings of the last days have \
     a quarter of it already";

/// A recording's files, or why there are none where the session goes on without; nothing where none is wanted.
pub(super) fn prepare(
    tools: &Tools,
    (connection, session): (ConnectionNumber, SessionId),
    (user, login): (Option<&str>, &str),
    pending: &PendingSession,
) -> Result<Option<Result<Prepared, String>>, SessionRefusal> {
    let (recording, on_failure) = pending.recording;
    if !recording.is_wanted() {
        return Ok(None);
    }
    let has_stream = !matches!(pending.decided.program, Permitted::Sftp { .. });
    let settings = &tools.config.recording;
    let max_size = settings.max_size.0;
    let prepared = match tools.recordings.fullness().load(Ordering::Relaxed) {
        false if tools.recordings.has_enough(user.unwrap_or(login), max_size) => Err(ENOUGH.to_owned()),
        false => own::unchanged(&settings.directory)
            .map_err(|e| e.to_string())
            .and_then(|()| {
                let begun = Begun::of(&tools.config.state_directory);
                recordings::prepare(
                    (&settings.directory, begun),
                    session,
                    pending.recording,
                    &pending.recipients,
                    has_stream,
                )
            }),
        true => Err(format!(
            "{} holds as much as it may (recording.max_size), and all of it is of the last {KEPT_DAYS} days: move recordings \
             away, or raise max_size",
            settings.directory.display()
        )),
    };
    if let Err(why) = &prepared {
        tracing::error!(login, "a session is not recorded: {why}");
        if on_failure == RecordingFailure::End {
            tools.audit.tell(Event::NotRecorded {
                connection,
                login: login.to_owned(),
                session,
                reason: why.clone(),
                ended: true,
            });
            // The reason is the machine's: every other connection would be refused too, and be one more event.
            let why = "the session has to be recorded, and cannot be; the host's log says why";
            return Err(SessionRefusal::new(why).finally());
        }
    }
    Ok(Some(prepared))
}

/// What came of a recording when its session began.
pub(super) struct BegunRecording {
    /// For the front: its end of the pipe, and what is recorded.
    pub(super) front: Option<(Fd, Recorded)>,
    /// For the audit log: how much is recorded, or why nothing is.
    pub(super) told: Result<Option<&'static str>, String>,
}

/// The session runs, and its recording begins.
pub(super) fn begin(
    tools: &mut Tools,
    session: &mut Session,
    pending: &PendingSession,
    prepared: Option<Result<Prepared, String>>,
) -> BegunRecording {
    let not = |told| BegunRecording { front: None, told };
    let prepared = match prepared {
        None => return not(Ok(None)),
        Some(Err(why)) => return not(Err(why)),
        Some(Ok(prepared)) => prepared,
    };
    let whose = Whose {
        connection: session.connection,
        ticket: session.ticket,
        login: session.login.clone(),
        user: session.user.as_ref().unwrap_or(&session.login).clone(),
    };
    let (recording, on_failure) = pending.recording;
    let first_frame = first_frame(tools, session, pending);
    match tools.recordings.begin(prepared, whose, &first_frame) {
        Ok(front) => BegunRecording {
            front,
            told: Ok(Some(recording.name())),
        },
        Err(why) => {
            tracing::error!(login = session.login, "a session is not recorded: {why}");
            session.kill_when_running |= on_failure == RecordingFailure::End;
            not(Err(why))
        }
    }
}

/// Who, where and what (docs/recording.md).
fn first_frame(tools: &Tools, session: &Session, pending: &PendingSession) -> Vec<u8> {
    let mut frame = Map::new();
    let mut put = |name: &str, value: Option<Value>| {
        if let Some(value) = value {
            frame.insert(name.to_owned(), value);
        }
    };
    let shown = |bytes: &[u8]| {
        let cut = &bytes[..bytes.len().min(MAX_COMMAND)];
        Value::from(String::from_utf8_lossy(cut).into_owned())
    };
    put("version", Some(1.into()));
    put(
        "session",
        Some(fleetgate_recorder::directory::name(&session.id).into()),
    );
    put("node", node_name(tools).map(Value::from));
    put("started", Some(clock::rfc3339(clock::wall(), 6).into()));
    put("user", session.user.clone().map(Value::from));
    put("login", Some(session.login.clone().into()));
    put("client", Some(session.source.to_string().into()));
    put("kind", Some(session.kind.name().into()));
    put("command", session.command.as_deref().map(shown));
    put(
        "terminal",
        pending.start.terminal.as_ref().map(|terminal| {
            let window = terminal.window();
            json!({
                "term": shown(&terminal.term),
                "columns": window.columns,
                "rows": window.rows,
            })
        }),
    );
    put("recording", Some(pending.recording.0.name().into()));
    if !pending.recipients.is_empty() {
        let recipients = pending.recipients.iter().map(ToString::to_string);
        put("recipients", Some(recipients.collect::<Vec<_>>().into()));
    }
    if !pending.roles.is_empty() {
        put("roles", Some(pending.roles.clone().into()));
    }
    put("keep_days", pending.recording_keep.map(|keep| days(keep).into()));
    // Roles choose whose recordings may be seen by the labels that the node had, also when it has others or has gone.
    let labels = tools.cluster.as_ref().map(|cluster| cluster.labels());
    put(
        "labels",
        labels.map(|labels| {
            labels
                .iter()
                .map(|(key, value)| (key, Value::from(value)))
                .collect()
        }),
    );
    let bytes = Value::Object(frame).to_string().into_bytes();
    match bytes.len() <= MAX_JSON {
        true => bytes,
        // Names of hundreds of roles: who it was stands in the audit log.
        false => json!({"version": 1, "login": session.login, "cut": true})
            .to_string()
            .into_bytes(),
    }
}

/// In days, a begun one counted as a whole one.
fn days(time: Duration) -> u64 {
    time.as_secs().div_ceil(86_400)
}

fn node_name(tools: &Tools) -> Option<String> {
    match &tools.cluster {
        Some(cluster) => Some(cluster.node().to_string()),
        None => std::fs::read_to_string("/proc/sys/kernel/hostname")
            .ok()
            .map(|name| name.trim().to_owned()),
    }
}

/// How it ended.
pub(super) fn end(code: Option<i32>, signal: Option<i32>) -> Vec<u8> {
    let ended = clock::rfc3339(clock::wall(), 6);
    let frame = match (code, signal) {
        (Some(code), _) => json!({"ended": ended, "status": code}),
        (None, Some(signal)) => json!({"ended": ended, "signal": signal}),
        (None, None) => json!({"ended": ended}),
    };
    frame.to_string().into_bytes()
}

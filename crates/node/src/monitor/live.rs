//! Sessions that others see while they run, or type in. Who may is for roles to say, and is asked again whenever the cluster's
//! state is another. Here are made the sockets between the session's front and the viewer's: the fronts never give this
//! process a descriptor, and it can cut each socket itself.
//!
//! ```text
//! viewer's front ─ Start(watch@fleetgate ID) ─►        View(+ socket) ─► session's front
//!                                              ◄─ Viewed: what is shown from now on goes to the viewer
//!                     recorder ◄─ Flush ─      ─ Flushed ─►          (a session that is recorded)
//! viewer's front ◄─ Viewing(+ socket, recording) ─
//! ```

mod decide;

use super::open_login::OpenLogin;
use super::sessions::{Sessions, ShownSession};
use super::tools::Tools;
use super::views::{Place, Stage, View, Viewer};
use super::wakes::{Key, Owner};
use crate::config::trust::Trust;
use fleetgate_orders::SessionRefusal;
use fleetgate_policy::cluster::{Reason, RecordingRight};
use fleetgate_policy::text::printable;
use fleetgate_record::live;
use fleetgate_sys::file::{self, flags};
use fleetgate_sys::{Fd, clock, memfd, net};
use fleetgate_wire::common::SessionId;
use fleetgate_wire::node::front::{Program, Start, Ticket, ToFront};
use fleetgate_wire::node::{ConnectionNumber, ProcessEnd};
use std::ffi::CString;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

/// The most viewers of one session, sessions that one user sees at once, and viewers in all.
const MAX_OF_SESSION: usize = 8;
const MAX_OF_USER: usize = 4;
/// The most of one session that are one user's.
const MAX_OWN_OF_SESSION: usize = 2;
const MAX_ALL: usize = 256;
/// A recording that is longer than this is not sent: its viewer begins with an empty screen. It is copied here.
const MAX_RECORDED: u64 = 4 << 20;

/// So long a viewer waits for the first that he sees. The session's front waits for the recorder, and the recorder for the disk.
const PATIENCE: Duration = Duration::from_secs(10);
/// Numbers of viewers among the ids of [`Owner::Recorder`].
const VIEWERS: u64 = 1 << 32;

const TOO_LATE: &str = "the session's recording is behind, and until it is not nobody else can see the session: try again in a moment";
const TOO_SLOW: &str = "you were let go: your connection takes less than the session shows";
const LEFT: &str = "left";
const CLIENT_LEFT: &str = "the session's user is gone";
const OVER: &str = "the session has ended";

/// What a request for a program asks to see: whether to type too, and the session's id.
pub fn asked(start: &Start) -> Option<(bool, Option<&str>)> {
    match &start.program {
        Program::Subsystem { name } => live::asked(name),
        _ => None,
    }
}

/// Somebody asks to see a session.
pub fn ask(
    tools: &mut Tools,
    (sessions, trust): (&Sessions, &Trust),
    open_login: &mut OpenLogin,
    ticket: Ticket,
    asked: (bool, Option<&str>),
) {
    if let Err(why) = begin(tools, (sessions, trust), open_login, ticket, asked) {
        let what = match asked {
            (true, _) => "joining a session",
            (false, _) => "watching a session",
        };
        open_login.tell_denied(&tools.audit, &tools.metrics, format!("{what}: {}", why.words));
        tools.to_fronts.not_started(open_login.connection, ticket, &why);
    }
}

fn begin(
    tools: &mut Tools,
    (sessions, trust): (&Sessions, &Trust),
    open_login: &OpenLogin,
    ticket: Ticket,
    (types, id): (bool, Option<&str>),
) -> Result<(), SessionRefusal> {
    // No other connection of this user's would hear anything else: asked for again, it would be one more event.
    let refused = |words: String| SessionRefusal::new(words).finally();
    let refuse = |words: &str| Err(refused(words.to_owned()));
    let Some(id) = id else {
        return refuse(
            "which session? give its id, or the first 8 digits: `fleetgate sessions ls` lists them",
        );
    };
    let Some(viewer) = Viewer::of(open_login) else {
        return refuse("only users of a cluster see sessions of others, as their roles say");
    };
    let ShownSession {
        id: session,
        place: shown,
        login: of_login,
        user: owner,
    } = sessions.shown(id).map_err(refused)?;
    viewer
        .may(tools, right_to(types), owner.as_deref(), &of_login, trust.skew)
        .map_err(|refusal| SessionRefusal {
            // The roles are the certificate's, and a second factor is not.
            is_final: refusal.reason == Reason::Role,
            words: refusal.words,
        })?;
    // What was shown and typed before is in the recording, which watching alone does not open.
    let plays = viewer
        .may(
            tools,
            RecordingRight::Play,
            owner.as_deref(),
            &of_login,
            trust.skew,
        )
        .is_ok();
    let views = &tools.views.all;
    let of_session = views.values().filter(|view| view.session == session);
    if of_session.count() >= MAX_OF_SESSION {
        return Err(refused(format!(
            "{MAX_OF_SESSION} others see this session already, and no more may"
        )));
    }
    let own = |view: &&View| view.session == session && view.viewer.name == viewer.name;
    if views.values().filter(own).count() >= MAX_OWN_OF_SESSION {
        return Err(refused(format!(
            "you see this session {MAX_OWN_OF_SESSION} times already: end one of them, so that others have a place"
        )));
    }
    let of_user = views.values().filter(|view| view.viewer.name == viewer.name);
    if of_user.count() >= MAX_OF_USER {
        return Err(refused(format!(
            "you see {MAX_OF_USER} sessions of this node already: end one of them, so that others have a place"
        )));
    }
    if views.len() >= MAX_ALL {
        return Err(refused(format!(
            "{MAX_ALL} viewers see sessions of this node already, and no more may: try again later"
        )));
    }
    let (ours, theirs, cut) = sockets(types).map_err(|e| {
        tracing::error!("making a socket for a viewer: {e}");
        SessionRefusal::new("a socket could not be made; the host's log says why")
    })?;
    tools.views.last = tools.views.last.wrapping_add(1);
    let number = tools.views.last;
    let message = ToFront::View {
        connection: shown.0,
        ticket: shown.1,
        viewer: number,
        who: CString::new(printable(&viewer.name)).unwrap_or_default(),
        types,
    };
    tools.to_fronts.say(shown.0, message, vec![ours]);
    let key = Key::new(Owner::Recorder, VIEWERS | u64::from(number));
    let view = View {
        session,
        owner,
        of_login,
        shown,
        seen: (open_login.connection, ticket),
        viewer,
        login: open_login.grant.login.to_string(),
        source: (&open_login.addresses.peer).into(),
        types,
        plays,
        cut,
        stage: Stage::Coming(theirs),
        patience: tools.timers.after(PATIENCE, key),
    };
    tools.views.all.insert(number, view);
    Ok(())
}

/// The session's end, the viewer's, and a second one of the viewer's. Nothing comes through it from one who only looks,
/// whatever becomes of his front.
fn sockets(types: bool) -> io::Result<(Fd, Fd, Fd)> {
    let (ours, theirs) = UnixStream::pair()?;
    let [ours, theirs] = [ours, theirs].map(|end| Fd::from(OwnedFd::from(end)));
    let cut = theirs.duplicate(3)?;
    if !types {
        net::shut_sending(&theirs)?;
    }
    Ok((ours, theirs, cut))
}

/// The session's front says since when somebody sees it.
pub fn seen_since(tools: &mut Tools, place: Place, number: u32, at: u64) {
    let Some(view) = tools
        .views
        .all
        .get_mut(&number)
        .filter(|view| view.shown == place)
    else {
        return;
    };
    let session = view.session;
    view.stage = match std::mem::replace(&mut view.stage, Stage::Sees(Instant::now())) {
        Stage::Coming(socket) => Stage::Recorded(socket, at),
        other => {
            view.stage = other;
            return;
        }
    };
    match tools.recordings.is_recorded(&session) {
        true => tools.recordings.flush(&session),
        false => show(tools, number, None),
    }
}

/// What was shown before is in the recording's file.
pub fn recorded(tools: &mut Tools, session: &SessionId) {
    for number in waiting_for_recorder(tools, Some(session)) {
        let plays = tools.views.all.get(&number).is_some_and(|view| view.plays);
        let file = tools.recordings.file(session).filter(|_| plays);
        let file = file.filter(|(_, length)| *length <= MAX_RECORDED);
        let copied = file.and_then(|(path, length)| Some((copy(path, length)?, length)));
        show(tools, number, copied);
    }
}

/// A recording as it is now. The viewer's front gets no more of it than it may send: not the file, which grows.
fn copy(path: &Path, length: u64) -> Option<Fd> {
    let path = CString::new(path.as_os_str().as_bytes()).ok()?;
    let file = file::openat(file::CWD, &path, flags::O_RDONLY | flags::O_NOFOLLOW, 0).ok()?;
    let mut bytes = vec![0; usize::try_from(length).ok()?];
    let mut done = 0;
    while done < bytes.len() {
        match file::read_at(file.raw(), &mut bytes[done..], done as u64) {
            Ok(0) | Err(_) => return None,
            Ok(n) => done += n,
        }
    }
    memfd::sealed(c"a recording", &bytes).ok()
}

/// The right that somebody needs who types, or only looks.
fn right_to(types: bool) -> RecordingRight {
    match types {
        true => RecordingRight::Join,
        false => RecordingRight::Watch,
    }
}

/// The recorder that was asked is gone: the next one is asked, or nobody where nothing is recorded any more.
pub fn recorder_gone(tools: &mut Tools) {
    for number in waiting_for_recorder(tools, None) {
        let Some(session) = tools.views.all.get(&number).map(|view| view.session) else {
            continue;
        };
        match tools.recordings.is_recorded(&session) {
            true => tools.recordings.flush(&session),
            false => show(tools, number, None),
        }
    }
}

fn waiting_for_recorder(tools: &Tools, session: Option<&SessionId>) -> Vec<u32> {
    let waits = |view: &View| {
        matches!(view.stage, Stage::Recorded(..)) && session.is_none_or(|session| view.session == *session)
    };
    let all = tools.views.all.iter();
    all.filter(|(_, view)| waits(view))
        .map(|(number, _)| *number)
        .collect()
}

/// He sees it now, first what is in the recording.
fn show(tools: &mut Tools, number: u32, file: Option<(Fd, u64)>) {
    let Some(view) = tools.views.all.get_mut(&number) else {
        return;
    };
    let (socket, at) = match std::mem::replace(&mut view.stage, Stage::Sees(Instant::now())) {
        Stage::Recorded(socket, at) => (socket, at),
        other => {
            view.stage = other;
            return;
        }
    };
    tools.timers.cancel(view.patience);
    let (connection, ticket) = view.seen;
    let (session, event) = (view.session, view.begun());
    let (file, recorded) = file.unzip();
    let message = ToFront::Viewing {
        connection,
        ticket,
        at,
        recorded: recorded.unwrap_or(0),
    };
    let fds = std::iter::once(socket).chain(file).collect();
    tools.to_fronts.say(connection, message, fds);
    tools.tell_recorded(&session, clock::wall(), event);
}

/// A timer that [`ask`] set: whoever still sees nothing waits no longer. Whether it is one.
pub fn woken(tools: &mut Tools, id: u64) -> bool {
    let Some(number) = id.checked_sub(VIEWERS).and_then(|n| u32::try_from(n).ok()) else {
        return false;
    };
    let view = tools.views.all.get(&number);
    if view.is_some_and(|view| !matches!(view.stage, Stage::Sees(_))) {
        end(tools, number, TOO_LATE);
    }
    true
}

/// The session's front let somebody go.
pub fn too_slow(tools: &mut Tools, place: Place, number: u32) {
    if tools
        .views
        .all
        .get(&number)
        .is_some_and(|view| view.shown == place)
    {
        end(tools, number, TOO_SLOW);
    }
}

/// Sessions that are over since the last call: so is seeing them.
pub fn end_those_over(tools: &mut Tools) {
    for session in tools.views.take_over() {
        end_all(tools, OVER, |view| view.session == session);
    }
}

/// A channel was closed by its client: a viewer's, or that of a session that is seen.
pub fn channel_closed(tools: &mut Tools, place: Place) {
    end_all(tools, LEFT, |view| view.seen == place);
    end_all(tools, CLIENT_LEFT, |view| view.shown == place);
}

/// A connection is over, or about to be.
pub fn connection_over(tools: &mut Tools, connection: ConnectionNumber) {
    end_all(tools, LEFT, |view| view.seen.0 == connection);
    end_all(tools, CLIENT_LEFT, |view| view.shown.0 == connection);
}

/// Ends what roles and locks allow no more.
pub fn decide_again(tools: &mut Tools, skew: u64) {
    let no_more: Vec<(u32, String)> = tools
        .views
        .all
        .iter()
        .filter_map(|(number, view)| {
            let may = view.viewer.may(
                tools,
                right_to(view.types),
                view.owner.as_deref(),
                &view.of_login,
                skew,
            );
            Some((*number, may.err()?.words))
        })
        .collect();
    for (number, words) in no_more {
        end(tools, number, &words);
    }
}

fn end_all(tools: &mut Tools, why: &str, is_over: impl Fn(&View) -> bool) {
    let all = tools.views.all.iter();
    let over: Vec<u32> = all
        .filter(|(_, view)| is_over(view))
        .map(|(number, _)| *number)
        .collect();
    for number in over {
        end(tools, number, why);
    }
}

/// Ends it, with words for the viewer; who has gone does not hear them.
fn end(tools: &mut Tools, number: u32, why: &str) {
    let Some(view) = tools.views.all.remove(&number) else {
        return;
    };
    tools.timers.cancel(view.patience);
    let (connection, ticket) = view.shown;
    let message = ToFront::EndView {
        connection,
        ticket,
        viewer: number,
    };
    tools.to_fronts.say(connection, message, Vec::new());
    let (connection, ticket) = view.seen;
    match &view.stage {
        Stage::Sees(_) => {
            let message = ToFront::Ended {
                connection,
                ticket,
                ended: ProcessEnd {
                    status: 0,
                    signalled: false,
                    core: false,
                },
                why: CString::new(printable(why)).unwrap_or_default(),
            };
            tools.to_fronts.say(connection, message, Vec::new());
        }
        Stage::Coming(_) | Stage::Recorded(..) => {
            tools
                .to_fronts
                .not_started(connection, ticket, &SessionRefusal::new(why).finally());
        }
    }
    // What he has not read yet he still can; nothing comes from him any more, whatever his front does.
    let _ = net::shut_sending(&view.cut);
    if let Some(event) = view.over(why) {
        tools.tell_recorded(&view.session, clock::wall(), event);
    }
}

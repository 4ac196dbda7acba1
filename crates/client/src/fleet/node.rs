//! One node of a run: its SSH connection, the command on it, and how that came out. It knows of no other node.

use super::result::{End, LOG, Leftover, NodeResult};
use crate::profile::Home;
use crate::ssh::SshError;
use crate::ssh::capture::{Capture, Output, Room, StopReason};
use crate::ssh::keeping::{Opening, Route, run_captured};
use crate::stderr::printable;
use crate::transport::{Proxy, ReportHandle};
use fleetgate_net::dial;
use std::rc::Rc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

/// The most of a reason, and of a signal's name, that is kept; outputs have a bound of their own.
const MAX_REASON: usize = 1024;
const MAX_SIGNAL: usize = 32;

/// What every node of a run is asked for.
pub(super) struct Job {
    pub(super) home: Home,
    pub(super) login: String,
    pub(super) command: Vec<u8>,
    pub(super) timeout: Option<Duration>,
    pub(super) room: Room,
}

/// What a node's task brings.
pub(super) enum Outcome {
    Done(NodeResult),
    /// Nothing was heard of it, and the proxy's process is leaving: it can be asked again over another connection.
    Again(String, NodeResult),
}

/// Runs the command on a node. True in `cancel`: it is to end.
pub(super) async fn run(job: Rc<Job>, proxy: Proxy, node: String, cancel: watch::Receiver<bool>) -> Outcome {
    let begun = Instant::now();
    let mut capture = Capture::new(&job.room, stop(job.timeout, cancel));
    let mut report = ReportHandle::default();
    let opening = Opening {
        route: Route::Proxy {
            proxy: Box::new(proxy.clone()),
            was_there: false,
        },
        node: node.clone(),
        account: job.login.clone(),
        time: dial::DEADLINE,
    };
    let outcome = run_captured(
        &job.home,
        &opening,
        job.command.clone(),
        &mut capture,
        &mut report,
    )
    .await;
    let is_unheard = matches!(outcome, Err(SshError::Connect(_)))
        && capture.stopped().is_none()
        && !report.snapshot().heard
        && !proxy.takes_requests();
    let end = end(outcome, &capture);
    let mut output = capture.into_output();
    if matches!(end, End::Refused(_)) {
        // The words are the reason.
        output = Output::new(&job.room);
    }
    output.stdout.shrink_to_fit();
    output.stderr.shrink_to_fit();
    let result = NodeResult {
        node: node.clone(),
        end,
        output,
        time: begun.elapsed(),
    };
    match is_unheard {
        true => Outcome::Again(node, result),
        false => Outcome::Done(result),
    }
}

/// When a command is to end, whatever it does.
async fn stop(timeout: Option<Duration>, mut cancel: watch::Receiver<bool>) -> StopReason {
    let late = async {
        match timeout {
            Some(time) => sleep(time).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        _ = cancel.wait_for(|is_cancelled| *is_cancelled) => StopReason::Cancelled,
        () = late => StopReason::TimedOut,
    }
}

fn end(outcome: Result<(), SshError>, capture: &Capture) -> End {
    if let Some(reason) = capture.stopped() {
        let left = match (capture.was_told(), capture.has_ended()) {
            (true, true) => Leftover::Ended,
            (false, true) => Leftover::Background,
            (_, false) if !capture.is_asked => Leftover::Nothing,
            _ => Leftover::Unknown,
        };
        return match reason {
            StopReason::TimedOut => End::TimedOut(left),
            StopReason::Cancelled => End::Cancelled(left),
        };
    }
    if capture.is_refused {
        return End::Refused(reason(
            &capture.output.stderr,
            "the node does not begin it, and does not say why",
        ));
    }
    match (&capture.signal, capture.code, outcome) {
        (Some(signal), ..) => End::Killed(shortened(&printable(signal.as_bytes()), MAX_SIGNAL)),
        (None, Some(code), _) => End::Exited(code),
        (None, None, Ok(()) | Err(SshError::Over(_))) => End::Lost(format!(
            "the node closed the session and did not say how the command ended; {LOG}"
        )),
        // Whatever ended the connection, a lock for one: it ran.
        (None, None, Err(error)) if capture.has_begun => End::Lost(format!("{error}; how it ended, {LOG}")),
        // It went out with the login, and nobody answered.
        (None, None, Err(error @ (SshError::Lost(_) | SshError::Connect(_)))) if capture.is_asked => {
            End::Lost(format!("{error}; whether it was begun, {LOG}"))
        }
        // The node's own words, where it says why nobody gets in.
        (None, None, Err(error @ SshError::Refused(_))) => {
            End::Refused(reason(capture.banner(), &error.to_string()))
        }
        (None, None, Err(error)) => End::Refused(error.to_string()),
    }
}

/// At most so many characters of it.
fn shortened(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text.to_owned(),
    }
}

/// Somebody's words; where there are none, ours.
fn reason(said: &[u8], ours: &str) -> String {
    let said = shortened(&printable(said), MAX_REASON);
    let lines: Vec<&str> = said
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .collect();
    match lines.is_empty() {
        true => ours.to_owned(),
        false => lines.join("; "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fleetgate_ssh::event::{NOT_BEGUN, Request, Stream};

    /// A session of which this is known, when its connection ended so.
    fn told(outcome: Result<(), SshError>, know: impl FnOnce(&mut Capture)) -> String {
        let mut capture = Capture::new(&Room::new(1 << 20), std::future::pending());
        know(&mut capture);
        let end = end(outcome, &capture);
        format!("{}: {end}", end.state())
    }

    #[test]
    fn a_result_says_what_is_known_and_no_more() {
        let exit = |code| move |c: &mut Capture| c.heed(&Request::ExitStatus { code });
        assert_eq!(told(Ok(()), exit(0)), "exited: exit code 0");
        assert_eq!(told(Ok(()), exit(7)), "exited: exit code 7");
        let killed = |c: &mut Capture| {
            c.heed(&Request::ExitSignal {
                name: b"KILL".to_vec(),
                core: false,
                message: Vec::new(),
            });
        };
        assert_eq!(told(Ok(()), killed), "killed: ended by SIGKILL");
        let no_word = told(Ok(()), |c| (c.is_asked, c.has_begun) = (true, true));
        assert_eq!(
            no_word,
            "lost: the node closed the session and did not say how the command ended; the node's audit log says"
        );
        // Names and reasons are a node's own, and have bounds.
        let long = told(Ok(()), |c| {
            c.heed(&Request::ExitSignal {
                name: vec![b'X'; 30_000],
                core: false,
                message: Vec::new(),
            });
        });
        assert_eq!(long, format!("killed: ended by SIG{}…", "X".repeat(MAX_SIGNAL)));
        let long = told(Ok(()), |c| {
            c.is_refused = true;
            c.keep(Stream::Stderr, &[b'x'; 30_000]);
        });
        assert_eq!(long, format!("refused: {}…", "x".repeat(MAX_REASON)));
        // It ran, whatever ended its connection.
        let refused = Err(SshError::Refused("node web1 is locked".into()));
        assert_eq!(
            told(refused, |c| (c.is_asked, c.has_begun) = (true, true)),
            "lost: node web1 is locked; how it ended, the node's audit log says"
        );
        // Not reached at all, or after the command had gone out.
        let gone = || Err(SshError::Connect("gone".into()));
        assert_eq!(told(gone(), |_| {}), "refused: gone");
        assert_eq!(
            told(gone(), |c| c.is_asked = true),
            "lost: gone; whether it was begun, the node's audit log says"
        );
        assert_eq!(
            told(Err(SshError::Lost("gone".into())), |c| (
                c.is_asked,
                c.has_begun
            ) = (true, true)),
            "lost: the connection was lost: gone; how it ended, the node's audit log says"
        );
        // The node's words are the reason, on one line and without what acts on a terminal.
        let refused = || Err(SshError::Refused("no way in".into()));
        assert_eq!(told(refused(), |c| c.is_asked = true), "refused: no way in");
        assert_eq!(
            told(refused(), |c| c.keep_banner(b"locked:\r\n\x1b[2Jleft\r\n")),
            "refused: locked:; \u{fffd}[2Jleft"
        );
        let not_begun = |c: &mut Capture| {
            c.heed(&Request::Other {
                name: NOT_BEGUN.to_vec(),
                payload: Vec::new(),
            });
            c.keep(Stream::Stderr, b"too many\r\n");
            c.heed(&Request::ExitStatus { code: 255 });
        };
        assert_eq!(told(Ok(()), not_begun), "refused: too many");
    }
}

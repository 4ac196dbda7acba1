//! What passes: output and ends, exit statuses, an agent, one program to each channel.

use super::{asked, exec, run, scene};
use crate::ssh::tests::world::Asked;
use fleetgate_policy::Kind;
use fleetgate_ssh::event::{ChannelKind, Event, Request, Stream};
use std::time::Duration;

#[test]
fn a_session_passes_with_its_output_its_end_and_its_exit_status() {
    run(async || {
        let mut s = scene(&[], true).await;
        assert_eq!(s.client.log_in("eve", &s.key, &s.blob).await, Ok(false));
        assert_eq!(s.client.log_in("ada", &s.key, &s.blob).await, Ok(true));
        let core = &mut s.client.end.core;
        let channel = core.open(&ChannelKind::Session).expect("open");
        s.client
            .until(|_, e| matches!(e, Event::Opened(_)).then_some(()))
            .await
            .expect("opened");
        let command = b"uptime".to_vec();
        s.client
            .end
            .core
            .request(channel, &Request::Exec { command }, true);
        s.client.end.core.write(channel, Stream::Main, &[5; 100_000]);
        s.client.end.core.eof(channel);
        let (mut seen, mut bytes) = (Vec::new(), 0);
        while seen.last() != Some(&"closed") {
            let what = s.client.until(|asked, e| match e {
                Event::Replied { done: true, .. } => Some(("done", 0)),
                Event::Data { channel, bytes, .. } => {
                    *asked = Some(Asked::Consumed(channel, bytes.len()));
                    Some(("data", bytes.len()))
                }
                Event::Request {
                    request: Request::ExitStatus { code: 7 },
                    ..
                } => Some(("status", 0)),
                Event::Eof(_) => Some(("end", 0)),
                Event::Closed(_) => Some(("closed", 0)),
                _ => None,
            });
            let (what, n) = what.await.expect("more");
            bytes += n;
            if seen.last() != Some(&what) {
                seen.push(what);
            }
        }
        assert_eq!(seen, ["done", "data", "status", "end", "closed"]);
        assert_eq!(bytes, 100_000);
        let told = s.host.told.borrow();
        let session = told
            .iter()
            .find_map(|event| Some(event.split_once("session: \"")?.1[..32].to_owned()))
            .expect("a session's id");
        assert!(session.bytes().all(|b| b.is_ascii_hexdigit()), "{session}");
        assert_eq!(
            *told,
            [
                "nobody: Refused(\"role access does not allow the login eve\")".to_owned(),
                "ada: In".to_owned(),
                format!(
                    "ada: Began {{ session: \"{session}\", kind: \"exec\", command: {:?}, recording: Ok(None) }}",
                    b"uptime"
                ),
                format!("ada: Ended {{ session: \"{session}\", code: Some(7) }}"),
            ]
        );
    });
}

#[test]
fn the_exit_status_comes_to_a_user_who_closed_at_the_end_of_the_output() {
    run(async || {
        let mut s = scene(&[], true).await;
        assert_eq!(s.client.log_in("ada", &s.key, &s.blob).await, Ok(true));
        let core = &mut s.client.end.core;
        let channel = core.open(&ChannelKind::Session).expect("open");
        let command = b"late".to_vec();
        core.request(channel, &Request::Exec { command }, true);
        core.eof(channel);
        let ended = s.client.until(|_, e| matches!(e, Event::Eof(_)).then_some(()));
        ended.await.expect("the end of the output");
        s.client.end.core.close(channel);
        let mut status = None;
        let closed = s.client.until(|_, e| match e {
            Event::Request {
                request: Request::ExitStatus { code },
                ..
            } => {
                status = Some(code);
                None
            }
            Event::Closed(_) => Some(()),
            _ => None,
        });
        closed.await.expect("closed by both");
        assert_eq!(status, Some(7));
        let told = s.host.told.borrow();
        let last = told.last().expect("something");
        assert!(last.ends_with("code: Some(7) }"), "{last}");
    });
}

#[test]
fn a_host_reaches_the_agent_of_a_user_who_asked_for_that_alone() {
    run(async || {
        let mut s = scene(&[Kind::Agent], true).await;
        assert_eq!(s.client.log_in("ada", &s.key, &s.blob).await, Ok(true));
        for is_allowed in [false, true] {
            let channel = s.client.end.core.open(&ChannelKind::Session).expect("open");
            // He asks for it, and his role does not allow it before the second try.
            assert_eq!(asked(&mut s, channel, &Request::Agent).await, is_allowed);
            assert!(asked(&mut s, channel, &exec(b"agent")).await);
            let came = s.client.until(|_, e| match e {
                Event::Open { kind, .. } => Some(format!("{kind:?}")),
                Event::Data { bytes, .. } => Some(String::from_utf8_lossy(bytes).into_owned()),
                _ => None,
            });
            let wanted = if is_allowed { "Agent" } else { "refused" };
            assert_eq!(came.await.as_deref(), Ok(wanted));
            s.host.forbidden.borrow_mut().clear();
        }
    });
}

#[test]
fn a_channel_begins_one_program_and_only_a_session_does() {
    run(async || {
        let mut s = scene(&[], true).await;
        assert_eq!(s.client.log_in("ada", &s.key, &s.blob).await, Ok(true));
        s.host.limits.borrow_mut().session = Some(Duration::from_secs(1));
        let channel = s.client.end.core.open(&ChannelKind::Session).expect("open");
        assert!(asked(&mut s, channel, &exec(b"uptime")).await);
        assert!(!asked(&mut s, channel, &exec(b"another")).await);
        assert!(!asked(&mut s, channel, &Request::Shell).await);
        let to = ChannelKind::DirectTcpip {
            host: b"db".to_vec(),
            port: 1,
            origin: Vec::new(),
            origin_port: 0,
        };
        let connection = s.client.end.core.open(&to).expect("open");
        assert!(!asked(&mut s, connection, &exec(b"uptime")).await);
        let name = b"unknown@example.org".to_vec();
        let unknown = Request::Other {
            name: name.clone(),
            payload: Vec::new(),
        };
        assert!(!asked(&mut s, channel, &unknown).await);
        let unknown = ChannelKind::Other {
            name,
            payload: Vec::new(),
        };
        s.client.end.core.open(&unknown).expect("open");
        let reason = s.client.until(|_, e| match e {
            Event::OpenFailed { reason, .. } => Some(reason),
            _ => None,
        });
        assert_eq!(reason.await, Ok(3));
        // The time that its roles give is still the first one's.
        let words = s.client.until(|_, e| match e {
            Event::Data { bytes, .. } => Some(String::from_utf8_lossy(bytes).into_owned()),
            _ => None,
        });
        let words = words.await.expect("words");
        assert!(words.contains("more than 1 s is not allowed"), "{words}");
        let told = s.host.told.borrow();
        let count = |what: &str| told.iter().filter(|t| t.contains(what)).count();
        assert_eq!((count("Began"), count("another")), (1, 0), "{told:?}");
    });
}

#[test]
fn requests_that_no_window_holds_are_bounded() {
    run(async || {
        let mut s = scene(&[], true).await;
        assert_eq!(s.client.log_in("ada", &s.key, &s.blob).await, Ok(true));
        let channel = s.client.end.core.open(&ChannelKind::Session).expect("open");
        assert!(asked(&mut s, channel, &exec(b"deaf")).await);
        // Until nothing more is taken: what a window holds is no reason to end.
        let quiet = Duration::from_millis(200);
        loop {
            let sent = s.client.end.core.write(channel, Stream::Main, &[0; 64 * 1024]);
            let on = tokio::time::timeout(quiet, s.client.until(|_, _| None::<()>));
            if on.await.is_err() && sent == 0 {
                break;
            }
        }
        // Behind that they wait.
        let name = vec![b'x'; 100_000];
        for _ in 0..11 {
            let signal = Request::Signal { name: name.clone() };
            s.client.end.core.request(channel, &signal, false);
        }
        let end = s.client.until(|_, _| None::<()>).await.expect_err("it ends");
        assert!(end.contains("more requests wait"), "{end}");
    });
}

//! Sessions that a role wants recorded: what is in their recordings, and what follows where there can be none.

use super::{exec, program, run, scene};
use crate::recorder::tests::{files, frames};
use crate::ssh::tests::world::{Asked, Client};
use fleetgate_policy::{Recording, RecordingFailure};
use fleetgate_record::frame::Kind;
use fleetgate_ssh::event::{ChannelKind, Event, Pty, Request, Stream, WindowSize};
use tokio::io::DuplexStream;

#[test]
fn a_session_that_cannot_be_recorded_is_refused_unless_its_role_lets_it_go_on() {
    run(async || {
        let mut s = scene(&[], true).await;
        assert_eq!(s.client.log_in("ada", &s.key, &s.blob).await, Ok(true));
        std::fs::write(s.host.state.join("recordings"), "in the way").expect("written");
        for (recording, failure, begins, told_so) in [
            (Recording::Output, RecordingFailure::End, false, true),
            (Recording::Full, RecordingFailure::End, false, true),
            (Recording::Full, RecordingFailure::GoOn, true, true),
            (Recording::Events, RecordingFailure::End, true, false),
        ] {
            s.host.recording.set((recording, failure));
            s.host.ending.set(!begins);
            s.host.told.borrow_mut().clear();
            let (done, words, code) = program(&mut s, &exec(b"uptime")).await;
            let told = s.host.told.borrow().join("\n");
            let case = format!("{recording:?}, {failure:?}: {words}; {told}");
            assert_eq!(told.contains("/recordings"), told_so, "{case}");
            if begins {
                assert!(done && words.is_empty() && told.contains("Began"), "{case}");
                continue;
            }
            let refusal = "the session has to be recorded, and cannot be; the proxy's log says why";
            assert_eq!((words.trim_end(), code), (refusal, Some(255)), "{case}");
            assert!(
                told.contains("NotRecorded") && told.contains("ended: true"),
                "{case}"
            );
            assert!(!told.contains("Began"), "{case}");
        }
    });
}

async fn opened(client: &mut Client<DuplexStream>) {
    let opened = client.until(|_, e| matches!(e, Event::Opened(_)).then_some(()));
    opened.await.expect("opened");
}

#[test]
fn what_passes_is_in_the_recording_with_what_the_terminal_shows_of_the_keys() {
    run(async || {
        let mut s = scene(&[], true).await;
        s.host.recording.set((Recording::Full, RecordingFailure::End));
        assert_eq!(s.client.log_in("ada", &s.key, &s.blob).await, Ok(true));
        let core = &mut s.client.end.core;
        let channel = core.open(&ChannelKind::Session).expect("open");
        opened(&mut s.client).await;
        let core = &mut s.client.end.core;
        let size = WindowSize {
            columns: 80,
            rows: 24,
            ..WindowSize::default()
        };
        let pty = Request::Pty(Pty {
            term: b"xterm".to_vec(),
            size,
            modes: vec![0],
        });
        core.request(channel, &pty, true);
        core.request(channel, &Request::Shell, true);
        // It comes before the files are there, and is passed on behind the request.
        core.write(channel, Stream::Main, b"typed and shown");
        let mut shown = 0;
        s.client
            .until(|say, e| match e {
                Event::Data { channel, bytes, .. } => {
                    shown += bytes.len();
                    *say = Some(Asked::Consumed(channel, bytes.len()));
                    (shown == 15).then_some(())
                }
                _ => None,
            })
            .await
            .expect("it is echoed");
        let core = &mut s.client.end.core;
        let size = WindowSize { columns: 100, ..size };
        core.request(channel, &Request::WindowChange(size), false);
        core.eof(channel);
        s.client
            .until(|_, e| matches!(e, Event::Closed(_)).then_some(()))
            .await
            .expect("closed");
        s.host.recorder.settle().await;
        let frames = frames(&files(&s.host.state, "rec")[0]);
        let of = |kind: Kind| -> Vec<&str> {
            let of_it = frames.iter().filter(|(k, _)| *k == kind);
            of_it.map(|(_, text)| text.as_str()).collect()
        };
        assert_eq!(of(Kind::Output).concat(), "typed and shown");
        assert_eq!(of(Kind::Input).concat(), "typed and shown");
        assert_eq!(of(Kind::Resize), ["d\0\u{18}\0"]);
        assert_eq!(
            of(Kind::Event),
            ["{\"event\":\"Began\"}", "{\"event\":\"Ended\"}"]
        );
        assert!(of(Kind::Begin)[0].contains("\"columns\":80"), "{frames:?}");
        assert!(of(Kind::End)[0].contains("\"status\":7"), "{frames:?}");
        let told = s.host.told.borrow().join("\n");
        assert!(told.contains("recording: Ok(Some(Full))"), "{told}");
    });
}

#[test]
fn a_forwarded_connection_is_in_the_recording_and_not_what_goes_through_it() {
    run(async || {
        let mut s = scene(&[], true).await;
        s.host.recording.set((Recording::Output, RecordingFailure::End));
        assert_eq!(s.client.log_in("ada", &s.key, &s.blob).await, Ok(true));
        assert!(program(&mut s, &exec(b"uptime")).await.0);
        let forward = ChannelKind::DirectTcpip {
            host: b"db.example".to_vec(),
            port: 5432,
            origin: b"127.0.0.1".to_vec(),
            origin_port: 1,
        };
        let channel = s.client.end.core.open(&forward).expect("open");
        opened(&mut s.client).await;
        s.client.end.core.write(channel, Stream::Main, b"secret");
        let echoed = s.client.until(|_, e| match e {
            Event::Data {
                channel: at, bytes, ..
            } if at == channel => Some(bytes.len()),
            _ => None,
        });
        assert_eq!(echoed.await, Ok(6));
        // With the connection.
        drop(s.client);
        while files(&s.host.state, "tail").len() == 1 {
            tokio::time::sleep(std::time::Duration::from_millis(2)).await;
        }
        let frames = frames(&files(&s.host.state, "rec")[0]);
        let text = format!("{frames:?}");
        assert!(text.contains(r#"\"to\":\"db.example:5432\""#), "{text}");
        assert!(
            text.contains(r#"\"sent\":6"#) && !text.contains("secret"),
            "{text}"
        );
    });
}

//! Recordings on their way into the archive: by which proxy, of which machine, and for how long it may bring them.

use super::place::{Holder, Place, run};
use bytes::Bytes;
use fleetgate_proto::v1;
use fleetgate_record::frame::{Frame, Kind};
use fleetgate_record::signature::{NAMESPACE, Statement, encode};
use fleetgate_record::writer::{Position, Writer};
use fleetgate_ssh::sshsig;
use tokio::sync::mpsc;
use tonic::codegen::tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Status, Streaming};

/// A stream of one machine's recordings.
struct Stream {
    to: mpsc::Sender<v1::RecordingFrom>,
    from: Streaming<v1::RecordingKept>,
}

impl Stream {
    async fn open(place: &Place, by: &Holder, source: &str) -> Result<Stream, Status> {
        let (to, parts) = mpsc::channel(4);
        let first = v1::RecordingFrom {
            source: source.to_owned(),
            part: None,
        };
        to.send(first).await.unwrap();
        let answers = place
            .proxy(by)
            .await
            .recordings(ReceiverStream::new(parts))
            .await?;
        Ok(Stream {
            to,
            from: answers.into_inner(),
        })
    }

    async fn send(&mut self, offset: u64, bytes: &[u8]) -> Result<v1::RecordingKept, Status> {
        let part = v1::RecordingPart {
            session: Bytes::from_static(&[7; 16]),
            offset,
            bytes: Bytes::copy_from_slice(bytes),
            whole: false,
        };
        let part = v1::RecordingFrom {
            source: String::new(),
            part: Some(part),
        };
        // Whether the stream has ended, the answer says.
        let _ = self.to.send(part).await;
        self.ends_or_answers().await
    }

    async fn ends_or_answers(&mut self) -> Result<v1::RecordingKept, Status> {
        let answer = self.from.message().await?;
        answer.ok_or_else(|| Status::aborted("the stream has ended"))
    }
}

/// A recording of this machine's, whole.
fn recording(by: &Holder) -> Vec<u8> {
    let session = [7; 16];
    let mut writer = Writer::at(Position::start(&session));
    let mut bytes = fleetgate_record::block::file_head(&session).to_vec();
    let json = br#"{"started":"2026-11-30T12:00:00Z","user":"ada","login":"root","node":"elsewhere"}"#;
    writer.push(&Frame {
        kind: Kind::Begin,
        at: 0,
        bytes: json,
    });
    bytes.extend(writer.end(None, 9, b"{}"));
    let at = *writer.position();
    let said = Statement {
        session,
        blocks: at.blocks,
        chain: at.chain,
        signed: String::new(),
    };
    let key = &by.keys.ssh;
    let message = sshsig::message(NAMESPACE, said.text().as_bytes());
    let algorithm = key.public().key_type().name();
    let signature = key.sign(algorithm, &message).unwrap();
    let signature = sshsig::encode(key.public().blob(), NAMESPACE, &signature);
    bytes.extend(writer.sign(&encode(&said, &signature)));
    bytes
}

#[test]
fn a_proxy_brings_the_recordings_of_members_alone() {
    run(async {
        let place = Place::new().await;
        let edge = place.machine("proxy", "edge").await;
        let web1 = place.machine("node", "web1").await;
        let web2 = place.machine("node", "web2").await;
        let bytes = recording(&web1);
        let mut stream = Stream::open(&place, &edge, "web1").await.unwrap();
        assert_eq!(stream.send(0, b"").await.unwrap().offset, 0);
        let kept = stream.send(0, &bytes).await.unwrap();
        assert!(kept.whole && kept.offset == bytes.len() as u64, "{kept:?}");
        let entry = place.service().archive().unwrap().find("0707").await.unwrap();
        assert_eq!(
            (&*entry.source, &*entry.node, &*entry.user),
            ("web1", "web1", "ada")
        );
        let page = crate::metrics::page(&place.service(), &[]);
        assert!(page.contains("\nfleetgate_auth_recordings 1\n"), "{page}");
        // Another's signature, another's id.
        let mut other = Stream::open(&place, &edge, "web2").await.unwrap();
        let refused = other.send(0, &recording(&web2)).await.unwrap().refused;
        assert!(refused.contains("another machine"), "{refused}");
        // Who it is not, and what is none.
        let user = place.user("ada", &["admin"]).await;
        let (user, _) = place.log_in(&user).await;
        for (by, source, code) in [
            (&user, "web1", Code::PermissionDenied),
            (&web1, "web1", Code::PermissionDenied),
            (&edge, "web9", Code::Unauthenticated),
            (&edge, "web 9", Code::InvalidArgument),
        ] {
            let refused = match Stream::open(&place, by, source).await {
                Ok(mut stream) => stream.ends_or_answers().await.unwrap_err(),
                Err(refused) => refused,
            };
            assert_eq!(refused.code(), code, "{source}: {refused}");
        }
    });
}

#[test]
fn a_locked_or_removed_node_brings_nothing_more() {
    run(async {
        let place = Place::new().await;
        let edge = place.machine("proxy", "edge").await;
        let web1 = place.machine("node", "web1").await;
        place.machine("node", "web2").await;
        let bytes = recording(&web1);
        let mut first = Stream::open(&place, &edge, "web1").await.unwrap();
        let mut second = Stream::open(&place, &edge, "web2").await.unwrap();
        assert_eq!(first.send(0, b"").await.unwrap().offset, 0);
        assert_eq!(second.send(0, b"").await.unwrap().offset, 0);
        let lock = v1::AddLockRequest {
            target: Some(v1::LockTarget {
                kind: "node".into(),
                name: "web1".into(),
            }),
            reason: "taken over".into(),
            lifetime: 0,
        };
        place.admin().await.add_lock(lock).await.unwrap();
        let ended = first.ends_or_answers().await.unwrap_err();
        assert_eq!(ended.code(), Code::PermissionDenied, "{ended}");
        let mut again = Stream::open(&place, &edge, "web1").await.unwrap();
        let refused = again.send(0, &bytes).await.unwrap_err();
        assert_eq!(refused.code(), Code::PermissionDenied, "{refused}");
        let name = v1::NodeName {
            name: "web2".into(),
            force: false,
        };
        place.admin().await.remove_node(name).await.unwrap();
        let ended = second.ends_or_answers().await.unwrap_err();
        assert_eq!(ended.code(), Code::Unauthenticated, "{ended}");
        assert!(place.service().archive().unwrap().find("07").await.is_err());
    });
}

#[test]
fn what_goes_by_age_is_told_before() {
    run(async {
        let place = Place::new().await;
        let edge = place.machine("proxy", "edge").await;
        let web1 = place.machine("node", "web1").await;
        let bytes = recording(&web1);
        let mut stream = Stream::open(&place, &edge, "web1").await.unwrap();
        stream.send(0, &bytes).await.unwrap();
        drop(stream);
        let (directory, clock) = place.stop().await;
        let mut config = crate::Config::new(&directory);
        config.retention.keep_days = 1;
        clock.advance(2 * 86_400);
        let place = Place::by(config, clock).await;
        let mut removed = Vec::new();
        while removed.is_empty() {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
            removed = place.events("recordings_removed").await;
        }
        assert_eq!(
            (&removed[0]["reason"], &removed[0]["count"]),
            (&"age".into(), &1.into())
        );
        let archive = place.service().archive().unwrap().clone();
        while archive.find("0707").await.is_ok() {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    });
}

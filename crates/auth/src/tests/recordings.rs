//! Recordings on their way into the archive: by which proxy, of which machine, and for how long it may bring them.

use super::machines::renewal;
use super::place::{Holder, Keys, Place, run};
use crate::documents::Member;
use bytes::Bytes;
use fleetgate_archive::checker::{Checker, Point};
use fleetgate_policy::cluster::{MAX_RECEIPT, RecordingReceipt};
use fleetgate_proto::v1;
use fleetgate_record::frame::{Frame, Kind};
use fleetgate_record::signature::{NAMESPACE, Statement, encode};
use fleetgate_record::writer::{Position, Writer};
use fleetgate_ssh::key::PublicKey;
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
        self.part(offset, bytes, false).await
    }

    /// The last part of a whole recording.
    async fn end(&mut self, offset: u64, bytes: &[u8]) -> Result<v1::RecordingKept, Status> {
        self.part(offset, bytes, true).await
    }

    async fn part(&mut self, offset: u64, bytes: &[u8], whole: bool) -> Result<v1::RecordingKept, Status> {
        let part = v1::RecordingPart {
            session: Bytes::from_static(&[7; 16]),
            offset,
            bytes: Bytes::copy_from_slice(bytes),
            whole,
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

/// Where the last signature says that a recording ends.
fn end_of(mut checker: Checker, bytes: &[u8]) -> Point {
    checker.feed(bytes, &|_, _| Ok(())).unwrap();
    checker.proof().unwrap().covered
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
        let kept = stream.end(0, &bytes).await.unwrap();
        assert!(kept.whole && kept.offset == bytes.len() as u64, "{kept:?}");
        // The receipt is of the state's key, and of this recording: its blocks up to the end.
        let ends = end_of(Checker::new([7; 16]), &bytes);
        let receipt = RecordingReceipt {
            session: &[7; 16],
            length: ends.offset,
            chain: &ends.chain,
            node: "web1",
        };
        let key = place.service().published.borrow().state.trust.state_keys[0].clone();
        let key = PublicKey::parse(&key).unwrap();
        let is_of = |receipt: &RecordingReceipt<'_>, signature: &[u8]| {
            fleetgate_ssh::key::verify(&key, "ssh-ed25519", &receipt.signed(), signature).is_ok()
        };
        assert!(kept.receipt.len() <= MAX_RECEIPT && is_of(&receipt, &kept.receipt));
        let of_another = RecordingReceipt {
            node: "web2",
            ..receipt
        };
        assert!(!is_of(&of_another, &kept.receipt));
        // Again where it is asked for, and not with each part.
        let asked = stream.send(0, b"").await.unwrap();
        assert!(asked.whole && is_of(&receipt, &asked.receipt));
        let part = stream.send(0, &bytes).await.unwrap();
        assert_eq!(
            (part.whole, part.offset, part.receipt.len()),
            (false, bytes.len() as u64, 0)
        );
        let entry = place.service().archive().unwrap().find("0707").await.unwrap();
        assert_eq!(
            (&*entry.source, &*entry.node, &*entry.user),
            ("web1", "web1", "ada")
        );
        let page = crate::metrics::page(&place.service(), &[]);
        assert!(page.contains("\nfleetgate_auth_recordings 1\n"), "{page}");
        // Another's signature is waited with: its maker may have a new key. The same id is no reason to refuse another's own.
        let mut other = Stream::open(&place, &edge, "web2").await.unwrap();
        assert!(other.send(0, &bytes).await.unwrap().wait > 0);
        let kept = other.end(0, &recording(&web2)).await.unwrap();
        assert!(kept.whole && !kept.receipt.is_empty(), "{kept:?}");
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
fn what_the_host_keys_of_before_signed_is_taken_in() {
    run(async {
        let place = Place::new().await;
        let edge = place.machine("proxy", "edge").await;
        let web1 = place.machine("node", "web1").await;
        let bytes = recording(&web1);
        let next = Keys::fresh();
        place.clock.advance(3600);
        let request = v1::RenewFor {
            name: "web1".into(),
            renew: Some(renewal(&web1, &next)),
        };
        let said = place
            .proxy(&edge)
            .await
            .renew(request)
            .await
            .unwrap()
            .into_inner();
        assert_eq!(said.refused, "");
        let mut stream = Stream::open(&place, &edge, "web1").await.unwrap();
        let kept = stream.end(0, &bytes).await.unwrap();
        assert!(kept.whole && kept.offset == bytes.len() as u64, "{kept:?}");
    });
}

#[test]
fn keys_of_before_are_known_up_to_a_number_and_taken_from_for_a_month() {
    let line = |n: usize| format!("key {n}");
    let member = Member {
        key: None,
        host_keys: vec![line(0), line(1)],
        earlier_host_keys: Vec::new(),
        labels: Default::default(),
        address: None,
        version: String::new(),
        made: 0,
        token: String::new(),
    };
    const DAY: u64 = 86_400;
    let at = |member: &Member, now| member.keys_of_recordings(now).cloned().collect::<Vec<_>>();
    let next = member.with_host_keys(vec![line(1), line(2)], DAY);
    assert_eq!(at(&next, 31 * DAY - 1), [line(1), line(2), line(0)]);
    assert_eq!(at(&next, 31 * DAY), [line(1), line(2)]);
    assert_eq!(next.keys_of_kept_recordings(), [line(1), line(2), line(0)]);
    // What it has again is no earlier one.
    assert_eq!(
        at(&next.with_host_keys(vec![line(0)], DAY), DAY),
        [line(0), line(1), line(2)]
    );
    let mut last = member;
    for n in 2..100 {
        last = last.with_host_keys(vec![line(n)], DAY);
    }
    assert_eq!(last.earlier_host_keys.len(), 8);
    assert_eq!(last.earlier_host_keys[0].key, line(98));
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

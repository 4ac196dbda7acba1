//! Who may list, read and remove recordings, what the audit log has of it, and what is bounded.

use super::place::{Holder, Place, run};
use crate::SOCKET;
use crate::recordings::{READS, VIEWS_OF_ONE};
use fleetgate_archive::testing::sign;
use fleetgate_archive::{Answer, Maker, Part};
use fleetgate_net::h2::{self, Channel, Tuning};
use fleetgate_proto::v1;
use fleetgate_proto::v1::recordings_client::RecordingsClient;
use fleetgate_record::block::file_head;
use fleetgate_record::frame::{Frame, Kind};
use fleetgate_record::writer::{Position, Writer};
use fleetgate_ssh::key::{HostKey, KeyType};
use tokio::net::UnixStream;
use tonic::{Code, Status};

const ROLES: &str = r#"
[role.auditor.recordings]
of = ["*"]
nodes = ["env=prod"]
may = ["play"]

[role.own.recordings]
of = ["{user}"]
may = ["play", "delete"]

[role.strict]
require_mfa = "5m"
[role.strict.recordings]
of = ["*"]
may = ["delete", "list"]
"#;

/// A recording of a node's, signed by its key.
fn recording(session: [u8; 16], begin: &str, output: &[u8], key: &HostKey) -> Vec<u8> {
    let mut file = file_head(&session).to_vec();
    let mut writer = Writer::at(Position::start(&session));
    writer.push(&Frame {
        kind: Kind::Begin,
        at: 0,
        bytes: begin.as_bytes(),
    });
    for bytes in output.chunks(30_000) {
        let frame = Frame {
            kind: Kind::Output,
            at: 7,
            bytes,
        };
        if writer.push(&frame) {
            file.extend(writer.close(None).unwrap_or_default());
        }
    }
    file.extend(writer.end(None, 9, br#"{"status":0}"#));
    file.extend(sign(&mut writer, session, key));
    file
}

/// Has a node bring one.
async fn brings(place: &Place, node: &str, digit: u8, user: &str, labels: &str, output: &[u8]) -> Vec<u8> {
    let (key, _) = HostKey::generate(KeyType::Ed25519, "").expect("a key");
    let begin = format!(
        r#"{{"user":{user:?},"login":"root","node":{node:?},"started":"2026-11-29T10:00:{digit:02}Z"{labels}}}"#
    );
    let session = [digit; 16];
    let bytes = recording(session, &begin, output, &key);
    let maker = Maker {
        name: node.to_owned(),
        keys: vec![key.public().clone()].into(),
        speaks_for: None,
    };
    let service = place.service();
    let intake = service.archive().expect("an archive").intake();
    let mut offset = 0;
    for part in bytes.chunks(200_000) {
        let part = Part {
            session,
            offset,
            bytes: part.to_vec().into(),
            whole: offset + part.len() as u64 == bytes.len() as u64,
        };
        offset += part.bytes.len() as u64;
        let kept = intake
            .take(&maker, part)
            .await
            .expect("taken")
            .await
            .expect("an answer");
        assert!(!matches!(kept.answer, Answer::Refused(_)), "{kept:?}");
    }
    bytes
}

async fn here(place: &Place) -> RecordingsClient<Channel> {
    let stream = UnixStream::connect(place.directory.join(SOCKET))
        .await
        .expect("the socket");
    RecordingsClient::new(h2::connect(stream, Tuning::AUTH).await.expect("HTTP/2"))
}

async fn of(place: &Place, holder: &Holder) -> RecordingsClient<Channel> {
    RecordingsClient::new(place.channel_of(holder).await)
}

/// The first digits of the ids that a caller is shown.
async fn listed(
    client: &mut RecordingsClient<Channel>,
    wanted: v1::RecordingsRequest,
) -> Result<Vec<u8>, Status> {
    let mut stream = client.list(wanted).await?.into_inner();
    let mut found = Vec::new();
    while let Some(entry) = stream.message().await? {
        found.push(entry.session[0]);
    }
    Ok(found)
}

async fn read(
    client: &mut RecordingsClient<Channel>,
    session: &str,
    purpose: &str,
) -> Result<(v1::RecordingBytes, Vec<u8>), Status> {
    let request = v1::ReadRecordingRequest {
        session: session.to_owned(),
        offset: 0,
        purpose: purpose.to_owned(),
        node: String::new(),
    };
    let mut stream = client.read(request).await?.into_inner();
    let first = stream.message().await?.expect("what it is");
    let mut bytes = Vec::new();
    while let Some(part) = stream.message().await? {
        bytes.extend_from_slice(&part.bytes);
    }
    Ok((first, bytes))
}

fn all() -> v1::RecordingsRequest {
    v1::RecordingsRequest::default()
}

fn id(digit: u8) -> String {
    format!("{digit:02x}").repeat(16)
}

async fn apply_roles(place: &Place) {
    let request = v1::ApplyRoleRequest {
        text: ROLES.to_owned(),
        dry_run: false,
    };
    place.admin().await.apply_role(request).await.expect("applied");
}

const PROD: &str = r#","labels":{"env":"prod"}"#;
const DEV: &str = r#","labels":{"env":"dev"}"#;

#[test]
fn everybody_sees_what_his_roles_say_and_the_audit_log_has_it() {
    run(async {
        let place = Place::new().await;
        apply_roles(&place).await;
        let large = vec![b'x'; 700_000];
        let prod = brings(&place, "web1", 1, "ada", PROD, &large).await;
        brings(&place, "web2", 2, "bob", DEV, b"hello").await;
        // Its node says nothing of labels, and nobody knows the node.
        brings(&place, "gone", 3, "bob", "", b"hello").await;
        let eve = place.user("eve", &["auditor"]).await;
        let bob = place.user("bob", &["own"]).await;
        let max = place.user("max", &["access"]).await;
        let root = place.user("root", &["admin"]).await;
        let (eve, _) = place.log_in(&eve).await;
        let (bob, _) = place.log_in(&bob).await;
        let (max, _) = place.log_in(&max).await;
        let (root, _) = place.log_in(&root).await;
        let (mut eve, mut bob) = (of(&place, &eve).await, of(&place, &bob).await);
        let (mut max, mut root) = (of(&place, &max).await, of(&place, &root).await);
        let mut here = here(&place).await;

        assert_eq!(listed(&mut here, all()).await.unwrap(), [1, 2, 3]);
        assert_eq!(listed(&mut root, all()).await.unwrap(), [1, 2, 3]);
        assert_eq!(listed(&mut eve, all()).await.unwrap(), [1]);
        assert_eq!(listed(&mut bob, all()).await.unwrap(), [2, 3]);
        let refused = listed(&mut max, all()).await.unwrap_err();
        assert_eq!(refused.code(), Code::PermissionDenied, "{refused}");
        assert!(
            refused
                .message()
                .contains("max has no role that may list recordings"),
            "{refused}"
        );
        // The last ones of those that one may see.
        let last = v1::RecordingsRequest { limit: 1, ..all() };
        assert_eq!(listed(&mut here, last.clone()).await.unwrap(), [3]);
        assert_eq!(listed(&mut eve, last).await.unwrap(), [1]);
        let of_bob = v1::RecordingsRequest {
            user: "bob".to_owned(),
            ..all()
        };
        assert_eq!(listed(&mut eve, of_bob).await.unwrap(), [0; 0]);

        let (first, bytes) = read(&mut eve, &id(1)[..8], "grep").await.unwrap();
        assert_eq!(first.entry.unwrap().source, "web1");
        assert_eq!(bytes, prod);
        let played = place.events("recording_played").await.pop().unwrap();
        for (field, value) in [
            ("user", "ada"),
            ("node", "web1"),
            ("login", "root"),
            ("session", &id(1)),
            ("purpose", "grep"),
            ("rule", "role auditor"),
            ("by", "user eve"),
            ("source", "127.0.0.1"),
        ] {
            assert_eq!(played[field], value, "{played}");
        }
        // One that may not be listed is as if it were not there; the audit log knows better.
        let hidden = read(&mut eve, &id(2), "play").await.unwrap_err();
        let missing = read(&mut eve, &id(9), "play").await.unwrap_err();
        assert_eq!((hidden.code(), missing.code()), (Code::NotFound, Code::NotFound));
        assert_eq!(hidden.message().replace(&id(2), &id(9)), missing.message());
        let refused = place.events("recording_refused").await;
        let last = refused.last().unwrap();
        assert_eq!(
            (&last["session"], &last["what"]),
            (&id(2).into(), &"play".into()),
            "{last}"
        );
        assert!(
            last["reason"]
                .as_str()
                .unwrap()
                .contains("and this one is of bob on web2"),
            "{last}"
        );
        let refused = read(&mut max, &id(1), "play").await.unwrap_err();
        assert_eq!(refused.code(), Code::PermissionDenied, "{refused}");
        for (session, purpose) in [("01", "play"), ("zz000000", "play"), (&*id(1), "sell")] {
            let refused = read(&mut eve, session, purpose).await.unwrap_err();
            assert_eq!(refused.code(), Code::InvalidArgument, "{refused}");
        }
        assert_eq!(place.events("recording_played").await.len(), 1);

        // Removal: only by its whole id, and only of one's own.
        let delete = |session: String| v1::DeleteRecordingRequest {
            session,
            node: String::new(),
        };
        let short = bob.delete(delete(id(2)[..8].to_owned())).await.unwrap_err();
        assert_eq!(short.code(), Code::InvalidArgument, "{short}");
        let refused = eve.delete(delete(id(1))).await.unwrap_err();
        assert_eq!(refused.code(), Code::PermissionDenied, "{refused}");
        let others = bob.delete(delete(id(1))).await.unwrap_err();
        assert_eq!(others.code(), Code::NotFound, "{others}");
        assert_eq!(listed(&mut here, all()).await.unwrap(), [1, 2, 3]);
        let deleted = bob.delete(delete(id(2))).await.unwrap().into_inner();
        assert_eq!(deleted.session, [2; 16].as_slice());
        assert_eq!(listed(&mut here, all()).await.unwrap(), [1, 3]);
        let deleted = place.events("recording_deleted").await;
        assert_eq!(deleted.len(), 1);
        assert_eq!(
            (&deleted[0]["by"], &deleted[0]["user"]),
            (&"user bob".into(), &"bob".into())
        );
        assert_eq!(
            here.delete(delete(id(3))).await.unwrap().into_inner().session,
            [3; 16].as_slice()
        );
    });
}

#[test]
fn of_two_recordings_with_one_id_the_node_says_which() {
    run(async {
        let place = Place::new().await;
        brings(&place, "web9", 1, "mallory", PROD, b"made up").await;
        brings(&place, "web1", 1, "ada", PROD, b"hello").await;
        let mut here = here(&place).await;
        assert_eq!(listed(&mut here, all()).await.unwrap(), [1, 1]);
        let refused = read(&mut here, &id(1)[..8], "play").await.unwrap_err();
        assert_eq!(refused.code(), Code::InvalidArgument, "{refused}");
        for part in ["web1, web9", "--node", &id(1)] {
            assert!(refused.message().contains(part), "{refused}");
        }
        let of = |node: &str| v1::ReadRecordingRequest {
            session: id(1),
            node: node.to_owned(),
            ..v1::ReadRecordingRequest::default()
        };
        for node in ["web1", "web9"] {
            let mut stream = here.read(of(node)).await.unwrap().into_inner();
            let first = stream.message().await.unwrap().unwrap();
            assert_eq!(first.entry.unwrap().source, node);
        }
        assert_eq!(here.read(of("web2")).await.unwrap_err().code(), Code::NotFound);
        let delete = |node: &str| v1::DeleteRecordingRequest {
            session: id(1),
            node: node.to_owned(),
        };
        assert!(here.delete(delete("")).await.is_err());
        assert_eq!(
            here.delete(delete("web9")).await.unwrap().into_inner().source,
            "web9"
        );
        let (first, _) = read(&mut here, &id(1), "play").await.unwrap();
        assert_eq!(first.entry.unwrap().source, "web1");
    });
}

#[test]
fn a_role_that_was_taken_away_and_an_old_second_factor_open_nothing() {
    run(async {
        let place = Place::new().await;
        apply_roles(&place).await;
        brings(&place, "web1", 1, "ada", PROD, b"hello").await;
        let eve = place.user("eve", &["strict"]).await;
        let (eve, _) = place.log_in(&eve).await;
        let mut client = of(&place, &eve).await;
        assert_eq!(listed(&mut client, all()).await.unwrap(), [1], "the control");
        // It may be listed, so the refusal says why it may not be played.
        let refused = read(&mut client, &id(1), "play").await.unwrap_err();
        assert_eq!(refused.code(), Code::PermissionDenied, "{refused}");
        place.clock.advance(400);
        let refused = listed(&mut client, all()).await.unwrap_err();
        assert!(
            refused.message().contains("run fleetgate login --mfa"),
            "{refused}"
        );
        let delete = v1::DeleteRecordingRequest {
            session: id(1),
            node: String::new(),
        };
        let refused = client.delete(delete).await.unwrap_err();
        assert!(
            refused.message().contains("run fleetgate login --mfa"),
            "{refused}"
        );
        assert_eq!(listed(&mut here(&place).await, all()).await.unwrap(), [1]);
    });
}

#[test]
fn who_does_not_read_has_so_many_places_and_others_have_theirs() {
    run(async {
        let place = Place::new().await;
        apply_roles(&place).await;
        // More than waits in the connection and before it.
        brings(&place, "web1", 1, "ada", PROD, &vec![b'x'; 4 << 20]).await;
        let eve = place.user("eve", &["auditor"]).await;
        let (eve, _) = place.log_in(&eve).await;
        let mut client = of(&place, &eve).await;
        let request = v1::ReadRecordingRequest {
            session: id(1),
            ..v1::ReadRecordingRequest::default()
        };
        let mut held = Vec::new();
        for _ in 0..VIEWS_OF_ONE {
            held.push(client.read(request.clone()).await.unwrap());
        }
        let refused = client.read(request.clone()).await.unwrap_err();
        assert_eq!(refused.code(), Code::ResourceExhausted, "{refused}");
        let mut here = here(&place).await;
        assert!(here.read(request.clone()).await.is_ok(), "others have theirs");
        // So does who reads very many, each of which is an event.
        let service = place.service();
        let uptime = service.ledger.uptime();
        for _ in 0..READS.burst {
            let _ = service.view_reads.take(&"user eve".to_owned(), uptime);
        }
        assert!(here.read(request.clone()).await.is_ok(), "others may still");
        // What was read or dropped gives its place back.
        drop(held);
        loop {
            let refused = client.read(request.clone()).await.unwrap_err();
            if refused.message().contains("very many recordings") {
                break;
            }
            tokio::task::yield_now().await;
        }
    });
}

#[test]
fn what_the_audit_log_cannot_have_does_not_happen() {
    run(async {
        let place = Place::new().await;
        let bytes = brings(&place, "web1", 1, "ada", PROD, b"hello").await;
        let mut here = here(&place).await;
        let log = rusqlite::Connection::open(place.directory.join("audit.db")).expect("the audit log");
        log.execute_batch(
            "CREATE TRIGGER full BEFORE INSERT ON events BEGIN SELECT RAISE(ABORT, 'no room'); END",
        )
        .expect("a trigger");
        let refused = read(&mut here, &id(1), "play").await.unwrap_err();
        assert_eq!(refused.code(), Code::Unavailable, "{refused}");
        let delete = || v1::DeleteRecordingRequest {
            session: id(1),
            node: String::new(),
        };
        let refused = here.delete(delete()).await.unwrap_err();
        assert_eq!(refused.code(), Code::Unavailable, "{refused}");
        log.execute_batch("DROP TRIGGER full").expect("it is gone");
        assert_eq!(read(&mut here, &id(1), "play").await.unwrap().1, bytes);
        here.delete(delete()).await.unwrap();
    });
}

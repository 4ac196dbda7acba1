//! The directory and its catalogue: kills, damage, finding, and what goes.

use super::{DAY, Machine, NOON, Place, part, run, send, take};
use crate::{Answer, Error, Key, Mark, PAGE, Query, Retention};
use std::os::unix::fs::PermissionsExt;
use std::sync::atomic::Ordering;

#[test]
fn what_was_acknowledged_is_there_whenever_the_process_dies() {
    run(async {
        let machine = Machine::new("web1");
        let maker = machine.maker();
        let bytes = machine.recording(1, 6);
        let mut place = Place::new();
        let (mut acknowledged, mut rounds) = (0, 0);
        loop {
            let offset = usize::try_from(acknowledged).unwrap();
            let end = (offset + 50_000).min(bytes.len());
            let intake = place.archive.intake();
            let answer = send(&intake, &maker, 1, (&bytes[..end], offset), 2500).await;
            let whole = matches!(answer, Answer::Whole(_));
            drop(intake);
            // A kill forgets what waits, and leaves bytes behind what the catalogue knows.
            let file = std::fs::OpenOptions::new().append(true).open(place.file(1));
            if !whole {
                std::io::Write::write_all(&mut file.unwrap(), &[9; 500]).unwrap();
            }
            place = place.again();
            let intake = place.archive.intake();
            match (answer, take(&intake, &maker, part(1, 0, b"")).await) {
                (Answer::Offset(told), Answer::Offset(kept)) => {
                    assert!(
                        kept == told && kept > acknowledged,
                        "{kept} {told} {acknowledged}"
                    );
                    acknowledged = kept;
                    rounds += 1;
                }
                (Answer::Whole(told), Answer::Whole(kept)) => {
                    assert_eq!((told.bytes, kept), (bytes.len() as u64, told));
                    break;
                }
                other => panic!("{other:?}"),
            }
        }
        assert!(rounds > 2, "{rounds}");
        assert_eq!(place.read(1).await.unwrap(), bytes);
    });
}

#[test]
fn a_catalogue_that_is_missing_or_damaged_is_made_anew() {
    run(async {
        let (machine, other) = (Machine::new("web1"), Machine::new("web2"));
        let mut place = Place::new();
        let (first, second) = (machine.recording(1, 2), other.recording(2, 1));
        let mut running = machine.tape(3);
        running.text(10);
        running.sign();
        let intake = place.archive.intake();
        send(&intake, &machine.maker(), 1, (&first, 0), 100_000).await;
        send(&intake, &other.maker(), 2, (&second, 0), 100_000).await;
        send(&intake, &machine.maker(), 3, (&running.bytes, 0), 100_000).await;
        let before = place.all().await;
        assert_eq!(before.len(), 3);
        drop(intake);
        for damage in [None, Some(&b"this is no database, and never was"[..])] {
            // The thread has ended when the archive's last copy is gone; SQLite's files are looked at by nobody then.
            let file = place.directory.join("recordings.db");
            let directory = std::mem::take(&mut place.directory);
            drop(place);
            for ending in ["-wal", "-shm"] {
                let _ = std::fs::remove_file(directory.join(format!("recordings.db{ending}")));
            }
            match damage {
                None => std::fs::remove_file(&file).unwrap(),
                Some(bytes) => std::fs::write(&file, bytes).unwrap(),
            }
            place = Place::on(directory, Retention::default());
            place.archive.turn().await.unwrap();
            let mut after = place.all().await;
            for (after, before) in after.iter_mut().zip(&before) {
                // A file says when it was written, and not by which clock.
                (after.arrived, after.started) = (before.arrived, before.started);
            }
            assert_eq!(after, before);
        }
        let sent = running.bytes.len();
        running.end();
        let intake = place.archive.intake();
        let answer = send(&intake, &machine.maker(), 3, (&running.bytes, sent), 1000).await;
        assert_eq!(answer.whole(), Some(running.length()));
        assert_eq!(place.read(1).await.unwrap(), first);
    });
}

#[test]
fn recordings_are_found_by_what_they_say() {
    run(async {
        let (place, machine) = (Place::new(), Machine::new("web1"));
        let (maker, intake) = (machine.maker(), place.archive.intake());
        let count = PAGE + 44;
        for n in 0..count {
            let mut session = [0xab; 16];
            session[..2].copy_from_slice(&u16::try_from(n).unwrap().to_be_bytes());
            let bytes = one(&machine, session, n);
            let mut part = part(0, 0, &bytes);
            part.session = session;
            intake.take(&maker, part).await.unwrap();
        }
        place.archive.turn().await.unwrap();
        let query = |change: &dyn Fn(&mut Query)| {
            let mut query = Query::default();
            change(&mut query);
            query
        };
        let (mut all, mut after) = (Vec::new(), None);
        loop {
            let page = place.archive.list(&Query::default(), after).await.unwrap();
            after = page.last().map(Mark::behind);
            if page.is_empty() {
                break;
            }
            all.extend(page);
        }
        assert_eq!(all.len(), count);
        assert!(all.windows(2).all(|pair| pair[0].started <= pair[1].started));
        for (asked, found) in [
            (query(&|q| q.user = "eve".into()), 100),
            (query(&|q| q.login = "root".into()), PAGE),
            (query(&|q| q.node = "web1".into()), PAGE),
            (query(&|q| q.node = "host".into()), 0),
            (query(&|q| q.since = NOON - 10), 10),
            (query(&|q| q.until = NOON - (count as u64) + 10), 10),
            (query(&|q| q.session_prefix = "0007".into()), 1),
            (query(&|q| q.running = true), 0),
            (query(&|q| q.limit = 7), 7),
        ] {
            let got = place.archive.list(&asked, None).await.unwrap();
            assert_eq!(got.len(), found, "{asked:?}");
            if asked.limit > 0 {
                assert_eq!(got, all[count - 7..]);
            }
        }
        let find = async |prefix: &str| place.archive.find(prefix).await;
        assert!(matches!(find("00").await, Err(Error::Several(_, ids)) if ids.len() == 3));
        assert!(matches!(find("ffff").await, Err(Error::Missing(_))));
        for wrong in ["", "0x", "00' OR 1", &"0".repeat(33)] {
            assert!(matches!(find(wrong).await, Err(Error::NoId(_))), "{wrong}");
        }
        assert!(find("0007ABAB").await.unwrap().whole, "in either case");
    });
}

fn one(machine: &Machine, session: [u8; 16], n: usize) -> Vec<u8> {
    use fleetgate_record::frame::{Frame, Kind};
    use fleetgate_record::signature::{Statement, encode};
    use fleetgate_record::writer::{Position, Writer};
    let mut writer = Writer::at(Position::start(&session));
    let mut bytes = fleetgate_record::block::file_head(&session).to_vec();
    let started = fleetgate_sys::clock::Time {
        sec: (NOON - n as u64 - 1).cast_signed(),
        nsec: 0,
    };
    let user = if n.is_multiple_of(3) { "eve" } else { "ada" };
    let json = format!(
        r#"{{"started":"{}","user":"{user}","login":"root"}}"#,
        fleetgate_sys::clock::rfc3339(started, 0)
    );
    writer.push(&Frame {
        kind: Kind::Begin,
        at: 0,
        bytes: json.as_bytes(),
    });
    bytes.extend(writer.end(None, 5, b"{}"));
    let at = *writer.position();
    let said = Statement {
        session,
        blocks: at.blocks,
        chain: at.chain,
        signed: String::new(),
    };
    let signature = machine.sign(&said.text());
    bytes.extend(writer.sign(&encode(&said, &signature)));
    bytes
}

#[test]
fn what_is_removed_is_gone_and_does_not_come_back() {
    run(async {
        let (place, machine) = (Place::new(), Machine::new("web1"));
        let (maker, intake) = (machine.maker(), place.archive.intake());
        let bytes = machine.recording(1, 1);
        let mut running = machine.tape(2);
        running.sign();
        send(&intake, &maker, 1, (&bytes, 0), 100_000).await;
        send(&intake, &maker, 2, (&running.bytes, 0), 100_000).await;
        let entry = place.archive.find("01").await.unwrap();
        let mut reader = place.archive.read(&entry, 5).await.unwrap();
        for session in [1, 2] {
            place
                .archive
                .delete(&Key::of(&[session; 16], &maker.name))
                .await
                .unwrap();
            assert!(!place.file(session).exists());
        }
        assert!(place.all().await.is_empty());
        assert!(matches!(
            place.archive.delete(&Key::of(&[1; 16], &maker.name)).await,
            Err(Error::Missing(_))
        ));
        let piece = reader.next().await.unwrap().unwrap();
        assert_eq!(piece, bytes[5..], "who reads it reads to its end");
        assert_eq!(
            send(&intake, &maker, 1, (&bytes, 0), 100_000).await.whole(),
            Some(bytes.len() as u64)
        );
        running.end();
        let refused = send(&intake, &maker, 2, (&running.bytes, 0), 100_000).await;
        assert!(matches!(&refused, Answer::Refused(why) if why.contains("removed")));
        assert_eq!(place.archive.counts().bytes(), 0);
        let place = place.again();
        assert!(place.all().await.is_empty());
    });
}

#[test]
fn recordings_go_by_age_and_by_size_and_not_before() {
    run(async {
        let machine = Machine::new("web1");
        let maker = machine.maker();
        let place = Place::with(Retention {
            keep_days: 30,
            max_size: 0,
        });
        let intake = place.archive.intake();
        for (session, more) in [(1, ""), (2, r#","keep_days":60"#), (3, r#","keep_days":10"#)] {
            let mut tape = machine.tape_that_says(session, more);
            tape.end();
            send(&intake, &maker, session, (&tape.bytes, 0), 100_000).await;
        }
        let due = async |days: u64| {
            place.now.store(NOON + days * DAY, Ordering::Relaxed);
            let due = place.archive.due().await.unwrap();
            let sessions = due
                .iter()
                .flat_map(|removal| removal.recordings.iter().map(|key| key.session[0]));
            let mut sessions: Vec<u8> = sessions.collect();
            sessions.sort_unstable();
            (due, sessions)
        };
        for (days, goes) in [
            (9, &[][..]),
            (10, &[3]),
            (29, &[3]),
            (30, &[1, 3]),
            (60, &[1, 2, 3]),
        ] {
            assert_eq!(due(days).await.1, goes, "{days}");
        }
        for removal in due(31).await.0 {
            assert_eq!(removal.reason, "age");
            place.archive.remove(removal).await.unwrap();
        }
        assert_eq!(place.all().await.len(), 1);

        let place = Place::with(Retention {
            keep_days: 0,
            max_size: 2 * machine.recording(1, 1).len() as u64 + 100,
        });
        let intake = place.archive.intake();
        for session in 1..=4 {
            let more = if session == 2 { r#","keep_days":90"# } else { "" };
            let mut tape = machine.tape_that_says(session, more);
            tape.text(3000);
            tape.end();
            send(&intake, &maker, session, (&tape.bytes, 0), 100_000).await;
            place.now.fetch_add(60, Ordering::Relaxed);
        }
        assert!(
            place.archive.due().await.unwrap().is_empty(),
            "all of them came in the last week"
        );
        place.archive.turn().await.unwrap();
        let wait = send(&intake, &maker, 5, (&machine.recording(5, 1), 0), 100_000).await;
        assert!(matches!(wait, Answer::Wait(_, why) if why.contains("`max_size`")));
        place.now.store(NOON + 8 * DAY, Ordering::Relaxed);
        let due = place.archive.due().await.unwrap();
        assert_eq!((due.len(), due[0].reason), (1, "size"));
        let sessions: Vec<u8> = due[0].recordings.iter().map(|key| key.session[0]).collect();
        assert_eq!(sessions, [1, 3], "the second one's role keeps it");
        place.archive.remove(due[0].clone()).await.unwrap();
        place.archive.turn().await.unwrap();
        let whole = send(&intake, &maker, 5, (&machine.recording(5, 1), 0), 100_000).await;
        assert!(matches!(whole, Answer::Whole(_)));
    });
}

#[test]
fn where_little_is_left_one_machine_does_not_take_that_too() {
    run(async {
        let (large, small) = (Machine::new("web1"), Machine::new("web2"));
        let one = large.recording(1, 1).len() as u64;
        let place = Place::with(Retention {
            max_size: 8 * one - 8,
            ..Retention::default()
        });
        let intake = place.archive.intake();
        let bring = async |machine: &Machine, session| {
            place.archive.turn().await.unwrap();
            let bytes = machine.recording(session, 1);
            send(&intake, &machine.maker(), session, (&bytes, 0), 100_000).await
        };
        // It is alone: nobody else is kept out.
        for session in 1..=6 {
            assert!(matches!(bring(&large, session).await, Answer::Whole(_)));
        }
        assert!(matches!(bring(&small, 7).await, Answer::Whole(_)));
        let wait = bring(&large, 8).await;
        assert!(
            matches!(&wait, Answer::Wait(_, why) if why.contains("a quarter")),
            "{wait:?}"
        );
        assert!(matches!(bring(&small, 9).await, Answer::Whole(_)));
    });
}

#[test]
fn nobody_else_can_read_or_write_what_is_kept() {
    run(async {
        let (place, machine) = (Place::new(), Machine::new("web1"));
        let intake = place.archive.intake();
        send(
            &intake,
            &machine.maker(),
            1,
            (&machine.recording(1, 1), 0),
            100_000,
        )
        .await;
        let mode = |path: &std::path::Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        let file = place.file(1);
        assert_eq!(mode(&file), 0o600);
        assert_eq!(mode(file.parent().unwrap()), 0o700);
        assert_eq!(mode(&place.directory), 0o700);
        assert_eq!(mode(&place.directory.join("recordings.db")), 0o600);
        let open = place.directory.join("open");
        std::fs::create_dir(&open).unwrap();
        std::fs::set_permissions(&open, std::fs::Permissions::from_mode(0o777)).unwrap();
        let refused = crate::prepare(&open).unwrap_err().to_string();
        assert!(refused.contains("chmod go-w"), "{refused}");
    });
}

#[test]
fn a_catalogue_of_before_is_gone_on_with() {
    run(async {
        let mut place = Place::new();
        let machine = Machine::new("web1");
        let bytes = machine.recording(1, 1);
        send(&place.archive.intake(), &machine.maker(), 1, (&bytes, 0), 100_000).await;
        place.archive.turn().await.unwrap();
        let before = place.all().await;
        let directory = std::mem::take(&mut place.directory);
        drop(place);
        // As it was: a session was the key, and one column was not there.
        let db = rusqlite::Connection::open(directory.join("recordings.db")).unwrap();
        db.execute_batch(
            "CREATE TABLE old AS SELECT * FROM recordings; ALTER TABLE old DROP COLUMN aside; DROP TABLE recordings; \
             ALTER TABLE old RENAME TO recordings; CREATE INDEX by_start ON recordings (started, session); \
             CREATE INDEX by_arrival ON recordings (arrived); CREATE INDEX to_move ON recordings (arrived); \
             CREATE INDEX by_removal ON recordings (place); PRAGMA user_version = 1;",
        )
        .unwrap();
        drop(db);
        let place = Place::on(directory, Retention::default());
        assert_eq!(place.all().await, before);
        assert_eq!(place.read(1).await.unwrap(), bytes);
    });
}

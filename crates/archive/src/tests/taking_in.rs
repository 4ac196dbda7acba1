//! Parts of streams: resume, many at once, and what one machine or proxy can do to another's recording.

use super::{Machine, Place, part, run, send, take};
use crate::{Answer, Key, MAX_OPEN, Mark, Part, Query, Retention};
use std::sync::Arc;

#[test]
fn a_recording_arrives_byte_for_byte_and_is_told_of() {
    run(async {
        let (place, machine) = (Place::new(), Machine::new("web1"));
        let (bytes, maker) = (machine.recording(1, 3), machine.maker());
        let intake = place.archive.intake();
        assert_eq!(take(&intake, &maker, part(1, 0, b"")).await, Answer::Offset(0));
        let length = bytes.len() as u64;
        assert_eq!(
            send(&intake, &maker, 1, (&bytes, 0), 1000).await.whole(),
            Some(length)
        );
        assert_eq!(place.read(1).await.unwrap(), bytes);
        assert_eq!(std::fs::read(place.file(1)).unwrap(), bytes);
        let entry = place.archive.find("0101").await.unwrap();
        assert!(entry.whole && entry.bytes == length && !entry.encrypted);
        assert_eq!(
            (&*entry.source, &*entry.user, &*entry.login, &*entry.node),
            ("web1", "ada", "root", "web1"),
            "a node speaks for itself, whatever it calls itself"
        );
        assert_eq!(entry.end, r#"{"status":0}"#);
        assert_eq!(take(&intake, &maker, part(1, 0, b"")).await.whole(), Some(length));
        let counts = place.archive.counts();
        assert_eq!(
            (counts.recordings(), counts.bytes(), counts.unfinished()),
            (1, length, 0)
        );
        assert_eq!((counts.open(), counts.unproven(), counts.in_flight()), (0, 0, 0));
    });
}

#[test]
fn what_is_not_signed_is_neither_kept_nor_acknowledged() {
    run(async {
        let (place, machine) = (Place::new(), Machine::new("web1"));
        let (maker, intake) = (machine.maker(), place.archive.intake());
        let mut tape = machine.tape(1);
        tape.text(100);
        assert_eq!(
            send(&intake, &maker, 1, (&tape.bytes, 0), 500).await,
            Answer::Offset(0)
        );
        assert!(place.all().await.is_empty() && !place.file(1).exists());
        let (sent, covered) = (tape.bytes.len(), tape.length());
        tape.sign();
        let answer = send(&intake, &maker, 1, (&tape.bytes, sent), 500).await;
        assert_eq!(answer, Answer::Offset(covered));
        assert_eq!(
            place.read(1).await.unwrap(),
            tape.bytes,
            "the signature is there too"
        );
        let entry = &place.all().await[0];
        assert!(!entry.whole && entry.end.is_empty());
        // It goes on, by the same way and by others: at what is acknowledged, and where the file ends.
        let (sent, before) = (tape.bytes.len(), tape.length());
        tape.text(10);
        tape.sign();
        let mut covered = before;
        let answer = send(&intake, &maker, 1, (&tape.bytes, sent), 5000).await;
        assert!(matches!(answer, Answer::Offset(at) if at > covered), "{answer:?}");
        for from_end in [false, true] {
            let other = place.archive.intake();
            let Answer::Offset(kept) = take(&other, &maker, part(1, 0, b"")).await else {
                panic!("it runs");
            };
            covered = kept;
            let from = if from_end {
                tape.bytes.len()
            } else {
                usize::try_from(kept).unwrap()
            };
            tape.text(10);
            tape.sign();
            let answer = send(&other, &maker, 1, (&tape.bytes, from), 700).await;
            assert!(matches!(answer, Answer::Offset(at) if at > covered), "{answer:?}");
        }
        // The first stream is behind by now, and is told so.
        let sent = tape.bytes.len();
        tape.end();
        let late = take(&intake, &maker, part(1, 17, b"x")).await;
        assert!(matches!(late, Answer::Offset(at) if at > covered));
        let answer = send(&intake, &maker, 1, (&tape.bytes, sent), 700).await;
        assert_eq!(answer.whole(), Some(tape.length()));
        assert_eq!(place.read(1).await.unwrap(), tape.bytes);
    });
}

#[test]
fn junk_neither_replaces_nor_blocks_a_recording() {
    run(async {
        let (place, machine, other) = (Place::new(), Machine::new("web1"), Machine::new("web2"));
        let (maker, bytes) = (machine.maker(), machine.recording(1, 2));
        let (honest, hostile) = (place.archive.intake(), place.archive.intake());
        // A proxy that is taken over says that its bytes are web1's: before, between and after.
        let mut junk = machine.tape(1);
        junk.text(1000);
        let half = bytes.len() / 2;
        for (offset, end) in [(0, half), (half, bytes.len())] {
            send(&hostile, &maker, 1, (&junk.bytes, 0), 3000).await;
            let refused = send(&hostile, &maker, 1, (&other.recording(1, 1), 0), 100_000).await;
            assert!(
                matches!(&refused, Answer::Wait(_, why) if why.contains("none of web1")) || offset > 0,
                "{refused:?}"
            );
            take(&hostile, &maker, part(1, offset as u64, &[7; 5000])).await;
            send(&honest, &maker, 1, (&bytes[..end], offset), 1000).await;
        }
        assert_eq!(place.read(1).await.unwrap(), bytes);
        // Blocks of its own between what is signed and the signature, which is real: they are not acknowledged, and go.
        let mut forged = machine.tape(2);
        let mut real = machine.tape(2);
        let said = real.statement();
        let covered = real.length();
        forged.text(500);
        forged.sign_as(&said);
        let answer = send(&hostile, &maker, 2, (&forged.bytes, 0), 4000).await;
        assert_eq!(answer, Answer::Offset(covered));
        real.sign();
        real.text(3);
        real.end();
        assert!(real.bytes.len() < forged.bytes.len());
        let from = usize::try_from(covered).unwrap();
        let answer = send(&honest, &maker, 2, (&real.bytes, from), 4000).await;
        assert_eq!(answer.whole(), Some(real.length()));
        assert_eq!(place.read(2).await.unwrap(), real.bytes);
        assert_eq!(std::fs::read(place.file(2)).unwrap(), real.bytes);
        // An end that nobody signed.
        let mut cut = machine.tape(3);
        cut.text(10);
        cut.sign();
        let whole = Part {
            whole: true,
            ..part(3, 0, &cut.bytes)
        };
        let refused = take(&honest, &maker, whole).await;
        assert!(matches!(&refused, Answer::Refused(why) if why.contains("no signature covers an end")));
    });
}

#[test]
fn a_proxy_speaks_for_the_nodes_that_it_stands_for_alone() {
    run(async {
        let place = Place::new();
        let machine = Machine::new("edge");
        let intake = place.archive.intake();
        for (session, may) in [(1, true), (2, false)] {
            let mut maker = machine.maker();
            maker.speaks_for = Some(Arc::new(move |node: &str| node == "host" && may));
            send(
                &intake,
                &maker,
                session,
                (&machine.recording(session, 1), 0),
                100_000,
            )
            .await;
        }
        let nodes: Vec<String> = place.all().await.into_iter().map(|entry| entry.node).collect();
        assert_eq!(nodes, ["host", ""]);
    });
}

#[test]
fn many_come_in_side_by_side_and_a_bad_one_delays_no_other() {
    run(async {
        let (place, machine, other) = (Place::new(), Machine::new("web1"), Machine::new("web2"));
        let (maker, intake) = (machine.maker(), place.archive.intake());
        let recordings: Vec<Vec<u8>> = (0..40).map(|n| machine.recording(n, 1)).collect();
        let bad = other.recording(200, 1);
        let pieces = recordings
            .iter()
            .map(|bytes| bytes.len().div_ceil(3000))
            .max()
            .unwrap();
        let mut answers = Vec::new();
        for piece in 0..pieces {
            for (session, bytes) in recordings.iter().chain([&bad]).enumerate() {
                let session = if session == 40 { 200 } else { session as u8 };
                if let Some(chunk) = bytes.chunks(3000).nth(piece) {
                    let part = part(session, 3000 * piece as u64, chunk);
                    answers.push((session, intake.take(&maker, part).await.unwrap()));
                }
            }
        }
        let (mut whole, mut postponed) = (std::collections::BTreeSet::new(), 0);
        for (session, answer) in answers {
            match answer.await.unwrap().answer {
                Answer::Whole(_) => drop(whole.insert(session)),
                // Its key may be a newer one of the machine's.
                Answer::Wait(..) => {
                    assert_eq!(session, 200);
                    postponed += 1;
                }
                _ => {}
            }
        }
        assert_eq!(whole.len(), 40);
        assert!(postponed >= 1);
        for (session, bytes) in recordings.iter().enumerate() {
            assert_eq!(place.read(session as u8).await.unwrap(), *bytes);
        }
    });
}

#[test]
fn more_than_may_come_in_at_once_take_the_places_of_those_that_rest() {
    run(async {
        let (place, machine) = (Place::new(), Machine::new("web1"));
        let (maker, intake) = (machine.maker(), place.archive.intake());
        let number = |n: usize| {
            let mut session = [0; 16];
            session[..8].copy_from_slice(&n.to_be_bytes());
            session
        };
        let begun = |n: usize| {
            let mut part = part(0, 0, &fleetgate_record::block::file_head(&number(n)));
            part.session = number(n);
            part
        };
        let mut rests = machine.tape(1);
        rests.sign();
        send(&intake, &maker, 1, (&rests.bytes, 0), 1000).await;
        for n in 0..MAX_OPEN {
            assert_eq!(take(&intake, &maker, begun(n)).await, Answer::Offset(0));
        }
        assert_eq!(place.archive.counts().open(), MAX_OPEN as u64);
        let late = take(&intake, &maker, begun(MAX_OPEN)).await;
        assert!(matches!(late, Answer::Wait(_, why) if why.contains("at once")));
        // Another stream has places of its own, and those of a stream that ended are free.
        let other = place.archive.intake();
        assert_eq!(take(&other, &maker, begun(MAX_OPEN)).await, Answer::Offset(0));
        drop(intake);
        assert_eq!(take(&other, &maker, begun(MAX_OPEN + 1)).await, Answer::Offset(0));
        assert_eq!(place.archive.counts().open(), 2);
        // The one that rested goes on where it was.
        let sent = rests.bytes.len();
        rests.end();
        let answer = send(&other, &maker, 1, (&rests.bytes, sent), 1000).await;
        assert_eq!(answer.whole(), Some(rests.length()));
    });
}

#[test]
fn much_between_two_signatures_waits_in_a_file_and_arrives() {
    run(async {
        let (place, machine) = (Place::new(), Machine::new("web1"));
        let (maker, intake) = (machine.maker(), place.archive.intake());
        let mut tape = machine.tape(1);
        (0..30).for_each(|_| tape.text(3000));
        let sent = tape.bytes.len();
        assert!(sent > 4 * crate::unproven::IN_MEMORY, "{sent}");
        assert_eq!(
            send(&intake, &maker, 1, (&tape.bytes, 0), 100_000).await,
            Answer::Offset(0)
        );
        assert_eq!(place.archive.counts().unproven(), sent as u64);
        tape.end();
        let answer = send(&intake, &maker, 1, (&tape.bytes, sent), 100_000).await;
        assert_eq!(answer.whole(), Some(tape.length()));
        assert_eq!(place.read(1).await.unwrap(), tape.bytes);
        assert_eq!(place.archive.counts().unproven(), 0);
    });
}

#[test]
fn a_session_id_that_two_machines_bring_is_kept_of_both() {
    run(async {
        let mut place = Place::new();
        let (first, honest, third) = (
            Machine::new("mallory"),
            Machine::new("web1"),
            Machine::new("web2"),
        );
        let intake = place.archive.intake();
        let forged = first.recording(1, 1);
        assert!(
            send(&intake, &first.maker(), 1, (&forged, 0), 100_000)
                .await
                .whole()
                .is_some()
        );
        // Part by part and in turn, by one stream: neither disturbs the other.
        let (own, late) = (honest.recording(1, 3), third.recording(1, 2));
        for (machine, bytes) in [(&honest, &own), (&third, &late)] {
            let half = bytes.len() / 2;
            take(&intake, &machine.maker(), part(1, 0, &bytes[..half])).await;
        }
        for (machine, bytes) in [(&honest, &own), (&third, &late)] {
            let half = bytes.len() / 2;
            let answer = take(&intake, &machine.maker(), part(1, half as u64, &bytes[half..])).await;
            assert_eq!(answer.whole(), Some(bytes.len() as u64), "{}", machine.name);
        }
        for round in 0..3 {
            let all = place.all().await;
            let mut kept = Vec::new();
            for entry in &all {
                kept.push((
                    entry.source.clone(),
                    entry.node.clone(),
                    place.bytes(entry).await.unwrap(),
                ));
            }
            let of = |name: &str, bytes: &[u8]| (name.to_owned(), name.to_owned(), bytes.to_vec());
            assert_eq!(
                kept,
                [of("mallory", &forged), of("web1", &own), of("web2", &late)],
                "{round}"
            );
            // Pages and the last ones go on within an id.
            let after = place
                .archive
                .list(&Query::default(), Some(Mark::behind(&all[0])))
                .await
                .unwrap();
            assert_eq!(after, all[1..]);
            let last = Query {
                limit: 2,
                ..Query::default()
            };
            assert_eq!(place.archive.list(&last, None).await.unwrap(), all[1..]);
            let error = place.archive.find("0101").await.unwrap_err().to_string();
            assert!(
                error.contains("mallory, web1, web2") && error.contains("--node"),
                "{error}"
            );
            assert_eq!(std::fs::read(place.file(1)).unwrap(), forged);
            let aside = place
                .directory
                .join("others/web1/2026-11-30")
                .join(place.file(1).file_name().unwrap());
            assert_eq!(std::fs::read(aside).unwrap(), own);
            // As after a crash, and with a catalogue that is made anew.
            place = match round {
                0 => place.again(),
                _ => {
                    // The archive's thread ends with it, and takes its files along.
                    let directory = std::mem::take(&mut place.directory);
                    drop(place);
                    for file in std::fs::read_dir(&directory)
                        .unwrap()
                        .map(|entry| entry.unwrap().path())
                    {
                        if file.to_string_lossy().contains("recordings.db") {
                            std::fs::remove_file(file).unwrap();
                        }
                    }
                    Place::on(directory, Retention::default())
                }
            };
            place.archive.turn().await.unwrap();
            assert_eq!(place.archive.counts().recordings(), 3);
        }
        // Removing one removes no other, and its place is gone.
        place.archive.delete(&Key::of(&[1; 16], "web2")).await.unwrap();
        assert!(place.archive.delete(&Key::of(&[1; 16], "web2")).await.is_err());
        place.archive.delete(&Key::of(&[1; 16], "mallory")).await.unwrap();
        assert_eq!(place.read(1).await.unwrap(), own);
        assert!(!place.file(1).exists() && !place.directory.join("others/web2").exists());
        let asked = take(&place.archive.intake(), &honest.maker(), part(1, 0, b"")).await;
        assert_eq!(asked.whole(), Some(own.len() as u64));
        place.archive.delete(&Key::of(&[1; 16], "web1")).await.unwrap();
        assert!(!place.directory.join("others").exists());
    });
}

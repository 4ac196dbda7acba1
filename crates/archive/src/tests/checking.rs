//! The checker: what is a recording, and what only looks like one.

use super::{Machine, Tape};
use crate::checker::{Checker, Proof};
use fleetgate_record::block::{HEAD, Head, Holds};
use fleetgate_record::signature::{self, Statement};

fn feed(machine: &Machine, bytes: &[u8], piece: usize) -> Result<Checker, String> {
    let mut checker = Checker::new([7; 16]);
    let maker = machine.maker();
    for piece in bytes.chunks(piece) {
        let check = |text: &str, signature: &[u8]| maker.signed(text, signature);
        checker.feed(piece, &check).map_err(|e| e.to_string())?;
    }
    Ok(checker)
}

fn proof(machine: &Machine, bytes: &[u8], piece: usize) -> Option<Proof> {
    feed(machine, bytes, piece).unwrap().proof().copied()
}

#[test]
fn pieces_of_any_length_prove_the_same() {
    let machine = Machine::new("web1");
    let bytes = machine.recording(7, 3);
    let whole = proof(&machine, &bytes, usize::MAX).unwrap();
    assert!(whole.covered.ended && whole.length == bytes.len() as u64);
    assert!(
        whole.covered.offset < whole.length,
        "the last signature covers what is before it"
    );
    for piece in [1, 31, 33, 71, 72, 73, 4096, 100_000] {
        assert_eq!(proof(&machine, &bytes, piece), Some(whole), "{piece}");
    }
    let checker = feed(&machine, &bytes, 1000).unwrap();
    assert!(checker.begin().unwrap().contains(r#""user":"ada""#));
    assert_eq!(checker.end(), Some(r#"{"status":0}"#));
    // Behind each signature its proof is there, and not a byte before.
    let mut tape = machine.tape(7);
    tape.text(100);
    let covered = tape.length();
    tape.text(100);
    assert_eq!(proof(&machine, &tape.bytes, 50), None);
    tape.sign();
    assert_eq!(proof(&machine, &tape.bytes[..tape.bytes.len() - 1], 50), None);
    let proof = proof(&machine, &tape.bytes, 50).unwrap();
    assert!(!proof.covered.ended && proof.covered.offset > covered);
}

#[test]
fn every_changed_byte_is_refused_or_proves_nothing_more() {
    let machine = Machine::new("web1");
    let mut tape = machine.tape(7);
    tape.text(20);
    tape.sign();
    tape.end();
    let good = proof(&machine, &tape.bytes, usize::MAX).unwrap();
    for at in 0..tape.bytes.len() {
        let mut changed = tape.bytes.clone();
        changed[at] ^= 0x20;
        if let Ok(checker) = feed(&machine, &changed, usize::MAX) {
            let proven = checker.proof().map_or(0, |proof| proof.covered.offset);
            assert!(
                proven <= at as u64 && proven < good.covered.offset,
                "byte {at} of {proven}"
            );
        }
    }
}

#[test]
fn what_only_looks_like_a_recording_is_refused_with_words() {
    let (machine, other) = (Machine::new("web1"), Machine::new("web2"));
    let recording = machine.recording(7, 3);
    let expect = |bytes: &[u8], words: &str| {
        let refused = feed(&machine, bytes, 1000).map(drop).expect_err(words);
        assert!(refused.contains(words), "{refused}");
    };
    expect(&other.recording(7, 1), "which is none of web1");
    expect(&machine.recording(8, 1), "the recording of the session 08080808");
    expect(&[b'x'; 40], "no recording of fleetgate");
    expect(
        &[&recording[..32], &[0; 72][..]].concat(),
        "no block where one should begin",
    );
    // A block that says it is as long as the number goes.
    let mut long = recording[..32 + HEAD].to_vec();
    long[32 + 8..32 + 12].copy_from_slice(&u32::MAX.to_le_bytes());
    expect(&long, "larger than any block");
    // Swapped and dropped blocks.
    let (first, second, third) = blocks(&recording);
    expect(
        &[&recording[..first], &recording[second..]].concat(),
        "missing, or is in the wrong place",
    );
    let swapped = [
        &recording[..first],
        &recording[second..third],
        &recording[first..second],
    ];
    expect(&swapped.concat(), "missing, or is in the wrong place");
    // A signature over another chain, of another session, and none at all.
    let with = |sign: &dyn Fn(&mut Tape<'_>)| {
        let mut tape = machine.tape(7);
        tape.text(10);
        sign(&mut tape);
        tape.bytes
    };
    let statement = |tape: &Tape<'_>| tape.statement();
    let lie = |change: &dyn Fn(&mut Statement)| {
        with(&|tape| {
            let mut said = statement(tape);
            change(&mut said);
            tape.sign_as(&said);
        })
    };
    expect(
        &lie(&|said| said.chain[0] ^= 1),
        "the signature in block 2: the signature is wrong",
    );
    expect(
        &lie(&|said| said.blocks += 1),
        "other blocks than those before it",
    );
    expect(
        &lie(&|said| said.session = [8; 16]),
        "the signature in block 2: the signature is wrong",
    );
    expect(&with(&|tape| tape.stand_in(b"nothing")), "a signature is damaged");
    let forged = with(&|tape| {
        let said = statement(tape);
        let signature = machine.sign("something else");
        tape.stand_in(&signature::encode(&said, &signature));
    });
    expect(&forged, "the signature in block 2");
    // The same one again and again.
    let replayed = with(&|tape| (0..20).for_each(|_| tape.sign_as(&statement(tape).clone())));
    assert!(
        feed(&machine, &replayed, 1000).is_ok(),
        "each of these proves more than the one before"
    );
    let replayed = with(&|tape| {
        let said = statement(tape);
        (0..20).for_each(|_| tape.sign_as(&said));
    });
    expect(&replayed, "prove nothing new");
    // Something behind the end.
    let mut tape = machine.tape(7);
    tape.end();
    tape.text(1);
    expect(&tape.bytes, "missing, or is in the wrong place");
}

/// Where the first three blocks behind the beginning's begin.
fn blocks(recording: &[u8]) -> (usize, usize, usize) {
    let next = |at: usize| {
        let head = recording[at..].first_chunk().unwrap();
        at + HEAD + Head::decode(head).unwrap().0.stored
    };
    let first = next(32);
    (first, next(first), next(next(first)))
}

#[test]
fn the_first_block_says_whose_it_is_and_is_readable() {
    let machine = Machine::new("web1");
    let mut head = Head {
        continues: false,
        holds: Holds::Compressed,
        stored: 4,
        plain: 4,
        number: 0,
        first: 0,
        last: 0,
    };
    let start = &machine.recording(7, 0)[..32];
    let chain = fleetgate_record::block::first_chain(start.first_chunk().unwrap());
    for (holds, words) in [
        (Holds::Compressed, "has to be readable"),
        (Holds::Frames, "the frame that belongs there"),
        (Holds::End, "the frame that belongs there"),
    ] {
        head.holds = holds;
        let (sealed, _) = head.seal(&chain, b"abcd");
        let refused = feed(&machine, &[start, &sealed, b"abcd"].concat(), 9)
            .map(drop)
            .unwrap_err();
        assert!(refused.contains(words), "{refused}");
    }
}

#[test]
fn checking_goes_on_behind_what_was_proven() {
    let machine = Machine::new("web1");
    let mut tape = machine.tape(7);
    tape.text(50);
    tape.sign();
    let before = proof(&machine, &tape.bytes, 100).unwrap();
    tape.text(50);
    tape.end();
    let maker = machine.maker();
    let mut checker = Checker::resume([7; 16], before.covered, machine.maker().last_keys());
    let offset = usize::try_from(before.covered.offset).unwrap();
    let check = |text: &str, signature: &[u8]| maker.signed(text, signature);
    checker.feed(&tape.bytes[offset..], &check).unwrap();
    assert_eq!(checker.proof(), proof(&machine, &tape.bytes, 100).as_ref());
}

//! Each way of changing a recording is found, and named.

use super::*;
use crate::verify::{NotSigned, Problem, Report, verify};
use fleetgate_record::Fault;
use std::io::Cursor;

/// The key `node` is known.
fn check(text: &str, signature: &[u8]) -> Result<String, NotSigned> {
    let signature = String::from_utf8_lossy(signature).into_owned();
    match signature.split_once(':') {
        Some((key, signed)) if signed == text && key == "node" => Ok(key.to_owned()),
        Some((key, signed)) if signed == text => Err(NotSigned::OtherKey(key.to_owned())),
        _ => Err(NotSigned::Wrong("the signature is wrong".to_owned())),
    }
}

fn report(file: &[u8]) -> Report {
    verify(&mut Cursor::new(file), &SESSION, None, &mut check).expect("memory")
}

/// Blocks 0, 2 and 4 with frames, 1 and 3 with signatures, 5 the end, 6 the last signature.
fn recording() -> Recording {
    let mut r = Recording::new();
    r.output(10 * MS, "one")
        .sign("node")
        .output(20 * MS, "two")
        .sign("node");
    r.output(30 * MS, "three").end(40 * MS).sign("node");
    assert_eq!(r.starts.len(), 7);
    r
}

impl Recording {
    fn block(&self, n: usize) -> &[u8] {
        &self.file[self.starts[n]..self.starts.get(n + 1).copied().unwrap_or(self.file.len())]
    }

    fn with(&self, blocks: &[usize]) -> Vec<u8> {
        let mut file = self.file[..self.starts[0]].to_vec();
        blocks.iter().for_each(|n| file.extend_from_slice(self.block(*n)));
        file
    }
}

#[test]
fn a_whole_recording_is_good() {
    let report = report(&recording().file);
    assert_eq!(report.problems, []);
    assert_eq!((report.blocks, report.frames, report.last), (7, 5, 40 * MS));
    assert_eq!((report.covered(), report.signers.len()), (6, 1));
    assert_eq!(report.signers[0].signatures, 3);
    assert_eq!(report.end.map(|end| end.summary()), Some("exit 3".to_owned()));
    assert_eq!(report.begin.node, "web1");
}

#[test]
fn every_changed_byte_is_found() {
    let r = recording();
    for at in 0..r.file.len() {
        let mut file = r.file.clone();
        file[at] ^= 0x10;
        let problems = report(&file).problems;
        let block = r.starts.iter().rposition(|start| *start <= at);
        let named = problems.iter().any(|problem| match (problem, block) {
            (Problem::NotARecording | Problem::OtherSession(_), None) => true,
            (Problem::Damaged(e), Some(block)) => e.block == block as u64,
            // Where a length or a number was changed.
            (Problem::Cut(b) | Problem::Misplaced(_, b) | Problem::Missing(b, _), Some(block)) => {
                *b == block as u64
            }
            _ => false,
        });
        assert!(named, "byte {at}: {problems:?}");
    }
}

#[test]
fn what_is_missing_moved_or_cut_is_named() {
    let r = recording();
    let first = |blocks: &[usize]| report(&r.with(blocks)).problems.remove(0);
    assert_eq!(first(&[0, 1, 3, 4, 5, 6]), Problem::Missing(2, 3));
    assert_eq!(first(&[0, 4, 5, 6]), Problem::Missing(1, 4));
    assert_eq!(first(&[1, 2, 3, 4, 5, 6]), Problem::Missing(0, 1));
    assert_eq!(first(&[0, 1, 4, 3, 2, 5, 6]), Problem::Misplaced(4, 2));
    assert_eq!(first(&[0, 1, 2, 2, 3, 4, 5, 6]), Problem::Misplaced(2, 3));
    assert_eq!(first(&[0, 1, 2, 3]), Problem::NoEnd(4));
    assert_eq!(first(&[0, 1, 2, 3, 4, 5]), Problem::EndNotSigned(3, 6));
    let mut file = r.file.clone();
    file.truncate(r.starts[5] - 1);
    assert_eq!(report(&file).problems, [Problem::Cut(4)]);
    // A number that was changed, and nothing else.
    let mut file = r.file.clone();
    file[r.starts[2] + 16] = 9;
    let Problem::Damaged(error) = report(&file).problems.remove(0) else {
        panic!("no block is missing");
    };
    assert_eq!((error.fault, error.block), (Fault::Changed, 2));
    assert_eq!(report(b"#!/bin/sh").problems, [Problem::NotARecording]);
    assert_eq!(report(b"").problems, [Problem::NotARecording]);
    for problem in [first(&[0, 4, 5, 6]), first(&[0, 1, 2, 3])] {
        assert!(problem.to_string().contains("block"), "{problem}");
    }
}

#[test]
fn whose_signature_it_is_counts() {
    let signed = |keys: [&str; 2]| {
        let mut r = Recording::new();
        r.output(MS, "one").sign(keys[0]).end(2 * MS).sign(keys[1]);
        report(&r.file).problems
    };
    assert_eq!(signed(["node", "node"]), []);
    assert_eq!(signed(["other", "node"]), [Problem::OtherKey(1, "other".into())]);
    assert_eq!(
        signed(["node", "other"]),
        [Problem::OtherKey(3, "other".into()), Problem::EndNotSigned(1, 3)]
    );
    // A stranger writes all of it anew: the chain is right, and nobody signed it.
    let mut r = Recording::new();
    r.output(MS, "forged").end(2 * MS);
    assert_eq!(report(&r.file).problems, [Problem::EndNotSigned(0, 2)]);
    let mut r = Recording::of([1; 16], BEGIN);
    r.end(MS).sign("node");
    assert_eq!(report(&r.file).problems, [Problem::OtherSession("01".repeat(16))]);
}

#[test]
fn one_that_runs_has_no_end() {
    let mut r = Recording::new();
    r.output(MS, "one").sign("node").output(2 * MS, "two");
    let report = verify(&mut Cursor::new(&r.file), &SESSION, Some(r.tail()), &mut check).expect("memory");
    assert_eq!((report.problems, report.frames, report.end), (vec![], 3, None));
}

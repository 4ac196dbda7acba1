//! Recordings are written and read again; each way of changing one is found and named; a crash at every byte leaves what was
//! whole.

use crate::block::{FILE_HEAD, FULL, file_head};
use crate::compress::Compressor;
use crate::frame::{Frame, Kind, MAX_BYTES, omission, resize};
use crate::reader::{Content, ReadError, Reader};
use crate::signature::{LastKey, Statement, encode};
use crate::tail::Tail;
use crate::writer::{Position, Writer};
use crate::{Fault, pipe, recover, signature};

mod encrypted;
mod groups;

const SESSION: [u8; 16] = [7; 16];

type OwnedFrame = (Kind, u64, Vec<u8>);

/// Frames as a shell makes them, some of them large.
fn some_frames(count: u64) -> Vec<OwnedFrame> {
    let mut frames = vec![(Kind::Begin, 0, br#"{"login":"ada"}"#.to_vec())];
    for n in 0..count {
        let at = n * 40_000;
        frames.push(match n % 5 {
            0 => (Kind::Resize, at, resize(80, 24).to_vec()),
            1 => (Kind::Omitted, at, omission(Kind::Stdout, n).to_vec()),
            2 => (Kind::Output, at, vec![b'x'; (n as usize * 977) % MAX_BYTES]),
            _ => (Kind::Output, at, format!("line {n} of it\r\n").into_bytes()),
        });
    }
    frames
}

fn frame((kind, at, bytes): &OwnedFrame) -> Frame<'_> {
    Frame {
        kind: *kind,
        at: *at,
        bytes,
    }
}

fn sign(writer: &mut Writer) -> Vec<u8> {
    let at = writer.position();
    let statement = Statement {
        session: SESSION,
        blocks: at.blocks,
        chain: at.chain,
        signed: "2026-11-29T10:00:00Z".to_owned(),
    };
    writer.sign(&encode(&statement, b"a signature"))
}

/// A whole recording, and where each block begins.
fn record(frames: &[OwnedFrame]) -> (Vec<u8>, Vec<usize>) {
    let mut file = file_head(&SESSION).to_vec();
    let mut starts = Vec::new();
    let mut compressor = Compressor::new().unwrap();
    let mut writer = Writer::at(Position::start(&SESSION));
    for f in frames {
        if writer.push(&frame(f)) {
            starts.push(file.len());
            file.extend(writer.close(Some(&mut compressor)).unwrap());
            starts.push(file.len());
            file.extend(sign(&mut writer));
        }
    }
    if let Some(block) = writer.close(Some(&mut compressor)) {
        starts.push(file.len());
        file.extend(block);
    }
    starts.push(file.len());
    file.extend(writer.end(Some(&mut compressor), u64::MAX, b"{}"));
    starts.push(file.len());
    file.extend(sign(&mut writer));
    assert_eq!(writer.position().length, file.len() as u64);
    (file, starts)
}

fn read(file: &[u8]) -> (Vec<OwnedFrame>, u64, Option<(Fault, u64)>) {
    let mut reader = match Reader::new(file) {
        Ok(reader) => reader,
        Err(ReadError::Fault(e)) => return (Vec::new(), 0, Some((e.fault, e.block))),
        Err(ReadError::Io(e)) => panic!("{e}"),
    };
    let mut frames = Vec::new();
    let mut signatures = 0;
    loop {
        match reader.next_block() {
            Ok(Some(block)) => {
                if let Content::Signature { signature, .. } = &block.content {
                    assert_eq!(signature, b"a signature");
                    signatures += 1;
                }
                for f in block.frames() {
                    let f = f.unwrap();
                    frames.push((f.kind, f.at, f.bytes.to_vec()));
                }
            }
            Ok(None) => return (frames, signatures, None),
            Err(ReadError::Fault(e)) => return (frames, signatures, Some((e.fault, e.block))),
            Err(ReadError::Io(e)) => panic!("{e}"),
        }
    }
}

#[test]
fn what_is_written_is_read() {
    let frames = some_frames(400);
    let (file, starts) = record(&frames);
    let (got, signatures, fault) = read(&file);
    assert_eq!(fault, None);
    // Each full block is signed; the last one, which is not full, is signed with the end behind it.
    assert_eq!(signatures as usize * 2 + 1, starts.len());
    assert_eq!(got.last().unwrap().0, Kind::End);
    assert_eq!(&got[..got.len() - 1], &frames[..]);
    let plain: usize = frames.iter().map(|f| f.2.len()).sum();
    assert!(
        plain > 10 * FULL && file.len() < plain / 10,
        "{plain} {}",
        file.len()
    );
}

#[test]
fn every_changed_byte_is_found() {
    let (file, starts) = record(&some_frames(60));
    for at in 0..file.len() {
        let mut changed = file.clone();
        changed[at] ^= 0x20;
        let (_, _, fault) = read(&changed);
        let (fault, block) = fault.unwrap_or_else(|| panic!("byte {at} was changed, and nobody noticed"));
        if at >= FILE_HEAD {
            let changed_block = starts.iter().rposition(|start| *start <= at).unwrap() as u64;
            assert_eq!(block, changed_block, "byte {at}: {fault}");
        }
    }
}

#[test]
fn blocks_that_are_missing_or_moved_are_named() {
    let (file, starts) = record(&some_frames(300));
    assert!(starts.len() > 6);
    let block = |n: usize| &file[starts[n]..starts.get(n + 1).copied().unwrap_or(file.len())];
    let joined = |order: &[usize]| {
        let mut out = file[..FILE_HEAD].to_vec();
        order.iter().for_each(|n| out.extend_from_slice(block(*n)));
        out
    };
    assert_eq!(read(&joined(&[0, 1, 3])).2, Some((Fault::Number, 2)));
    assert_eq!(read(&joined(&[0, 2, 1])).2, Some((Fault::Number, 1)));
    let other = {
        let mut other = file.clone();
        other[20] ^= 1;
        read(&other).2
    };
    assert_eq!(
        other,
        Some((Fault::Changed, 0)),
        "the blocks are another session's"
    );
    // Behind a whole block, a file may end: that there is no end in it is the reader's to notice.
    let (frames, _, fault) = read(&joined(&[0, 1]));
    assert_eq!(fault, None);
    assert!(frames.last().unwrap().0 != Kind::End);
    assert_eq!(read(b"#!/bin/sh\n").2, Some((Fault::NotARecording, 0)));
}

#[test]
fn a_signature_of_another_place_is_found() {
    let mut writer = Writer::at(Position::start(&SESSION));
    let mut file = file_head(&SESSION).to_vec();
    writer.push(&frame(&(Kind::Begin, 0, Vec::new())));
    file.extend(writer.close(None).unwrap());
    let statement = Statement {
        session: SESSION,
        blocks: 2,
        chain: [0; 32],
        signed: String::new(),
    };
    file.extend(writer.sign(&encode(&statement, b"")));
    assert_eq!(read(&file).2, Some((Fault::OtherChain, 1)));
}

/// A blob as ssh-keygen makes it.
fn sshsig(namespace: &str) -> Vec<u8> {
    let mut blob = b"SSHSIG\0\0\0\x01".to_vec();
    for part in [&b"a key"[..], namespace.as_bytes(), b"", b"sha512", b"made by it"] {
        blob.extend_from_slice(&u32::try_from(part.len()).unwrap().to_be_bytes());
        blob.extend_from_slice(part);
    }
    blob
}

#[test]
fn a_signature_has_one_form_and_comes_back_whole() {
    let statement = Statement {
        session: SESSION,
        blocks: 300,
        chain: [5; 32],
        signed: "2026-11-29T10:00:00Z".to_owned(),
    };
    let chain_of = |blocks| (blocks == 300).then_some([5; 32]);
    let decode = |bytes: &[u8]| signature::decode(bytes, &SESSION, chain_of, &mut LastKey::default());
    let ours = sshsig(signature::NAMESPACE);
    for (blob, is_shorter) in [
        (ours.clone(), true),
        (sshsig("file"), false),
        (b"x".to_vec(), false),
    ] {
        let bytes = encode(&statement, &blob);
        assert_eq!(bytes.len() < blob.len(), is_shorter);
        assert_eq!(signature::covers(&bytes), Some(300));
        assert_eq!(decode(&bytes), Ok((statement.clone(), blob)));
        for cut in 0..30 {
            assert!(decode(&bytes[..cut]).is_err(), "{cut}");
        }
    }
    let mut long = encode(&statement, b"x");
    long.truncate(long.len() - 1);
    long.extend_from_slice(&ours);
    assert_eq!(decode(&long), Err(Fault::Signature), "the other form");
    // The second one of a file has no key; without the first one it is none.
    let whole = encode(&statement, &ours);
    let (mut written, mut read) = (LastKey::default(), LastKey::default());
    for is_first in [true, false, false] {
        let bytes = signature::without_key(&whole, &mut written);
        assert_eq!(bytes.len() < whole.len(), !is_first);
        assert_eq!(
            signature::decode(&bytes, &SESSION, chain_of, &mut read),
            decode(&whole)
        );
        assert_eq!(decode(&bytes).is_ok(), is_first);
    }
}

#[test]
fn a_crash_at_every_byte_leaves_what_was_whole() {
    let frames = some_frames(40);
    let (file, starts) = record(&frames);
    for len in 0..=file.len() {
        let remains = recover::look(&mut &file[..len]).unwrap();
        let Some(remains) = remains else {
            assert!(len < FILE_HEAD);
            continue;
        };
        let whole = starts.iter().rfind(|s| **s <= len).copied();
        let whole =
            whole
                .filter(|_| len < file.len())
                .unwrap_or(if len < file.len() { FILE_HEAD } else { len });
        assert_eq!(remains.position.length, whole as u64);
        assert_eq!(remains.ended, whole > *starts.iter().rev().nth(1).unwrap());
        // What is written next fits.
        let mut writer = remains.resume(&[]);
        if !remains.ended {
            let mut mended = file[..whole].to_vec();
            mended.extend(writer.end(None, 0, b"{}"));
            mended.extend(sign(&mut writer));
            assert_eq!(read(&mended).2, None);
        }
    }
}

#[test]
fn a_tail_holds_what_is_in_no_block() {
    let frames = some_frames(120);
    let mut compressor = Compressor::new().unwrap();
    let mut writer = Writer::at(Position::start(&SESSION));
    let mut tail = Tail::default();
    let mut file = file_head(&SESSION).to_vec();
    let mut tail_file: Vec<u8> = Vec::new();
    for (n, f) in frames.iter().enumerate() {
        if writer.push(&frame(f)) {
            file.extend(writer.close(Some(&mut compressor)).unwrap());
        }
        if let Some((offset, entry)) = tail.write(&mut writer, &mut compressor) {
            let offset = usize::try_from(offset).unwrap();
            let end = offset + entry.len();
            tail_file.resize(tail_file.len().max(end), 0);
            tail_file[offset..end].copy_from_slice(&entry);
        }
        let remains = recover::look(&mut &file[..]).unwrap().unwrap();
        let mut resumed = remains.resume(&tail_file);
        let mut mended = file.clone();
        mended.extend(resumed.end(None, 0, b"{}"));
        let (got, _, fault) = read(&mended);
        assert_eq!(fault, None);
        assert_eq!(&got[..got.len() - 1], &frames[..=n]);
        // A torn entry costs itself.
        let torn = remains.resume(&tail_file[..tail_file.len().saturating_sub(1)]);
        assert!(torn.open_frames().len() <= writer.open_frames().len());
    }
    assert!(tail_file.len() < 4 * FULL);
}

#[test]
fn a_front_writes_its_own_kinds_only() {
    let head = |kind, len| pipe::Head { kind, len, at: 5 }.encode();
    let decoded = pipe::Head::decode(&head(Kind::Output, 9)).unwrap();
    assert_eq!((decoded.kind, decoded.len, decoded.at), (Kind::Output, 9, 5));
    for kind in Kind::ALL {
        assert_eq!(
            pipe::Head::decode(&head(kind, 0)).is_some(),
            kind.is_of_the_front()
        );
    }
    assert!(pipe::Head::decode(&head(Kind::Output, MAX_BYTES + 1)).is_none());
    assert!(pipe::Head::decode(&[200; pipe::HEAD]).is_none());
}

#[test]
fn an_end_that_says_nothing_is_none() {
    let begin = (Kind::Begin, 0, b"{}".to_vec());
    let end = (Kind::End, 1, b"{}".to_vec());
    for frames in [vec![], vec![begin.clone()], vec![begin.clone(), end.clone()]] {
        let mut file = file_head(&SESSION).to_vec();
        let mut writer = Writer::at(Position::start(&SESSION));
        writer.push(&frame(&begin));
        file.extend(writer.close(None).unwrap());
        let plain: Vec<u8> = frames.iter().fold(Vec::new(), |mut out, f| {
            frame(f).encode(0, &mut out);
            out
        });
        file.extend(writer.block(crate::block::Holds::End, false, &plain, plain.len()));
        assert_eq!(read(&file).2, Some((Fault::End, 1)));
    }
    let mut file = file_head(&SESSION).to_vec();
    let mut writer = Writer::at(Position::start(&SESSION));
    writer.push(&frame(&begin));
    writer.push(&frame(&end));
    file.extend(writer.close(None).unwrap());
    assert_eq!(read(&file).2, Some((Fault::End, 0)), "an end among others");
}

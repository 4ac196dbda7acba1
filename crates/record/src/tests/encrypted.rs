//! A recording that is encrypted: whoever has a key reads it as any other, whoever has none checks it, and a crash leaves what was in
//! the tail.

use super::*;
use crate::age::{Identity, Keys, Recipients};
use crate::block::Holds;

const SECRET_WORD: &str = "the-root-password";

fn keys(n: u8) -> Keys {
    Keys::new(vec![Identity::new([n; 32])])
}

fn for_one_and_two() -> Recipients {
    Recipients::new(&[
        Identity::new([1; 32]).recipient(),
        Identity::new([2; 32]).recipient(),
    ])
    .unwrap()
}

fn frames() -> Vec<OwnedFrame> {
    let mut frames = some_frames(300);
    frames.push((Kind::Output, 300 * 40_000, SECRET_WORD.as_bytes().to_vec()));
    frames
}

/// As the monitor and the recorder make one: the first block and the last are readable.
fn encrypted() -> Vec<u8> {
    let mut compressor = Compressor::new().unwrap();
    let frames = frames();
    let mut file = file_head(&SESSION).to_vec();
    let mut begin = Writer::at(Position::start(&SESSION));
    begin.push(&frame(&frames[0]));
    file.extend(begin.close(None).unwrap());
    let mut writer = Writer::at(*begin.position()).sealed_for(Some(for_one_and_two()));
    for f in &frames[1..] {
        if writer.push(&frame(f)) {
            file.extend(writer.close(Some(&mut compressor)).unwrap());
        }
    }
    // A block that is too small to become smaller, and one that goes on from it.
    file.extend(writer.close(Some(&mut compressor)).unwrap());
    file.extend(sign(&mut writer));
    file.extend(writer.end(Some(&mut compressor), u64::MAX, b"{}"));
    file.extend(sign(&mut writer));
    file
}

fn read_with(file: &[u8], keys: Keys) -> (Vec<OwnedFrame>, usize, Option<Fault>) {
    let mut reader = Reader::new(file).unwrap().with_keys(keys);
    let (mut frames, mut closed) = (Vec::new(), 0);
    loop {
        match reader.next_block() {
            Ok(Some(block)) => {
                closed += usize::from(matches!(block.content, Content::Encrypted(_)));
                for f in block.frames() {
                    let f = f.unwrap();
                    frames.push((f.kind, f.at, f.bytes.to_vec()));
                }
            }
            Ok(None) => return (frames, closed, None),
            Err(ReadError::Fault(e)) => return (frames, closed, Some(e.fault)),
            Err(ReadError::Io(e)) => panic!("{e}"),
        }
    }
}

#[test]
fn each_key_reads_it_and_without_one_it_is_checked() {
    let file = encrypted();
    let all = frames();
    for n in [1, 2] {
        let (got, closed, fault) = read_with(&file, keys(n));
        assert_eq!((closed, fault), (0, None));
        assert_eq!(&got[..got.len() - 1], &all[..]);
    }
    let (got, closed, fault) = read_with(&file, Keys::default());
    assert_eq!(fault, None);
    assert!(closed > 10);
    let kinds: Vec<Kind> = got.iter().map(|f| f.0).collect();
    assert_eq!(kinds, [Kind::Begin, Kind::End]);
    assert_eq!(read_with(&file, keys(3)).2, Some(Fault::OtherKey));
    assert!(
        !file
            .windows(SECRET_WORD.len())
            .any(|w| w == SECRET_WORD.as_bytes())
    );
}

#[test]
fn a_block_that_says_it_is_encrypted_and_is_not_is_a_fault() {
    let end = [Kind::End as u8, 0, 0];
    for (stored, fault) in [
        (b"no age file".to_vec(), Fault::Encryption),
        (for_one_and_two().seal(&end), Fault::End),
        (for_one_and_two().seal(b"not so long"), Fault::Compression),
    ] {
        let mut writer = Writer::at(Position::start(&SESSION));
        let mut file = file_head(&SESSION).to_vec();
        file.extend(writer.block(Holds::Encrypted, false, &stored, end.len()));
        assert_eq!(read_with(&file, keys(1)).2, Some(fault));
        assert_eq!(read_with(&file, Keys::default()).2, None, "its hash is right");
    }
}

#[test]
fn what_is_in_the_tail_is_encrypted_too_and_a_crash_leaves_it() {
    let mut compressor = Compressor::new().unwrap();
    let mut writer = Writer::at(Position::start(&SESSION)).sealed_for(Some(for_one_and_two()));
    let mut tail = Tail::default();
    let (mut file, mut tail_file) = (file_head(&SESSION).to_vec(), Vec::new());
    let frames = frames();
    for (n, f) in frames.iter().enumerate().skip(250) {
        if writer.push(&frame(f)) {
            file.extend(writer.close(Some(&mut compressor)).unwrap());
        }
        if n % 3 > 0 && n + 1 < frames.len() {
            continue;
        }
        if let Some((offset, entry)) = tail.write(&mut writer, &mut compressor) {
            let offset = usize::try_from(offset).unwrap();
            tail_file.resize(tail_file.len().max(offset + entry.len()), 0);
            tail_file[offset..offset + entry.len()].copy_from_slice(&entry);
        }
        // The monitor mends it, and has no key.
        let mut resumed = recover::look(&mut &file[..]).unwrap().unwrap().resume(&tail_file);
        let mut mended = file.clone();
        mended.extend(resumed.end(None, 0, b"{}"));
        assert_eq!(resumed.position().length, mended.len() as u64);
        let (got, closed, fault) = read_with(&mended, keys(2));
        assert_eq!((closed, fault), (0, None));
        assert_eq!(&got[..got.len() - 1], &frames[250..=n]);
        assert_eq!(read_with(&mended, Keys::default()).2, None);
    }
    assert!(!tail_file.is_empty());
    assert!(
        !tail_file
            .windows(SECRET_WORD.len())
            .any(|w| w == SECRET_WORD.as_bytes())
    );
}

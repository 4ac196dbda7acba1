//! Blocks that are closed because they are old are compressed with what stands before them in their group; and pieces of a stream
//! that come together are one frame.

use super::*;
use crate::block::{HEAD, Head, MAX_PLAIN};
use crate::frame::TICK;

fn blocks(file: &[u8]) -> Vec<Head> {
    let mut heads = Vec::new();
    let mut at = FILE_HEAD;
    while let Some(head) = file.get(at..at + HEAD) {
        let (head, _) = Head::decode(head.try_into().unwrap()).unwrap();
        at += HEAD + head.stored;
        heads.push(head);
    }
    heads
}

fn text(n: u64) -> Vec<u8> {
    format!(
        "drwxr-xr-x  2 root root 4096 Nov 29 10:{:02} directory-{n}\r\n",
        n % 60
    )
    .into_bytes()
}

/// Blocks of so many lines, all in one file.
fn of_lines(lines: u64, each: u64) -> (Vec<OwnedFrame>, Vec<u8>) {
    let mut compressor = Compressor::new().unwrap();
    let mut writer = Writer::at(Position::start(&SESSION));
    let mut file = file_head(&SESSION).to_vec();
    let mut frames = Vec::new();
    for n in 0..lines {
        let f = (Kind::Output, n * 10 * TICK, text(n));
        let is_full = writer.push(&frame(&f));
        frames.push(f);
        if is_full || n % each == each - 1 {
            file.extend(writer.close(Some(&mut compressor)).unwrap());
        }
    }
    file.extend(writer.close(Some(&mut compressor)).unwrap_or_default());
    (frames, file)
}

#[test]
fn a_group_is_as_small_as_one_block() {
    let (frames, in_one) = of_lines(800, 800);
    let (same, in_many) = of_lines(800, 40);
    assert_eq!(frames, same);
    assert_eq!(read(&in_many), (frames, 0, None));
    let stored = |file: &[u8]| blocks(file).iter().map(|head| head.stored).sum::<usize>();
    assert_eq!((blocks(&in_one).len(), blocks(&in_many).len()), (1, 20));
    // Each by itself would be four times as long.
    assert!(
        stored(&in_many) < stored(&in_one) * 2,
        "{} {}",
        stored(&in_many),
        stored(&in_one)
    );
    assert!(blocks(&in_many)[1..].iter().all(|head| head.continues));
}

#[test]
fn a_group_ends_when_it_is_long_and_when_its_writer_is_lost() {
    let (frames, file) = of_lines(6000, 400);
    assert_eq!(read(&file).0, frames);
    let heads = blocks(&file);
    let starts = heads.iter().filter(|head| !head.continues).count();
    assert!(
        (2..heads.len() / 2).contains(&starts),
        "{starts} of {}",
        heads.len()
    );
    // One that goes on somewhere has nothing to go on from.
    let remains = recover::look(&mut &file[..]).unwrap().unwrap();
    let mut writer = remains.resume(&[]);
    writer.push(&frame(&(Kind::Output, u64::MAX, text(7).repeat(9))));
    let mut longer = file.clone();
    longer.extend(writer.close(Compressor::new().as_mut()).unwrap());
    assert!(!blocks(&longer).last().unwrap().continues);
    assert_eq!(read(&longer).2, None);
    // A block that says it goes on, at the beginning.
    let begin = file_head(&SESSION);
    let plain = [0, 0, 0];
    let head = Head {
        holds: crate::block::Holds::Frames,
        continues: true,
        stored: plain.len(),
        plain: plain.len(),
        number: 0,
        first: 0,
        last: 0,
    };
    let (head, _) = head.seal(&crate::block::first_chain(&begin), &plain);
    assert_eq!(
        read(&[&begin[..], &head, &plain].concat()).2,
        Some((Fault::Compression, 0))
    );
}

#[test]
fn pieces_that_come_together_are_one_frame() {
    let mut writer = Writer::at(Position::start(&SESSION));
    let mut push = |kind, at, bytes: &[u8]| writer.push(&Frame { kind, at, bytes });
    for n in 0..300 {
        push(Kind::Output, 7 * TICK + n, b"x");
    }
    push(Kind::Output, 8 * TICK, b"y");
    push(Kind::Input, 8 * TICK + 1, b"i");
    push(Kind::Output, 8 * TICK + 2, b"z");
    push(Kind::Event, 8 * TICK + 3, b"{}");
    push(Kind::Event, 8 * TICK + 3, b"{}");
    push(Kind::Output, 9 * TICK, &[b'a'; MAX_BYTES - 1]);
    push(Kind::Output, 9 * TICK, b"bb");
    let mut file = file_head(&SESSION).to_vec();
    assert!(writer.open_frames().len() <= MAX_PLAIN);
    file.extend(writer.close(Compressor::new().as_mut()).unwrap());
    let (frames, _, fault) = read(&file);
    assert_eq!(fault, None);
    let short: Vec<_> = frames
        .iter()
        .map(|(kind, at, bytes)| (*kind, at / TICK, bytes.len()))
        .collect();
    use Kind::{Event, Input, Output};
    assert_eq!(
        short,
        [
            (Output, 7, 300),
            (Output, 8, 1),
            (Input, 8, 1),
            (Output, 8, 1),
            (Event, 8, 2),
            (Event, 8, 2),
            (Output, 9, MAX_BYTES - 1),
            (Output, 9, 2),
        ]
    );
}

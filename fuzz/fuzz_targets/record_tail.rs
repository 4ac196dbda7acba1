//! Any bytes as a tail: never a panic, and only whole frames. What is written as a tail is read the same.
#![no_main]

use fleetgate_record::block::MAX_PLAIN;
use fleetgate_record::frame::Frames;
use fleetgate_record::tail::{self, Entry};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let read = tail::read(data, &[0; 32]);
    assert!(read.plain.len() <= MAX_PLAIN);
    assert!(Frames::new(&read.plain, read.first).all(|frame| frame.is_ok()));
    // The same bytes as frames, with an entry's head before them.
    let entry = Entry {
        plain: data.len(),
        from: 9,
        ..Entry::default()
    };
    let file = entry.encode(&[0; 32], data);
    assert!(data.starts_with(&tail::read(&file, &[0; 32]).plain));
    assert!(tail::read(&file, &[1; 32]).plain.is_empty());
    // And as an age file.
    let is_sealed = !data.is_empty() && data.len() <= MAX_PLAIN;
    let entry = Entry { is_sealed, ..entry };
    let read = tail::read(&entry.encode(&[0; 32], data), &[0; 32]);
    assert!(!is_sealed || read.sealed.len() == 1 && read.sealed[0].stored == data);
});

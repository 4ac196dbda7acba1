//! Any bytes as a tail: never a panic, and only whole frames. What is written as a tail is read the same.
#![no_main]

use fleetgate_record::block::MAX_PLAIN;
use fleetgate_record::frame::Frames;
use fleetgate_record::tail::{self, Tail};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let read = tail::read(data, &[0; 32]);
    assert!(read.plain.len() <= MAX_PLAIN);
    assert!(Frames::new(&read.plain, read.first).all(|frame| frame.is_ok()));
    // The same bytes as frames, with an entry's head before them.
    if data.len() <= MAX_PLAIN
        && let Some((_, entry)) = Tail::default().write(&[0; 32], 9, data)
    {
        let read = tail::read(&entry, &[0; 32]);
        assert!(data.starts_with(&read.plain));
        assert!(tail::read(&entry, &[1; 32]).plain.is_empty());
    }
});

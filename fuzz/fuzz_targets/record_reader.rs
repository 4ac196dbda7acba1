//! Any bytes as a recording, and as the contents of blocks whose hashes are right: never a panic, no more memory than a block
//! may have, an end, and time that does not go back.
#![no_main]

use fleetgate_fuzz::recordings::sealed;
use fleetgate_playback::source::{Item, Source};
use fleetgate_record::age::{Identity, Keys};
use fleetgate_record::block::MAX_PLAIN;
use libfuzzer_sys::fuzz_target;

fn read(file: &[u8], tail: Option<Vec<u8>>, keys: &Keys) {
    let Ok(source) = Source::new(file, tail) else {
        return;
    };
    let mut source = source.with_keys(keys.clone());
    let mut last = 0;
    while let Some(item) = source.next_item().expect("bytes can be read") {
        if let Item::Frame(frame) = item {
            assert!(frame.at >= last && frame.bytes.len() <= MAX_PLAIN);
            last = frame.at;
            let _ = (frame.size(), frame.omitted(), frame.hidden());
        }
    }
}

fuzz_target!(|data: &[u8]| {
    let (file, _, rest) = sealed(data);
    for keys in [Keys::default(), Keys::new(vec![Identity::new([7; 32])])] {
        read(data, None, &keys);
        read(&file, Some(rest.to_vec()), &keys);
    }
});

//! Any frames: the text of a recording is bounded lines without control characters, and makes an end.
#![no_main]

use fleetgate_playback::text::{Extractor, MAX_LINE};
use fleetgate_record::frame::{Frame, Kind};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let mut extractor = Extractor::default();
    let mut take = |line: fleetgate_playback::text::Line<'_>| {
        assert!(line.text.len() < MAX_LINE + 4096, "{}", line.text.len());
        assert!(
            line.text.chars().all(|c| c == '\t' || !c.is_control()),
            "{:?}",
            line.text
        );
    };
    let mut at = 0_u64;
    let mut rest = data;
    while let Some((&[kind, time, len], behind)) = rest.split_first_chunk::<3>() {
        let (bytes, behind) = behind.split_at(usize::from(len).min(behind.len()));
        at = at.saturating_add(u64::from(time) << (time % 32));
        if let Some(kind) = Kind::of(kind % 12) {
            extractor.frame(&Frame { kind, at, bytes }, &mut take);
        }
        rest = behind;
    }
    extractor.finish(&mut take);
});

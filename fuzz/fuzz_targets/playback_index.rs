//! Any bytes as an index and as lines: never a panic, and no line that has a text is passed over.
#![no_main]

use fleetgate_playback::index::{Builder, Index, fold, groups};
use fleetgate_playback::pattern::Pattern;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    if let Some(index) = Index::decode(data, &[0; 16], 0) {
        let _ = index.last(&groups("abcdef"));
    }
    let text = String::from_utf8_lossy(data);
    let mut builder = Builder::default();
    // Long enough to be worth an index.
    let filler = "a line that is there so that the text is long enough ".repeat(100);
    builder.line(&filler);
    text.lines().for_each(|line| builder.line(line));
    let bytes = builder.finish(&[1; 16], 2).expect("the text is long enough");
    assert!(bytes.len() <= (filler.len() + text.len() + text.lines().count() + 1) / 20);
    let index = Index::decode(&bytes, &[1; 16], 2).expect("it was written now");
    let mut room = String::new();
    for line in text.lines() {
        fold(line, &mut room);
        assert!(index.last(&groups(&room)).is_some(), "{line:?}");
    }
    // Whatever a regular expression finds, the index lets through.
    let Some((pattern, line)) = text.split_once('\n') else {
        return;
    };
    for ignores_case in [false, true] {
        let Ok(pattern) = Pattern::new(pattern, ignores_case, true) else {
            continue;
        };
        for line in line.lines() {
            if pattern.is_in(line, &mut room) {
                assert!(index.last(pattern.groups()).is_some(), "{line:?}");
            }
        }
    }
});

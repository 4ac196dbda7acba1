//! Any bytes as what a node sends of a session that runs: never a panic, nothing that acts on a terminal in the words, and the
//! same screen in whatever pieces they come.
#![no_main]

use fleetgate_playback::live::Viewer;
use libfuzzer_sys::fuzz_target;

/// Up to the first error: whether there was one, the text of the screen, and who is there.
fn seen(data: &[u8], piece: usize) -> (bool, String, String) {
    let mut viewer = Viewer::default();
    let failed = data.chunks(piece).any(|part| viewer.take(part).is_err());
    for words in [viewer.who(), viewer.incomplete().unwrap_or_default()] {
        assert!(!words.chars().any(char::is_control), "{words:?}");
    }
    (failed, viewer.screen().text(), viewer.who().to_owned())
}

fuzz_target!(|data: &[u8]| {
    let Some((&piece, data)) = data.split_first() else {
        return;
    };
    let whole = seen(data, data.len().max(1));
    assert_eq!(seen(data, usize::from(piece).max(1)), whole);
});

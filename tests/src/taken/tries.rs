//! Rows of attacks, and what every seat may send that no honest one does.

use super::{Scene, Stage, Want};
use fleetgate_wire::node::{MAX_FRAME, Verdict};
use fleetgate_wire::{Encode, encode};

/// Something that a seat tries, and what has to come of it.
pub type Row = (&'static str, fn(&mut Stage<'_>), Want);

/// Tries each from the lobby's seat, on a stage of its own.
pub fn lobby_tries(rows: &[Row]) {
    let Some(scene) = Scene::new() else { return };
    for (what, attack, want) in rows {
        let mut stage = Stage::set(&scene);
        attack(&mut stage);
        stage.after_lobby(what, *want);
    }
}

/// Tries each from the seat of ada's front, on a stage of its own.
pub fn front_tries(rows: &[Row]) {
    let Some(scene) = Scene::new() else { return };
    for (what, attack, want) in rows {
        let mut stage = Stage::set(&scene);
        attack(&mut stage);
        stage.after_front(what, *want);
    }
}

/// Whether a login was refused.
pub fn is_rejected(verdict: Option<Verdict>) -> bool {
    matches!(verdict, Some(Verdict::Rejected { partial: false, .. }))
}

/// A frame that no honest seat sends: what it is, the frame, whether a descriptor comes with it, and the words with which
/// the seat's end is told.
pub type Garbage = (&'static str, Vec<u8>, bool, &'static str);

/// All of them; `good` is one that it does send.
pub fn garbage(good: &impl Encode) -> Vec<Garbage> {
    let good = encode(good);
    let mut long = good.clone();
    long.push(0);
    vec![
        ("an empty frame", Vec::new(), false, ""),
        (
            "a word that there is not",
            vec![0xff; 9],
            false,
            "asked for what it may not",
        ),
        (
            "half a word",
            good[..good.len() - 1].to_vec(),
            false,
            "asked for what it may not",
        ),
        ("a word and more", long, false, "asked for what it may not"),
        (
            "a frame that is too long",
            vec![1; MAX_FRAME + 1],
            false,
            "no frame",
        ),
        ("a descriptor", good, true, "no frame"),
    ]
}

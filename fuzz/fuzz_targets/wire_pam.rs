//! Any bytes as each frame of a PAM session, and as a request on the resolver's control socket: never a panic, one
//! form per value, and no secret in what is shown.
#![no_main]

use fleetgate_wire::pam::{FromPam, MAX_ANSWER, ToPam, answers_frame};
use fleetgate_wire::resolver::ToResolver;
use fleetgate_wire::{Decode, Encode, decode, encode};
use libfuzzer_sys::fuzz_target;

fn same<T: Decode + Encode>(data: &[u8]) {
    if let Ok(value) = decode::<T>(data) {
        assert_eq!(encode(&value), data, "a frame has one form");
    }
}

fuzz_target!(|data: &[u8]| {
    same::<FromPam>(data);
    same::<ToPam>(data);
    same::<ToResolver>(data);
    if let Ok(words @ ToPam::Answers { .. }) = decode::<ToPam>(data) {
        let shown = format!("{words:?}");
        let ToPam::Answers { answers } = words else { return };
        for answer in &answers {
            let text = answer.expose().to_bytes();
            assert!(text.len() <= MAX_ANSWER);
        }
        assert_eq!(shown.matches("Secret(…)").count(), answers.len());
        assert_eq!(answers_frame(answers), data);
    }
});

//! Any bytes as each of the frames that have no target of their own: the helper's replies, PAM's words, the
//! resolver's orders, file events. Never a panic, and what is understood has one form.
#![no_main]

use fleetgate_wire::{Decode, Encode, Reply, decode, encode, pam, resolver, sftp};
use libfuzzer_sys::fuzz_target;

fn one_form<T: Decode + Encode>(data: &[u8]) {
    if let Ok(frame) = decode::<T>(data) {
        assert_eq!(encode(&frame), data, "a frame has one form");
    }
}

fuzz_target!(|data: &[u8]| {
    one_form::<Reply>(data);
    one_form::<pam::FromPam>(data);
    one_form::<pam::ToPam>(data);
    one_form::<resolver::ToResolver>(data);
    one_form::<sftp::Event>(data);
});

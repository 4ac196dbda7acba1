//! Any bytes as a frame or a word between proxy and node: never a panic, and what was read is written and read the same.
#![no_main]

use fleetgate_proto::v1::{Frame, FromNode, ToNode};
use libfuzzer_sys::fuzz_target;
use prost::Message;

fn again<M: Message + Default + PartialEq>(data: &[u8]) {
    if let Ok(message) = M::decode(data) {
        assert!(M::decode(message.encode_to_vec().as_slice()).is_ok_and(|read| read == message));
    }
}

fuzz_target!(|data: &[u8]| {
    again::<Frame>(data);
    again::<ToNode>(data);
    again::<FromNode>(data);
});

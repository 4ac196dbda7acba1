//! Any bytes as one message of the connection protocol, and as all that a peer and an owner do with their channels:
//! never a panic, no bound exceeded, and whatever is sent can be read.
#![no_main]

use fleetgate_ssh::channel::{Message, drive};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    if let Ok(message) = Message::parse(data) {
        let mut again = Vec::new();
        message.write(&mut again);
        if !matches!(message, Message::Data { stream: None, .. }) {
            assert_eq!(Message::parse(&again), Ok(message));
        }
    }
    drive(data);
});

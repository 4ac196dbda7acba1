//! Any bytes as an order to enter a container: never a panic, never more memory than the frame is long, and what is
//! understood is written and understood again as the same.
#![no_main]

use fleetgate_wire::container::ContainerOrder;
use fleetgate_wire::{decode, encode};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    if let Ok(order) = decode::<ContainerOrder>(data) {
        let frame = encode(&order);
        assert_eq!(frame, data, "a frame has one form");
        assert_eq!(decode::<ContainerOrder>(&frame).as_ref(), Ok(&order));
    }
});

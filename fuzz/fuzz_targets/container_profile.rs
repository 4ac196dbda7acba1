//! Any document as a container's seccomp profile: a program that ends for every call, or a refusal.
#![no_main]

use fleetgate_calls::filter::{Data, run};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Ok(document) = serde_json::from_slice(data) else {
        return;
    };
    if let Ok((program, _)) = fleetgate_containers::compile(&document) {
        for nr in [0, 1, 56, 59, 435, 0x4000_0001, u32::MAX] {
            for arch in [0xc000_003e, 0x4000_0003, 0xc000_00b7, 0] {
                let call = Data {
                    nr,
                    arch,
                    args: [u64::MAX, 0, 1 << 32, 7, 0, 1],
                    ..Data::default()
                };
                assert!(run(&program, &call).is_ok());
            }
        }
    }
});

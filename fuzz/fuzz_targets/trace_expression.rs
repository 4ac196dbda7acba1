//! Any text as an expression of the tracer: never a panic, an error that points into the text, and no call that is
//! neither in a set nor in its opposite.
#![no_main]

use fleetgate_calls::abi::{Abi, Call};
use fleetgate_trace::expression;
use libfuzzer_sys::fuzz_target;

/// Arguments that many tests tell apart.
const ARGUMENTS: [[u64; 6]; 4] = [
    [0; 6],
    [3, 9, 0o101, 1, 2, 5],
    [u64::MAX; 6],
    [1 << 32, 1 << 31, 0xffff_ffff, 0o2, 7, 1 << 16],
];

fuzz_target!(|text: &str| {
    if let Err(wrong) = expression::expression(text) {
        let place = wrong.text.get(wrong.at..wrong.at + wrong.length);
        assert!(place.is_some(), "{wrong:?}");
        assert!(!wrong.reason.is_empty() && wrong.to_string().contains('^'));
    }
    let (Ok(calls), Ok(others)) = (expression::calls(text), expression::calls(&format!("!{text}"))) else {
        return;
    };
    for abi in Abi::SERVED {
        let named = calls.of(*abi).chain(others.of(*abi)).map(|(number, _)| number);
        for number in named.chain([0, 599]) {
            let call = Call { abi: *abi, number };
            for arguments in &ARGUMENTS {
                let seen = calls.wants(call, arguments) || others.wants(call, arguments);
                assert!(seen, "{call:?} {arguments:?}");
            }
        }
    }
});

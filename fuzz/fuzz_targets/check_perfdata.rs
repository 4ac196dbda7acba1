//! Any bytes as what a check said, which is a node's own: its performance data are read without a panic and within the bounds.
#![no_main]

use fleetgate_checks::perfdata::fuzz;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| fuzz(data));

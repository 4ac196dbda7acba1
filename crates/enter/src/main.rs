//! The static program `fleetgate-enter`; all of it is in the library, which `fleetgate` also carries.
#![no_std]
#![no_main]

extern crate alloc;

use fleetgate_sys::program::Args;

fn run(args: Args) -> i32 {
    fleetgate_enter::run(&args.iter().skip(1).collect::<alloc::vec::Vec<_>>())
}

fleetgate_sys::program_main!(run);

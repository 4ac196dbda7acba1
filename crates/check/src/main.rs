//! The static program `check_fleetgate`; all of it is in the library, which `fleetgate` also carries.
#![no_std]
#![no_main]

extern crate alloc;

use fleetgate_sys::program::Args;

fn run(args: Args) -> i32 {
    fleetgate_check::program(&args.iter().skip(1).collect::<alloc::vec::Vec<_>>())
}

fleetgate_sys::program_main!(run);

//! The static program `fleetgate-recorder`; all of it is in the library, which `fleetgate` also carries.
#![forbid(unsafe_code)]

use fleetgate_sys::heap::Keeping;

#[global_allocator]
static HEAP: Keeping = Keeping;

fn main() {
    std::process::exit(fleetgate_recorder::run(
        &std::env::args_os().skip(1).collect::<Vec<_>>(),
    ));
}

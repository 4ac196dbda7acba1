//! The static program `fleetgate-front`; all of it is in the library, which `fleetgate` also carries.
#![forbid(unsafe_code)]

fn main() {
    std::process::exit(fleetgate_worker::run(
        &std::env::args_os().skip(1).collect::<Vec<_>>(),
    ));
}

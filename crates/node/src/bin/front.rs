//! The static program `fleetgate-front`, lobby and front in one; all of it is in the library, which `fleetgate` also
//! carries.
#![forbid(unsafe_code)]

fn main() {
    std::process::exit(fleetgate_node::seat::run(
        &std::env::args_os().skip(1).collect::<Vec<_>>(),
    ));
}

//! The programs that this build carries, if any. Without them (`cargo build`) `fleetgate` is its own image and
//! executes itself under the name `fleetgate-session`, `fleetgate-enter`, `fleetgate-front`, `fleetgate-tunnel`, `fleetgate-recorder` or
//! `fleetgate-resolver`.

include!(concat!(env!("OUT_DIR"), "/images.rs"));

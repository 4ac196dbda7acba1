//! The rival of the warm fork server: a program that is executed for one PAM session, as a launch without the server
//! would do it. The request waits on descriptor 3; from there on it is the resolver's own PAM process, which finds
//! nothing loaded.
#![forbid(unsafe_code)]

use fleetgate_sys::{Fd, socket};
use fleetgate_wire::pam::Start;

fn main() {
    let peer = Fd::from_raw(3);
    let mut buffer = vec![0; fleetgate_wire::MAX_INLINE];
    let request = socket::receive(&peer, &mut buffer, true)
        .ok()
        .and_then(|got| fleetgate_wire::decode::<Start>(&buffer[..got.len]).ok());
    let Some(start) = request else {
        eprintln!("bench-pam-cold: no request on descriptor 3");
        std::process::exit(2);
    };
    drop(buffer);
    fleetgate_resolver::pam_session(&start, peer);
}

//! The self test of the program: what a worker will need.

use fleetgate_sys::self_test::{TestResult, at, descriptor_over_a_socket, run as prove};
use fleetgate_sys::{Errno, epoll, socket};

/// 0 when all of it works; 1 and a line on standard error when not.
pub(super) fn run(program: super::Program, args: &[&str]) -> i32 {
    let args: Vec<&[u8]> = args.iter().map(|a| a.as_bytes()).collect();
    match prove(program.name, &args, check) {
        Some(Ok(())) => 0,
        Some(Err((what, errno))) => {
            eprintln!("{}: {what}: {errno}", program.display_name());
            1
        }
        None => program.usage("true takes --as UID:GID and --linger MS"),
    }
}

/// A descriptor over a socket, and an epoll that sees a frame come.
fn check() -> TestResult {
    descriptor_over_a_socket()?;
    let (left, right) = at("making a socket pair", socket::pair())?;
    let epoll = at("making an epoll", epoll::Epoll::new())?;
    at("adding to it", epoll.add_edges(&right, 1))?;
    at("sending", socket::send(&left, b"true", &[]))?;
    let mut events = [epoll::Event::EMPTY];
    match epoll.wait(&mut events, Some(0)) {
        Ok(1) if events[0].readable() => Ok(()),
        _ => Err(("seeing a frame arrive", Errno::EIO)),
    }
}

//! The self-test of the image, what a resolver will need, and the version.

use fleetgate_sys::Errno;
use fleetgate_sys::glibc::nss;
use fleetgate_sys::self_test::{TestResult, descriptor_over_a_socket, run as prove};
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;

/// 0 when all of it works; 1 and a line on standard error when not.
pub fn run(args: &[OsString]) -> i32 {
    let args: Vec<&[u8]> = args.iter().map(|a| a.as_bytes()).collect();
    match prove(c"fleetgate-resolver", &args, check) {
        Some(Ok(())) => 0,
        Some(Err((what, errno))) => {
            crate::log(format_args!("{what}: {errno}"));
            1
        }
        None => crate::usage("true takes --as UID:GID and --linger MS"),
    }
}

/// A descriptor over a socket, and the C library's name look-up (of a number: no directory on the network is asked).
fn check() -> TestResult {
    descriptor_over_a_socket()?;
    match nss::host(c"127.0.0.1") {
        Ok(found) if found.len() == 1 => Ok(()),
        _ => Err(("looking up 127.0.0.1", Errno::EIO)),
    }
}

/// Prints the version.
pub fn version() -> i32 {
    println!("fleetgate-resolver {}", env!("CARGO_PKG_VERSION"));
    0
}

//! Random bytes from the kernel.

use ring::rand::{SecureRandom, SystemRandom};

/// Fills `bytes`. The kernel has random bytes from the moment it started, so there is no error to act on.
pub(crate) fn fill(bytes: &mut [u8]) {
    SystemRandom::new()
        .fill(bytes)
        .expect("the kernel gives random bytes once it has started");
}

/// So many.
pub(crate) fn bytes<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    fill(&mut bytes);
    bytes
}

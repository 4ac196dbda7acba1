//! What can be read of a task that stands in a system call.

/// A stopped task's memory, and what the kernel says of its descriptors.
pub trait Memory {
    /// Reads: how many bytes there were from `at` on.
    fn read(&self, at: u64, into: &mut [u8]) -> usize;

    /// What a descriptor is, as `/proc/PID/fd` names it. None: not open, or nobody asked for that.
    fn descriptor(&self, fd: i32) -> Option<Vec<u8>>;

    /// The directory that relative paths begin at.
    fn directory(&self) -> Option<Vec<u8>>;
}

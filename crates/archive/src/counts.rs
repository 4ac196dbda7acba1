//! What an archive counts, for metrics and `doctor`.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

macro_rules! counts {
    ($($name:ident $doc:literal),* $(,)?) => {
        /// Numbers that only the archive changes.
        #[derive(Debug, Default)]
        pub struct Counts {
            $(pub(crate) $name: AtomicU64,)*
        }

        impl Counts {
            $(#[doc = $doc]
            pub fn $name(&self) -> u64 {
                self.$name.load(Relaxed)
            })*
        }
    };
}

counts!(
    recordings "Recordings that are kept.",
    bytes "Their bytes.",
    unfinished "Of them, those of which not all is here.",
    open "Recordings that come in now.",
    in_flight "Bytes of parts that are in memory.",
    unproven "Bytes that came in and that no signature covers yet.",
    parts "Parts that came in since this process began.",
    taken_in "Bytes that were written since this process began.",
    refused "Recordings that were refused since this process began.",
    postponed "Parts that were answered with a wait since this process began.",
    spooled "Whole recordings that are to go to the object store.",
    spooled_bytes "Their bytes.",
    spooled_since "Since when the oldest of them is whole, Unix seconds; 0: there is none.",
    store_failures "Times that the object store did not take a recording since this process began.",
    full "1 where no recordings are taken in for want of room.",
);

pub(crate) fn set(count: &AtomicU64, value: u64) {
    count.store(value, Relaxed);
}

pub(crate) fn add(count: &AtomicU64, more: u64) {
    count.fetch_add(more, Relaxed);
}

pub(crate) fn sub(count: &AtomicU64, less: u64) {
    count.fetch_sub(less, Relaxed);
}

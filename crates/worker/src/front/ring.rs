//! Bytes for a program that does not read them now: a ring, so that it is no larger than what it held at most, which the
//! channel's window bounds, however long it is not empty. Its room is taken when there is something and given back when
//! there is nothing: an idle channel has none. A busy one fills and empties it many times in a second, so one room is
//! kept aside for whoever comes next; fresh pages for each filling cost more than the bytes' copies.

use std::cell::RefCell;
use std::collections::VecDeque;

/// What a room set aside has at most; a larger one is given back.
const SPARE_MAX: usize = 4 << 20;

thread_local! {
    static SPARE: RefCell<VecDeque<u8>> = const { RefCell::new(VecDeque::new()) };
}

/// Bytes, first in first out.
#[derive(Default)]
pub(super) struct ByteRing {
    ring: VecDeque<u8>,
}

impl ByteRing {
    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.ring.len()
    }

    /// Whether there are none.
    pub(super) fn is_empty(&self) -> bool {
        self.ring.is_empty()
    }

    /// The first of them, all but those beyond the ring's seam.
    pub(super) fn first(&self) -> &[u8] {
        self.ring.as_slices().0
    }

    /// All of them, in two parts.
    pub(super) fn parts(&self) -> [&[u8]; 2] {
        let (first, second) = self.ring.as_slices();
        [first, second]
    }

    /// Keeps more.
    pub(super) fn push(&mut self, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        if self.ring.capacity() == 0 {
            self.ring = SPARE.take();
        }
        self.ring.extend(bytes);
    }

    /// The first `n` are passed on.
    pub(super) fn passed(&mut self, n: usize) {
        self.ring.drain(..n);
        if self.is_empty() {
            self.give_back();
        }
    }

    fn give_back(&mut self) {
        let mut room = std::mem::take(&mut self.ring);
        room.clear();
        if room.capacity() > SPARE_MAX {
            return;
        }
        // A thread that is ending keeps nothing.
        let _ = SPARE.try_with(|spare| {
            let mut spare = spare.borrow_mut();
            if spare.capacity() < room.capacity() {
                *spare = room;
            }
        });
    }
}

impl Drop for ByteRing {
    fn drop(&mut self) {
        self.give_back();
    }
}

/// Gives back what this thread keeps aside.
pub(super) fn release() {
    let _ = SPARE.try_with(|spare| std::mem::take(&mut *spare.borrow_mut()));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_never_empty_does_not_grow_and_keeps_its_order() {
        let mut kept = ByteRing::default();
        let (mut next, mut expected) = (0u8, 0u8);
        let mut chunk = || {
            (0..10_000)
                .map(|_| {
                    next = next.wrapping_add(1);
                    next
                })
                .collect::<Vec<u8>>()
        };
        kept.push(&chunk());
        for _ in 0..1000 {
            kept.push(&chunk());
            let mut left = 10_000;
            while left > 0 {
                let n = kept.first().len().min(left);
                for byte in &kept.first()[..n] {
                    expected = expected.wrapping_add(1);
                    assert_eq!(*byte, expected);
                }
                kept.passed(n);
                left -= n;
            }
        }
        assert_eq!(kept.len(), 10_000);
        assert!(kept.ring.capacity() <= 64 * 1024, "{}", kept.ring.capacity());
    }

    #[test]
    fn one_room_of_bounded_size_is_kept_aside() {
        release();
        let aside = || SPARE.with_borrow(VecDeque::capacity);
        for (len, stays) in [(1000, true), (SPARE_MAX + 1, false)] {
            let mut kept = ByteRing::default();
            kept.push(&vec![0; len]);
            assert_eq!(aside(), 0, "it is in use");
            kept.passed(kept.first().len());
            assert!(kept.is_empty());
            assert_eq!(aside() >= len, stays, "{len}");
            assert!(aside() <= SPARE_MAX);
        }
    }
}

//! The packets that are under way on one direction of a link. No clock and no I/O: the caller says what time it is.

use std::collections::VecDeque;

/// What may be under way at once, in bytes; more is dropped, which is an error of whoever asked for it. It holds 64 MB/s
/// for a second.
pub(crate) const MAX_BYTES: usize = 64 << 20;

/// Packets with the time at which each is due, in the order in which they came.
#[derive(Default)]
pub(crate) struct Queue {
    waiting: VecDeque<(u64, Vec<u8>)>,
    bytes: usize,
    last_due: u64,
    dropped: u64,
}

impl Queue {
    /// Takes a packet that came at `now` and is due after `delay` (nanoseconds), or later if one before it is: what
    /// comes first leaves first, also when the delay was shortened meanwhile.
    pub(crate) fn push(&mut self, now: u64, delay: u64, packet: &[u8]) {
        if self.bytes + packet.len() > MAX_BYTES {
            self.dropped += 1;
            return;
        }
        self.bytes += packet.len();
        self.last_due = self.last_due.max(now + delay);
        self.waiting.push_back((self.last_due, packet.to_vec()));
    }

    /// When the next packet is due.
    pub(crate) fn next_due(&self) -> Option<u64> {
        self.waiting.front().map(|(due, _)| *due)
    }

    /// The next packet that is due at `now`, with the time at which it was.
    pub(crate) fn pop(&mut self, now: u64) -> Option<(u64, Vec<u8>)> {
        if self.next_due()? > now {
            return None;
        }
        let (due, packet) = self.waiting.pop_front()?;
        self.bytes -= packet.len();
        Some((due, packet))
    }

    /// How many packets found no room.
    pub(crate) fn dropped(&self) -> u64 {
        self.dropped
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_leave_in_order_and_not_before_their_time() {
        let mut queue = Queue::default();
        assert_eq!((queue.next_due(), queue.pop(u64::MAX)), (None, None));
        queue.push(1000, 50, b"a");
        queue.push(1010, 50, b"b");
        // Shortened meanwhile: it would overtake.
        queue.push(1020, 1, b"c");
        assert_eq!(queue.next_due(), Some(1050));
        assert_eq!(queue.pop(1049), None);
        assert_eq!(queue.pop(1050), Some((1050, b"a".to_vec())));
        assert_eq!(queue.pop(1050), None);
        assert_eq!(queue.pop(1060), Some((1060, b"b".to_vec())));
        assert_eq!(queue.pop(1060), Some((1060, b"c".to_vec())));
        queue.push(2000, 1, b"d");
        assert_eq!(queue.next_due(), Some(2001), "nothing is before it");
    }

    #[test]
    fn what_is_under_way_is_bounded_in_bytes_and_counted() {
        let mut queue = Queue::default();
        let packet = vec![0; 1 << 20];
        for _ in 0..MAX_BYTES >> 20 {
            queue.push(0, 1, &packet);
        }
        assert_eq!(queue.dropped(), 0);
        queue.push(0, 1, b"x");
        assert_eq!(queue.dropped(), 1);
        assert!(queue.pop(1).is_some());
        queue.push(0, 1, b"x");
        assert_eq!(queue.dropped(), 1, "there is room again");
    }
}

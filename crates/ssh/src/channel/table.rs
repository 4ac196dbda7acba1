//! Channels by their number: found in one step, numbered from the lowest free number, and small again when they are
//! gone. It knows nothing of what a channel is.

use crate::codec::number;

/// The channels of one side's numbers.
#[derive(Debug)]
pub(super) struct Table<T> {
    /// A box each, so that a free number costs 8 bytes.
    slots: Vec<Option<Box<T>>>,
    used: usize,
    /// No number below it is free.
    lowest: usize,
}

impl<T> Table<T> {
    pub(super) const fn new() -> Table<T> {
        Table {
            slots: Vec::new(),
            used: 0,
            lowest: 0,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.used
    }

    pub(super) fn get(&self, n: u32) -> Option<&T> {
        self.slots.get(n as usize)?.as_deref()
    }

    pub(super) fn get_mut(&mut self, n: u32) -> Option<&mut T> {
        self.slots.get_mut(n as usize)?.as_deref_mut()
    }

    /// The lowest free number, the same until something is put in or taken out.
    pub(super) fn free(&self) -> u32 {
        let taken = self.slots[self.lowest.min(self.slots.len())..]
            .iter()
            .take_while(|slot| slot.is_some())
            .count();
        number(self.lowest + taken)
    }

    /// Puts one at a number that is free. The caller bounds the number.
    pub(super) fn put(&mut self, n: u32, one: T) {
        let i = n as usize;
        if i >= self.slots.len() {
            self.slots.resize_with(i + 1, || None);
        }
        debug_assert!(self.slots[i].is_none(), "number {n} is taken");
        if n == self.free() {
            self.lowest = i + 1;
        }
        self.slots[i] = Some(Box::new(one));
        self.used += 1;
    }

    pub(super) fn take(&mut self, n: u32) -> Option<Box<T>> {
        let one = self.slots.get_mut(n as usize)?.take()?;
        self.used -= 1;
        self.lowest = self.lowest.min(n as usize);
        while matches!(self.slots.last(), Some(None)) {
            self.slots.pop();
        }
        if self.slots.len() < self.slots.capacity() / 4 {
            self.slots.shrink_to(self.slots.len() * 2);
        }
        Some(one)
    }

    /// The first one from number `from` on, round past the end, that `is` it.
    pub(super) fn find_from(&self, from: u32, is: impl Fn(&T) -> bool) -> Option<u32> {
        let len = self.slots.len();
        let from = if (from as usize) < len { from as usize } else { 0 };
        (from..len)
            .chain(0..from)
            .find(|&i| self.slots[i].as_deref().is_some_and(&is))
            .map(number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn it_is_a_map_that_knows_the_lowest_free_number() {
        let mut table = Table::new();
        let mut model = BTreeMap::new();
        let mut x: u32 = 1;
        for _ in 0..20_000 {
            x = x.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let n = (x >> 16) % 64;
            let free = (0..).find(|n| !model.contains_key(n)).unwrap();
            assert_eq!(table.free(), free);
            match x >> 8 & 3 {
                0 => {
                    table.put(free, x);
                    model.insert(free, x);
                }
                1 if !model.contains_key(&n) => {
                    table.put(n, x);
                    model.insert(n, x);
                }
                _ => assert_eq!(table.take(n).map(|b| *b), model.remove(&n)),
            }
            assert_eq!(table.get(n), model.get(&n));
            assert_eq!(table.len(), model.len());
            let next = model.range(n..).chain(model.range(..n)).next().map(|(n, _)| *n);
            assert_eq!(table.find_from(n, |_| true), next);
        }
        for n in model.into_keys() {
            table.take(n);
        }
        assert_eq!((table.slots.len(), table.lowest), (0, 0));
        assert_eq!(table.slots.capacity(), 0);
    }
}

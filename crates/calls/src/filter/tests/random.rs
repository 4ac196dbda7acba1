//! Selections and arguments for tests, by chance and in every run the same. Values are such as headers have, and arguments
//! lie around what a test asks for.

use crate::abi::{Abi, Call, X32_BIT};
use crate::select::{Is, Selection, Test, When};

/// Numbers at borders of the kernel's or the filter's.
pub const EDGES: [u32; 16] = [
    1000,
    X32_BIT - 1,
    X32_BIT,
    X32_BIT | 600,
    i32::MAX as u32 - 1,
    i32::MAX as u32,
    1 << 31,
    1 << 31 | 1,
    (1 << 31 | X32_BIT) - 1,
    1 << 31 | X32_BIT,
    1 << 31 | X32_BIT | 5,
    !X32_BIT,
    u32::MAX - 4095,
    u32::MAX - 2,
    u32::MAX - 1,
    u32::MAX,
];

/// Splitmix: the same numbers in every run.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    fn of<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u64) as usize]
    }

    /// As people and headers have them: few bits, small, or near a border.
    fn value(&mut self) -> u64 {
        let bit = 1u64 << self.below(64);
        match self.below(7) {
            0 => 0,
            1 => self.below(8),
            2 => bit,
            3 => bit - 1,
            4 => bit | 1 << self.below(64) | 1 << self.below(32),
            5 => u64::from(self.next() as u32),
            _ => self.next(),
        }
    }

    fn test(&mut self) -> Test {
        let (mask, value) = (self.value(), self.value());
        let is = match self.below(6) {
            0 => Is::AnyOf(mask),
            1 => Is::AtLeast(value),
            2 => Is::Not(value),
            3 => Is::Masked {
                mask: u64::MAX,
                value,
            },
            // Now and then one that never holds.
            4 if self.one_in(4) => Is::Masked { mask, value },
            _ => Is::Masked {
                mask,
                value: value & mask,
            },
        };
        // Now and then of an argument that does not exist.
        let arguments = if self.one_in(30) { 8 } else { 6 };
        let argument = self.below(arguments) as u8;
        let wide = self.one_in(2);
        Test { argument, wide, is }
    }

    pub fn when(&mut self, tests: u64) -> When {
        if self.below(10) >= tests {
            return When::Always;
        }
        let groups = 0..self.below(4) + u64::from(!self.one_in(20));
        let group = |_| (0..self.below(4)).map(|_| self.test()).collect();
        When::Any(groups.map(group).collect())
    }

    /// `calls` of each numbering; of ten `tests` with tests.
    pub fn selection(&mut self, calls: u64, tests: u64) -> Selection {
        let mut selection = Selection::none();
        for abi in Abi::ALL {
            if self.one_in(6) {
                selection.add_all(abi);
            }
            for _ in 0..self.below(calls + 1) {
                let mut number = self.below(600) as u32;
                if self.one_in(40) {
                    number = self.of(&EDGES);
                }
                let when = self.when(tests);
                // Neighbours, too, some of them with the same tests.
                for number in number..=number.saturating_add(self.below(3) as u32) {
                    // Where all are wanted, this leaves it out, or wants it with some arguments only.
                    if self.one_in(2) {
                        selection.remove(Call { abi, number });
                        if self.one_in(2) {
                            continue;
                        }
                    }
                    selection.add(Call { abi, number }, when.clone());
                }
            }
        }
        selection
    }

    /// A value near to what a test asks for, on either side.
    fn around(&mut self, is: Is) -> u64 {
        let noise = self.value();
        let near = match is {
            Is::Masked { mask, value } => noise & !mask | value,
            Is::AnyOf(bits) if self.one_in(2) => noise & !bits,
            Is::AnyOf(bits) => bits & bits.wrapping_neg(),
            Is::AtLeast(least) => least.wrapping_add(self.below(3)).wrapping_sub(1),
            Is::Not(other) => other,
        };
        match self.below(6) {
            0 => near.wrapping_add(1),
            1 => near ^ 1 << self.below(64),
            2 => near & u64::from(u32::MAX) | noise << 32,
            3 => noise,
            _ => near,
        }
    }

    pub fn arguments(&mut self, when: &When) -> [u64; 6] {
        let mut arguments = [0; 6].map(|_: u64| self.value());
        if let When::Any(groups) = when
            && !groups.is_empty()
        {
            let group = &groups[self.below(groups.len() as u64) as usize];
            for test in group.iter().filter(|test| test.argument < 6) {
                arguments[usize::from(test.argument)] = self.around(test.is);
            }
        }
        arguments
    }
}

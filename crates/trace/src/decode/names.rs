//! Names of numbers and of bits. Data and how to look it up; it prints nothing.

/// A family of constants.
#[derive(Debug)]
pub struct Names {
    /// What is said of one that is not among them, as `AF_???`.
    pub others: &'static str,
    /// Value and name. Bits stand in the order in which they are shown.
    pub entries: &'static [(u64, &'static str)],
}

impl Names {
    /// A family.
    pub const fn new(others: &'static str, entries: &'static [(u64, &'static str)]) -> Names {
        Names { others, entries }
    }

    /// The name of `value`, of which `mask` is looked at.
    pub fn find(&self, value: u64, mask: u64) -> Option<&'static str> {
        let found = self.entries.iter().find(|(known, _)| (known ^ value) & mask == 0);
        found.map(|(_, name)| *name)
    }

    /// Each name of which all bits are set in `value`; what no name has is left.
    pub fn split(&self, value: u64, mut each: impl FnMut(&'static str)) -> u64 {
        let mut left = value;
        if left == 0 {
            return 0;
        }
        for (bits, name) in self.entries {
            if *bits != 0 && left & bits == *bits {
                each(name);
                left &= !bits;
                if left == 0 {
                    break;
                }
            }
        }
        left
    }
}

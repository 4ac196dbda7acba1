//! The numberings of system calls that a kernel serves, and a call in one of them. No names: those are in `tables`.

/// A numbering of system calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Abi {
    /// 64-bit programs on x86.
    X86_64,
    /// 32-bit programs on x86, and `int 0x80` from any.
    I386,
    /// 64-bit registers, 32-bit pointers: numbers of x86_64 with a bit beside them. Most kernels are built without it.
    X32,
    /// 64-bit programs on ARM.
    Aarch64,
}

/// What marks a number as x32's.
pub const X32_BIT: u32 = 0x4000_0000;

impl Abi {
    /// All of them.
    pub const ALL: [Abi; 4] = [Abi::X86_64, Abi::I386, Abi::X32, Abi::Aarch64];

    /// Of this program.
    #[cfg(target_arch = "x86_64")]
    pub const NATIVE: Abi = Abi::X86_64;
    /// Of this program.
    #[cfg(target_arch = "aarch64")]
    pub const NATIVE: Abi = Abi::Aarch64;

    /// Those that a kernel of this program's architecture can serve, the program's own first.
    #[cfg(target_arch = "x86_64")]
    pub const SERVED: &'static [Abi] = &[Abi::X86_64, Abi::I386, Abi::X32];
    /// Those that a kernel of this program's architecture can serve, the program's own first.
    #[cfg(target_arch = "aarch64")]
    pub const SERVED: &'static [Abi] = &[Abi::Aarch64];

    /// AUDIT_ARCH of `linux/audit.h`, as a filter and ptrace have it. x32 has that of x86_64.
    #[must_use]
    pub const fn audit(self) -> u32 {
        match self {
            Abi::X86_64 | Abi::X32 => 0xc000_003e,
            Abi::I386 => 0x4000_0003,
            Abi::Aarch64 => 0xc000_00b7,
        }
    }

    /// Bytes of a pointer and of a `long`.
    #[must_use]
    pub const fn word(self) -> usize {
        match self {
            Abi::X86_64 | Abi::Aarch64 => 8,
            Abi::I386 | Abi::X32 => 4,
        }
    }

    /// As people call it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Abi::X86_64 => "x86_64",
            Abi::I386 => "i386",
            Abi::X32 => "x32",
            Abi::Aarch64 => "aarch64",
        }
    }
}

/// A system call as the kernel sees it: a number, and in which numbering.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Call {
    /// The numbering.
    pub abi: Abi,
    /// The number, x32's without its bit.
    pub number: u32,
}

impl Call {
    /// The number as a filter, a listener and ptrace have it: x32's with its bit.
    #[must_use]
    pub const fn register(self) -> u32 {
        match self.abi {
            Abi::X32 => self.number | X32_BIT,
            _ => self.number,
        }
    }

    /// From what a filter's listener or ptrace says. None: an architecture that nobody here knows.
    #[must_use]
    pub fn seen(audit: u32, number: u32) -> Option<Call> {
        let abi = match audit {
            0xc000_003e if number & X32_BIT != 0 && number != u32::MAX => Abi::X32,
            0xc000_003e => Abi::X86_64,
            0x4000_0003 => Abi::I386,
            0xc000_00b7 => Abi::Aarch64,
            _ => return None,
        };
        let number = if abi == Abi::X32 {
            number & !X32_BIT
        } else {
            number
        };
        Some(Call { abi, number })
    }
}

/// The lower half of a register: all that the kernel takes where an argument has 32 bits.
#[must_use]
pub const fn low(register: u64) -> u32 {
    (register & 0xffff_ffff) as u32
}

/// The same with a sign.
#[must_use]
pub const fn low_signed(register: u64) -> i32 {
    low(register).cast_signed()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_known_by_its_architecture_and_number() {
        for (audit, number, call) in [
            (0xc000_003e, 1, Some((Abi::X86_64, 1))),
            (0xc000_003e, X32_BIT | 1, Some((Abi::X32, 1))),
            (0xc000_003e, u32::MAX, Some((Abi::X86_64, u32::MAX))),
            (0x4000_0003, 4, Some((Abi::I386, 4))),
            (0xc000_00b7, 64, Some((Abi::Aarch64, 64))),
            (0x1234, 64, None),
        ] {
            let seen = Call::seen(audit, number);
            assert_eq!(
                seen.map(|call| (call.abi, call.number)),
                call,
                "{audit:#x} {number}"
            );
            if let Some(call) = seen {
                assert_eq!((call.abi.audit(), call.register()), (audit, number));
            }
        }
    }
}

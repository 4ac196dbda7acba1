//! A call that is shown: its registers, the traced program's memory, and where values go. What shows a value of a kind is in
//! [`super::value`] and [`super::show`]; a read that fails leaves the address.

use super::names::Names;
use super::width::Width;
use super::{CallResult, Limits, Out};
use crate::catch::Enter;
use fleetgate_calls::abi::{Abi, low_signed};
use fleetgate_calls::memory::Memory;
use fleetgate_calls::tables::errno;

/// The longest path that the kernel takes, without its NUL.
pub(super) const PATH_MAX: usize = 4095;
/// What is read of a string at first: most are shorter.
const PIECE: usize = 256;
/// No read crosses the end of a page that it need not: the next may be missing.
const PAGE: u64 = 4096;

/// What an item of a list counts as, at least.
pub(super) const ITEM: usize = 16;

/// How far a call has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    Begins,
    Ended(i64),
    /// Its end will not be seen.
    Never,
}

/// The registers of a call.
#[derive(Clone, Copy, Debug)]
pub(super) struct Registers {
    pub(super) abi: Abi,
    arguments: [u64; 6],
}

impl Registers {
    pub(super) fn new(enter: &Enter) -> Registers {
        Registers {
            abi: enter.call.map_or(Abi::NATIVE, |call| call.abi),
            arguments: enter.arguments,
        }
    }

    /// An argument as the call takes it: 32 bits of a 32-bit program.
    pub(super) fn argument(&self, index: usize) -> u64 {
        let value = self.arguments.get(index).copied().unwrap_or(0);
        if self.abi == Abi::I386 {
            value & u64::from(u32::MAX)
        } else {
            value
        }
    }
}

/// A call whose values are shown.
pub(super) struct Reader<'a> {
    pub(super) memory: &'a dyn Memory,
    pub(super) limits: &'a Limits,
    pub(super) out: &'a mut dyn Out,
    pub(super) stage: Stage,
    pub(super) abi: Abi,
    pub(super) saved: &'a mut [u64; 2],
    pub(super) registers: Registers,
    /// What may yet be shown: see [`Limits::ALTOGETHER`].
    left: usize,
}

impl<'a> Reader<'a> {
    pub(super) fn new(
        enter: &Enter,
        memory: &'a dyn Memory,
        limits: &'a Limits,
        out: &'a mut dyn Out,
        stage: Stage,
        saved: &'a mut [u64; 2],
    ) -> Reader<'a> {
        let registers = Registers::new(enter);
        Reader {
            memory,
            limits,
            out,
            stage,
            abi: registers.abi,
            saved,
            registers,
            left: Limits::ALTOGETHER,
        }
    }

    pub(super) fn argument(&self, index: usize) -> u64 {
        self.registers.argument(index)
    }

    /// What the call returned, where it succeeded.
    pub(super) fn success(&self) -> Option<i64> {
        match self.stage {
            Stage::Ended(result) if errno::of_result(result).is_none() => Some(result),
            _ => None,
        }
    }

    /// A result that is a descriptor.
    pub(super) fn returned_descriptor(&mut self, result: i64) {
        let fd = low_signed(result.cast_unsigned());
        let what = self.describe(fd);
        self.out.returned(CallResult::Descriptor(fd, what.as_deref()));
    }

    /// Takes some of what may be shown; false: there is none left.
    pub(super) fn spend(&mut self, bytes: usize) -> bool {
        let any = self.left > 0;
        self.left = self.left.saturating_sub(bytes);
        any
    }

    pub(super) fn cut(&self, value: u64, width: Width) -> u64 {
        match width.bytes(self.abi) {
            2 => value & 0xffff,
            4 => value & 0xffff_ffff,
            _ => value,
        }
    }

    pub(super) fn signed(&self, value: u64, width: Width) -> i64 {
        match width.bytes(self.abi) {
            2 => i64::from(low_signed(value << 16) >> 16),
            4 => i64::from(low_signed(value)),
            _ => value.cast_signed(),
        }
    }

    /// A number that has a name, or says of which family it is.
    pub(super) fn named(&mut self, names: &'static Names, value: u64, width: Width) {
        let mask = self.cut(u64::MAX, width);
        match names.find(value, mask) {
            Some(name) => self.out.name(name),
            None => self.out.other(value & mask, names.others),
        }
    }

    /// Bits, or `0`, or a number that says of which family it is.
    pub(super) fn bits(&mut self, names: &'static Names, value: u64) {
        if value == 0 {
            // Some families have a name for nothing.
            match names.entries.first() {
                Some((0, name)) => self.out.name(name),
                _ => self.no_bits(),
            }
            return;
        }
        let mut any = false;
        let out = &mut *self.out;
        let left = names.split(value, |name| {
            if !any {
                out.open_bits();
                any = true;
            }
            out.bit(name);
        });
        if !any {
            self.out.open_bits();
            self.out.bit_other(left, names.others);
        } else if left != 0 {
            self.out.bit_hex(left);
        }
        self.out.close_bits();
    }

    /// More bits of those that began: what has no name is one number.
    pub(super) fn more_bits(&mut self, names: &'static Names, value: u64) {
        let out = &mut *self.out;
        let left = names.split(value, |name| out.bit(name));
        if left != 0 {
            self.out.bit_hex(left);
        }
    }

    /// A result, and behind it the name of what it means.
    pub(super) fn named_result(&mut self, result: CallResult, label: &'static str, name: Option<&str>) {
        self.out.returned(result);
        if let Some(name) = name {
            self.out.open_note();
            self.out.note(label, false);
            self.out.name(name);
            self.out.close_note();
        }
    }

    /// How many items of a list are shown: `most` unless it is cut short.
    pub(super) fn limit(&self, most: u64) -> u64 {
        if self.limits.abbreviate {
            self.limits.list as u64
        } else {
            most
        }
    }

    /// A field that is an unsigned number.
    pub(super) fn unsigned_field(&mut self, name: &'static str, value: u64) {
        self.out.field(name);
        self.out.unsigned(value);
    }

    /// A field that is a signed number.
    pub(super) fn number_field(&mut self, name: &'static str, value: i64) {
        self.out.field(name);
        self.out.number(value);
    }

    /// A field that is an address.
    pub(super) fn address_field(&mut self, name: &'static str, value: u64) {
        self.out.field(name);
        self.out.address(value);
    }

    /// No bits at all.
    pub(super) fn no_bits(&mut self) {
        self.out.open_bits();
        self.out.bit_number(0);
        self.out.close_bits();
    }

    fn describe(&self, fd: i32) -> Option<Vec<u8>> {
        (fd >= 0 && self.limits.descriptors).then(|| self.memory.descriptor(fd))?
    }

    pub(super) fn descriptor(&mut self, value: u64) {
        let fd = low_signed(value);
        let what = self.describe(fd);
        self.out.descriptor(fd, what.as_deref());
    }

    pub(super) fn directory(&mut self, value: u64) {
        const AT_FDCWD: i32 = -100;
        if low_signed(value) != AT_FDCWD {
            return self.descriptor(value);
        }
        let what = self.limits.descriptors.then(|| self.memory.directory());
        self.out.here(what.flatten().as_deref());
    }

    /// Reads all of `into`, or says no.
    pub(super) fn read(&self, at: u64, into: &mut [u8]) -> bool {
        // The last page of addresses is the kernel's in every numbering.
        at != 0 && at.checked_add(into.len() as u64).is_some() && self.memory.read(at, into) >= into.len()
    }

    /// Reads a number.
    pub(super) fn read_number(&self, at: u64, width: Width) -> Option<u64> {
        let mut bytes = [0; 8];
        let part = bytes.get_mut(..width.bytes(self.abi))?;
        self.read(at, part).then(|| u64::from_le_bytes(bytes))
    }

    /// Gives a string of at most `most` bytes, and whether there is more of it; `None`: it could not be read. The number is
    /// how much was.
    pub(super) fn with_string<R>(
        memory: &dyn Memory,
        at: u64,
        most: usize,
        then: impl FnOnce(Option<(&[u8], bool)>, usize) -> R,
    ) -> R {
        let mut piece = [0u8; PIECE];
        let mut long = Vec::new();
        let mut have = 0;
        // One byte more than is shown says whether there is more.
        let wanted = most.saturating_add(1);
        loop {
            let from = at.wrapping_add(have as u64);
            let in_page = usize::try_from(PAGE - from % PAGE).unwrap_or(PIECE);
            let into: &mut [u8] = if have == 0 {
                &mut piece[..in_page.min(wanted).min(PIECE)]
            } else {
                if long.is_empty() {
                    long.extend_from_slice(&piece[..have]);
                }
                long.resize(have + in_page.min(wanted - have), 0);
                &mut long[have..]
            };
            let asked = into.len();
            let got = if at == 0 {
                0
            } else {
                memory.read(from, into).min(asked)
            };
            let end = into[..got].iter().position(|byte| *byte == 0);
            let whole = have + end.unwrap_or(got);
            let finished = end.is_some() || whole >= wanted;
            have += got;
            if finished || got < asked {
                let all: &[u8] = if long.is_empty() { &piece } else { &long };
                let shown = &all[..whole.min(most).min(all.len())];
                return then(finished.then_some((shown, end.is_none())), have);
            }
        }
    }

    pub(super) fn path(&mut self, at: u64) {
        self.string(at, PATH_MAX);
    }

    pub(super) fn text(&mut self, at: u64) {
        self.string(at, self.limits.string.min(self.left));
    }

    fn string(&mut self, at: u64, most: usize) {
        let out = &mut *self.out;
        let spent = Reader::with_string(self.memory, at, most, |found, read| {
            match found {
                Some((bytes, more)) => out.bytes(bytes, more),
                None => out.address(at),
            }
            read
        });
        self.spend(spent);
    }

    /// Shows `length` bytes, or as many as the limit allows.
    pub(super) fn bytes(&mut self, at: u64, length: u64) {
        let shown = usize::try_from(length)
            .unwrap_or(usize::MAX)
            .min(self.limits.string)
            .min(self.left);
        let more = shown as u64 != length;
        if at == 0 {
            return self.out.address(0);
        }
        if length == 0 {
            return self.out.bytes(b"", false);
        }
        let mut piece = [0u8; PIECE];
        let mut long;
        let into = if shown <= PIECE {
            &mut piece[..shown]
        } else {
            long = vec![0; shown];
            long.as_mut_slice()
        };
        let whole = self.read(at, into);
        self.spend(shown);
        if whole {
            self.out.bytes(into, more);
        } else {
            self.out.address(at);
        }
    }
}

/// Up to eight bytes as a number.
pub(super) fn number(bytes: &[u8]) -> u64 {
    let mut whole = [0; 8];
    for (to, from) in whole.iter_mut().zip(bytes) {
        *to = *from;
    }
    u64::from_le_bytes(whole)
}

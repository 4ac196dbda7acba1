//! Shows values of the kinds that the tables name. All reading of the traced program's memory is in this file and in
//! [`super::show`]; a read that fails leaves the address.

use super::calls::{Res, Row};
use super::kind::{Count, Field, Kind, Layout, Width};
use super::names::Names;
use super::{Limits, Out, Returned};
use crate::catch::Enter;
use fleetgate_calls::abi::Abi;
use fleetgate_calls::memory::Memory;
use fleetgate_calls::tables::errno;

/// The longest path that the kernel takes, without its NUL.
pub(super) const PATH_MAX: usize = 4095;
/// The largest structure that a table may have.
const STRUCTURE: usize = 512;
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

    /// The same, of two registers where it has two.
    pub(super) fn wide(&self, index: usize, kind: &Kind) -> u64 {
        let low = self.argument(index);
        match kind.registers(self.abi) {
            2 => low | self.argument(index + 1) << 32,
            _ => low,
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

    /// Shows a value.
    pub(super) fn value(&mut self, kind: &Kind, value: u64) {
        match *kind {
            Kind::Signed(width) => {
                let value = self.signed(value, width);
                self.out.number(value);
            }
            Kind::Unsigned(width) => {
                let value = self.cut(value, width);
                self.out.unsigned(value);
            }
            Kind::Hex(width) => {
                let value = self.cut(value, width);
                self.out.hex(value);
            }
            Kind::Octal(width) => {
                let value = self.cut(value, width);
                self.out.octal(value);
            }
            Kind::Named(names, width) => self.named(names, value, width),
            Kind::Bits(names, width) => {
                let value = self.cut(value, width);
                self.bits(names, value);
            }
            Kind::Address => self.out.address(value),
            Kind::Descriptor => self.descriptor(value),
            Kind::Directory => self.directory(value),
            Kind::Path => self.path(value),
            Kind::Text => self.text(value),
            Kind::Bytes(count) => {
                let count = self.count(count);
                self.bytes(value, count);
            }
            Kind::Wide => self.out.number(value.cast_signed()),
            Kind::To(layout) => self.structure(layout, value),
            Kind::One(kind) => self.one(kind, value),
            Kind::List(kind, count) => {
                let count = self.count(count);
                self.list(kind, value, count);
            }
            Kind::Late(kind) => {
                if self.success().is_some() {
                    self.value(kind, value);
                } else {
                    self.out.address(value);
                }
            }
            Kind::By(show, _) | Kind::Kept(_, show) | Kind::Changed(show, _) => show(self, value),
            Kind::Labelled(kind) => self.value(kind, value),
            // Only within structures, and there they have bytes: see `field`.
            Kind::Chosen(_) | Kind::Inner(_) | Kind::Characters(_) | Kind::Array(..) | Kind::Gap(_) => {
                self.out.hex(value);
            }
        }
    }

    /// The result of a call that ended.
    pub(super) fn result(&mut self, row: Option<&'static Row>, result: i64) {
        if let Some(number) = errno::of_result(result) {
            let (name, text) = (errno::name(number), errno::text(number));
            let (name, text) = (name.unwrap_or_default(), text.unwrap_or_default());
            // Numbers from 512 on are the kernel's word to itself; of these the call is made again.
            self.out.returned(if matches!(number, 512..=516) {
                Returned::Again(name, text)
            } else {
                Returned::Error(number, name, text)
            });
            // What a wait that was interrupted had left is told even then.
            return;
        }
        let whole = match self.abi {
            Abi::I386 => i64::from(result.cast_unsigned() as u32),
            _ => result,
        };
        match row.map_or(Res::Number, |row| row.result) {
            _ if self.limits.raw => self.out.returned(Returned::Hex(whole.cast_unsigned())),
            Res::Number => self.out.returned(Returned::Number(whole)),
            Res::Hex => self.out.returned(Returned::Hex(result.cast_unsigned())),
            Res::Octal => self.out.returned(Returned::Octal(result.cast_unsigned())),
            Res::Descriptor => self.returned_descriptor(result),
            Res::By(show) => show(self, result),
        }
    }

    /// A result that is a descriptor.
    pub(super) fn returned_descriptor(&mut self, result: i64) {
        let fd = result as i32;
        let what = self.describe(fd);
        self.out.returned(Returned::Descriptor(fd, what.as_deref()));
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
            2 => i64::from(value as i16),
            4 => i64::from(value as i32),
            _ => value.cast_signed(),
        }
    }

    pub(super) fn count(&self, count: Count) -> u64 {
        match count {
            Count::Argument(index) => self.argument(usize::from(index)),
            Count::Result => self.success().map_or(0, |result| result.max(0).cast_unsigned()),
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
        let fd = value as i32;
        let what = self.describe(fd);
        self.out.descriptor(fd, what.as_deref());
    }

    pub(super) fn directory(&mut self, value: u64) {
        const AT_FDCWD: i32 = -100;
        if value as i32 != AT_FDCWD {
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
            let in_page = (PAGE - from % PAGE) as usize;
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

    /// Shows one value behind an address.
    fn one(&mut self, kind: &Kind, at: u64) {
        let mut bytes = [0; 8];
        let size = kind.size(self.abi).min(8);
        if self.read(at, &mut bytes[..size]) {
            self.out.open_list();
            self.out.item();
            self.value(kind, u64::from_le_bytes(bytes));
            self.out.close_list(false);
        } else {
            self.out.address(at);
        }
    }

    /// Shows `count` items behind an address, or as many as the limit allows.
    pub(super) fn list(&mut self, kind: &Kind, at: u64, count: u64) {
        let size = kind.size(self.abi).max(1);
        if at == 0 {
            return self.out.address(0);
        }
        if count == 0 {
            self.out.open_list();
            return self.out.close_list(false);
        }
        let limit = if self.limits.abbreviate {
            self.limits.list
        } else {
            Limits::MOST / size
        };
        let mut item = [0; STRUCTURE];
        let Some(item) = item.get_mut(..size) else {
            return self.out.address(at);
        };
        for index in 0..count {
            if index >= limit as u64 || !self.spend(ITEM) {
                return self.out.close_list(true);
            }
            let here = at.wrapping_add(index * size as u64);
            if !self.read(here, item) {
                return match index {
                    0 => self.out.address(at),
                    _ => self.out.cut_list(here),
                };
            }
            if index == 0 {
                self.out.open_list();
            }
            self.out.item();
            self.held(kind, item);
        }
        self.out.close_list(false);
    }

    /// Shows a structure behind an address.
    pub(super) fn structure(&mut self, layout: &Layout, at: u64) {
        let mut bytes = [0; STRUCTURE];
        let size = layout.size(self.abi).min(STRUCTURE);
        let bytes = &mut bytes[..size];
        if self.read(at, bytes) {
            self.fields(layout, bytes);
        } else {
            self.out.address(at);
        }
    }

    /// Shows a structure that was read.
    pub(super) fn fields(&mut self, layout: &Layout, bytes: &[u8]) {
        self.out.open();
        let mut at = 0;
        let mut more = false;
        for field in layout.fields {
            at = field.begin(at, self.abi);
            let size = field.kind.size(self.abi);
            let held = bytes.get(at..at + size).unwrap_or_default();
            at += size;
            if matches!(field.kind, Kind::Gap(_)) {
                continue;
            }
            if !field.main && self.limits.abbreviate {
                more = true;
                continue;
            }
            self.field(field, held);
        }
        self.out.close(more);
    }

    fn field(&mut self, field: &Field, held: &[u8]) {
        self.out.field(field.name);
        self.held(&field.kind, held);
    }

    /// Shows a value that was read.
    fn held(&mut self, kind: &Kind, held: &[u8]) {
        match *kind {
            Kind::Inner(layout) => self.fields(layout, held),
            Kind::Characters(_) => {
                let end = held.iter().position(|byte| *byte == 0).unwrap_or(held.len());
                self.out.bytes(&held[..end], false);
            }
            Kind::Array(kind, _) => {
                self.out.open_list();
                for item in held.chunks(kind.size(self.abi).max(1)) {
                    self.out.item();
                    self.held(kind, item);
                }
                self.out.close_list(false);
            }
            _ => self.value(kind, number(held)),
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

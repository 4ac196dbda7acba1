//! Shows values of the kinds that rows name: registers, and behind them items and structures.

use super::Limits;
use super::kind::{Count, Field, Kind, Layout};
use super::reader::{ITEM, Reader, Registers, number};

/// The largest structure that a table may have.
const STRUCTURE: usize = 512;

impl Registers {
    /// The same, of two registers where it has two.
    pub(super) fn wide(&self, index: usize, kind: &Kind) -> u64 {
        let low = self.argument(index);
        match kind.registers(self.abi) {
            2 => low | self.argument(index + 1) << 32,
            _ => low,
        }
    }
}

impl Reader<'_> {
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

    pub(super) fn count(&self, count: Count) -> u64 {
        match count {
            Count::Argument(index) => self.argument(usize::from(index)),
            Count::Result => self.success().map_or(0, |result| result.max(0).cast_unsigned()),
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
        let most = (Limits::MOST / size) as u64;
        self.items(at, count, size, most, |reader, item| reader.held(kind, item));
    }

    /// The same by a function that is given the bytes of an item. Without abbreviation at most `most` are shown.
    pub(super) fn items(
        &mut self,
        at: u64,
        count: u64,
        size: usize,
        most: u64,
        mut show: impl FnMut(&mut Self, &[u8]),
    ) {
        if at == 0 {
            return self.out.address(0);
        }
        if count == 0 {
            self.out.open_list();
            return self.out.close_list(false);
        }
        let limit = self.limit(most);
        let mut item = [0; STRUCTURE];
        let Some(item) = item.get_mut(..size) else {
            return self.out.address(at);
        };
        for index in 0..count {
            if index >= limit || !self.spend(ITEM) {
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
            show(self, item);
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

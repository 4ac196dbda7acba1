//! What an argument, a field or an item can be. A kind is data: the tables are made of them, [`super::reader`] shows them.

use super::names::Names;
use super::reader::{Reader, Registers};
pub(super) use super::width::Width;
use fleetgate_calls::abi::Abi;

/// How many items a list has, or bytes a buffer.
#[derive(Clone, Copy)]
pub(super) enum Count {
    /// As an argument says.
    Argument(u8),
    /// As the call returned.
    Result,
}

/// A kind of value.
#[derive(Clone, Copy)]
pub(super) enum Kind {
    /// A signed number.
    Signed(Width),
    /// An unsigned one.
    Unsigned(Width),
    /// One that is read as hexadecimal.
    Hex(Width),
    /// One that has a name.
    Named(&'static Names, Width),
    /// Bits.
    Bits(&'static Names, Width),
    /// An address, shown as that.
    Address,
    /// A descriptor.
    Descriptor,
    /// A descriptor that the path after it begins at.
    Directory,
    /// A path.
    Path,
    /// A string up to its NUL.
    Text,
    /// Bytes.
    Bytes(Count),
    /// 64 bits, in two registers of a 32-bit program.
    Wide,
    /// A mode.
    Octal(Width),
    /// A structure behind an address.
    To(&'static Layout),
    /// One value behind an address, between brackets.
    One(&'static Kind),
    /// Items behind an address.
    List(&'static Kind, Count),
    /// What only the end of the call tells, and only where it succeeded; an address until then.
    Late(&'static Kind),
    /// Told at the end, with what was there at the begin: which function keeps that, and which shows it.
    Kept(fn(&Reader, u64) -> u64, fn(&mut Reader, u64)),
    /// Shown at the begin by the one function, and what became of it at the end by the other.
    Changed(fn(&mut Reader, u64), fn(&mut Reader, u64)),
    /// Shown by a function.
    By(fn(&mut Reader, u64), Width),
    /// Other arguments say which kind; `None`: there is no such argument.
    Chosen(fn(&Registers) -> Option<Kind>),
    /// With its name before it, even where names are not shown.
    Labelled(&'static Kind),
    /// A structure within a structure.
    Inner(&'static Layout),
    /// A string in so many bytes of a structure.
    Characters(usize),
    /// So many numbers of this kind within a structure.
    Array(&'static Kind, usize),
    /// Bytes of a structure that are not shown.
    Gap(usize),
}

/// A structure.
pub(super) struct Layout {
    pub(super) fields: &'static [Field],
}

/// A field of one.
pub(super) struct Field {
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    /// Shown even where structures are abbreviated.
    pub(super) main: bool,
}

/// A field that is always shown.
pub(super) const fn f(name: &'static str, kind: Kind) -> Field {
    Field {
        name,
        kind,
        main: true,
    }
}

/// One that an abbreviated structure lacks.
pub(super) const fn v(name: &'static str, kind: Kind) -> Field {
    Field {
        name,
        kind,
        main: false,
    }
}

/// Bytes that are never shown.
pub(super) const fn gap(bytes: usize) -> Field {
    f("", Kind::Gap(bytes))
}

pub(super) const INT: Kind = Kind::Signed(Width::Four);
pub(super) const UINT: Kind = Kind::Unsigned(Width::Four);
pub(super) const LONG: Kind = Kind::Signed(Width::Word);
pub(super) const SIZE: Kind = Kind::Unsigned(Width::Word);
pub(super) const SHORT: Kind = Kind::Signed(Width::Two);
pub(super) const USHORT: Kind = Kind::Unsigned(Width::Two);
pub(super) const I64: Kind = Kind::Signed(Width::Eight);
pub(super) const U64: Kind = Kind::Unsigned(Width::Eight);
pub(super) const HEX: Kind = Kind::Hex(Width::Word);
pub(super) const ADDRESS: Kind = Kind::Address;
pub(super) const FD: Kind = Kind::Descriptor;
pub(super) const AT: Kind = Kind::Directory;
pub(super) const PATH: Kind = Kind::Path;
pub(super) const TEXT: Kind = Kind::Text;
pub(super) const MODE: Kind = Kind::Octal(Width::Four);

/// A number of four bytes that has a name.
pub(super) const fn named(names: &'static Names) -> Kind {
    Kind::Named(names, Width::Four)
}

/// Four bytes of bits.
pub(super) const fn bits(names: &'static Names) -> Kind {
    Kind::Bits(names, Width::Four)
}

impl Kind {
    /// How many registers an argument takes.
    pub(super) fn registers(&self, abi: Abi) -> usize {
        match self {
            Kind::Wide if abi == Abi::I386 => 2,
            _ => 1,
        }
    }

    /// The kind that it really is, and whether its name is shown; `None`: there is no such argument.
    pub(super) fn chosen(&self, registers: &Registers) -> Option<(Kind, bool)> {
        let mut kind = *self;
        let mut shown = false;
        // A choice may name another one once.
        for _ in 0..3 {
            match kind {
                Kind::Chosen(choose) => kind = choose(registers)?,
                Kind::Labelled(inner) => {
                    kind = *inner;
                    shown = true;
                }
                _ => break,
            }
        }
        Some((kind, shown))
    }

    /// Whether only the end of the call tells it.
    pub(super) fn is_late(&self) -> bool {
        matches!(self, Kind::Late(_) | Kind::Kept(..))
    }

    /// Whether all 64 bits of an argument count: it is a `long`, a size or an address.
    pub(super) fn is_wide(&self) -> bool {
        match self {
            Kind::Signed(width)
            | Kind::Unsigned(width)
            | Kind::Hex(width)
            | Kind::Octal(width)
            | Kind::Named(_, width)
            | Kind::Bits(_, width)
            | Kind::By(_, width) => matches!(width, Width::Eight | Width::Word),
            Kind::Descriptor | Kind::Directory => false,
            _ => true,
        }
    }

    /// Bytes in memory.
    pub(super) fn size(&self, abi: Abi) -> usize {
        match self {
            Kind::Signed(width)
            | Kind::Unsigned(width)
            | Kind::Hex(width)
            | Kind::Octal(width)
            | Kind::Named(_, width)
            | Kind::Bits(_, width)
            | Kind::By(_, width) => width.bytes(abi),
            Kind::Descriptor | Kind::Directory => 4,
            Kind::Wide => 8,
            Kind::Inner(layout) => layout.size(abi),
            Kind::Characters(bytes) | Kind::Gap(bytes) => *bytes,
            Kind::Array(kind, count) => kind.size(abi) * count,
            Kind::Labelled(kind) => kind.size(abi),
            _ => abi.word(),
        }
    }

    /// What its place in a structure is a multiple of.
    pub(super) fn alignment(&self, abi: Abi) -> usize {
        match self {
            Kind::Inner(layout) => layout.alignment(abi),
            Kind::Characters(_) | Kind::Gap(_) => 1,
            Kind::Array(kind, _) => kind.alignment(abi),
            // i386 is alone in that it aligns 64 bits as if they were 32.
            _ if abi == Abi::I386 => self.size(abi).min(4),
            _ => self.size(abi),
        }
        .max(1)
    }
}

impl Layout {
    /// Bytes in memory.
    pub(super) fn size(&self, abi: Abi) -> usize {
        let end = self
            .fields
            .iter()
            .fold(0, |at, field| field.begin(at, abi) + field.kind.size(abi));
        end.next_multiple_of(self.alignment(abi))
    }

    fn alignment(&self, abi: Abi) -> usize {
        let alignments = self.fields.iter().map(|field| field.kind.alignment(abi));
        alignments.max().unwrap_or(1)
    }
}

impl Field {
    /// Where it begins, when the one before it ended at `at`.
    pub(super) fn begin(&self, at: usize, abi: Abi) -> usize {
        at.next_multiple_of(self.kind.alignment(abi))
    }
}

//! What one call says: from its registers, and from what can be read of its caller. All of it is bounded.

use super::row::{Argument, Level, Only, Row, Sort};
use super::table::{EXECUTED, rows_of};
use super::{Caller, Image};
use crate::abi::{Abi, low, low_signed};
use std::fmt::Write;
use std::net::{Ipv4Addr, Ipv6Addr};

/// The longest path or text; a path of the kernel's is no longer.
pub const MAX_PATH: usize = 4096;
/// The most arguments of a program that are told.
pub const MAX_WORDS: usize = 64;
/// Messages of one sendmmsg that are looked at: as many as the kernel sends (UIO_MAXIOV).
const MAX_MESSAGES: u64 = 1024;
/// The most bytes of them together.
pub const MAX_ARGV: usize = 4096;
/// The longest socket address (struct sockaddr_storage).
const MAX_ADDRESS: usize = 128;
const AT_FDCWD: i32 = -100;
const AT_EMPTY_PATH: u64 = 0x1000;

/// Where a field comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The kernel says so.
    Kernel,
    /// A register of the call.
    Register,
    /// The caller's memory, which others may write.
    Claimed,
}

/// What a field holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// A number.
    Number(i64),
    /// Bytes, and whether there were more.
    Text(Vec<u8>, bool),
    /// A list, and whether there were more.
    Words(Vec<Vec<u8>>, bool),
}

/// One field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fact {
    /// Its name in docs/audit.md.
    pub name: &'static str,
    /// Where it comes from.
    pub source: Source,
    /// What it holds.
    pub value: Value,
}

/// An event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditEvent {
    /// Its name in docs/audit.md.
    pub event: &'static str,
    /// The rest.
    pub facts: Vec<Fact>,
}

impl AuditEvent {
    /// A program that a process has begun to execute.
    #[must_use]
    pub fn executed(caller: &impl Caller) -> AuditEvent {
        let mut facts = Vec::new();
        who(caller, &mut facts);
        if let Some(Image { device, inode, .. }) = image(caller, &mut facts) {
            for (name, number) in [("device", device), ("inode", inode)] {
                facts.push(fact(name, Source::Kernel, number_of(number)));
            }
        }
        AuditEvent {
            event: EXECUTED,
            facts,
        }
    }
}

/// What a call of `row` says. None: nothing at this level.
#[must_use]
pub fn tell(
    row: &Row,
    abi: Abi,
    arguments: &[u64; 6],
    level: Level,
    caller: &impl Caller,
) -> Option<AuditEvent> {
    let from = From {
        abi,
        arguments,
        caller,
        registers: Source::Register,
    };
    from.tell(row, level)
}

/// What a `socketcall` of i386 says, whose arguments lie in memory. None: nothing at this level.
#[must_use]
pub fn tell_socketcall(arguments: &[u64; 6], level: Level, caller: &impl Caller) -> Option<AuditEvent> {
    // linux/net.h: SYS_SOCKET 1, SYS_BIND 2, …
    let (name, count) = match low(arguments[0]) {
        1 => ("socket", 3),
        2 => ("bind", 3),
        3 => ("connect", 3),
        4 => ("listen", 2),
        5 | 18 => ("accept", 3),
        11 => ("sendto", 6),
        16 => ("sendmsg", 3),
        20 => ("sendmmsg", 4),
        _ => return None,
    };
    let mut words = [0; 24];
    let got = caller.read(arguments[1] & u64::from(u32::MAX), &mut words[..count * 4]);
    let (chunks, _) = words[..got].as_chunks::<4>();
    let mut inner = [0; 6];
    for (to, from) in inner.iter_mut().zip(chunks) {
        *to = u32::from_ne_bytes(*from).into();
    }
    let row = rows_of(name).find(|row| row.when.fits(&inner))?;
    let from = From {
        abi: Abi::I386,
        arguments: &inner,
        caller,
        registers: Source::Claimed,
    };
    from.tell(row, level)
}

struct From<'a, C> {
    abi: Abi,
    arguments: &'a [u64; 6],
    caller: &'a C,
    registers: Source,
}

impl<C: Caller> From<'_, C> {
    fn tell(&self, row: &Row, level: Level) -> Option<AuditEvent> {
        if row.level > level {
            return None;
        }
        if let Only::Pointed(at, bits) = row.when
            && self
                .pointed(self.register(at))
                .is_none_or(|value| value & bits == 0)
        {
            return None;
        }
        if let Only::Addressed(at, count) = row.when
            && self.messages(self.register(at), count).is_none()
        {
            return None;
        }
        let mut facts = Vec::new();
        if !row.operation.is_empty() {
            facts.push(fact("operation", self.registers, text(row.operation.as_bytes())));
        }
        who(self.caller, &mut facts);
        image(self.caller, &mut facts);
        for argument in row.arguments {
            self.argument(argument, &mut facts);
        }
        Some(AuditEvent {
            event: row.event,
            facts,
        })
    }

    fn register(&self, at: u8) -> u64 {
        let value = self.arguments.get(usize::from(at)).copied().unwrap_or(0);
        match self.abi.word() {
            4 => value & u64::from(u32::MAX),
            _ => value,
        }
    }

    fn argument(&self, argument: &Argument, facts: &mut Vec<Fact>) {
        let Argument { name, at, sort } = *argument;
        let value = self.register(at);
        let mut put = |source, value| facts.push(fact(name, source, value));
        match sort {
            Sort::Number => put(self.registers, Value::Number(value.cast_signed())),
            Sort::Id => put(self.registers, Value::Number((low_signed(value)).into())),
            Sort::Mode => {
                let mode = format!("{:o}", value & 0o177_777);
                put(self.registers, text(mode.as_bytes()));
            }
            Sort::Open => put(self.registers, open_flags(u64::from(low(value)))),
            Sort::How => {
                let mut flags = [0; 8];
                if self.caller.read(value, &mut flags) == 8 {
                    // Told whatever they are: another thread could have them say "read" for just this moment.
                    put(Source::Claimed, open_flags(u64::from_ne_bytes(flags)));
                }
            }
            Sort::Text => {
                if value != 0
                    && let Some((bytes, cut)) = self.string(value, MAX_PATH)
                {
                    put(Source::Claimed, Value::Text(bytes, cut));
                }
            }
            Sort::Descriptor => {
                if let Some(what) = self.caller.descriptor(low_signed(value)) {
                    put(Source::Kernel, text(&what));
                }
            }
            Sort::Argv => {
                let (words, cut) = self.words(value);
                put(Source::Claimed, Value::Words(words, cut));
            }
            Sort::Address(length) => {
                if let Some(address) = self.address(value, self.register(length)) {
                    put(Source::Claimed, text(address.as_bytes()));
                }
            }
            Sort::Message => {
                if let Some(address) = self.message(value) {
                    put(Source::Claimed, text(address.as_bytes()));
                }
            }
            Sort::Messages(count) => {
                if let Some(address) = self.messages(value, Some(count)) {
                    put(Source::Claimed, text(address.as_bytes()));
                }
            }
            Sort::Pointed => {
                if let Some(value) = self.pointed(value) {
                    put(Source::Claimed, Value::Number(value.cast_signed()));
                }
            }
            Sort::Path => self.path(name, value, None, facts),
            Sort::PathAt(from) => self.path(name, value, Some(low_signed(self.register(from))), facts),
            Sort::PathOf(from, flags) => {
                let directory = low_signed(self.register(from));
                let empty = self.register(flags) & AT_EMPTY_PATH != 0;
                if empty && self.string(value, 1).is_none_or(|(bytes, _)| bytes.is_empty()) {
                    if let Some(what) = self.caller.descriptor(directory) {
                        facts.push(fact(name, Source::Kernel, text(&what)));
                    }
                } else {
                    self.path(name, value, Some(directory), facts);
                }
            }
        }
    }

    /// A path, and where a relative one begins.
    fn path(&self, name: &'static str, at: u64, from: Option<i32>, facts: &mut Vec<Fact>) {
        let Some((path, cut)) = self.string(at, MAX_PATH) else {
            return;
        };
        let is_relative = !path.starts_with(b"/");
        facts.push(fact(name, Source::Claimed, Value::Text(path, cut)));
        if !is_relative {
            return;
        }
        let directory = match from {
            None | Some(AT_FDCWD) => self.caller.directory(),
            Some(descriptor) => self.caller.descriptor(descriptor),
        };
        let name = match name {
            "to" => "to_directory",
            "target" => "target_directory",
            "from" => "from_directory",
            "put_old" => return,
            _ => "directory",
        };
        if let Some(directory) = directory {
            facts.push(fact(name, Source::Kernel, text(&directory)));
        }
    }

    /// A string up to its zero byte, or to the bound; none: nothing of it can be read.
    fn string(&self, at: u64, most: usize) -> Option<(Vec<u8>, bool)> {
        const STEP: usize = 256;
        let mut found = Vec::new();
        let mut buffer = [0; STEP];
        while found.len() < most {
            // Up to the end of a part of a page, so that what lies behind the string may be unmapped.
            let here = at.wrapping_add(found.len() as u64);
            let step = (STEP - usize::try_from(here % STEP as u64).unwrap_or(0)).min(most - found.len());
            let got = self.caller.read(here, &mut buffer[..step]);
            let end = buffer[..got].iter().position(|byte| *byte == 0);
            found.extend_from_slice(&buffer[..end.unwrap_or(got)]);
            if end.is_some() {
                return Some((found, false));
            }
            if got < step {
                return (!found.is_empty()).then_some((found, true));
            }
        }
        Some((found, true))
    }

    fn pointed(&self, at: u64) -> Option<u64> {
        let mut bytes = [0; 8];
        (self.caller.read(at, &mut bytes) == bytes.len()).then(|| u64::from_ne_bytes(bytes))
    }

    /// The address of a struct msghdr: a pointer, and 32 bits for its length.
    fn message(&self, at: u64) -> Option<String> {
        let width = self.abi.word();
        let mut bytes = [0; 12];
        let (pointer, length) = bytes[..width + 4].split_at_mut(width);
        if self.caller.read(at, pointer) != width
            || self.caller.read(at.wrapping_add(width as u64), length) != 4
        {
            return None;
        }
        let length = u32::from_ne_bytes(bytes[width..width + 4].try_into().ok()?);
        let mut pointer = [0; 8];
        pointer[..width].copy_from_slice(&bytes[..width]);
        let pointer = u64::from_ne_bytes(pointer);
        match pointer {
            0 => None,
            _ => self.address(pointer, length.into()),
        }
    }

    /// The first address in an array of struct mmsghdr, as many as this argument says; without it, of the one struct msghdr.
    fn messages(&self, at: u64, count: Option<u8>) -> Option<String> {
        let Some(count) = count else {
            return self.message(at);
        };
        // Seven words, and a number that is as long as a word with what fills it up.
        let size = 8 * self.abi.word() as u64;
        let count = u64::from(low(self.register(count))).min(MAX_MESSAGES);
        (0..count).find_map(|number| self.message(at.wrapping_add(number * size)))
    }

    fn words(&self, at: u64) -> (Vec<Vec<u8>>, bool) {
        let width = self.abi.word();
        let mut words = Vec::new();
        let mut left = MAX_ARGV;
        for number in 0..MAX_WORDS {
            let mut pointer = [0; 8];
            let here = at.wrapping_add((number * width) as u64);
            if at == 0 || self.caller.read(here, &mut pointer[..width]) != width {
                return (words, at != 0);
            }
            let pointer = u64::from_ne_bytes(pointer);
            if pointer == 0 {
                return (words, false);
            }
            let Some((word, cut)) = self.string(pointer, left) else {
                return (words, true);
            };
            left -= word.len();
            words.push(word);
            if cut || left == 0 {
                return (words, true);
            }
        }
        (words, true)
    }

    /// `192.0.2.1:443`, `[2001:db8::1]:443`, `unix:/path`, `unix:@abstract`, `family 16`.
    fn address(&self, at: u64, length: u64) -> Option<String> {
        let mut room = [0; MAX_ADDRESS];
        let length = usize::try_from(length).unwrap_or(MAX_ADDRESS).min(MAX_ADDRESS);
        let got = self.caller.read(at, &mut room[..length]);
        let bytes = &room[..got];
        let family = u16::from_ne_bytes(bytes.first_chunk().copied()?);
        let port = || Some(u16::from_be_bytes(bytes.get(2..4)?.try_into().ok()?));
        match family {
            0 => Some("none".to_owned()),
            1 => Some(unix(&bytes[2..])),
            2 => {
                let address: [u8; 4] = bytes.get(4..8)?.try_into().ok()?;
                Some(format!("{}:{}", Ipv4Addr::from(address), port()?))
            }
            10 => {
                let address: [u8; 16] = bytes.get(8..24)?.try_into().ok()?;
                Some(format!("[{}]:{}", Ipv6Addr::from(address), port()?))
            }
            family => Some(format!("family {family}")),
        }
    }
}

fn unix(name: &[u8]) -> String {
    let mut shown = "unix:".to_owned();
    let name = match name {
        [0, rest @ ..] if !rest.is_empty() => {
            shown.push('@');
            rest
        }
        _ => name.split(|byte| *byte == 0).next().unwrap_or_default(),
    };
    for chunk in name.utf8_chunks() {
        shown.push_str(chunk.valid());
        for byte in chunk.invalid() {
            let _ = write!(shown, "\\x{byte:02x}");
        }
    }
    shown
}

fn who(caller: &impl Caller, facts: &mut Vec<Fact>) {
    if let Some(who) = caller.who() {
        for (name, number) in [
            ("pid", i64::from(who.pid)),
            ("parent", who.parent.into()),
            ("uid", who.uid.into()),
        ] {
            facts.push(fact(name, Source::Kernel, Value::Number(number)));
        }
    }
}

fn image(caller: &impl Caller, facts: &mut Vec<Fact>) -> Option<Image> {
    let image = caller.image()?;
    facts.push(fact("program", Source::Kernel, text(&image.path)));
    Some(image)
}

fn fact(name: &'static str, source: Source, value: Value) -> Fact {
    Fact { name, source, value }
}

fn text(bytes: &[u8]) -> Value {
    let cut = bytes.len() > MAX_PATH;
    Value::Text(bytes[..bytes.len().min(MAX_PATH)].to_vec(), cut)
}

fn number_of(number: u64) -> Value {
    Value::Number(i64::try_from(number).unwrap_or(i64::MAX))
}

/// The flags of open(2) that say what becomes of the file; the others change nothing about that.
fn open_flags(flags: u64) -> Value {
    // With O_DIRECTORY, which is another bit on ARM.
    const TMPFILE: u64 = 0o20_000_000;
    #[cfg(target_arch = "x86_64")]
    const NO_FOLLOW: u64 = 0o400_000;
    #[cfg(not(target_arch = "x86_64"))]
    const NO_FOLLOW: u64 = 0o100_000;
    let mut words: Vec<&str> = vec![match flags & 3 {
        0 => "read",
        1 => "write",
        _ => "read-write",
    }];
    for (bits, word) in [
        (0o100, "create"),
        (0o200, "exclusive"),
        (0o1000, "truncate"),
        (0o2000, "append"),
        (TMPFILE, "nameless"),
        (NO_FOLLOW, "no-follow"),
        (0o10_000_000, "path"),
    ] {
        if flags & bits == bits {
            words.push(word);
        }
    }
    Value::Words(words.iter().map(|word| word.as_bytes().to_vec()).collect(), false)
}

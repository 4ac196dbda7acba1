//! glibc's `struct utmp`, byte by byte. Where programs of 32 bits exist beside those of 64 (x86_64) its times are
//! 32 bits wide; elsewhere (aarch64) they are longs. Seconds beyond 2038 are written modulo 2^32, as glibc does.

use crate::Entry;
use alloc::vec::Vec;

const WIDE: bool = cfg!(not(target_arch = "x86_64"));

/// The size of one record.
pub const RECORD: usize = if WIDE { 400 } else { 384 };
pub(crate) type Bytes = [u8; RECORD];

const PID: usize = 4;
const LINE: usize = 8;
const LINE_LEN: usize = 32;
const ID: usize = 40;
const USER: usize = 44;
const USER_LEN: usize = 32;
const HOST: usize = 76;
const HOST_LEN: usize = 256;
const SEC: usize = if WIDE { 344 } else { 340 };
const USEC: usize = if WIDE { 352 } else { 344 };
const ADDRESS: usize = if WIDE { 360 } else { 348 };

/// What a record says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub enum Kind {
    /// INIT_PROCESS.
    Init = 5,
    /// LOGIN_PROCESS: somebody is about to log in; in btmp: failed to.
    Login = 6,
    /// USER_PROCESS.
    User = 7,
    /// DEAD_PROCESS.
    Dead = 8,
}

/// A record as read back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// Its ut_type.
    pub kind: u16,
    /// The process.
    pub pid: i32,
    /// The terminal, without `/dev/`.
    pub line: Vec<u8>,
    /// The user.
    pub user: Vec<u8>,
    /// The peer.
    pub host: Vec<u8>,
    /// Seconds.
    pub sec: i64,
    /// Microseconds.
    pub usec: u32,
    /// The peer's address, as glibc keeps it: v4 in the first four bytes.
    pub address: [u8; 16],
}

/// `/dev/pts/3` as the records name it: `pts/3`.
pub(crate) fn stripped(line: &[u8]) -> &[u8] {
    line.strip_prefix(b"/dev/").unwrap_or(line)
}

/// The id of a terminal: the last four characters without `tty`, as every login program abbreviates it.
fn id(line: &[u8]) -> &[u8] {
    let line = line.strip_prefix(b"tty").unwrap_or(line);
    &line[line.len().saturating_sub(4)..]
}

/// The record of `entry`.
pub(crate) fn record(entry: &Entry, kind: Kind) -> Bytes {
    let mut out = [0u8; RECORD];
    let line = stripped(entry.line.to_bytes());
    out[..2].copy_from_slice(&(kind as u16).to_ne_bytes());
    out[PID..PID + 4].copy_from_slice(&entry.pid.to_ne_bytes());
    // As strncpy: what fills a field entirely has no zero behind it.
    fill(&mut out[LINE..LINE + LINE_LEN], line);
    // sshd gives failed logins no id; they have no terminal.
    if kind != Kind::Login {
        fill(&mut out[ID..ID + 4], id(line));
    }
    fill(&mut out[USER..USER + USER_LEN], entry.user.to_bytes());
    fill(&mut out[HOST..HOST + HOST_LEN], entry.host.to_bytes());
    put_time(&mut out[SEC..], entry.at.sec);
    put_time(&mut out[USEC..], (entry.at.nsec / 1000) as i64);
    let v4 = entry
        .address
        .strip_prefix(&[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff]);
    fill(&mut out[ADDRESS..ADDRESS + 16], v4.unwrap_or(&entry.address));
    out
}

fn fill(field: &mut [u8], value: &[u8]) {
    let len = value.len().min(field.len());
    field[..len].copy_from_slice(&value[..len]);
}

/// Writes a time field in this machine's width.
pub(crate) fn put_time(field: &mut [u8], value: i64) {
    if WIDE {
        field[..8].copy_from_slice(&value.to_ne_bytes());
    } else {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "the field has 32 bits, which hold until 2106"
        )]
        field[..4].copy_from_slice(&(value as u32).to_ne_bytes());
    }
}

/// Reads a time field; 32 bits are taken as unsigned, which holds until 2106.
pub(crate) fn time(field: &[u8]) -> i64 {
    if WIDE {
        i64::from_ne_bytes(field[..8].try_into().expect("eight bytes"))
    } else {
        u32::from_ne_bytes(field[..4].try_into().expect("four bytes")) as i64
    }
}

/// The bytes of a field up to its zero.
pub(crate) fn text(field: &[u8]) -> &[u8] {
    &field[..field.iter().position(|b| *b == 0).unwrap_or(field.len())]
}

pub(crate) fn kind(record: &Bytes) -> u16 {
    u16::from_ne_bytes([record[0], record[1]])
}

/// Whether two records are of one terminal, by pututline's rule: both of a process kind; the ids where both
/// have one, else the lines.
pub(crate) fn same_terminal(a: &Bytes, b: &Bytes) -> bool {
    let of_process = |r: &Bytes| (Kind::Init as u16..=Kind::Dead as u16).contains(&kind(r));
    let field = if a[ID] != 0 && b[ID] != 0 {
        ID..ID + 4
    } else {
        LINE..LINE + LINE_LEN
    };
    of_process(a) && of_process(b) && text(&a[field.clone()]) == text(&b[field])
}

/// Whether two records tell the same: kind, terminal, user and moment. The process may differ: a launch that
/// died is made again.
pub(crate) fn same_event(a: &Bytes, b: &Bytes) -> bool {
    let skip_pid = |r: &Bytes| (kind(r), r[LINE..HOST].to_vec(), r[SEC..ADDRESS].to_vec());
    skip_pid(a) == skip_pid(b)
}

/// Reads a record.
pub(crate) fn line(record: &Bytes) -> Line {
    Line {
        kind: kind(record),
        pid: i32::from_ne_bytes(record[PID..PID + 4].try_into().expect("four bytes")),
        line: text(&record[LINE..LINE + LINE_LEN]).to_vec(),
        user: text(&record[USER..USER + USER_LEN]).to_vec(),
        host: text(&record[HOST..HOST + HOST_LEN]).to_vec(),
        sec: time(&record[SEC..]),
        usec: u32::try_from(time(&record[USEC..])).unwrap_or(0),
        address: record[ADDRESS..ADDRESS + 16].try_into().expect("sixteen bytes"),
    }
}

//! Times: as structures, and when that was for a person.

use crate::decode::constants as c;
use crate::decode::kind::{I64, INT, Kind, LONG, Layout, SIZE, U64, Width, f, named};
use crate::decode::reader::{Reader, Stage, number};
use fleetgate_sys::clock;
use std::io::Write;

/// struct timespec.
pub(in crate::decode) static TIMESPEC: Layout = Layout {
    fields: &[f("tv_sec", LONG), f("tv_nsec", SIZE)],
};
/// The same with 64 bits for 32-bit programs.
pub(in crate::decode) static TIMESPEC64: Layout = Layout {
    fields: &[f("tv_sec", I64), f("tv_nsec", U64)],
};
/// struct timeval.
pub(in crate::decode) static TIMEVAL: Layout = Layout {
    fields: &[f("tv_sec", LONG), f("tv_usec", SIZE)],
};
/// struct itimerval.
pub(in crate::decode) static ITIMERVAL: Layout = Layout {
    fields: &[
        f("it_interval", Kind::Inner(&TIMEVAL)),
        f("it_value", Kind::Inner(&TIMEVAL)),
    ],
};
/// struct itimerspec.
pub(in crate::decode) static ITIMERSPEC: Layout = Layout {
    fields: &[
        f("it_interval", Kind::Inner(&TIMESPEC)),
        f("it_value", Kind::Inner(&TIMESPEC)),
    ],
};
/// The same with 64 bits for 32-bit programs.
pub(in crate::decode) static ITIMERSPEC64: Layout = Layout {
    fields: &[
        f("it_interval", Kind::Inner(&TIMESPEC64)),
        f("it_value", Kind::Inner(&TIMESPEC64)),
    ],
};
/// struct timezone.
pub(in crate::decode) static TIMEZONE: Layout = Layout {
    fields: &[f("tz_minuteswest", INT), f("tz_dsttime", INT)],
};
/// struct tms.
pub(in crate::decode) static TMS: Layout = Layout {
    fields: &[
        f("tms_utime", LONG),
        f("tms_stime", LONG),
        f("tms_cutime", LONG),
        f("tms_cstime", LONG),
    ],
};
/// struct utimbuf.
pub(in crate::decode) fn utimbuf(r: &mut Reader, at: u64) {
    let word = r.abi.word();
    let mut bytes = [0; 16];
    let bytes = &mut bytes[..2 * word];
    if !r.read(at, bytes) {
        return r.out.address(at);
    }
    let (access, change) = bytes.split_at(word);
    r.out.open();
    for (name, bytes) in [("actime", access), ("modtime", change)] {
        let value = r.signed(number(bytes), Width::Word);
        r.number_field(name, value);
        stamp(r, value, 0, 9);
    }
    r.out.close(false);
}

/// struct sigevent's and timer_create's clock.
pub(in crate::decode) const CLOCK: Kind = named(&c::CLOCK);

/// Two times of a file.
pub(in crate::decode) fn file_times(r: &mut Reader, at: u64) {
    const NOW: i64 = 0x3fff_ffff;
    const OMIT: i64 = 0x3fff_fffe;
    let word = r.abi.word();
    let mut bytes = [0; 32];
    let bytes = &mut bytes[..4 * word];
    if !r.read(at, bytes) {
        return r.out.address(at);
    }
    r.out.open_list();
    for time in bytes.chunks(2 * word) {
        let (seconds, nanoseconds) = time.split_at(word);
        let seconds = r.signed(number(seconds), Width::Word);
        let nanoseconds = r.signed(number(nanoseconds), Width::Word);
        r.out.item();
        match nanoseconds {
            NOW => r.out.name("UTIME_NOW"),
            OMIT => r.out.name("UTIME_OMIT"),
            _ => {
                r.out.open();
                r.number_field("tv_sec", seconds);
                r.number_field("tv_nsec", nanoseconds);
                r.out.close(false);
                stamp(r, seconds, nanoseconds.cast_unsigned(), 9);
            }
        }
    }
    r.out.close_list(false);
}

/// Two struct timeval of a file.
pub(in crate::decode) fn old_file_times(r: &mut Reader, at: u64) {
    let word = r.abi.word();
    let mut bytes = [0; 32];
    let bytes = &mut bytes[..4 * word];
    if !r.read(at, bytes) {
        return r.out.address(at);
    }
    r.out.open_list();
    for time in bytes.chunks(2 * word) {
        r.out.item();
        let (seconds, micros) = time.split_at(word);
        let seconds = r.signed(number(seconds), Width::Word);
        let micros = r.signed(number(micros), Width::Word);
        r.fields(&TIMEVAL, time);
        stamp(r, seconds, micros.cast_unsigned(), 6);
    }
    r.out.close_list(false);
}

/// What was left of a wait: only one that was interrupted tells.
pub(in crate::decode) fn left(r: &mut Reader, at: u64) {
    match r.stage {
        Stage::Ended(-516) => r.structure(&TIMESPEC, at),
        _ => r.out.address(at),
    }
}

/// When that was, for a person: a comment as strace makes it, always in UTC. `part` has so many digits.
pub(in crate::decode) fn stamp(r: &mut Reader, seconds: i64, part: u64, digits: u32) {
    if seconds == 0 && part == 0 {
        return;
    }
    let Some(text) = when(seconds, part, digits) else {
        return;
    };
    r.out.comment(&text);
}

/// `2026-11-22T03:00:00.000000001+0000`; None where no calendar reaches.
fn when(seconds: i64, part: u64, digits: u32) -> Option<Vec<u8>> {
    if part >= 10u64.pow(digits) || seconds.unsigned_abs() > 1 << 40 {
        return None;
    }
    let mut text = Vec::with_capacity(40);
    let _ = write!(text, "{}", clock::utc(seconds));
    if part > 0 {
        text.push(b'.');
        digits_of(&mut text, part, digits);
    }
    text.extend_from_slice(b"+0000");
    Some(text)
}

fn digits_of(text: &mut Vec<u8>, value: u64, digits: u32) {
    for place in (0..digits).rev() {
        text.push(b'0' + (value / 10u64.pow(place) % 10) as u8);
    }
}

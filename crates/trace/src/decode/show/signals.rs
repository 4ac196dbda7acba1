//! Signals: one, sets of them, what is done about them.

use crate::decode::Set;
use crate::decode::constants as c;
use crate::decode::kind::{ADDRESS, Kind, Layout, SIZE, Width, f};
use crate::decode::reader::{Reader, number};
use fleetgate_calls::abi::{Abi, low_signed};
use fleetgate_calls::tables::signal as names;

/// Bits of a set.
const SIGNALS: u32 = 64;
/// Where more are in a set than this, those are shown that are not.
const MANY: u32 = SIGNALS * 2 / 3;

/// A signal by name.
pub(in crate::decode) fn signal(r: &mut Reader, value: u64) {
    let value = low_signed(value);
    match names::name(value) {
        Some(name) => r.out.name(name),
        None => r.out.number(i64::from(value)),
    }
}

/// A set of them.
pub(in crate::decode) fn set(r: &mut Reader, bits: u64, size: u64) {
    let all = if size < 8 { (1 << (size * 8)) - 1 } else { u64::MAX };
    let inverted = bits.count_ones() >= MANY;
    let set = if inverted { Set::AllBut } else { Set::Of };
    let shown = if inverted { !bits & all } else { bits & all };
    r.out.open_set(set);
    for index in 0..SIGNALS {
        if shown >> index & 1 != 0 {
            r.out.element();
            r.out.signal(index.cast_signed() + 1);
        }
    }
    r.out.close_set(set);
}

/// A set behind an address, of so many bytes.
pub(in crate::decode) fn set_at(r: &mut Reader, at: u64, size: u64) {
    let mut bytes = [0; 8];
    let length = size.min(8) as usize;
    if size == 0 || size > 128 || !r.read(at, &mut bytes[..length]) {
        return r.out.address(at);
    }
    set(r, number(&bytes), size);
}

/// A set whose size is in this argument.
pub(in crate::decode) fn set_sized_by<const ARGUMENT: usize>(r: &mut Reader, at: u64) {
    let size = r.argument(ARGUMENT);
    set_at(r, at, size);
}

/// What is done about a signal: struct sigaction as the kernel has it.
pub(in crate::decode) fn action(r: &mut Reader, at: u64) {
    const RESTORER: u64 = 0x0400_0000;
    let word = r.abi.word();
    // aarch64 has the restorer's place, and uses it as x86 does.
    let mut bytes = [0; 32];
    let bytes = &mut bytes[..3 * word + 8];
    if !r.read(at, bytes) {
        return r.out.address(at);
    }
    let field = |index: usize| number(bytes.get(index * word..(index + 1) * word).unwrap_or_default());
    let (handler, flags, restorer) = (field(0), field(1), field(2));
    let mask = number(bytes.get(3 * word..).unwrap_or_default());
    r.out.open();
    r.out.field("sa_handler");
    match handler {
        0 => r.out.name("SIG_DFL"),
        1 => r.out.name("SIG_IGN"),
        _ => r.out.address(handler),
    }
    r.out.field("sa_mask");
    set(r, mask, 8);
    r.out.field("sa_flags");
    r.bits(&c::SIGACTION, flags);
    if flags & RESTORER != 0 && r.abi != Abi::Aarch64 {
        r.address_field("sa_restorer", restorer);
    }
    r.out.close(false);
}

/// stack_t.
pub(in crate::decode) static STACK: Layout = Layout {
    fields: &[
        f("ss_sp", ADDRESS),
        f("ss_flags", Kind::Bits(&c::SIGALTSTACK, Width::Four)),
        f("ss_size", SIZE),
    ],
};

/// siginfo_t, as much of it as its kind has.
pub(in crate::decode) fn information(r: &mut Reader, at: u64) {
    const SIGCHLD: i32 = 17;
    let mut bytes = [0; 128];
    if !r.read(at, &mut bytes) {
        return r.out.address(at);
    }
    let int = |at: usize| number(bytes.get(at..at + 4).unwrap_or_default());
    let (signal_number, code) = (low_signed(int(0)), low_signed(int(8)));
    // The union is aligned as a pointer is.
    let word = r.abi.word();
    let union = if word == 8 { 16 } else { 12 };
    r.out.open();
    if signal_number == 0 {
        return r.out.close(false);
    }
    r.out.field("si_signo");
    signal(r, int(0));
    r.out.field("si_code");
    let family = if signal_number == SIGCHLD && code > 0 {
        &c::SIGCHLD_CODE
    } else {
        &c::SIGCODE
    };
    r.named(family, int(8), Width::Four);
    if int(4) != 0 {
        r.unsigned_field("si_errno", int(4));
    }
    if matches!(code, 0 | -6) || (signal_number == SIGCHLD && code > 0) || code == -1 {
        r.number_field("si_pid", i64::from(low_signed(int(union))));
        r.unsigned_field("si_uid", int(union + 4));
    }
    if signal_number == SIGCHLD && code > 0 {
        let status = int(union + 8);
        r.out.field("si_status");
        // CLD_EXITED has a code there, the others a signal.
        if code == 1 {
            r.out.number(i64::from(low_signed(status)))
        } else {
            signal(r, status)
        }
        // After the status, where a `clock_t` may stand.
        let times = (union + 12).next_multiple_of(word);
        for (index, name) in ["si_utime", "si_stime"].into_iter().enumerate() {
            r.out.field(name);
            let from = times + index * word;
            r.out
                .unsigned(number(bytes.get(from..from + word).unwrap_or_default()));
        }
    }
    r.out.close(false);
}

/// struct sigevent.
pub(in crate::decode) fn event(r: &mut Reader, at: u64) {
    let word = r.abi.word();
    let mut bytes = [0; 32];
    let bytes = &mut bytes[..word + 16];
    if !r.read(at, bytes) {
        return r.out.address(at);
    }
    let value = number(bytes.get(..word).unwrap_or_default());
    let int = |at: usize| number(bytes.get(at..at + 4).unwrap_or_default());
    let notify = int(word + 4);
    r.out.open();
    r.out.field("sigev_value");
    r.out.open();
    r.number_field("sival_int", i64::from(low_signed(value)));
    r.address_field("sival_ptr", value);
    r.out.close(false);
    r.out.field("sigev_signo");
    signal(r, int(word));
    r.out.field("sigev_notify");
    r.named(&c::SIGEV, notify, Width::Four);
    if notify == 4 {
        r.number_field("sigev_notify_thread_id", i64::from(low_signed(int(word + 8))));
    }
    r.out.close(false);
}

/// What rt_sigqueueinfo sends.
pub(in crate::decode) const INFORMATION: Kind = Kind::By(information, Width::Word);

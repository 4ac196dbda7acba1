//! Calls on processes: made, run, waited for, limited, and who they are.

use super::{Argument, ResultKind, Row};
use crate::decode::CallResult;
use crate::decode::constants as c;
use crate::decode::kind::{ADDRESS, AT, Count, FD, HEX, INT, Kind, PATH, SIZE, UINT, Width, bits, named};
use crate::decode::reader::{Reader, Registers};
use crate::decode::show::processes::{self as p, ID, ONE_ID};
use crate::decode::show::{files, signals, time};
use fleetgate_calls::abi::{Abi, low};

const ARGV: Kind = Kind::By(p::argument_list, Width::Word);
const ENVP: Kind = Kind::By(p::environment, Width::Word);
const STATUS: Kind = Kind::Late(&Kind::By(p::wait_status, Width::Word));
const USED: Kind = Kind::Late(&Kind::By(p::wait_usage, Width::Word));
const USAGE: Kind = Kind::Late(&Kind::To(&p::USAGE));
const LIMIT: Kind = Kind::To(&p::LIMIT);
const LATE_LIMIT: Kind = Kind::Late(&Kind::To(&p::LIMIT));
const LATE_ID: Kind = Kind::Late(&ONE_ID);
const SIGNAL: Kind = Kind::By(signals::signal, Width::Four);
const REST: Kind = Kind::Chosen(p::prctl_rest);

pub(super) static ROWS: &[Row] = fleetgate_calls::processes_calls!(rows);

/// clone as strace shows it, which is not the order of the registers.
pub(super) static CLONE: &[Row] = rows! {
    clone(child_stack: Kind::Chosen(clone_stack), flags: Kind::Chosen(clone_flags), parent_tid: Kind::Chosen(clone_2),
        tls: Kind::Chosen(clone_3), child_tidptr: Kind::Chosen(clone_4)) -> Number;
};

const CAPABILITIES: Kind = Kind::By(p::capabilities, Width::Word);
const PARAMETER: Kind = Kind::One(&INT);
const POLICY: Kind = named(&c::SCHED);
const HEX32: Kind = Kind::Hex(Width::Four);

/// On x86 and ARM the flags come first, then the stack; they are shown the other way round.
fn clone_stack(_: &Registers) -> Option<Kind> {
    Some(Kind::Labelled(&Kind::By(stack, Width::Word)))
}

fn stack(r: &mut Reader, _: u64) {
    let stack = r.argument(1);
    r.out.address(stack);
}

fn clone_flags(_: &Registers) -> Option<Kind> {
    Some(Kind::Labelled(&Kind::By(flags, Width::Word)))
}

fn flags(r: &mut Reader, _: u64) {
    let value = r.argument(0);
    p::clone_flags(r, value);
}

fn clone_2(registers: &Registers) -> Option<Kind> {
    p::clone_parent(registers)
}

/// The thread's own storage stands before the child's number everywhere but on x86_64.
fn clone_3(registers: &Registers) -> Option<Kind> {
    p::clone_tls(registers).map(|_| Kind::Labelled(&Kind::By(tls, Width::Word)))
}

fn clone_4(registers: &Registers) -> Option<Kind> {
    p::clone_child(registers).map(|_| Kind::Labelled(&Kind::By(child, Width::Word)))
}

fn child_first(abi: Abi) -> bool {
    matches!(abi, Abi::X86_64 | Abi::X32)
}

fn tls(r: &mut Reader, _: u64) {
    let value = r.argument(if child_first(r.abi) { 4 } else { 3 });
    r.out.address(value);
}

fn child(r: &mut Reader, _: u64) {
    let value = r.argument(if child_first(r.abi) { 3 } else { 4 });
    r.out.address(value);
}

/// A host's name has 64 bytes at most.
fn host_name(r: &mut Reader, at: u64) {
    match r.argument(1) & 0xffff_ffff {
        length @ 0..=64 => r.bytes(at, length),
        _ => r.out.address(at),
    }
}

/// Groups that were asked for, and not only their number.
fn groups(r: &mut Reader, at: u64) {
    if low(r.argument(0)) == 0 {
        return r.out.address(at);
    }
    let count = r.success().unwrap_or(0).max(0).cast_unsigned();
    r.list(&ID, at, count);
}

fn prctl_result(r: &mut Reader, result: i64) {
    match low(r.argument(0)) {
        // PR_GET_DUMPABLE
        3 => {
            r.named_result(
                CallResult::Number(result),
                "dumpable",
                p::DUMPABLE.find(result.cast_unsigned(), u64::MAX),
            );
        }
        // PR_GET_SECUREBITS
        27 if result != 0 => {
            r.out.returned(CallResult::Hex(result.cast_unsigned()));
            r.out.open_note();
            r.out.note("bits", false);
            r.bits(&c::SECUREBITS, result.cast_unsigned());
            r.out.close_note();
        }
        _ => r.out.returned(CallResult::Number(result)),
    }
}

fn policy_result(r: &mut Reader, result: i64) {
    r.named_result(
        CallResult::Number(result),
        "policy",
        c::SCHED.find(result.cast_unsigned(), u64::MAX),
    );
}

/// A class, and how important within it.
fn io_priority(r: &mut Reader, value: u64) {
    let value = value & 0xffff_ffff;
    r.out.open_parts("IOPRIO_PRIO_VALUE");
    r.out.item();
    r.named(&c::IOPRIO_CLASS, value >> 13, Width::Four);
    r.out.item();
    r.out.unsigned(value & 0x1fff);
    r.out.close_parts();
}

fn io_priority_result(r: &mut Reader, result: i64) {
    r.out.returned(CallResult::Number(result));
    r.out.open_note();
    r.out.note("priority", false);
    io_priority(r, result.cast_unsigned());
    r.out.close_note();
}

fn personality(r: &mut Reader, value: u64) {
    let value = value & 0xffff_ffff;
    if value == 0xffff_ffff {
        return r.out.hex(value);
    }
    r.out.open_bits();
    match c::PERSONALITY.find(value & 0xff, u64::MAX) {
        Some(name) => r.out.bit(name),
        None => r.out.bit_other(value & 0xff, c::PERSONALITY.others),
    }
    r.more_bits(&c::PERSONALITY_FLAGS, value & !0xff);
    r.out.close_bits();
}

fn personality_result(r: &mut Reader, result: i64) {
    r.out.returned(CallResult::Hex(result.cast_unsigned()));
    r.out.open_note();
    r.out.note("persona", false);
    personality(r, result.cast_unsigned());
    r.out.close_note();
}

/// Vectors of another process: addresses alone.
fn remote(r: &mut Reader, at: u64) {
    let count = r.argument(4);
    r.list(&Kind::Inner(&REMOTE), at, count);
}

static REMOTE: crate::decode::kind::Layout = crate::decode::kind::Layout {
    fields: &[
        crate::decode::kind::f("iov_base", ADDRESS),
        crate::decode::kind::f("iov_len", SIZE),
    ],
};

/// Descriptors are compared by number, everything else is one thing of a process.
fn compared(registers: &Registers) -> Option<Kind> {
    match low(registers.argument(2)) {
        0 => Some(UINT),
        1..=6 => None,
        _ => Some(HEX),
    }
}

fn traced(registers: &Registers) -> Option<Kind> {
    (registers.argument(0) != 0).then_some(INT)
}

/// PTRACE_ATTACH, PTRACE_KILL, PTRACE_INTERRUPT and PTRACE_LISTEN need nothing but a process.
fn traced_address(registers: &Registers) -> Option<Kind> {
    (!matches!(low(registers.argument(0)), 0 | 8 | 16 | 0x4207 | 0x4208)).then_some(ADDRESS)
}

fn traced_data(registers: &Registers) -> Option<Kind> {
    Some(match low(registers.argument(0)) {
        0 | 8 | 16 | 0x4207 | 0x4208 => return None,
        // PTRACE_CONT, SINGLESTEP, DETACH, SYSCALL
        7 | 9 | 17 | 24 => SIGNAL,
        // PTRACE_SETOPTIONS, SEIZE
        0x4200 | 0x4206 => Kind::Bits(&c::PTRACE_OPTIONS, Width::Word),
        _ => ADDRESS,
    })
}

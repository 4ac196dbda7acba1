//! Calls on processes: made, run, waited for, limited, and who they are.

use super::{Res, Row, call};
use crate::decode::Returned;
use crate::decode::constants as c;
use crate::decode::kind::{ADDRESS, AT, Count, FD, HEX, INT, Kind, PATH, SIZE, UINT, Width, bits, named};
use crate::decode::reader::{Reader, Registers};
use crate::decode::show::processes::{self as p, ID, ONE_ID};
use crate::decode::show::{signals, time};
use fleetgate_calls::abi::Abi;

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

#[rustfmt::skip]
pub(super) static ROWS: &[Row] = &[
    call("fork", &[], Res::Number),
    call("vfork", &[], Res::Number),
    call("clone", &[("child_stack", Kind::Chosen(clone_stack)), ("flags", Kind::Chosen(clone_flags)),
        ("parent_tid", Kind::Chosen(clone_2)), ("tls", Kind::Chosen(clone_3)), ("child_tidptr", Kind::Chosen(clone_4))],
        Res::Number),
    call("clone3", &[("cl_args", Kind::Changed(p::clone_arguments, p::cloned)), ("size", SIZE)], Res::Number),
    call("execve", &[("pathname", PATH), ("argv", ARGV), ("envp", ENVP)], Res::Number),
    call("execveat", &[("dirfd", AT), ("pathname", PATH), ("argv", ARGV), ("envp", ENVP), ("flags", bits(&c::AT_FLAGS))],
        Res::Number),
    call("exit", &[("status", INT)], Res::Number),
    call("exit_group", &[("status", INT)], Res::Number),
    call("wait4", &[("pid", INT), ("wstatus", STATUS), ("options", bits(&c::WAIT)), ("rusage", USED)], Res::Number),
    call("waitpid", &[("pid", INT), ("wstatus", STATUS), ("options", bits(&c::WAIT))], Res::Number),
    call("waitid", &[("idtype", named(&c::WAITID)), ("id", INT), ("infop", Kind::Late(&signals::INFORMATION)),
        ("options", bits(&c::WAIT)), ("rusage", USAGE)], Res::Number),
    call("getpid", &[], Res::Number),
    call("getppid", &[], Res::Number),
    call("gettid", &[], Res::Number),
    call("getpgrp", &[], Res::Number),
    call("getpgid", &[("pid", INT)], Res::Number),
    call("setpgid", &[("pid", INT), ("pgid", INT)], Res::Number),
    call("getsid", &[("pid", INT)], Res::Number),
    call("setsid", &[], Res::Number),
    call("getuid", &[], Res::Number),
    call("geteuid", &[], Res::Number),
    call("getgid", &[], Res::Number),
    call("getegid", &[], Res::Number),
    call("getuid32", &[], Res::Number),
    call("geteuid32", &[], Res::Number),
    call("getgid32", &[], Res::Number),
    call("getegid32", &[], Res::Number),
    call("setuid", &[("uid", ID)], Res::Number),
    call("setgid", &[("gid", ID)], Res::Number),
    call("setreuid", &[("ruid", ID), ("euid", ID)], Res::Number),
    call("setregid", &[("rgid", ID), ("egid", ID)], Res::Number),
    call("setresuid", &[("ruid", ID), ("euid", ID), ("suid", ID)], Res::Number),
    call("setresgid", &[("rgid", ID), ("egid", ID), ("sgid", ID)], Res::Number),
    call("getresuid", &[("ruid", LATE_ID), ("euid", LATE_ID), ("suid", LATE_ID)], Res::Number),
    call("getresgid", &[("rgid", LATE_ID), ("egid", LATE_ID), ("sgid", LATE_ID)], Res::Number),
    call("setuid32", &[("uid", ID)], Res::Number),
    call("setgid32", &[("gid", ID)], Res::Number),
    call("setreuid32", &[("ruid", ID), ("euid", ID)], Res::Number),
    call("setregid32", &[("rgid", ID), ("egid", ID)], Res::Number),
    call("setresuid32", &[("ruid", ID), ("euid", ID), ("suid", ID)], Res::Number),
    call("setresgid32", &[("rgid", ID), ("egid", ID), ("sgid", ID)], Res::Number),
    call("getresuid32", &[("ruid", LATE_ID), ("euid", LATE_ID), ("suid", LATE_ID)], Res::Number),
    call("getresgid32", &[("rgid", LATE_ID), ("egid", LATE_ID), ("sgid", LATE_ID)], Res::Number),
    call("setfsuid", &[("fsuid", ID)], Res::Number),
    call("setfsgid", &[("fsgid", ID)], Res::Number),
    call("setfsuid32", &[("fsuid", ID)], Res::Number),
    call("setfsgid32", &[("fsgid", ID)], Res::Number),
    call("getgroups", &[("size", INT), ("list", Kind::Late(&Kind::By(groups, Width::Word)))], Res::Number),
    call("setgroups", &[("size", INT), ("list", Kind::List(&ID, Count::Argument(0)))], Res::Number),
    call("getgroups32", &[("size", INT), ("list", Kind::Late(&Kind::By(groups, Width::Word)))], Res::Number),
    call("setgroups32", &[("size", INT), ("list", Kind::List(&ID, Count::Argument(0)))], Res::Number),
    call("capget", &[("hdrp", Kind::To(&p::CAPABILITY_HEADER)), ("datap", Kind::Late(&CAPABILITIES))], Res::Number),
    call("capset", &[("hdrp", Kind::To(&p::CAPABILITY_HEADER)), ("datap", CAPABILITIES)], Res::Number),
    call("prctl", &[("option", named(&c::PRCTL)), ("arg2", Kind::Chosen(p::prctl_1)), ("arg3", Kind::Chosen(p::prctl_2)),
        ("arg4", REST), ("arg5", REST)], Res::By(prctl_result)),
    call("arch_prctl", &[("code", named(&c::ARCH_PRCTL)), ("addr", Kind::Chosen(p::arch_argument))], Res::Number),
    call("getrlimit", &[("resource", named(&c::RLIMIT)), ("rlim", LATE_LIMIT)], Res::Number),
    call("ugetrlimit", &[("resource", named(&c::RLIMIT)), ("rlim", LATE_LIMIT)], Res::Number),
    call("setrlimit", &[("resource", named(&c::RLIMIT)), ("rlim", LIMIT)], Res::Number),
    call("prlimit64", &[("pid", INT), ("resource", named(&c::RLIMIT)), ("new_limit", Kind::To(&p::LIMIT64)),
        ("old_limit", Kind::Late(&Kind::To(&p::LIMIT64)))], Res::Number),
    call("getrusage", &[("who", named(&c::RUSAGE)), ("usage", USAGE)], Res::Number),
    call("getpriority", &[("which", named(&c::PRIORITY)), ("who", INT)], Res::Number),
    call("setpriority", &[("which", named(&c::PRIORITY)), ("who", INT), ("prio", INT)], Res::Number),
    call("nice", &[("inc", INT)], Res::Number),
    call("set_tid_address", &[("tidptr", ADDRESS)], Res::Number),
    call("set_robust_list", &[("head", ADDRESS), ("len", SIZE)], Res::Number),
    call("get_robust_list", &[("pid", INT), ("head_ptr", Kind::Late(&Kind::One(&ADDRESS))),
        ("len_ptr", Kind::Late(&Kind::One(&SIZE)))], Res::Number),
    call("rseq", &[("rseq", ADDRESS), ("rseq_len", HEX32), ("flags", bits(&c::RSEQ)), ("sig", HEX32)], Res::Number),
    call("uname", &[("buf", Kind::Late(&Kind::To(&p::NAMES)))], Res::Number),
    call("sysinfo", &[("info", Kind::Late(&Kind::To(&p::SYSTEM)))], Res::Number),
    call("sethostname", &[("name", Kind::By(host_name, Width::Word)), ("len", UINT)], Res::Number),
    call("setdomainname", &[("name", Kind::By(host_name, Width::Word)), ("len", UINT)], Res::Number),
    call("sched_yield", &[], Res::Number),
    call("sched_setparam", &[("pid", INT), ("param", PARAMETER)], Res::Number),
    call("sched_getparam", &[("pid", INT), ("param", Kind::Late(&PARAMETER))], Res::Number),
    call("sched_setscheduler", &[("pid", INT), ("policy", POLICY), ("param", PARAMETER)], Res::Number),
    call("sched_getscheduler", &[("pid", INT)], Res::By(policy_result)),
    call("sched_get_priority_max", &[("policy", POLICY)], Res::Number),
    call("sched_get_priority_min", &[("policy", POLICY)], Res::Number),
    call("sched_rr_get_interval", &[("pid", INT), ("tp", Kind::Late(&Kind::To(&time::TIMESPEC)))], Res::Number),
    call("sched_setaffinity", &[("pid", INT), ("cpusetsize", UINT), ("mask", Kind::By(p::processors, Width::Word))], Res::Number),
    call("sched_getaffinity", &[("pid", INT), ("cpusetsize", UINT),
        ("mask", Kind::Late(&Kind::By(p::processors, Width::Word)))], Res::Number),
    call("sched_setattr", &[("pid", INT), ("attr", Kind::To(&p::SCHEDULING)), ("flags", HEX32)], Res::Number),
    call("sched_getattr", &[("pid", INT), ("attr", Kind::Late(&Kind::To(&p::SCHEDULING))), ("size", UINT), ("flags", HEX32)],
        Res::Number),
    call("getcpu", &[("cpu", Kind::Late(&Kind::One(&UINT))), ("node", Kind::Late(&Kind::One(&UINT))), ("tcache", ADDRESS)],
        Res::Number),
    call("personality", &[("persona", Kind::By(personality, Width::Four))], Res::By(personality_result)),
    call("unshare", &[("flags", bits(&c::UNSHARE))], Res::Number),
    call("setns", &[("fd", FD), ("nstype", bits(&c::SETNS))], Res::Number),
    call("pidfd_open", &[("pid", INT), ("flags", bits(&c::PIDFD))], Res::Descriptor),
    call("pidfd_getfd", &[("pidfd", FD), ("targetfd", INT), ("flags", HEX32)], Res::Descriptor),
    call("process_vm_readv", &[("pid", INT), ("local_iov", Kind::Kept(crate::decode::show::files::keep_nothing, crate::decode::show::files::filled_vectors)), ("liovcnt", SIZE),
        ("remote_iov", Kind::By(remote, Width::Word)), ("riovcnt", SIZE), ("flags", HEX)], Res::Number),
    call("process_vm_writev", &[("pid", INT), ("local_iov", Kind::By(sent, Width::Word)), ("liovcnt", SIZE),
        ("remote_iov", Kind::By(remote, Width::Word)), ("riovcnt", SIZE), ("flags", HEX)], Res::Number),
    call("ptrace", &[("request", named(&c::PTRACE)), ("pid", Kind::Chosen(traced)), ("addr", Kind::Chosen(traced_address)),
        ("data", Kind::Chosen(traced_data))], Res::Number),
    call("kcmp", &[("pid1", INT), ("pid2", INT), ("type", named(&c::KCMP)), ("idx1", Kind::Chosen(compared)), ("idx2", Kind::Chosen(compared))], Res::Number),
    call("ioprio_get", &[("which", named(&c::IOPRIO_WHO)), ("who", INT)], Res::By(io_priority_result)),
    call("ioprio_set", &[("which", named(&c::IOPRIO_WHO)), ("who", INT), ("ioprio", Kind::By(io_priority, Width::Four))], Res::Number),
    call("vhangup", &[], Res::Number),
    call("pidfd_send_signal", &[("pidfd", FD), ("sig", SIGNAL), ("info", signals::INFORMATION), ("flags", HEX32)], Res::Number),
];

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
    if r.argument(0) as u32 == 0 {
        return r.out.address(at);
    }
    let count = r.success().unwrap_or(0).max(0).cast_unsigned();
    r.list(&ID, at, count);
}

fn prctl_result(r: &mut Reader, result: i64) {
    match r.argument(0) as u32 {
        // PR_GET_DUMPABLE
        3 => {
            r.out.returned(Returned::Number(result));
            if let Some(name) = p::DUMPABLE.find(result.cast_unsigned(), u64::MAX) {
                r.out.open_note();
                r.out.note("dumpable", false);
                r.out.name(name);
                r.out.close_note();
            }
        }
        // PR_GET_SECUREBITS
        27 if result != 0 => {
            r.out.returned(Returned::Hex(result.cast_unsigned()));
            r.out.open_note();
            r.out.note("bits", false);
            r.bits(&c::SECUREBITS, result.cast_unsigned());
            r.out.close_note();
        }
        _ => r.out.returned(Returned::Number(result)),
    }
}

fn policy_result(r: &mut Reader, result: i64) {
    r.out.returned(Returned::Number(result));
    if let Some(name) = c::SCHED.find(result.cast_unsigned(), u64::MAX) {
        r.out.open_note();
        r.out.note("policy", false);
        r.out.name(name);
        r.out.close_note();
    }
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
    r.out.returned(Returned::Number(result));
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
    let out = &mut *r.out;
    let left = c::PERSONALITY_FLAGS.split(value & !0xff, |name| out.bit(name));
    if left != 0 {
        r.out.bit_hex(left);
    }
    r.out.close_bits();
}

fn personality_result(r: &mut Reader, result: i64) {
    r.out.returned(Returned::Hex(result.cast_unsigned()));
    r.out.open_note();
    r.out.note("persona", false);
    personality(r, result.cast_unsigned());
    r.out.close_note();
}

fn sent(r: &mut Reader, at: u64) {
    let count = r.argument(2);
    crate::decode::show::files::vectors(r, at, count);
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
    match registers.argument(2) as u32 {
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
    (!matches!(registers.argument(0) as u32, 0 | 8 | 16 | 0x4207 | 0x4208)).then_some(ADDRESS)
}

fn traced_data(registers: &Registers) -> Option<Kind> {
    Some(match registers.argument(0) as u32 {
        0 | 8 | 16 | 0x4207 | 0x4208 => return None,
        // PTRACE_CONT, SINGLESTEP, DETACH, SYSCALL
        7 | 9 | 17 | 24 => SIGNAL,
        // PTRACE_SETOPTIONS, SEIZE
        0x4200 | 0x4206 => Kind::Bits(&c::PTRACE_OPTIONS, Width::Word),
        _ => ADDRESS,
    })
}

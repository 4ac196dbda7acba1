//! Calls on signals.

use super::{Res, Row, call};
use crate::decode::constants as c;
use crate::decode::kind::{FD, INT, Kind, SIZE, Width, bits, named};
use crate::decode::show::{signals as s, time};

const SIGNAL: Kind = Kind::By(s::signal, Width::Four);
const ACTION: Kind = Kind::By(s::action, Width::Word);

#[rustfmt::skip]
pub(super) static ROWS: &[Row] = &[
    call("kill", &[("pid", INT), ("sig", SIGNAL)], Res::Number),
    call("tkill", &[("tid", INT), ("sig", SIGNAL)], Res::Number),
    call("tgkill", &[("tgid", INT), ("tid", INT), ("sig", SIGNAL)], Res::Number),
    call("rt_sigaction", &[("signum", SIGNAL), ("act", ACTION), ("oldact", Kind::Late(&ACTION)), ("sigsetsize", SIZE)],
        Res::Number),
    call("rt_sigprocmask", &[("how", named(&c::SIGPROC)), ("set", Kind::By(s::set_of_2, Width::Word)),
        ("oldset", Kind::Late(&Kind::By(s::set_of_2, Width::Word))), ("sigsetsize", SIZE)], Res::Number),
    call("rt_sigpending", &[("set", Kind::Late(&Kind::By(s::set_of_0, Width::Word))), ("sigsetsize", SIZE)], Res::Number),
    call("rt_sigsuspend", &[("mask", Kind::By(s::set_of_0, Width::Word)), ("sigsetsize", SIZE)], Res::Number),
    call("rt_sigtimedwait", &[("set", Kind::By(s::set_waited, Width::Word)), ("info", Kind::Late(&s::INFORMATION)),
        ("timeout", Kind::To(&time::TIMESPEC)), ("sigsetsize", SIZE)], Res::By(waited)),
    call("rt_sigqueueinfo", &[("tgid", INT), ("sig", SIGNAL), ("info", s::INFORMATION)], Res::Number),
    call("rt_tgsigqueueinfo", &[("tgid", INT), ("tid", INT), ("sig", SIGNAL), ("info", s::INFORMATION)], Res::Number),
    call("rt_sigreturn", &[], Res::Number),
    call("sigaltstack", &[("ss", Kind::To(&s::STACK)), ("old_ss", Kind::Late(&Kind::To(&s::STACK)))], Res::Number),
    call("signalfd", &[("fd", FD), ("mask", Kind::By(s::set_of_1, Width::Word)), ("sizemask", SIZE)], Res::Descriptor),
    call("signalfd4", &[("fd", FD), ("mask", Kind::By(s::set_of_1, Width::Word)), ("sizemask", SIZE), ("flags", bits(&c::SIGNALFD))],
        Res::Descriptor),
    call("pause", &[], Res::Number),
    call("restart_syscall", &[], Res::Number),
];

fn waited(r: &mut crate::decode::reader::Reader, result: i64) {
    r.out.returned(crate::decode::Returned::Number(result));
    if let Some(name) = fleetgate_calls::tables::signal::name(result as i32) {
        r.out.open_note();
        r.out.note("signal", false);
        r.out.name(name);
        r.out.close_note();
    }
}

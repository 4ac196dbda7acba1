//! Calls on signals.

/// The rows, given to the macro `$then`.
#[macro_export]
macro_rules! signals_calls {
    ($then:ident) => { $then! {
        kill(pid: INT, sig: SIGNAL) -> Number, in tested process signal;
        tkill(tid: INT, sig: SIGNAL) -> Number, in tested process signal;
        tgkill(tgid: INT, tid: INT, sig: SIGNAL) -> Number, in tested process signal;
        rt_sigaction(signum: SIGNAL, act: ACTION, oldact: Kind::Late(&ACTION), sigsetsize: SIZE) -> Number, in tested signal;
        rt_sigprocmask(how: named(&c::SIGPROC), set: Kind::By(s::set_sized_by::<3>, Width::Word),
            oldset: Kind::Late(&Kind::By(s::set_sized_by::<3>, Width::Word)), sigsetsize: SIZE) -> Number, in tested signal;
        rt_sigpending(set: Kind::Late(&Kind::By(s::set_sized_by::<1>, Width::Word)), sigsetsize: SIZE) -> Number, in signal;
        rt_sigsuspend(mask: Kind::By(s::set_sized_by::<1>, Width::Word), sigsetsize: SIZE) -> Number, in signal;
        rt_sigtimedwait(set: Kind::By(s::set_sized_by::<3>, Width::Word), info: Kind::Late(&s::INFORMATION),
            timeout: Kind::To(&time::TIMESPEC), sigsetsize: SIZE) -> By(waited), in signal;
        rt_sigqueueinfo(tgid: INT, sig: SIGNAL, info: s::INFORMATION) -> Number, in tested process signal;
        rt_tgsigqueueinfo(tgid: INT, tid: INT, sig: SIGNAL, info: s::INFORMATION) -> Number, in tested process signal;
        rt_sigreturn() -> Number, in signal;
        sigaltstack(ss: Kind::To(&s::STACK), old_ss: Kind::Late(&Kind::To(&s::STACK))) -> Number, in signal;
        signalfd(fd: FD, mask: Kind::By(s::set_sized_by::<2>, Width::Word), sizemask: SIZE) -> Descriptor, in signal desc;
        signalfd4(fd: FD, mask: Kind::By(s::set_sized_by::<2>, Width::Word), sizemask: SIZE, flags: bits(&c::SIGNALFD)) -> Descriptor,
            in signal desc;
        pause() -> Number, in signal;
        restart_syscall() -> Number;
    } };
}

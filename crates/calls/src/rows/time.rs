//! Calls on time, and on words that threads wait for.

/// The rows, given to the macro `$then`.
#[macro_export]
macro_rules! time_calls {
    ($then:ident) => { $then! {
        nanosleep(req: SPEC, rem: LEFT) -> Number;
        clock_nanosleep(clockid: t::CLOCK, flags: ABSOLUTE, request: SPEC, remain: LEFT) -> Number, in tested;
        clock_gettime(clockid: t::CLOCK, tp: LATE_SPEC) -> Number, in tested clock;
        clock_settime(clockid: t::CLOCK, tp: SPEC) -> Number, in tested clock;
        clock_getres(clockid: t::CLOCK, res: LATE_SPEC) -> Number, in clock;
        clock_nanosleep_time64(clockid: t::CLOCK, flags: ABSOLUTE, request: SPEC64, remain: ADDRESS) -> Number;
        clock_gettime64(clockid: t::CLOCK, tp: LATE_SPEC64) -> Number, in clock;
        clock_settime64(clockid: t::CLOCK, tp: SPEC64) -> Number, in clock;
        clock_getres_time64(clockid: t::CLOCK, res: LATE_SPEC64) -> Number, in clock;
        gettimeofday(tv: Kind::Late(&VAL), tz: Kind::Late(&Kind::To(&t::TIMEZONE))) -> Number, in clock;
        settimeofday(tv: VAL, tz: Kind::To(&t::TIMEZONE)) -> Number, in clock;
        time(tloc: Kind::Late(&Kind::One(&LONG))) -> Number, in clock;
        times(buf: Kind::Late(&Kind::To(&t::TMS))) -> Number;
        alarm(seconds: UINT) -> Number;
        getitimer(which: named(&c::ITIMER), curr_value: Kind::Late(&Kind::To(&t::ITIMERVAL))) -> Number;
        setitimer(which: named(&c::ITIMER), new_value: Kind::To(&t::ITIMERVAL),
            old_value: Kind::Late(&Kind::To(&t::ITIMERVAL))) -> Number;
        timer_create(clockid: t::CLOCK, sevp: Kind::By(signals::event, Width::Word),
            timerid: Kind::Late(&Kind::One(&INT))) -> Number;
        timer_settime(timerid: INT, flags: ABSOLUTE, new_value: TIMER, old_value: Kind::Late(&TIMER)) -> Number;
        timer_gettime(timerid: INT, curr_value: Kind::Late(&TIMER)) -> Number;
        timer_settime64(timerid: INT, flags: ABSOLUTE, new_value: TIMER64, old_value: Kind::Late(&TIMER64)) -> Number;
        timer_gettime64(timerid: INT, curr_value: Kind::Late(&TIMER64)) -> Number;
        timer_getoverrun(timerid: INT) -> Number;
        timer_delete(timerid: INT) -> Number;
        timerfd_create(clockid: t::CLOCK, flags: bits(&c::TIMERFD)) -> Descriptor, in tested desc;
        timerfd_settime(fd: FD, flags: bits(&c::TIMERFD_SET), new_value: TIMER, old_value: Kind::Late(&TIMER)) -> Number,
            in desc;
        timerfd_gettime(fd: FD, curr_value: Kind::Late(&TIMER)) -> Number, in desc;
        timerfd_settime64(fd: FD, flags: bits(&c::TIMERFD_SET), new_value: TIMER64, old_value: Kind::Late(&TIMER64)) -> Number,
            in desc;
        timerfd_gettime64(fd: FD, curr_value: Kind::Late(&TIMER64)) -> Number, in desc;
        adjtimex(buf: Kind::Late(&ADJUSTMENT)) -> By(clock_state), in clock;
        clock_adjtime(clockid: t::CLOCK, buf: Kind::Late(&ADJUSTMENT)) -> By(clock_state), in clock;
        futex(uaddr: ADDRESS, op: Kind::By(futex, Width::Four), val as int: Kind::Chosen(futex_value),
            timeout: Kind::Chosen(futex_timeout), uaddr2: Kind::Chosen(futex_second),
            val3 as int: Kind::Chosen(futex_third)) -> Number, in tested;
        futex_time64(uaddr: ADDRESS, op: Kind::By(futex, Width::Four), val: Kind::Chosen(futex_value), timeout: ADDRESS,
            uaddr2: Kind::Chosen(futex_second), val3: Kind::Chosen(futex_third)) -> Number;
        futex_waitv(waiters: ADDRESS, nr_futexes: UINT, flags: HEX32, timeout: SPEC64, clockid: t::CLOCK) -> Number;
    } };
}

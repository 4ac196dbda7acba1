//! Calls that are shown by their name and with their arguments as hexadecimal numbers: nobody has described them.

/// The rows, given to the macro `$then`.
#[macro_export]
macro_rules! undecoded_calls {
    ($then:ident) => { $then! {
        _sysctl(arg1: HEX) -> Number;
        afs_syscall(arg1: HEX, arg2: HEX, arg3: HEX, arg4: HEX, arg5: HEX) -> Number;
        bdflush(arg1: HEX, arg2: HEX) -> Number;
        break(arg1: HEX) -> Number, in memory;
        cachestat(arg1: HEX, arg2: HEX, arg3: HEX, arg4: HEX) -> Number, in desc;
        clock_adjtime64(arg1: HEX, arg2: HEX) -> Number, in clock;
        create_module(arg1: HEX, arg2: HEX) -> Number;
        epoll_ctl_old(arg1: HEX, arg2: HEX, arg3: HEX, arg4: HEX) -> Number;
        epoll_wait_old(arg1: HEX, arg2: HEX, arg3: HEX, arg4: HEX) -> Number;
        ftime(arg1: HEX) -> Number;
        futex_requeue(arg1: HEX, arg2: HEX, arg3: HEX, arg4: HEX) -> Number;
        futex_wait(arg1: HEX, arg2: HEX, arg3: HEX, arg4: HEX, arg5: HEX, arg6: HEX) -> Number;
        futex_wake(arg1: HEX, arg2: HEX, arg3: HEX, arg4: HEX) -> Number;
        get_kernel_syms(arg1: HEX) -> Number;
        get_thread_area(arg1: HEX) -> Number;
        getdents(arg1: HEX, arg2: HEX, arg3: HEX) -> Number, in desc;
        getpmsg(arg1: HEX, arg2: HEX, arg3: HEX, arg4: HEX, arg5: HEX) -> Number, in network;
        gtty(arg1: HEX, arg2: HEX) -> Number;
        idle() -> Number;
        io_cancel(arg1: HEX, arg2: HEX, arg3: HEX) -> Number;
        io_getevents(arg1: HEX, arg2: HEX, arg3: HEX, arg4: HEX, arg5: HEX) -> Number;
        io_pgetevents(arg1: HEX, arg2: HEX, arg3: HEX, arg4: HEX, arg5: HEX, arg6: HEX) -> Number;
        io_pgetevents_time64(arg1: HEX, arg2: HEX, arg3: HEX, arg4: HEX, arg5: HEX, arg6: HEX) -> Number;
        io_submit(arg1: HEX, arg2: HEX, arg3: HEX) -> Number;
        listmount(arg1: HEX, arg2: HEX, arg3: HEX, arg4: HEX) -> Number;
        listns(arg1: HEX, arg2: HEX, arg3: HEX, arg4: HEX) -> Number;
        lock(arg1: HEX) -> Number;
        lsm_get_self_attr(arg1: HEX, arg2: HEX, arg3: HEX, arg4: HEX) -> Number;
        lsm_list_modules(arg1: HEX, arg2: HEX, arg3: HEX) -> Number;
        lsm_set_self_attr(arg1: HEX, arg2: HEX, arg3: HEX, arg4: HEX) -> Number;
        map_shadow_stack(arg1: HEX, arg2: HEX, arg3: HEX) -> Number, in memory;
        migrate_pages(arg1: HEX, arg2: HEX, arg3: HEX, arg4: HEX) -> Number, in memory;
        modify_ldt(arg1: HEX, arg2: HEX, arg3: HEX) -> Number;
        move_pages(arg1: HEX, arg2: HEX, arg3: HEX, arg4: HEX, arg5: HEX, arg6: HEX) -> Number, in memory;
        mpx() -> Number;
        mq_timedreceive_time64(arg1: HEX, arg2: HEX, arg3: HEX, arg4: HEX, arg5: HEX) -> Number, in desc;
        mq_timedsend_time64(arg1: HEX, arg2: HEX, arg3: HEX, arg4: HEX, arg5: HEX) -> Number, in desc;
        nfsservctl(arg1: HEX, arg2: HEX, arg3: HEX) -> Number;
        oldolduname(arg1: HEX) -> Number;
        olduname(arg1: HEX) -> Number;
        ppoll_time64(arg1: HEX, arg2: HEX, arg3: HEX, arg4: HEX, arg5: HEX) -> Number, in desc;
        prof(arg1: HEX, arg2: HEX, arg3: HEX, arg4: HEX) -> Number;
        profil(arg1: HEX, arg2: HEX, arg3: HEX, arg4: HEX) -> Number;
        pselect6_time64(arg1: HEX, arg2: HEX, arg3: HEX, arg4: HEX, arg5: HEX, arg6: HEX) -> Number, in desc;
        putpmsg(arg1: HEX, arg2: HEX, arg3: HEX, arg4: HEX, arg5: HEX) -> Number, in network;
        query_module(arg1: HEX, arg2: HEX, arg3: HEX, arg4: HEX, arg5: HEX) -> Number;
        readdir(arg1: HEX, arg2: HEX, arg3: HEX) -> Number, in desc;
        recvmmsg_time64(arg1: HEX, arg2: HEX, arg3: HEX, arg4: HEX, arg5: HEX) -> Number, in network;
        rt_sigtimedwait_time64(arg1: HEX, arg2: HEX, arg3: HEX, arg4: HEX) -> Number, in signal;
        sched_rr_get_interval_time64(arg1: HEX, arg2: HEX) -> Number;
        security(arg1: HEX, arg2: HEX, arg3: HEX) -> Number;
        semtimedop_time64(arg1: HEX, arg2: HEX, arg3: HEX, arg4: HEX) -> Number, in ipc;
        set_mempolicy_home_node(arg1: HEX, arg2: HEX, arg3: HEX, arg4: HEX) -> Number, in memory;
        set_thread_area(arg1: HEX) -> Number;
        sgetmask() -> Number, in signal;
        sigpending(arg1: HEX) -> Number, in signal;
        sigreturn() -> Number, in signal;
        ssetmask(arg1: HEX) -> Number, in signal;
        statmount(arg1: HEX, arg2: HEX, arg3: HEX, arg4: HEX) -> Number;
        stime(arg1: HEX) -> Number;
        stty(arg1: HEX, arg2: HEX) -> Number;
        sysfs(arg1: HEX, arg2: HEX, arg3: HEX) -> Number;
        tuxcall(arg1: HEX, arg2: HEX, arg3: HEX) -> Number;
        ulimit(arg1: HEX, arg2: HEX) -> Number;
        uprobe() -> Number;
        uretprobe() -> Number;
        ustat(arg1: HEX, arg2: HEX) -> Number, in ustat;
        vm86(arg1: HEX, arg2: HEX) -> Number;
        vm86old(arg1: HEX) -> Number;
        vserver(arg1: HEX, arg2: HEX, arg3: HEX, arg4: HEX, arg5: HEX) -> Number;
    } };
}

//! Calls on processes: made, run, waited for, limited, and who they are.

/// The rows, given to the macro `$then`.
#[macro_export]
macro_rules! processes_calls {
    ($then:ident) => { $then! {
        fork() -> Number, in process;
        vfork() -> Number, in process;
        clone(flags: HEX, stack: ADDRESS, parent_tid: ADDRESS, child_tid: ADDRESS, tls: ADDRESS) -> Number, in tested process,
            audit Commands namespace.clone if Bits(flags, NEW_NAMESPACES) (flags: flags as Number);
        clone3(cl_args: Kind::Changed(p::clone_arguments, p::cloned), size: SIZE) -> Number, in tested process,
            audit Commands namespace.clone if Pointed(cl_args, NEW_NAMESPACES | NEW_TIME) (flags: cl_args as Pointed);
        execve(pathname: PATH, argv: ARGV, envp: ENVP) -> Number, in tested file process,
            audit Commands exec (path: pathname as Path, argv: argv as Argv);
        execveat(dirfd: AT, pathname: PATH, argv: ARGV, envp: ENVP, flags: bits(&c::AT_FLAGS)) -> Number,
            in tested file process desc,
            audit Commands exec (path: pathname as PathOf(dirfd, flags), argv: argv as Argv);
        exit(status: INT) -> Number, in tested process;
        exit_group(status: INT) -> Number, in tested process;
        wait4(pid: INT, wstatus: STATUS, options: bits(&c::WAIT), rusage: USED) -> Number, in tested process;
        waitpid(pid: INT, wstatus: STATUS, options: bits(&c::WAIT)) -> Number, in process;
        waitid(idtype: named(&c::WAITID), id: INT, infop: Kind::Late(&signals::INFORMATION), options: bits(&c::WAIT),
            rusage: USAGE) -> Number, in tested process;
        getpid() -> Number, in pure;
        getppid() -> Number, in pure;
        gettid() -> Number, in pure;
        getpgrp() -> Number, in pure;
        getpgid(pid: INT) -> Number;
        setpgid(pid: INT, pgid: INT) -> Number, in tested;
        getsid(pid: INT) -> Number;
        setsid() -> Number;
        getuid() -> Number, in creds pure;
        geteuid() -> Number, in creds pure;
        getgid() -> Number, in creds pure;
        getegid() -> Number, in creds pure;
        getuid32() -> Number, in creds pure;
        geteuid32() -> Number, in creds pure;
        getgid32() -> Number, in creds pure;
        getegid32() -> Number, in creds pure;
        setuid(uid: ID) -> Number, in tested creds,
            audit Commands identity.setuid (to_uid: uid as Id);
        setgid(gid: ID) -> Number, in tested creds,
            audit Commands identity.setgid (to_gid: gid as Id);
        setreuid(ruid: ID, euid: ID) -> Number, in tested creds,
            audit Commands identity.setreuid (real: ruid as Id, effective: euid as Id);
        setregid(rgid: ID, egid: ID) -> Number, in tested creds,
            audit Commands identity.setregid (real: rgid as Id, effective: egid as Id);
        setresuid(ruid: ID, euid: ID, suid: ID) -> Number, in tested creds,
            audit Commands identity.setresuid (real: ruid as Id, effective: euid as Id, saved: suid as Id);
        setresgid(rgid: ID, egid: ID, sgid: ID) -> Number, in tested creds,
            audit Commands identity.setresgid (real: rgid as Id, effective: egid as Id, saved: sgid as Id);
        getresuid(ruid: LATE_ID, euid: LATE_ID, suid: LATE_ID) -> Number, in creds;
        getresgid(rgid: LATE_ID, egid: LATE_ID, sgid: LATE_ID) -> Number, in creds;
        setuid32(uid: ID) -> Number, in tested creds,
            audit Commands identity.setuid (to_uid: uid as Id);
        setgid32(gid: ID) -> Number, in tested creds,
            audit Commands identity.setgid (to_gid: gid as Id);
        setreuid32(ruid: ID, euid: ID) -> Number, in creds,
            audit Commands identity.setreuid (real: ruid as Id, effective: euid as Id);
        setregid32(rgid: ID, egid: ID) -> Number, in creds,
            audit Commands identity.setregid (real: rgid as Id, effective: egid as Id);
        setresuid32(ruid: ID, euid: ID, suid: ID) -> Number, in tested creds,
            audit Commands identity.setresuid (real: ruid as Id, effective: euid as Id, saved: suid as Id);
        setresgid32(rgid: ID, egid: ID, sgid: ID) -> Number, in tested creds,
            audit Commands identity.setresgid (real: rgid as Id, effective: egid as Id, saved: sgid as Id);
        getresuid32(ruid: LATE_ID, euid: LATE_ID, suid: LATE_ID) -> Number, in creds;
        getresgid32(rgid: LATE_ID, egid: LATE_ID, sgid: LATE_ID) -> Number, in creds;
        setfsuid(fsuid: ID) -> Number, in tested creds,
            audit Commands identity.setfsuid (to_uid: fsuid as Id);
        setfsgid(fsgid: ID) -> Number, in tested creds,
            audit Commands identity.setfsgid (to_gid: fsgid as Id);
        setfsuid32(fsuid: ID) -> Number, in creds,
            audit Commands identity.setfsuid (to_uid: fsuid as Id);
        setfsgid32(fsgid: ID) -> Number, in creds,
            audit Commands identity.setfsgid (to_gid: fsgid as Id);
        getgroups(size: INT, list: Kind::Late(&Kind::By(groups, Width::Word))) -> Number, in creds;
        setgroups(size: INT, list: Kind::List(&ID, Count::Argument(0))) -> Number, in creds,
            audit Commands identity.setgroups (count: size as Number);
        getgroups32(size: INT, list: Kind::Late(&Kind::By(groups, Width::Word))) -> Number, in creds;
        setgroups32(size: INT, list: Kind::List(&ID, Count::Argument(0))) -> Number, in creds,
            audit Commands identity.setgroups (count: size as Number);
        capget(hdrp: Kind::To(&p::CAPABILITY_HEADER), datap: Kind::Late(&CAPABILITIES)) -> Number, in creds;
        capset(hdrp: Kind::To(&p::CAPABILITY_HEADER), datap: CAPABILITIES) -> Number, in tested creds,
            audit Commands identity.capset ();
        prctl(option: named(&c::PRCTL), arg2: Kind::Chosen(p::prctl_1), arg3: Kind::Chosen(p::prctl_2), arg4: REST,
            arg5: REST) -> By(prctl_result), in tested creds;
        arch_prctl(code: named(&c::ARCH_PRCTL), addr: Kind::Chosen(p::arch_argument)) -> Number;
        getrlimit(resource: named(&c::RLIMIT), rlim: LATE_LIMIT) -> Number;
        ugetrlimit(resource: named(&c::RLIMIT), rlim: LATE_LIMIT) -> Number;
        setrlimit(resource: named(&c::RLIMIT), rlim: LIMIT) -> Number, in tested;
        prlimit64(pid: INT, resource: named(&c::RLIMIT), new_limit: Kind::To(&p::LIMIT64),
            old_limit: Kind::Late(&Kind::To(&p::LIMIT64))) -> Number, in tested;
        getrusage(who: named(&c::RUSAGE), usage: USAGE) -> Number;
        getpriority(which: named(&c::PRIORITY), who: INT) -> Number;
        setpriority(which: named(&c::PRIORITY), who: INT, prio: INT) -> Number, in tested;
        nice(inc: INT) -> Number;
        set_tid_address(tidptr: ADDRESS) -> Number;
        set_robust_list(head: ADDRESS, len: SIZE) -> Number;
        get_robust_list(pid: INT, head_ptr: Kind::Late(&Kind::One(&ADDRESS)), len_ptr: Kind::Late(&Kind::One(&SIZE))) -> Number;
        rseq(rseq: ADDRESS, rseq_len: HEX32, flags: bits(&c::RSEQ), sig: HEX32) -> Number;
        uname(buf: Kind::Late(&Kind::To(&p::NAMES))) -> Number;
        sysinfo(info: Kind::Late(&Kind::To(&p::SYSTEM))) -> Number;
        sethostname(name: Kind::By(host_name, Width::Word), len: UINT) -> Number;
        setdomainname(name: Kind::By(host_name, Width::Word), len: UINT) -> Number;
        sched_yield() -> Number;
        sched_setparam(pid: INT, param: PARAMETER) -> Number;
        sched_getparam(pid: INT, param: Kind::Late(&PARAMETER)) -> Number;
        sched_setscheduler(pid: INT, policy: POLICY, param: PARAMETER) -> Number, in tested;
        sched_getscheduler(pid: INT) -> By(policy_result);
        sched_get_priority_max(policy: POLICY) -> Number;
        sched_get_priority_min(policy: POLICY) -> Number;
        sched_rr_get_interval(pid: INT, tp: Kind::Late(&Kind::To(&time::TIMESPEC))) -> Number;
        sched_setaffinity(pid: INT, cpusetsize: UINT, mask: Kind::By(p::processors, Width::Word)) -> Number;
        sched_getaffinity(pid: INT, cpusetsize: UINT, mask: Kind::Late(&Kind::By(p::processors, Width::Word))) -> Number;
        sched_setattr(pid: INT, attr: Kind::To(&p::SCHEDULING), flags: HEX32) -> Number;
        sched_getattr(pid: INT, attr: Kind::Late(&Kind::To(&p::SCHEDULING)), size: UINT, flags: HEX32) -> Number;
        getcpu(cpu: Kind::Late(&Kind::One(&UINT)), node: Kind::Late(&Kind::One(&UINT)), tcache: ADDRESS) -> Number;
        personality(persona: Kind::By(personality, Width::Four)) -> By(personality_result), in tested;
        unshare(flags as long: bits(&c::UNSHARE)) -> Number, in tested,
            audit Commands namespace.unshare (flags: flags as Number);
        setns(fd: FD, nstype: bits(&c::SETNS)) -> Number, in tested desc,
            audit Commands namespace.setns (descriptor: fd as Descriptor, flags: nstype as Number);
        pidfd_open(pid: INT, flags: bits(&c::PIDFD)) -> Descriptor, in tested desc;
        pidfd_getfd(pidfd: FD, targetfd: INT, flags: HEX32) -> Descriptor, in tested desc,
            audit Commands ptrace.descriptor (descriptor: pidfd as Descriptor);
        process_vm_readv(pid: INT,
            local_iov: Kind::Kept(files::keep_nothing, files::filled_vectors),
            liovcnt: SIZE, remote_iov: Kind::By(remote, Width::Word), riovcnt: SIZE, flags: HEX) -> Number, in tested,
            audit Full ptrace.read (target: pid as Number);
        process_vm_writev(pid: INT, local_iov: Kind::By(files::given_vectors, Width::Word), liovcnt: SIZE,
            remote_iov: Kind::By(remote, Width::Word), riovcnt: SIZE, flags: HEX) -> Number, in tested,
            audit Commands ptrace.write (target: pid as Number);
        ptrace(request as long: named(&c::PTRACE), pid: Kind::Chosen(traced), addr: Kind::Chosen(traced_address),
            data: Kind::Chosen(traced_data)) -> Number, in tested,
            audit Commands ptrace.ptrace if OneOf(request, TRACING) (request: request as Number, target: pid as Number);
        kcmp(pid1: INT, pid2: INT, type: named(&c::KCMP), idx1: Kind::Chosen(compared), idx2: Kind::Chosen(compared)) -> Number,
            in tested;
        ioprio_get(which: named(&c::IOPRIO_WHO), who: INT) -> By(io_priority_result);
        ioprio_set(which: named(&c::IOPRIO_WHO), who: INT, ioprio: Kind::By(io_priority, Width::Four)) -> Number;
        vhangup() -> Number;
        pidfd_send_signal(pidfd: FD, sig: SIGNAL, info: signals::INFORMATION, flags: HEX32) -> Number,
            in tested process signal desc;
    } };
}

//! Calls that a 32-bit program makes otherwise than a 64-bit one: other structures behind the same names. What is not
//! decoded is an address.

/// The rows, given to the macro `$then`.
#[macro_export]
macro_rules! i386_calls {
    ($then:ident) => { $then! {
        mmap(args: ADDRESS) -> Hex;
        select(args: ADDRESS) -> Number;
        getrlimit(resource: named(&c::RLIMIT), rlim: ADDRESS) -> Number;
        setrlimit(resource: named(&c::RLIMIT), rlim: Kind::To(&p::LIMIT)) -> Number;
        oldstat(pathname: PATH, statbuf: ADDRESS) -> Number, in file stat;
        oldlstat(pathname: PATH, statbuf: ADDRESS) -> Number, in file lstat;
        oldfstat(fd: FD, statbuf: ADDRESS) -> Number, in desc fstat;
        stat64(pathname: PATH, statbuf: ADDRESS) -> Number, in file stat;
        lstat64(pathname: PATH, statbuf: ADDRESS) -> Number, in file lstat;
        fstat64(fd: FD, statbuf: ADDRESS) -> Number, in desc fstat;
        fstatat64(dirfd: AT, pathname: PATH, statbuf: ADDRESS, flags: bits(&c::AT_FLAGS)) -> Number, in file desc fstat;
        statfs(pathname: PATH, buf: ADDRESS) -> Number;
        fstatfs(fd: FD, buf: ADDRESS) -> Number;
        statfs64(pathname: PATH, size: SIZE, buf: ADDRESS) -> Number, in file statfs;
        fstatfs64(fd: FD, size: SIZE, buf: ADDRESS) -> Number, in desc fstatfs;
        _llseek(fd: FD, offset_high: UINT, offset_low: UINT, result: LATE_OFFSET, whence: named(&c::WHENCE)) -> Number, in desc;
        fadvise64_64(fd: FD, offset: Kind::Wide, len: Kind::Wide, advice: named(&c::FADVISE)) -> Number, in desc;
        sendfile64(out_fd: FD, in_fd: FD, offset: ADDRESS, count: SIZE) -> Number, in network desc;
        sendfile(out_fd: FD, in_fd: FD, offset: ADDRESS, count: SIZE) -> Number;
        getdents(fd: FD, dirp: ADDRESS, count: UINT) -> Number;
        adjtimex(buf: ADDRESS) -> Number;
        sigaction(signum: SIGNAL, act: ADDRESS, oldact: ADDRESS) -> Number, in signal;
        signal(signum: SIGNAL, handler: ADDRESS) -> Hex, in signal;
        sigprocmask(how: INT, set: ADDRESS, oldset: ADDRESS) -> Number, in signal;
        sigsuspend(restart: INT, oldmask: Kind::Hex(Width::Four), mask: Kind::Hex(Width::Four)) -> Number, in signal;
        setuid(uid: ID16) -> Number;
        setgid(gid: ID16) -> Number;
        getgroups(size: INT, list: ADDRESS) -> Number;
        setgroups(size: INT, list: ADDRESS) -> Number;
        getresuid(ruid: ADDRESS, euid: ADDRESS, suid: ADDRESS) -> Number;
        getresgid(rgid: ADDRESS, egid: ADDRESS, sgid: ADDRESS) -> Number;
        chown(pathname: PATH, owner: ID16, group: ID16) -> Number;
        lchown(pathname: PATH, owner: ID16, group: ID16) -> Number;
        fchown(fd: FD, owner: ID16, group: ID16) -> Number;
        utimensat_time64(dirfd: AT, pathname: PATH, times: ADDRESS, flags: bits(&c::AT_FLAGS)) -> Number, in file desc write;
        fanotify_mark(fd: FD, flags: bits(&c::FANOTIFY_MARK), mask: Kind::Wide, dirfd: AT, pathname: PATH) -> Number;
        io_uring_setup(entries: UINT, params: ADDRESS) -> Descriptor;
    } };
}

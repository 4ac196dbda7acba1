//! Calls on open files, and those that open them.

/// The rows, given to the macro `$then`.
#[macro_export]
macro_rules! files_calls {
    ($then:ident) => { $then! {
        read(fd: FD, buf: READ, count: SIZE) -> Number, in tested desc;
        write(fd: FD, buf: Kind::Bytes(WHOLE), count: SIZE) -> Number, in tested desc;
        pread64(fd: FD, buf: READ, count: SIZE, offset: Kind::Wide) -> Number, in tested desc;
        pwrite64(fd: FD, buf: Kind::Bytes(WHOLE), count: SIZE, offset: Kind::Wide) -> Number, in tested desc;
        readv(fd: FD, iov: FILLED, iovcnt: SIZE) -> Number, in tested desc;
        writev(fd: FD, iov: GIVEN, iovcnt: SIZE) -> Number, in tested desc;
        preadv(fd: FD, iov: FILLED, iovcnt: SIZE, offset: Kind::Wide) -> Number, in desc;
        pwritev(fd: FD, iov: GIVEN, iovcnt: SIZE, offset: Kind::Wide) -> Number, in desc;
        preadv2(fd: FD, iov: FILLED, iovcnt: SIZE, offset: Kind::Chosen(low_offset), offset_high: Kind::Chosen(high_offset),
            flags: bits(&c::RWF)) -> Number, in desc;
        pwritev2(fd: FD, iov: GIVEN, iovcnt: SIZE, offset: Kind::Chosen(low_offset), offset_high: Kind::Chosen(high_offset),
            flags: bits(&c::RWF)) -> Number, in desc;
        vmsplice(fd: FD, iov: GIVEN, nr_segs: SIZE, flags: bits(&c::SPLICE)) -> Number, in desc;
        open(pathname: PATH, flags: OPEN_FLAGS, mode as int: Kind::Chosen(files::open_mode::<1>)) -> Descriptor, in tested file desc,
            audit Files file.open if Bits(flags, WRITES) (path: pathname as Path, flags: flags as Open, mode: mode as Mode),
            audit Full file.open (path: pathname as Path, flags: flags as Open);
        openat(dirfd: AT, pathname: PATH, flags: OPEN_FLAGS, mode as int: Kind::Chosen(files::open_mode::<2>)) -> Descriptor,
            in tested file desc,
            audit Files file.open if Bits(flags, WRITES) (path: pathname as PathAt(dirfd), flags: flags as Open, mode: mode as Mode),
            audit Full file.open (path: pathname as PathAt(dirfd), flags: flags as Open);
        openat2(dirfd: AT, pathname: PATH, how: Kind::By(files::how, Width::Word), size: SIZE) -> Descriptor,
            in tested file desc write,
            audit Files file.open (path: pathname as PathAt(dirfd), flags: how as How);
        creat(pathname: PATH, mode: MODE) -> Descriptor, in tested file desc write,
            audit Files file.open (path: pathname as Path, mode: mode as Mode);
        close(fd: FD) -> Number, in tested desc;
        close_range(first: UINT, last: UINT, flags: bits(&c::CLOSE_RANGE)) -> Number, in tested;
        stat(pathname: PATH, statbuf: STAT) -> Number, in file stat;
        lstat(pathname: PATH, statbuf: STAT) -> Number, in file lstat;
        fstat(fd: FD, statbuf: STAT) -> Number, in tested desc fstat;
        newfstatat(dirfd: AT, pathname: PATH, statbuf: STAT, flags: bits(&c::AT_FLAGS)) -> Number, in tested file desc fstat;
        statx(dirfd: AT, pathname: PATH, flags: Kind::By(statx_flags, Width::Four), mask: bits(&c::STATX_MASK),
            statxbuf: Kind::Late(&Kind::By(files::statx, Width::Word))) -> Number, in tested file desc fstat;
        statfs(pathname: PATH, buf: Kind::Late(&Kind::To(&files::STATFS))) -> Number, in file statfs;
        fstatfs(fd: FD, buf: Kind::Late(&Kind::To(&files::STATFS))) -> Number, in desc fstatfs;
        lseek(fd: FD, offset: LONG, whence: named(&c::WHENCE)) -> Number, in tested desc;
        dup(oldfd: FD) -> Descriptor, in tested desc;
        dup2(oldfd: FD, newfd: FD) -> Descriptor, in tested desc;
        dup3(oldfd: FD, newfd: FD, flags: OPEN_EXTRA) -> Descriptor, in tested desc;
        pipe(pipefd: PIPE) -> Number, in desc;
        pipe2(pipefd: PIPE, flags: OPEN_EXTRA) -> Number, in tested desc;
        fcntl(fd: FD, cmd: named(&c::FCNTL), arg: Kind::Chosen(files::fcntl_argument)) -> By(files::fcntl_result),
            in tested desc;
        fcntl64(fd: FD, cmd: named(&c::FCNTL), arg: Kind::Chosen(files::fcntl_argument)) -> By(files::fcntl_result),
            in tested desc;
        ioctl(fd: FD, request: Kind::By(devices::request, Width::Four), arg: Kind::Chosen(devices::argument)) -> Number,
            in tested desc;
        flock(fd: FD, operation: bits(&c::FLOCK)) -> Number, in tested desc;
        fsync(fd: FD) -> Number, in tested desc;
        fdatasync(fd: FD) -> Number, in tested desc;
        syncfs(fd: FD) -> Number, in desc;
        sync() -> Number;
        sync_file_range(fd: FD, offset: Kind::Wide, nbytes: Kind::Wide, flags: bits(&c::SYNC_RANGE)) -> Number, in desc;
        truncate(path: PATH, length: LONG) -> Number, in tested file write,
            audit Files file.truncate (path: path as Path);
        ftruncate(fd: FD, length: LONG) -> Number, in tested desc;
        truncate64(path: PATH, length: Kind::Wide) -> Number, in tested file write,
            audit Files file.truncate (path: path as Path);
        ftruncate64(fd: FD, length: Kind::Wide) -> Number, in tested desc;
        fallocate(fd: FD, mode: bits(&c::FALLOCATE), offset: Kind::Wide, len: Kind::Wide) -> Number, in tested desc;
        fadvise64(fd: FD, offset: Kind::Wide, len: SIZE, advice: named(&c::FADVISE)) -> Number, in desc;
        readahead(fd: FD, offset: Kind::Wide, count: SIZE) -> Number, in desc;
        sendfile(out_fd: FD, in_fd: FD, offset: Kind::Changed(offset_before, offset_after), count: SIZE) -> Number,
            in tested network desc;
        splice(fd_in: FD, off_in: OFFSET, fd_out: FD, off_out: OFFSET, len: SIZE, flags: bits(&c::SPLICE)) -> Number,
            in tested desc;
        tee(fd_in: FD, fd_out: FD, len: SIZE, flags: bits(&c::SPLICE)) -> Number, in desc;
        copy_file_range(fd_in: FD, off_in: OFFSET, fd_out: FD, off_out: OFFSET, len: SIZE, flags: HEX) -> Number, in desc;
        getdents64(fd: FD, dirp: Kind::Late(&Kind::By(files::entries, Width::Word)), count as int: SIZE) -> Number,
            in tested desc;
        poll(fds: POLLED, nfds: UINT, timeout: INT) -> By(polls::poll_result), in desc;
        ppoll(fds: POLLED, nfds: UINT, timeout: TIMESPEC, sigmask: Kind::By(signals::set_sized_by::<4>, Width::Word),
            sigsetsize: SIZE) -> By(polls::ppoll_result), in desc;
        select(nfds: INT, readfds: SET, writefds: SET, exceptfds: SET,
            timeout: Kind::To(&time::TIMEVAL)) -> By(polls::selected::<true>), in desc;
        _newselect(nfds: INT, readfds: SET, writefds: SET, exceptfds: SET,
            timeout: Kind::To(&time::TIMEVAL)) -> By(polls::selected::<true>), in desc;
        pselect6(nfds: INT, readfds: SET, writefds: SET, exceptfds: SET, timeout: TIMESPEC,
            sigmask: Kind::By(polls::select_signals, Width::Word)) -> By(polls::selected::<false>), in desc;
        epoll_create(size: INT) -> Descriptor, in desc;
        epoll_create1(flags: bits(&c::EPOLL_CREATE)) -> Descriptor, in desc;
        epoll_ctl(epfd: FD, op: named(&c::EPOLL_CTL), fd: FD, event: EVENT) -> Number, in tested desc;
        epoll_wait(epfd: FD, events: EVENTS, maxevents: INT, timeout: INT) -> Number, in tested desc;
        epoll_pwait(epfd: FD, events: EVENTS, maxevents: INT, timeout: INT, sigmask: Kind::By(signals::set_sized_by::<5>, Width::Word),
            sigsetsize: SIZE) -> Number, in desc;
        epoll_pwait2(epfd: FD, events: EVENTS, maxevents: INT, timeout: Kind::To(&time::TIMESPEC64),
            sigmask: Kind::By(signals::set_sized_by::<5>, Width::Word), sigsetsize: SIZE) -> Number, in desc;
        eventfd(initval: UINT) -> Descriptor, in desc;
        eventfd2(initval: UINT, flags: bits(&c::EVENTFD)) -> Descriptor, in desc;
        inotify_init() -> Descriptor, in desc;
        inotify_init1(flags: bits(&c::INOTIFY_INIT)) -> Descriptor, in desc;
        inotify_add_watch(fd: FD, pathname: PATH, mask: bits(&c::INOTIFY)) -> Number, in tested file desc;
        inotify_rm_watch(fd: FD, wd: INT) -> Number, in desc;
        fanotify_init(flags: Kind::By(fanotify_flags, Width::Four), event_f_flags: OPEN_FLAGS) -> Descriptor, in desc;
        fanotify_mark(fd: FD, flags: bits(&c::FANOTIFY_MARK), mask: MARKED, dirfd: AT, pathname: PATH) -> Number, in file desc;
        memfd_create(name: TEXT, flags: bits(&c::MEMFD)) -> Descriptor, in tested desc;
        memfd_secret(flags: OPEN_EXTRA) -> Descriptor, in desc;
        userfaultfd(flags: bits(&c::USERFAULTFD)) -> Descriptor, in tested desc;
        io_setup(nr_events: UINT, ctx_idp: ADDRESS) -> Number, in memory;
        io_destroy(ctx_id: HEX) -> Number, in memory;
    } };
}

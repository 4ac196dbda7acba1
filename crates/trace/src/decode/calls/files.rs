//! Calls on open files, and those that open them.

use super::{Res, Row, call};
use crate::decode::constants as c;
use crate::decode::kind::{
    ADDRESS, AT, Count, FD, HEX, I64, INT, Kind, LONG, MODE, PATH, SIZE, TEXT, UINT, Width, bits, named,
};
use crate::decode::show::{devices, files, network, polls, signals, time};

const READ: Kind = Kind::Late(&Kind::Bytes(Count::Result));
const OPEN_FLAGS: Kind = Kind::By(files::open_flags32, Width::Four);
const STAT: Kind = Kind::Late(&Kind::By(files::stat, Width::Word));
const GIVEN: Kind = Kind::By(files::given_vectors, Width::Word);
const FILLED: Kind = Kind::Kept(files::keep_nothing, files::filled_vectors);
const WHOLE: Count = Count::Argument(2);
const OFFSET: Kind = Kind::One(&I64);
const PIPE: Kind = Kind::Late(&network::PAIR);
const SET: Kind = Kind::By(polls::set, Width::Word);
const POLLED: Kind = Kind::By(polls::polled, Width::Word);
const EVENT: Kind = Kind::By(polls::epoll_event, Width::Word);
const EVENTS: Kind = Kind::Late(&Kind::By(polls::epoll_events, Width::Word));
const TIMESPEC: Kind = Kind::To(&time::TIMESPEC);

#[rustfmt::skip]
pub(super) static ROWS: &[Row] = &[
    call("read", &[("fd", FD), ("buf", READ), ("count", SIZE)], Res::Number),
    call("write", &[("fd", FD), ("buf", Kind::Bytes(WHOLE)), ("count", SIZE)], Res::Number),
    call("pread64", &[("fd", FD), ("buf", READ), ("count", SIZE), ("offset", Kind::Wide)], Res::Number),
    call("pwrite64", &[("fd", FD), ("buf", Kind::Bytes(WHOLE)), ("count", SIZE), ("offset", Kind::Wide)], Res::Number),
    call("readv", &[("fd", FD), ("iov", FILLED), ("iovcnt", SIZE)], Res::Number),
    call("writev", &[("fd", FD), ("iov", GIVEN), ("iovcnt", SIZE)], Res::Number),
    call("preadv", &[("fd", FD), ("iov", FILLED), ("iovcnt", SIZE), ("offset", Kind::Wide)], Res::Number),
    call("pwritev", &[("fd", FD), ("iov", GIVEN), ("iovcnt", SIZE), ("offset", Kind::Wide)], Res::Number),
    call("preadv2", &[("fd", FD), ("iov", FILLED), ("iovcnt", SIZE), ("offset", Kind::Chosen(low_offset)),
        ("offset_high", Kind::Chosen(high_offset)), ("flags", bits(&c::RWF))], Res::Number),
    call("pwritev2", &[("fd", FD), ("iov", GIVEN), ("iovcnt", SIZE), ("offset", Kind::Chosen(low_offset)),
        ("offset_high", Kind::Chosen(high_offset)), ("flags", bits(&c::RWF))], Res::Number),
    call("vmsplice", &[("fd", FD), ("iov", GIVEN), ("nr_segs", SIZE), ("flags", bits(&c::SPLICE))], Res::Number),
    call("open", &[("pathname", PATH), ("flags", OPEN_FLAGS), ("mode", Kind::Chosen(files::open_mode))], Res::Descriptor),
    call("openat", &[("dirfd", AT), ("pathname", PATH), ("flags", OPEN_FLAGS), ("mode", Kind::Chosen(files::openat_mode))],
        Res::Descriptor),
    call("openat2", &[("dirfd", AT), ("pathname", PATH), ("how", Kind::By(files::how, Width::Word)), ("size", SIZE)], Res::Descriptor),
    call("creat", &[("pathname", PATH), ("mode", MODE)], Res::Descriptor),
    call("close", &[("fd", FD)], Res::Number),
    call("close_range", &[("first", UINT), ("last", UINT), ("flags", bits(&c::CLOSE_RANGE))], Res::Number),
    call("stat", &[("pathname", PATH), ("statbuf", STAT)], Res::Number),
    call("lstat", &[("pathname", PATH), ("statbuf", STAT)], Res::Number),
    call("fstat", &[("fd", FD), ("statbuf", STAT)], Res::Number),
    call("newfstatat", &[("dirfd", AT), ("pathname", PATH), ("statbuf", STAT), ("flags", bits(&c::AT_FLAGS))], Res::Number),
    call("statx", &[("dirfd", AT), ("pathname", PATH), ("flags", Kind::By(statx_flags, Width::Four)),
        ("mask", bits(&c::STATX_MASK)), ("statxbuf", Kind::Late(&Kind::By(files::statx, Width::Word)))], Res::Number),
    call("statfs", &[("pathname", PATH), ("buf", Kind::Late(&Kind::To(&files::STATFS)))], Res::Number),
    call("fstatfs", &[("fd", FD), ("buf", Kind::Late(&Kind::To(&files::STATFS)))], Res::Number),
    call("lseek", &[("fd", FD), ("offset", LONG), ("whence", named(&c::WHENCE))], Res::Number),
    call("dup", &[("oldfd", FD)], Res::Descriptor),
    call("dup2", &[("oldfd", FD), ("newfd", FD)], Res::Descriptor),
    call("dup3", &[("oldfd", FD), ("newfd", FD), ("flags", OPEN_EXTRA)], Res::Descriptor),
    call("pipe", &[("pipefd", PIPE)], Res::Number),
    call("pipe2", &[("pipefd", PIPE), ("flags", OPEN_EXTRA)], Res::Number),
    call("fcntl", &[("fd", FD), ("cmd", named(&c::FCNTL)), ("arg", Kind::Chosen(files::fcntl_argument))],
        Res::By(files::fcntl_result)),
    call("fcntl64", &[("fd", FD), ("cmd", named(&c::FCNTL)), ("arg", Kind::Chosen(files::fcntl_argument))],
        Res::By(files::fcntl_result)),
    call("ioctl", &[("fd", FD), ("request", Kind::By(devices::request, Width::Four)),
        ("arg", Kind::Chosen(devices::argument))], Res::Number),
    call("flock", &[("fd", FD), ("operation", bits(&c::FLOCK))], Res::Number),
    call("fsync", &[("fd", FD)], Res::Number),
    call("fdatasync", &[("fd", FD)], Res::Number),
    call("syncfs", &[("fd", FD)], Res::Number),
    call("sync", &[], Res::Number),
    call("sync_file_range", &[("fd", FD), ("offset", Kind::Wide), ("nbytes", Kind::Wide), ("flags", bits(&c::SYNC_RANGE))],
        Res::Number),
    call("truncate", &[("path", PATH), ("length", LONG)], Res::Number),
    call("ftruncate", &[("fd", FD), ("length", LONG)], Res::Number),
    call("truncate64", &[("path", PATH), ("length", Kind::Wide)], Res::Number),
    call("ftruncate64", &[("fd", FD), ("length", Kind::Wide)], Res::Number),
    call("fallocate", &[("fd", FD), ("mode", bits(&c::FALLOCATE)), ("offset", Kind::Wide), ("len", Kind::Wide)], Res::Number),
    call("fadvise64", &[("fd", FD), ("offset", Kind::Wide), ("len", SIZE), ("advice", named(&c::FADVISE))], Res::Number),
    call("readahead", &[("fd", FD), ("offset", Kind::Wide), ("count", SIZE)], Res::Number),
    call("sendfile", &[("out_fd", FD), ("in_fd", FD), ("offset", Kind::Changed(offset_before, offset_after)), ("count", SIZE)],
        Res::Number),
    call("splice", &[("fd_in", FD), ("off_in", OFFSET), ("fd_out", FD), ("off_out", OFFSET), ("len", SIZE),
        ("flags", bits(&c::SPLICE))], Res::Number),
    call("tee", &[("fd_in", FD), ("fd_out", FD), ("len", SIZE), ("flags", bits(&c::SPLICE))], Res::Number),
    call("copy_file_range", &[("fd_in", FD), ("off_in", OFFSET), ("fd_out", FD), ("off_out", OFFSET), ("len", SIZE),
        ("flags", HEX)], Res::Number),
    call("getdents64", &[("fd", FD), ("dirp", Kind::Late(&Kind::By(files::entries, Width::Word))), ("count", SIZE)], Res::Number),
    call("poll", &[("fds", POLLED), ("nfds", UINT), ("timeout", INT)], Res::By(polls::poll_result)),
    call("ppoll", &[("fds", POLLED), ("nfds", UINT), ("timeout", TIMESPEC),
        ("sigmask", Kind::By(signals::set_of_3, Width::Word)), ("sigsetsize", SIZE)], Res::By(polls::ppoll_result)),
    call("select", &[("nfds", INT), ("readfds", SET), ("writefds", SET), ("exceptfds", SET),
        ("timeout", Kind::To(&time::TIMEVAL))], Res::By(polls::select_result)),
    call("_newselect", &[("nfds", INT), ("readfds", SET), ("writefds", SET), ("exceptfds", SET),
        ("timeout", Kind::To(&time::TIMEVAL))], Res::By(polls::select_result)),
    call("pselect6", &[("nfds", INT), ("readfds", SET), ("writefds", SET), ("exceptfds", SET), ("timeout", TIMESPEC),
        ("sigmask", Kind::By(polls::select_signals, Width::Word))], Res::By(polls::pselect_result)),
    call("epoll_create", &[("size", INT)], Res::Descriptor),
    call("epoll_create1", &[("flags", bits(&c::EPOLL_CREATE))], Res::Descriptor),
    call("epoll_ctl", &[("epfd", FD), ("op", named(&c::EPOLL_CTL)), ("fd", FD), ("event", EVENT)], Res::Number),
    call("epoll_wait", &[("epfd", FD), ("events", EVENTS), ("maxevents", INT), ("timeout", INT)], Res::Number),
    call("epoll_pwait", &[("epfd", FD), ("events", EVENTS), ("maxevents", INT), ("timeout", INT),
        ("sigmask", Kind::By(signals::set_of_4, Width::Word)), ("sigsetsize", SIZE)], Res::Number),
    call("epoll_pwait2", &[("epfd", FD), ("events", EVENTS), ("maxevents", INT),
        ("timeout", Kind::To(&time::TIMESPEC64)), ("sigmask", Kind::By(signals::set_of_4, Width::Word)),
        ("sigsetsize", SIZE)], Res::Number),
    call("eventfd", &[("initval", UINT)], Res::Descriptor),
    call("eventfd2", &[("initval", UINT), ("flags", bits(&c::EVENTFD))], Res::Descriptor),
    call("inotify_init", &[], Res::Descriptor),
    call("inotify_init1", &[("flags", bits(&c::INOTIFY_INIT))], Res::Descriptor),
    call("inotify_add_watch", &[("fd", FD), ("pathname", PATH), ("mask", bits(&c::INOTIFY))], Res::Number),
    call("inotify_rm_watch", &[("fd", FD), ("wd", INT)], Res::Number),
    call("fanotify_init", &[("flags", Kind::By(fanotify_flags, Width::Four)), ("event_f_flags", OPEN_FLAGS)], Res::Descriptor),
    call("fanotify_mark", &[("fd", FD), ("flags", bits(&c::FANOTIFY_MARK)), ("mask", MARKED), ("dirfd", AT),
        ("pathname", PATH)], Res::Number),
    call("memfd_create", &[("name", TEXT), ("flags", bits(&c::MEMFD))], Res::Descriptor),
    call("memfd_secret", &[("flags", OPEN_EXTRA)], Res::Descriptor),
    call("userfaultfd", &[("flags", bits(&c::USERFAULTFD))], Res::Descriptor),
    call("io_setup", &[("nr_events", UINT), ("ctx_idp", ADDRESS)], Res::Number),
    call("io_destroy", &[("ctx_id", HEX)], Res::Number),
];

/// Flags of pipe2 and dup3: those of open without a way to open.
const OPEN_EXTRA: Kind = bits(&c::OPEN);
const MARKED: Kind = Kind::Bits(&c::FANOTIFY_EVENT, Width::Eight);

/// A class, and bits.
fn fanotify_flags(r: &mut crate::decode::reader::Reader, value: u64) {
    const CLASS: u64 = 0xc;
    let value = value & 0xffff_ffff;
    r.out.open_bits();
    match c::FANOTIFY_CLASS.find(value & CLASS, u64::MAX) {
        Some(name) => r.out.bit(name),
        None => r.out.bit_other(value & CLASS, c::FANOTIFY_CLASS.others),
    }
    let out = &mut *r.out;
    let left = c::FANOTIFY_INIT.split(value & !CLASS, |name| out.bit(name));
    if left != 0 {
        r.out.bit_hex(left);
    }
    r.out.close_bits();
}

/// On 64-bit machines the offset of preadv2 is one register, and the next is not used.
fn low_offset(registers: &crate::decode::reader::Registers) -> Option<Kind> {
    Some(if registers.abi.word() == 8 {
        Kind::Signed(Width::Eight)
    } else {
        UINT
    })
}

fn high_offset(registers: &crate::decode::reader::Registers) -> Option<Kind> {
    (registers.abi.word() == 4).then_some(UINT)
}

fn statx_flags(r: &mut crate::decode::reader::Reader, value: u64) {
    const SYNC: u64 = 0x6000;
    let value = value & 0xffff_ffff;
    if value & SYNC != 0 {
        return r.bits(&c::AT_STATX, value);
    }
    r.out.open_bits();
    r.out.bit("AT_STATX_SYNC_AS_STAT");
    let out = &mut *r.out;
    let left = c::AT_STATX.split(value, |name| out.bit(name));
    if left != 0 {
        r.out.bit_hex(left);
    }
    r.out.close_bits();
}

fn offset_before(r: &mut crate::decode::reader::Reader, at: u64) {
    r.out.open_bare_change();
    r.list(&I64, at, 1);
}

fn offset_after(r: &mut crate::decode::reader::Reader, at: u64) {
    if at != 0 && r.success().is_some_and(|result| result > 0) {
        r.out.became();
        r.list(&I64, at, 1);
    }
    r.out.close_bare_change();
}

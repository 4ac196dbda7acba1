//! Calls that a 32-bit program makes otherwise than a 64-bit one: other structures behind the same names. What is not
//! decoded is an address.

use super::{Res, Row, call};
use crate::decode::constants as c;
use crate::decode::kind::{ADDRESS, AT, FD, INT, Kind, PATH, SIZE, UINT, Width, bits, named};
use crate::decode::show::processes::{self as p};

#[rustfmt::skip]
pub(super) static ROWS: &[Row] = &[
    call("mmap", &[("args", ADDRESS)], Res::Hex),
    call("select", &[("args", ADDRESS)], Res::Number),
    call("getrlimit", &[("resource", named(&c::RLIMIT)), ("rlim", ADDRESS)], Res::Number),
    call("setrlimit", &[("resource", named(&c::RLIMIT)), ("rlim", Kind::To(&p::LIMIT))], Res::Number),
    call("oldstat", &[("pathname", PATH), ("statbuf", ADDRESS)], Res::Number),
    call("oldlstat", &[("pathname", PATH), ("statbuf", ADDRESS)], Res::Number),
    call("oldfstat", &[("fd", FD), ("statbuf", ADDRESS)], Res::Number),
    call("stat64", &[("pathname", PATH), ("statbuf", ADDRESS)], Res::Number),
    call("lstat64", &[("pathname", PATH), ("statbuf", ADDRESS)], Res::Number),
    call("fstat64", &[("fd", FD), ("statbuf", ADDRESS)], Res::Number),
    call("fstatat64", &[("dirfd", AT), ("pathname", PATH), ("statbuf", ADDRESS), ("flags", bits(&c::AT_FLAGS))], Res::Number),
    call("statfs", &[("pathname", PATH), ("buf", ADDRESS)], Res::Number),
    call("fstatfs", &[("fd", FD), ("buf", ADDRESS)], Res::Number),
    call("statfs64", &[("pathname", PATH), ("size", SIZE), ("buf", ADDRESS)], Res::Number),
    call("fstatfs64", &[("fd", FD), ("size", SIZE), ("buf", ADDRESS)], Res::Number),
    call("_llseek", &[("fd", FD), ("offset_high", UINT), ("offset_low", UINT), ("result", LATE_OFFSET),
        ("whence", named(&c::WHENCE))], Res::Number),
    call("fadvise64_64", &[("fd", FD), ("offset", Kind::Wide), ("len", Kind::Wide), ("advice", named(&c::FADVISE))], Res::Number),
    call("sendfile64", &[("out_fd", FD), ("in_fd", FD), ("offset", ADDRESS), ("count", SIZE)], Res::Number),
    call("sendfile", &[("out_fd", FD), ("in_fd", FD), ("offset", ADDRESS), ("count", SIZE)], Res::Number),
    call("getdents", &[("fd", FD), ("dirp", ADDRESS), ("count", UINT)], Res::Number),
    call("adjtimex", &[("buf", ADDRESS)], Res::Number),
    call("sigaction", &[("signum", SIGNAL), ("act", ADDRESS), ("oldact", ADDRESS)], Res::Number),
    call("signal", &[("signum", SIGNAL), ("handler", ADDRESS)], Res::Hex),
    call("sigprocmask", &[("how", INT), ("set", ADDRESS), ("oldset", ADDRESS)], Res::Number),
    call("sigsuspend", &[("restart", INT), ("oldmask", Kind::Hex(Width::Four)), ("mask", Kind::Hex(Width::Four))], Res::Number),
    call("setuid", &[("uid", ID16)], Res::Number),
    call("setgid", &[("gid", ID16)], Res::Number),
    call("getgroups", &[("size", INT), ("list", ADDRESS)], Res::Number),
    call("setgroups", &[("size", INT), ("list", ADDRESS)], Res::Number),
    call("getresuid", &[("ruid", ADDRESS), ("euid", ADDRESS), ("suid", ADDRESS)], Res::Number),
    call("getresgid", &[("rgid", ADDRESS), ("egid", ADDRESS), ("sgid", ADDRESS)], Res::Number),
    call("chown", &[("pathname", PATH), ("owner", ID16), ("group", ID16)], Res::Number),
    call("lchown", &[("pathname", PATH), ("owner", ID16), ("group", ID16)], Res::Number),
    call("fchown", &[("fd", FD), ("owner", ID16), ("group", ID16)], Res::Number),
    call("utimensat_time64", &[("dirfd", AT), ("pathname", PATH), ("times", ADDRESS), ("flags", bits(&c::AT_FLAGS))], Res::Number),
    call("fanotify_mark", &[("fd", FD), ("flags", bits(&c::FANOTIFY_MARK)), ("mask", Kind::Wide), ("dirfd", AT),
        ("pathname", PATH)], Res::Number),
    call("io_uring_setup", &[("entries", UINT), ("params", ADDRESS)], Res::Descriptor),
];

const LATE_OFFSET: Kind = Kind::Late(&Kind::One(&Kind::Signed(Width::Eight)));
const SIGNAL: Kind = Kind::By(crate::decode::show::signals::signal, Width::Four);
/// A user or group of 16 bits.
const ID16: Kind = Kind::Signed(Width::Two);

//! Calls on names of files: directories, links, owners, times, file systems.

use super::{Res, Row, call};
use crate::decode::constants as c;
use crate::decode::kind::{AT, Count, FD, HEX, INT, Kind, MODE, PATH, SIZE, TEXT, UINT, Width, bits, named};
use crate::decode::reader::Reader;
use crate::decode::show::files::{self, FILE_MODE};
use crate::decode::show::processes::ID;
use crate::decode::show::time;

const WRITTEN: Kind = Kind::Late(&Kind::Bytes(Count::Result));
const TIMES: Kind = Kind::By(time::file_times, Width::Word);
const VALUE: Kind = Kind::Bytes(Count::Argument(3));

#[rustfmt::skip]
pub(super) static ROWS: &[Row] = &[
    call("access", &[("pathname", PATH), ("mode", ACCESS)], Res::Number),
    call("faccessat", &[("dirfd", AT), ("pathname", PATH), ("mode", ACCESS)], Res::Number),
    call("faccessat2", &[("dirfd", AT), ("pathname", PATH), ("mode", ACCESS), ("flags", bits(&c::AT_ACCESS))], Res::Number),
    call("getcwd", &[("buf", Kind::Late(&PATH)), ("size", SIZE)], Res::Number),
    call("chdir", &[("path", PATH)], Res::Number),
    call("fchdir", &[("fd", FD)], Res::Number),
    call("chroot", &[("path", PATH)], Res::Number),
    call("mkdir", &[("pathname", PATH), ("mode", MODE)], Res::Number),
    call("mkdirat", &[("dirfd", AT), ("pathname", PATH), ("mode", MODE)], Res::Number),
    call("rmdir", &[("pathname", PATH)], Res::Number),
    call("unlink", &[("pathname", PATH)], Res::Number),
    call("unlinkat", &[("dirfd", AT), ("pathname", PATH), ("flags", bits(&c::AT_REMOVE))], Res::Number),
    call("rename", &[("oldpath", PATH), ("newpath", PATH)], Res::Number),
    call("renameat", &[("olddirfd", AT), ("oldpath", PATH), ("newdirfd", AT), ("newpath", PATH)], Res::Number),
    call("renameat2", &[("olddirfd", AT), ("oldpath", PATH), ("newdirfd", AT), ("newpath", PATH), ("flags", bits(&c::RENAME))],
        Res::Number),
    call("link", &[("oldpath", PATH), ("newpath", PATH)], Res::Number),
    call("linkat", &[("olddirfd", AT), ("oldpath", PATH), ("newdirfd", AT), ("newpath", PATH), ("flags", bits(&c::AT_FLAGS))],
        Res::Number),
    call("symlink", &[("target", PATH), ("linkpath", PATH)], Res::Number),
    call("symlinkat", &[("target", PATH), ("newdirfd", AT), ("linkpath", PATH)], Res::Number),
    call("readlink", &[("pathname", PATH), ("buf", WRITTEN), ("bufsiz", SIZE)], Res::Number),
    call("readlinkat", &[("dirfd", AT), ("pathname", PATH), ("buf", WRITTEN), ("bufsiz", SIZE)], Res::Number),
    call("mknod", &[("pathname", PATH), ("mode", FILE_MODE), ("dev", Kind::Chosen(files::mknod_device))], Res::Number),
    call("mknodat", &[("dirfd", AT), ("pathname", PATH), ("mode", FILE_MODE), ("dev", Kind::Chosen(files::mknodat_device))],
        Res::Number),
    call("chmod", &[("pathname", PATH), ("mode", MODE)], Res::Number),
    call("fchmod", &[("fd", FD), ("mode", MODE)], Res::Number),
    call("fchmodat", &[("dirfd", AT), ("pathname", PATH), ("mode", MODE)], Res::Number),
    call("fchmodat2", &[("dirfd", AT), ("pathname", PATH), ("mode", MODE), ("flags", bits(&c::AT_FLAGS))], Res::Number),
    call("chown", &[("pathname", PATH), ("owner", ID), ("group", ID)], Res::Number),
    call("lchown", &[("pathname", PATH), ("owner", ID), ("group", ID)], Res::Number),
    call("fchown", &[("fd", FD), ("owner", ID), ("group", ID)], Res::Number),
    call("chown32", &[("pathname", PATH), ("owner", ID), ("group", ID)], Res::Number),
    call("lchown32", &[("pathname", PATH), ("owner", ID), ("group", ID)], Res::Number),
    call("fchown32", &[("fd", FD), ("owner", ID), ("group", ID)], Res::Number),
    call("fchownat", &[("dirfd", AT), ("pathname", PATH), ("owner", ID), ("group", ID), ("flags", bits(&c::AT_FLAGS))],
        Res::Number),
    call("umask", &[("mask", MODE)], Res::Octal),
    call("utime", &[("filename", PATH), ("times", Kind::By(time::utimbuf, Width::Word))], Res::Number),
    call("utimes", &[("filename", PATH), ("times", Kind::By(time::old_file_times, Width::Word))], Res::Number),
    call("futimesat", &[("dirfd", AT), ("filename", PATH), ("times", Kind::By(time::old_file_times, Width::Word))], Res::Number),
    call("utimensat", &[("dirfd", AT), ("pathname", PATH), ("times", TIMES), ("flags", bits(&c::AT_FLAGS))], Res::Number),
    call("mount", &[("source", TEXT_PATH), ("target", PATH), ("filesystemtype", TEXT), ("mountflags", MOUNT_FLAGS),
        ("data", TEXT)], Res::Number),
    call("umount2", &[("target", PATH), ("flags", bits(&c::UMOUNT))], Res::Number),
    call("umount", &[("target", PATH)], Res::Number),
    call("pivot_root", &[("new_root", PATH), ("put_old", PATH)], Res::Number),
    call("open_tree", &[("dirfd", AT), ("pathname", PATH), ("flags", bits(&c::OPEN_TREE))], Res::Descriptor),
    call("move_mount", &[("from_dirfd", AT), ("from_path", PATH), ("to_dirfd", AT), ("to_path", PATH),
        ("flags", bits(&c::MOVE_MOUNT))], Res::Number),
    call("fsopen", &[("fs_name", TEXT), ("flags", bits(&c::FSOPEN))], Res::Descriptor),
    call("fspick", &[("dirfd", AT), ("pathname", PATH), ("flags", bits(&c::FSPICK))], Res::Descriptor),
    call("fsmount", &[("fs_fd", FD), ("flags", bits(&c::FSMOUNT)), ("attr_flags", bits(&c::MOUNT_ATTR))], Res::Descriptor),
    call("fsconfig", &[("fs_fd", FD), ("cmd", named(&c::FSCONFIG)), ("key", TEXT), ("value", Kind::Chosen(config_value)),
        ("aux", INT)], Res::Number),
    call("mount_setattr", &[("dirfd", AT), ("pathname", PATH), ("flags", bits(&c::AT_FLAGS)),
        ("attr", Kind::To(&files::MOUNT_ATTRIBUTES)), ("size", SIZE)], Res::Number),
    call("swapon", &[("path", PATH), ("swapflags", HEX)], Res::Number),
    call("swapoff", &[("path", PATH)], Res::Number),
    call("acct", &[("filename", PATH)], Res::Number),
    call("uselib", &[("library", PATH)], Res::Number),
    call("quotactl", &[("cmd", HEX), ("special", PATH), ("id", UINT), ("addr", HEX)], Res::Number),
    call("quotactl_fd", &[("fd", FD), ("cmd", HEX), ("id", UINT), ("addr", HEX)], Res::Number),
    call("name_to_handle_at", &[("dirfd", AT), ("pathname", PATH), ("handle", Kind::Late(&Kind::To(&files::HANDLE))),
        ("mount_id", Kind::Late(&Kind::One(&INT))), ("flags", bits(&c::AT_FLAGS))], Res::Number),
    call("open_by_handle_at", &[("mount_fd", FD), ("handle", Kind::To(&files::HANDLE)),
        ("flags", Kind::By(files::open_flags32, Width::Four))], Res::Descriptor),
    call("setxattr", &[("path", PATH), ("name", TEXT), ("value", VALUE), ("size", SIZE), ("flags", bits(&c::XATTR))], Res::Number),
    call("lsetxattr", &[("path", PATH), ("name", TEXT), ("value", VALUE), ("size", SIZE), ("flags", bits(&c::XATTR))], Res::Number),
    call("fsetxattr", &[("fd", FD), ("name", TEXT), ("value", VALUE), ("size", SIZE), ("flags", bits(&c::XATTR))], Res::Number),
    call("getxattr", &[("path", PATH), ("name", TEXT), ("value", XATTR_VALUE), ("size", SIZE)], Res::Number),
    call("lgetxattr", &[("path", PATH), ("name", TEXT), ("value", XATTR_VALUE), ("size", SIZE)], Res::Number),
    call("fgetxattr", &[("fd", FD), ("name", TEXT), ("value", XATTR_VALUE), ("size", SIZE)], Res::Number),
    call("listxattr", &[("path", PATH), ("list", XATTR_LIST), ("size", SIZE)], Res::Number),
    call("llistxattr", &[("path", PATH), ("list", XATTR_LIST), ("size", SIZE)], Res::Number),
    call("flistxattr", &[("fd", FD), ("list", XATTR_LIST), ("size", SIZE)], Res::Number),
    call("setxattrat", &[("dirfd", AT), ("path", PATH), ("at_flags", bits(&c::AT_FLAGS)), ("name", TEXT), ("args", HEX),
        ("size", SIZE)], Res::Number),
    call("getxattrat", &[("dirfd", AT), ("path", PATH), ("at_flags", bits(&c::AT_FLAGS)), ("name", TEXT), ("args", HEX),
        ("size", SIZE)], Res::Number),
    call("listxattrat", &[("dirfd", AT), ("path", PATH), ("at_flags", bits(&c::AT_FLAGS)), ("list", HEX), ("size", SIZE)],
        Res::Number),
    call("removexattrat", &[("dirfd", AT), ("path", PATH), ("at_flags", bits(&c::AT_FLAGS)), ("name", TEXT)], Res::Number),
    call("open_tree_attr", &[("dirfd", AT), ("path", PATH), ("flags", bits(&c::OPEN_TREE)), ("attr", HEX), ("size", SIZE)],
        Res::Descriptor),
    call("file_getattr", &[("dirfd", AT), ("path", PATH), ("attr", HEX), ("size", SIZE), ("at_flags", bits(&c::AT_FLAGS))],
        Res::Number),
    call("file_setattr", &[("dirfd", AT), ("path", PATH), ("attr", HEX), ("size", SIZE), ("at_flags", bits(&c::AT_FLAGS))],
        Res::Number),
    call("removexattr", &[("path", PATH), ("name", TEXT)], Res::Number),
    call("lremovexattr", &[("path", PATH), ("name", TEXT)], Res::Number),
    call("fremovexattr", &[("fd", FD), ("name", TEXT)], Res::Number),
];

const ACCESS: Kind = Kind::By(access, Width::Four);
const TEXT_PATH: Kind = PATH;
const MOUNT_FLAGS: Kind = Kind::By(mount_flags, Width::Word);
const XATTR_VALUE: Kind = Kind::Late(&Kind::By(attribute, Width::Word));
const XATTR_LIST: Kind = Kind::Late(&Kind::By(attribute_names, Width::Word));

fn access(r: &mut Reader, value: u64) {
    match value & 0xffff_ffff {
        0 => r.out.name("F_OK"),
        value => r.bits(&c::ACCESS, value),
    }
}

/// Old programs have a mark in the upper half.
fn mount_flags(r: &mut Reader, value: u64) {
    const MARK: u64 = 0xc0ed_0000;
    if value & 0xffff_0000 == MARK {
        r.out.open_bits();
        r.out.bit("MS_MGC_VAL");
        let out = &mut *r.out;
        let left = c::MOUNT.split(value & 0xffff, |name| out.bit(name));
        if left != 0 {
            r.out.bit_hex(left);
        }
        return r.out.close_bits();
    }
    r.bits(&c::MOUNT, value);
}

/// A value that was asked for, and not only its size.
fn attribute(r: &mut Reader, at: u64) {
    sized(r, at, 3);
}

fn attribute_names(r: &mut Reader, at: u64) {
    sized(r, at, 2);
}

fn sized(r: &mut Reader, at: u64, size: usize) {
    if r.argument(size) == 0 {
        return r.out.address(at);
    }
    let length = r.success().unwrap_or(0).max(0).cast_unsigned();
    r.bytes(at, length);
}

fn config_value(registers: &crate::decode::reader::Registers) -> Option<Kind> {
    Some(match registers.argument(1) as u32 {
        1 => TEXT,
        2 => Kind::Bytes(Count::Argument(4)),
        3 | 4 => PATH,
        _ => Kind::Address,
    })
}

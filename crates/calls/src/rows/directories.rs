//! Calls on names of files: directories, links, owners, times, file systems.

/// The rows, given to the macro `$then`.
#[macro_export]
macro_rules! directories_calls {
    ($then:ident) => { $then! {
        access(pathname: PATH, mode: ACCESS) -> Number, in tested file;
        faccessat(dirfd: AT, pathname: PATH, mode: ACCESS) -> Number, in tested file desc;
        faccessat2(dirfd: AT, pathname: PATH, mode: ACCESS, flags: bits(&c::AT_ACCESS)) -> Number, in tested file desc;
        getcwd(buf: Kind::Late(&PATH), size: SIZE) -> Number, in file;
        chdir(path: PATH) -> Number, in file;
        fchdir(fd: FD) -> Number, in desc;
        chroot(path: PATH) -> Number, in file,
            audit Commands mount.chroot (path: path as Path);
        mkdir(pathname: PATH, mode: MODE) -> Number, in tested file write,
            audit Files file.mkdir (path: pathname as Path, mode: mode as Mode);
        mkdirat(dirfd: AT, pathname: PATH, mode: MODE) -> Number, in tested file desc write,
            audit Files file.mkdir (path: pathname as PathAt(dirfd), mode: mode as Mode);
        rmdir(pathname: PATH) -> Number, in file write,
            audit Files file.rmdir (path: pathname as Path);
        unlink(pathname: PATH) -> Number, in file write,
            audit Files file.remove (path: pathname as Path);
        unlinkat(dirfd: AT, pathname: PATH, flags: bits(&c::AT_REMOVE)) -> Number, in tested file desc write,
            audit Files file.remove (path: pathname as PathAt(dirfd), flags: flags as Number);
        rename(oldpath: PATH, newpath: PATH) -> Number, in file write,
            audit Files file.rename (path: oldpath as Path, to: newpath as Path);
        renameat(olddirfd: AT, oldpath: PATH, newdirfd: AT, newpath: PATH) -> Number, in file desc write,
            audit Files file.rename (path: oldpath as PathAt(olddirfd), to: newpath as PathAt(newdirfd));
        renameat2(olddirfd: AT, oldpath: PATH, newdirfd: AT, newpath: PATH, flags: bits(&c::RENAME)) -> Number,
            in tested file desc write,
            audit Files file.rename (path: oldpath as PathAt(olddirfd), to: newpath as PathAt(newdirfd));
        link(oldpath: PATH, newpath: PATH) -> Number, in file write,
            audit Files file.link (target: oldpath as Path, path: newpath as Path);
        linkat(olddirfd: AT, oldpath: PATH, newdirfd: AT, newpath: PATH, flags: bits(&c::AT_FLAGS)) -> Number,
            in tested file desc write,
            audit Files file.link (target: oldpath as PathOf(olddirfd, flags), path: newpath as PathAt(newdirfd));
        symlink(target: PATH, linkpath: PATH) -> Number, in file write,
            audit Files file.symlink (target: target as Text, path: linkpath as Path);
        symlinkat(target: PATH, newdirfd: AT, linkpath: PATH) -> Number, in file desc write,
            audit Files file.symlink (target: target as Text, path: linkpath as PathAt(newdirfd));
        readlink(pathname: PATH, buf: WRITTEN, bufsiz: SIZE) -> Number, in file;
        readlinkat(dirfd: AT, pathname: PATH, buf: WRITTEN, bufsiz: SIZE) -> Number, in file desc;
        mknod(pathname: PATH, mode: FILE_MODE, dev as int: Kind::Chosen(files::node_device::<1>)) -> Number, in tested file write,
            audit Files file.mknod (path: pathname as Path, mode: mode as Mode);
        mknodat(dirfd: AT, pathname: PATH, mode: FILE_MODE, dev as int: Kind::Chosen(files::node_device::<2>)) -> Number,
            in tested file desc write,
            audit Files file.mknod (path: pathname as PathAt(dirfd), mode: mode as Mode);
        chmod(pathname: PATH, mode: MODE) -> Number, in tested file write,
            audit Files file.chmod (path: pathname as Path, mode: mode as Mode);
        fchmod(fd: FD, mode: MODE) -> Number, in tested desc write,
            audit Files file.chmod (descriptor: fd as Descriptor, mode: mode as Mode);
        fchmodat(dirfd: AT, pathname: PATH, mode: MODE) -> Number, in tested file desc write,
            audit Files file.chmod (path: pathname as PathAt(dirfd), mode: mode as Mode);
        fchmodat2(dirfd: AT, pathname: PATH, mode: MODE, flags: bits(&c::AT_FLAGS)) -> Number, in tested file desc write,
            audit Files file.chmod (path: pathname as PathAt(dirfd), mode: mode as Mode);
        chown(pathname: PATH, owner: ID, group: ID) -> Number, in tested file write,
            audit Files file.chown (path: pathname as Path, owner: owner as Id, group: group as Id);
        lchown(pathname: PATH, owner: ID, group: ID) -> Number, in tested file write,
            audit Files file.chown (path: pathname as Path, owner: owner as Id, group: group as Id);
        fchown(fd: FD, owner: ID, group: ID) -> Number, in tested desc write,
            audit Files file.chown (descriptor: fd as Descriptor, owner: owner as Id, group: group as Id);
        chown32(pathname: PATH, owner: ID, group: ID) -> Number, in tested file write,
            audit Files file.chown (path: pathname as Path, owner: owner as Id, group: group as Id);
        lchown32(pathname: PATH, owner: ID, group: ID) -> Number, in tested file write,
            audit Files file.chown (path: pathname as Path, owner: owner as Id, group: group as Id);
        fchown32(fd: FD, owner: ID, group: ID) -> Number, in tested desc write,
            audit Files file.chown (descriptor: fd as Descriptor, owner: owner as Id, group: group as Id);
        fchownat(dirfd: AT, pathname: PATH, owner: ID, group: ID, flags: bits(&c::AT_FLAGS)) -> Number,
            in tested file desc write,
            audit Files file.chown (path: pathname as PathAt(dirfd), owner: owner as Id, group: group as Id);
        umask(mask: MODE) -> Octal;
        utime(filename: PATH, times: Kind::By(time::utimbuf, Width::Word)) -> Number, in file write;
        utimes(filename: PATH, times: Kind::By(time::old_file_times, Width::Word)) -> Number, in file write;
        futimesat(dirfd: AT, filename: PATH, times: Kind::By(time::old_file_times, Width::Word)) -> Number, in file desc write;
        utimensat(dirfd: AT, pathname: PATH, times: TIMES, flags: bits(&c::AT_FLAGS)) -> Number, in tested file desc write;
        mount(source: TEXT_PATH, target: PATH, filesystemtype: TEXT, mountflags: MOUNT_FLAGS, data: TEXT) -> Number,
            in tested file,
            audit Commands mount.mount (source: source as Text, path: target as Path, type: filesystemtype as Text, flags: mountflags as Number);
        umount2(target: PATH, flags: bits(&c::UMOUNT)) -> Number, in tested file,
            audit Commands mount.umount (path: target as Path);
        umount(target: PATH) -> Number, in file,
            audit Commands mount.umount (path: target as Path);
        pivot_root(new_root: PATH, put_old: PATH) -> Number, in file,
            audit Commands mount.pivot_root (path: new_root as Path, put_old: put_old as Path);
        open_tree(dirfd: AT, pathname: PATH, flags: bits(&c::OPEN_TREE)) -> Descriptor, in tested file desc;
        move_mount(from_dirfd: AT, from_path: PATH, to_dirfd: AT, to_path: PATH, flags: bits(&c::MOVE_MOUNT)) -> Number,
            in tested file desc,
            audit Commands mount.move (from: from_path as PathAt(from_dirfd), path: to_path as PathAt(to_dirfd));
        fsopen(fs_name: TEXT, flags: bits(&c::FSOPEN)) -> Descriptor, in desc;
        fspick(dirfd: AT, pathname: PATH, flags: bits(&c::FSPICK)) -> Descriptor, in file desc;
        fsmount(fs_fd: FD, flags: bits(&c::FSMOUNT), attr_flags: bits(&c::MOUNT_ATTR)) -> Descriptor, in desc;
        fsconfig(fs_fd: FD, cmd: named(&c::FSCONFIG), key: TEXT, value: Kind::Chosen(config_value), aux: INT) -> Number,
            in file desc;
        mount_setattr(dirfd: AT, pathname: PATH, flags: bits(&c::AT_FLAGS), attr: Kind::To(&files::MOUNT_ATTRIBUTES),
            size: SIZE) -> Number, in tested file desc,
            audit Commands mount.attributes (path: pathname as PathAt(dirfd));
        swapon(path: PATH, swapflags as int: HEX) -> Number, in tested file;
        swapoff(path: PATH) -> Number, in file;
        acct(filename: PATH) -> Number, in file;
        uselib(library: PATH) -> Number, in file;
        quotactl(cmd as int: HEX, special: PATH, id: UINT, addr: HEX) -> Number, in tested file;
        quotactl_fd(fd: FD, cmd: HEX, id: UINT, addr: HEX) -> Number, in desc;
        name_to_handle_at(dirfd: AT, pathname: PATH, handle: Kind::Late(&Kind::To(&files::HANDLE)),
            mount_id: Kind::Late(&Kind::One(&INT)), flags: bits(&c::AT_FLAGS)) -> Number, in file desc;
        open_by_handle_at(mount_fd: FD, handle: Kind::To(&files::HANDLE),
            flags: Kind::By(files::open_flags32, Width::Four)) -> Descriptor, in tested desc,
            audit Files file.open if Bits(flags, WRITES) (descriptor: mount_fd as Descriptor, flags: flags as Open),
            audit Full file.open (descriptor: mount_fd as Descriptor, flags: flags as Open);
        setxattr(path: PATH, name: TEXT, value: VALUE, size: SIZE, flags: bits(&c::XATTR)) -> Number, in file write,
            audit Files file.setxattr (path: path as Path, name: name as Text);
        lsetxattr(path: PATH, name: TEXT, value: VALUE, size: SIZE, flags: bits(&c::XATTR)) -> Number, in file write,
            audit Files file.setxattr (path: path as Path, name: name as Text);
        fsetxattr(fd: FD, name: TEXT, value: VALUE, size: SIZE, flags: bits(&c::XATTR)) -> Number, in desc write,
            audit Files file.setxattr (descriptor: fd as Descriptor, name: name as Text);
        getxattr(path: PATH, name: TEXT, value: XATTR_VALUE, size: SIZE) -> Number, in file;
        lgetxattr(path: PATH, name: TEXT, value: XATTR_VALUE, size: SIZE) -> Number, in file;
        fgetxattr(fd: FD, name: TEXT, value: XATTR_VALUE, size: SIZE) -> Number, in desc;
        listxattr(path: PATH, list: XATTR_LIST, size: SIZE) -> Number, in file;
        llistxattr(path: PATH, list: XATTR_LIST, size: SIZE) -> Number, in file;
        flistxattr(fd: FD, list: XATTR_LIST, size: SIZE) -> Number, in desc;
        setxattrat(dirfd: AT, path: PATH, at_flags: bits(&c::AT_FLAGS), name: TEXT, args: HEX, size: SIZE) -> Number,
            in file desc write;
        getxattrat(dirfd: AT, path: PATH, at_flags: bits(&c::AT_FLAGS), name: TEXT, args: HEX, size: SIZE) -> Number,
            in file desc;
        listxattrat(dirfd: AT, path: PATH, at_flags: bits(&c::AT_FLAGS), list: HEX, size: SIZE) -> Number, in file desc;
        removexattrat(dirfd: AT, path: PATH, at_flags: bits(&c::AT_FLAGS), name: TEXT) -> Number, in file desc write;
        open_tree_attr(dirfd: AT, path: PATH, flags: bits(&c::OPEN_TREE), attr: HEX, size: SIZE) -> Descriptor, in file desc;
        file_getattr(dirfd: AT, path: PATH, attr: HEX, size: SIZE, at_flags: bits(&c::AT_FLAGS)) -> Number, in file desc;
        file_setattr(dirfd: AT, path: PATH, attr: HEX, size: SIZE, at_flags: bits(&c::AT_FLAGS)) -> Number, in file desc write;
        removexattr(path: PATH, name: TEXT) -> Number, in file write;
        lremovexattr(path: PATH, name: TEXT) -> Number, in file write;
        fremovexattr(fd: FD, name: TEXT) -> Number, in desc write;
    } };
}

//! Landlock: a process gives up everything that can be reached by a path, a port, an abstract name or a signal. There
//! is no way back, for it and all that it starts. It allows nothing but what its caller names: TCP ports to connect to, or
//! directories.

use crate::{Errno, Result, syscall};
use core::ffi::CStr;

/// What the kernel could be asked to deny.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Denied {
    /// Everything below every directory; since Linux 5.13.
    pub files: bool,
    /// Binding and connecting TCP sockets; since 6.7.
    pub tcp: bool,
    /// Abstract unix-domain sockets of other processes, and signals to them; since 6.12.
    pub others: bool,
}

/// landlock_create_ruleset's version 1: from EXECUTE (bit 0) to MAKE_SYM (12).
const FILES_1: u64 = (1 << 13) - 1;
/// REFER, version 2.
const REFER: u64 = 1 << 13;
/// TRUNCATE, version 3.
const TRUNCATE: u64 = 1 << 14;
/// IOCTL_DEV, version 5. It goes for devices opened afterwards.
const IOCTL_DEV: u64 = 1 << 15;
/// BIND_TCP and CONNECT_TCP, version 4.
const TCP: u64 = 3;
const CONNECT_TCP: u64 = 2;
const RULE_PATH_BENEATH: u32 = 1;
const RULE_NET_PORT: u32 = 2;
/// READ_FILE and READ_DIR.
const READING: u64 = (1 << 2) | (1 << 3);
/// EXECUTE: of what is written nothing is run.
const EXECUTE: u64 = 1;
/// ABSTRACT_UNIX_SOCKET and SIGNAL, version 6.
const SCOPES: u64 = 3;

/// The kernel's version of landlock; 0: it has none, or it is switched off.
pub fn version() -> u32 {
    const ASK_VERSION: u32 = 1;
    // SAFETY: with this flag no attributes are read.
    match unsafe { syscall!(libc::SYS_landlock_create_ruleset, 0, 0, ASK_VERSION) } {
        Ok(version) => version as u32,
        Err(_) => 0,
    }
}

/// What a version of landlock is asked to deny: rights on files, rights on ports, scopes.
const fn handled(version: u32) -> [u64; 3] {
    let mut files = FILES_1;
    if version >= 2 {
        files |= REFER;
    }
    if version >= 3 {
        files |= TRUNCATE;
    }
    if version >= 5 {
        files |= IOCTL_DEV;
    }
    let tcp = if version >= 4 { TCP } else { 0 };
    let scopes = if version >= 6 { SCOPES } else { 0 };
    [files, tcp, scopes]
}

/// Rules before they hold.
struct Ruleset(crate::Fd);

impl Ruleset {
    /// That denies these rights, as the kernel's version with attributes of `size` bytes (at most 24) knows them.
    fn new(denied: [u64; 3], size: usize) -> Result<Ruleset> {
        // SAFETY: the kernel reads `size` bytes of the 24.
        let fd = unsafe { syscall!(libc::SYS_landlock_create_ruleset, denied.as_ptr(), size, 0) }?;
        Ok(Ruleset(crate::Fd::from_raw(fd as i32)))
    }

    /// Allows what `rule` names.
    ///
    /// # Safety
    /// `rule` is the kernel's struct of this kind.
    unsafe fn add(&self, kind: u32, rule: *const u8) -> Result<()> {
        // SAFETY: the caller's.
        unsafe { syscall!(libc::SYS_landlock_add_rule, self.0.raw(), kind, rule, 0) }.map(drop)
    }

    /// Binds the calling thread, and nobody else.
    fn enforce(&self) -> Result<()> {
        // SAFETY: numbers only.
        unsafe { syscall!(libc::SYS_landlock_restrict_self, self.0.raw(), 0) }.map(drop)
    }
}

/// Denies the calling thread all that this kernel's landlock knows. The thread must have no_new_privs or
/// CAP_SYS_ADMIN. Tells what is denied; nothing where the kernel has no landlock.
pub fn deny_all() -> Result<Denied> {
    deny_all_but(&[])
}

/// As [`deny_all`], but TCP sockets may be connected to these ports, wherever they are: the kernel's rules know no
/// addresses.
pub fn deny_all_but(ports: &[u16]) -> Result<Denied> {
    let version = version();
    if version == 0 {
        return Ok(Denied::default());
    }
    let attributes = handled(version);
    // Older kernels refuse a longer struct with bytes set, and know how long theirs is.
    let size = match version {
        ..4 => 8,
        4 | 5 => 16,
        _ => 24,
    };
    let rules = Ruleset::new(attributes, size)?;
    if attributes[1] != 0 {
        for port in ports {
            // struct landlock_net_port_attr: the rights, then the port as this machine writes numbers.
            let rule = [CONNECT_TCP, u64::from(*port)];
            // SAFETY: the kernel reads these 16 bytes.
            unsafe { rules.add(RULE_NET_PORT, rule.as_ptr().cast()) }?;
        }
    }
    rules.enforce()?;
    Ok(Denied {
        files: true,
        tcp: attributes[1] != 0,
        others: attributes[2] != 0,
    })
}

/// Denies the calling thread all files but what lies below these directories: those of `read` to be read, those of `write`
/// to be read and written, none to be executed. The network stays as it is. One that is not there is left out. Tells
/// whether it is so; not where the kernel has no landlock.
pub fn deny_files_but(read: &[&CStr], write: &[&CStr]) -> Result<bool> {
    let version = version();
    if version == 0 {
        return Ok(false);
    }
    let files = handled(version)[0];
    // The first version's attributes.
    let rules = Ruleset::new([files, 0, 0], 8)?;
    let named = |paths: &[&CStr], rights: u64| -> Result<()> {
        for path in paths {
            let place = match crate::exe::open_place(crate::file::CWD, path) {
                Err(Errno::ENOENT | Errno::ENOTDIR) => continue,
                other => other?,
            };
            // struct landlock_path_beneath_attr, packed: the rights, then the descriptor.
            let mut rule = [0; 12];
            rule[..8].copy_from_slice(&rights.to_ne_bytes());
            rule[8..].copy_from_slice(&place.raw().to_ne_bytes());
            // SAFETY: the kernel reads these 12 bytes; the descriptor is open.
            unsafe { rules.add(RULE_PATH_BENEATH, rule.as_ptr()) }?;
        }
        Ok(())
    };
    named(read, READING)?;
    named(write, files & !EXECUTE)?;
    rules.enforce()?;
    Ok(true)
}

/// Whether an error of [`deny_all`] means that this kernel cannot, rather than that we asked wrongly.
pub fn is_missing(errno: Errno) -> bool {
    matches!(errno, Errno::ENOSYS | Errno::EOPNOTSUPP)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_version_is_asked_for_what_it_knows() {
        for (version, files, tcp, scopes) in [
            (1, 0x1fff, 0, 0),
            (2, 0x3fff, 0, 0),
            (3, 0x7fff, 0, 0),
            (4, 0x7fff, 3, 0),
            (5, 0xffff, 3, 0),
            (6, 0xffff, 3, 3),
            (9, 0xffff, 3, 3),
        ] {
            assert_eq!(handled(version), [files, tcp, scopes], "version {version}");
        }
    }

    #[test]
    fn files_are_denied_to_the_thread_that_asked_and_to_no_other() {
        if version() == 0 {
            std::eprintln!("skipped: this kernel has no landlock");
            assert!(
                std::env::var_os("CI").is_none_or(|v| v != "true"),
                "CI must not skip"
            );
            return;
        }
        let open = || crate::file::openat(crate::file::CWD, c"/proc/self/stat", 0, 0).map(drop);
        assert_eq!(open(), Ok(()));
        let denied = std::thread::spawn(move || {
            crate::credentials::set_no_new_privileges().expect("always allowed");
            let denied = deny_all().expect("this kernel has it");
            assert!(denied.files);
            open()
        });
        assert_eq!(denied.join().expect("it ends"), Err(Errno::EACCES));
        assert_eq!(open(), Ok(()));
    }

    #[test]
    fn directories_that_are_named_are_open_and_no_others() {
        if version() == 0 {
            std::eprintln!("skipped: this kernel has no landlock");
            assert!(
                std::env::var_os("CI").is_none_or(|v| v != "true"),
                "CI must not skip"
            );
            return;
        }
        let own = std::env::temp_dir().join(std::format!("fleetgate-landlock-{}", std::process::id()));
        std::fs::create_dir_all(&own).expect("made");
        let path = std::ffi::CString::new(own.to_str().expect("text")).expect("without a NUL");
        let tries = {
            let own = own.clone();
            move || {
                [
                    std::fs::write(own.join("new"), "x").is_ok(),
                    std::fs::rename(own.join("new"), own.join("old")).is_ok(),
                    std::fs::read("/etc/passwd").is_ok(),
                    std::fs::File::options().append(true).open("/etc/passwd").is_ok(),
                    std::fs::read("/proc/self/stat").is_ok(),
                ]
            }
        };
        let confined = std::thread::spawn(move || {
            crate::credentials::set_no_new_privileges().expect("always allowed");
            assert!(deny_files_but(&[c"/etc", c"/not/there"], &[&path]).expect("this kernel has it"));
            tries()
        });
        assert_eq!(
            confined.join().expect("it ends"),
            [true, true, true, false, false]
        );
        assert!(std::fs::read("/proc/self/stat").is_ok(), "another thread's");
        std::fs::remove_dir_all(&own).expect("removed");
    }

    #[test]
    fn the_ports_that_are_named_may_be_connected_to_and_no_others() {
        if version() < 4 {
            std::eprintln!("skipped: this kernel's landlock knows no ports");
            assert!(
                std::env::var_os("CI").is_none_or(|v| v != "true"),
                "CI must not skip"
            );
            return;
        }
        let listeners = [(); 2].map(|()| std::net::TcpListener::bind("127.0.0.1:0").expect("a free port"));
        let [named, other] =
            [&listeners[0], &listeners[1]].map(|l| l.local_addr().expect("an address").port());
        let connect = |port: u16| {
            let address = crate::net::Address::v4([127, 0, 0, 1], port);
            let socket = crate::net::tcp(&address)?;
            match crate::net::connect(&socket, &address) {
                Err(Errno::EINPROGRESS) => Ok(()),
                other => other,
            }
        };
        let confined = std::thread::spawn(move || {
            crate::credentials::set_no_new_privileges().expect("always allowed");
            assert!(deny_all_but(&[named]).expect("this kernel has it").tcp);
            [connect(named), connect(other)]
        });
        assert_eq!(confined.join().expect("it ends"), [Ok(()), Err(Errno::EACCES)]);
        assert_eq!([connect(named), connect(other)], [Ok(()), Ok(())]);
    }
}

//! Users, groups and hosts as the name service switch gives them. These calls may block for as long as a module
//! likes, and run whatever modules /etc/nsswitch.conf names: only for processes that somebody watches.

use super::copied;
use crate::Errno;
use alloc::ffi::CString;
use alloc::vec;
use alloc::vec::Vec;
use core::ffi::{CStr, c_char, c_int};

/// The most groups of one account.
pub const MAX_GROUPS: usize = 8192;
/// The most addresses of one host.
pub const MAX_ADDRESSES: usize = 64;
/// The largest buffer a look-up gets: an entry beyond it is an error.
const MAX_BUFFER: usize = 1 << 20;

/// A passwd entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    /// Its name.
    pub name: CString,
    /// Its number.
    pub uid: u32,
    /// Its primary group.
    pub gid: u32,
    /// Its home directory.
    pub home: CString,
    /// Its shell.
    pub shell: CString,
}

/// A group entry, without its members.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// Its name.
    pub name: CString,
    /// Its number.
    pub gid: u32,
}

/// A shadow entry without its password; the ageing fields are -1 where unset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shadow {
    /// Day of the last change.
    pub last_change: i64,
    /// Days a password lasts.
    pub max_days: i64,
    /// Days after that.
    pub inactive_days: i64,
    /// The day the account ends.
    pub expires: i64,
    /// The password begins with `!`, as `usermod --lock` leaves it.
    pub locked: bool,
}

/// One address of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostAddress {
    /// Version 6, or version 4 mapped into it.
    pub address: [u8; 16],
    /// The scope of a link-local address.
    pub scope: u32,
}

/// Why a host has no addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostError {
    /// There is no such host, or it has no address.
    Unknown,
    /// The resolver's own sentence.
    Failed(CString),
}

/// Calls `ask` with a buffer that grows while it answers ERANGE. `true`: found. The modules give ENOENT and ESRCH
/// for "no such entry" where the manual wants 0.
fn growing(mut ask: impl FnMut(*mut c_char, usize) -> (c_int, bool)) -> Result<Option<Vec<c_char>>, Errno> {
    let mut buffer: Vec<c_char> = vec![0; 1024];
    loop {
        match ask(buffer.as_mut_ptr(), buffer.len()) {
            (0, true) => return Ok(Some(buffer)),
            (0, false) | (libc::ENOENT | libc::ESRCH, _) => return Ok(None),
            (libc::ERANGE, _) if buffer.len() < MAX_BUFFER => buffer = vec![0; buffer.len() * 4],
            (errno, _) => return Err(Errno(errno)),
        }
    }
}

/// # Safety
/// `entry` must have been filled by a look-up whose buffer is still alive.
unsafe fn user(entry: &libc::passwd) -> User {
    // SAFETY: the entry's strings stand in the caller's buffer.
    unsafe {
        User {
            name: copied(entry.pw_name),
            uid: entry.pw_uid,
            gid: entry.pw_gid,
            home: copied(entry.pw_dir),
            shell: copied(entry.pw_shell),
        }
    }
}

/// One entry of a database: `ask` is a call of the C library that fills it, and `read` copies it.
///
/// # Safety
/// All fields of `E` are numbers and pointers, for which zero is a value. `ask` writes the entry and, beside it, into the
/// buffer of the given length, which lives until `read` has copied the strings.
unsafe fn look_up<E, T>(
    ask: impl Fn(*mut E, *mut c_char, usize, *mut *mut E) -> c_int,
    read: impl FnOnce(&E) -> T,
) -> Result<Option<T>, Errno> {
    // SAFETY: the caller's.
    let mut entry: E = unsafe { core::mem::zeroed() };
    let found = growing(|buffer, len| {
        let mut result = core::ptr::null_mut();
        let code = ask(&raw mut entry, buffer, len, &raw mut result);
        (code, !result.is_null())
    })?;
    Ok(found.map(|_buffer| read(&entry)))
}

/// The account called `name`.
pub fn user_by_name(name: &CStr) -> Result<Option<User>, Errno> {
    // SAFETY: passwd is such a struct, and getpwnam_r such a call.
    unsafe {
        look_up(
            |e, b, n, r| libc::getpwnam_r(name.as_ptr(), e, b, n, r),
            |e| user(e),
        )
    }
}

/// The account with number `uid`.
pub fn user_by_id(uid: u32) -> Result<Option<User>, Errno> {
    // SAFETY: as in `user_by_name`.
    unsafe { look_up(|e, b, n, r| libc::getpwuid_r(uid, e, b, n, r), |e| user(e)) }
}

/// The group called `name`.
pub fn group_by_name(name: &CStr) -> Result<Option<Group>, Errno> {
    // SAFETY: group is such a struct, and getgrnam_r such a call.
    unsafe {
        look_up(
            |e, b, n, r| libc::getgrnam_r(name.as_ptr(), e, b, n, r),
            |e| group(e),
        )
    }
}

/// The group with number `gid`.
pub fn group_by_id(gid: u32) -> Result<Option<Group>, Errno> {
    // SAFETY: as in `group_by_name`.
    unsafe { look_up(|e, b, n, r| libc::getgrgid_r(gid, e, b, n, r), |e| group(e)) }
}

/// # Safety
/// As of [`user`].
unsafe fn group(entry: &libc::group) -> Group {
    Group {
        // SAFETY: the entry's string stands in the caller's buffer.
        name: unsafe { copied(entry.gr_name) },
        gid: entry.gr_gid,
    }
}

/// Every group of `name`, `primary` among them. `E2BIG` beyond [`MAX_GROUPS`]: a login with some of its groups
/// missing could get in where a group is there to keep it out.
pub fn groups_of(name: &CStr, primary: u32) -> Result<Vec<u32>, Errno> {
    let mut groups: Vec<u32> = vec![0; 64];
    loop {
        let mut count = groups.len() as c_int;
        // SAFETY: the call writes at most `count` numbers, as many as the list has, and their true count.
        let fitted =
            unsafe { libc::getgrouplist(name.as_ptr(), primary, groups.as_mut_ptr(), &raw mut count) };
        if fitted >= 0 {
            groups.truncate(count.max(0) as usize);
            return Ok(groups);
        }
        if groups.len() >= MAX_GROUPS {
            return Err(Errno::E2BIG);
        }
        let wanted = (count.max(0) as usize).max(groups.len() * 2);
        groups = vec![0; wanted.min(MAX_GROUPS)];
    }
}

/// The ageing of `name`; none without a shadow entry, or without the right to read it.
pub fn shadow_of(name: &CStr) -> Result<Option<Shadow>, Errno> {
    // SAFETY: as in `look_up`. The buffer holds a password hash: it is wiped before it is freed.
    unsafe {
        let mut entry: libc::spwd = core::mem::zeroed();
        let found = growing(|buffer, len| {
            let mut result = core::ptr::null_mut();
            let code = libc::getspnam_r(name.as_ptr(), &raw mut entry, buffer, len, &raw mut result);
            (code, !result.is_null())
        });
        match found {
            Ok(Some(mut buffer)) => {
                let locked = !entry.sp_pwdp.is_null() && *entry.sp_pwdp.cast::<u8>() == b'!';
                buffer.fill(0);
                core::hint::black_box(&buffer);
                Ok(Some(Shadow {
                    last_change: entry.sp_lstchg,
                    max_days: entry.sp_max,
                    inactive_days: entry.sp_inact,
                    expires: entry.sp_expire,
                    locked,
                }))
            }
            Ok(None) | Err(Errno::EACCES | Errno::EPERM) => Ok(None),
            Err(e) => Err(e),
        }
    }
}

/// The addresses of `host`, best first as RFC 6724 sorts them.
pub fn host(host: &CStr) -> Result<Vec<HostAddress>, HostError> {
    // SAFETY: hints are numbers and null pointers; the list that the call makes is walked by its own links and
    // freed once; each address has the size that its family says.
    unsafe {
        let mut hints: libc::addrinfo = core::mem::zeroed();
        hints.ai_socktype = libc::SOCK_STREAM;
        let mut list = core::ptr::null_mut();
        let code = libc::getaddrinfo(host.as_ptr(), core::ptr::null(), &raw const hints, &raw mut list);
        match code {
            0 => {}
            libc::EAI_NONAME | libc::EAI_NODATA => return Err(HostError::Unknown),
            libc::EAI_SYSTEM => {
                let errno = Errno(*libc::__errno_location());
                return Err(HostError::Failed(
                    CString::new(alloc::format!("{errno}")).unwrap_or_default(),
                ));
            }
            code => return Err(HostError::Failed(copied(libc::gai_strerror(code)))),
        }
        let mut out = Vec::new();
        let mut at: *const libc::addrinfo = list;
        while !at.is_null() && out.len() < MAX_ADDRESSES {
            match (*at).ai_family {
                libc::AF_INET => {
                    let v4 = &*(*at).ai_addr.cast::<libc::sockaddr_in>();
                    let mut address = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0, 0, 0, 0];
                    address[12..].copy_from_slice(&v4.sin_addr.s_addr.to_ne_bytes());
                    out.push(HostAddress { address, scope: 0 });
                }
                libc::AF_INET6 => {
                    let v6 = &*(*at).ai_addr.cast::<libc::sockaddr_in6>();
                    out.push(HostAddress {
                        address: v6.sin6_addr.s6_addr,
                        scope: v6.sin6_scope_id,
                    });
                }
                _ => {}
            }
            at = (*at).ai_next;
        }
        libc::freeaddrinfo(list);
        Ok(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_is_known_by_name_and_number() {
        let root = user_by_name(c"root").expect("look-up").expect("root");
        assert_eq!(root.uid, 0);
        assert_eq!(user_by_id(0).expect("look-up"), Some(root));
        assert!(groups_of(c"root", 0).expect("look-up").contains(&0));
        assert_eq!(group_by_id(0).expect("look-up").map(|g| g.gid), Some(0));
    }

    #[test]
    fn nobody_by_a_made_up_name() {
        assert_eq!(user_by_name(c"fleetgate-no-such"), Ok(None));
        assert_eq!(group_by_name(c"fleetgate-no-such"), Ok(None));
        assert_eq!(shadow_of(c"fleetgate-no-such"), Ok(None));
    }

    #[test]
    fn numbers_are_hosts() {
        let found = host(c"127.0.0.1").expect("a numeric address");
        assert_eq!(found[0].address[12..], [127, 0, 0, 1]);
        let found = host(c"::1").expect("a numeric address");
        assert_eq!(found[0].address[15], 1);
    }
}

//! Accounts of the container: its own /etc/passwd and /etc/group, read as what they are, files of a stranger's. No name
//! service is asked: the machine's knows nothing of them, and the container's would be its code.
//!
//! The rules are those of `runc exec --user` and `docker exec --user`: a number that no account has is taken as it is, with
//! group 0; a name must be there.

use alloc::ffi::CString;
use alloc::string::String;
use alloc::vec::Vec;
use core::ffi::CStr;
use fleetgate_session::order::failure;
use fleetgate_sys::file::{self, flags, resolve};
use fleetgate_sys::{Errno, exe};
use fleetgate_wire::common::{Account, Ids};
use fleetgate_wire::container::InsideUser;
use fleetgate_wire::{Failure, Reason};

/// The most of one of the files that is read.
const MAX_FILE: usize = 1 << 20;
/// The most groups that an account is given.
const MAX_GROUPS: usize = 1024;
/// The longest home directory and shell.
const MAX_PATH: usize = 4096;
const SHELL: &CStr = c"/bin/sh";

/// The account of `user`, by the files of the root that this process is in.
pub fn find(user: &InsideUser) -> Result<Account, Failure> {
    let passwd = read(c"/etc/passwd")?;
    match user {
        InsideUser::Numbers { ids } => Ok(by_numbers(&passwd, ids)),
        InsideUser::Named { name } => {
            let groups = read(c"/etc/group")?;
            by_name(&passwd, &groups, name.to_bytes())
        }
    }
}

/// An account of `passwd`.
struct Entry<'a> {
    name: &'a [u8],
    uid: u32,
    gid: u32,
    home: &'a [u8],
    shell: &'a [u8],
}

fn entries(passwd: &[u8]) -> impl Iterator<Item = Entry<'_>> {
    passwd.split(|b| *b == b'\n').filter_map(|line| {
        let mut fields = line.split(|b| *b == b':');
        let name = fields.next().filter(|name| !name.is_empty())?;
        let _password = fields.next()?;
        let uid = number(fields.next()?)?;
        let gid = number(fields.next()?)?;
        let _comment = fields.next()?;
        let (home, shell) = (fields.next()?, fields.next().unwrap_or_default());
        Some(Entry {
            name,
            uid,
            gid,
            home,
            shell,
        })
    })
}

fn number(text: &[u8]) -> Option<u32> {
    if text.is_empty() || !text.iter().all(u8::is_ascii_digit) {
        return None;
    }
    // The last number is "no id" to the kernel.
    core::str::from_utf8(text)
        .ok()?
        .parse()
        .ok()
        .filter(|id| *id != u32::MAX)
}

/// An account by these numbers; what the file knows of the user id beside them.
pub fn by_numbers(passwd: &[u8], ids: &Ids) -> Account {
    let found = entries(passwd).find(|entry| entry.uid == ids.uid);
    account(found.as_ref(), ids.clone())
}

/// The account that somebody typed: `USER` or `USER:GROUP`, each by name or number.
pub fn by_name(passwd: &[u8], groups: &[u8], typed: &[u8]) -> Result<Account, Failure> {
    let (user, group) = match typed.iter().position(|b| *b == b':') {
        Some(at) => (&typed[..at], Some(&typed[at + 1..])),
        None => (typed, None),
    };
    let none = |text: &[u8], what| {
        let subject = alloc::format!("{what} {}", String::from_utf8_lossy(text));
        failure(Reason::NoUser, Errno(0), &subject)
    };
    let entry = entries(passwd)
        .find(|entry| entry.name == user)
        .or_else(|| entries(passwd).find(|entry| Some(entry.uid) == number(user)));
    let uid = match (&entry, number(user)) {
        (Some(entry), _) => entry.uid,
        (None, Some(uid)) => uid,
        (None, None) => return Err(none(user, "the account")),
    };
    let gid = match group {
        None => entry.as_ref().map_or(0, |entry| entry.gid),
        Some(group) => group_number(groups, group).ok_or_else(|| none(group, "the group"))?,
    };
    // As initgroups, but where the group was asked for.
    let groups = match (&entry, group) {
        (Some(entry), None) => member_of(groups, entry.name, gid),
        _ => Vec::from([gid]),
    };
    Ok(account(entry.as_ref(), Ids { uid, gid, groups }))
}

/// The fields of a group: name, number, members.
fn groups_of(text: &[u8]) -> impl Iterator<Item = (&[u8], u32, &[u8])> {
    text.split(|b| *b == b'\n').filter_map(|line| {
        let mut fields = line.split(|b| *b == b':');
        let (name, _password) = (fields.next()?, fields.next()?);
        Some((name, number(fields.next()?)?, fields.next().unwrap_or_default()))
    })
}

fn group_number(text: &[u8], group: &[u8]) -> Option<u32> {
    let named = groups_of(text).find(|(name, ..)| *name == group);
    named.map(|(_, gid, _)| gid).or_else(|| number(group))
}

fn member_of(text: &[u8], user: &[u8], gid: u32) -> Vec<u32> {
    let mut all = Vec::from([gid]);
    let others = groups_of(text).filter(|(_, other, members)| {
        *other != gid && members.split(|b| *b == b',').any(|name| name == user)
    });
    all.extend(others.map(|(_, other, _)| other).take(MAX_GROUPS - 1));
    all
}

fn account(entry: Option<&Entry<'_>>, ids: Ids) -> Account {
    let path = |text: &[u8], other: &CStr| match text {
        [b'/', ..] if text.len() <= MAX_PATH => CString::new(text).unwrap_or_else(|_| other.into()),
        _ => other.into(),
    };
    Account {
        name: entry
            .and_then(|entry| CString::new(entry.name).ok())
            .unwrap_or_else(|| CString::new(alloc::format!("{}", ids.uid)).unwrap_or_default()),
        home: path(entry.map_or(b"", |entry| entry.home), c"/"),
        shell: path(entry.map_or(b"", |entry| entry.shell), SHELL),
        ids,
        ageing: None,
    }
}

/// The file's content; empty where there is none. What is no regular file is refused: it might never end, or never begin.
fn read(path: &CStr) -> Result<Vec<u8>, Failure> {
    let at = |reason, errno| failure(reason, errno, &crate::host::in_container(&path.to_string_lossy()));
    let how = flags::O_RDONLY | flags::O_NONBLOCK | flags::O_NOCTTY;
    let fd = match file::open_safely(file::CWD, path, how, resolve::NO_MAGIC_LINKS) {
        Ok(fd) => fd,
        Err(Errno::ENOENT | Errno::ENOTDIR) => return Ok(Vec::new()),
        Err(errno) => return Err(at(Reason::System, errno)),
    };
    if !exe::identity(&fd).is_ok_and(|file| file.is_file()) {
        return Err(at(Reason::WrongKind, Errno(0)));
    }
    let text = file::read_up_to(&fd, MAX_FILE + 1).map_err(|errno| at(Reason::System, errno))?;
    if text.len() > MAX_FILE {
        return Err(at(Reason::TooLarge, Errno::EFBIG));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PASSWD: &[u8] = b"root:x:0:0:root:/root:/bin/bash\napp:x:1000:1001:an app:/srv/app:\nbad:x:nobody:1:::\n\
        low:x:7:7::relative:sh\n:x:5:5::/:/bin/sh\nlast:x:4294967295:1::/:/bin/sh\n1234:x:77:78::/home/n:/bin/n\nshort:x:9\n";
    const GROUPS: &[u8] =
        b"root:x:0:\nadm:x:4:app,low\nbroken\nmore:x:12:low\ntoo:x:99999999999:app\nown:x:1001:app\n";

    fn named(typed: &str) -> Result<Account, Failure> {
        by_name(PASSWD, GROUPS, typed.as_bytes())
    }

    #[test]
    fn a_name_brings_its_account() {
        let app = named("app").expect("there");
        assert_eq!(
            (app.ids.uid, app.ids.gid, app.ids.groups),
            (1000, 1001, Vec::from([1001, 4]))
        );
        assert_eq!(
            (app.home.as_c_str(), app.shell.as_c_str()),
            (c"/srv/app", c"/bin/sh")
        );
        // A name of digits is a name first.
        assert_eq!(named("1234").expect("there").ids.uid, 77);
        // What is no path is not taken for one.
        let low = named("low").expect("there");
        assert_eq!((low.home.as_c_str(), low.shell.as_c_str()), (c"/", c"/bin/sh"));
    }

    #[test]
    fn numbers_need_no_account_and_names_do() {
        let ids = named("4242").expect("a number").ids;
        assert_eq!((ids.uid, ids.gid, ids.groups), (4242, 0, Vec::from([0])));
        let ids = named("1000:adm").expect("both").ids;
        assert_eq!((ids.uid, ids.gid, ids.groups), (1000, 4, Vec::from([4])));
        assert_eq!(named("app:31").expect("a number").ids.gid, 31);
        for typed in [
            "nobody",
            "",
            "app:none",
            "app:",
            "bad",
            "-1",
            "4294967295",
            "0x0",
            "last",
        ] {
            let failure = named(typed).expect_err("refused");
            assert_eq!(failure.reason, Reason::NoUser, "{typed}");
        }
    }

    #[test]
    fn the_containers_own_numbers_stay_as_they_are() {
        let ids = Ids {
            uid: 1000,
            gid: 5,
            groups: Vec::from([5, 6]),
        };
        let account = by_numbers(PASSWD, &ids);
        assert_eq!(account.ids, ids);
        assert_eq!(
            (account.name.as_c_str(), account.home.as_c_str()),
            (c"app", c"/srv/app")
        );
        let stranger = by_numbers(b"", &Ids { uid: 31, ..ids });
        assert_eq!(
            (stranger.name.as_c_str(), stranger.home.as_c_str()),
            (c"31", c"/")
        );
    }

    #[test]
    fn a_thousand_groups_and_no_more() {
        let groups: String = (0..5000).map(|i| alloc::format!("g{i}:x:{i}:app\n")).collect();
        let ids = by_name(PASSWD, groups.as_bytes(), b"app").expect("there").ids;
        assert_eq!(ids.groups.len(), MAX_GROUPS);
    }
}

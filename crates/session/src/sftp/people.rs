//! Names of users and groups for listings, and their home directories.
//!
//! Asked of the resolver where the order brought a connection to it; else read from /etc/passwd and /etc/group,
//! as the session sees them: in a chroot those of the chroot, as with OpenSSH. Never waits long: a name that does
//! not come in time is shown as its number.

use alloc::collections::BTreeMap;
use alloc::ffi::CString;
use alloc::vec::Vec;
use fleetgate_sys::file::{self, CWD, flags};
use fleetgate_sys::poll::{self, Watch};
use fleetgate_sys::{Fd, clock, socket, stream};
use fleetgate_wire::names::{About, Answer, Found, MAX_IDS, Question};
use fleetgate_wire::{MAX_INLINE, decode, encode};

/// How long one question may hold the session up.
const PATIENCE_MS: u32 = 1_000;
/// After a question that was not answered in time none is asked for so long: a hanging name service costs a
/// session one second in thirty.
const SILENCE_NS: i64 = 30 * 1_000_000_000;
/// The most names kept; more users than this on one machine are shown as numbers.
const MOST_KEPT: usize = 16_384;
/// The longest /etc/passwd or /etc/group that is read.
const MAX_FILE: usize = 8 << 20;

/// Where names come from.
enum Source {
    /// The resolver, at the other end.
    Resolver {
        socket: Fd,
        next: u32,
        silent_until: i64,
    },
    /// The files, not read yet.
    Files,
    /// Nowhere (any more).
    Nowhere,
}

/// What is known of names. An id that nobody knows is kept too, with an empty name.
pub struct People {
    source: Source,
    users: BTreeMap<u32, Vec<u8>>,
    groups: BTreeMap<u32, Vec<u8>>,
}

impl People {
    fn of(source: Source) -> People {
        People {
            source,
            users: BTreeMap::new(),
            groups: BTreeMap::new(),
        }
    }

    /// Asks the resolver.
    pub fn from_resolver(socket: Fd) -> People {
        People::of(Source::Resolver {
            socket,
            next: 1,
            silent_until: i64::MIN,
        })
    }

    /// Reads the files.
    pub fn from_files() -> People {
        People::of(Source::Files)
    }

    /// Knows nobody.
    #[cfg(test)]
    pub fn nobody() -> People {
        People::of(Source::Nowhere)
    }

    /// Finds out the names of `ids`, pairs of user and group, that are not known yet.
    pub fn learn(&mut self, ids: impl Iterator<Item = (u32, u32)>) {
        let (mut uids, mut gids) = (Vec::new(), Vec::new());
        for (uid, gid) in ids {
            if !self.users.contains_key(&uid) && !uids.contains(&uid) {
                uids.push(uid);
            }
            if !self.groups.contains_key(&gid) && !gids.contains(&gid) {
                gids.push(gid);
            }
        }
        self.learn_ids(uids, gids);
    }

    /// The same for two lists.
    pub fn learn_ids(&mut self, mut uids: Vec<u32>, mut gids: Vec<u32>) {
        uids.retain(|id| !self.users.contains_key(id));
        gids.retain(|id| !self.groups.contains_key(id));
        uids.truncate(MAX_IDS / 2);
        gids.truncate(MAX_IDS / 2);
        if uids.is_empty() && gids.is_empty() {
            return;
        }
        if let Source::Files = self.source {
            self.read_files();
        }
        if let Source::Resolver { .. } = self.source {
            let about = About::Names {
                uids: uids.clone(),
                gids: gids.clone(),
            };
            if let Some(Found::Names { users, groups }) = self.ask(about) {
                keep(&mut self.users, uids.into_iter().zip(users));
                keep(&mut self.groups, gids.into_iter().zip(groups));
            }
        }
    }

    /// The name of a user, else the number.
    pub fn user(&self, line: &mut Vec<u8>, uid: u32) {
        name_or_number(line, self.users.get(&uid), uid);
    }

    /// The name of a group, else the number.
    pub fn group(&self, line: &mut Vec<u8>, gid: u32) {
        name_or_number(line, self.groups.get(&gid), gid);
    }

    /// The name of a user; empty where unknown.
    pub fn user_name(&self, uid: u32) -> &[u8] {
        self.users.get(&uid).map_or(b"", Vec::as_slice)
    }

    /// The name of a group; empty where unknown.
    pub fn group_name(&self, gid: u32) -> &[u8] {
        self.groups.get(&gid).map_or(b"", Vec::as_slice)
    }

    /// The home directory of a user.
    pub fn home(&mut self, user: &CString) -> Option<Vec<u8>> {
        match self.source {
            Source::Resolver { .. } => match self.ask(About::User { name: user.clone() }) {
                Some(Found::User { account }) => Some(account.home.into_bytes()),
                _ => None,
            },
            Source::Files | Source::Nowhere => {
                let text = read(c"/etc/passwd")?;
                let mut lines = text.split(|b| *b == b'\n');
                lines.find_map(|line| {
                    let mut fields = line.split(|b| *b == b':');
                    let same = fields.next() == Some(user.as_bytes()) && !user.is_empty();
                    let home = fields.nth(4)?;
                    (same && !home.is_empty()).then(|| home.to_vec())
                })
            }
        }
    }

    fn read_files(&mut self) {
        self.source = Source::Nowhere;
        for (path, names) in [
            (c"/etc/passwd", &mut self.users),
            (c"/etc/group", &mut self.groups),
        ] {
            let text = read(path).unwrap_or_default();
            for line in text.split(|b| *b == b'\n') {
                let mut fields = line.split(|b| *b == b':');
                let name = fields.next().unwrap_or_default();
                let id = fields
                    .nth(1)
                    .and_then(|f| core::str::from_utf8(f).ok()?.parse().ok());
                // The first of two lines with one id counts, as in the C library.
                if let Some(id) = id
                    && !name.is_empty()
                    && names.len() < MOST_KEPT
                {
                    names.entry(id).or_insert_with(|| name.to_vec());
                }
            }
        }
    }

    /// Asks one question and waits for its answer; answers that come too late are dropped.
    fn ask(&mut self, about: About) -> Option<Found> {
        let Source::Resolver {
            socket,
            next,
            silent_until,
        } = &mut self.source
        else {
            return None;
        };
        let start = clock::monotonic().as_nanos();
        if start < *silent_until {
            return None;
        }
        let id = *next;
        *next = next.wrapping_add(1);
        let question = Question {
            id,
            deadline_ms: PATIENCE_MS,
            about,
        };
        let mut buffer = alloc::vec![0; MAX_INLINE];
        if stream::send_now(socket.raw(), &encode(&question)).is_ok() {
            loop {
                let spent = (clock::monotonic().as_nanos() - start) / 1_000_000;
                let left = i64::from(PATIENCE_MS) - spent;
                let mut watch = [Watch::new(socket.raw(), poll::READ)];
                let left = u32::try_from(left).unwrap_or(0);
                if left == 0 || poll::poll(&mut watch, Some(left)) != Ok(1) {
                    break;
                }
                match socket::receive(socket, &mut buffer, false) {
                    Ok(message) if message.len > 0 && !message.truncated => {
                        match decode::<Answer>(&buffer[..message.len]) {
                            Ok(answer) if answer.id == id => return Some(answer.found),
                            // An answer to a question that was given up.
                            Ok(_) => continue,
                            Err(_) => break,
                        }
                    }
                    _ => {
                        self.source = Source::Nowhere;
                        return None;
                    }
                }
            }
        }
        *silent_until = clock::monotonic().as_nanos() + SILENCE_NS;
        None
    }
}

fn keep(names: &mut BTreeMap<u32, Vec<u8>>, found: impl Iterator<Item = (u32, CString)>) {
    for (id, name) in found {
        if names.len() < MOST_KEPT {
            names.insert(id, name.into_bytes());
        }
    }
}

/// A number in at least `width` places, filled up on its left.
pub(super) fn number(line: &mut Vec<u8>, mut n: u64, width: usize, fill: u8) {
    let mut digits = [fill; 20];
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (n % 10) as u8;
        n /= 10;
        if n == 0 {
            break;
        }
    }
    line.extend_from_slice(&digits[at.min(digits.len() - width.min(20))..]);
}

fn name_or_number(line: &mut Vec<u8>, name: Option<&Vec<u8>>, id: u32) {
    match name {
        Some(name) if !name.is_empty() => line.extend_from_slice(&name[..name.len().min(256)]),
        _ => number(line, id.into(), 0, b' '),
    }
}

fn read(path: &core::ffi::CStr) -> Option<Vec<u8>> {
    let fd = file::openat(
        CWD,
        path,
        flags::O_RDONLY | flags::O_NOCTTY | flags::O_NONBLOCK,
        0,
    )
    .ok()?;
    file::read_to_end(&fd, MAX_FILE).ok()
}

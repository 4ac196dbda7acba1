//! Extensions that are about people: their home directories, their names, `~` in a path.

use super::operations::{Outcome, Session};
use super::protocol::{MAX_PACKET, Status, kind, short};
use super::realpath;
use super::request;
use alloc::ffi::CString;
use alloc::vec::Vec;
use core::ffi::CStr;
use fleetgate_sys::tree;

impl Session {
    /// As REALPATH, but `~` is where the session started and `~user` that user's home directory.
    pub(super) fn expand_path(&mut self, id: u32, path: &CStr) -> Outcome {
        let path = path.to_bytes();
        let expanded = match path.strip_prefix(b"~") {
            None => path.to_vec(),
            Some(rest) => {
                let (user, below) = match rest.iter().position(|b| *b == b'/') {
                    Some(slash) => rest.split_at(slash),
                    None => (rest, &b""[..]),
                };
                let mut start = if user.is_empty() {
                    tree::working_directory()?
                } else {
                    let user = CString::new(user).unwrap_or_default();
                    match self.people.home(&user) {
                        Some(home) => home,
                        None => {
                            self.output.status_because(id, Status::NoSuchFile, "no such user");
                            return Ok(());
                        }
                    }
                };
                start.extend_from_slice(below);
                start
            }
        };
        let path = realpath::resolve(&expanded)?;
        self.output.name(id, &path);
        Ok(())
    }

    /// A user's home directory; no name asks for one's own.
    pub(super) fn home_directory(&mut self, id: u32, user: &CString) -> Outcome {
        let home = if user.is_empty() {
            match &self.home {
                Some(home) => Some(home.as_bytes().to_vec()),
                None => Some(tree::working_directory()?),
            }
        } else {
            self.people.home(user)
        };
        let home = home.ok_or(Status::Failure)?;
        self.output.name(id, &home);
        Ok(())
    }

    /// Names by ids, in the order asked, empty where unknown.
    pub(super) fn users_groups(&mut self, id: u32, uids: &[u8], gids: &[u8]) -> Outcome {
        let uids = request::ids(uids).ok_or(Status::BadMessage)?;
        let gids = request::ids(gids).ok_or(Status::BadMessage)?;
        self.people.learn_ids(uids.clone(), gids.clone());
        let (mut users, mut groups) = (Vec::new(), Vec::new());
        for uid in uids {
            put(&mut users, self.people.user_name(uid));
        }
        for gid in gids {
            put(&mut groups, self.people.group_name(gid));
        }
        if users.len() + groups.len() + 16 > MAX_PACKET {
            return Err(Status::Failure);
        }
        let mut answer = self.output.answer(kind::EXTENDED_REPLY, id);
        answer.string(&users);
        answer.string(&groups);
        answer.finish();
        Ok(())
    }
}

fn put(names: &mut Vec<u8>, name: &[u8]) {
    names.extend_from_slice(&short(name.len()).to_be_bytes());
    names.extend_from_slice(name);
}

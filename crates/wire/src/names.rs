//! Questions to the resolver about names, on a look-up socket: the other end of one that travelled with
//! [`crate::resolver::ToResolver::Names`]. Many may be unanswered at once; answers come in the order they are found.

use crate::common::{Account, Endpoint};
use crate::{choice, record};
use alloc::ffi::CString;
use alloc::vec::Vec;

/// The most questions of one socket that may be unanswered at once; the resolver reads no more until it has
/// answered some.
pub const MAX_UNANSWERED: usize = 64;
/// The most ids that one [`About::Names`] may ask about.
pub const MAX_IDS: usize = 1024;
/// The longest name that is looked up.
pub const MAX_NAME: usize = 1024;
/// The longest any answer takes, whatever deadline the question has.
pub const MAX_DEADLINE_MS: u32 = 10_000;

record! {
    /// A question.
    pub struct Question {
        /// The number its answer will carry.
        pub id: u32,
        /// How long the answer may take; [`MAX_DEADLINE_MS`] applies beside it, and instead of 0.
        pub deadline_ms: u32,
        /// What is asked.
        pub about: About,
    }
}

choice! {
    /// What is asked.
    pub enum About("question") {
        /// An account by name, with all its groups and its ageing.
        0 => User { name: CString },
        /// An account by id.
        1 => UserById { uid: u32 },
        /// Names of users and groups by id (sftp listings).
        2 => Names { uids: Vec<u32>, gids: Vec<u32> },
        /// A group by name.
        3 => Group { name: CString },
        /// Addresses of a host.
        4 => Host { name: CString, port: u16 },
        /// The SELinux context of a login.
        5 => Context { user: CString },
    }
}

record! {
    /// An answer.
    pub struct Answer {
        /// The question's number.
        pub id: u32,
        /// The answer.
        pub found: Found,
    }
}

choice! {
    /// The answer.
    pub enum Found("answer") {
        /// The account.
        0 => User { account: Account },
        /// Names in the order asked, empty where unknown.
        1 => Names { users: Vec<CString>, groups: Vec<CString> },
        /// The group's id.
        2 => Group { gid: u32 },
        /// The addresses, best first.
        3 => Host { addresses: Vec<Endpoint> },
        /// The context; none where SELinux is off.
        4 => Context { context: Option<CString> },
        /// There is none such.
        5 => Unknown,
        /// The name service did not answer in time.
        6 => TimedOut,
        /// The name service failed; the sentence says how.
        7 => Failed { why: CString },
    }
}

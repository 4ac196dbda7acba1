//! Questions to the resolver about names, on its look-up socket. Many may be unanswered at once.

use crate::common::{Account, Endpoint};
use crate::{choice, record};
use alloc::ffi::CString;
use alloc::vec::Vec;

record! {
    /// A question.
    pub struct Question {
        /// The number its answer will carry.
        pub id: u32,
        /// How long the answer may take; the resolver's own bound applies beside it.
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
        /// Forget what is cached.
        6 => Forget,
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
        /// Done.
        5 => Forgotten,
        /// There is none such.
        6 => Unknown,
        /// The name service did not answer in time.
        7 => TimedOut,
        /// The name service failed; the sentence says how.
        8 => Failed { why: CString },
    }
}

//! What the helper says of its order.
//!
//! `exec`: Ready, in a container Entered, Leaving, then the socket closes because the program was executed; or Failed at any point.
//! `networking`, `sftp`: Ready, then their own frames. `checkhomedir`: Home.

use crate::{choice, record};
use alloc::ffi::CString;
use alloc::vec::Vec;

choice! {
    /// One message of the helper.
    pub enum Reply("reply") {
        /// The image runs and everything that needs root is done; exec and sftp say it **before** privileges
        /// drop, so nothing a user does to his own processes can look like a bad image. Networking says it after.
        /// In a container: what takes the machine's files is done; the container may cause a death from here on.
        0 => Ready,
        /// The next system call executes the user's program. Not said: it certainly did not run.
        1 => Leaving {
            /// What each step cost, when asked for.
            timings: Vec<Timing>,
            /// The first of the login's records that could not be written, and why. It keeps nobody out.
            unrecorded: Option<Failure>,
            /// Why the session is not watched, though it should be.
            unwatched: Option<Failure>,
        },
        /// It will not be done, or not go on.
        2 => Failed { failure: Failure },
        /// What was found in the home directory.
        3 => Home {
            /// Why the home directory cannot be entered; none: it can.
            home: Option<Failure>,
            /// One answer per file asked for. Contents beyond [`crate::MAX_INLINE`] in sum travel as sealed
            /// memfds beside the frame, in order of the files that have `content` absent and no failure.
            files: Vec<KeyFile>,
        },
        /// The program is in a container whose processes have numbers of their own: it is this process, by the number that
        /// the launching side sees, and the helper ends. Said before that process runs, so before its Leaving or Failed.
        4 => Entered { pid: i32 },
    }
}

record! {
    /// One key file.
    pub struct KeyFile {
        /// Why it was not read.
        pub failure: Option<Failure>,
        /// What it holds, when short.
        pub content: Option<Vec<u8>>,
    }
}

record! {
    /// What one step cost.
    pub struct Timing {
        /// Its name.
        pub step: CString,
        /// Nanoseconds.
        pub nanos: u32,
    }
}

record! {
    /// A typed refusal.
    pub struct Failure {
        /// What kind.
        pub reason: Reason,
        /// The kernel's error number, or 0.
        pub errno: i32,
        /// The thing it is about: a path, a step's name.
        pub subject: CString,
    }
}

choice! {
    /// Why something was not done.
    pub enum Reason("reason") {
        /// The order could not be read.
        0 => BadOrder,
        /// The descriptors do not match the order.
        1 => BadDescriptors,
        /// A system call that the order needs failed.
        2 => System,
        /// /etc/nologin is there.
        3 => NoLogin,
        /// The account has expired.
        4 => AccountExpired,
        /// The password has expired.
        5 => PasswordExpired,
        /// The shell or program is missing or may not be executed.
        6 => NoProgram,
        /// A path is missing.
        7 => Missing,
        /// A path is not of the kind it should be.
        8 => WrongKind,
        /// The user may not do that.
        9 => Denied,
        /// Somebody else owns or may write the path.
        10 => Unsafe,
        /// It is larger than its bound.
        11 => TooLarge,
        /// No memory.
        12 => NoMemory,
        /// It took too long.
        13 => TimedOut,
        /// The name is not known; with an error number: nobody can say now whether it is.
        14 => UnknownName,
        /// A request that this helper does not serve.
        15 => Unsupported,
        /// A request's value is outside its range.
        16 => BadRequest,
        /// As many as allowed are there already.
        17 => TooMany,
        /// There is no such account in the container.
        18 => NoUser,
        /// The container has ended.
        19 => Ended,
    }
}

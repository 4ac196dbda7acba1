//! A PAM session: frames between the launching side and the resolver's process for that session.
//!
//! On the resolver's socket: [`Start`] with one descriptor, a fresh message socket. On that socket from then on:
//! [`FromPam`] one way, [`ToPam`] the other. The process closes the PAM session when its child has ended, whether
//! or not anybody listens any more.

use crate::common::Variable;
use crate::{choice, record};
use alloc::ffi::CString;
use alloc::vec::Vec;

record! {
    /// Begin.
    pub struct Start {
        /// The service: the file's name in /etc/pam.d.
        pub service: CString,
        /// The user as he called himself.
        pub user: CString,
        /// PAM_RHOST.
        pub remote_host: CString,
        /// PAM_TTY: the terminal's path, or `ssh`.
        pub tty: CString,
        /// Ask the modules who this is; else the caller already knows (a key).
        pub authenticate: bool,
        /// PAM environment to begin with.
        pub environment: Vec<Variable>,
        /// How long the peer may take to answer one prompt.
        pub prompt_timeout_ms: u32,
    }
}

choice! {
    /// Words of the PAM process.
    pub enum FromPam("word of PAM") {
        /// Ask the user; answer with [`ToPam::Answers`], one per prompt that wants one.
        0 => Ask { prompts: Vec<Prompt> },
        /// He is who he says and may come in (authenticate and acct_mgmt, with a password change if due).
        1 => Accepted { user: CString },
        /// The session is open.
        2 => Opened { environment: Vec<Variable> },
        /// The helper was started; one descriptor: its pidfd.
        3 => Started { pid: i32 },
        /// The helper could not be started.
        4 => NotStarted { step: u32, errno: i32 },
        /// The helper ended (wait status: code, or signal with `signalled`), and the PAM session is closed.
        5 => Ended { signalled: bool, status: i32, core: bool, close_errors: Vec<CString> },
        /// A PAM call refused; nothing is open any more.
        6 => Refused { call: CString, code: i32, message: CString },
    }
}

record! {
    /// One prompt or message.
    pub struct Prompt {
        /// PAM_PROMPT_ECHO_OFF 1, PAM_PROMPT_ECHO_ON 2, PAM_ERROR_MSG 3, PAM_TEXT_INFO 4.
        pub style: u8,
        /// Its text.
        pub text: CString,
    }
}

choice! {
    /// Words to the PAM process.
    pub enum ToPam("word to PAM") {
        /// Answers to the prompts of styles 1 and 2, in order. Zeroised after use on both sides.
        0 => Answers { answers: Vec<CString> },
        /// The user gave up.
        1 => Abort,
        /// Establish credentials and open the session, in this terminal.
        2 => Open { tty: CString },
        /// Start the helper. Descriptors: the image, the helper's control socket, /dev/null, and the cgroup's
        /// directory if `cgroup`.
        3 => Launch { subcommand: CString, cgroup: bool },
        /// Close without having started anything.
        4 => Close,
    }
}

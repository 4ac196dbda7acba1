//! The order that makes a shell or a command.

use crate::common::{Account, Moment, SessionId, Variable};
use crate::{choice, record};
use alloc::ffi::CString;
use alloc::vec::Vec;

record! {
    /// All that `exec` needs to become the user's program. Descriptors beside it: see [`crate::Role`].
    pub struct Exec {
        /// The session's name.
        pub session: SessionId,
        /// Whom it is for.
        pub account: Account,
        /// What to run.
        pub program: Program,
        /// The terminal's path (`/dev/pts/3`), when descriptor `Terminal` is given; else `Stdin`, `Stdout` and `Stderr` are.
        pub terminal: Option<CString>,
        /// The environment.
        pub environment: Environment,
        /// Login records to write, for a login.
        pub login: Option<Login>,
        /// Checks of the account that sshd makes.
        pub checks: Checks,
        /// What the process is given and limited to.
        pub resources: Resources,
        /// The SELinux context for the shell, written to attr/exec last.
        pub selinux: Option<CString>,
        /// How the session is watched; none: it is not. Needs a descriptor `Watcher`.
        pub watch: Option<Watch>,
        /// Report what each step cost in [`crate::Reply::Leaving`].
        pub timings: bool,
    }
}

impl Exec {
    /// An order for nothing but the program: no terminal, records, checks or limits, and sshd's own variables alone.
    pub fn new(session: SessionId, account: Account, program: Program) -> Exec {
        Exec {
            session,
            account,
            program,
            terminal: None,
            environment: Environment {
                client: Vec::new(),
                accept: Vec::new(),
                set: Vec::new(),
                etc_environment: false,
                user_environment: false,
                path: CString::default(),
                root_path: CString::default(),
            },
            login: None,
            checks: Checks {
                nologin: false,
                expiry: false,
            },
            resources: Resources {
                limits: Vec::new(),
                umask: None,
                nice: None,
                oom_score_adj: None,
                keyring: false,
                loginuid: false,
            },
            selinux: None,
            watch: None,
            timings: false,
        }
    }
}

choice! {
    /// What to run.
    pub enum Program("program") {
        /// The login shell, named `-shell`.
        0 => Shell,
        /// `shell -c line`.
        1 => Command { line: CString },
        /// A program without any shell: argv[0] is its path, searched in PATH when it has no slash.
        2 => Direct { argv: Vec<CString> },
    }
}

record! {
    /// Where the environment comes from; later ones win, as in sshd: defaults, /etc/environment, `client`
    /// filtered by `accept`, ~/.ssh/environment, then `set`.
    pub struct Environment {
        /// What the client sent.
        pub client: Vec<Variable>,
        /// Patterns (`*`, `?`) of names that the client may set.
        pub accept: Vec<CString>,
        /// What the server and PAM set; nothing overrides these.
        pub set: Vec<Variable>,
        /// Read /etc/environment (without PAM's pam_env, sshd's way on Debian).
        pub etc_environment: bool,
        /// Read ~/.ssh/environment.
        pub user_environment: bool,
        /// PATH of an ordinary user; empty: the built-in one.
        pub path: CString,
        /// PATH of root; empty: the built-in one.
        pub root_path: CString,
    }
}

record! {
    /// The login records. Writing them twice with the same `at` changes nothing, so a launch that died may be
    /// made again.
    pub struct Login {
        /// When.
        pub at: Moment,
        /// The peer's name, or its address as text.
        pub host: CString,
        /// The peer's address.
        pub address: [u8; 16],
        /// Write utmp and wtmp (terminal sessions).
        pub utmp: bool,
        /// Write lastlog.
        pub lastlog: bool,
        /// Tell the kernel's audit.
        pub audit: bool,
        /// Print `Last login: …`.
        pub last_login_message: bool,
        /// Print /etc/motd.
        pub motd: bool,
    }
}

record! {
    /// Checks before anything is done; each refusal is told to the user as sshd does.
    pub struct Checks {
        /// /etc/nologin keeps everybody but root out.
        pub nologin: bool,
        /// Expired accounts are refused (PAM's business where PAM is used).
        pub expiry: bool,
    }
}

record! {
    /// What the process is given and limited to; absent means inherited.
    pub struct Resources {
        /// Limits by number (RLIMIT_…).
        pub limits: Vec<Limit>,
        /// The umask.
        pub umask: Option<u32>,
        /// The nice value.
        pub nice: Option<i32>,
        /// The score of the out-of-memory killer.
        pub oom_score_adj: Option<i32>,
        /// A session keyring of its own.
        pub keyring: bool,
        /// Set the audit login uid.
        pub loginuid: bool,
    }
}

/// The longest filter in bytes: as many instructions as the kernel takes (BPF_MAXINSNS), of eight bytes.
pub const MAX_FILTER: usize = 4096 * 8;
/// What is answered on the `Watcher` socket once the listener is held: only then the helper goes on.
pub const HELD: [u8; 4] = *b"fgW\x01";

record! {
    /// How a session is watched: a filter is installed, and its listener goes to descriptor `Watcher`.
    pub struct Watch {
        /// Instructions as the kernel has them, eight bytes each; at most [`MAX_FILTER`] bytes.
        pub filter: Vec<u8>,
        /// What the filter lets pass: the call that brings the listener has this in its sixth argument, which means nothing to
        /// the kernel. Nobody but this session's helper knows it.
        pub pass: u64,
        /// Where it cannot be: the session is refused. Else it goes on, and says so in [`crate::Reply::Leaving`].
        pub required: bool,
    }
}

record! {
    /// One resource limit; `u64::MAX` is none.
    pub struct Limit {
        /// RLIMIT_… number.
        pub resource: u32,
        /// Soft.
        pub soft: u64,
        /// Hard.
        pub hard: u64,
    }
}

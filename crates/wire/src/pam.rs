//! A PAM session: frames between the launching side and the resolver's process for that session.
//!
//! On the resolver's control socket: [`crate::resolver::ToResolver::Pam`] with one descriptor, a fresh message
//! socket. On that socket from then on: [`FromPam`] one way, [`ToPam`] the other. The process closes the PAM
//! session when its last child has ended, whether or not anybody listens any more; a socket that closes while
//! no child runs ends it too. If the socket closes before [`FromPam::Refused`] or [`FromPam::Ended`], the PAM
//! process itself died (a module crashed, or hung beyond its bound): nothing is open any more.
//!
//! ```text
//! Pam{start} → (Ask → Answers)* → Accepted → Open → (Ask → Answers)* → Opened → Launch → Started
//!            → (Exited → Launch → Started)* → Settled → Exited → Ended      Refused instead, at any of these points
//! ```
//!
//! A second launching side enters an open session by its door, a socket that came with [`ToPam::Open`]: it sends
//! [`ToPam::Join`] there, and speaks on a socket of its own from [`FromPam::Opened`] on. It hears of its own helpers alone.
//! The PAM session closes when the helpers of all sides have ended.

use crate::codec::{Item, encode_in};
use crate::common::Variable;
use crate::{Decode, Encode, Error, Reader, Writer, choice, record};
use alloc::ffi::CString;
use alloc::vec::Vec;
use core::fmt;

/// The longest [`ToPam`]; a [`FromPam`] may be as long as any message ([`crate::MAX_INLINE`]).
pub const MAX_TO_PAM: usize = 16 << 10;
/// The most prompts at once (PAM_MAX_NUM_MSG).
pub const MAX_PROMPTS: usize = 32;
/// The longest answer.
pub const MAX_ANSWER: usize = 4096;

record! {
    /// Begin.
    pub struct Start {
        /// The service: the file's name in /etc/pam.d.
        pub service: CString,
        /// The user as he called himself.
        pub user: CString,
        /// PAM_RHOST.
        pub remote_host: CString,
        /// PAM_RUSER; empty: not set, as sshd does.
        pub remote_user: CString,
        /// PAM_TTY: the terminal's path, or `ssh`.
        pub tty: CString,
        /// Ask the modules who this is; else the caller already knows (a key).
        pub authenticate: bool,
        /// A password that has to be changed is said with [`FromPam::Accepted`] and not changed here: nobody is there to
        /// be asked, and the session's program will be `passwd`.
        pub defer_change: bool,
        /// PAM environment to begin with.
        pub environment: Vec<Variable>,
        /// How long the peer may take to answer one prompt.
        pub prompt_timeout_ms: u32,
    }
}

choice! {
    /// Messages of the PAM process.
    pub enum FromPam("message of PAM") {
        /// Ask the user; answer with [`ToPam::Answers`], one per prompt that wants one. Prompts of styles 3 and 4
        /// alone want no answer, and none is waited for.
        0 => Ask { prompts: Vec<Prompt> },
        /// He is who he says and may come in (authenticate and acct_mgmt, with a password change if due). `user`
        /// is who the modules say he is. `must_change`: the change is due, and was deferred.
        1 => Accepted { user: CString, must_change: bool },
        /// The session is open. `groups`: the supplementary groups as the modules left them (pam_group adds
        /// some). `process`: the PAM process, which stays until the end.
        2 => Opened { environment: Vec<Variable>, groups: Vec<u32>, process: i32 },
        /// A helper was started; one descriptor: its pidfd.
        3 => Started { pid: i32 },
        /// The helper could not be started ([`NOT_A_LAUNCH`], or the step of `sys::spawn`).
        4 => NotStarted { step: u32, errno: i32 },
        /// A helper ended: its exit code, or its signal with `signalled`. Said before the PAM session closes, so
        /// that nobody waits for modules to learn an exit code.
        5 => Exited { pid: i32, signalled: bool, status: i32, core: bool },
        /// This side's last helper ended. The PAM session is closed, with a sentence for each close call that failed;
        /// or other sides still have helpers in it.
        6 => Ended { close_errors: Vec<CString> },
        /// A PAM call refused (`call`: `pam_authenticate`, …, or `libpam` when there is none); nothing is open.
        7 => Refused { call: CString, code: i32, message: CString },
    }
}

/// How long a session without a helper is held open for the next try: longer than any launch may take.
pub const HOLD_MS: u32 = 30_000;

/// The step of [`FromPam::NotStarted`] when the descriptors of [`ToPam::Launch`] were not as many as it needs.
pub const NOT_A_LAUNCH: u32 = 0;

record! {
    /// One prompt or message.
    pub struct Prompt {
        /// PAM_PROMPT_ECHO_OFF 1, PAM_PROMPT_ECHO_ON 2, PAM_ERROR_MSG 3, PAM_TEXT_INFO 4.
        pub style: u8,
        /// Its text.
        pub text: CString,
    }
}

impl Prompt {
    /// Whether it wants an answer.
    pub fn asks(&self) -> bool {
        self.style <= 2
    }
}

choice! {
    /// Messages to the PAM process.
    pub enum ToPam("message to PAM") {
        /// Answers to the prompts that ask, in order. Make the frame with [`answers_frame`].
        0 => Answers { answers: Vec<Secret> },
        /// The user gave up.
        1 => Abort,
        /// Establish credentials and open the session, in this terminal (`/dev/pts/3`, or `ssh` without one). A descriptor,
        /// if there is one, is the session's door: a message socket for [`ToPam::Join`]. The door closes before the session.
        2 => Open { tty: CString },
        /// Start a helper; again while one runs. Descriptors: the image, the helper's
        /// control socket, /dev/null, and the cgroup's directory if `cgroup`. `hold`: when it ends the session stays
        /// open for another try, until [`ToPam::Settled`] or [`HOLD_MS`] later.
        3 => Launch { subcommand: CString, cgroup: bool, hold: bool },
        /// Close without having started anything; while a helper runs it changes nothing.
        4 => Close,
        /// No other try is coming: the session ends with its last helper.
        5 => Settled,
        /// By the door: one more side, which speaks on the one descriptor that comes with this.
        6 => Join,
    }
}

/// A string that is wiped when dropped and never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(CString);

impl Secret {
    /// Takes `secret` over.
    pub fn new(secret: CString) -> Secret {
        Secret(secret)
    }
    /// What it is.
    pub fn expose(&self) -> &core::ffi::CStr {
        &self.0
    }
}

impl Drop for Secret {
    fn drop(&mut self) {
        wipe(&mut core::mem::take(&mut self.0).into_bytes_with_nul());
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

impl Encode for Secret {
    fn encode(&self, w: &mut Writer) {
        self.0.encode(w);
    }
}
impl Decode for Secret {
    fn decode(r: &mut Reader<'_>) -> Result<Self, Error> {
        let len = r.len("answer", MAX_ANSWER)?;
        let mut bytes = Vec::with_capacity(len + 1);
        bytes.extend_from_slice(r.take(len)?);
        match CString::new(bytes) {
            Ok(secret) => Ok(Secret(secret)),
            Err(e) => {
                wipe(&mut e.into_vec());
                Err(Error::Nul)
            }
        }
    }
}
impl Item for Secret {}

/// Overwrites what held a secret. The black box keeps the compiler from leaving the writes out.
pub fn wipe(bytes: &mut [u8]) {
    bytes.fill(0);
    core::hint::black_box(bytes);
}

/// The frame of [`ToPam::Answers`], made in one allocation so that no copy is left behind; [`wipe`] it after sending.
pub fn answers_frame(answers: Vec<Secret>) -> Vec<u8> {
    let size: usize = answers.iter().map(|a| a.0.as_bytes().len() + 4).sum();
    encode_in(Vec::with_capacity(size + 16), &ToPam::Answers { answers })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{decode, encode};

    fn secret(text: &str) -> Secret {
        Secret::new(CString::new(text).expect("no zero in it"))
    }

    #[test]
    fn answers_travel_and_are_never_shown() {
        let words = ToPam::Answers {
            answers: [secret("hunter2"), secret("")].into(),
        };
        assert!(!alloc::format!("{words:?}").contains("hunter2"));
        assert_eq!(decode::<ToPam>(&encode(&words)), Ok(words));
    }

    #[test]
    fn an_answers_frame_is_made_without_moving() {
        let long = "x".repeat(MAX_ANSWER);
        let frame = answers_frame([secret(&long), secret(&long)].into());
        assert!(frame.len() <= 2 * (MAX_ANSWER + 4) + 16);
        let ToPam::Answers { answers } = decode(&frame).expect("a frame") else {
            panic!("other words");
        };
        assert_eq!(answers[1].expose().to_bytes().len(), MAX_ANSWER);
    }

    #[test]
    fn an_answer_is_bounded_and_without_zero() {
        let long = secret(&"x".repeat(MAX_ANSWER + 1));
        let frame = answers_frame([long].into());
        assert!(matches!(
            decode::<ToPam>(&frame),
            Err(Error::TooLong { what: "answer", .. })
        ));
        let mut frame = answers_frame([secret("abc")].into());
        let last = frame.len() - 1;
        frame[last] = 0;
        assert_eq!(decode::<ToPam>(&frame), Err(Error::Nul));
    }
}

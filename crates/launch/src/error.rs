//! Why a launch came to nothing: the thing, the reason, the remedy.

use fleetgate_sys::Errno;
use fleetgate_sys::process::{Exit, SIGKILL};
use fleetgate_sys::spawn::{SpawnError, Step};
use fleetgate_wire::{Failure, Reason};
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

/// How far a helper came: which parts of its life are over (ARCHITECTURE, "What dies when").
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// It was made, but its image was not executed yet.
    Exec,
    /// Its image runs; it has not said Ready.
    Started,
    /// It said Ready: it becomes the user's process.
    Ready,
    /// It said Leaving: the user's program may have run.
    Leaving,
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Stage::Exec => "before its image was executed",
            Stage::Started => "before it was ready",
            Stage::Ready => "before the user's program was executed",
            Stage::Leaving => "while the user's program was being executed",
        })
    }
}

/// Why a launch came to nothing. After any of these nothing of it runs any more.
#[derive(Debug)]
pub enum LaunchError {
    /// No strategy of the fallback chain can be used.
    NoImage(String),
    /// A system call on the launching side failed.
    System {
        /// What was being done.
        doing: &'static str,
        /// With what.
        errno: Errno,
    },
    /// The process table, or the service's share of it, is full.
    NoProcess,
    /// No memory.
    NoMemory {
        /// What was being done.
        doing: &'static str,
    },
    /// The order does not fit.
    OrderTooLong {
        /// Its length.
        len: usize,
    },
    /// More descriptors than travel with an order.
    TooManyDescriptors {
        /// How many.
        count: usize,
    },
    /// The cgroup cannot be entered.
    Cgroup(Errno),
    /// The process could not be made or its image not executed, on the last strategy that was tried.
    Spawn(SpawnError),
    /// The helper said why it will not do it.
    Refused(Failure),
    /// The helper ended without a word.
    Died {
        /// How far it had come.
        stage: Stage,
        /// How it ended, where that is known.
        exit: Option<Exit>,
        /// How often it was tried.
        tries: u32,
    },
    /// The helper did not answer in time and was killed.
    TimedOut {
        /// How far it had come.
        stage: Stage,
        /// How long it had.
        after: Duration,
    },
    /// The container cannot be entered: a sentence.
    Container(String),
    /// The container is another one than was looked at before: a sentence.
    Replaced(String),
    /// The PAM process did not start the helper; its own words.
    Pam(String),
    /// What came was no reply.
    BadReply(String),
    /// Too many launches are waiting.
    Busy {
        /// How many.
        waiting: usize,
    },
    /// The launch threads were told to stop.
    Stopped,
}

impl LaunchError {
    /// A start that failed for a reason that is not the image's.
    pub(crate) fn of_spawn(e: SpawnError) -> LaunchError {
        match (e.step, e.errno) {
            (Step::Cgroup, errno) => LaunchError::Cgroup(errno),
            (_, Errno::EAGAIN) => LaunchError::NoProcess,
            (Step::Exec, Errno::ENOMEM) => LaunchError::NoMemory {
                doing: "executing the session helper",
            },
            (_, Errno::ENOMEM) => LaunchError::NoMemory {
                doing: "making the helper's process",
            },
            _ => LaunchError::Spawn(e),
        }
    }

    /// The kernel's answer, as an error of ours.
    pub(crate) fn system(doing: &'static str) -> impl Fn(Errno) -> LaunchError {
        move |errno| match errno {
            Errno::ENOMEM | Errno::ENOBUFS => LaunchError::NoMemory { doing },
            errno => LaunchError::System { doing, errno },
        }
    }
}

impl fmt::Display for LaunchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LaunchError::NoImage(why) => write!(
                f,
                "the session helper cannot be executed from anywhere: {why}; see `fleetgate seal doctor`"
            ),
            LaunchError::System { doing, errno } => {
                write!(f, "{doing}: {errno}")?;
                match *errno {
                    Errno::EMFILE => f.write_str("; raise the service's LimitNOFILE"),
                    Errno::ENFILE => f.write_str("; raise the machine's fs.file-max"),
                    _ => Ok(()),
                }
            }
            LaunchError::NoProcess => f.write_str(
                "no process could be made for the session: the process table is full (EAGAIN); end processes, \
                 or raise the service's TasksMax or the machine's kernel.pid_max",
            ),
            LaunchError::NoMemory { doing } => {
                write!(f, "{doing}: no memory; end something or raise the service's MemoryMax")
            }
            LaunchError::OrderTooLong { len } => write!(
                f,
                "the session's order is {len} bytes long, at most {} are taken: send a smaller environment or command",
                fleetgate_wire::MAX_ORDER
            ),
            LaunchError::TooManyDescriptors { count } => write!(
                f,
                "the session's order has {count} descriptors, at most {} travel with it",
                fleetgate_sys::socket::MAX_FDS
            ),
            LaunchError::Cgroup(errno) => write!(
                f,
                "the session's cgroup cannot be entered: {errno}; the service needs Delegate=yes, and the cgroup \
                 must be an empty leaf"
            ),
            LaunchError::Spawn(e) => write!(
                f,
                "the session helper was not started: {e}; see `fleetgate seal doctor`"
            ),
            LaunchError::Refused(failure) => write!(f, "the session was refused: {}", failure_words(failure)),
            LaunchError::Died { stage, exit, tries } => {
                write!(f, "the session helper {}, {stage}", exit_words(*exit))?;
                match (tries, stage) {
                    (2.., _) => write!(f, ", {tries} times; its image works when tried, so look for who ends it"),
                    (_, Stage::Leaving) => Ok(()),
                    _ => f.write_str("; its image works when tried, so look for who ended it"),
                }
            }
            LaunchError::TimedOut { stage, after } => {
                write!(f, "the session helper was killed {} ms after its start, {stage}: ", after.as_millis())?;
                f.write_str(match stage {
                    Stage::Exec => "something on this machine held up its execution; allow fleetgate-session there",
                    Stage::Started => "the login records, the terminal or the kernel's audit hang",
                    Stage::Ready => "the home directory or a file of the account hangs",
                    Stage::Leaving => "something held up the execution of the user's shell",
                })
            }
            LaunchError::Container(why) | LaunchError::Replaced(why) => f.write_str(why),
            LaunchError::Pam(why) => write!(f, "the session helper was not started inside its PAM session: {why}"),
            LaunchError::BadReply(why) => write!(
                f,
                "what came from the session helper is no reply ({why}); server and helper are of different builds"
            ),
            LaunchError::Busy { waiting } => write!(
                f,
                "{waiting} launches are waiting already; executions are held up on this machine, or it is overloaded"
            ),
            LaunchError::Stopped => f.write_str("the server is stopping and launches nothing any more"),
        }
    }
}

impl std::error::Error for LaunchError {}

impl LaunchError {
    /// The same for a user who wanted into a container.
    pub fn into_a_container(&self) -> String {
        match self {
            // It is made in the container's cgroup.
            LaunchError::NoProcess => {
                "no process could be made in the container: it has as many as it may have (its pids limit), or the machine \
                 has: raise the limit, or end one"
                    .to_owned()
            }
            LaunchError::Died {
                exit: Some(Exit::Signal { number: SIGKILL, .. }),
                ..
            } => "the session was killed on its way in (SIGKILL): the container ended, or has no memory left".to_owned(),
            error => error.to_string(),
        }
    }

    /// Whether the same launch may come out otherwise a moment later: the machine had no room for it. Else the reason lies in the
    /// order, the account or the container, or the user's program may have run.
    pub fn may_pass(&self) -> bool {
        const NO_ROOM: [Errno; 4] = [Errno::EAGAIN, Errno::ENOMEM, Errno::ENFILE, Errno::EMFILE];
        match self {
            LaunchError::Refused(failure) => NO_ROOM.contains(&Errno(failure.errno)),
            LaunchError::Container(_)
            | LaunchError::Cgroup(_)
            | LaunchError::Died { .. }
            | LaunchError::TimedOut { .. }
            | LaunchError::OrderTooLong { .. }
            | LaunchError::TooManyDescriptors { .. } => false,
            _ => true,
        }
    }
}

fn exit_words(exit: Option<Exit>) -> String {
    match exit {
        Some(Exit::Code(code)) => format!("ended with code {code}"),
        Some(Exit::Signal { number, .. }) => format!("was killed by signal {number}"),
        None => "ended".to_owned(),
    }
}

/// What the helper refused, and why: `authorized_keys: somebody else owns it or may write to it`.
pub fn failure_words(failure: &Failure) -> String {
    let why = match &failure.reason {
        Reason::BadOrder => "it could not read the order",
        Reason::BadDescriptors => "the descriptors do not match the order",
        Reason::System => "the kernel refused",
        Reason::NoLogin => "logins are switched off by /etc/nologin",
        Reason::AccountExpired => "the account has expired",
        Reason::PasswordExpired => "the password has expired",
        Reason::NoProgram => "the program cannot be executed",
        Reason::Missing => "it is missing",
        Reason::WrongKind => "it is of the wrong kind",
        Reason::Denied => "the user may not do that",
        Reason::Unsafe => "somebody else owns it or may write to it",
        Reason::TooLarge => "it is too large",
        Reason::NoMemory => "no memory",
        Reason::TimedOut => "it took too long",
        Reason::UnknownName => "the name is not known",
        Reason::Unsupported => "the helper does not do that",
        Reason::BadRequest => "it is out of range",
        Reason::TooMany => "as many as allowed are there already",
        Reason::NoUser => "the container has no such account or group",
        Reason::Ended => "it has ended",
    };
    let subject = failure.subject.to_string_lossy();
    match failure.errno {
        0 => format!("{subject}: {why}"),
        n => format!("{subject}: {why}: {}", Errno(n)),
    }
}

/// Why there is no reaper.
#[derive(Debug)]
pub enum SessionReaperError {
    /// The state directory cannot be made or read.
    Directory(PathBuf, std::io::Error),
    /// The state directory belongs to somebody else: what he writes there would be believed.
    NotOurs(PathBuf, u32),
    /// A system call failed.
    System(&'static str, Errno),
}

impl fmt::Display for SessionReaperError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SessionReaperError::Directory(path, e) => {
                write!(f, "the state directory {} cannot be used: {e}", path.display())
            }
            SessionReaperError::NotOurs(path, uid) => write!(
                f,
                "the state directory {} belongs to user {uid}, not to the server; remove it",
                path.display()
            ),
            SessionReaperError::System(doing, errno) => write!(f, "{doing}: {errno}"),
        }
    }
}

impl std::error::Error for SessionReaperError {}

/// Why a session was not ended.
#[derive(Debug)]
pub enum EndError {
    /// It is over already.
    Over(String),
    /// Its record cannot be read.
    Record(PathBuf, String),
    /// The command was not left for its server.
    Command(PathBuf, std::io::Error),
    /// This process of this session was not signalled.
    Kill(i32, String, Errno),
}

impl fmt::Display for EndError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            EndError::Over(id) => write!(f, "the session {id} is over"),
            EndError::Record(path, why) => write!(f, "{}: {why}", path.display()),
            EndError::Command(path, e) => write!(f, "{}: {e}", path.display()),
            EndError::Kill(pid, id, e) => {
                write!(f, "the process {pid} of the session {id} cannot be ended: {e}")
            }
        }
    }
}

impl std::error::Error for EndError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sentences_name_thing_reason_remedy() {
        let table = [
            (
                LaunchError::of_spawn(SpawnError {
                    step: Step::Clone,
                    errno: Errno::EAGAIN,
                }),
                "no process could be made for the session: the process table is full (EAGAIN); end processes, or \
                 raise the service's TasksMax or the machine's kernel.pid_max",
            ),
            (
                LaunchError::Died {
                    stage: Stage::Ready,
                    exit: Some(Exit::Signal {
                        number: 9,
                        core: false,
                    }),
                    tries: 1,
                },
                "the session helper was killed by signal 9, before the user's program was executed; its image works \
                 when tried, so look for who ended it",
            ),
            (
                LaunchError::system("making the control socket")(Errno::EMFILE),
                "making the control socket: Too many open files (EMFILE); raise the service's LimitNOFILE",
            ),
        ];
        for (error, sentence) in table {
            assert_eq!(error.to_string(), sentence);
        }
    }
}

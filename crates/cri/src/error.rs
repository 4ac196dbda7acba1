//! Why the labels are not known that Kubernetes has for a container: the socket, the reason, what helps.

use std::fmt;
use std::path::PathBuf;

/// The most characters of what a daemon says that are passed on.
const SAID: usize = 200;

/// Why nothing is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    /// The socket of the container runtime.
    pub socket: PathBuf,
    /// What is wrong with it.
    pub reason: Reason,
}

/// What is wrong with a container runtime.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reason {
    /// It is not there.
    Absent,
    /// Others than root may replace it.
    NotRoots,
    /// Another user listens there.
    Listener(u32),
    /// It cannot be connected to.
    Connecting(String),
    /// Its time was over.
    Silent,
    /// It sent more than one answer may have.
    TooMuch,
    /// It refused the request, or its answer makes no sense.
    Refused(String),
    /// It has no such container.
    NoContainer,
    /// The labels are more than are taken, or longer.
    Labels,
    /// A label has a character that cannot be printed.
    Unprintable,
    /// This process cannot ask.
    Here(String),
}

impl Reason {
    /// Of this socket.
    pub fn of(self, socket: impl Into<PathBuf>) -> Error {
        Error {
            socket: socket.into(),
            reason: self,
        }
    }

    /// It refused with these words, of which no line of a log and no terminal sees more than they can take.
    pub fn refused(words: &str) -> Reason {
        Reason::Refused(words.chars().flat_map(char::escape_default).take(SAID).collect())
    }
}

impl Reason {
    /// Whether it lies in what somebody gave the container's pod, which stays while the container is there.
    pub fn stays(&self) -> bool {
        matches!(self, Reason::TooMuch | Reason::Labels | Reason::Unprintable)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let socket = self.socket.display();
        match &self.reason {
            Reason::Absent => write!(f, "there is no socket {socket}: start the container runtime"),
            Reason::NotRoots => write!(
                f,
                "others than root may replace {socket} or a directory on the way to it: give them to root alone"
            ),
            Reason::Listener(uid) => write!(f, "user {uid} listens at {socket}, and not root"),
            Reason::Connecting(why) => write!(
                f,
                "{socket} cannot be connected to: {why}; look whether the container runtime runs"
            ),
            Reason::Silent => write!(
                f,
                "the container runtime at {socket} did not answer in time; see whether `crictl ps` works, then try again"
            ),
            Reason::TooMuch => write!(
                f,
                "the container runtime at {socket} said more about it than is read: give its pod shorter annotations and labels"
            ),
            Reason::Refused(why) => write!(
                f,
                "the container runtime at {socket} gave no answer of use: {why}"
            ),
            Reason::NoContainer => write!(
                f,
                "the container runtime at {socket} does not know it: Kubernetes did not start it"
            ),
            Reason::Labels => write!(
                f,
                "by {socket} it has too many labels, or too long ones: give its pod fewer"
            ),
            Reason::Unprintable => write!(
                f,
                "by {socket} one of its labels has a character that cannot be printed: remove it"
            ),
            Reason::Here(why) => write!(f, "{socket} cannot be asked: {why}"),
        }
    }
}

impl std::error::Error for Error {}

//! The user's ssh-agent: which keys it has, signatures by them, keys put in and taken out. It keeps no key, never asks for a
//! passphrase, and waits for the agent only as long as a person may be asked. What the messages hold is the SSH core's.

use crate::waiting::NOTICE_AFTER;
use fleetgate_ssh::agent::{self, Identity};
use fleetgate_ssh::codec::{Malformed, Write as _};
use fleetgate_ssh::key::{Certificate, KeyError};
use fleetgate_sys::poll::{self, Watch};
use std::ffi::OsString;
use std::fmt;
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;
use zeroize::Zeroizing;

/// The largest message that an agent may send; OpenSSH's own bound.
pub const MAX_MESSAGE: usize = 256 * 1024;
/// How long an agent may take where it asks nobody.
const ANSWER_TIME: Duration = Duration::from_secs(10);
/// How long a signature may take: a token is to be touched, or a question answered.
const SIGNATURE_TIME: Duration = Duration::from_secs(120);
/// The variable that names the agent's socket.
pub const SOCKET: &str = "SSH_AUTH_SOCK";

/// A connection to an agent.
#[derive(Debug)]
pub struct Agent {
    stream: UnixStream,
}

/// Why an agent did not do what it was asked.
#[derive(Debug)]
pub enum AgentError {
    /// There is none: the variable is not set.
    None,
    /// Its socket could not be used.
    Socket(PathBuf, io::Error),
    /// It broke off or took too long.
    Lost(io::Error),
    /// It said something that cannot be read.
    Malformed(Malformed),
    /// It said no.
    Refused(&'static str),
    /// The key that was to be put in cannot be.
    Key(KeyError),
}

impl Agent {
    /// One at the other end of a socket.
    #[cfg(any(test, feature = "fuzz"))]
    pub(crate) fn at(stream: UnixStream) -> Agent {
        Agent { stream }
    }

    /// The agent that `env` names, as `std::env::var_os` gives it for [`SOCKET`].
    pub fn connect(env: Option<OsString>) -> Result<Agent, AgentError> {
        let path: PathBuf = env.filter(|v| !v.is_empty()).ok_or(AgentError::None)?.into();
        match UnixStream::connect(&path) {
            Ok(stream) => Ok(Agent { stream }),
            Err(error) => Err(AgentError::Socket(path, error)),
        }
    }

    /// The keys and certificates that it has, in its order.
    pub fn identities(&mut self) -> Result<Vec<Identity>, AgentError> {
        let answer = self.ask(&agent::list())?;
        agent::identities(&answer)?.ok_or(AgentError::Refused("to list its keys"))
    }

    /// A signature blob over `data` by the key or certificate `blob`. The algorithm counts for RSA keys only: others
    /// have one each. Where the agent has not answered after a second, because it waits for its user, `waits` is called.
    pub fn sign(
        &mut self,
        blob: &[u8],
        algorithm: &str,
        data: &[u8],
        waits: &dyn Fn(),
    ) -> Result<Vec<u8>, AgentError> {
        self.send(&agent::sign(blob, algorithm, data))?;
        let notice = u32::try_from(NOTICE_AFTER.as_millis()).unwrap_or(u32::MAX);
        let mut watch = [Watch::new(self.stream.as_raw_fd(), poll::READ)];
        if poll::poll(&mut watch, Some(notice)).is_ok_and(|ready| ready == 0) {
            waits();
        }
        let answer = self.receive(SIGNATURE_TIME)?;
        agent::signature(&answer)?.ok_or(AgentError::Refused("to sign"))
    }

    /// Puts in a key, from the text of its file, with its certificate if it has one. With a lifetime the agent forgets
    /// it then by itself.
    pub fn add(
        &mut self,
        key: &[u8],
        certificate: Option<&Certificate>,
        comment: &str,
        lifetime: Option<Duration>,
    ) -> Result<(), AgentError> {
        let request = agent::add(key, certificate, comment, lifetime).map_err(AgentError::Key)?;
        self.done(&request, "to take the key")
    }

    /// Takes a key or certificate out.
    pub fn remove(&mut self, blob: &[u8]) -> Result<(), AgentError> {
        let request = agent::remove(blob);
        self.done(&request, "to remove the key: perhaps it does not have it")
    }

    fn done(&mut self, request: &[u8], what: &'static str) -> Result<(), AgentError> {
        match agent::is_done(&self.ask(request)?) {
            true => Ok(()),
            false => Err(AgentError::Refused(what)),
        }
    }

    fn ask(&mut self, request: &[u8]) -> Result<Zeroizing<Vec<u8>>, AgentError> {
        self.send(request)?;
        self.receive(ANSWER_TIME)
    }

    fn send(&mut self, request: &[u8]) -> Result<(), AgentError> {
        let mut framed = Zeroizing::new(Vec::with_capacity(request.len() + 4));
        framed.put_string(request);
        self.stream
            .set_write_timeout(Some(ANSWER_TIME))
            .and_then(|()| self.stream.write_all(&framed))
            .map_err(AgentError::Lost)
    }

    fn receive(&mut self, time: Duration) -> Result<Zeroizing<Vec<u8>>, AgentError> {
        let mut read = || -> io::Result<Zeroizing<Vec<u8>>> {
            self.stream.set_read_timeout(Some(time))?;
            let mut length = [0; 4];
            self.stream.read_exact(&mut length)?;
            let length = u32::from_be_bytes(length) as usize;
            if length == 0 || length > MAX_MESSAGE {
                return Err(io::Error::new(
                    io::ErrorKind::InvalidData,
                    "an answer of a length that cannot be",
                ));
            }
            let mut answer = Zeroizing::new(vec![0; length]);
            self.stream.read_exact(&mut answer)?;
            Ok(answer)
        };
        read().map_err(AgentError::Lost)
    }
}

impl From<Malformed> for AgentError {
    fn from(error: Malformed) -> AgentError {
        AgentError::Malformed(error)
    }
}

impl fmt::Display for AgentError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AgentError::None => write!(
                f,
                "there is no ssh-agent: {SOCKET} is not set (start one with `eval $(ssh-agent)`)"
            ),
            AgentError::Socket(path, error) => write!(f, "the ssh-agent at {}: {error}", path.display()),
            AgentError::Lost(error) => write!(f, "the ssh-agent does not answer: {error}"),
            AgentError::Malformed(error) => write!(f, "the ssh-agent's answer cannot be read: {error}"),
            AgentError::Refused(what) => write!(f, "the ssh-agent refuses {what}"),
            AgentError::Key(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for AgentError {}

#[cfg(test)]
mod tests {
    use super::*;
    use fleetgate_ssh::agent::{IDENTITIES_ANSWER, SIGN_REQUEST, SIGN_RESPONSE};
    use fleetgate_ssh::key::{KeyType, PrivateKey, PublicKey, verify};
    use std::process::{Child, Command, Stdio};

    /// OpenSSH's agent, in the foreground, on a socket of its own.
    struct Running {
        child: Child,
        socket: PathBuf,
        folder: PathBuf,
    }

    impl Running {
        fn start() -> Running {
            let mut name = [0; 8];
            ring::rand::SecureRandom::fill(&ring::rand::SystemRandom::new(), &mut name).unwrap();
            let folder = std::env::temp_dir().join(format!("fleetgate-agent-{}", u64::from_ne_bytes(name)));
            std::fs::create_dir(&folder).unwrap();
            let socket = folder.join("socket");
            let mut child = Command::new("ssh-agent")
                .args(["-D", "-a"])
                .arg(&socket)
                .stdout(Stdio::piped())
                .spawn()
                .expect("OpenSSH's ssh-agent is installed");
            // It prints where its socket is once that is there.
            let mut line = String::new();
            let out = child.stdout.take().unwrap();
            io::BufRead::read_line(&mut io::BufReader::new(out), &mut line).unwrap();
            assert!(line.contains("SSH_AUTH_SOCK"), "{line:?}");
            Running {
                child,
                socket,
                folder,
            }
        }

        fn connect(&self) -> Agent {
            Agent::connect(Some(self.socket.clone().into())).unwrap()
        }
    }

    impl Drop for Running {
        fn drop(&mut self) {
            let _ = self.child.kill();
            let _ = self.child.wait();
            let _ = std::fs::remove_dir_all(&self.folder);
        }
    }

    #[test]
    fn openssh_agent_keeps_signs_and_forgets() {
        let running = Running::start();
        let mut agent = running.connect();
        assert_eq!(agent.identities().unwrap(), []);
        for kind in [KeyType::Ed25519, KeyType::EcdsaP256] {
            let (key, file) = PrivateKey::generate(kind, "test").unwrap();
            let blob = key.public().blob().to_vec();
            agent
                .add(file.as_bytes(), None, "a comment", Some(Duration::from_secs(60)))
                .unwrap();
            let wanted = Identity {
                blob: blob.clone(),
                comment: "a comment".into(),
            };
            assert_eq!(agent.identities().unwrap(), [wanted]);
            let signature = agent.sign(&blob, kind.name(), b"message", &|| {}).unwrap();
            let public = PublicKey::parse(&blob).unwrap();
            verify(&public, kind.name(), b"message", &signature).unwrap();
            assert!(verify(&public, kind.name(), b"another", &signature).is_err());
            agent.remove(&blob).unwrap();
            assert_eq!(agent.identities().unwrap(), []);
            assert!(matches!(agent.remove(&blob), Err(AgentError::Refused(_))));
            assert!(matches!(
                agent.sign(&blob, kind.name(), b"message", &|| {}),
                Err(AgentError::Refused(_))
            ));
        }
    }

    /// The agent answers once it was noticed that it did not, so a lack of the notice would be a hang.
    #[test]
    fn an_agent_that_waits_for_its_user_is_noticed() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let (touch, touched) = std::sync::mpsc::channel();
        let agent = std::thread::spawn(move || {
            let mut length = [0; 4];
            theirs.read_exact(&mut length).unwrap();
            let mut request = vec![0; u32::from_be_bytes(length) as usize];
            theirs.read_exact(&mut request).unwrap();
            assert_eq!(request[0], SIGN_REQUEST);
            touched.recv().unwrap();
            let mut answer = vec![SIGN_RESPONSE];
            answer.put_string("signature");
            let mut framed = Vec::new();
            framed.put_string(&answer);
            theirs.write_all(&framed).unwrap();
        });
        let waits = || touch.send(()).unwrap();
        let signature = Agent { stream: ours }.sign(b"key", "ssh-ed25519", b"data", &waits);
        assert_eq!(signature.unwrap(), b"signature");
        agent.join().unwrap();
    }

    #[test]
    fn a_certificate_goes_in_with_its_key() {
        let running = Running::start();
        let (key, file) = PrivateKey::generate(KeyType::Ed25519, "ann").unwrap();
        let (_, ca) = PrivateKey::generate(KeyType::Ed25519, "ca").unwrap();
        let write = |name: &str, text: &str| {
            use std::os::unix::fs::OpenOptionsExt;
            let path = running.folder.join(name);
            let mut options = std::fs::OpenOptions::new();
            let mut out = options
                .write(true)
                .create_new(true)
                .mode(0o600)
                .open(&path)
                .unwrap();
            out.write_all(text.as_bytes()).unwrap();
            path
        };
        let (ca, public) = (write("ca", &ca), write("ann.pub", &key.public().line()));
        let made = Command::new("ssh-keygen")
            .args(["-q", "-I", "ann", "-n", "ann", "-V", "+1h", "-s"])
            .args([&ca, &public])
            .status();
        assert!(made.unwrap().success());
        let line = std::fs::read_to_string(running.folder.join("ann-cert.pub")).unwrap();
        let certificate = Certificate::from_line(&line).unwrap();
        let mut agent = running.connect();
        agent
            .add(file.as_bytes(), Some(&certificate), "ann", None)
            .unwrap();
        assert_eq!(agent.identities().unwrap()[0].blob, certificate.blob());
        let signature = agent
            .sign(certificate.blob(), "ssh-ed25519", b"message", &|| {})
            .unwrap();
        verify(key.public(), "ssh-ed25519", b"message", &signature).unwrap();
        let (_, other) = PrivateKey::generate(KeyType::Ed25519, "bob").unwrap();
        let wrong = agent.add(other.as_bytes(), Some(&certificate), "", None);
        assert!(matches!(wrong, Err(AgentError::Key(KeyError::OtherKey))));
        agent.remove(certificate.blob()).unwrap();
        assert_eq!(agent.identities().unwrap(), []);
    }

    #[test]
    fn an_agent_that_talks_nonsense_is_left() {
        let table: [(&str, &[u8]); 4] = [
            ("nothing", &[]),
            ("a length of 0", &[0, 0, 0, 0]),
            ("far too long", &[0x7f, 0xff, 0xff, 0xff, IDENTITIES_ANSWER]),
            (
                "more keys than are looked at",
                &[0, 0, 0, 5, IDENTITIES_ANSWER, 0xff, 0, 0, 0],
            ),
        ];
        for (what, answer) in table {
            let (ours, theirs) = UnixStream::pair().unwrap();
            let mut other = theirs.try_clone().unwrap();
            other.write_all(answer).unwrap();
            other.shutdown(std::net::Shutdown::Write).unwrap();
            let mut agent = Agent { stream: ours };
            assert!(agent.identities().is_err(), "{what}");
        }
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        theirs
            .write_all(&[0, 0, 0, 5, IDENTITIES_ANSWER, 0, 0, 0, 0])
            .unwrap();
        assert_eq!(Agent { stream: ours }.identities().unwrap(), []);
        assert!(matches!(Agent::connect(None), Err(AgentError::None)));
    }
}

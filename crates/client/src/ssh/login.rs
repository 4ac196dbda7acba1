//! How the user proves himself: keys of files and of the agent, in order, then what the server asks for at the terminal.
//! It makes requests; the connection sends them.

use crate::agent::{self, Agent, AgentError};
use crate::ask::Terminal;
use crate::error::ClientError;
use crate::files;
use crate::say::printable;
use fleetgate_ssh::auth::Request;
use fleetgate_ssh::key::{Algorithm, Certificate, KeyError, Presented, PrivateKey};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use zeroize::Zeroizing;

/// Keys that are tried, at most: sshd counts six tries by default, ours likewise.
pub const MAX_KEYS: usize = 64;
/// Passwords and answers that are asked for, at most, unless told otherwise (ssh: NumberOfPasswordPrompts).
const MAX_ASKED: u32 = 3;

/// How the user may prove himself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoginMethods {
    /// With keys.
    pub keys: bool,
    /// By answering what the server asks.
    pub keyboard: bool,
    /// With a password.
    pub password: bool,
    /// Passwords and answers that are asked for, at most.
    pub prompts: u32,
}

impl Default for LoginMethods {
    fn default() -> LoginMethods {
        LoginMethods {
            keys: true,
            keyboard: true,
            password: true,
            prompts: MAX_ASKED,
        }
    }
}

/// A key that may let the user in.
pub struct Credential {
    /// The public key or certificate that is shown.
    blob: Vec<u8>,
    /// Where it is from, for people.
    name: String,
    algorithms: Vec<&'static str>,
    by: By,
}

enum By {
    Key(Box<PrivateKey>),
    Agent,
}

impl std::fmt::Debug for Credential {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Credential({})", self.name)
    }
}

impl Credential {
    /// A key of a file, and its certificate, if there is a file of that.
    pub fn of_files(key: &Path, certificate: Option<&Path>) -> Result<Credential, ClientError> {
        let mode = std::fs::metadata(key).map_err(ClientError::file(key))?.mode();
        let bytes = files::read(key)?;
        let broken = |path: &Path| {
            let path = path.to_owned();
            move |e: KeyError| ClientError::Broken(path, e.to_string())
        };
        let private = PrivateKey::read(&bytes, mode).map_err(broken(key))?;
        let certificate = match certificate {
            None => None,
            Some(path) => Some(Certificate::from_line(&files::read_text(path)?).map_err(broken(path))?),
        };
        if certificate.as_ref().is_some_and(|c| c.key() != private.public()) {
            return Err(ClientError::Broken(
                key.to_owned(),
                "the certificate beside it is for another key".into(),
            ));
        }
        Ok(Credential::new(private, certificate, key.display().to_string()))
    }

    /// A key at hand, and its certificate.
    pub fn new(key: PrivateKey, certificate: Option<Certificate>, name: String) -> Credential {
        let blob = certificate
            .as_ref()
            .map_or_else(|| key.public().blob(), |c| c.blob())
            .to_vec();
        Credential {
            algorithms: algorithms(&blob),
            blob,
            name,
            by: By::Key(Box::new(key)),
        }
    }

    /// The keys that the user's agent has.
    pub fn of_agent() -> Result<Vec<Credential>, AgentError> {
        let identities = Agent::connect(std::env::var_os(agent::SOCKET))?.identities()?;
        let credential = |i: agent::Identity| Credential {
            algorithms: algorithms(&i.blob),
            name: format!("the agent's {:?}", i.comment),
            blob: i.blob,
            by: By::Agent,
        };
        let usable = identities
            .into_iter()
            .map(credential)
            .filter(|c| !c.algorithms.is_empty());
        Ok(usable.take(MAX_KEYS).collect())
    }

    /// server-sig-algs names signatures, of certificates too (RFC 8308 §3.1).
    fn algorithm(&self, server: Option<&[String]>) -> Option<&'static str> {
        let taken = |name: &&&'static str| {
            let signature = Algorithm::parse(name).map_or("", |a| a.signature_name());
            server.is_none_or(|list| list.iter().any(|n| n == signature))
        };
        self.algorithms
            .iter()
            .find(taken)
            .or(self.algorithms.first())
            .copied()
    }

    fn sign(&self, algorithm: &str, data: &[u8]) -> Result<Vec<u8>, String> {
        match &self.by {
            By::Key(key) => key
                .sign(algorithm, data)
                .map_err(|e| format!("{}: {e}", self.name)),
            By::Agent => Agent::connect(std::env::var_os(agent::SOCKET))
                .and_then(|mut agent| agent.sign(&self.blob, algorithm, data))
                .map_err(|e| format!("{}: {e}", self.name)),
        }
    }
}

fn algorithms(blob: &[u8]) -> Vec<&'static str> {
    let Ok(presented) = Presented::parse(blob) else {
        return Vec::new();
    };
    let fits = |a: &&Algorithm| presented.fits(a);
    Algorithm::all().iter().filter(fits).map(|a| a.name()).collect()
}

/// One login, and how far it came.
pub(crate) struct Login {
    user: String,
    keys: Vec<Credential>,
    /// The next key.
    next: usize,
    /// The key that the server was asked about.
    queried: Option<usize>,
    asked: u32,
    /// Nobody is to be asked anything.
    batch: bool,
    ways: LoginMethods,
    /// What was tried.
    pub(crate) tried: Vec<String>,
}

/// What to do next.
pub(crate) enum Try {
    /// Send this.
    Request(Zeroizing<Vec<u8>>),
    /// There is nothing left.
    Nothing,
}

impl Login {
    pub(crate) fn new(user: String, keys: Vec<Credential>, batch: bool, ways: LoginMethods) -> Login {
        Login {
            user,
            keys: if ways.keys { keys } else { Vec::new() },
            next: 0,
            queried: None,
            asked: 0,
            batch,
            ways,
            tried: Vec::new(),
        }
    }

    /// Whether there is one key and it is the one: what follows the login may then be sent right behind it.
    pub(crate) fn is_sure(&self) -> bool {
        self.keys.len() == 1
    }

    /// Begins anew, on another connection.
    pub(crate) fn again(&mut self) {
        (self.next, self.queried) = (0, None);
    }

    /// The only key there is: signed at once.
    pub(crate) fn sure(&mut self, session: &[u8], server: Option<&[String]>) -> Result<Try, String> {
        self.next = 1;
        self.signed(0, session, server)
    }

    /// The next thing to try, of what the server takes (all, where it did not say yet).
    pub(crate) fn next(
        &mut self,
        session: &[u8],
        server: Option<&[String]>,
        methods: Option<&[String]>,
    ) -> Result<Try, String> {
        let takes = |method: &str| methods.is_none_or(|list| list.iter().any(|m| m == method));
        if takes("publickey") && self.next < self.keys.len() {
            let at = self.next;
            self.next += 1;
            // A lone key is signed with at once: a question first would cost a round trip.
            if self.keys.len() == 1 {
                return self.signed(at, session, server);
            }
            let key = &self.keys[at];
            let Some(algorithm) = key.algorithm(server) else {
                return Ok(Try::Nothing);
            };
            self.queried = Some(at);
            return Ok(Try::Request(Request::query(
                self.user.as_bytes(),
                algorithm,
                &key.blob,
            )));
        }
        let Some(methods) = methods else {
            return Ok(Try::Request(Request::none(self.user.as_bytes())));
        };
        if self.batch || self.asked >= self.ways.prompts {
            return Ok(Try::Nothing);
        }
        self.asked += 1;
        if self.ways.keyboard && methods.iter().any(|m| m == "keyboard-interactive") {
            self.tried.push("keyboard-interactive".into());
            return Ok(Try::Request(Request::keyboard_interactive(
                self.user.as_bytes(),
                "",
            )));
        }
        if self.ways.password
            && methods.iter().any(|m| m == "password")
            && let Some(mut terminal) = Terminal::open()
        {
            self.tried.push("password".into());
            let password = terminal
                .secret(&format!("Password for {}: ", self.user))
                .map_err(|e| e.to_string())?;
            return Ok(Try::Request(Request::password(
                self.user.as_bytes(),
                password.as_bytes(),
                None,
            )));
        }
        Ok(Try::Nothing)
    }

    /// The key that was asked about would do.
    pub(crate) fn key_would_do(&mut self, session: &[u8], server: Option<&[String]>) -> Result<Try, String> {
        match self.queried.take() {
            Some(at) => self.signed(at, session, server),
            None => Ok(Try::Nothing),
        }
    }

    /// Answers to what the server asks.
    pub(crate) fn answer(
        &self,
        name: &[u8],
        instruction: &[u8],
        prompts: &[(Vec<u8>, bool)],
    ) -> Result<Vec<Zeroizing<String>>, String> {
        if prompts.is_empty() {
            return Ok(Vec::new());
        }
        let Some(mut terminal) = Terminal::open() else {
            return Err("the server asks something, and there is no terminal to answer on".into());
        };
        for text in [name, instruction].iter().filter(|t| !t.is_empty()) {
            terminal.say(&format!("{}\n", printable(text)));
        }
        let mut answers = Vec::new();
        for (prompt, shown) in prompts {
            let question = format!("({}) {}", self.user, printable(prompt));
            let answer = if *shown {
                terminal.line(&question)
            } else {
                terminal.secret(&question)
            };
            answers.push(answer.map_err(|e| e.to_string())?);
        }
        Ok(answers)
    }

    fn signed(&mut self, at: usize, session: &[u8], server: Option<&[String]>) -> Result<Try, String> {
        let key = &self.keys[at];
        let Some(algorithm) = key.algorithm(server) else {
            return Ok(Try::Nothing);
        };
        let unsigned = Request::unsigned(session, self.user.as_bytes(), algorithm, &key.blob, None);
        let signature = key.sign(algorithm, unsigned.to_sign())?;
        self.tried.push(key.name.clone());
        Ok(Try::Request(Zeroizing::new(unsigned.signed(&signature))))
    }
}

//! How the user proves himself: keys of files and of the agent, in order, then what the server asks for at the terminal.
//! It makes requests; the connection sends them.

use crate::agent::{self, Agent};
use crate::error::ClientError;
use crate::files;
use crate::prompt::Terminal;
use crate::stderr::printable;
use fleetgate_ssh::agent::Identity;
use fleetgate_ssh::auth::Request;
use fleetgate_ssh::key::{Algorithm, Certificate, KeyError, KeyOrCertificate, PrivateKey};
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
    by: Signer,
}

enum Signer {
    Key(Box<PrivateKey>),
    /// By the agent, which knows the key or certificate as this blob.
    Agent(Vec<u8>),
}

impl std::fmt::Debug for Credential {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Credential({})", self.name)
    }
}

impl Credential {
    /// A key of a file, and its certificate, if there is a file of that. A security key and a file with a passphrase are
    /// for an agent to sign with: `held` asks it which keys it has, and is called for such a file only.
    pub fn of_files(
        key: &Path,
        certificate: Option<&Path>,
        held: &dyn Fn() -> Vec<Identity>,
    ) -> Result<Credential, ClientError> {
        let mode = std::fs::metadata(key).map_err(ClientError::file(key))?.mode();
        let bytes = files::read(key)?;
        let broken = |path: &Path| {
            let path = path.to_owned();
            move |e: KeyError| ClientError::Broken(path, e.to_string())
        };
        let certificate = match certificate {
            None => None,
            Some(path) => Some(Certificate::from_line(&files::read_text(path)?).map_err(broken(path))?),
        };
        let (public, by) = match PrivateKey::read(&bytes, mode) {
            Ok(private) => (private.public().clone(), Signer::Key(Box::new(private))),
            Err(why @ (KeyError::SecurityKey | KeyError::Encrypted)) => {
                let public = PrivateKey::public_half(&bytes).map_err(broken(key))?;
                let blobs = [Some(public.blob()), certificate.as_ref().map(|c| c.blob())];
                let identity = held().into_iter().find(|i| blobs.contains(&Some(&i.blob[..])));
                let Some(identity) = identity else {
                    let words = format!(
                        "{why}; an ssh-agent signs with it, after `ssh-add {}`",
                        key.display()
                    );
                    return Err(ClientError::Broken(key.to_owned(), words));
                };
                (public, Signer::Agent(identity.blob))
            }
            Err(e) => return Err(broken(key)(e)),
        };
        if certificate.as_ref().is_some_and(|c| *c.key() != public) {
            return Err(ClientError::Broken(
                key.to_owned(),
                "the certificate beside it is for another key".into(),
            ));
        }
        let shown = certificate.as_ref().map_or_else(|| public.blob(), |c| c.blob());
        Ok(Credential::by(by, shown, key.display().to_string()))
    }

    /// A key of a file, with the certificate beside it (`-cert.pub`), if one is there.
    pub(super) fn with_certificate_beside(
        key: &Path,
        held: &dyn Fn() -> Vec<Identity>,
    ) -> Result<Credential, ClientError> {
        let mut beside = key.as_os_str().to_owned();
        beside.push("-cert.pub");
        let beside = Path::new(&beside);
        Credential::of_files(key, beside.exists().then_some(beside), held)
    }

    /// A key at hand, and its certificate.
    pub fn new(key: PrivateKey, certificate: Option<Certificate>, name: String) -> Credential {
        let shown = certificate
            .as_ref()
            .map_or_else(|| key.public().blob(), |c| c.blob())
            .to_vec();
        Credential::by(Signer::Key(Box::new(key)), &shown, name)
    }

    /// The keys that the user's agent has; none where there is no agent.
    pub fn of_agent() -> Vec<Credential> {
        held_by_agent()
            .into_iter()
            .map(|i| {
                Credential::by(
                    Signer::Agent(i.blob.clone()),
                    &i.blob,
                    format!("the agent's {:?}", i.comment),
                )
            })
            .filter(|c| !c.algorithms.is_empty())
            .take(MAX_KEYS)
            .collect()
    }

    fn by(by: Signer, shown: &[u8], name: String) -> Credential {
        Credential {
            blob: shown.to_vec(),
            name,
            algorithms: algorithms(shown),
            by,
        }
    }

    /// What the user reads while an agent has not signed yet.
    fn waits(&self, algorithm: &str) -> String {
        let is_token = Algorithm::parse(algorithm).is_some_and(|a| a.key_type().is_token());
        let hint = if is_token { ": touch the security key" } else { "" };
        format!("waiting for the ssh-agent to sign with {}{hint}", self.name)
    }

    /// Whether both show the server the same.
    pub fn is_shown_as(&self, other: &Credential) -> bool {
        self.blob == other.blob
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

    fn sign(&self, algorithm: &str, data: &[u8], say: &dyn Fn(&str)) -> Result<Vec<u8>, String> {
        match &self.by {
            Signer::Key(key) => key
                .sign(algorithm, data)
                .map_err(|e| format!("{}: {e}", self.name)),
            Signer::Agent(blob) => Agent::connect(std::env::var_os(agent::SOCKET))
                .and_then(|mut agent| agent.sign(blob, algorithm, data, &|| say(&self.waits(algorithm))))
                .map_err(|e| format!("{}: {e}", self.name)),
        }
    }
}

/// What the user's agent has; nothing where there is no agent.
pub fn held_by_agent() -> Vec<Identity> {
    Agent::connect(std::env::var_os(agent::SOCKET))
        .and_then(|mut agent| agent.identities())
        .unwrap_or_default()
}

fn algorithms(blob: &[u8]) -> Vec<&'static str> {
    let Ok(presented) = KeyOrCertificate::parse(blob) else {
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
    /// How lines are said while it goes on.
    say: fn(&str),
    /// What was tried.
    pub(crate) tried: Vec<String>,
}

/// What to do next.
pub(crate) enum LoginStep {
    /// Send this.
    Request(Zeroizing<Vec<u8>>),
    /// There is nothing left.
    Nothing,
}

impl Login {
    pub(crate) fn new(
        user: String,
        keys: Vec<Credential>,
        batch: bool,
        ways: LoginMethods,
        say: fn(&str),
    ) -> Login {
        Login {
            user,
            keys: if ways.keys { keys } else { Vec::new() },
            next: 0,
            queried: None,
            asked: 0,
            batch,
            ways,
            say,
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
    pub(crate) fn sure(&mut self, session: &[u8], server: Option<&[String]>) -> Result<LoginStep, String> {
        self.next = 1;
        self.signed(0, session, server)
    }

    /// The next thing to try, of what the server takes (all, where it did not say yet).
    pub(crate) fn next(
        &mut self,
        session: &[u8],
        server: Option<&[String]>,
        methods: Option<&[String]>,
    ) -> Result<LoginStep, String> {
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
                return Ok(LoginStep::Nothing);
            };
            self.queried = Some(at);
            return Ok(LoginStep::Request(Request::query(
                self.user.as_bytes(),
                algorithm,
                &key.blob,
            )));
        }
        let Some(methods) = methods else {
            return Ok(LoginStep::Request(Request::none(self.user.as_bytes())));
        };
        if self.batch || self.asked >= self.ways.prompts {
            return Ok(LoginStep::Nothing);
        }
        self.asked += 1;
        if self.ways.keyboard && methods.iter().any(|m| m == "keyboard-interactive") {
            self.tried.push("keyboard-interactive".into());
            return Ok(LoginStep::Request(Request::keyboard_interactive(
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
            return Ok(LoginStep::Request(Request::password(
                self.user.as_bytes(),
                password.as_bytes(),
                None,
            )));
        }
        Ok(LoginStep::Nothing)
    }

    /// The key that was asked about would do. As with ssh, one that does not sign, such as a security key that is not
    /// plugged in, is passed over for the next.
    pub(crate) fn key_would_do(
        &mut self,
        session: &[u8],
        server: Option<&[String]>,
    ) -> Result<LoginStep, String> {
        let Some(at) = self.queried.take() else {
            return Ok(LoginStep::Nothing);
        };
        match self.signed(at, session, server) {
            Err(why) if self.next < self.keys.len() => {
                (self.say)(&why);
                self.next(session, server, None)
            }
            signed => signed,
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

    fn signed(&mut self, at: usize, session: &[u8], server: Option<&[String]>) -> Result<LoginStep, String> {
        let key = &self.keys[at];
        let Some(algorithm) = key.algorithm(server) else {
            return Ok(LoginStep::Nothing);
        };
        let unsigned = Request::unsigned(session, self.user.as_bytes(), algorithm, &key.blob, None);
        let signature = key.sign(algorithm, unsigned.to_sign(), &self.say)?;
        self.tried.push(key.name.clone());
        Ok(LoginStep::Request(Zeroizing::new(unsigned.signed(&signature))))
    }
}

#[cfg(test)]
mod tests;

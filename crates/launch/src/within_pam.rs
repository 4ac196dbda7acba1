//! Launches inside PAM sessions, each on a thread of its own: modules may take their time.
//!
//! A connection's first session and its networking helper share one PAM session ([`SharedPam`]), so that forwards are where
//! that session is; it begins with the conversation that let the connection in. Every other launch begins one of its own,
//! without asking who it is again. Nobody can be asked anything here: what the modules say is shown on the terminal, what they
//! ask is refused.

use crate::pam::{PamDoor, PamError, PamSession, PamSetup};
use crate::{Launch, LaunchError, LaunchOutcome, Launcher};
use fleetgate_seal::FallbackChain;
use fleetgate_sys::{Errno, Fd, file};
use fleetgate_wire::common::Variable;
use fleetgate_wire::order::{Role, Work};
use fleetgate_wire::pam::{Prompt, Start};
use std::collections::HashMap;
use std::fmt;
use std::hash::Hash;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The most launches that wait for PAM at once; each has a thread for that long.
pub const MAX_PAM_THREADS: usize = 128;
/// The most bytes of what modules say that are shown: a terminal that nobody reads yet holds 4 KB.
const MAX_SAID: usize = 2048;
/// A module that says nothing for so long is given up.
const PATIENCE: Duration = Duration::from_secs(60);
/// What sshd does not take from PAM: it says itself what these are.
const NOT_OF_PAM: [&[u8]; 2] = [b"SSH_AUTH_INFO", b"SSH_CONNECTION"];

/// Which PAM session a launch is made in.
#[derive(Debug)]
pub struct PamEntry {
    /// The connection's, for its first session and for its networking helper; none: one of its own.
    pub shared: Option<Arc<SharedPam>>,
    /// How to begin one.
    pub start: Start,
}

/// The PAM session that a connection's first session and its networking helper share. The first of them opens it, and the other
/// enters it while it is open.
#[derive(Default)]
pub struct SharedPam {
    has_session: AtomicBool,
    stage: Mutex<Stage>,
}

#[derive(Default)]
struct Stage {
    /// The conversation that let the connection in, accepted and not opened.
    accepted: Option<PamSession>,
    door: Option<PamDoor>,
    /// What the modules said and no terminal has shown.
    said: Vec<u8>,
}

impl SharedPam {
    /// Not opened yet. `accepted`: the conversation that let the connection in, so that what the modules learnt in it (a
    /// ticket, a key) reaches the session.
    pub fn new(accepted: Option<PamSession>) -> Arc<SharedPam> {
        let stage = Stage {
            accepted,
            ..Stage::default()
        };
        Arc::new(SharedPam {
            stage: Mutex::new(stage),
            ..SharedPam::default()
        })
    }

    /// For the connection's first session; none for later ones.
    pub fn for_session(self: &Arc<SharedPam>) -> Option<Arc<SharedPam>> {
        (!self.has_session.swap(true, Ordering::Relaxed)).then(|| self.clone())
    }

    /// Enters the PAM session, or opens it. While one launch does so, the other waits.
    fn enter(&self, resolver: &Fd, start: Start, shows: bool) -> Result<Entered, PamError> {
        let mut stage = self.stage.lock().expect("no panic is survived");
        let joined = stage.door.take().and_then(|door| {
            let (pam, setup) = door.join(PATIENCE)?;
            Some((pam, setup, Some(door)))
        });
        let (pam, setup, door) = match joined {
            Some(joined) => joined,
            None => {
                let accepted = stage.accepted.take();
                stage.said.clear();
                open(accepted, resolver, start, &mut stage.said, true)?
            }
        };
        stage.door = door;
        let said = if shows {
            std::mem::take(&mut stage.said)
        } else {
            Vec::new()
        };
        Ok(Entered { pam, setup, said })
    }
}

impl fmt::Debug for SharedPam {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SharedPam")
    }
}

/// A PAM session that is open for a launch, and what is to be shown of it.
struct Entered {
    pam: PamSession,
    setup: PamSetup,
    said: Vec<u8>,
}

/// The threads, and PAM sessions whose launch was made, until somebody takes them over by the launch's key.
pub struct PamThreads<K> {
    chain: Arc<FallbackChain>,
    waiting: Arc<AtomicUsize>,
    opened: Arc<Mutex<HashMap<K, PamSession>>>,
}

impl<K: Eq + Hash + Send + 'static> PamThreads<K> {
    /// Launches from `chain`'s images.
    pub fn new(chain: Arc<FallbackChain>) -> PamThreads<K> {
        PamThreads {
            chain,
            waiting: Arc::default(),
            opened: Arc::default(),
        }
    }

    /// Takes over the PAM session of a program that was launched: it says how that ended.
    pub fn take(&self, key: &K) -> Option<PamSession> {
        self.opened.lock().expect("no panic is survived").remove(key)
    }

    /// Starts the thread. The launch's groups and variables are completed by what the modules set; so many of the order's
    /// variables come before theirs. `done` is called on the thread, after the PAM session can be taken.
    pub fn begin(
        &self,
        key: K,
        resolver: Arc<Fd>,
        entry: PamEntry,
        (launch, variables_of_keys): (Launch, usize),
        done: impl FnOnce(LaunchOutcome) + Send + 'static,
    ) -> Result<(), LaunchError> {
        let waiting = self.waiting.fetch_add(1, Ordering::SeqCst);
        if waiting >= MAX_PAM_THREADS {
            self.waiting.fetch_sub(1, Ordering::SeqCst);
            return Err(LaunchError::Busy { waiting });
        }
        let (chain, count, opened) = (self.chain.clone(), self.waiting.clone(), self.opened.clone());
        let thread = std::thread::Builder::new()
            .name("pam session".to_owned())
            .stack_size(256 << 10);
        let spawned = thread.spawn(move || {
            // The networking helper's end is seen at its own socket, and its PAM session then closes by itself.
            let is_heard = !matches!(launch.work, Work::Networking(_));
            let outcome = open_and_launch(chain, &resolver, entry, launch, variables_of_keys);
            let outcome = outcome.map(|(pam, outcome)| {
                if is_heard {
                    opened.lock().expect("no panic is survived").insert(key, pam);
                }
                outcome
            });
            count.fetch_sub(1, Ordering::SeqCst);
            done(outcome);
        });
        spawned.map(drop).map_err(|e| {
            self.waiting.fetch_sub(1, Ordering::SeqCst);
            LaunchError::System {
                doing: "starting a thread for a PAM session",
                errno: Errno(e.raw_os_error().unwrap_or(0)),
            }
        })
    }
}

type Done = (PamSession, (crate::RunningHelper, crate::Begun));

fn open_and_launch(
    chain: Arc<FallbackChain>,
    resolver: &Fd,
    PamEntry { shared, start }: PamEntry,
    mut launch: Launch,
    variables_of_keys: usize,
) -> Result<Done, LaunchError> {
    let terminal = launch.fds.iter().find(|(role, _)| *role == Role::Terminal);
    let entered = match shared {
        Some(shared) => shared.enter(resolver, start, terminal.is_some()),
        None => open_own(resolver, start),
    };
    let Entered { mut pam, setup, said } = entered.map_err(|e| LaunchError::Pam(e.to_string()))?;
    if let Some((_, terminal)) = terminal {
        // Who is not there to read it goes without.
        let _ = file::write_all(terminal.raw(), &said);
    }
    match &mut launch.work {
        Work::Exec(order) => {
            order.account.ids.groups = setup.groups;
            add_pam(&mut order.environment.set, variables_of_keys, setup.environment);
        }
        Work::Sftp(order) => order.ids.groups = setup.groups,
        Work::Networking(order) => order.ids.groups = setup.groups,
        Work::CheckHome(_) => {}
    }
    let outcome = Launcher::new(chain)?.launch_in(&mut pam, launch)?;
    Ok((pam, outcome))
}

fn open_own(resolver: &Fd, start: Start) -> Result<Entered, PamError> {
    let mut said = Vec::new();
    let (pam, setup, _) = open(None, resolver, start, &mut said, false)?;
    Ok(Entered { pam, setup, said })
}

/// Opens a PAM session, after the conversation before it. What modules say is added to `said`, and they are answered nothing.
fn open(
    accepted: Option<PamSession>,
    resolver: &Fd,
    start: Start,
    said: &mut Vec<u8>,
    has_door: bool,
) -> Result<(PamSession, PamSetup, Option<PamDoor>), PamError> {
    let mut listen = |prompts: &[Prompt]| {
        for prompt in prompts.iter().filter(|p| !p.asks()) {
            let left = MAX_SAID.saturating_sub(said.len());
            let text = prompt.text.to_bytes();
            said.extend_from_slice(&text[..text.len().min(left)]);
            said.push(b'\n');
        }
        None
    };
    let tty = start.tty.clone();
    let mut pam = match accepted {
        Some(pam) => pam,
        None => PamSession::begin(resolver, start, PATIENCE, &mut listen)?.0,
    };
    if !has_door {
        let setup = pam.open(&tty, &mut listen)?;
        return Ok((pam, setup, None));
    }
    let (setup, door) = pam.open_with_door(&tty, &mut listen)?;
    Ok((pam, setup, Some(door)))
}

/// Puts what PAM's modules set in its place: over authorized_keys, under `set_env`.
fn add_pam(set: &mut Vec<Variable>, variables_of_keys: usize, pam: Vec<Variable>) {
    let taken = pam
        .into_iter()
        .filter(|v| !NOT_OF_PAM.iter().any(|name| v.name.to_bytes().starts_with(name)));
    let at = variables_of_keys.min(set.len());
    set.splice(at..at, taken);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::CString;

    #[test]
    fn pams_variables_stand_between_the_keys_and_the_configurations() {
        let variable = |name: &str, value: &str| Variable {
            name: CString::new(name).expect("a name"),
            value: CString::new(value).expect("a value"),
        };
        let mut set = vec![variable("A", "key"), variable("A", "set_env")];
        let pam = vec![
            variable("A", "pam"),
            variable("SSH_CONNECTION", "x"),
            variable("SSH_AUTH_INFO_0", "x"),
        ];
        add_pam(&mut set, 1, pam);
        let values: Vec<&[u8]> = set.iter().map(|v| v.value.to_bytes()).collect();
        assert_eq!(values, [&b"key"[..], b"pam", b"set_env"]);
    }

    #[test]
    fn one_session_shares_with_the_networking_helper() {
        let shared = SharedPam::new(None);
        assert!(shared.for_session().is_some());
        assert!(shared.for_session().is_none());
    }
}

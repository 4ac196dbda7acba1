//! A launch inside a PAM session, on a thread of its own: modules may take their time, and the monitor has none.
//!
//! The connection's first session takes the conversation that let it in; later ones begin another, without asking who it
//! is again. Nobody can be asked anything here: what the modules say is shown on the terminal, what they ask is refused.

use super::choose::SessionRefusal;
use super::environment;
use fleetgate_launch::pam::PamSession;
use fleetgate_launch::{Begun, Launch, LaunchError, Launcher, RunningHelper};
use fleetgate_seal::FallbackChain;
use fleetgate_sys::{Fd, file};
use fleetgate_wire::order::{Role, Work};
use fleetgate_wire::pam::{Prompt, Start};
use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The most sessions that wait for PAM at once; each has a thread for that long.
pub const MAX_PAM_THREADS: usize = 128;
/// The most bytes of what modules say that are shown: a terminal that nobody reads yet holds 4 KB.
const MAX_SAID: usize = 2048;
/// A module that says nothing for so long is given up.
const PATIENCE: Duration = Duration::from_secs(60);

/// What the thread needs.
pub struct PamLaunch {
    /// The session's number here.
    pub number: u64,
    /// The conversation that let the connection in, for its first session.
    pub accepted: Option<PamSession>,
    /// For others: how to begin one.
    pub start: Start,
    /// The resolver's control socket.
    pub resolver: Arc<Fd>,
    /// The launch; its groups and variables are completed by what the modules set.
    pub launch: Launch,
    /// How many of the order's variables come before PAM's.
    pub variables_of_keys: usize,
}

/// PAM sessions whose launch was made, until the monitor takes them over.
#[derive(Clone, Default)]
pub struct PamSessions {
    waiting: Arc<AtomicUsize>,
    done: Arc<Mutex<HashMap<u64, PamSession>>>,
}

impl PamSessions {
    /// Takes over the PAM session of session `number`.
    pub fn take(&self, number: u64) -> Option<PamSession> {
        self.done.lock().expect("no panic is survived").remove(&number)
    }

    /// Starts the thread; `done` is called on it, after the PAM session can be taken.
    pub fn begin(
        &self,
        chain: Arc<FallbackChain>,
        wanted: PamLaunch,
        done: impl FnOnce(Result<(RunningHelper, Begun), LaunchError>) + Send + 'static,
    ) -> Result<(), SessionRefusal> {
        if self.waiting.fetch_add(1, Ordering::SeqCst) >= MAX_PAM_THREADS {
            self.waiting.fetch_sub(1, Ordering::SeqCst);
            return Err(SessionRefusal::new("too many sessions wait for PAM; try again"));
        }
        let this = self.clone();
        let thread = std::thread::Builder::new()
            .name("pam session".to_owned())
            .stack_size(256 << 10);
        let spawned = thread.spawn(move || {
            let number = wanted.number;
            let outcome = open_and_launch(chain, wanted).map(|(pam, outcome)| {
                this.done
                    .lock()
                    .expect("no panic is survived")
                    .insert(number, pam);
                outcome
            });
            this.waiting.fetch_sub(1, Ordering::SeqCst);
            done(outcome);
        });
        spawned.map(drop).map_err(|e| {
            self.waiting.fetch_sub(1, Ordering::SeqCst);
            tracing::error!("starting a thread for a PAM session: {e}");
            SessionRefusal::new("the session could not be started; try again")
        })
    }
}

type Done = (PamSession, (RunningHelper, Begun));

fn open_and_launch(chain: Arc<FallbackChain>, wanted: PamLaunch) -> Result<Done, LaunchError> {
    let PamLaunch {
        accepted,
        start,
        resolver,
        mut launch,
        variables_of_keys,
        ..
    } = wanted;
    let failed = |e: fleetgate_launch::pam::PamError| LaunchError::Pam(e.to_string());
    let mut said = Vec::new();
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
        None => {
            PamSession::begin(&resolver, start, PATIENCE, &mut listen)
                .map_err(failed)?
                .0
        }
    };
    let opened = pam.open(&tty, &mut listen).map_err(failed)?;
    match &mut launch.work {
        Work::Exec(order) => {
            order.account.ids.groups = opened.groups;
            environment::add_pam(&mut order.environment.set, variables_of_keys, opened.environment);
        }
        Work::Sftp(order) => order.ids.groups = opened.groups,
        _ => {}
    }
    if let Some((_, terminal)) = launch.fds.iter().find(|(role, _)| *role == Role::Terminal) {
        // Who is not there to read it goes without.
        let _ = file::write_all(terminal.raw(), &said);
    }
    let outcome = Launcher::new(chain)?.launch_in(&mut pam, launch)?;
    Ok((pam, outcome))
}

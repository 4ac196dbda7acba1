//! A check by the user's master, the process that keeps connections for his commands: one message with the order and the
//! descriptors for what the check says, and two back.

use crate::VERSION;
use crate::line::line;
use crate::options::Options;
use crate::secret::Values;
use crate::verdict::{MAX_ERRORS, Verdict};
use alloc::ffi::CString;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use fleetgate_sys::poll::{self, CLOSED, READ, Watch};
use fleetgate_sys::{Fd, clock, exec, file, net, process, socket};
use fleetgate_wire::master::{
    FromMaster, MAX_FRAME, MAX_WORDS, SessionOrder, Target, ToMaster, Way, Work, is_selector,
};
use fleetgate_wire::pam::wipe;

/// The master's socket, below the login's directory.
const SOCKET: &[u8] = b"/mux/master";
/// Room for any word of the master's that a check is told.
const ROOM: usize = MAX_WORDS + 512;

/// How far it came.
pub enum Outcome {
    /// It is over.
    Over(Verdict),
    /// No answer came in time. Whether it had begun: the master ends it then, since its client is gone.
    Late(bool),
    /// Nothing was begun, and nobody was waited for.
    Cold,
    /// The node does not begin it on the connection that is kept, and may on another one.
    Refused,
}

/// Runs the check, where a master is there and takes it.
pub fn run(options: &Options) -> Outcome {
    // Labels choose among nodes; that needs the proxy's list.
    if is_selector(&options.host) {
        return Outcome::Cold;
    }
    let secrets = match Values::read(&options.secrets) {
        Ok(secrets) => secrets,
        Err(why) => return Outcome::Over(Verdict::unknown(why)),
    };
    match ask(options, &secrets) {
        Some((master, errors)) => follow(options, &master, &errors),
        None => Outcome::Cold,
    }
}

/// Hands the check to the master. Where it goes wrong nothing was begun.
fn ask(options: &Options, secrets: &Values) -> Option<(Fd, Fd)> {
    let mut path = directory(options)?;
    path.extend_from_slice(SOCKET);
    let path = CString::new(path).ok()?;
    let master = socket::unconnected().ok()?;
    net::connect_unix(&master, &path).ok()?;
    // The directory is the user's alone; whoever else got in there is given nothing all the same.
    if socket::peer_user(&master).ok()? != process::effective_uid() {
        return None;
    }
    let mut frame = order(options, secrets)?;
    let (errors, its) = file::pipe().ok()?;
    // Standard input is not read, so what stands in its place does not matter.
    let sent = socket::send_now(&master, &frame, &[1, 1, its.raw()]);
    wipe(&mut frame);
    sent.ok()?;
    Some((master, errors))
}

/// The frame that asks the master for a check; to be wiped, where there are secrets. None: it would be too long.
pub fn order(options: &Options, secrets: &Values) -> Option<Vec<u8>> {
    let word = ToMaster::Run {
        target: Target {
            version: CString::new(VERSION).ok()?,
            network: net::namespace(),
            way: match &options.address {
                Some(address) => Way::Port {
                    address: CString::new(address.clone()).ok()?,
                },
                // The login's own.
                None => Way::Proxy {
                    address: CString::default(),
                },
            },
            keep: options.keep,
            connect: options.timeout,
        },
        order: SessionOrder {
            node: CString::new(options.host.clone()).ok()?,
            login: CString::new(options.login_name()).ok()?,
            work: Work::Exec {
                command: line(options),
            },
            terminal: None,
            environment: secrets.variables().to_vec(),
            input: false,
        },
    };
    let frame = fleetgate_wire::encode(&word);
    (frame.len() <= MAX_FRAME).then_some(frame)
}

/// The login's directory, as the full client finds it.
fn directory(options: &Options) -> Option<Vec<u8>> {
    let set = |name| {
        exec::inherited(name)
            .map(core::ffi::CStr::to_bytes)
            .filter(|value| !value.is_empty())
    };
    if let Some(home) = &options.home {
        return Some(home.clone());
    }
    if let Some(home) = set(c"FLEETGATE_HOME") {
        return Some(home.to_vec());
    }
    let mut home = set(c"HOME")?.to_vec();
    home.extend_from_slice(b"/.fleetgate");
    Some(home)
}

/// From the order to the end.
fn follow(options: &Options, master: &Fd, errors: &Fd) -> Outcome {
    let end = options.end(now());
    let mut room = vec![0; ROOM];
    let mut hearing = Hearing::default();
    let mut is_open = true;
    loop {
        let mut watches = [
            Watch::new(master.raw(), READ),
            Watch::new(if is_open { errors.raw() } else { -1 }, READ),
        ];
        let left = end - now();
        if left <= 0 || poll::wait(&mut watches, Some(left)) == Ok(0) {
            return Outcome::Late(hearing.has_begun);
        }
        if watches[1].happened() != 0 {
            is_open = read(errors, &mut hearing);
        }
        if watches[0].happened() & (READ | CLOSED) == 0 {
            continue;
        }
        match hearing.hear(receive(master, &mut room)) {
            Step::GoOn => {}
            Step::Over(outcome) => return outcome,
            Step::Ended(code) => {
                while is_open && poll::poll(&mut [Watch::new(errors.raw(), READ)], Some(0)) == Ok(1) {
                    is_open = read(errors, &mut hearing);
                }
                return Outcome::Over(hearing.ended(code));
            }
        }
    }
}

/// What comes from the master.
pub enum Heard {
    /// A word.
    Word(FromMaster),
    /// Something that is no word of this version.
    AnotherVersion,
    /// Its end.
    End,
}

/// What a word of the master's means for the check.
pub enum Step {
    /// There is more to come.
    GoOn,
    /// The check ended with this code. What it wrote to standard error is to be read before [`Hearing::ended`] is asked.
    Ended(i32),
    /// That is all.
    Over(Outcome),
}

/// A check that the master was asked for, as far as it has been heard of.
#[derive(Default)]
pub struct Hearing {
    /// The master said that it has begun.
    pub has_begun: bool,
    said: Vec<u8>,
}

impl Hearing {
    /// Takes what the check wrote to standard error. What is beyond the bound is forgotten.
    pub fn keep(&mut self, bytes: &[u8]) {
        let left = MAX_ERRORS - self.said.len().min(MAX_ERRORS);
        self.said.extend_from_slice(&bytes[..bytes.len().min(left)]);
    }

    /// Takes the next word.
    pub fn hear(&mut self, heard: Heard) -> Step {
        let unknown = |why: String| Step::Over(Outcome::Over(Verdict::unknown(why)));
        match heard {
            Heard::Word(FromMaster::Began { .. }) => self.has_begun = true,
            Heard::Word(FromMaster::Say { words, .. }) => self.keep(words.as_bytes()),
            Heard::Word(FromMaster::Ended { words: Some(why), .. } | FromMaster::Failed { why }) => {
                return unknown(why.to_string_lossy().into_owned());
            }
            Heard::Word(FromMaster::Ended { code, words: None }) => return Step::Ended(code),
            Heard::Word(FromMaster::Refused) if !self.has_begun => return Step::Over(Outcome::Refused),
            // What asks a person, another login, another version: the full client's.
            Heard::Word(_) | Heard::AnotherVersion if !self.has_begun => return Step::Over(Outcome::Cold),
            Heard::Word(_) | Heard::AnotherVersion | Heard::End => {
                return unknown(
                    "the master ended; whether the check was begun, the node's audit log says".into(),
                );
            }
        }
        Step::GoOn
    }

    /// The verdict about a check that ended with this code.
    pub fn ended(self, code: i32) -> Verdict {
        Verdict::ended(code, self.said)
    }
}

fn receive(master: &Fd, room: &mut [u8]) -> Heard {
    match socket::receive(master, room, true) {
        Ok(message) if message.len == 0 => Heard::End,
        Ok(message) if message.truncated => Heard::AnotherVersion,
        Ok(message) => match fleetgate_wire::decode(&room[..message.len]) {
            Ok(word) => Heard::Word(word),
            Err(_) => Heard::AnotherVersion,
        },
        Err(_) => Heard::End,
    }
}

/// Takes what is there; whether more can come. What is beyond the bound is read, so that nobody waits for room.
fn read(errors: &Fd, hearing: &mut Hearing) -> bool {
    let mut room = [0; 4096];
    match file::read(errors.raw(), &mut room) {
        Ok(0) | Err(_) => false,
        Ok(len) => {
            hearing.keep(&room[..len]);
            true
        }
    }
}

/// Now, in nanoseconds of the monotonic clock.
pub fn now() -> i64 {
    let at = clock::monotonic();
    at.sec * 1_000_000_000 + i64::from(at.nsec)
}

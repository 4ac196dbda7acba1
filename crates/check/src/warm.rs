//! A check by the user's master, the process that keeps connections for his commands: one message with the order and the
//! descriptors for what the check says, and two back.

use crate::VERSION;
use crate::line::line;
use crate::options::Options;
use crate::verdict::{MAX_ERRORS, Verdict};
use alloc::ffi::CString;
use alloc::vec;
use alloc::vec::Vec;
use fleetgate_sys::poll::{self, CLOSED, READ, Watch};
use fleetgate_sys::{Fd, clock, exec, file, net, process, socket};
use fleetgate_wire::master::{FromMaster, MAX_FRAME, MAX_WORDS, SessionOrder, Target, ToMaster, Work};

/// The master's socket, below the login's directory.
const SOCKET: &[u8] = b"/mux/master";
/// For how long the master keeps a connection after its last check, in seconds.
pub const KEEP: u32 = 1800;
/// Room for any word of the master's that a check is told.
const ROOM: usize = MAX_WORDS + 512;

/// How far it came.
pub enum Outcome {
    /// It is over.
    Over(Verdict),
    /// No answer came in time. The master ends it, since its client is gone.
    Late,
    /// Nothing was begun, and nobody was waited for.
    Cold,
}

/// Runs the check, where a master is there and takes it.
pub fn run(options: &Options) -> Outcome {
    let begun = clock::monotonic();
    // Labels choose among nodes; that needs the proxy's list.
    if options.host.iter().any(|b| b"=,*?".contains(b)) {
        return Outcome::Cold;
    }
    match ask(options) {
        Some((master, errors)) => follow(options, &master, &errors, begun),
        None => Outcome::Cold,
    }
}

/// Hands the check to the master. Where it goes wrong nothing was begun.
fn ask(options: &Options) -> Option<(Fd, Fd)> {
    let mut path = directory(options)?;
    path.extend_from_slice(SOCKET);
    let path = CString::new(path).ok()?;
    let master = socket::unconnected().ok()?;
    net::connect_unix(&master, &path).ok()?;
    // The directory is the user's alone; whoever else got in there is given nothing all the same.
    if socket::peer_user(&master).ok()? != process::effective_uid() {
        return None;
    }
    let word = ToMaster::Run {
        target: Target {
            version: CString::new(VERSION).ok()?,
            // The login's own.
            proxy: CString::default(),
            keep: KEEP,
        },
        order: SessionOrder {
            node: CString::new(options.host.clone()).ok()?,
            login: CString::new(options.login.clone().unwrap_or_default()).ok()?,
            work: Work::Exec {
                command: line(options),
            },
            terminal: None,
            environment: Vec::new(),
            input: false,
        },
    };
    let frame = fleetgate_wire::encode(&word);
    let (errors, its) = file::pipe().ok()?;
    if frame.len() > MAX_FRAME {
        return None;
    }
    // Standard input is not read, so what stands in its place does not matter.
    socket::send_now(&master, &frame, &[1, 1, its.raw()]).ok()?;
    Some((master, errors))
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
fn follow(options: &Options, master: &Fd, errors: &Fd, begun: clock::Time) -> Outcome {
    let end = nanos(begun) + i64::from(options.timeout) * 1_000_000_000;
    let mut room = vec![0; ROOM];
    let mut said = Vec::new();
    let (mut is_open, mut has_begun) = (true, false);
    loop {
        let mut watches = [
            Watch::new(master.raw(), READ),
            Watch::new(if is_open { errors.raw() } else { -1 }, READ),
        ];
        let left = end - nanos(clock::monotonic());
        if left <= 0 || poll::wait(&mut watches, Some(left)) == Ok(0) {
            return Outcome::Late;
        }
        if watches[1].happened() != 0 {
            is_open = read(errors, &mut said);
        }
        if watches[0].happened() & (READ | CLOSED) == 0 {
            continue;
        }
        match receive(master, &mut room) {
            Heard::Word(FromMaster::Began { .. }) => has_begun = true,
            Heard::Word(FromMaster::Say { words, .. }) => keep(&mut said, words.as_bytes()),
            Heard::Word(FromMaster::Ended { words: Some(why), .. }) => {
                return Outcome::Over(Verdict::unknown(why.to_string_lossy().into_owned()));
            }
            Heard::Word(FromMaster::Ended { code, words: None }) => {
                while is_open && poll::poll(&mut [Watch::new(errors.raw(), READ)], Some(0)) == Ok(1) {
                    is_open = read(errors, &mut said);
                }
                return Outcome::Over(Verdict::ended(code, said));
            }
            Heard::Word(FromMaster::Failed { why }) => {
                return Outcome::Over(Verdict::unknown(why.to_string_lossy().into_owned()));
            }
            // What asks a person, what a node refuses, another login, another version: the full client's.
            Heard::Word(_) | Heard::AnotherVersion if !has_begun => return Outcome::Cold,
            Heard::Word(_) | Heard::AnotherVersion | Heard::End => {
                return Outcome::Over(Verdict::unknown(
                    "the master ended; whether the check was begun, the node's audit log says".into(),
                ));
            }
        }
    }
}

enum Heard {
    Word(FromMaster),
    AnotherVersion,
    End,
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

/// Takes what is there; whether more can come. What is beyond the bound is read and forgotten, so that nobody waits for room.
fn read(errors: &Fd, said: &mut Vec<u8>) -> bool {
    let mut room = [0; 4096];
    match file::read(errors.raw(), &mut room) {
        Ok(0) | Err(_) => false,
        Ok(len) => {
            keep(said, &room[..len]);
            true
        }
    }
}

fn keep(said: &mut Vec<u8>, bytes: &[u8]) {
    let left = MAX_ERRORS - said.len().min(MAX_ERRORS);
    said.extend_from_slice(&bytes[..bytes.len().min(left)]);
}

fn nanos(at: clock::Time) -> i64 {
    at.sec * 1_000_000_000 + i64::from(at.nsec)
}

//! One check, from its order to its result: by the user's master, as `check_fleetgate` has it done, and where that begins
//! nothing by `fleetgate check run`, which makes a connection or says what is wrong. It decides nothing about a result: the
//! words of the verdict are `fleetgate_check`'s.

use super::file::words;
use super::results::{CheckResult, MAX_OUTPUT};
use super::schedule::Target;
use fleetgate_check::late;
use fleetgate_check::options::Options;
use fleetgate_check::secret::Values;
use fleetgate_check::verdict::{State, Verdict};
use fleetgate_check::warm::{Heard, Hearing, Outcome, Step, now as clock, order};
use fleetgate_client::master_client::SOCKET;
use fleetgate_client::master_client::socket::{MessageSocket, watched};
use fleetgate_client::profile::Home;
use fleetgate_sys::{Fd, file, process, socket, stream};
use fleetgate_wire::master::FromMaster;
use fleetgate_wire::pam::wipe;
use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::net::unix::pipe::Receiver;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout};

/// So many programs are started at a time for what the master does not begin.
const MAX_PROGRAMS: usize = 16;
/// A program ends a check at its time itself. One that has not ended so much later is ended.
const GRACE: Duration = Duration::from_secs(5);

/// Runs checks of one login.
pub(super) struct Runner {
    home: Home,
    programs: Semaphore,
}

/// What a check says, within its bound. What is beyond it is read and dropped, so that the check ends as it would have.
#[derive(Default)]
struct Output {
    /// The master said that it has begun.
    has_begun: bool,
    bytes: Vec<u8>,
    is_cut: bool,
}

impl Output {
    fn keep(&mut self, bytes: &[u8]) {
        let left = MAX_OUTPUT - self.bytes.len();
        self.bytes.extend_from_slice(&bytes[..bytes.len().min(left)]);
        self.is_cut |= bytes.len() > left;
    }
}

impl Runner {
    pub(super) fn new(home: Home) -> Runner {
        Runner {
            home,
            programs: Semaphore::new(MAX_PROGRAMS),
        }
    }

    /// Runs the check.
    pub(super) async fn run(&self, target: Target, mut options: Options) -> CheckResult {
        options.host = target.node.clone().into_bytes();
        options.home = Some(self.home.path().as_os_str().to_owned().into_vec());
        let begun = Instant::now();
        let mut output = Output::default();
        options.asked = Some(clock());
        let time = Duration::from_secs(options.timeout.into());
        let warm = match Values::read(&options.secrets) {
            Ok(secrets) => match timeout(time, self.by_master(&options, &secrets, &mut output)).await {
                Ok(outcome) => outcome,
                Err(_) => Outcome::Late(output.has_begun),
            },
            Err(why) => Outcome::Over(Verdict::unknown(why)),
        };
        let verdict = match warm {
            Outcome::Over(verdict) => verdict,
            Outcome::Late(has_begun) => late(&options, has_begun),
            Outcome::Cold | Outcome::Refused => {
                options.is_alone = matches!(warm, Outcome::Refused);
                return self.result(target, begun, self.by_program(&options).await);
            }
        };
        let (state, line) = verdict.of(&options).into_parts();
        if let Some(line) = line {
            // Behind what the plugin said by then, as on standard output.
            output.keep(line.as_bytes());
            output.keep(b"\n");
        }
        self.result(target, begun, (state, output))
    }

    fn result(&self, target: Target, begun: Instant, (state, output): (State, Output)) -> CheckResult {
        CheckResult {
            target,
            raw_state: state,
            output: output.bytes,
            is_cut: output.is_cut,
            time: begun.elapsed(),
            ended: now(),
        }
    }

    async fn by_master(&self, options: &Options, secrets: &Values, output: &mut Output) -> Outcome {
        // Nothing was begun, whatever goes wrong here.
        let begin = || {
            let mut frame = order(options, secrets).ok_or(io::ErrorKind::InvalidInput)?;
            let master = MessageSocket::connect(&self.home.file(SOCKET))?;
            if !master.is_ours() {
                return Err(io::ErrorKind::PermissionDenied.into());
            }
            let (said, its_output) = receiver()?;
            let (errors, its_errors) = receiver()?;
            // Standard input is not read, so what stands in its place does not matter.
            let streams = [its_output.raw(), its_output.raw(), its_errors.raw()];
            let sent = socket::send_now(master.fd(), &frame, &streams);
            wipe(&mut frame);
            sent?;
            Ok::<_, io::Error>((master, said, errors))
        };
        match begin() {
            Ok((master, said, errors)) => follow(&master, said, errors, output).await,
            Err(_) => Outcome::Cold,
        }
    }

    async fn by_program(&self, options: &Options) -> (State, Output) {
        let mut output = Output::default();
        let local = |e: &io::Error| Verdict::unknown(format!("this machine: {e}"));
        let left = options.end(clock()) - clock();
        let time = Duration::from_nanos(left.try_into().unwrap_or(0)) + GRACE;
        // The semaphore is never closed. Waiting for a place in it does not count as the check's time.
        let waits = clock();
        let _one = self.programs.acquire().await;
        let options = &Options {
            asked: options.asked.map(|at| at + clock() - waits),
            ..options.clone()
        };
        let verdict = match timeout(time, program(options, &mut output)).await {
            Ok(Ok(Some(code))) if (0..=3).contains(&code) => return (State::of_code(code), output),
            Ok(Ok(_)) => Verdict::unknown("the program that makes the connection was ended".to_owned()),
            Ok(Err(e)) => local(&e),
            Err(_) => late(options, false),
        };
        let (state, line) = verdict.of(options).into_parts();
        output.keep(line.unwrap_or_default().as_bytes());
        (state, output)
    }
}

/// From the order to the end.
async fn follow(
    master: &MessageSocket,
    mut said: Receiver,
    mut errors: Receiver,
    output: &mut Output,
) -> Outcome {
    let mut hearing = Hearing::default();
    let (mut is_saying, mut is_complaining) = (true, true);
    loop {
        tokio::select! {
            ready = said.readable(), if is_saying => {
                is_saying = ready.is_ok() && read(&mut said, |bytes| output.keep(bytes));
            }
            ready = errors.readable(), if is_complaining => {
                is_complaining = ready.is_ok() && read(&mut errors, |bytes| hearing.keep(bytes));
            }
            word = master.receive::<FromMaster>() => {
                let heard = match word {
                    Ok((word, _)) => Heard::Word(word),
                    Err(e) if e.kind() == io::ErrorKind::InvalidData => Heard::AnotherVersion,
                    Err(_) => Heard::End,
                };
                match hearing.hear(heard) {
                    Step::GoOn => output.has_begun = hearing.has_begun,
                    // The master has written everything by then, and a plugin's child that holds the pipe is not waited for.
                    Step::Ended(code) => {
                        drain(&mut said, |bytes| output.keep(bytes));
                        drain(&mut errors, |bytes| hearing.keep(bytes));
                        return Outcome::Over(hearing.ended(code));
                    }
                    Step::Over(outcome) => {
                        drain(&mut said, |bytes| output.keep(bytes));
                        return outcome;
                    }
                }
            }
        }
    }
}

/// Takes what is there, once; whether more can come.
fn read(from: &mut Receiver, keep: impl FnOnce(&[u8])) -> bool {
    let mut room = [0; 8192];
    match from.try_read(&mut room) {
        Ok(0) => false,
        Ok(len) => {
            keep(&room[..len]);
            true
        }
        Err(e) => e.kind() == io::ErrorKind::WouldBlock,
    }
}

/// Takes all that is there. As much as a pipe holds is enough: a process that goes on writing ends nothing here. The runtime is
/// not asked: it may not have heard yet of bytes that came with the word of their end.
fn drain(from: &mut Receiver, mut keep: impl FnMut(&[u8])) {
    let mut room = [0; 8192];
    for _ in 0..MAX_OUTPUT / room.len() + 1 {
        match file::read(from.as_fd().as_raw_fd(), &mut room) {
            Ok(len @ 1..) => keep(&room[..len]),
            _ => return,
        }
    }
}

/// A pipe: our end of it, and the one for the check.
fn receiver() -> io::Result<(Receiver, Fd)> {
    let (ours, its) = file::pipe()?;
    stream::make_nonblocking(&ours)?;
    Ok((Receiver::from_owned_fd_unchecked(OwnedFd::from(ours))?, its))
}

/// A program that is ended with its owner.
struct Program(Child);

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runs `fleetgate check run`: this very program, whatever lies at its path now. Its exit code; none: a signal ended it.
async fn program(options: &Options, output: &mut Output) -> io::Result<Option<i32>> {
    let (mut said, its) = receiver()?;
    let child = Command::new("/proc/self/exe")
        .arg0("fleetgate")
        .args(["check", "run"])
        .args(words(options).into_iter().map(OsString::from_vec))
        .stdin(Stdio::null())
        .stdout(Stdio::from(OwnedFd::from(its)))
        // It says on standard output what is wrong.
        .stderr(Stdio::null())
        .spawn()?;
    let mut child = Program(child);
    let id = i32::try_from(child.0.id()).map_err(io::Error::other)?;
    let ended = watched(process::pidfd_open(id)?)?;
    let mut is_saying = true;
    loop {
        tokio::select! {
            ready = said.readable(), if is_saying => {
                is_saying = ready.is_ok() && read(&mut said, |bytes| output.keep(bytes));
            }
            _ = ended.readable() => {
                drain(&mut said, |bytes| output.keep(bytes));
                return Ok(child.0.wait()?.code());
            }
        }
    }
}

/// Milliseconds since 1970.
pub(super) fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_came_with_the_word_of_the_end_is_not_lost() {
        let (mut said, its) = receiver().expect("a pipe");
        // The runtime has not looked at the pipe since.
        file::write(its.raw(), b"OK: all is well\n").expect("room");
        let mut output = Vec::new();
        drain(&mut said, |bytes| output.extend_from_slice(bytes));
        assert_eq!(output, b"OK: all is well\n");
    }
}

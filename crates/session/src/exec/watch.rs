//! Binding this process by the filter of a watched session, and handing its listener over, while it is still root: without
//! no_new_privs, so programs with the setuid bit work inside.
//!
//! Between the filter and the watcher's word no call is made that a filter asks about: the one sendmsg has a mark. From the word on the watcher
//! answers, this process's own calls too, until it has become the user's program.

use super::reason;
use crate::order::{OrderDescriptors, failure};
use alloc::vec::Vec;
use fleetgate_sys::seccomp::{self, Instruction, flag};
use fleetgate_sys::{Errno, Fd, poll, socket};
use fleetgate_wire::exec::{HELD, MAX_FILTER, Watch};
use fleetgate_wire::order::Role;
use fleetgate_wire::{Failure, Reason};

/// How long the watcher may take to each of its two words. It does nothing else first.
const PATIENCE_MS: u32 = 5_000;

/// What the order says, with its descriptor.
pub struct WatchRequest<'a> {
    watch: &'a Watch,
    watcher: Fd,
}

/// Takes the watcher's descriptor, if the session is to be watched.
pub fn asked<'a>(
    watch: Option<&'a Watch>,
    given: &mut OrderDescriptors,
) -> Result<Option<WatchRequest<'a>>, Failure> {
    match (watch, given.take(Role::Watcher)) {
        (None, None) => Ok(None),
        (Some(watch), Some(watcher)) => Ok(Some(WatchRequest { watch, watcher })),
        _ => Err(failure(
            Reason::BadDescriptors,
            Errno(0),
            "a filter needs a watcher, and a watcher a filter",
        )),
    }
}

/// Begins it. Ok with a failure: it cannot be watched, and goes on all the same.
pub fn begin(asked: Option<WatchRequest<'_>>) -> Result<Option<Failure>, Failure> {
    let Some(WatchRequest { watch, watcher }) = asked else {
        return Ok(None);
    };
    let begun = match instructions(&watch.filter) {
        Err(refusal) => Err(refusal),
        // That somebody is there is known before the filter is: it cannot be taken back.
        Ok(program) => hear(&watcher).and_then(|()| bind(&program)),
    };
    match begun {
        Ok(listener) => hand_over(&watcher, &listener, watch.pass).map(|()| None),
        Err(refusal) if watch.required => Err(refusal),
        Err(refusal) => Ok(Some(refusal)),
    }
}

/// A filter's bytes as instructions.
pub fn instructions(bytes: &[u8]) -> Result<Vec<Instruction>, Failure> {
    let bad = |what| failure(Reason::BadOrder, Errno(0), what);
    if bytes.is_empty() || bytes.len() > MAX_FILTER || !bytes.len().is_multiple_of(8) {
        return Err(bad("the filter is no list of 1 to 4096 instructions"));
    }
    let (steps, _) = bytes.as_chunks::<8>();
    Ok(steps
        .iter()
        .map(|step| Instruction {
            code: u16::from_ne_bytes([step[0], step[1]]),
            yes: step[2],
            no: step[3],
            value: u32::from_ne_bytes([step[4], step[5], step[6], step[7]]),
        })
        .collect())
}

fn bind(program: &[Instruction]) -> Result<Fd, Failure> {
    let usual = flag::NEW_LISTENER | flag::NO_MITIGATION;
    let installed = match seccomp::install(program, usual | flag::WAIT_KILLABLE) {
        // Before Linux 5.19: a signal interrupts a call that waits, and it is made, and told of, again.
        Err(Errno::EINVAL) => seccomp::install(program, usual),
        other => other,
    };
    match installed {
        Ok(number) => Ok(Fd::from_raw(i32::try_from(number).unwrap_or(-1))),
        Err(errno) => {
            let words = match errno {
                Errno::EBUSY => "watching: somebody watches this service already, a container perhaps",
                Errno::EACCES | Errno::EPERM => "watching: the service lacks CAP_SYS_ADMIN",
                Errno::ENOSYS | Errno::EINVAL => "watching: this kernel has no seccomp listeners",
                _ => "watching: the filter is refused",
            };
            Err(failure(reason(errno), errno, words))
        }
    }
}

/// Waits for the watcher's word.
fn hear(watcher: &Fd) -> Result<(), Failure> {
    let mut watch = [poll::Watch::new(watcher.raw(), poll::READ)];
    let mut word = [0; HELD.len()];
    let got = match poll::poll(&mut watch, Some(PATIENCE_MS)) {
        Ok(0) => Err(Errno::ETIMEDOUT),
        Ok(_) => socket::receive(watcher, &mut word, false),
        Err(errno) => Err(errno),
    };
    match got {
        Ok(got) if got.len == HELD.len() && word == HELD => Ok(()),
        Ok(_) => Err(failure(Reason::System, Errno(0), "watching: the watcher is gone")),
        Err(errno) => Err(failure(
            reason(errno),
            errno,
            "watching: the watcher does not answer",
        )),
    }
}

fn hand_over(watcher: &Fd, listener: &Fd, pass: u64) -> Result<(), Failure> {
    socket::send_marked(watcher, &HELD, &[listener.raw()], pass)
        .map_err(|errno| failure(reason(errno), errno, "watching: handing the listener over"))?;
    hear(watcher)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::ffi::CString;
    use fleetgate_sys::seccomp::calls;

    fn allowing() -> Vec<u8> {
        [&0x06u16.to_ne_bytes()[..], &[0, 0], &0x7fff_0000u32.to_ne_bytes()].concat()
    }

    #[test]
    fn a_filter_has_instructions_and_not_too_many() {
        let one = instructions(&allowing()).expect("one");
        let [step] = one.as_slice() else { panic!("{one:?}") };
        assert_eq!((step.code, step.yes, step.no, step.value), (6, 0, 0, 0x7fff_0000));
        assert!(instructions(&allowing().repeat(MAX_FILTER / 8)).is_ok());
        for bytes in [
            Vec::new(),
            allowing()[1..].to_vec(),
            allowing().repeat(MAX_FILTER / 8 + 1),
        ] {
            assert_eq!(
                instructions(&bytes).expect_err("refused").reason,
                Reason::BadOrder,
                "{}",
                bytes.len()
            );
        }
    }

    /// Without a watcher nothing is bound: the filter that is asked for would end this process at its next read.
    #[test]
    fn with_nobody_there_the_filter_is_not_installed() {
        let step = |code: u16, yes, no, value: u32| {
            [&code.to_ne_bytes()[..], &[yes, no], &value.to_ne_bytes()].concat()
        };
        let filter = [
            step(0x20, 0, 0, 0),
            step(0x15, 0, 1, calls::SYS_read as u32),
            step(0x06, 0, 0, 0x8000_0000),
            step(0x06, 0, 0, 0x7fff_0000),
        ]
        .concat();
        for (required, said, words) in [
            (true, None, "watching: the watcher is gone"),
            (false, None, "watching: the watcher is gone"),
            (true, Some(&b"what?"[..]), "watching: the watcher is gone"),
        ] {
            let (watcher, theirs) = socket::pair().expect("a pair");
            if let Some(said) = said {
                socket::send(&theirs, said, &[]).expect("said");
            }
            drop(theirs);
            let watch = Watch {
                filter: filter.clone(),
                pass: 0,
                required,
            };
            let refusal = match begin(Some(WatchRequest {
                watch: &watch,
                watcher,
            })) {
                Ok(Some(failure)) if !required => failure,
                Err(failure) if required => failure,
                other => panic!("{other:?}"),
            };
            assert_eq!(refusal.subject, CString::new(words).expect("words"));
            let (read, _write) = fleetgate_sys::file::pipe().expect("a pipe");
            read.set_nonblocking(true).expect("set");
            assert_eq!(
                fleetgate_sys::file::read(read.raw(), &mut [0]),
                Err(Errno::EAGAIN)
            );
        }
        assert!(matches!(begin(None), Ok(None)));
    }
}

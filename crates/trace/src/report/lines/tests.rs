//! Lines of events that nobody really had.

use super::*;
use crate::report::output::Target;
use crate::report::signals::tests::signal;
use fleetgate_calls::abi::{Abi, Call};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

/// The first argument when a call begins, the second when it ends.
struct Plain;

impl Words for Plain {
    type CallProgress = u64;

    fn begin(&mut self, enter: &Enter, _: &dyn Memory, into: &mut Vec<u8>) -> u64 {
        let _ = write!(into, "({}, ", enter.arguments[0]);
        enter.arguments[1]
    }

    fn is_whole(&self, _: u64) -> bool {
        false
    }

    fn finish(&mut self, call: EndingCall<'_, u64>, result: i64, _: &dyn Memory, into: &mut Vec<u8>) {
        let _ = write!(into, "{}", call.begun);
        align(call.column, into);
        let _ = write!(into, "= {result}");
    }

    fn abandon(&mut self, call: EndingCall<'_, u64>, _: &dyn Memory, into: &mut Vec<u8>) {
        let _ = write!(into, "{:#x}", call.begun);
        align(call.column, into);
        let _ = write!(into, "= ?");
    }
}

/// Nothing can be read.
struct Blind;

impl Memory for Blind {
    fn read(&self, _: u64, _: &mut [u8]) -> usize {
        0
    }
    fn descriptor(&self, _: i32) -> Option<Vec<u8>> {
        None
    }
    fn directory(&self) -> Option<Vec<u8>> {
        None
    }
}

const WAIT4: u32 = 61;
const EXECVE: u32 = 59;
const EXIT_GROUP: u32 = 231;

fn enter(tid: i32, number: u32) -> Event {
    Event::Enter(Enter {
        tid,
        call: Some(Call {
            abi: Abi::X86_64,
            number,
        }),
        audit: Abi::X86_64.audit(),
        number,
        arguments: [7, 8, 0, 0, 0, 0],
        instruction: 0x7f00,
    })
}

fn leave(tid: i32, result: i64) -> Event {
    Event::Leave { tid, result }
}

fn began(tid: i32, by: i32) -> Event {
    Event::Began { tid, pid: tid, by }
}

fn ended(tid: i32, end: End) -> Event {
    Event::Ended { tid, end }
}

fn plain() -> Style {
    Style {
        column: 20,
        stamp: Stamp::default(),
        spent: false,
        instruction: false,
        prefix: Prefix::Several,
        announce: Announce::Among,
        attaches: false,
        ends: true,
        signals: None,
        statuses: Statuses::ALL,
        results: true,
    }
}

fn place() -> PathBuf {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::SeqCst);
    std::env::temp_dir().join(format!("fleetgate-lines-{}-{number}", std::process::id()))
}

/// What they make of these events, each a millisecond after the other.
fn told(style: Style, events: &[Event]) -> String {
    let path = place();
    let output = Output::open(&Target::File(path.clone(), false)).expect("a file");
    let mut lines = Lines::new(Plain, style, output);
    let mut now = Moment::NONE;
    for event in events {
        lines.tell(event, &Blind, now);
        now.steady += 1_000_000;
    }
    Box::new(lines).into_output().close();
    let text = std::fs::read_to_string(&path).expect("it was written");
    std::fs::remove_file(path).expect("it is there");
    text
}

#[test]
fn lines_are_straces() {
    let two = || vec![began(10, 0), began(11, 10)];
    let with = |more: Vec<Event>| [two(), more].concat();
    let rows: Vec<(&str, Style, Vec<Event>, &str)> = vec![
        (
            "one task",
            plain(),
            vec![
                began(10, 0),
                enter(10, WAIT4),
                leave(10, 3),
                enter(10, EXIT_GROUP),
                ended(10, End::Exited(0)),
            ],
            "wait4(7, 8)         = 3\nexit_group(7, 0x8)  = ?\n+++ exited with 0 +++\n",
        ),
        (
            "two, one after the other",
            plain(),
            with(vec![
                enter(10, WAIT4),
                leave(10, 3),
                enter(11, WAIT4),
                leave(11, 4),
            ]),
            "fleetgate: process 11 attached\n[pid    10] wait4(7, 8) = 3\n[pid    11] wait4(7, 8) = 4\n",
        ),
        (
            "one within the other",
            Style {
                prefix: Prefix::Always,
                announce: Announce::No,
                column: 30,
                ..plain()
            },
            with(vec![
                enter(10, WAIT4),
                enter(11, EXECVE),
                leave(10, 3),
                leave(11, 0),
            ]),
            "10    wait4(7,  <unfinished ...>\n11    execve(7,  <unfinished ...>\n\
             10    <... wait4 resumed>8)   = 3\n11    <... execve resumed>8)  = 0\n",
        ),
        (
            "a signal in the middle, and the last one alone again",
            Style {
                announce: Announce::No,
                ..plain()
            },
            with(vec![
                enter(10, WAIT4),
                Event::Signal {
                    tid: 11,
                    signal: signal(14, 0x80),
                },
                Event::Stopped { tid: 11, signal: 19 },
                ended(11, End::Killed(11, true)),
                leave(10, 11),
            ]),
            "[pid    10] wait4(7,  <unfinished ...>\n\
             [pid    11] --- SIGALRM {si_signo=SIGALRM, si_code=SI_KERNEL} ---\n\
             [pid    11] --- stopped by SIGSTOP ---\n\
             [pid    11] +++ killed by SIGSEGV (core dumped) +++\n\
             <... wait4 resumed>8) = 11\n",
        ),
        (
            "killed in a call, its line open or not",
            Style {
                announce: Announce::No,
                ..plain()
            },
            with(vec![
                enter(10, WAIT4),
                enter(11, WAIT4),
                ended(11, End::Killed(9, false)),
                ended(10, End::Killed(9, false)),
            ]),
            "[pid    10] wait4(7,  <unfinished ...>\n\
             [pid    11] wait4(7,  <unfinished ...>) = ?\n\
             [pid    11] +++ killed by SIGKILL +++\n\
             <... wait4 resumed> <unfinished ...>) = ?\n\
             +++ killed by SIGKILL +++\n",
        ),
        (
            "an exec in a thread",
            Style {
                announce: Announce::No,
                prefix: Prefix::Always,
                ..plain()
            },
            with(vec![
                enter(10, WAIT4),
                enter(11, EXECVE),
                Event::Executed { pid: 10, former: 11 },
                leave(10, 0),
            ]),
            "10    wait4(7,  <unfinished ...>\n11    execve(7,  <pid changed to 10 ...>\n\
             10    +++ superseded by execve in pid 11 +++\n10    <... execve resumed>8) = 0\n",
        ),
        (
            "left alone",
            plain(),
            vec![began(10, 0), enter(10, WAIT4), ended(10, End::Left)],
            "wait4(7,  <detached ...>\nfleetgate: process 10 detached\n",
        ),
        (
            "no results",
            Style {
                results: false,
                ..plain()
            },
            vec![began(10, 0), enter(10, WAIT4), enter(10, EXECVE)],
            "wait4(7, 0x8)       = ?\nexecve(7, 0x8)      = ?\n",
        ),
        (
            "the end of a call was not seen",
            plain(),
            vec![began(10, 0), enter(10, WAIT4), enter(10, EXECVE), leave(10, 0)],
            "wait4(7, 0x8)       = ?\nexecve(7, 8)        = 0\n",
        ),
        (
            "only what failed",
            Style {
                statuses: Statuses {
                    failed: true,
                    ..Statuses::NONE
                },
                ends: false,
                ..plain()
            },
            vec![
                began(10, 0),
                enter(10, WAIT4),
                leave(10, -10),
                enter(10, EXECVE),
                leave(10, 0),
                enter(10, EXIT_GROUP),
                ended(10, End::Exited(1)),
            ],
            "wait4(7, 8)         = -10\n",
        ),
        (
            "only some signals, and how long",
            Style {
                signals: Some(BTreeSet::from([15])),
                spent: true,
                instruction: true,
                column: 0,
                ..plain()
            },
            vec![
                began(10, 0),
                enter(10, WAIT4),
                leave(10, 1),
                Event::Signal {
                    tid: 10,
                    signal: signal(14, 0x80),
                },
                Event::Signal {
                    tid: 10,
                    signal: signal(15, 0x80),
                },
            ],
            "[0000000000007f00] wait4(7, 8) = 1 <0.001000>\n\
             [????????????????] --- SIGTERM {si_signo=SIGTERM, si_code=SI_KERNEL} ---\n",
        ),
    ];
    for (what, style, events, wanted) in rows {
        assert_eq!(told(style, &events), wanted, "{what}");
    }
}

#[test]
fn in_a_file_of_its_own_a_task_is_never_interrupted() {
    let stem = place();
    let output = Output::open(&Target::Each(stem.clone())).expect("names");
    let style = Style {
        announce: Announce::No,
        ..plain()
    };
    let mut lines = Lines::new(Plain, style, output);
    for event in [
        began(10, 0),
        began(11, 10),
        enter(10, WAIT4),
        enter(11, EXECVE),
        leave(10, 3),
        leave(11, 0),
    ] {
        lines.tell(&event, &Blind, Moment::NONE);
    }
    Box::new(lines).into_output().close();
    for (tid, wanted) in [
        (10, "wait4(7, 8)         = 3\n"),
        (11, "execve(7, 8)        = 0\n"),
    ] {
        let path = PathBuf::from(format!("{}.{tid}", stem.display()));
        assert_eq!(std::fs::read_to_string(&path).expect("written"), wanted);
        std::fs::remove_file(path).expect("it is there");
    }
}

//! A list of calls, and no others; or all calls but a list.
//!
//! What the kernel does with a filter before it stands costs more than the filter ever will: it runs it for every call that
//! there is, to find those whose answer needs no argument, and keeps these in a bitmap. So the list becomes a balanced tree:
//! six steps for each of 450 calls instead of forty.

use super::{ARCH, EQUAL, Instruction, LOAD, RET_ALLOW, RET_ERRNO, RETURN, X32, install};
use crate::{Errno, Result};
use alloc::vec::Vec;

/// A call that [`allow_only`] lets through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allowed {
    /// The system call's number (`libc::SYS_…`).
    pub call: i64,
    /// With which arguments; one of these must hold. Empty: any.
    pub with: &'static [Test],
}

/// A test of one argument (from 0), of its lower 32 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Test {
    /// It has this value.
    Equals(u32, u32),
    /// None of these bits is set.
    Clear(u32, u32),
    /// One argument has this value, and another one that.
    Both(u32, u32, u32, u32),
}

impl Allowed {
    /// With any arguments.
    pub const fn any(call: i64) -> Allowed {
        Allowed { call, with: &[] }
    }

    /// Only where one of the tests holds.
    pub const fn when(call: i64, with: &'static [Test]) -> Allowed {
        Allowed { call, with }
    }
}

/// A call that [`allow_all_but`] refuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Forbidden {
    /// The system call's number (`libc::SYS_…`).
    pub call: i64,
    /// It is let through where one of these holds. Empty: never.
    pub unless: &'static [Test],
}

impl Forbidden {
    /// With any arguments.
    pub const fn always(call: i64) -> Forbidden {
        Forbidden { call, unless: &[] }
    }

    /// But where one of the tests holds.
    pub const fn unless(call: i64, unless: &'static [Test]) -> Forbidden {
        Forbidden { call, unless }
    }
}

/// What becomes of a call that is not let through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Otherwise {
    /// It answers this error.
    Deny(Errno),
    /// It ends the process by SIGSYS, which the kernel's audit log shows with the call's number.
    Kill,
}

const JUMP: u16 = 0x05;
const AT_LEAST: u16 = 0x35;
const BITS: u16 = 0x45;
const RET_KILL_PROCESS: u32 = 0x8000_0000;
/// The most calls on one list.
pub const MAX_ALLOWED: usize = 128;
/// The most tests of one call.
pub const MAX_TESTS: usize = 50;
/// The longest program that the kernel takes.
const MAX_PROGRAM: usize = 4096;

/// What becomes of the calls from one number up to that of the next range.
#[derive(Clone, Copy, Debug)]
struct Range {
    from: u32,
    /// Allowed where one of these holds; empty: always. None: never.
    with: Option<&'static [Test]>,
}

impl Range {
    /// Whether one answer is right for both, whatever the arguments.
    fn is_as(&self, other: &Range) -> bool {
        match (self.with, other.with) {
            (None, None) => true,
            (Some(a), Some(b)) => a.is_empty() && b.is_empty(),
            _ => false,
        }
    }
}

/// Every number is in one of them, and neighbours differ. `list` is in order of the numbers; `others` is what holds for
/// those that are not on it.
fn ranges(
    others: Option<&'static [Test]>,
    list: impl ExactSizeIterator<Item = (i64, Option<&'static [Test]>)>,
) -> Vec<Range> {
    let mut out: Vec<Range> = Vec::with_capacity(list.len() * 2 + 1);
    let mut add = |range: Range| match out.last_mut() {
        // A call follows the one before it at once.
        Some(last) if last.from == range.from => *last = range,
        _ => out.push(range),
    };
    add(Range {
        from: 0,
        with: others,
    });
    for (call, with) in list {
        let from = call as u32;
        add(Range { from, with });
        add(Range {
            from: from + 1,
            with: others,
        });
    }
    out.dedup_by(|next, before| next.is_as(before));
    out
}

fn only(list: &[Allowed]) -> Vec<Range> {
    ranges(None, list.iter().map(|a| (a.call, Some(a.with))))
}

fn all_but(list: &[Forbidden]) -> Vec<Range> {
    let with = |f: &Forbidden| (!f.unless.is_empty()).then_some(f.unless);
    ranges(Some(&[]), list.iter().map(|f| (f.call, with(f))))
}

/// A program that grows from its end to its beginning, so that every place to jump to is known. A place is how many
/// instructions lie behind it.
struct Program {
    reversed: Vec<Instruction>,
}

impl Program {
    fn push(&mut self, code: u16, value: u32, yes: u8, no: u8) -> usize {
        self.reversed.push(Instruction { code, yes, no, value });
        self.reversed.len() - 1
    }

    /// Goes on at one place or the other, as the test comes out.
    fn test(&mut self, code: u16, value: u32, yes: usize, no: usize) -> usize {
        let (yes, no) = (self.near(yes), self.near(no));
        let at = self.reversed.len();
        self.push(code, value, (at - yes - 1) as u8, (at - no - 1) as u8)
    }

    /// A place that leads to `place` and that a test can reach, even when one more stands between.
    fn near(&mut self, place: usize) -> usize {
        let over = self.reversed.len() - place - 1;
        match over < usize::from(u8::MAX) {
            true => place,
            false => self.push(JUMP, over as u32, 0, 0),
        }
    }

    /// The tests of a call, one after the other.
    fn decide(&mut self, tests: &[Test], allow: usize, refuse: usize) -> usize {
        let argument = |n: u32| 16 + 8 * n.min(5);
        tests.iter().rev().fold(refuse, |otherwise, test| match *test {
            Test::Equals(n, value) => {
                self.test(EQUAL, value, allow, otherwise);
                self.push(LOAD, argument(n), 0, 0)
            }
            Test::Clear(n, mask) => {
                self.test(BITS, mask, otherwise, allow);
                self.push(LOAD, argument(n), 0, 0)
            }
            Test::Both(n, value, m, other) => {
                self.test(EQUAL, other, allow, otherwise);
                let second = self.push(LOAD, argument(m), 0, 0);
                self.test(EQUAL, value, second, otherwise);
                self.push(LOAD, argument(n), 0, 0)
            }
        })
    }

    /// The way to the range that the call is in.
    fn choose(&mut self, ranges: &[Range], allow: usize, refuse: usize) -> usize {
        let (below, above) = match ranges {
            [] => return refuse,
            [range] => {
                return match range.with {
                    None => refuse,
                    Some([]) => allow,
                    Some(tests) => self.decide(tests, allow, refuse),
                };
            }
            _ => ranges.split_at(ranges.len() / 2),
        };
        let from = above.first().map_or(0, |range| range.from);
        let above = self.choose(above, allow, refuse);
        let below = self.choose(below, allow, refuse);
        self.test(AT_LEAST, from, above, below)
    }
}

/// Only loads of the number and the architecture lie on the way to a call that is allowed with any argument, or with none:
/// the kernel never runs the program for it.
fn program(ranges: &[Range], otherwise: Otherwise) -> Vec<Instruction> {
    let refusal = match otherwise {
        Otherwise::Deny(errno) => RET_ERRNO | errno.0 as u32,
        Otherwise::Kill => RET_KILL_PROCESS,
    };
    let mut program = Program {
        reversed: Vec::with_capacity(ranges.len() * 2 + 8),
    };
    let kill = program.push(RETURN, RET_KILL_PROCESS, 0, 0);
    let refuse = program.push(RETURN, refusal, 0, 0);
    let allow = program.push(RETURN, RET_ALLOW, 0, 0);
    let tree = program.choose(ranges, allow, refuse);
    program.test(AT_LEAST, X32, kill, tree);
    let number = program.push(LOAD, 0, 0, 0);
    // Another architecture's numbers mean other calls: nobody of ours makes them.
    program.test(EQUAL, ARCH, number, kill);
    program.push(LOAD, 4, 0, 0);
    program.reversed.reverse();
    program.reversed
}

/// Lets the calling thread make the calls on the list and no others. It must have no_new_privs or CAP_SYS_ADMIN.
/// A call stands on the list once (`EEXIST`); the list is bounded (`E2BIG`). It is sorted.
pub fn allow_only(list: &mut [Allowed], otherwise: Otherwise) -> Result<()> {
    bounded(list, |a| (a.call, a.with))?;
    bind(&only(list), otherwise)
}

/// Lets the calling thread make all calls but those on the list, of which the same holds; they answer this error. The calls
/// of another architecture's numbering end the process.
pub fn allow_all_but(list: &mut [Forbidden], errno: Errno) -> Result<()> {
    bounded(list, |f| (f.call, f.unless))?;
    bind(&all_but(list), Otherwise::Deny(errno))
}

/// Sorts a list that is within its bounds.
fn bounded<T>(list: &mut [T], of: impl Fn(&T) -> (i64, &'static [Test])) -> Result<()> {
    if list.len() > MAX_ALLOWED || list.iter().any(|one| of(one).1.len() > MAX_TESTS) {
        return Err(Errno::E2BIG);
    }
    list.sort_unstable_by_key(|one| of(one).0);
    match list.windows(2).any(|pair| of(&pair[0]).0 == of(&pair[1]).0) {
        true => Err(Errno::EEXIST),
        false => Ok(()),
    }
}

fn bind(ranges: &[Range], otherwise: Otherwise) -> Result<()> {
    let program = program(ranges, otherwise);
    // The kernel would say EINVAL, which is what a kernel says that has no filters.
    if program.len() > MAX_PROGRAM {
        return Err(Errno::E2BIG);
    }
    install(&program, 0).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seccomp::answer;
    use alloc::vec;

    const ERROR: Errno = Errno::EKEYEXPIRED;

    /// What a thread gets that may make `list` and nothing else.
    fn confined(list: &'static [Allowed], call: i64) -> Result<usize> {
        let mut all: Vec<Allowed> = [
            libc::SYS_futex,
            libc::SYS_munmap,
            libc::SYS_mmap,
            libc::SYS_madvise,
        ]
        .into_iter()
        .chain([libc::SYS_exit, libc::SYS_sigaltstack, libc::SYS_rt_sigprocmask])
        .filter(|c| list.iter().all(|l| l.call != *c))
        .map(Allowed::any)
        .chain(list.iter().copied())
        .collect();
        let thread = std::thread::spawn(move || {
            crate::credentials::set_no_new_privileges().expect("always allowed");
            allow_only(&mut all, Otherwise::Deny(ERROR)).expect("a good list");
            answer(call)
        });
        thread.join().expect("it ends")
    }

    #[test]
    fn only_what_is_on_the_list_is_let_through() {
        const READ: &[Allowed] = &[Allowed::any(libc::SYS_read)];
        const IOCTL: &[Allowed] = &[
            Allowed::when(libc::SYS_ioctl, &[Test::Equals(1, 7), Test::Equals(1, u32::MAX)]),
            Allowed::any(libc::SYS_read),
        ];
        const OTHER: &[Allowed] = &[
            Allowed::when(libc::SYS_ioctl, &[Test::Equals(1, 7), Test::Equals(1, 8)]),
            Allowed::any(libc::SYS_read),
        ];
        const BOTH: &[Allowed] = &[
            Allowed::when(
                libc::SYS_ioctl,
                &[
                    Test::Both(0, 5, 1, u32::MAX),
                    Test::Both(0, u32::MAX, 1, 5),
                    Test::Both(0, u32::MAX, 1, u32::MAX),
                ],
            ),
            Allowed::any(libc::SYS_read),
        ];
        const NEITHER: &[Allowed] = &[
            Allowed::when(
                libc::SYS_ioctl,
                &[Test::Both(0, 5, 1, u32::MAX), Test::Both(0, u32::MAX, 1, 5)],
            ),
            Allowed::any(libc::SYS_read),
        ];
        const CLEAR: &[Allowed] = &[Allowed::when(libc::SYS_setns, &[Test::Clear(1, 4)])];
        for (list, call, answer) in [
            (READ, libc::SYS_read, Errno::EBADF),
            (READ, libc::SYS_openat, ERROR),
            (READ, libc::SYS_setns, ERROR),
            (IOCTL, libc::SYS_ioctl, Errno::EBADF),
            (IOCTL, libc::SYS_read, Errno::EBADF),
            (OTHER, libc::SYS_ioctl, ERROR),
            (OTHER, libc::SYS_read, Errno::EBADF),
            (CLEAR, libc::SYS_setns, ERROR),
            (BOTH, libc::SYS_ioctl, Errno::EBADF),
            (BOTH, libc::SYS_read, Errno::EBADF),
            (NEITHER, libc::SYS_ioctl, ERROR),
            (NEITHER, libc::SYS_read, Errno::EBADF),
        ] {
            assert_eq!(confined(list, call), Err(answer), "{list:?}, call {call}");
        }
    }

    /// The answer to a call, and how many steps it took; None for it where an argument was read.
    fn run(program: &[Instruction], call: u32, arguments: Option<[u32; 6]>) -> (Option<u32>, usize) {
        let (mut at, mut value, mut steps) = (0, 0, 0);
        loop {
            let i = program[at];
            at += 1;
            steps += 1;
            let branch = |holds: bool| usize::from(if holds { i.yes } else { i.no });
            match (i.code, i.value) {
                (LOAD, 0) => value = call,
                (LOAD, 4) => value = ARCH,
                (LOAD, offset) => match arguments {
                    Some(arguments) => value = arguments[(offset as usize - 16) / 8],
                    None => return (None, steps),
                },
                (EQUAL, operand) => at += branch(value == operand),
                (AT_LEAST, operand) => at += branch(value >= operand),
                (BITS, operand) => at += branch(value & operand != 0),
                (JUMP, distance) => at += distance as usize,
                (RETURN, answer) => return (Some(answer), steps),
                other => panic!("an instruction {other:?}"),
            }
        }
    }

    /// By the words of the list.
    fn meant(list: &[Allowed], call: u32, arguments: [u32; 6]) -> bool {
        let argument = |n: u32| arguments[n as usize];
        let holds = |test: &Test| match *test {
            Test::Equals(n, value) => argument(n) == value,
            Test::Clear(n, mask) => argument(n) & mask == 0,
            Test::Both(n, value, m, other) => argument(n) == value && argument(m) == other,
        };
        let found = list.iter().find(|allowed| allowed.call == i64::from(call));
        found.is_some_and(|allowed| allowed.with.is_empty() || allowed.with.iter().any(holds))
    }

    const TESTS: &[Test] = &[Test::Equals(1, 7), Test::Clear(2, 4), Test::Both(0, 1, 3, 2)];

    /// Every third, every fifth, neighbours, one, none; with tests and without.
    fn lists() -> Vec<Vec<Allowed>> {
        let of = |calls: &mut dyn Iterator<Item = i64>, tested: i64| -> Vec<Allowed> {
            let allowed = |call| match tested != 0 && call % tested == 0 {
                true => Allowed::when(call, TESTS),
                false => Allowed::any(call),
            };
            calls.map(allowed).collect()
        };
        vec![
            Vec::new(),
            of(&mut [0].into_iter(), 0),
            of(&mut [5].into_iter(), 5),
            of(&mut (0..MAX_ALLOWED as i64), 1),
            of(&mut (0..MAX_ALLOWED as i64), 0),
            of(&mut (0..MAX_ALLOWED as i64).map(|n| n * 3), 2),
            of(&mut (20..60).map(|n| n * 5 + n % 2), 7),
            of(&mut [9, 10, 11, 12, 13, 17, 18, 400, 401].into_iter(), 10),
        ]
    }

    #[test]
    fn every_call_is_answered_as_the_list_means_it() {
        let values = [0, 1, 2, 4, 7, u32::MAX];
        for list in lists() {
            let program = program(&only(&list), Otherwise::Kill);
            for call in 0..600 {
                for n in 0..values.len().pow(2) {
                    let (a, b) = (values[n % values.len()], values[n / values.len()]);
                    let arguments = [a, b, b, a & 3, 0, 0];
                    let allowed = run(&program, call, Some(arguments)).0 == Some(RET_ALLOW);
                    assert_eq!(
                        allowed,
                        meant(&list, call, arguments),
                        "call {call} with {arguments:?} of {list:?}"
                    );
                }
            }
            for other in [X32, u32::MAX] {
                assert_eq!(run(&program, other, None).0, Some(RET_KILL_PROCESS));
            }
        }
    }

    #[test]
    fn a_list_of_the_forbidden_means_the_opposite() {
        let values = [0, 1, 2, 4, 7];
        for allowed in lists() {
            let list: Vec<Forbidden> = allowed
                .iter()
                .map(|a| Forbidden::unless(a.call, a.with))
                .collect();
            let program = program(&all_but(&list), Otherwise::Deny(ERROR));
            for call in 0..600 {
                let listed = allowed.iter().find(|a| a.call == i64::from(call));
                for n in 0..values.len().pow(2) {
                    let (a, b) = (values[n % values.len()], values[n / values.len()]);
                    let arguments = [a, b, b, a & 3, 0, 0];
                    let wanted = match listed {
                        None => RET_ALLOW,
                        Some(a) if !a.with.is_empty() && meant(&allowed, call, arguments) => RET_ALLOW,
                        Some(_) => RET_ERRNO | ERROR.0 as u32,
                    };
                    assert_eq!(
                        run(&program, call, Some(arguments)).0,
                        Some(wanted),
                        "call {call} with {arguments:?} of {list:?}"
                    );
                }
                let tested = listed.is_some_and(|a| !a.with.is_empty());
                assert_eq!(run(&program, call, None).0.is_none(), tested, "call {call}");
            }
            assert_eq!(run(&program, X32, None).0, Some(RET_KILL_PROCESS));
        }
    }

    #[test]
    fn what_needs_no_argument_is_found_by_few_steps_without_one() {
        // The kernel keeps a call in its bitmap when it reaches the answer by loads of offsets 0 and 4 alone.
        for list in lists() {
            let program = program(&only(&list), Otherwise::Kill);
            for call in 0..600 {
                let (answer, steps) = run(&program, call, None);
                let tested = list
                    .iter()
                    .any(|a| a.call == i64::from(call) && !a.with.is_empty());
                assert_eq!(answer.is_none(), tested, "call {call}");
                // Five before the tree; twice the tree's depth, where jumps are long; the answer.
                assert!(steps <= 5 + 2 * 9 + 1, "call {call}: {steps}");
            }
        }
    }

    #[test]
    fn lists_beyond_their_bounds_are_refused() {
        let mut long = [Allowed::any(1); MAX_ALLOWED + 1];
        assert_eq!(allow_only(&mut long, Otherwise::Kill), Err(Errno::E2BIG));
        let mut twice = [Allowed::any(1), Allowed::any(2), Allowed::any(1)];
        assert_eq!(allow_only(&mut twice, Otherwise::Kill), Err(Errno::EEXIST));
        const MANY: &[Test] = &[Test::Both(0, 1, 1, 2); MAX_TESTS];
        let mut heavy: Vec<Allowed> = (0..MAX_ALLOWED as i64).map(|n| Allowed::when(n, MANY)).collect();
        assert_eq!(allow_only(&mut heavy, Otherwise::Kill), Err(Errno::E2BIG));
    }
}

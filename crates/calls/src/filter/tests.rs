//! The compiler against the definition, by the interpreter and by the kernel.

mod random;

use super::*;
use crate::select::{Is, Test};
use fleetgate_sys::{Errno, credentials, seccomp};
use random::{EDGES, Random};

const ANSWERS: Answers = Answers::trace(7);
/// ARM's, of 32 bits: nobody here knows it.
const UNKNOWN: u32 = 0x4000_0028;

/// Every number that is tried under an architecture.
fn numbers(audit: u32) -> impl Iterator<Item = u32> {
    let x32 = (audit == Abi::X32.audit()).then_some(X32_BIT..=X32_BIT | 600);
    (0..=600).chain(x32.into_iter().flatten()).chain(EDGES)
}

/// Holds a program to its selection, by `tries` sets of arguments for each call that has tests.
fn hold(selection: &Selection, program: &Program, random: &mut Random, tries: usize) {
    let architectures = [Abi::X86_64, Abi::I386, Abi::Aarch64].map(Abi::audit);
    for arch in architectures.into_iter().chain([UNKNOWN, 0, u32::MAX]) {
        for nr in numbers(arch) {
            let call = Call::seen(arch, nr);
            let when =
                call.and_then(|call| selection.of(call.abi).find(|(number, _)| *number == call.number));
            let when = when.map_or(&When::Always, |(_, when)| when);
            let always_allowed = constant(program, arch, nr);
            let tries = if *when == When::Always { 1 } else { tries };
            for _ in 0..tries {
                let args = random.arguments(when);
                let data = Data {
                    nr,
                    arch,
                    instruction: random.next(),
                    args,
                };
                let stops = selection.stops(arch, nr, &args);
                let answer = if stops {
                    ANSWERS.selected
                } else {
                    ANSWERS.otherwise
                };
                assert_eq!(run(program, &data), Ok(answer), "{data:x?} {when:?}");
                assert!(!(stops && always_allowed), "{data:x?} {when:?}");
                // What has no tests and does not stop is known to the kernel beforehand.
                assert!(stops || *when != When::Always || always_allowed, "{data:x?}");
            }
        }
    }
}

#[test]
fn a_program_stops_what_the_selection_says_and_nothing_else() {
    // How many selections, calls in each numbering at most, with tests how many of ten; at least so many must compile.
    for (selections, calls, tests, compile_at_least) in [
        (1, 0, 0, 1),
        (12, 1, 5, 12),
        (12, 8, 10, 12),
        (12, 40, 3, 12),
        (6, 300, 0, 6),
        (6, 300, 1, 6),
        (4, 60, 10, 2),
    ] {
        let mut random = Random(calls << 8 | tests);
        let mut compiled = 0;
        for _ in 0..selections {
            let selection = random.selection(calls, tests);
            match compile(&selection, &ANSWERS) {
                Ok(program) => {
                    hold(&selection, &program, &mut random, 12);
                    compiled += 1;
                }
                Err(TooLong { instructions }) => assert!(instructions > MAX_INSTRUCTIONS),
            }
        }
        assert!(compiled >= compile_at_least, "{compiled} of {calls}, {tests}");
    }
}

fn test(argument: u8, wide: bool, is: Is) -> Test {
    Test { argument, wide, is }
}

/// Hundreds of tests in all that a jump can lead over: one call with many groups, one group with many tests, and tests of
/// many calls between which the tree has to jump.
#[test]
fn jumps_reach_across_long_programs() {
    let equals = |i: u64| test((i % 6) as u8, i.is_multiple_of(2), Is::Not(i << 30 | i));
    let exactly = |i: u64| Is::Masked {
        mask: 0xffff_0000_ffff,
        value: i << 32 | i,
    };
    for (name, calls, groups, tests) in [
        ("groups", 1, 300, 1),
        ("tests", 1, 1, 300),
        ("both", 2, 20, 20),
        ("calls", 250, 1, 1),
    ] {
        let mut selection = Selection::none();
        for number in 0..calls {
            let group = |g: u64| {
                let mut group: Vec<Test> = (0..tests)
                    .map(|i| equals(g * 1000 + i + u64::from(number)))
                    .collect();
                group.push(test(5, true, exactly(g + u64::from(number))));
                group
            };
            let groups = (0..groups).map(group).collect();
            let call = Call {
                abi: Abi::X86_64,
                number: number * 2,
            };
            selection.add(call, When::Any(groups));
        }
        let program = compile(&selection, &ANSWERS);
        let program = program.unwrap_or_else(|error| panic!("{name}: {error}"));
        let far = program.instructions().iter().any(|i| i.code == assemble::JUMP);
        assert!(far && program.instructions().len() > 600, "{name}");
        hold(&selection, &program, &mut Random(1), 40);
        let mut random = Random(2);
        for _ in 0..2000 {
            let (g, stops) = (random.below(groups), random.one_in(2));
            let last = 1 << 63 | g << 32 | g | if stops { 0 } else { 1 << 47 };
            let args = [1 << 63, 1 << 63, 1 << 63, 1 << 63, 1 << 63, last];
            let data = Data {
                nr: 0,
                arch: Abi::X86_64.audit(),
                instruction: 0,
                args,
            };
            assert_eq!(selection.stops(data.arch, data.nr, &args), stops, "{name} {g}");
            let answer = if stops {
                ANSWERS.selected
            } else {
                ANSWERS.otherwise
            };
            assert_eq!(run(&program, &data), Ok(answer), "{name} {g}");
        }
    }
}

#[test]
fn a_program_that_no_kernel_takes_is_an_error() {
    let with = |groups: u64| {
        let mut selection = Selection::none();
        let group = |i| vec![test(0, true, Is::Not(i)), test(1, true, Is::Not(i))];
        let call = Call {
            abi: Abi::NATIVE,
            number: 1,
        };
        selection.add(call, When::Any((0..groups).map(group).collect()));
        compile(&selection, &ANSWERS)
    };
    assert!(with(500).is_ok_and(|program| program.instructions().len() > 4000));
    let error = with(600).expect_err("too long");
    assert_eq!(
        error.to_string(),
        format!(
            "a filter for these calls has {} instructions, and the kernel takes 4096: ask for fewer of their arguments, or \
             for whole classes of calls",
            error.instructions
        )
    );
}

#[test]
fn what_never_or_always_holds_loads_no_argument() {
    let never = [
        test(0, true, Is::AnyOf(0)),
        test(1, false, Is::AnyOf(1 << 32)),
        test(2, true, Is::Masked { mask: 3, value: 4 }),
        test(
            2,
            false,
            Is::Masked {
                mask: 1 << 32,
                value: 4,
            },
        ),
        test(6, true, Is::Not(0)),
        test(7, true, Is::AtLeast(1)),
    ];
    let always = [
        test(0, true, Is::AtLeast(0)),
        test(1, false, Is::AtLeast(1 << 32)),
        test(2, true, Is::Masked { mask: 0, value: 0 }),
        test(9, true, Is::Not(1)),
    ];
    let asked = test(3, false, Is::Not(1));
    let never = never.map(|test| When::Any(vec![vec![asked, test]]));
    let always = always.map(|test| When::Any(vec![vec![asked, asked], vec![test]]));
    for (when, stops) in never
        .into_iter()
        .chain([When::Any(Vec::new())])
        .map(|when| (when, false))
        .chain(
            always
                .into_iter()
                .chain([When::Any(vec![Vec::new()])])
                .map(|when| (when, true)),
        )
    {
        let call = Call {
            abi: Abi::X86_64,
            number: 5,
        };
        let mut selection = Selection::none();
        selection.add(call, when.clone());
        let program = compile(&selection, &ANSWERS).expect("short");
        let loads = program.instructions().iter().filter(|i| i.code == assemble::LOAD);
        assert!(loads.into_iter().all(|i| i.value < 8), "{when:?}");
        assert_eq!(constant(&program, call.abi.audit(), 5), !stops, "{when:?}");
        hold(&selection, &program, &mut Random(3), 4);
    }
}

/// A 64-bit program can make i386's calls with anything in the upper halves of its registers. A filter sees that.
#[test]
fn upper_halves_hide_nothing_from_a_test_of_an_i386_call() {
    let exactly = |value| Is::Masked {
        mask: u64::MAX,
        value,
    };
    for (abi, is, argument, stops) in [
        (Abi::I386, exactly(5), 0xdead_0000_0005, true),
        (Abi::X86_64, exactly(5), 0xdead_0000_0005, false),
        (Abi::I386, exactly(1 << 32 | 5), 1 << 32 | 5, false),
        (Abi::I386, Is::AtLeast(1 << 32), u64::MAX, false),
        (Abi::X86_64, Is::AtLeast(1 << 32), u64::MAX, true),
        (Abi::I386, Is::Not(5), 0xdead_0000_0005, false),
        (Abi::I386, Is::AnyOf(1 << 40), u64::MAX, false),
    ] {
        let mut selection = Selection::none();
        selection.add(Call { abi, number: 11 }, When::Any(vec![vec![test(0, true, is)]]));
        let program = compile(&selection, &ANSWERS).expect("short");
        let data = Data {
            nr: 11,
            arch: abi.audit(),
            instruction: 0,
            args: [argument; 6],
        };
        let answer = if stops {
            ANSWERS.selected
        } else {
            ANSWERS.otherwise
        };
        assert_eq!(run(&program, &data), Ok(answer), "{abi:?} {is:?} {argument:x}");
        assert_eq!(selection.stops(data.arch, data.nr, &data.args), stops);
    }
}

#[test]
fn what_is_never_written_is_not_run() {
    let step = |code, value| seccomp::Instruction {
        code,
        yes: 0,
        no: 0,
        value,
    };
    let load = |offset| step(assemble::LOAD, offset);
    let allow = step(assemble::RETURN, ALLOW);
    for (program, answer) in [
        (vec![], Err(Fault::Endless)),
        (vec![load(0)], Err(Fault::Endless)),
        (vec![step(assemble::JUMP, u32::MAX), allow], Err(Fault::Endless)),
        (vec![load(64), allow], Err(Fault::Unknown(0))),
        (vec![load(0), load(2), allow], Err(Fault::Unknown(1))),
        // A shift; a return of what is loaded.
        (vec![load(0), step(0x64, 1), allow], Err(Fault::Unknown(1))),
        (vec![load(0), step(0x16, 0), allow], Err(Fault::Unknown(1))),
        (vec![load(12), step(assemble::AND, 1), allow], Ok(ALLOW)),
        (vec![load(60), allow], Ok(ALLOW)),
    ] {
        let program = Program(program);
        assert_eq!(run(&program, &Data::default()), answer, "{program:?}");
        assert!(!constant(&program, 0, 0), "{program:?}");
    }
    assert!(constant(&Program(vec![load(4), load(0), allow]), 0, 0));
}

/// What getppid answers under a program, for each of these arguments.
fn under(program: &Program, questions: &[([u64; 6], bool)]) -> Vec<Result<(), Errno>> {
    let (program, questions) = (program.clone(), questions.to_vec());
    let thread = std::thread::spawn(move || {
        credentials::set_no_new_privileges().expect("always allowed");
        seccomp::install(program.instructions(), 0).expect("the kernel takes it");
        let ask = |(arguments, x32)| seccomp::parent_with(arguments, x32).map(drop);
        questions.into_iter().map(ask).collect()
    });
    thread.join().expect("it ends")
}

#[test]
fn the_kernel_takes_the_programs_and_answers_the_same() {
    const GETPPID: u32 = libc::SYS_getppid as u32;
    let answers = Answers {
        selected: 0x0005_0000 | Errno::EDOM.0 as u32,
        otherwise: ALLOW,
    };
    let mut random = Random(11);
    let (mut stopped, mut free) = (0, 0);
    for round in 0..24 {
        let mut selection = Selection::none();
        let mut own = When::Any(Vec::new());
        for abi in Abi::SERVED {
            // Calls that exist nowhere, so that the thread can end, and getppid amid them. The last are long.
            for number in (700..760).filter(|_| round >= 16) {
                selection.add(Call { abi: *abi, number }, random.when(6));
            }
            let call = Call {
                abi: *abi,
                number: GETPPID,
            };
            let when = random.when(if round == 0 { 0 } else { 10 });
            selection.add(call, when.clone());
            if *abi == Abi::NATIVE {
                own = when;
            }
        }
        let Ok(program) = compile(&selection, &answers) else {
            continue;
        };
        let questions: Vec<_> = (0..40).map(|i| (random.arguments(&own), i % 4 == 0)).collect();
        for ((arguments, x32), answer) in questions.iter().zip(under(&program, &questions)) {
            let call = Call {
                abi: if *x32 { Abi::X32 } else { Abi::NATIVE },
                number: GETPPID,
            };
            let data = Data {
                nr: call.register(),
                arch: call.abi.audit(),
                instruction: 0,
                args: *arguments,
            };
            let stops = selection.stops(data.arch, data.nr, arguments);
            assert_eq!(run(&program, &data) == Ok(answers.selected), stops);
            assert_eq!(answer == Err(Errno::EDOM), stops, "{data:x?} {selection:?}");
            *if stops { &mut stopped } else { &mut free } += 1;
        }
    }
    assert!(stopped > 100 && free > 100, "{stopped} {free}");
}

#[test]
fn a_listing_says_what_each_step_is_about() {
    let names = |call: Call| match (call.abi, call.number) {
        (Abi::X86_64 | Abi::X32, 42) | (Abi::I386, 362) => Some("connect"),
        (Abi::X86_64, 43) => Some("accept"),
        (Abi::X86_64, 62) => Some("kill"),
        (Abi::X86_64, 200) => Some("tkill"),
        (Abi::X86_64, 257) => Some("openat"),
        _ => None,
    };
    let mut selection = Selection::none();
    let mut add = |abi, number, when: &[&[Test]]| {
        let groups: Vec<Vec<Test>> = when.iter().map(|group| group.to_vec()).collect();
        let when = if groups.is_empty() {
            When::Always
        } else {
            When::Any(groups)
        };
        selection.add(Call { abi, number }, when);
    };
    for (abi, number) in [(Abi::X86_64, 42), (Abi::X32, 42), (Abi::I386, 362)] {
        add(abi, number, &[]);
    }
    let signal = test(1, false, Is::Not(0));
    add(Abi::X86_64, 62, &[&[signal]]);
    add(Abi::X86_64, 200, &[&[signal]]);
    let own = Is::Masked {
        mask: u64::MAX,
        value: 0xffff_ff9c,
    };
    let flags = test(2, false, Is::AnyOf(0x241));
    let mode = Is::Masked { mask: 3, value: 2 };
    add(
        Abi::X86_64,
        257,
        &[
            &[flags],
            &[
                test(0, false, own),
                test(2, false, mode),
                test(1, true, Is::AtLeast(4096)),
            ],
        ],
    );
    let program = compile(&selection, &Answers::notify()).expect("short");
    let wanted = [
        " 0  ld   arch",
        " 1  jeq  0xc000003e   goto 2, else 24         ; x86_64, x32",
        " 2  ld   nr",
        " 3  jge  200          goto 7, else 4          ; from tkill on",
        " 4  jge  62           goto 6, else 5          ; from kill on",
        " 5  jeq  42           goto 28, else 29        ; connect",
        " 6  jeq  62           goto 9, else 29         ; kill",
        " 7  jge  258          goto 23, else 8",
        " 8  jge  201          goto 11, else 9",
        " 9  ld   arg1                                 ; kill, tkill",
        "10  jeq  0            goto 29, else 28",
        "11  jge  257          goto 12, else 29        ; from openat on",
        "12  ld   arg2                                 ; openat",
        "13  jset 0x241        goto 28, else 14",
        "14  ld   arg0",
        "15  jeq  0xffffff9c   goto 16, else 29",
        "16  ld   arg2",
        "17  and  0x3",
        "18  jeq  2            goto 19, else 29",
        "19  ld   arg1 high",
        "20  jgt  0            goto 28, else 21",
        "21  ld   arg1",
        "22  jge  4096         goto 28, else 29",
        "23  jeq  0x4000002a   goto 28, else 29        ; connect of x32",
        "24  jeq  0x40000003   goto 25, else 27        ; i386",
        "25  ld   nr",
        "26  jeq  362          goto 28, else 29        ; connect",
        "27  jeq  0xc00000b7   goto 29, else 28        ; aarch64",
        "28  ret  notify",
        "29  ret  allow",
    ];
    assert_eq!(show(&program, &names).lines().collect::<Vec<_>>(), wanted);
}

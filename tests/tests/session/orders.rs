//! Bad orders: each ends its helper with a typed refusal, and nothing is executed.

use fleetgate_sys::process::Exit;
use fleetgate_sys::{Fd, file, memfd, socket};
use fleetgate_tests::orders::{self, Started, command, pipe, read_all, run, start, text, user};
use fleetgate_wire::common::{Ids, Variable};
use fleetgate_wire::exec::{Exec, Limit, Program};
use fleetgate_wire::order::{BY_REFERENCE, Order, Role, Work};
use fleetgate_wire::{Failure, MAX_INLINE, MAX_ORDER, Reason, Reply};

const ROLES: [Role; 3] = [Role::Stdin, Role::Stdout, Role::Stderr];

fn frame_of(work: Work, roles: &[Role]) -> Vec<u8> {
    fleetgate_wire::encode(&Order {
        work,
        roles: roles.to_vec(),
    })
}

/// An order that would be noticed if it ran.
fn loud() -> Exec {
    command(user(), "echo launched")
}

/// The helper's end: what it said, what the program wrote, how it ended.
fn end(started: Started, output: Fd) -> (Vec<Reply>, String, Exit) {
    let replies = started.replies();
    (replies, read_all(output), started.wait())
}

/// Sends raw bytes with `count` copies of a pipe's writing end, which would show whatever ran.
fn raw(frame: &[u8], count: usize) -> (Vec<Reply>, String, Exit) {
    let started = start("exec", &[]);
    let (output, theirs) = pipe();
    socket::send(&started.control, frame, &vec![theirs.raw(); count]).expect("send");
    drop(theirs);
    end(started, output)
}

/// The one refusal; nothing ran.
fn refused(result: (Vec<Reply>, String, Exit)) -> Failure {
    let (replies, output, exit) = result;
    assert_eq!((output.as_str(), exit), ("", Exit::Code(70)));
    let [Reply::Failed { failure }] = replies.as_slice() else {
        panic!("{replies:?}")
    };
    failure.clone()
}

#[test]
fn the_intact_order_runs() {
    let (replies, output, exit) = raw(&frame_of(Work::Exec(loud()), &ROLES), 3);
    assert!(matches!(
        replies.as_slice(),
        [Reply::Ready, Reply::Leaving { .. }]
    ));
    assert_eq!((output.as_str(), exit), ("launched\n", Exit::Code(0)));
}

#[test]
fn a_cut_order_is_refused_wherever_it_is_cut() {
    let frame = frame_of(Work::Exec(loud()), &ROLES);
    // Every byte would be 200 processes; the decoder's own tests cut at every byte.
    for len in (1..frame.len()).step_by(7).chain([frame.len() - 1]) {
        assert_eq!(
            refused(raw(&frame[..len], 3)).reason,
            Reason::BadOrder,
            "cut at {len}"
        );
    }
}

#[test]
fn frames_that_are_no_order() {
    let frame = frame_of(Work::Exec(loud()), &ROLES);
    let changed = |at: usize, byte: u8| {
        let mut frame = frame.clone();
        frame[at] = byte;
        frame
    };
    let mut trailing = frame.clone();
    trailing.push(0);
    let mut reordered = frame[10..].to_vec();
    reordered.extend_from_slice(&frame[..10]);
    let mut zero = frame.clone();
    let at = frame
        .windows(8)
        .position(|w| w == b"launched")
        .expect("the line is in it");
    zero[at] = 0;
    let table = [
        (trailing, "after its last field"),
        (changed(0, b'x'), "not one of our frames"),
        (changed(2, 99), "has format 99"),
        (changed(7, 77), "unknown descriptor role: 77"),
        (changed(10, 9), "unknown order: 9"),
        (reordered, "not one of our frames"),
        (zero, "zero byte inside a string"),
        (vec![0; 100], "not one of our frames"),
    ];
    for (frame, why) in table {
        let failure = refused(raw(&frame, 3));
        assert_eq!(failure.reason, Reason::BadOrder);
        let said = failure.subject.to_string_lossy();
        assert!(said.contains(why), "{said:?} should say {why:?}");
    }
}

#[test]
fn a_zero_byte_in_an_argument_is_refused() {
    let order = Exec {
        program: Program::Direct {
            argv: vec![text("/bin/echo"), text("before@after")],
        },
        ..loud()
    };
    let mut frame = frame_of(Work::Exec(order), &ROLES);
    let at = frame
        .windows(7)
        .position(|w| w == b"before@")
        .expect("the argument is in it");
    frame[at + 6] = 0;
    assert_eq!(refused(raw(&frame, 3)).reason, Reason::BadOrder);
}

#[test]
fn an_oversized_message_is_refused() {
    let failure = refused(raw(&vec![b'f'; MAX_INLINE + 1], 3));
    assert_eq!((failure.reason, failure.errno), (Reason::BadOrder, 90));
}

#[test]
fn orders_of_other_kinds_are_refused() {
    let home = Work::CheckHome(fleetgate_wire::home::CheckHome {
        ids: Ids {
            uid: 1,
            gid: 1,
            groups: vec![],
        },
        home: c"/".into(),
        files: vec![],
        strict_modes: true,
    });
    assert_eq!(refused(raw(&frame_of(home, &[]), 0)).reason, Reason::BadOrder);
}

#[test]
fn descriptors_that_do_not_match_are_refused() {
    let table: [(&[Role], usize); 8] = [
        (&ROLES, 2),
        (&ROLES, 4),
        (&ROLES, 0),
        (&ROLES[..2], 2),
        (&[], 0),
        (&[Role::Terminal], 1),
        (&[Role::Stdin, Role::Stdin, Role::Stderr], 3),
        (&[Role::Stdin, Role::Stdout, Role::Stderr, Role::Resolver], 4),
    ];
    for (roles, count) in table {
        let failure = refused(raw(&frame_of(Work::Exec(loud()), roles), count));
        assert_eq!(failure.reason, Reason::BadDescriptors, "{roles:?} with {count}");
    }
    // A terminal's name, but a pipe in its place.
    let mut order = loud();
    order.terminal = Some(c"/dev/pts/0".into());
    let failure = refused(raw(&frame_of(Work::Exec(order.clone()), &[Role::Terminal]), 1));
    assert_eq!((failure.reason, failure.errno), (Reason::BadDescriptors, 25));
    let failure = refused(raw(&frame_of(Work::Exec(order), &ROLES), 3));
    assert_eq!(failure.reason, Reason::BadDescriptors);
}

#[test]
fn an_order_beside_the_message_must_be_sealed_and_bounded() {
    let frame = frame_of(Work::Exec(loud()), &ROLES);
    let by_reference = |memory: Option<&Fd>| {
        let started = start("exec", &[]);
        let (output, theirs) = pipe();
        let mut fds: Vec<i32> = memory.iter().map(|m| m.raw()).collect();
        fds.extend(if memory.is_some() {
            vec![theirs.raw(); 3]
        } else {
            vec![]
        });
        socket::send(&started.control, &BY_REFERENCE, &fds).expect("send");
        drop(theirs);
        end(started, output)
    };
    // The positive control: a short order may come that way too.
    let sealed = memfd::sealed(c"order", &frame).expect("memfd");
    assert_eq!(by_reference(Some(&sealed)).1, "launched\n");

    let open = memfd::create(c"order", memfd::Kind::Data).expect("memfd");
    file::write_all_at(&open, &frame, 0).expect("write");
    assert_eq!(refused(by_reference(Some(&open))).reason, Reason::BadDescriptors);
    // Sealed against shrinking only: it could still be changed while it is read.
    memfd::add_seals(&open, 2).expect("seal");
    assert_eq!(refused(by_reference(Some(&open))).reason, Reason::BadDescriptors);

    let (other, _end) = pipe();
    assert_eq!(refused(by_reference(Some(&other))).reason, Reason::BadDescriptors);
    assert_eq!(refused(by_reference(None)).reason, Reason::BadDescriptors);

    let huge = memfd::create(c"order", memfd::Kind::Data).expect("memfd");
    file::truncate(&huge, MAX_ORDER as u64 + 1).expect("truncate");
    memfd::add_seals(&huge, memfd::CONTENT_SEALS).expect("seal");
    assert_eq!(refused(by_reference(Some(&huge))).reason, Reason::TooLarge);
}

#[test]
fn nobody_there_and_nothing_waiting() {
    let started = start("exec", &[]);
    let Started { control, pidfd, .. } = started;
    drop(control);
    orders::wait_for(&pidfd, fleetgate_sys::poll::READ);
    assert_eq!(
        fleetgate_sys::process::wait(&pidfd, true),
        Ok(Some(Exit::Code(70)))
    );

    let by_hand = fleetgate_tests::helper_command()
        .args(["exec", "--order"])
        .output()
        .expect("start");
    assert_eq!(by_hand.status.code(), Some(70));
    let said = String::from_utf8_lossy(&by_hand.stderr);
    assert!(said.contains("fleetgate starts this program"), "{said}");
}

/// `count` variables of `each` bytes.
fn big(count: usize, each: usize) -> Exec {
    let mut order = command(user(), "env | grep -c ^VAR");
    let value = text("v".repeat(each));
    order.environment.set = (0..count)
        .map(|i| Variable {
            name: text(format!("VAR{i}")),
            value: value.clone(),
        })
        .collect();
    order
}

#[test]
fn a_megabyte_of_environment() {
    // Few long ones, and many short ones: neither is slow.
    assert_eq!(run(big(10, 100_000)).good(), "10\n");
    assert_eq!(run(big(20_000, 40)).good(), "20000\n");
    // More than the kernel takes: told as what it is, after the word that nothing would come back from.
    let outcome = run(big(60, 100_000));
    let failure = outcome.failure().expect("a refusal");
    assert_eq!((failure.reason.clone(), failure.errno), (Reason::TooLarge, 7));
    assert_eq!(outcome.errors, "/bin/sh: Argument list too long\n");
    assert_eq!(outcome.exit, Exit::Code(1));
}

/// Too little for a large order, and enough for a small one: the program's own memory, and 8 MB. The helper alone gets 48.
fn little_memory() -> String {
    let program = std::fs::read(fleetgate_tests::helper()).expect("there");
    let mapped = mapped_bytes(&program) + (8 << 20);
    format!("--as={}", mapped.max(48 << 20))
}

/// How much a program file maps: the LOAD segments of its ELF header.
fn mapped_bytes(program: &[u8]) -> u64 {
    let number = |at: usize, len: usize| {
        let mut bytes = [0; 8];
        bytes[..len].copy_from_slice(&program[at..at + len]);
        u64::from_le_bytes(bytes)
    };
    let (first, size, count) = (number(32, 8), number(54, 2), number(56, 2));
    let segments = (0..count).map(|n| (first + n * size) as usize);
    let loaded = segments.filter(|at| number(*at, 4) == 1);
    loaded.map(|at| number(at + 40, 8)).sum()
}

#[test]
fn no_memory_is_told() {
    let order = big(75, 100_000);
    let started = orders::start_by(&["/usr/bin/prlimit", &little_memory()], "exec");
    let (output, theirs) = pipe();
    let given = [
        (Role::Stdin, &theirs),
        (Role::Stdout, &theirs),
        (Role::Stderr, &theirs),
    ];
    orders::send(&started.control, Work::Exec(order), &given);
    drop(theirs);
    assert_eq!(refused(end(started, output)).reason, Reason::NoMemory);
    // The positive control: under the same limit a small order runs.
    let started = orders::start_by(&["/usr/bin/prlimit", &little_memory()], "exec");
    let (output, theirs) = pipe();
    let given = [
        (Role::Stdin, &theirs),
        (Role::Stdout, &theirs),
        (Role::Stderr, &theirs),
    ];
    orders::send(&started.control, Work::Exec(loud()), &given);
    drop(theirs);
    assert_eq!(end(started, output).1, "launched\n");
}

#[test]
fn a_full_process_table_is_told() {
    const RLIMIT_NPROC: u32 = 6;
    // Somebody of whom nobody else has processes, with one that waits.
    let mut account = user();
    account.ids.uid = 54777;
    let (stdin, feed) = pipe();
    let (output, theirs) = pipe();
    let first = start("exec", &[]);
    let given = [
        (Role::Stdin, &stdin),
        (Role::Stdout, &theirs),
        (Role::Stderr, &theirs),
    ];
    orders::send(
        &first.control,
        Work::Exec(command(account.clone(), "exec cat")),
        &given,
    );
    let replies = first.replies();
    assert!(matches!(
        replies.as_slice(),
        [Reply::Ready, Reply::Leaving { .. }]
    ));

    let mut order = command(account, "echo launched");
    order.resources.limits = vec![Limit {
        resource: RLIMIT_NPROC,
        soft: 0,
        hard: 0,
    }];
    let outcome = run(order);
    let failure = outcome.failure().expect("a refusal");
    assert_eq!((failure.reason.clone(), failure.errno), (Reason::System, 11));
    assert_eq!(outcome.errors, "/bin/sh: Resource temporarily unavailable\n");
    assert_eq!(outcome.output, "");
    drop((feed, stdin, theirs, output));
    assert_eq!(first.wait(), Exit::Code(0));
}

#[test]
fn a_limit_that_does_not_exist_is_refused() {
    let mut order = loud();
    order.resources.limits = vec![Limit {
        resource: 99,
        soft: 0,
        hard: 0,
    }];
    let outcome = run(order);
    assert_eq!(
        outcome.failure().expect("a refusal").subject.to_str(),
        Ok("setting a resource limit")
    );
    assert_eq!(outcome.output, "");
}

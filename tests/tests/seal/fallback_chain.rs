//! The fallback chain: which rungs work here, in which order they are taken, what moves it and what does not.

use fleetgate_seal::{Cause, Death, FallbackChain, Image, Options, Source, Strategy, Verdict};
use fleetgate_sys::process::{self, Exit};
use fleetgate_sys::spawn::{Program, Spawn, Stack, Strings, spawn};
use fleetgate_sys::{Errno, Fd, exe};
use fleetgate_tests::helper;
use fleetgate_tests::seal::Place;
use std::time::Duration;

fn options(order: &[Strategy]) -> Options {
    Options {
        order: order.to_vec(),
        ..Options::default()
    }
}

fn open(order: &[Strategy]) -> FallbackChain {
    FallbackChain::open(Source::File(helper()), options(order)).expect("a rung works")
}

#[test]
fn every_strategy_but_installed_works_here() {
    for strategy in Strategy::ALL.into_iter().skip(1) {
        let chain = open(&[strategy]);
        let image = chain.image().expect("an image");
        assert_eq!(image.strategy(), strategy);
        assert_eq!(image.name(), c"fleetgate-session");
        let again = chain.image().expect("another");
        let same = image.fd().raw() == again.fd().raw();
        assert_eq!(same, strategy.is_shared(), "{strategy}");
        if matches!(strategy, Strategy::Memfd | Strategy::Tmpfile | Strategy::Unlinked) {
            let seen = exe::identity(image.fd()).expect("fstat");
            assert_eq!((seen.mode & 0o7777, seen.links == 0), (0o555, true), "{strategy}");
        }
    }
}

#[test]
fn an_accusation_without_proof_moves_nothing() {
    let chain = open(&[Strategy::Memfd, Strategy::Plain]);
    let image = chain.image().expect("an image");
    let death = Death::Killed {
        signal: 9,
        lived: Duration::from_millis(1),
    };
    for _ in 0..1000 {
        assert_eq!(chain.image_failed(&image, death), Verdict::ImageIsFine);
    }
    assert!(chain.report().moves.is_empty());
}

/// Eight threads make images and start them at once: while one of them is between clone and exec it holds a copy of
/// whatever the others have open for writing, and an image with a writer cannot be executed.
#[test]
fn images_are_made_and_started_from_many_threads_at_once() {
    for strategy in [
        Strategy::Memfd,
        Strategy::Overlay,
        Strategy::Tmpfile,
        Strategy::Unlinked,
    ] {
        let chain = open(&[strategy]);
        let start = || {
            let null: Fd = std::fs::File::open("/dev/null").expect("/dev/null").into();
            let mut stack = Stack::new().expect("a stack");
            for _ in 0..20 {
                let image = chain.image().expect("an image");
                let argv = Strings::new([image.name(), c"true"]);
                let what = Spawn {
                    program: Program::Fd(image.fd()),
                    argv: &argv,
                    envp: &Strings::new([]),
                    fds: &[null.raw(); 3],
                    cgroup: None,
                };
                let child = spawn(&what, &mut stack).unwrap_or_else(|e| panic!("{strategy}: {e}"));
                assert_eq!(
                    process::wait(&child.pidfd, true),
                    Ok(Some(Exit::Code(0))),
                    "{strategy}"
                );
            }
        };
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(start);
            }
        });
    }
}

/// A wrong path must not cost the machine its memory.
#[test]
fn a_program_of_more_than_a_gigabyte_is_not_copied() {
    let place = Place::below("/var/tmp");
    let path = place.file("large", b"", 0o755);
    let file = std::fs::File::options().write(true).open(&path).expect("open");
    file.set_len((1 << 30) + 1).expect("a sparse file");
    let source = Source::File(path);
    for strategy in [Strategy::Memfd, Strategy::Tmpfile, Strategy::Unlinked] {
        let refusal = Image::make(strategy, &source, c"x", Some(&place.path)).expect_err("too large");
        assert_eq!(refusal.cause, Cause::Errno(Errno::EFBIG), "{refusal}");
    }
}

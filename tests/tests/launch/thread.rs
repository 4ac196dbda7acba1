//! Launching away from the caller: an exec that somebody holds up holds up nobody else.

use fleetgate_launch::{Completions, Launch, LaunchError, LaunchThreads, Stage, Threads};
use fleetgate_seal::{FallbackChain, Strategy};
use fleetgate_sys::Fd;
use fleetgate_sys::poll::READ;
use fleetgate_sys::process::Exit;
use fleetgate_sys::seccomp::{Action, Rule, allow, calls, confine, next};
use fleetgate_tests::launching::{apart, chain, chain_of, echo};
use fleetgate_tests::orders::{read_all, wait_for};
use std::sync::Arc;
use std::time::Duration;

/// Launch threads of which each exec of `fallback chain`'s image has to ask; the probe's were before.
fn asking(chain: &Arc<FallbackChain>, bounds: Threads) -> (Fd, LaunchThreads) {
    let image = chain.image().expect("image").fd().raw() as u32;
    let rule = Rule {
        call: calls::SYS_execveat,
        argument: Some((0, image)),
        action: Action::Ask,
    };
    let listener = confine(&[rule]).expect("confine").expect("a listener");
    (
        listener,
        LaunchThreads::new(chain.clone(), bounds).expect("threads"),
    )
}

#[test]
fn a_completion_rings_a_descriptor() {
    let threads = LaunchThreads::new(chain(), Threads::default()).expect("threads");
    let completions = Completions::new().expect("completions");
    let asked = echo("hello");
    threads
        .submit(asked.launch, completions.file(42))
        .expect("queued");
    wait_for(completions.bell(), READ);
    let mut done = completions.take();
    let (token, outcome) = done.pop_front().expect("one");
    let (running, _) = outcome.expect("a session");
    assert_eq!((token, done.len()), (42, 0));
    assert_eq!(read_all(asked.output), "hello\n");
    assert_eq!(running.wait_exit(), Ok(Exit::Code(0)));
}

#[test]
fn a_held_up_exec_holds_up_nobody_else() {
    apart(|| {
        let (listener, threads) = asking(&chain_of(&[Strategy::Memfd]), Threads::default());
        let completions = Completions::new().expect("completions");
        let (first, second) = (echo("first"), echo("second"));
        threads.submit(first.launch, completions.file(1)).expect("queued");
        let held = next(&listener).expect("the first exec");
        threads
            .submit(second.launch, completions.file(2))
            .expect("queued");
        let passes = next(&listener).expect("the second exec, though the first is held up");
        allow(&listener, &passes).expect("allow");
        wait_for(completions.bell(), READ);
        let (token, outcome) = completions.take().pop_front().expect("one");
        assert_eq!(token, 2);
        assert_eq!(read_all(second.output), "second\n");
        assert_eq!(outcome.expect("a session").0.wait_exit(), Ok(Exit::Code(0)));
        // The first was only held up: let go, it is a session as any other.
        allow(&listener, &held).expect("allow");
        wait_for(completions.bell(), READ);
        let (token, outcome) = completions.take().pop_front().expect("one");
        assert_eq!(token, 1);
        assert_eq!(read_all(first.output), "first\n");
        assert_eq!(outcome.expect("a session").0.wait_exit(), Ok(Exit::Code(0)));
    });
}

#[test]
fn an_exec_that_is_never_let_go_is_ended_at_its_deadline() {
    apart(|| {
        let chain = chain_of(&[Strategy::Memfd]);
        let (listener, threads) = asking(&chain, Threads::default());
        let completions = Completions::new().expect("completions");
        let launch = Launch {
            deadline: Duration::from_secs(2),
            ..echo("x").launch
        };
        threads.submit(launch, completions.file(1)).expect("queued");
        next(&listener).expect("it is held up");
        wait_for(completions.bell(), READ);
        let (_, outcome) = completions.take().pop_front().expect("one");
        let error = outcome.expect_err("nobody lets it go");
        assert!(
            matches!(
                error,
                LaunchError::TimedOut {
                    stage: Stage::Exec,
                    ..
                }
            ),
            "{error}"
        );
        assert!(error.to_string().contains("held up its execution"), "{error}");
        assert_eq!(chain.report().moves.len(), 0);
    });
}

#[test]
fn a_full_queue_says_so() {
    apart(|| {
        let bounds = Threads {
            most: 1,
            queue: 1,
            ..Threads::default()
        };
        let (listener, threads) = asking(&chain_of(&[Strategy::Memfd]), bounds);
        let completions = Completions::new().expect("completions");
        threads
            .submit(echo("held up").launch, completions.file(1))
            .expect("taken");
        next(&listener).expect("it is held up");
        threads
            .submit(echo("waits").launch, completions.file(2))
            .expect("queued");
        let error = threads
            .submit(echo("refused").launch, completions.file(3))
            .expect_err("full");
        assert!(matches!(error, LaunchError::Busy { waiting: 1 }), "{error}");
        // The end, in whichever order: what waits is refused, what is held up is ended.
        drop(threads);
        let mut ends = Vec::new();
        while ends.len() < 2 {
            wait_for(completions.bell(), READ);
            for (token, outcome) in completions.take() {
                let error = outcome.expect_err("nothing was launched");
                ends.push((token, matches!(error, LaunchError::Stopped)));
            }
        }
        ends.sort_unstable();
        assert_eq!(ends, [(1, false), (2, true)]);
    });
}

//! Endpoint security, played: whatever runs from memory is refused or killed while sessions start. No session
//! fails; the server is on another rung, and the report says why.

use fleetgate_launch::Launcher;
use fleetgate_seal::{FallbackChain, Strategy};
use fleetgate_sys::Errno;
use fleetgate_sys::process;
use fleetgate_sys::seccomp::{Action, Rule, allow, calls, confine, next};
use fleetgate_tests::launching::{
    apart, asked, chain, children_of_thread, runs_from_memory, session, stop_and_kill,
};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};

/// Sessions that have to start while it happens.
const SESSIONS: usize = 40;
/// The thread whose helpers are watched, by a name that no other test uses.
const WATCHED: &str = "watched-alone";

fn starts_in_memory(chain: &FallbackChain) {
    let strategy = chain.image().expect("image").strategy();
    assert_eq!(
        strategy,
        Strategy::Memfd,
        "the helper under test is not installed, so memory comes first"
    );
}

/// What the operator is told.
fn left_memory(chain: &FallbackChain) {
    let report = chain.report();
    assert_ne!(report.current, Strategy::Memfd);
    let left = &report.moves[0];
    assert_eq!(left.from, Strategy::Memfd);
    let rung = report
        .strategies
        .iter()
        .find(|r| r.strategy == Strategy::Memfd)
        .expect("every strategy is listed");
    assert_eq!(rung.available, Some(false));
    assert!(!rung.why.is_empty() && !left.why.is_empty());
    println!("moved to {}: {}", report.current, left.why);
}

#[test]
fn a_rule_against_executing_memory() {
    let chain = chain();
    starts_in_memory(&chain);
    let image = chain.image().expect("image").fd().raw() as u32;
    apart(|| {
        let mut launcher = Launcher::new(chain.clone()).expect("launcher");
        session(&mut launcher).expect("the first, in peace");
        let deny_exec = Rule {
            call: calls::SYS_execveat,
            argument: Some((0, image)),
            action: Action::Deny(Errno::EPERM),
        };
        confine(&[Rule::deny(calls::SYS_memfd_create, Errno::EPERM), deny_exec]).expect("confine");
        for _ in 0..SESSIONS {
            let running = session(&mut launcher).expect("no session fails");
            assert_ne!(running.strategy, Strategy::Memfd);
        }
    });
    left_memory(&chain);
}

#[test]
fn a_server_that_starts_under_the_rule_is_on_another_rung_at_once() {
    apart(|| {
        confine(&[Rule::deny(calls::SYS_memfd_create, Errno::EPERM)]).expect("confine");
        let chain = chain();
        let report = chain.report();
        assert_ne!(report.current, Strategy::Memfd);
        let rung = report
            .strategies
            .iter()
            .find(|r| r.strategy == Strategy::Memfd)
            .expect("listed");
        assert!(
            rung.why.contains("memfd_create: Operation not permitted (EPERM)"),
            "{}",
            rung.why
        );
        session(&mut Launcher::new(chain).expect("launcher")).expect("a session");
    });
}

/// A watcher that is asked before a program receives its order, and kills it if it runs from memory.
#[test]
fn a_watcher_that_kills_at_once() {
    let chain = chain();
    starts_in_memory(&chain);
    let killed = AtomicU32::new(0);
    apart(|| {
        let mut launcher = Launcher::new(chain.clone()).expect("launcher");
        session(&mut launcher).expect("the first, in peace");
        let rule = Rule {
            call: calls::SYS_recvmsg,
            argument: None,
            action: Action::Ask,
        };
        let listener = confine(&[rule]).expect("confine").expect("a listener");
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while asked(&listener, &over) {
                    let waiting = next(&listener).expect("a call");
                    if runs_from_memory(waiting.pid)
                        && let Ok(pidfd) = process::pidfd_open(waiting.pid)
                    {
                        let _ = process::signal(&pidfd, 9);
                        killed.fetch_add(1, SeqCst);
                    }
                    let _ = allow(&listener, &waiting);
                }
            });
            for _ in 0..SESSIONS {
                session(&mut launcher).expect("no session fails");
            }
            over.store(true, SeqCst);
        });
    });
    assert!(killed.load(SeqCst) >= 2, "a session's helper and the probe");
    left_memory(&chain);
}

/// A watcher that looks through the processes now and then, as most products do. It stops whom it suspects, looks
/// again, and kills who still runs from memory: so it never hits a user's program.
#[test]
fn a_watcher_that_looks_now_and_then() {
    let chain = chain();
    starts_in_memory(&chain);
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(SeqCst) {
                children_of_thread(WATCHED)
                    .into_iter()
                    .filter(|pid| runs_from_memory(*pid))
                    .for_each(stop_and_kill);
            }
        });
        let chain = &chain;
        // A thread whose children can be told from those of the other tests in this process.
        std::thread::Builder::new()
            .name(WATCHED.to_owned())
            .spawn_scoped(scope, move || {
                let mut launcher = Launcher::new(chain.clone()).expect("launcher");
                for turn in 0.. {
                    session(&mut launcher).expect("no session fails");
                    if turn >= SESSIONS && !chain.report().moves.is_empty() {
                        break;
                    }
                }
            })
            .expect("thread")
            .join()
            .expect("its assertions");
        over.store(true, SeqCst);
    });
    left_memory(&chain);
}

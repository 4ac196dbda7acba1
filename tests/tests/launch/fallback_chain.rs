//! What a launch does when its image, the machine or the user's own hand fails it.

use fleetgate_launch::{Launch, LaunchError, Launcher, Stage};
use fleetgate_seal::Strategy;
use fleetgate_sys::process::{self, Exit};
use fleetgate_sys::seccomp::{Action, Rule, allow, calls, confine, next};
use fleetgate_sys::{Errno, Fd};
use fleetgate_tests::launching::{apart, ask, asked, chain, chain_of, echo, session};
use fleetgate_tests::orders::{command, read_all, text, user};
use fleetgate_wire::Reason;
use fleetgate_wire::exec::Program;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{AtomicBool, AtomicU32};
use std::time::Duration;

#[test]
fn an_order_becomes_a_session() {
    let mut launcher = Launcher::new(chain()).expect("launcher");
    let running = session(&mut launcher).expect("a session");
    assert_eq!((running.tries, running.fallback), (1, None));
}

#[test]
fn an_order_beyond_64_kilobytes_travels_in_a_memfd() {
    let mut launcher = Launcher::new(chain()).expect("launcher");
    let mut order = command(user(), "echo ${#BIG}");
    let value = text("x".repeat(100_000));
    order.environment.set.push(fleetgate_wire::common::Variable {
        name: c"BIG".into(),
        value,
    });
    let asked = ask(order);
    let (running, _) = launcher.launch(asked.launch).expect("a session");
    assert_eq!(read_all(asked.output), "100000\n");
    assert_eq!(running.wait_exit(), Ok(Exit::Code(0)));
}

#[test]
fn an_order_beyond_every_bound_is_refused_before_anything_starts() {
    let mut launcher = Launcher::new(chain()).expect("launcher");
    let mut order = command(user(), "true");
    for _ in 0..90 {
        let value = text("x".repeat(100_000));
        order.environment.set.push(fleetgate_wire::common::Variable {
            name: c"BIG".into(),
            value,
        });
    }
    let error = launcher.launch(ask(order).launch).expect_err("too long");
    assert!(matches!(error, LaunchError::OrderTooLong { .. }), "{error}");
}

#[test]
fn a_refusal_of_the_helper_comes_back_with_its_reason() {
    let mut launcher = Launcher::new(chain()).expect("launcher");
    let mut order = command(user(), "");
    order.program = Program::Direct {
        argv: vec![c"/nowhere/at/all".into()],
    };
    let error = launcher.launch(ask(order).launch).expect_err("no such program");
    let LaunchError::Refused(failure) = &error else {
        panic!("{error}")
    };
    assert_eq!(failure.reason, Reason::NoProgram);
    assert!(error.to_string().contains("/nowhere/at/all"), "{error}");
}

#[test]
fn an_image_that_may_not_be_executed_is_left_and_the_session_starts() {
    let chain = chain();
    let first = chain.image().expect("image");
    let refused = first.fd().raw() as u32;
    let (tries, strategy) = apart(|| {
        let mut launcher = Launcher::new(chain.clone()).expect("launcher");
        let rule = Rule {
            call: calls::SYS_execveat,
            argument: Some((0, refused)),
            action: Action::Deny(Errno::EACCES),
        };
        confine(&[rule]).expect("confine");
        let running = session(&mut launcher).expect("a session");
        (running.tries, running.strategy)
    });
    assert_ne!(strategy, first.strategy());
    assert_eq!(tries, 2);
    let moves = chain.report().moves;
    assert_eq!(moves.len(), 1);
    assert!(moves[0].why.contains("EACCES"), "{}", moves[0].why);
}

#[test]
fn a_full_process_table_is_not_the_images_fault() {
    let chain = chain();
    apart(|| {
        let mut launcher = Launcher::new(chain.clone()).expect("launcher");
        confine(&[Rule::deny(calls::SYS_clone3, Errno::EAGAIN)]).expect("confine");
        let error = launcher.launch(echo("x").launch).expect_err("no process");
        assert!(matches!(error, LaunchError::NoProcess), "{error}");
    });
    apart(|| {
        let mut launcher = Launcher::new(chain.clone()).expect("launcher");
        confine(&[Rule::deny(calls::SYS_execveat, Errno::ENOMEM)]).expect("confine");
        let error = launcher.launch(echo("x").launch).expect_err("no memory");
        assert!(matches!(error, LaunchError::NoMemory { .. }), "{error}");
    });
    assert_eq!(chain.report().moves.len(), 0);
}

/// Has every helper of the calling thread ask before it goes home, which it does between Ready and Leaving.
fn ask_on_the_way_home() -> Fd {
    let rule = Rule {
        call: calls::SYS_chdir,
        argument: None,
        action: Action::Ask,
    };
    confine(&[rule]).expect("confine").expect("a listener")
}

/// The user ends his helper: the next that asks.
fn kill_next(listener: &Fd) {
    let waiting = next(listener).expect("a helper on its way home");
    let pidfd = process::pidfd_open(waiting.pid).expect("pidfd");
    process::signal(&pidfd, 9).expect("kill");
}

#[test]
fn who_kills_his_own_helpers_a_thousand_times_moves_nothing() {
    const KILLS: u32 = 1000;
    let chain = chain();
    let strategy = chain.image().expect("image").strategy();
    let (killed, over) = (AtomicU32::new(0), AtomicBool::new(false));
    apart(|| {
        let mut launcher = Launcher::new(chain.clone()).expect("launcher");
        let listener = ask_on_the_way_home();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while killed.load(SeqCst) < KILLS {
                    kill_next(&listener);
                    killed.fetch_add(1, SeqCst);
                }
                // What comes after is let live.
                while asked(&listener, &over) {
                    let waiting = next(&listener).expect("a call");
                    let _ = allow(&listener, &waiting);
                }
            });
            let mut failed = 0;
            while killed.load(SeqCst) < KILLS {
                let Err(error) = launcher.launch(echo("x").launch) else {
                    continue;
                };
                let LaunchError::Died { stage, exit, .. } = error else {
                    panic!("{error}");
                };
                let by_kill = Some(Exit::Signal {
                    number: 9,
                    core: false,
                });
                assert_eq!((stage, exit), (Stage::Ready, by_kill));
                failed += 1;
            }
            over.store(true, SeqCst);
            assert!(failed >= KILLS / 3, "{failed} sessions of his failed");
        });
    });
    assert_eq!(killed.load(SeqCst), KILLS);
    let report = chain.report();
    assert_eq!((report.current, report.moves.len()), (strategy, 0));
    // And somebody else's session starts from the same rung.
    let running = session(&mut Launcher::new(chain).expect("launcher")).expect("a session");
    assert_eq!((running.strategy, running.tries), (strategy, 1));
}

#[test]
fn a_single_death_costs_nobody_his_session() {
    let chain = chain();
    apart(|| {
        let mut launcher = Launcher::new(chain.clone()).expect("launcher");
        let listener = ask_on_the_way_home();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                kill_next(&listener);
                let again = next(&listener).expect("the second try");
                allow(&listener, &again).expect("allow");
            });
            let running = session(&mut launcher).expect("a session all the same");
            assert_eq!(running.tries, 2);
        });
    });
    assert_eq!(chain.report().moves.len(), 0);
}

#[test]
fn a_helper_that_is_late_is_killed_and_told_as_late() {
    let chain = chain_of(&[Strategy::Memfd]);
    apart(|| {
        let mut launcher = Launcher::new(chain.clone()).expect("launcher");
        let listener = ask_on_the_way_home();
        let launch = Launch {
            deadline: Duration::from_secs(2),
            ..echo("x").launch
        };
        let error = launcher.launch(launch).expect_err("it hangs on its way home");
        assert!(
            matches!(
                error,
                LaunchError::TimedOut {
                    stage: Stage::Ready,
                    ..
                }
            ),
            "{error}"
        );
        drop(listener);
    });
    assert_eq!(chain.report().moves.len(), 0);
}

//! A session inside a PAM session: the conversation, the launch on the fallback chain, the end.

use fleetgate_launch::pam::{PamError, PamSession};
use fleetgate_launch::{Begun, LaunchError, Launcher};
use fleetgate_seal::Strategy;
use fleetgate_sys::process::Exit;
use fleetgate_tests::launching::{ask, chain_of, children_of_thread, runs_from_memory, stop_and_kill};
use fleetgate_tests::needs_root;
use fleetgate_tests::orders::{command, read_all, user};
use fleetgate_tests::resolver::{Resolver, start};
use fleetgate_tests::world::{PASSWORD, USER, World, c, wait_until};
use fleetgate_wire::pam::{Prompt, Secret};
use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{AtomicBool, AtomicI32};
use std::time::Duration;

const SERVICE: &str = "fleetgate-test";
/// The thread whose helpers are watched, by a name that no other test uses.
const WATCHED: &str = "watched-in-pam";
const UNIX: &str = "auth required pam_unix.so\naccount required pam_unix.so\nsession required pam_env.so readenv=1 \
                    envfile=/etc/environment\n";
const PATIENCE: Duration = Duration::from_secs(60);

fn service() -> (World, Resolver) {
    let world = World::new();
    world.write(&format!("etc/pam.d/{SERVICE}"), UNIX);
    world.write("etc/environment", "FROM_PAM=yes\n");
    let resolver = Resolver::start(&world, &["--service", SERVICE], "");
    (world, resolver)
}

/// Types `password` at every question.
fn typing(password: &'static str) -> impl FnMut(&[Prompt]) -> Option<Vec<Secret>> {
    move |prompts| {
        let asked = prompts.iter().filter(|p| p.asks());
        Some(asked.map(|_| Secret::new(c(password))).collect())
    }
}

fn begin(resolver: &Resolver, password: &'static str) -> Result<PamSession, PamError> {
    let control = resolver.control.as_ref().expect("it serves");
    let begun = PamSession::begin(
        control,
        start(SERVICE, USER, true),
        PATIENCE,
        &mut typing(password),
    );
    begun.map(|(session, user)| {
        assert_eq!(user, c(USER));
        session
    })
}

#[test]
fn a_session_runs_inside_its_pam_session() {
    needs_root!("a mount namespace");
    let (_world, resolver) = service();
    let mut session = begin(&resolver, PASSWORD).expect("the right password");
    let opened = session.open(c"ssh", &mut typing("")).expect("opens");
    assert!(
        opened
            .environment
            .iter()
            .any(|v| v.name.to_bytes() == b"FROM_PAM"),
        "{opened:?}"
    );
    let mut launcher = Launcher::new(chain_of(&[Strategy::Memfd])).expect("launcher");
    let mut order = command(user(), "echo $FROM_PAM; exit 6");
    order.environment.set = opened.environment;
    let asked = ask(order);
    let (running, begun) = launcher.launch_in(&mut session, asked.launch).expect("a session");
    assert!(matches!(begun, Begun::Executed { .. }), "{begun:?}");
    assert_eq!(running.strategy, Strategy::Memfd);
    assert_eq!(read_all(asked.output), "yes\n");
    assert_eq!(session.wait_end().expect("ends"), (Exit::Code(6), vec![]));
}

#[test]
fn a_wrong_password_is_refused_by_name() {
    needs_root!("a mount namespace");
    let (_world, resolver) = service();
    let error = begin(&resolver, "wrong").err().expect("refused");
    assert!(
        error.to_string().starts_with("PAM refused: pam_authenticate: "),
        "{error}"
    );
}

#[test]
fn who_gives_up_is_refused() {
    needs_root!("a mount namespace");
    let (_world, resolver) = service();
    let control = resolver.control.as_ref().expect("it serves");
    let begun = PamSession::begin(control, start(SERVICE, USER, true), PATIENCE, &mut |_| None);
    assert!(matches!(begun, Err(PamError::Refused { .. })));
}

#[test]
fn a_refusal_of_the_helper_comes_back_and_the_pam_session_ends() {
    needs_root!("a mount namespace");
    let (_world, resolver) = service();
    let mut session = begin(&resolver, PASSWORD).expect("the right password");
    session.open(c"ssh", &mut typing("")).expect("opens");
    let chain = chain_of(&[Strategy::Memfd]);
    let mut launcher = Launcher::new(chain.clone()).expect("launcher");
    let mut order = command(user(), "");
    order.program = fleetgate_wire::exec::Program::Direct {
        argv: vec![c"/nowhere".into()],
    };
    let error = launcher
        .launch_in(&mut session, ask(order).launch)
        .expect_err("no such program");
    assert!(matches!(error, LaunchError::Refused(_)), "{error}");
    let (exit, close_errors) = session.wait_end().expect("ends");
    assert!(matches!(exit, Exit::Code(code) if code != 0), "{exit:?}");
    assert!(close_errors.is_empty());
    assert!(chain.report().moves.is_empty());
}

/// A watcher that kills what runs from memory, the probe too, while sessions start inside PAM.
#[test]
fn a_killed_helper_is_started_again_in_the_same_pam_session() {
    needs_root!("a mount namespace");
    let (_world, resolver) = service();
    let chain = chain_of(&[Strategy::Memfd, Strategy::Overlay]);
    let over = AtomicBool::new(false);
    let pam_process = AtomicI32::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(SeqCst) {
                let pam = pam_process.load(SeqCst);
                let children = std::fs::read_to_string(format!("/proc/{pam}/task/{pam}/children"));
                children
                    .unwrap_or_default()
                    .split_whitespace()
                    .filter_map(|pid| pid.parse().ok())
                    .chain(children_of_thread(WATCHED))
                    .filter(|pid| runs_from_memory(*pid))
                    .for_each(stop_and_kill);
            }
        });
        let (chain, pam_process, resolver) = (&chain, &pam_process, &resolver);
        let sessions = move || {
            let mut launcher = Launcher::new(chain.clone()).expect("launcher");
            let mut retried = false;
            while chain.report().moves.is_empty() {
                let mut session = begin(resolver, PASSWORD).expect("the right password");
                let opened = session.open(c"ssh", &mut typing("")).expect("opens");
                pam_process.store(opened.process, SeqCst);
                let asked = ask(command(user(), "echo here I am"));
                let (running, begun) = launcher
                    .launch_in(&mut session, asked.launch)
                    .expect("no session fails");
                assert!(matches!(begun, Begun::Executed { .. }), "{begun:?}");
                assert_eq!(read_all(asked.output), "here I am\n");
                let (exit, close_errors) = session.wait_end().expect("ends");
                assert_eq!((exit, close_errors), (Exit::Code(0), vec![]));
                retried |= running.tries > 1;
            }
            assert!(
                retried,
                "the rung was left by a session that started all the same"
            );
        };
        let watched = std::thread::Builder::new().name(WATCHED.to_owned());
        let done = watched.spawn_scoped(scope, sessions).expect("thread").join();
        over.store(true, SeqCst);
        done.expect("its assertions");
    });
    assert_eq!(chain.report().current, Strategy::Overlay);
}

/// Two launching sides in one PAM session: each hears of its own helper, and the session closes with the last of them.
#[test]
fn another_launch_enters_an_open_pam_session_by_its_door() {
    needs_root!("a mount namespace");
    let (_world, resolver) = service();
    let mut first = begin(&resolver, PASSWORD).expect("the right password");
    let (opened, door) = first.open_with_door(c"ssh", &mut typing("")).expect("opens");
    let (mut second, entered) = door.join(PATIENCE).expect("it is open");
    assert_eq!(entered.process, opened.process);
    assert_eq!(entered.groups, opened.groups);
    assert!(
        entered
            .environment
            .iter()
            .any(|v| v.name.to_bytes() == b"FROM_PAM"),
        "{entered:?}"
    );
    let mut launcher = Launcher::new(chain_of(&[Strategy::Memfd])).expect("launcher");
    let mut launch = |session: &mut PamSession, script: &str| {
        let asked = ask(command(user(), script));
        let (_, begun) = launcher.launch_in(session, asked.launch).expect("a session");
        assert!(matches!(begun, Begun::Executed { .. }), "{begun:?}");
        asked.output
    };
    let lives = || std::path::Path::new(&format!("/proc/{}", opened.process)).exists();
    let output = launch(&mut second, "kill -STOP $$; exit 7");
    launch(&mut first, "exit 6");
    assert_eq!(first.wait_end().expect("ends"), (Exit::Code(6), vec![]));
    assert!(lives(), "the other side has a helper");
    // A third side that wants nothing holds nothing open.
    assert!(door.join(PATIENCE).is_some());
    let children = format!("/proc/{0}/task/{0}/children", opened.process);
    let child = std::fs::read_to_string(children).expect("one child");
    let child = child.trim().parse().expect("a number");
    wait_until("the program to stop", || {
        let stat = std::fs::read_to_string(format!("/proc/{child}/stat"));
        stat.is_ok_and(|stat| stat.contains(") T "))
    });
    let child = fleetgate_sys::process::pidfd_open(child).expect("it lives");
    fleetgate_sys::process::signal(&child, 18).expect("goes on");
    assert_eq!(second.wait_end().expect("ends"), (Exit::Code(7), vec![]));
    assert_eq!(read_all(output), "");
    assert!(door.join(PATIENCE).is_none(), "it is over");
}

//! A session inside a PAM session: the conversation, the launch on the ladder, the end.
#![forbid(unsafe_code)]

use fleetgate_launch::pam::{PamError, PamSession};
use fleetgate_launch::{Begun, LaunchError, Launcher};
use fleetgate_seal::Strategy;
use fleetgate_sys::process::Exit;
use fleetgate_tests::launching::{ask, ladder_of};
use fleetgate_tests::orders::{command, read_all, user};
use fleetgate_tests::resolver::{Resolver, start};
use fleetgate_tests::world::{PASSWORD, USER, World, c};
use fleetgate_tests::{is_root, skip};
use fleetgate_wire::pam::{Prompt, Secret};
use std::time::Duration;

const SERVICE: &str = "fleetgate-test";
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
    if !is_root() {
        return skip("needs root for a mount namespace");
    }
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
    let mut launcher = Launcher::new(ladder_of(&[Strategy::Memfd])).expect("launcher");
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
    if !is_root() {
        return skip("needs root for a mount namespace");
    }
    let (_world, resolver) = service();
    let error = begin(&resolver, "wrong").err().expect("refused");
    assert!(
        error.to_string().starts_with("PAM refused: pam_authenticate: "),
        "{error}"
    );
}

#[test]
fn who_gives_up_is_refused() {
    if !is_root() {
        return skip("needs root for a mount namespace");
    }
    let (_world, resolver) = service();
    let control = resolver.control.as_ref().expect("it serves");
    let begun = PamSession::begin(control, start(SERVICE, USER, true), PATIENCE, &mut |_| None);
    assert!(matches!(begun, Err(PamError::Refused { .. })));
}

#[test]
fn a_refusal_of_the_helper_comes_back_and_the_pam_session_ends() {
    if !is_root() {
        return skip("needs root for a mount namespace");
    }
    let (_world, resolver) = service();
    let mut session = begin(&resolver, PASSWORD).expect("the right password");
    session.open(c"ssh", &mut typing("")).expect("opens");
    let ladder = ladder_of(&[Strategy::Memfd]);
    let mut launcher = Launcher::new(ladder.clone()).expect("launcher");
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
    assert!(ladder.report().moves.is_empty());
}

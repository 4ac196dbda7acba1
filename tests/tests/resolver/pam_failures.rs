//! What goes wrong with PAM: modules that crash or hang, libraries that are missing, files that change, peers that
//! break the rules. One session suffers, it is told why where anybody can be told, and the next one works.

use fleetgate_seal::{FallbackChain, Options, Source, Strategy};
use fleetgate_sys::{Fd, process, socket};
use fleetgate_tests::resolver::{PamSession, Resolver, start, user};
use fleetgate_tests::world::{USER, World, c, wait_for, wait_until};
use fleetgate_tests::{needs_root, resolver};
use fleetgate_wire::names::Found;
use fleetgate_wire::pam::{FromPam, ToPam};
use fleetgate_wire::resolver::ToResolver;
use std::path::Path;

const SERVICE: &str = "fleetgate-test";
const PERMIT: &str = "auth required pam_permit.so\naccount required pam_permit.so\n\
                      password required pam_permit.so\nsession required pam_permit.so\n";

fn world() -> World {
    let world = World::new();
    world.write(&format!("etc/pam.d/{SERVICE}"), PERMIT);
    world
}

fn serve(world: &World, before: &str) -> Resolver {
    Resolver::start(world, &["--service", SERVICE], before)
}

/// A login that gets in, and whose session closes.
fn gets_in(resolver: &Resolver) {
    let session = resolver.pam(start(SERVICE, USER, true));
    assert_eq!(session.accepted(), USER);
    session.open(&mut Vec::new());
    session.say(&ToPam::Close, &[]);
    assert!(matches!(session.hear(), FromPam::Ended { .. }));
    assert!(session.try_hear().is_none());
}

/// The warm server's number.
fn warm(resolver: &Resolver) -> Vec<i32> {
    let parent = resolver.process.pid;
    let list = std::fs::read_to_string(format!("/proc/{parent}/task/{parent}/children")).unwrap_or_default();
    let is_warm = |pid: &i32| {
        std::fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|c| c.trim() == "fleetgate-warm")
    };
    list.split_whitespace()
        .filter_map(|p| p.parse().ok())
        .filter(is_warm)
        .collect()
}

/// The one warm server, once those before it are gone.
fn only_warm(resolver: &Resolver) -> i32 {
    wait_until("one warm server", || warm(resolver).len() == 1);
    warm(resolver)[0]
}

/// The libraries that process `pid` has loaded.
fn loaded(pid: i32) -> String {
    std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default()
}

#[test]
fn a_module_that_crashes_ends_its_own_session_alone() {
    needs_root!("a mount namespace");
    let world = world();
    let crash = world.library(
        "pam_fgcrash.so",
        "int pam_sm_authenticate(void *h, int f, int c, const char **v) { return *(volatile int *)8; }\n\
         int pam_sm_setcred(void *h, int f, int c, const char **v) { return 0; }\n",
    );
    world.write(
        "etc/pam.d/fleetgate-crash",
        &format!("auth required {}\n{PERMIT}", crash.display()),
    );
    let resolver = serve(&world, "ulimit -c 0");
    gets_in(&resolver);
    for _ in 0..3 {
        let session = resolver.pam(start("fleetgate-crash", USER, true));
        assert!(session.try_hear().is_none(), "it goes on");
        gets_in(&resolver);
    }
}

#[test]
fn a_module_that_hangs_stalls_its_own_session_alone() {
    needs_root!("a mount namespace");
    let world = world();
    let hang = world.library(
        "pam_fghang.so",
        "#include <unistd.h>\n\
         int pam_sm_authenticate(void *h, int f, int c, const char **v) { for (;;) pause(); }\n\
         int pam_sm_setcred(void *h, int f, int c, const char **v) { return 0; }\n",
    );
    world.write(
        "etc/pam.d/fleetgate-hang",
        &format!("auth required {}\n{PERMIT}", hang.display()),
    );
    let resolver = serve(&world, "");
    let hung: Vec<PamSession> = (0..5)
        .map(|_| resolver.pam(start("fleetgate-hang", USER, true)))
        .collect();
    gets_in(&resolver);
    assert!(matches!(resolver.names().ask(user(USER)), Found::User { .. }));
    // Theirs is the kernel's clock, an hour's quarter from now; here they are found and ended by hand.
    drop(hung);
    let of_this_world = |pid: &i32| {
        let cwd = std::fs::read_link(format!("/proc/{pid}/cwd"));
        let comm = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        cwd.is_ok_and(|cwd| cwd == world.path("")) && comm.trim() == "fleetgate-pam"
    };
    let all = || -> Vec<i32> {
        std::fs::read_dir("/proc")
            .expect("proc")
            .filter_map(|e| e.ok()?.file_name().to_str()?.parse().ok())
            .filter(of_this_world)
            .collect()
    };
    wait_until("the good session's process to be gone", || all().len() == 5);
    for pid in all() {
        let pidfd = process::pidfd_open(pid).expect("it hangs");
        process::signal(&pidfd, process::SIGKILL).expect("kill");
    }
}

#[test]
fn without_libpam_the_refusal_says_what_to_install() {
    needs_root!("a mount namespace");
    let world = world();
    let hide = "touch empty; for l in /lib/*/libpam.so.0 /lib64/libpam.so.0; do \
                if [ -e $l ]; then mount --bind empty $l; fi; done";
    let resolver = serve(&world, hide);
    let (call, code, message) = resolver.pam(start(SERVICE, USER, true)).refused();
    assert_eq!((call.as_str(), code), ("libpam", 1));
    assert!(
        message.contains("libpam.so.0") && message.contains("install libpam0g"),
        "{message}"
    );
    // Names need none of it.
    assert!(matches!(resolver.names().ask(user(USER)), Found::User { .. }));
}

#[test]
fn a_missing_module_or_service_is_refused() {
    needs_root!("a mount namespace");
    let world = world();
    world.write(
        "etc/pam.d/fleetgate-broken",
        &format!("auth required pam_no_such_module.so\n{PERMIT}"),
    );
    let resolver = serve(&world, "");
    let (call, code, _) = resolver.pam(start("fleetgate-broken", USER, true)).refused();
    assert_eq!(call, "pam_authenticate");
    assert_eq!(code, 28, "PAM_MODULE_UNKNOWN");
    // A service that is not there is `other`, as everywhere.
    world.write(
        "etc/pam.d/other",
        "auth required pam_deny.so\naccount required pam_deny.so\n",
    );
    let (call, code, _) = resolver.pam(start("fleetgate-not-there", USER, false)).refused();
    assert_eq!((call.as_str(), code), ("pam_acct_mgmt", 7));
    for bad in ["../passwd", "/etc/pam.d/other", "", ".", "a b"] {
        let (call, _, message) = resolver.pam(start(bad, USER, true)).refused();
        assert_eq!(call, "resolver");
        assert!(message.contains("not a file name"), "{message}");
    }
    gets_in(&resolver);
}

#[test]
fn modules_are_loaded_before_and_renewed_when_files_change() {
    needs_root!("a mount namespace");
    let world = world();
    let resolver = serve(&world, "");
    gets_in(&resolver);
    let first = only_warm(&resolver);
    let maps = loaded(first);
    assert!(
        maps.contains("libpam.so") && maps.contains("pam_permit.so"),
        "{maps}"
    );
    assert!(!maps.contains("pam_limits.so"));
    gets_in(&resolver);
    assert_eq!(only_warm(&resolver), first, "nothing changed, nothing is renewed");
    // An included file, one that it includes, and the name service's.
    world.write(
        &format!("etc/pam.d/{SERVICE}"),
        &format!("{PERMIT}@include fleetgate-included\n"),
    );
    world.write(
        "etc/pam.d/fleetgate-included",
        "session substack fleetgate-deeper\n",
    );
    world.write("etc/pam.d/fleetgate-deeper", "session required pam_limits.so\n");
    gets_in(&resolver);
    let second = only_warm(&resolver);
    assert_ne!(second, first);
    assert!(loaded(second).contains("pam_limits.so"));
    world.write("etc/pam.d/fleetgate-deeper", "session required pam_env.so\n");
    gets_in(&resolver);
    let third = only_warm(&resolver);
    assert_ne!(third, second);
    assert!(loaded(third).contains("pam_env.so") && !loaded(third).contains("pam_limits.so"));
    world.append("etc/nsswitch.conf", "# changed\n");
    gets_in(&resolver);
    assert_ne!(only_warm(&resolver), third);
    // A service that nobody announced is learned at its first login.
    world.write(
        "etc/pam.d/fleetgate-second",
        &format!("{PERMIT}session optional pam_umask.so\n"),
    );
    assert_eq!(
        resolver.pam(start("fleetgate-second", USER, true)).accepted(),
        USER
    );
    assert!(loaded(only_warm(&resolver)).contains("pam_umask.so"));
}

#[test]
fn a_running_session_keeps_its_modules_through_a_renewal() {
    needs_root!("a mount namespace");
    let world = world();
    let resolver = serve(&world, "");
    let session = resolver.pam(start(SERVICE, USER, true));
    session.accepted();
    session.open(&mut Vec::new());
    world.append("etc/nsswitch.conf", "# changed\n");
    gets_in(&resolver);
    let script = world.script("helper", "exit 3\n");
    let (_, pidfd, _control) = session.launch(&script);
    wait_for(&pidfd, "the helper to end");
    assert!(matches!(session.hear(), FromPam::Exited { status: 3, .. }));
    assert!(matches!(session.hear(), FromPam::Ended { .. }));
}

#[test]
fn a_warm_server_that_cannot_load_is_replaced_by_one_that_loads_less() {
    needs_root!("a mount namespace");
    // A name service that hangs for everybody but `fgt`: warming it up would hang the warm server.
    let world = world();
    let module = |on_other: &str| {
        format!(
            "#include <nss.h>\n#include <pwd.h>\n#include <stdlib.h>\n#include <string.h>\n#include <unistd.h>\n\
             enum nss_status _nss_fgtest_getpwnam_r(const char *n, struct passwd *p, char *b, size_t l, int *e)\n\
             {{ if (strcmp(n, \"{USER}\") != 0) {{ {on_other} }} return NSS_STATUS_UNAVAIL; }}\n"
        )
    };
    world.write(
        "etc/nsswitch.conf",
        "passwd: fgtest files\ngroup: files\nshadow: files\n",
    );
    for (on_other, how) in [("for (;;) pause();", "in time"), ("abort();", "ended")] {
        world.library("libnss_fgtest.so.2", &module(on_other));
        let resolver = serve(&world, "ulimit -c 0; export LD_LIBRARY_PATH=$PWD");
        gets_in(&resolver);
        let log = world.read("log");
        assert!(
            log.contains(how) && log.contains("going on with modules alone"),
            "{log}"
        );
        assert!(loaded(only_warm(&resolver)).contains("pam_permit.so"));
    }
}

#[test]
fn a_killed_warm_server_is_replaced_at_the_next_login() {
    needs_root!("a mount namespace");
    let world = world();
    let resolver = serve(&world, "");
    gets_in(&resolver);
    for _ in 0..3 {
        let first = only_warm(&resolver);
        let pidfd = process::pidfd_open(first).expect("it lives");
        process::signal(&pidfd, process::SIGKILL).expect("kill");
        wait_for(&pidfd, "its end");
        // The next one may still be served by the process that was made ahead.
        wait_until("another warm server", || {
            gets_in(&resolver);
            warm(&resolver).first().is_some_and(|now| *now != first)
        });
    }
}

#[test]
fn whoever_breaks_the_rules_of_a_pam_socket_ends_that_session() {
    needs_root!("a mount namespace");
    let world = world();
    let resolver = serve(&world, "");
    let open = fleetgate_wire::encode(&ToPam::Open { tty: c("ssh") });
    let mut trailing = open.clone();
    trailing.push(1);
    let long = vec![b'f'; 20_000];
    for frame in [&open[..5], &trailing, &long, b"", b"fg\x01\x63"] {
        let session = resolver.pam(start(SERVICE, USER, true));
        session.accepted();
        socket::send(&session.socket, frame, &[]).expect("send");
        assert!(session.try_hear().is_none(), "it goes on");
        // In the middle of a session too: what was open closes.
        let session = resolver.pam(start(SERVICE, USER, true));
        session.accepted();
        session.open(&mut Vec::new());
        socket::send(&session.socket, frame, &[]).expect("send");
        assert!(session.try_hear().is_none(), "it goes on");
    }
    // Words in the wrong order.
    let session = resolver.pam(start(SERVICE, USER, true));
    session.accepted();
    session.answer(&["nobody asked"]);
    assert!(session.try_hear().is_none(), "it goes on");
    gets_in(&resolver);
}

#[test]
fn a_bad_request_on_the_control_socket_costs_that_request() {
    needs_root!("a mount namespace");
    let world = world();
    let resolver = serve(&world, "");
    let control = resolver.control.as_ref().expect("there");
    let good = fleetgate_wire::encode(&ToResolver::Names);
    let mut unknown = good.clone();
    *unknown.last_mut().expect("a tag") = 99;
    for (frame, fds) in [(&unknown, 1), (&good, 0), (&good, 2), (&b"fg".to_vec(), 1)] {
        let (ours, theirs) = socket::pair().expect("a pair");
        let raw = [theirs.raw(), theirs.raw()];
        socket::send(control, frame, &raw[..fds]).expect("send");
        drop(theirs);
        if fds > 0 {
            wait_for(&ours, "the socket to be closed");
            let got = socket::receive(&ours, &mut [0; 8], true).expect("receive");
            assert_eq!(got.len, 0);
        }
    }
    gets_in(&resolver);
    assert!(world.read("log").contains("a request"));
}

#[test]
fn many_logins_at_once_all_get_in() {
    needs_root!("a mount namespace");
    let world = world();
    let resolver = serve(&world, "");
    let sessions: Vec<PamSession> = (0..60)
        .map(|_| resolver.pam(start(SERVICE, USER, true)))
        .collect();
    for session in &sessions {
        session.accepted();
        session.say(&ToPam::Open { tty: c("ssh") }, &[]);
    }
    for session in &sessions {
        assert!(matches!(session.hear(), FromPam::Opened { .. }));
        session.say(&ToPam::Close, &[]);
    }
    for session in &sessions {
        assert!(matches!(session.hear(), FromPam::Ended { .. }));
    }
}

#[test]
fn its_image_stands_on_the_ladder_and_serves_from_there() {
    needs_root!("sessions of another user");
    for strategy in [Strategy::Memfd, Strategy::Overlay, Strategy::Plain] {
        let options = Options {
            order: vec![strategy],
            name: Some(c("fleetgate-resolver")),
            ..Options::default()
        };
        let chain = FallbackChain::open(Source::File(resolver()), options).expect("a rung works");
        let image = chain.image().expect("an image");
        assert_eq!(image.strategy(), strategy);
        let world = world();
        // Executed by descriptor: the world's shell opens it under this number, as the server would.
        let path = format!("/proc/self/fd/{}", 4);
        let (ours, theirs) = socket::pair().expect("a pair");
        let fds: [&Fd; 2] = [&theirs, image.fd()];
        let process = world.start(Path::new(&path), "fleetgate-resolver", &["serve"], "", &fds);
        let served = Resolver {
            control: Some(ours),
            process,
        };
        assert!(matches!(served.names().ask(user(USER)), Found::User { .. }));
        gets_in(&served);
    }
}

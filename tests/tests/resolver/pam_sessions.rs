//! PAM sessions with the machine's own modules, in private copies of /etc: who gets in, what the session's program
//! finds, and what closes when.

use fleetgate_sys::{process, socket};
use fleetgate_tests::needs_root;
use fleetgate_tests::orders::{command, send};
use fleetgate_tests::resolver::{PamSession, Resolver, start, user};
use fleetgate_tests::world::{PASSWORD, UID, USER, World, c, text, wait_for, wait_until};
use fleetgate_wire::common::Variable;
use fleetgate_wire::names::Found;
use fleetgate_wire::order::{Role, Work};
use fleetgate_wire::pam::{FromPam, ToPam};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

const SERVICE: &str = "fleetgate-test";
/// Lets everybody in without a word, and keeps each kind of module in use.
const PERMIT: &str = "auth required pam_permit.so\naccount required pam_permit.so\n\
                      password required pam_permit.so\nsession required pam_permit.so\n";

fn service(content: &str) -> (World, Resolver) {
    let world = World::new();
    world.write(&format!("etc/pam.d/{SERVICE}"), content);
    let resolver = Resolver::start(&world, &["--service", SERVICE], "");
    (world, resolver)
}

/// A module of ours that notes every call in `calls`: what was opened, what was closed, in which order.
fn noting(world: &World) -> PathBuf {
    let notes = world.path("calls");
    let source = format!(
        r#"
#include <fcntl.h>
#include <string.h>
#include <unistd.h>
static int note(const char *what) {{
    int fd = open("{}", O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0) return 14;
    int ok = write(fd, what, strlen(what)) > 0;
    close(fd);
    return ok ? 0 : 14;
}}
int pam_sm_authenticate(void *h, int f, int c, const char **v) {{ return note("authenticate "); }}
int pam_sm_setcred(void *h, int f, int c, const char **v) {{ return note(f & 4 ? "delete " : "establish "); }}
int pam_sm_acct_mgmt(void *h, int f, int c, const char **v) {{ return note("account "); }}
int pam_sm_open_session(void *h, int f, int c, const char **v) {{ return note("open "); }}
int pam_sm_close_session(void *h, int f, int c, const char **v) {{ return note("close "); }}
"#,
        notes.display()
    );
    world.library("pam_fgnote.so", &source)
}

/// A service that notes; its world, its resolver.
fn noted() -> (World, Resolver) {
    let world = World::new();
    let module = noting(&world);
    let module = module.display();
    let lines = format!("auth required {module}\naccount required {module}\nsession required {module}\n");
    world.write(&format!("etc/pam.d/{SERVICE}"), &lines);
    let resolver = Resolver::start(&world, &["--service", SERVICE], "");
    (world, resolver)
}

/// A script for [`PamSession::launch`]: runs `lines`, then leaves when told over descriptor 3. Each has a name of its
/// own: the shell that was started with the one before may not have opened it yet.
fn until_told(world: &World, lines: &str) -> PathBuf {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let name = format!("helper-{}", NUMBER.fetch_add(1, Ordering::Relaxed));
    world.script(&name, &format!("{lines}\nread -r line <&3\nexit 7\n"))
}

fn tell(control: &fleetgate_sys::Fd) {
    socket::send(control, b"\n", &[]).expect("the helper is there");
}

fn ended(session: &PamSession) -> Vec<String> {
    match session.hear() {
        FromPam::Ended { close_errors } => close_errors.iter().map(|e| text(e)).collect(),
        other => panic!("not ended: {other:?}"),
    }
}

/// The password prompt of pam_unix, answered.
fn give(session: &PamSession, password: &str) {
    match session.hear() {
        FromPam::Ask { prompts } => {
            assert_eq!(prompts.len(), 1);
            assert_eq!(
                (prompts[0].style, text(&prompts[0].text)),
                (1, "Password: ".to_owned())
            );
        }
        other => panic!("not asked: {other:?}"),
    }
    session.answer(&[password]);
}

const UNIX: &str = "auth required pam_unix.so nodelay\naccount required pam_unix.so\n\
                    password required pam_unix.so sha512 rounds=1000\nsession required pam_unix.so\n";

#[test]
fn the_right_password_gets_in_and_a_wrong_one_does_not() {
    needs_root!("a mount namespace");
    let (world, resolver) = service(UNIX);
    let session = resolver.pam(start(SERVICE, USER, true));
    give(&session, PASSWORD);
    assert_eq!(session.accepted(), USER);
    drop(session);
    for (user, password) in [(USER, "wrong"), (USER, ""), ("fleetgate-no-such", PASSWORD)] {
        let session = resolver.pam(start(SERVICE, user, true));
        give(&session, password);
        let (call, code, message) = session.refused();
        assert_eq!(call, "pam_authenticate");
        assert!(code == 7 || code == 10, "{code} {message}");
        assert!(!message.is_empty());
    }
    assert!(!world.read("log").contains("wrong") && !world.read("log").contains(PASSWORD));
}

#[test]
fn whoever_gives_up_or_takes_too_long_is_refused() {
    needs_root!("a mount namespace");
    let (_world, resolver) = service(UNIX);
    let session = resolver.pam(start(SERVICE, USER, true));
    assert!(matches!(session.hear(), FromPam::Ask { .. }));
    session.say(&ToPam::Abort, &[]);
    assert_eq!(session.refused().0, "pam_authenticate");
    // Answers for prompts that were not asked.
    let session = resolver.pam(start(SERVICE, USER, true));
    assert!(matches!(session.hear(), FromPam::Ask { .. }));
    session.answer(&[PASSWORD, PASSWORD]);
    assert!(session.try_hear().is_none(), "it goes on");
    // No answer at all: the prompt's own clock ends it.
    let mut impatient = start(SERVICE, USER, true);
    impatient.prompt_timeout_ms = 200;
    let session = resolver.pam(impatient);
    assert!(matches!(session.hear(), FromPam::Ask { .. }));
    assert!(session.try_hear().is_none(), "it goes on");
}

#[test]
fn an_expired_password_is_changed_on_the_way_in() {
    needs_root!("a mount namespace");
    let (world, resolver) = service(UNIX);
    world.replace("etc/shadow", ":19000:", ":0:");
    let new = "battery staple 7";
    let session = resolver.pam(start(SERVICE, USER, true));
    give(&session, PASSWORD);
    let mut asked = Vec::new();
    let user = loop {
        match session.hear() {
            FromPam::Ask { prompts } => {
                let answers: Vec<&str> = prompts
                    .iter()
                    .filter(|p| p.asks())
                    .map(|p| {
                        let prompt = text(&p.text);
                        let current = prompt.starts_with("Current");
                        asked.push(prompt);
                        if current { PASSWORD } else { new }
                    })
                    .collect();
                if !answers.is_empty() {
                    session.answer(&answers);
                }
            }
            FromPam::Accepted { user, .. } => break text(&user),
            other => panic!("not changed: {other:?}"),
        }
    };
    assert_eq!(user, USER);
    assert_eq!(
        asked,
        ["Current password: ", "New password: ", "Retype new password: "]
    );
    drop(session);
    let session = resolver.pam(start(SERVICE, USER, true));
    give(&session, new);
    assert_eq!(session.accepted(), USER);
    let session = resolver.pam(start(SERVICE, USER, true));
    give(&session, PASSWORD);
    assert_eq!(session.refused().0, "pam_authenticate");
}

#[test]
fn an_account_that_is_over_is_refused_by_its_own_call() {
    needs_root!("a mount namespace");
    let (world, resolver) = service(UNIX);
    world.replace("etc/shadow", ":0:99999:7:::", ":0:99999:7::100:");
    let session = resolver.pam(start(SERVICE, USER, false));
    let refused = loop {
        match session.hear() {
            FromPam::Ask { prompts } => assert!(prompts.iter().all(|p| !p.asks())),
            FromPam::Refused { call, code, .. } => break (text(&call), code),
            other => panic!("not refused: {other:?}"),
        }
    };
    assert_eq!(refused, ("pam_acct_mgmt".to_owned(), 13));
}

#[test]
fn pam_deny_denies_with_its_code() {
    needs_root!("a mount namespace");
    let denied = PERMIT.replace("auth required pam_permit.so", "auth required pam_deny.so");
    let (world, resolver) = service(&denied);
    let (call, code, message) = resolver.pam(start(SERVICE, USER, true)).refused();
    assert_eq!((call.as_str(), code), ("pam_authenticate", 7));
    assert_eq!(message, "Authentication failure");
    // A key needs no authentication, and gets in: the service is read again at every login.
    assert_eq!(resolver.pam(start(SERVICE, USER, false)).accepted(), USER);
    world.write(
        &format!("etc/pam.d/{SERVICE}"),
        &PERMIT.replace("session required pam_permit.so", "session required pam_deny.so"),
    );
    let session = resolver.pam(start(SERVICE, USER, true));
    session.accepted();
    session.say(&ToPam::Open { tty: c("ssh") }, &[]);
    let (call, code, _) = session.refused();
    assert_eq!((call.as_str(), code), ("pam_open_session", 14));
}

#[test]
fn variables_limits_messages_and_groups_reach_the_session() {
    needs_root!("a mount namespace");
    let world = World::new();
    let motd = world.path("motd");
    let lines = format!(
        "{PERMIT}auth optional pam_group.so\n\
         session required pam_env.so readenv=1 envfile=/etc/fleetgate-test-environment\n\
         session required pam_limits.so\n\
         session optional pam_motd.so motd={}\n",
        motd.display()
    );
    world.write(&format!("etc/pam.d/{SERVICE}"), &lines);
    world.write("motd", "Welcome to the test\n");
    world.write("etc/fleetgate-test-environment", "FROM_FILE=yes\n");
    world.append("etc/security/pam_env.conf", "FROM_CONF DEFAULT=indeed\n");
    world.append(
        "etc/security/limits.conf",
        &format!("{USER} - nofile 777\n{USER} - core 12\n"),
    );
    world.append("etc/group", "fgpam:x:61240:\n");
    world.append(
        "etc/security/group.conf",
        &format!("{SERVICE};*;{USER};Al0000-2400;fgpam\n"),
    );
    let resolver = Resolver::start(&world, &["--service", SERVICE], "");
    let mut request = start(SERVICE, USER, false);
    request.environment = vec![Variable {
        name: c("SSH_CONNECTION"),
        value: c("192.0.2.7 1 192.0.2.1 22"),
    }];
    let session = resolver.pam(request);
    session.accepted();
    let mut messages = Vec::new();
    let FromPam::Opened {
        environment,
        groups,
        process,
    } = session.open(&mut messages)
    else {
        panic!("not opened");
    };
    assert!(messages.concat().contains("Welcome to the test"), "{messages:?}");
    let value = |name: &str| {
        environment
            .iter()
            .find(|v| v.name == c(name))
            .map(|v| text(&v.value))
    };
    assert_eq!(value("FROM_FILE").as_deref(), Some("yes"));
    assert_eq!(value("FROM_CONF").as_deref(), Some("indeed"));
    assert_eq!(
        value("SSH_CONNECTION").as_deref(),
        Some("192.0.2.7 1 192.0.2.1 22")
    );
    for group in [UID, 61_235, 61_240] {
        assert!(groups.contains(&group), "{group} in {groups:?}");
    }
    let out = world.path("limits");
    let script = until_told(
        &world,
        &format!(
            "{{ ulimit -n; ulimit -c; ls /proc/self/fd; }} > {}",
            out.display()
        ),
    );
    let (pid, pidfd, control) = session.launch(&script);
    tell(&control);
    wait_for(&pidfd, "the helper to end");
    let seen = world.read("limits");
    let mut seen = seen.lines();
    assert_eq!(
        (seen.next(), seen.next()),
        (Some("777"), Some("24")),
        "ulimit's 512-byte blocks"
    );
    // 0, 1, 2, the control socket, and the directory that ls reads: nothing of ours leaks.
    assert_eq!(seen.filter(|fd| *fd != "10").count(), 5);
    assert_eq!(
        session.hear(),
        FromPam::Exited {
            pid,
            signalled: false,
            status: 7,
            core: false
        }
    );
    assert!(ended(&session).is_empty());
    assert!(process > 1 && process != pid);
}

#[test]
fn namespaces_that_modules_make_hold_the_session() {
    needs_root!("a mount namespace");
    let world = World::new();
    let lines = format!("{PERMIT}session required pam_namespace.so\n");
    world.write(&format!("etc/pam.d/{SERVICE}"), &lines);
    world.write("etc/security/namespace.conf", "/mnt tmpfs tmpfs root\n");
    let resolver = Resolver::start(&world, &["--service", SERVICE], "");
    let session = resolver.pam(start(SERVICE, USER, false));
    session.accepted();
    let FromPam::Opened { process, .. } = session.open(&mut Vec::new()) else {
        panic!("not opened");
    };
    let out = world.path("seen");
    let lines = format!(
        "touch /mnt/only-here; {{ stat -f -c %T /mnt; readlink /proc/self/ns/mnt; }} > {}",
        out.display()
    );
    let (pid, pidfd, control) = session.launch(&until_told(&world, &lines));
    // A second helper while the first runs, as networking runs beside exec: in the same namespace.
    let (second, second_pidfd, second_control) = session.launch(&until_told(
        &world,
        &format!(
            "ls /mnt >> {0}; readlink /proc/self/ns/mnt >> {0}",
            world.path("second").display()
        ),
    ));
    wait_until("the second to look", || world.read("second").lines().count() >= 1);
    tell(&control);
    wait_for(&pidfd, "the first helper to end");
    let number = |word: FromPam| match word {
        FromPam::Exited { pid, status: 7, .. } => pid,
        other => panic!("not exited: {other:?}"),
    };
    assert_eq!(number(session.hear()), pid);
    tell(&second_control);
    wait_for(&second_pidfd, "the second helper to end");
    assert_eq!(number(session.hear()), second);
    assert!(ended(&session).is_empty());
    let seen = world.read("seen");
    let (kind, namespace) = seen
        .trim()
        .split_once('\n')
        .unwrap_or_else(|| panic!("not two lines: {seen:?}"));
    assert_eq!(kind, "tmpfs");
    assert!(world.read("second").contains(namespace));
    let ours = std::fs::read_link("/proc/self/ns/mnt").expect("our own");
    assert_ne!(ours.to_string_lossy(), namespace);
    assert!(!std::path::Path::new("/mnt/only-here").exists());
    assert!(process > 1);
}

#[test]
fn pam_exec_runs_at_open_and_close_with_the_items_that_sshd_sets() {
    needs_root!("a mount namespace");
    let world = World::new();
    let out = world.path("events");
    let script = world.script(
        "note",
        &format!(
            "#!/bin/sh\necho \"$PAM_TYPE $PAM_USER $PAM_RHOST $PAM_TTY $PAM_SERVICE\" >> {}\n",
            out.display()
        ),
    );
    let lines = format!("{PERMIT}session required pam_exec.so {}\n", script.display());
    world.write(&format!("etc/pam.d/{SERVICE}"), &lines);
    let resolver = Resolver::start(&world, &["--service", SERVICE], "");
    let session = resolver.pam(start(SERVICE, USER, false));
    session.accepted();
    session.say(
        &ToPam::Open {
            tty: c("/dev/pts/fleetgate"),
        },
        &[],
    );
    assert!(matches!(session.hear(), FromPam::Opened { .. }));
    session.say(&ToPam::Close, &[]);
    assert!(ended(&session).is_empty());
    let line = |kind: &str| format!("{kind} {USER} 192.0.2.7 /dev/pts/fleetgate {SERVICE}\n");
    assert_eq!(
        world.read("events"),
        line("open_session") + &line("close_session")
    );
}

const ALL_CALLS: &str = "authenticate account establish open close delete ";

#[test]
fn what_opened_is_closed_in_reverse_order() {
    needs_root!("a mount namespace");
    let (world, resolver) = noted();
    let session = resolver.pam(start(SERVICE, USER, true));
    session.accepted();
    session.open(&mut Vec::new());
    let (_, _, control) = session.launch(&until_told(&world, ""));
    assert_eq!(world.read("calls"), "authenticate account establish open ");
    tell(&control);
    assert!(matches!(session.hear(), FromPam::Exited { status: 7, .. }));
    assert!(ended(&session).is_empty());
    assert_eq!(world.read("calls"), ALL_CALLS);
    // Accepted and no more: nothing was opened, nothing is closed.
    let session = resolver.pam(start(SERVICE, USER, true));
    session.accepted();
    session.say(&ToPam::Close, &[]);
    assert!(ended(&session).is_empty());
    assert_eq!(world.read("calls"), format!("{ALL_CALLS}authenticate account "));
}

#[test]
fn a_killed_session_is_closed_too() {
    needs_root!("a mount namespace");
    let (world, resolver) = noted();
    let session = resolver.pam(start(SERVICE, USER, true));
    session.accepted();
    session.open(&mut Vec::new());
    let (pid, pidfd, _control) = session.launch(&until_told(&world, ""));
    process::signal(&pidfd, process::SIGKILL).expect("kill");
    let word = session.hear();
    assert_eq!(
        word,
        FromPam::Exited {
            pid,
            signalled: true,
            status: 9,
            core: false
        }
    );
    assert!(ended(&session).is_empty());
    assert_eq!(world.read("calls"), ALL_CALLS);
}

#[test]
fn a_session_outlives_the_server_and_the_resolver_and_is_closed() {
    needs_root!("a mount namespace");
    let (world, mut resolver) = noted();
    let session = resolver.pam(start(SERVICE, USER, true));
    session.accepted();
    let FromPam::Opened { process: number, .. } = session.open(&mut Vec::new()) else {
        panic!("not opened");
    };
    let (_, pidfd, control) = session.launch(&until_told(&world, ""));
    let keeper = process::pidfd_open(number).expect("it lives");
    // The server goes, with every socket it held; the resolver is killed, and the service's signals reach the rest.
    resolver.control = None;
    drop(session);
    process::signal(&resolver.process.pidfd, process::SIGKILL).expect("kill");
    wait_for(&resolver.process.pidfd, "the resolver to end");
    const SIGTERM: i32 = 15;
    process::signal(&keeper, SIGTERM).expect("it lives");
    let mut watch = [fleetgate_sys::poll::Watch::new(
        pidfd.raw(),
        fleetgate_sys::poll::READ,
    )];
    assert_eq!(
        fleetgate_sys::poll::poll(&mut watch, Some(200)),
        Ok(0),
        "the session goes on"
    );
    assert!(!world.read("calls").contains("close"));
    tell(&control);
    wait_for(&pidfd, "the helper to end");
    wait_for(&keeper, "the PAM process to end");
    assert_eq!(world.read("calls"), ALL_CALLS);
}

#[test]
fn a_server_that_goes_before_it_launched_leaves_nothing_open() {
    needs_root!("a mount namespace");
    let (world, resolver) = noted();
    let session = resolver.pam(start(SERVICE, USER, true));
    session.accepted();
    session.open(&mut Vec::new());
    drop(session);
    wait_until("the session to close", || world.read("calls") == ALL_CALLS);
}

#[test]
fn a_launch_that_fails_is_told_and_can_be_made_again() {
    needs_root!("a mount namespace");
    let (world, resolver) = noted();
    let session = resolver.pam(start(SERVICE, USER, true));
    session.accepted();
    session.open(&mut Vec::new());
    let null = std::fs::File::open("/dev/null").expect("/dev/null");
    let null = fleetgate_sys::Fd::from(null);
    let launch = ToPam::Launch {
        subcommand: c("exec"),
        cgroup: false,
        hold: false,
    };
    session.say(&launch, &[null.raw(), null.raw(), null.raw()]);
    const EXEC: u32 = fleetgate_sys::spawn::Step::Exec as u32;
    match session.hear() {
        FromPam::NotStarted {
            step: EXEC,
            errno: 13,
        } => {}
        other => panic!("/dev/null is not executable: {other:?}"),
    }
    session.say(&launch, &[null.raw()]);
    assert!(matches!(session.hear(), FromPam::NotStarted { step: 0, .. }));
    let (_, _, control) = session.launch(&until_told(&world, ""));
    tell(&control);
    assert!(matches!(session.hear(), FromPam::Exited { status: 7, .. }));
    assert!(ended(&session).is_empty());
    assert_eq!(world.read("calls"), ALL_CALLS);
}

#[test]
fn the_session_helper_runs_in_what_the_modules_made() {
    needs_root!("a mount namespace");
    let world = World::new();
    let lines = format!("{PERMIT}session required pam_limits.so\nsession required pam_env.so\n");
    world.write(&format!("etc/pam.d/{SERVICE}"), &lines);
    world.append("etc/security/limits.conf", &format!("{USER} - nofile 777\n"));
    world.append("etc/security/pam_env.conf", "FROM_CONF DEFAULT=indeed\n");
    let resolver = Resolver::start(&world, &["--service", SERVICE], "");
    let Found::User { mut account } = resolver.names().ask(user(USER)) else {
        panic!("no account");
    };
    let session = resolver.pam(start(SERVICE, USER, true));
    session.accepted();
    let FromPam::Opened {
        environment, groups, ..
    } = session.open(&mut Vec::new())
    else {
        panic!("not opened");
    };
    account.ids.groups = groups;
    let mut order = command(account, "id -u; id -G; ulimit -n; echo \"$FROM_CONF\"");
    order.environment.set = environment;
    let (ours, theirs) = socket::pair().expect("a pair");
    let file = |path: &str, write: bool| {
        let opened = std::fs::File::options()
            .read(!write)
            .write(write)
            .create(write)
            .open(path);
        fleetgate_sys::Fd::from(opened.expect("open"))
    };
    let out = world.path("out");
    let (null, stdout) = (file("/dev/null", false), file(&out.to_string_lossy(), true));
    let roles = [
        (Role::Stdin, &null),
        (Role::Stdout, &stdout),
        (Role::Stderr, &stdout),
    ];
    // Sent before the helper exists, as every launch does.
    send(&ours, Work::Exec(order), &roles);
    let image = file(&fleetgate_tests::helper().to_string_lossy(), false);
    let launch = ToPam::Launch {
        subcommand: c("exec"),
        cgroup: false,
        hold: false,
    };
    session.say(&launch, &[image.raw(), theirs.raw(), null.raw()]);
    let FromPam::Started { pid } = session.hear() else {
        panic!("not started");
    };
    let word = session.hear();
    assert_eq!(
        word,
        FromPam::Exited {
            pid,
            signalled: false,
            status: 0,
            core: false
        },
        "{}",
        world.read("out")
    );
    assert!(ended(&session).is_empty());
    assert_eq!(world.read("out"), format!("{UID}\n{UID} 61235\n777\nindeed\n"));
}

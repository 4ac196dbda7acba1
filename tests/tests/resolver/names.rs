//! Names: right answers, deadlines, the cache, and what happens to those who break the rules.

use fleetgate_sys::socket;
use fleetgate_tests::resolver::{Names, Resolver, user};
use fleetgate_tests::world::{UID, USER, World, c, text, wait_for, wait_until};
use fleetgate_tests::{needs_root, skip};
use fleetgate_wire::names::{About, Found, MAX_IDS};

/// A name service: `fghang` never answers, `fgcrash` dies, `fgfound` is there; each call leaves a byte in `calls`.
const MODULE: &str = r#"
#include <errno.h>
#include <fcntl.h>
#include <nss.h>
#include <pwd.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
enum nss_status _nss_fgtest_getpwnam_r(const char *name, struct passwd *pw, char *buf, size_t len, int *err) {
    int fd = open(getenv("FGTEST_CALLS"), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
    if (fd >= 0) { if (write(fd, "x", 1) < 0) {} close(fd); }
    if (strncmp(name, "fghang", 6) == 0) for (;;) pause();
    if (strcmp(name, "fgcrash") == 0) abort();
    if (strcmp(name, "fgfound") != 0) { *err = ENOENT; return NSS_STATUS_NOTFOUND; }
    if (len < 64) { *err = ERANGE; return NSS_STATUS_TRYAGAIN; }
    strcpy(buf, "fgfound"); strcpy(buf + 16, "/"); strcpy(buf + 32, "x");
    pw->pw_name = buf; pw->pw_passwd = buf + 32; pw->pw_uid = 61300; pw->pw_gid = 61300;
    pw->pw_gecos = buf + 32; pw->pw_dir = buf + 16; pw->pw_shell = buf + 16;
    return NSS_STATUS_SUCCESS;
}
"#;

fn plain() -> (World, Resolver) {
    let world = World::new();
    let resolver = Resolver::start(&world, &[], "");
    (world, resolver)
}

fn with_module() -> (World, Resolver) {
    let world = World::new();
    world.library("libnss_fgtest.so.2", MODULE);
    world.write(
        "etc/nsswitch.conf",
        "passwd: files fgtest\ngroup: files\nshadow: files\nhosts: files\n",
    );
    let before = "export LD_LIBRARY_PATH=$PWD FGTEST_CALLS=$PWD/calls";
    let resolver = Resolver::start(&world, &[], before);
    (world, resolver)
}

fn shell(names: &Names, name: &str) -> String {
    match names.ask(user(name)) {
        Found::User { account } => text(&account.shell),
        other => panic!("no account: {other:?}"),
    }
}

#[test]
fn accounts_groups_and_hosts_are_what_the_files_say() {
    needs_root!("a mount namespace");
    let (world, resolver) = plain();
    world.append("etc/hosts", "192.0.2.99 fleetgate-test-host\n");
    let names = resolver.names();
    let Found::User { account } = names.ask(user(USER)) else {
        panic!("no account");
    };
    assert_eq!((account.ids.uid, account.ids.gid), (UID, UID));
    assert_eq!(account.ids.groups, [UID, 61_235]);
    assert_eq!(text(&account.home), "/");
    let ageing = account.ageing.clone().expect("root reads shadow");
    assert_eq!((ageing.last_change, ageing.max_days), (19_000, 99_999));
    assert_eq!((ageing.inactive_days, ageing.expires), (-1, -1));
    assert_eq!(names.ask(About::UserById { uid: UID }), Found::User { account });
    assert_eq!(
        names.ask(About::Names {
            uids: vec![UID, 61_999],
            gids: vec![61_235, 0]
        }),
        Found::Names {
            users: vec![c(USER), c("")],
            groups: vec![c("fgmore"), c("root")]
        }
    );
    assert_eq!(
        names.ask(About::Group { name: c("fgmore") }),
        Found::Group { gid: 61_235 }
    );
    let Found::Host { addresses } = names.ask(About::Host {
        name: c("fleetgate-test-host"),
        port: 22,
    }) else {
        panic!("no addresses");
    };
    assert_eq!(addresses.len(), 1);
    assert_eq!(addresses[0].address[10..], [0xff, 0xff, 192, 0, 2, 99]);
    assert_eq!(addresses[0].port, 22);
    // Whom nobody knows, and names that are none.
    for name in [
        "fleetgate-no-such",
        "",
        "a:b",
        "../etc/passwd",
        "a\nb",
        &"x".repeat(2000),
    ] {
        assert_eq!(names.ask(user(name)), Found::Unknown, "{name:?}");
    }
    let many = About::Names {
        uids: vec![0; MAX_IDS + 1],
        gids: vec![],
    };
    assert!(matches!(names.ask(many), Found::Failed { .. }));
}

#[test]
fn a_changed_shell_counts_at_the_next_question() {
    needs_root!("a mount namespace");
    let (world, resolver) = plain();
    let names = resolver.names();
    assert_eq!(shell(&names, USER), "/bin/sh");
    for new in ["/bin/one", "/bin/two", "/bin/six"] {
        let lines = world.read("etc/passwd");
        let old = lines
            .lines()
            .find(|l| l.starts_with("fgt:"))
            .expect("is there")
            .to_owned();
        world.replace("etc/passwd", &old, &format!("fgt:x:{UID}:{UID}:A Test:/:{new}"));
        assert_eq!(shell(&names, USER), new);
    }
    world.replace("etc/shadow", ":19000:", ":0:");
    let Found::User { account } = names.ask(user(USER)) else {
        panic!("no account");
    };
    assert_eq!(account.ageing.expect("shadow").last_change, 0);
}

#[test]
fn what_was_found_is_remembered_until_a_file_changes() {
    needs_root!("a mount namespace");
    let (world, resolver) = with_module();
    let names = resolver.names();
    let calls = || world.read("calls").len();
    assert_eq!(shell(&names, "fgfound"), "/");
    let first = calls();
    assert!(first > 0, "the module was asked");
    for _ in 0..20 {
        assert_eq!(shell(&names, "fgfound"), "/");
    }
    assert_eq!(calls(), first, "the cache answered");
    world.append("etc/group", "fgnew:x:61400:\n");
    assert_eq!(shell(&names, "fgfound"), "/");
    assert!(calls() > first, "the cache was dropped");
}

#[test]
fn a_look_up_that_hangs_stalls_nobody() {
    needs_root!("a mount namespace");
    let (world, resolver) = with_module();
    let (bad, good) = (resolver.names(), resolver.names());
    // One side asks for more than there are workers for one, each of them for ever.
    let hung: Vec<u32> = (0..12)
        .map(|i| bad.send(user(&format!("fghang{i}")), 1500))
        .collect();
    wait_until("look-ups to hang", || world.read("calls").len() >= 4);
    for _ in 0..5 {
        assert_eq!(shell(&good, USER), "/bin/sh");
    }
    assert_eq!(
        world.read("calls").len(),
        4,
        "more than four workers for one side"
    );
    // The others are answered by the clock.
    let mut answered: Vec<u32> = hung
        .iter()
        .map(|_| {
            let answer = bad.receive();
            assert_eq!(answer.found, Found::TimedOut);
            answer.id
        })
        .collect();
    answered.sort_unstable();
    assert_eq!(answered, hung);
    // Killed and replaced: the side that hung is served again, by fresh workers.
    assert_eq!(shell(&bad, "fgfound"), "/");
    let log = world.read("log");
    assert!(log.contains("over its deadline"), "{log}");
    assert!(!children_named(resolver.process.pid, "fleetgate-names").is_empty());
    wait_until("hung workers to be gone", || {
        children_named(resolver.process.pid, "fleetgate-names").len() <= 2
    });
}

#[test]
fn a_module_that_dies_is_an_error_of_that_question() {
    needs_root!("a mount namespace");
    let (_world, resolver) = with_module();
    let names = resolver.names();
    let Found::Failed { why } = names.ask(user("fgcrash")) else {
        panic!("not failed");
    };
    assert!(text(&why).contains("module"), "{why:?}");
    assert_eq!(shell(&names, "fgfound"), "/");
}

#[test]
fn whoever_sends_anything_else_loses_his_socket_alone() {
    needs_root!("a mount namespace");
    let (_world, resolver) = plain();
    let good = resolver.names();
    let question = fleetgate_wire::encode(&fleetgate_wire::names::Question {
        id: 1,
        deadline_ms: 0,
        about: user(USER),
    });
    let mut trailing = question.clone();
    trailing.push(0);
    let mut version = question.clone();
    version[2] ^= 0x40;
    let oversized = vec![b'f'; 60_000];
    let bad: [&[u8]; 6] = [
        &question[..9],
        &trailing,
        &version,
        &oversized,
        b"",
        b"GET / HTTP/1.1",
    ];
    for frame in bad {
        let names = resolver.names();
        socket::send(&names.socket, frame, &[]).expect("send");
        names.expect_closed();
    }
    // A descriptor beside a question, and a PAM session asked for where only names are.
    let names = resolver.names();
    socket::send(&names.socket, &question, &[0]).expect("send");
    names.expect_closed();
    let names = resolver.names();
    let pam = fleetgate_wire::resolver::ToResolver::Pam {
        start: fleetgate_tests::resolver::start("other", "root", false),
    };
    socket::send(&names.socket, &fleetgate_wire::encode(&pam), &[0]).expect("send");
    names.expect_closed();
    assert_eq!(shell(&good, USER), "/bin/sh");
}

#[test]
fn a_reader_that_stalls_is_read_no_further() {
    needs_root!("a mount namespace");
    let (_world, resolver) = with_module();
    let (stalled, good) = (resolver.names(), resolver.names());
    stalled.socket.set_nonblocking(true).expect("fcntl");
    // It asks until nobody takes any more, and never reads.
    let question = fleetgate_wire::encode(&fleetgate_wire::names::Question {
        id: 7,
        deadline_ms: 0,
        about: About::Names {
            uids: vec![0; 500],
            gids: vec![0; 500],
        },
    });
    let (mut sent, mut full) = (0, 0);
    while full < 20 {
        full += 1;
        while socket::send(&stalled.socket, &question, &[]).is_ok() {
            sent += 1;
            full = 0;
        }
        // A turn of the resolver for each look: it has seen that there is more to read.
        assert_eq!(shell(&good, USER), "/bin/sh");
        assert!(sent < 10_000, "it reads on and keeps what it cannot say");
    }
    // Nothing of it is lost once he reads.
    stalled.socket.set_nonblocking(false).expect("fcntl");
    for _ in 0..sent {
        assert!(matches!(stalled.receive().found, Found::Names { .. }));
    }
    assert!(sent > 0);
}

#[test]
fn it_serves_look_up_sockets_to_their_end_and_then_ends() {
    needs_root!("a mount namespace");
    let (_world, mut resolver) = plain();
    let names = resolver.names();
    assert_eq!(shell(&names, USER), "/bin/sh");
    // The server goes: helpers of running sessions keep their names.
    resolver.control = None;
    wait_until("the warm server to end", || {
        children_named(resolver.process.pid, "fleetgate-warm").is_empty()
    });
    assert_eq!(shell(&names, USER), "/bin/sh");
    assert!(matches!(
        names.ask(About::Group { name: c("root") }),
        Found::Group { gid: 0 }
    ));
    drop(names);
    wait_for(&resolver.process.pidfd, "the resolver to end");
    assert_eq!(resolver.process.wait(), fleetgate_sys::process::Exit::Code(0));
}

#[test]
fn an_asking_side_does_not_wait_for_a_resolver_that_stands_still() {
    needs_root!("a mount namespace");
    let (_world, resolver) = plain();
    let names = resolver.names();
    assert_eq!(shell(&names, USER), "/bin/sh");
    const SIGSTOP: i32 = 19;
    fleetgate_sys::process::signal(&resolver.process.pidfd, SIGSTOP).expect("stop it");
    names.send(user(USER), 200);
    let mut watch = [fleetgate_sys::poll::Watch::new(
        names.socket.raw(),
        fleetgate_sys::poll::READ,
    )];
    assert_eq!(
        fleetgate_sys::poll::poll(&mut watch, Some(300)),
        Ok(0),
        "its own clock tells it"
    );
    const SIGCONT: i32 = 18;
    fleetgate_sys::process::signal(&resolver.process.pidfd, SIGCONT).expect("go on");
    assert!(matches!(names.receive().found, Found::User { .. }));
}

#[test]
fn selinux_is_none_where_it_is_off_and_an_error_where_it_is_required() {
    needs_root!("a mount namespace");
    if std::path::Path::new("/sys/fs/selinux/enforce").exists() {
        return skip("the kernel runs SELinux");
    }
    let context = || About::Context { user: c(USER) };
    let world = World::new();
    let resolver = Resolver::start(&world, &[], "");
    assert_eq!(resolver.names().ask(context()), Found::Context { context: None });
    let strict = Resolver::start(&world, &["--selinux", "required"], "");
    let Found::Failed { why } = strict.names().ask(context()) else {
        panic!("not failed");
    };
    assert!(
        text(&why).contains("SELinux is required")
            && text(&why).contains("`selinux = \"auto\"` in node.toml"),
        "{why:?}"
    );
    // The library hidden: nothing where it is not needed, the remedy where it is.
    let hide = "touch empty; for l in /lib/*/libselinux.so.1 /lib64/libselinux.so.1; do \
                if [ -e $l ]; then mount --bind empty $l; fi; done";
    // What the shell itself needs from it is loaded before.
    let hidden = Resolver::start(&world, &["--selinux", "required"], hide);
    let Found::Failed { why } = hidden.names().ask(context()) else {
        panic!("not failed");
    };
    assert!(text(&why).contains("install libselinux"), "{why:?}");
}

/// Live children of `parent` with this name.
fn children_named(parent: i32, name: &str) -> Vec<i32> {
    let list = std::fs::read_to_string(format!("/proc/{parent}/task/{parent}/children")).unwrap_or_default();
    list.split_whitespace()
        .filter_map(|pid| pid.parse().ok())
        .filter(|pid: &i32| {
            std::fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|comm| comm.trim() == name)
        })
        .collect()
}

/// The processes that a resolver started.
fn children(resolver: &Resolver) -> Vec<i32> {
    let pid = resolver.process.pid;
    let text = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).expect("it runs");
    text.split_ascii_whitespace()
        .map(|id| id.parse().expect("an id"))
        .collect()
}

#[test]
fn nothing_is_loaded_for_pam_unless_a_service_is_named() {
    needs_root!("a mount namespace");
    for (args, processes) in [(&[][..], 1), (&["--service", "other"], 2)] {
        let world = World::new();
        let resolver = Resolver::start(&world, args, "");
        assert_eq!(shell(&resolver.names(), USER), "/bin/sh");
        assert_eq!(children(&resolver).len(), processes, "{args:?}");
    }
}

#[test]
fn a_worker_that_is_not_asked_gives_the_pages_of_its_code_back() {
    needs_root!("a mount namespace");
    let (_world, resolver) = plain();
    let names = resolver.names();
    assert_eq!(shell(&names, USER), "/bin/sh");
    let worker = children(&resolver)[0];
    let of_files = || -> u64 {
        let text = std::fs::read_to_string(format!("/proc/{worker}/status")).expect("it runs");
        let line = text
            .lines()
            .find_map(|l| l.strip_prefix("RssFile:"))
            .expect("a line");
        line.trim().trim_end_matches(" kB").parse().expect("a number")
    };
    let busy = of_files();
    wait_until("it has half of them", || of_files() < busy / 2);
    // Another one: of this one the broker knows the answer.
    assert!(matches!(names.ask(user("root")), Found::User { .. }));
    assert_eq!(children(&resolver), [worker], "it is the same one");
}

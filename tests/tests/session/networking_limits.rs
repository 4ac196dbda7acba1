//! The networking helper's bounds: what bad requests, garbage and floods of requests get, and what is left when it ends.

use fleetgate_sys::{Errno, process};
use fleetgate_tests::folder::Folder;
use fleetgate_tests::networking::*;
use fleetgate_tests::{needs_root, test_name};
use fleetgate_wire::net::{Done, HELPER, Networking, Request, What};
use fleetgate_wire::order::{Order, Role, Work};
use fleetgate_wire::{Reason, Reply};
use std::io::{BufRead, BufReader, Read};
use std::net::TcpListener;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

#[test]
fn bad_requests_are_answered_and_it_goes_on() {
    needs_root!("sessions of another user");
    let net = Start::user().net();
    let long = "/".repeat(108);
    let cases = [
        (connect("", 1), Reason::BadRequest),
        (connect("127.0.0.1", 0), Reason::BadRequest),
        (connect("a b", 1), Reason::BadRequest),
        (connect(&"a".repeat(256), 1), Reason::BadRequest),
        (
            What::Connect {
                host: c("127.0.0.1"),
                port: 1,
                timeout_ms: 0,
            },
            Reason::BadRequest,
        ),
        (
            What::Connect {
                host: c("127.0.0.1"),
                port: 1,
                timeout_ms: 600_001,
            },
            Reason::BadRequest,
        ),
        (connect("fe80::1%nowhere0", 1), Reason::Missing),
        (unix_connect(Path::new("relative")), Reason::BadRequest),
        (unix_connect(Path::new("")), Reason::BadRequest),
        (unix_connect(Path::new(&long)), Reason::TooLarge),
        (unix_listen(Path::new("relative"), 0, true), Reason::BadRequest),
        (
            unix_listen(Path::new("/tmp/x"), 0o1000, false),
            Reason::BadRequest,
        ),
    ];
    for (what, reason) in cases {
        let failure = net.failure(what.clone());
        assert_eq!(failure.reason, reason, "{what:?}: {failure:?}");
        assert!(!failure.subject.is_empty());
    }
    let (done, fds) = net.call(listen("127.0.0.1", 0));
    assert_eq!(listeners(&done, fds).len(), 1);
    net.stop();
}

#[test]
fn garbage_ends_it_with_a_reason() {
    needs_root!("sessions of another user");
    let good = fleetgate_wire::encode(&Request {
        id: 7,
        what: listen("127.0.0.1", 0),
    });
    let null = std::fs::File::open("/dev/null").expect("/dev/null");
    let with = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut frame = good.clone();
        change(&mut frame);
        frame
    };
    let cases: Vec<(&str, Vec<u8>, Vec<i32>)> = vec![
        ("truncated", with(&|f| f.truncate(f.len() - 1)), vec![]),
        ("trailing", with(&|f| f.push(0)), vec![]),
        ("no frame", with(&|f| f[0] = b'x'), vec![]),
        ("another version", with(&|f| f[2] += 1), vec![]),
        ("unknown", with(&|f| f[7] = 200), vec![]),
        ("oversized", vec![b'f'; 2000], vec![]),
        ("a descriptor", good.clone(), vec![null.as_raw_fd()]),
        ("number 0", with(&|f| f[3] = 0), vec![]),
    ];
    let refused = |net: &Net, name: &str| {
        let (id, done, _) = net.answer();
        assert_eq!(id, HELPER, "{name}: {done:?}");
        assert!(
            matches!(&done, Done::Failed { failure } if failure.reason == Reason::BadOrder),
            "{name}: {done:?}"
        );
        assert_eq!(net.end(), process::Exit::Code(1), "{name}");
    };
    for (name, frame, fds) in cases {
        let net = Start::user().net();
        net.send(&frame, &fds);
        refused(&net, name);
    }
    // A number that is in use; the same frame before it is a request like any other.
    let net = Start::user().net();
    let kept = fleetgate_wire::encode(&Request {
        id: 7,
        what: keep("127.0.0.1", 0),
    });
    net.send(&kept, &[]);
    assert!(matches!(net.answer(), (7, Done::Listening { .. }, _)));
    net.send(&good, &[]);
    refused(&net, "a number in use");
}

#[test]
fn orders_that_cannot_be_served_are_refused() {
    needs_root!("sessions of another user");
    let null = std::fs::File::open("/dev/null").expect("/dev/null");
    let order = |max_pending, roles: Vec<Role>| Order {
        work: Work::Networking(Networking {
            ids: ids(NOBODY),
            max_pending,
            selinux: None,
        }),
        roles,
    };
    let fd = vec![null.as_raw_fd()];
    let mut in_context = order(1, vec![]);
    if let Work::Networking(order) = &mut in_context.work {
        // No such context: refused where the kernel runs SELinux, and where it does not.
        order.selinux = Some(c"no:such:context".into());
    }
    let cases = [
        (in_context, vec![], Reason::System),
        (order(0, vec![]), vec![], Reason::BadOrder),
        (order(1025, vec![]), vec![], Reason::BadOrder),
        (order(1, vec![Role::Stdin]), fd.clone(), Reason::BadDescriptors),
        (order(1, vec![Role::Resolver]), vec![], Reason::BadDescriptors),
        (order(1, vec![]), fd, Reason::BadDescriptors),
    ];
    for (order, fds, reason) in cases {
        let net = Start::user().launch(&fleetgate_wire::encode(&order), &fds);
        let (frame, _) = net.frame().expect("a word");
        match fleetgate_wire::decode(&frame).expect("a reply") {
            Reply::Failed { failure } => assert_eq!(failure.reason, reason, "{failure:?}"),
            other => panic!("{other:?}"),
        }
        assert_eq!(net.end(), process::Exit::Code(1));
    }
}

#[test]
fn thousands_of_requests_leave_nothing_behind() {
    needs_root!("sessions of another user");
    let net = Start::user().net();
    let server = TcpListener::bind("127.0.0.1:0").expect("listening");
    let port = server.local_addr().expect("bound").port();
    let round = |n: usize| {
        for _ in 0..n {
            drop(stream(net.call(connect("127.0.0.1", port))));
            server.accept().expect("accept");
            net.failure(unix_connect(Path::new("/nowhere/at/all")));
            let (done, fds) = net.call(listen("127.0.0.1", 0));
            listeners(&done, fds);
        }
    };
    round(1000);
    let (descriptors, memory) = (net.descriptors(), net.memory());
    round(2000);
    assert_eq!(net.descriptors(), descriptors);
    // A block left behind by each of the 6000 requests would be 190 KB or more.
    assert!(net.memory() <= memory + 150);
    net.stop();
}

#[test]
fn who_does_not_read_gets_no_more_than_a_socket_full() {
    needs_root!("sessions of another user");
    let net = Start {
        world: Some(""),
        ..Start::user()
    }
    .net();
    let id = net.ask(keep("127.0.0.1", 0));
    let (_, done, _) = net.answer();
    let Done::Listening { local } = done else {
        panic!("{done:?}");
    };
    // The clients stand in the same namespace, so a second helper opens them.
    let clients = Start {
        join: Some(net.child.pid),
        ..Start::user()
    }
    .net();
    // The allocator goes once through all of a group before it uses a block again: let it.
    for _ in 0..2000 {
        drop(stream(clients.call(connect("127.0.0.1", local[0].port))));
        assert!(matches!(net.answer(), (_, Done::Accepted { .. }, _)));
    }
    let (before, memory) = (net.descriptors(), net.memory());
    const CLIENTS: usize = 700;
    let mut held = Vec::new();
    for _ in 0..CLIENTS {
        held.push(stream(clients.call(connect("127.0.0.1", local[0].port))));
    }
    // One connection may wait inside; the rest are in the kernel's queues, bounded by socket and backlog.
    let held_inside = std::fs::read_dir(format!("/proc/{}/fd", net.child.pid))
        .expect("its descriptors")
        .count();
    assert!(held_inside <= before + 1, "{held_inside}");
    let now = net.memory();
    assert!(now <= memory + 16, "{memory} KB became {now}");
    // Where they wait: the listener's queue (its rx_queue) is not empty.
    let table = std::fs::read_to_string(format!("/proc/{}/net/tcp", net.child.pid)).expect("its sockets");
    let listener = format!("0100007F:{:04X} 00000000:0000 0A", local[0].port);
    let line = table
        .lines()
        .find(|l| l.contains(&listener))
        .expect("the listener");
    let queue = line
        .split([' ', ':'])
        .filter(|w| !w.is_empty())
        .nth(7)
        .expect("rx_queue");
    assert_ne!(u32::from_str_radix(queue, 16), Ok(0), "{line}");
    // A request that is sent now is served when there is room for its answer.
    let asked = net.ask(listen("127.0.0.1", 0));
    let (mut accepted, mut answered) = (0, false);
    while accepted < CLIENTS || !answered {
        let (answer, done, fds) = net.answer();
        match done {
            Done::Accepted { .. } if answer == id => accepted += fds.len(),
            Done::Listening { .. } if answer == asked => answered = true,
            other => panic!("{other:?}"),
        }
    }
    clients.stop();
    net.stop();
}

#[test]
fn no_descriptors_left_is_an_answer() {
    needs_root!("sessions of another user");
    // 0 to 3 are taken, so there is room for two.
    let world = "ip tuntap add dev hole mode tun
        ip addr add 192.0.2.1/24 dev hole
        ip link set hole up
        ulimit -n 6";
    let net = Start {
        world: Some(world),
        ..Start::user()
    }
    .net();
    let id = net.ask(keep("127.0.0.1", 0));
    let (_, done, _) = net.answer();
    let Done::Listening { local } = done else {
        panic!("{done:?}");
    };
    let stuck = net.ask(connect("192.0.2.77", 9));
    assert_eq!(Errno(net.failure(listen("127.0.0.1", 0)).errno), Errno::EMFILE);
    // A connection that cannot be taken now is taken when there is a descriptor again.
    let clients = Start {
        join: Some(net.child.pid),
        ..Start::user()
    }
    .net();
    let client = stream(clients.call(connect("127.0.0.1", local[0].port)));
    assert_eq!(net.call(What::Cancel { of: stuck }).0, Done::Cancelled);
    let (answered, done, fds) = net.answer();
    assert_eq!((answered, fds.len()), (id, 1));
    let Done::Accepted { peer, .. } = done else {
        panic!("{done:?}");
    };
    assert_eq!(address(&peer), client.local_addr().expect("bound"));
    let (done, fds) = net.call(listen("127.0.0.1", 0));
    assert_eq!(listeners(&done, fds).len(), 1);
    clients.stop();
    net.stop();
}

#[test]
fn the_sockets_end_is_its_end() {
    needs_root!("sessions of another user");
    let net = Start::user().net();
    let (done, _) = net.call(What::AgentSocket);
    let Done::UnixListening { path } = done else {
        panic!("{done:?}");
    };
    let path = PathBuf::from(path.into_string().expect("text"));
    assert!(path.exists());
    let Net { control, child, .. } = net;
    drop(control);
    readable(&child.pidfd);
    assert_eq!(
        process::wait(&child.pidfd, true),
        Ok(Some(process::Exit::Code(0)))
    );
    assert!(!path.exists() && !path.parent().expect("a directory").exists());
}

const CHILD: &str = "FLEETGATE_TEST_LAUNCHING_SIDE";

#[test]
fn killing_the_launching_side_removes_the_files() {
    needs_root!("sessions of another user");
    if std::env::var_os(CHILD).is_some() {
        return launching_side();
    }
    let mut child = std::process::Command::new(std::env::current_exe().expect("this test"))
        .args([
            "--exact",
            &test_name(module_path!(), "killing_the_launching_side_removes_the_files"),
            "--nocapture",
        ])
        .env(CHILD, "1")
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .expect("the launching side");
    let lines = BufReader::new(child.stdout.take().expect("its output")).lines();
    let said = lines
        .map(|l| l.expect("a line"))
        .find_map(|l| l.split_once("SAID ").map(|(_, said)| said.to_owned()))
        .expect("what it has");
    let mut words = said.split(' ');
    let pid: i32 = words
        .next()
        .and_then(|w| w.parse().ok())
        .expect("the helper's number");
    let paths: Vec<PathBuf> = words.map(PathBuf::from).collect();
    assert_eq!(paths.len(), 2);
    assert!(paths.iter().all(|p| p.exists()));
    let helper = process::pidfd_open(pid).expect("it runs");
    child.kill().expect("kill");
    child.wait().expect("reaped");
    readable(&helper);
    assert!(paths.iter().all(|p| !p.exists()), "{paths:?}");
    assert!(!paths[0].parent().expect("a directory").exists());
    let _ = std::fs::remove_dir_all(paths[1].parent().expect("a directory"));
}

/// Plays the launching side until killed.
fn launching_side() {
    let net = Start::user().net();
    let dir = Folder::owned(0o755, NOBODY);
    let mut said = net.child.pid.to_string();
    for what in [
        What::AgentSocket,
        unix_listen(&dir.join("listener"), 0o177, false),
    ] {
        let (done, _) = net.call(what);
        let Done::UnixListening { path } = done else {
            panic!("{done:?}");
        };
        said += &format!(" {}", path.to_str().expect("text"));
    }
    println!("SAID {said}");
    let _ = std::io::stdin().read(&mut [0]);
}

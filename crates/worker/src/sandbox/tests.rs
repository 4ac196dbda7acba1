//! What a confined process cannot do. Each try is made by a process of its own, this very test program, because the
//! answer to most is its end.

use super::*;
use fleetgate_sys::{Fd, net, socket};
use std::os::unix::process::ExitStatusExt;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering::Relaxed};

const SIGSYS: i32 = 31;
const SIGABRT: i32 = 6;
/// Which row the child is to try.
const ROW: &str = "FLEETGATE_SANDBOX_ROW";
/// Whether this kernel's landlock knows ports; asked before there is nobody to ask.
static KNOWS_PORTS: AtomicBool = AtomicBool::new(false);
/// Whether this kernel has landlock.
static HAS_LANDLOCK: AtomicBool = AtomicBool::new(false);
/// The process that is looked at: the one that started this, where both are root's.
static OTHER: AtomicI32 = AtomicI32::new(0);
/// The one port that may be connected to, where there is landlock.
const NAMED: u16 = 1;
const LOOPBACK: [u8; 16] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
/// A try that came back.
const CAME_BACK: i32 = 100;

/// What is tried in a worker.
#[derive(Clone, Copy)]
enum Try {
    /// A call with -1 as every argument.
    Call(i64),
    /// Something that a worker does.
    Useful(fn() -> bool),
}

/// What becomes of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Comes {
    /// SIGSYS.
    Killed,
    /// An answer.
    Back,
}
use Comes::{Back, Killed};

fn rows() -> Vec<(&'static str, Worker, Try, Comes)> {
    use Worker::{Front, Guardian, Lobby, Recorder, Starter, Tunnel, Watcher};
    let mut rows = Vec::new();
    for (name, call) in [
        ("openat", calls::SYS_openat),
        ("openat2", calls::SYS_openat2),
        ("unlinkat", calls::SYS_unlinkat),
        ("chdir", calls::SYS_chdir),
        ("chroot", calls::SYS_chroot),
        ("mount", calls::SYS_mount),
        ("execve", calls::SYS_execve),
        ("execveat", calls::SYS_execveat),
        ("clone3", calls::SYS_clone3),
        ("unshare", calls::SYS_unshare),
        ("setns", calls::SYS_setns),
        ("ptrace", calls::SYS_ptrace),
        ("process_vm_readv", calls::SYS_process_vm_readv),
        ("process_vm_writev", calls::SYS_process_vm_writev),
        ("kill", calls::SYS_kill),
        ("tkill", calls::SYS_tkill),
        ("tgkill", calls::SYS_tgkill),
        ("pidfd_open", calls::SYS_pidfd_open),
        ("pidfd_getfd", calls::SYS_pidfd_getfd),
        ("pidfd_send_signal", calls::SYS_pidfd_send_signal),
        ("socket", calls::SYS_socket),
        ("socketpair", calls::SYS_socketpair),
        ("connect", calls::SYS_connect),
        ("bind", calls::SYS_bind),
        ("listen", calls::SYS_listen),
        ("sendmmsg", calls::SYS_sendmmsg),
        ("memfd_create", calls::SYS_memfd_create),
        ("io_uring_setup", calls::SYS_io_uring_setup),
        ("bpf", calls::SYS_bpf),
        ("perf_event_open", calls::SYS_perf_event_open),
        ("userfaultfd", calls::SYS_userfaultfd),
        ("keyctl", calls::SYS_keyctl),
        ("init_module", calls::SYS_init_module),
        ("mmap with PROT_EXEC", calls::SYS_mmap),
        ("ioctl of another kind", calls::SYS_ioctl),
        ("fcntl of another kind", calls::SYS_fcntl),
        ("setsockopt of another kind", calls::SYS_setsockopt),
    ] {
        rows.push((name, Lobby, Try::Call(call), Killed));
        rows.push((name, Front, Try::Call(call), Killed));
        rows.push((name, Starter, Try::Call(call), Killed));
        // The tunnel connects, with sockets of TCP alone.
        let comes = if name == "connect" { Back } else { Killed };
        rows.push((name, Tunnel, Try::Call(call), comes));
        let of_the_watcher = [
            "clone3",
            "pidfd_open",
            "memfd_create",
            "process_vm_readv",
            "fcntl of another kind",
        ];
        for (worker, has) in [
            (Watcher, of_the_watcher.contains(&name)),
            (Guardian, name == "chdir"),
            (Recorder, name == "clone3"),
        ] {
            rows.push((name, worker, Try::Call(call), if has { Back } else { Killed }));
        }
    }
    rows.push(("looking at others", Watcher, Try::Useful(looking), Back));
    rows.push(("looking at others", Guardian, Try::Useful(not_looking), Back));
    rows.push(("looking at others", Front, Try::Useful(looking), Killed));
    rows.push(("threads", Watcher, Try::Useful(threads), Back));
    rows.push(("threads", Recorder, Try::Useful(threads), Back));
    rows.push(("frames", Recorder, Try::Useful(frames), Back));
    rows.push((
        "cutting a file off",
        Recorder,
        Try::Call(calls::SYS_ftruncate),
        Killed,
    ));
    for (name, call) in [
        ("pwrite64", calls::SYS_pwrite64),
        ("fdatasync", calls::SYS_fdatasync),
    ] {
        rows.push((name, Recorder, Try::Call(call), Back));
        rows.push((name, Front, Try::Call(call), Killed));
    }
    rows.push(("threads", Lobby, Try::Useful(threads), Killed));
    rows.push(("frames", Watcher, Try::Useful(frames), Back));
    rows.push(("frames", Guardian, Try::Useful(frames), Back));
    rows.push(("frames", Starter, Try::Useful(frames), Back));
    rows.push(("waiting for a child", Starter, Try::Useful(waiting), Back));
    rows.push(("waiting for a child", Guardian, Try::Useful(waiting), Killed));
    for (name, call) in [("read", calls::SYS_read), ("readv", calls::SYS_readv)] {
        rows.push((name, Lobby, Try::Call(call), Killed));
        // The controls: what is allowed comes back.
        rows.push((name, Front, Try::Call(call), Back));
    }
    rows.push(("readv", Tunnel, Try::Call(calls::SYS_readv), Killed));
    rows.push(("read", Tunnel, Try::Call(calls::SYS_read), Back));
    rows.push(("dialling", Lobby, Try::Useful(dialling), Killed));
    rows.push(("dialling", Tunnel, Try::Useful(dialling), Back));
    rows.push(("frames", Tunnel, Try::Useful(frames), Back));
    rows.push(("memory", Lobby, Try::Useful(memory), Back));
    rows.push(("frames", Lobby, Try::Useful(frames), Back));
    rows.push(("frames", Front, Try::Useful(frames), Back));
    rows
}

/// What another process executes; with root behind it, of anybody.
fn looking() -> bool {
    let other = OTHER.load(Relaxed);
    let path = |name: &str| std::ffi::CString::new(format!("/proc/{other}/{name}")).expect("no zero");
    file::read_link(&path("exe")).is_ok_and(|path| !path.is_empty())
        && file::read_link(&path("fd/0")).is_ok()
        && file::openat(file::CWD, &path("status"), file::flags::O_RDONLY, 0).is_ok()
}

/// It may ask for a file, which landlock does not give.
fn not_looking() -> bool {
    !HAS_LANDLOCK.load(Relaxed)
        || file::openat(file::CWD, c"/proc/1/status", file::flags::O_RDONLY, 0).map(drop)
            == Err(Errno::EACCES)
}

/// For one that it has not.
fn waiting() -> bool {
    let own = std::mem::ManuallyDrop::new(Fd::from_raw(0));
    process::wait(&own, true).is_err()
}

fn threads() -> bool {
    let answer = std::thread::Builder::new().stack_size(128 << 10).spawn(|| 7);
    answer.is_ok_and(|thread| thread.join().is_ok_and(|answer| answer == 7))
}

/// Large and small allocations, growing and given back.
fn memory() -> bool {
    let mut all: Vec<Vec<u8>> = (0..64).map(|i| vec![i as u8; 1 << (i % 22)]).collect();
    for v in &mut all {
        v.resize(v.len() * 2, 1);
    }
    all.iter().map(Vec::len).sum::<usize>() > 1 << 22
}

/// A socket of TCP is made and connected, where landlock knows ports to none but those that were named.
fn dialling() -> bool {
    [
        net::Address::v4([127, 0, 0, 1], NAMED),
        net::Address::v6(LOOPBACK, NAMED),
    ]
    .into_iter()
    .all(|address| {
        let dial = |address| match net::tcp(&address).and_then(|s| net::connect(&s, &address)) {
            // Nobody listens there, or there is no version 6.
            Err(Errno::EINPROGRESS | Errno::ECONNREFUSED | Errno::EADDRNOTAVAIL | Errno::ENETUNREACH) => true,
            Err(Errno::EAFNOSUPPORT) => true,
            other => other.is_ok(),
        };
        dial(address) && (!KNOWS_PORTS.load(Relaxed) || !dial(address.with_port(NAMED + 1)))
    })
}

/// The control socket works, and nothing above it is open.
fn frames() -> bool {
    let control = std::mem::ManuallyDrop::new(Fd::from_raw(CONTROL));
    let closed = std::mem::ManuallyDrop::new(Fd::from_raw(CONTROL + 1));
    let mut word = [0u8; 8];
    socket::send_now(&control, b"word", &[]) == Ok(())
        && socket::receive(&control, &mut word, false).map(|r| r.len) == Err(Errno::EAGAIN)
        && net::shut(&closed) == Err(Errno::EBADF)
}

#[test]
fn what_a_worker_does_not_need_ends_it() {
    if let Ok(row) = std::env::var(ROW) {
        child(&rows()[row.parse::<usize>().expect("a number")]);
    }
    let me = std::env::current_exe().expect("there is one");
    for (at, (name, worker, _, comes)) in rows().into_iter().enumerate() {
        let status = Command::new(&me)
            .args([
                "--exact",
                "sandbox::tests::what_a_worker_does_not_need_ends_it",
                "--nocapture",
            ])
            .env(ROW, at.to_string())
            .output()
            .expect("it starts")
            .status;
        let expected = match comes {
            Killed => (None, Some(SIGSYS)),
            Back => (Some(CAME_BACK), None),
        };
        assert_ne!(
            status.signal(),
            Some(SIGABRT),
            "{name} in {worker:?}: the child's own check failed"
        );
        assert_eq!((status.code(), status.signal()), expected, "{name} in {worker:?}");
    }
}

fn child(row: &(&'static str, Worker, Try, Comes)) -> ! {
    // The control socket, its other end as standard input, which stays, and something above it, which does not.
    let (ours, theirs) = socket::pair().expect("a pair");
    let (ours, theirs) = (
        ours.duplicate(100).expect("one"),
        theirs.duplicate(101).expect("another"),
    );
    ours.place_at(CONTROL, true).expect("placed");
    theirs.place_at(0, true).expect("placed");
    theirs.place_at(CONTROL + 1, true).expect("placed");
    let _closed_by_the_sandbox = std::mem::ManuallyDrop::new((ours, theirs));
    let identity = (process::effective_uid() == 0).then_some(Identity {
        uid: 65534,
        gid: 65534,
    });
    HAS_LANDLOCK.store(landlock::version() >= 1, Relaxed);
    let other = if identity.is_some() {
        process::parent_id()
    } else {
        process::id()
    };
    OTHER.store(other, Relaxed);
    KNOWS_PORTS.store(landlock::version() >= 4, Relaxed);
    close_others().expect("closed");
    let missing = enter(row.1, identity, &[NAMED]).expect("the sandbox stands");
    assert!(!missing.contains(&MissingPart::Seccomp), "{missing:?}");
    match row.2 {
        Try::Call(call) => {
            let _ = seccomp::answer(call);
        }
        Try::Useful(does) => assert!(does()),
    }
    process::exit(CAME_BACK)
}

//! Where cgroups go, what is read of them, and what is swept, on directories that stand for the kernel's.

use super::*;

#[test]
fn the_own_directory_is_found() {
    let unified =
        "24 1 0:21 / /proc rw - proc proc rw\n30 1 0:26 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 c rw\n";
    let hybrid = "31 1 0:27 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n32 1 0:28 / /sys/fs/cgroup/unified rw - cgroup2 x rw\n";
    let bound = "30 1 0:26 /docker/abc /sys/fs/cgroup rw - cgroup2 c rw\n";
    let below = |path: &str| Some(Own::Below(path.into()));
    let root = |path: &str| Some(Own::Root(path.into()));
    for (own, mounts, wanted) in [
        (
            "0::/system.slice/x.service\n",
            unified,
            below("/sys/fs/cgroup/system.slice/x.service"),
        ),
        ("4:memory:/a\n0::/\n", hybrid, root("/sys/fs/cgroup/unified")),
        ("0::/docker/abc/x\n", bound, below("/sys/fs/cgroup/x")),
        ("0::/docker/abc\n", bound, root("/sys/fs/cgroup")),
        ("0::/docker/abcd\n", bound, None),
        ("4:memory:/a\n", unified, None),
        ("0::/x\n", "24 1 0:21 / /proc rw - proc proc rw\n", None),
        ("", "", None),
    ] {
        assert_eq!(own_directory(own, mounts), wanted, "{own} {mounts}");
    }
}

#[test]
fn usage_is_the_cgroups_and_else_the_processs() {
    // More than this process ever had: less says nothing about the session.
    const MUCH: u64 = 1 << 50;
    let directory = Directory::new("usage");
    let process = fleetgate_sys::process::Usage {
        cpu_micros: 1,
        memory: MUCH,
        read: 3,
        written: 4,
    };
    let path = directory.0.as_path();
    let whole = |cpu, memory, read, written| Used {
        cpu_micros: Some(cpu),
        memory: Some(memory),
        read: Some(read),
        written: Some(written),
    };
    assert_eq!(used(None, None), Used::default());
    assert_eq!(used(Some(path), Some(process)), whole(1, MUCH, 3, 4));
    let write = |name: &str, text: &str| std::fs::write(path.join(name), text).expect("written");
    write("cpu.stat", "usage_usec 700\nuser_usec 500\nsystem_usec 200\n");
    assert_eq!(used(Some(path), Some(process)), whole(700, MUCH, 3, 4));
    write("memory.peak", "4096\n");
    write(
        "io.stat",
        "8:0 rbytes=10 wbytes=20 rios=1\n8:16 rbytes=5 wbytes=1\n",
    );
    assert_eq!(used(Some(path), None), whole(700, 4096, 15, 21));
    write("cpu.stat", "garbage");
    write("memory.peak", "max");
    assert_eq!(used(Some(path), Some(process)), whole(1, MUCH, 15, 21));
}

#[test]
fn cgroups_are_made_ahead_and_stale_ones_swept() {
    let directory = Directory::new("made");
    let base = directory.0.join("base");
    std::fs::create_dir(&base).expect("a directory");
    // No process has this number: it is above the kernel's bound.
    let here = namespace();
    let stale = |number: u32| format!("session-{here}.99999999-{number}");
    let mut kept = vec![
        "other".to_owned(),
        "session-x-1".into(),
        // Of a process that lives, and of one that may, where nobody here can see it.
        format!("session-{here}.1-5"),
        "session-7.99999999-1".into(),
        stale(2),
    ];
    for name in kept.iter().chain([&stale(1)]) {
        std::fs::create_dir(base.join(name)).expect("a directory");
    }
    std::fs::create_dir(base.join(stale(2)).join("full")).expect("a directory");
    // Of a namespace that cannot be seen, and older than anybody keeps a spare.
    let old = base.join("session-8.5-1");
    std::fs::create_dir(&old).expect("a directory");
    let long_ago = std::time::SystemTime::now() - 2 * FORGOTTEN;
    let opened = std::fs::File::open(&old).expect("opened");
    opened.set_modified(long_ago).expect("made older");
    let before = *MADE.lock().expect("no panic is survived");
    let mut cgroups = Cgroups::at(base.clone()).expect("usable");
    let names = || {
        let entries = std::fs::read_dir(&base).expect("the base").flatten();
        let mut names: Vec<String> = entries
            .filter(|e| e.path().is_dir())
            .map(|e| e.file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    };
    let own = |number: u64| {
        format!(
            "session-{}.{}-{}",
            namespace(),
            std::process::id(),
            before + number
        )
    };
    kept.push(own(1));
    kept.sort();
    assert_eq!(names(), kept, "one ahead");
    let first = cgroups.take().expect("made");
    assert!(first.path.ends_with(own(1)));
    let second = cgroups.take().expect("made");
    assert!(second.path.ends_with(own(2)));
    second.remove();
    cgroups.refill();
    std::fs::remove_dir(base.join(own(3))).expect("somebody tidied up");
    let third = cgroups.take().expect("made");
    assert!(third.path.ends_with(own(4)));
    third.remove();
    cgroups.refill();
    cgroups.refill();
    kept.push(own(5));
    kept.sort();
    assert_eq!(names(), kept);
    first.remove();
    drop(cgroups);
    kept.retain(|name| *name != own(1) && *name != own(5));
    assert_eq!(names(), kept);
}

struct Directory(PathBuf);

impl Directory {
    fn new(name: &str) -> Directory {
        let path = std::env::temp_dir().join(format!("fleetgate-cgroup-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir(&path).expect("a directory");
        Directory(path)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn memory_of_a_session_without_a_cgroup_is_not_that_of_its_starter() {
    use fleetgate_sys::process;
    use fleetgate_sys::spawn::{Program, Spawn, Stack, Strings, spawn};
    const LARGE: usize = 64 << 20;
    // Who starts the sessions had this much once.
    let large = vec![1_u8; LARGE];
    assert!(large.iter().all(|byte| *byte == 1));
    drop(large);
    let spent = |words: &[&std::ffi::CStr]| {
        let what = Spawn {
            program: Program::Path(words[0]),
            argv: &Strings::new(words.iter().copied()),
            envp: &Strings::new([]),
            fds: &[0, 1, 2],
            cgroup: None,
        };
        let child = spawn(&what, &mut Stack::new().expect("a stack")).expect("spawned");
        let ended = process::wait_usage(&child.pidfd, true).expect("ours");
        ended.expect("it ended").1
    };
    let small = spent(&[c"/bin/true"]);
    assert!(
        small.memory >= LARGE as u64,
        "control: the kernel's floor is there"
    );
    assert_eq!(used(None, Some(small)).memory, None);
    let much = spent(&[
        c"/bin/dd",
        c"if=/dev/zero",
        c"of=/dev/null",
        c"bs=256M",
        c"count=1",
        c"status=none",
    ]);
    assert!(
        used(None, Some(much))
            .memory
            .is_some_and(|bytes| bytes > 256 << 20)
    );
}

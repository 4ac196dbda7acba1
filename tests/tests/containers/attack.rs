//! Root in the container goes for whoever enters: for the file behind the helper, its memory, its descriptors, its root.
//! What it is refused is refused with and without CAP_SYS_PTRACE; the machine's own runc is attacked in the same way, and
//! what comes of that is printed.

use fleetgate_tests::containers::{Container, Runtime, errors};
use fleetgate_tests::needs_root;
use fleetgate_tests::world::wait_until;
use serde_json::json;
use std::process::{Command, Stdio};

/// Looks at every process that appears, as fast as it can, and tries each thing in every pass. It prints a
/// line for what succeeded against a process that still is the helper or the runtime: `WORD PID`.
const ATTACKER: &str = r#"
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <signal.h>

static int foreign(int pid, char *exe, size_t size) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/exe", pid);
    ssize_t n = readlink(path, exe, size - 1);
    if (n < 0) return 0;
    exe[n] = 0;
    return strstr(exe, "fleetgate") || strstr(exe, "runc") || strstr(exe, "memfd") || !strcmp(exe, "/");
}

static void say(const char *what, int pid) { printf("%s %d\n", what, pid); fflush(stdout); }

static void attack(int pid) {
    char path[64], exe[4096];
    snprintf(path, sizeof path, "/proc/%d/exe", pid);
    if (foreign(pid, exe, sizeof exe)) say("SEEN", pid);
    int held = open(path, O_PATH | O_CLOEXEC);
    if (held >= 0 && foreign(pid, exe, sizeof exe)) {
        char self[64];
        snprintf(self, sizeof self, "/proc/self/fd/%d", held);
        // Busy now, it may be free later. Root may open a sealed file so; what counts is what comes of it.
        int out = open(self, O_RDWR | O_CLOEXEC);
        for (int i = 0; out < 0 && errno == ETXTBSY && i < 2000; i++) { usleep(500); out = open(self, O_RDWR); }
        if (out >= 0) {
            say("OPENED", pid);
            if (pwrite(out, "X", 1, 0) == 1) say("WRITTEN", pid);
            if (ftruncate(out, 0) == 0) say("TRUNCATED", pid);
            if (mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, out, 0) != MAP_FAILED) say("MAPPED", pid);
            close(out);
        }
        if (chmod(self, 0666) == 0) say("CHMOD", pid);
        if (truncate(self, 0) == 0) say("TRUNCATED", pid);
    }
    if (held >= 0) close(held);
    snprintf(path, sizeof path, "/proc/%d/mem", pid);
    int mem = open(path, O_RDWR | O_CLOEXEC);
    if (mem >= 0) { if (foreign(pid, exe, sizeof exe)) say("MEMORY", pid); close(mem); }
    struct stat outside, inside;
    snprintf(path, sizeof path, "/proc/%d/root", pid);
    if (stat(path, &outside) == 0 && stat("/", &inside) == 0 &&
        (outside.st_dev != inside.st_dev || outside.st_ino != inside.st_ino)) say("ROOT", pid);
    int pidfd = syscall(SYS_pidfd_open, pid, 0);
    if (pidfd >= 0) {
        for (int n = 0; n < 16; n++) {
            int got = syscall(438, pidfd, n, 0);
            if (got >= 0) {
                struct stat st;
                if (fstat(got, &st) == 0 && S_ISDIR(st.st_mode) && foreign(pid, exe, sizeof exe)) say("DIRECTORY", pid);
                close(got);
            }
        }
        close(pidfd);
    }
    if (ptrace(PTRACE_SEIZE, pid, 0, 0) == 0) {
        if (foreign(pid, exe, sizeof exe)) {
            // What it could do is what the tracee may do.
            char status[4096];
            snprintf(path, sizeof path, "/proc/%d/status", pid);
            FILE *f = fopen(path, "r");
            unsigned long long caps = 0, own = 0;
            while (f && fgets(status, sizeof status, f)) sscanf(status, "CapPrm: %llx", &caps);
            if (f) fclose(f);
            f = fopen("/proc/1/status", "r");
            while (f && fgets(status, sizeof status, f)) sscanf(status, "CapBnd: %llx", &own);
            if (f) fclose(f);
            say(caps & ~own ? "TRACED-WITH-POWER" : "TRACED", pid);
        }
        ptrace(PTRACE_DETACH, pid, 0, 0);
    }
}

int main(void) {
    int self = getpid();
    printf("READY 0\n");
    fflush(stdout);
    for (;;) {
        DIR *proc = opendir("/proc");
        struct dirent *entry;
        while ((entry = readdir(proc))) {
            int pid = atoi(entry->d_name);
            if (pid > 1 && pid != self) attack(pid);
        }
        closedir(proc);
        while (waitpid(-1, 0, WNOHANG | __WALL) > 0);
    }
}
"#;

/// What the attacker must never come to.
const FORBIDDEN: [&str; 7] = [
    "WRITTEN",
    "MAPPED",
    "CHMOD",
    "TRUNCATED",
    "ROOT",
    "DIRECTORY",
    "TRACED-WITH-POWER",
];
/// What he must not come to with the helper's copy unless he may trace. Where the image itself is executed as the container's
/// program, that program is his as any other.
const OF_THE_COPY: [&str; 2] = ["MEMORY", "TRACED"];

fn attacked(capabilities: &[&str], by: impl Fn(&Container) -> Command + Sync) -> Vec<String> {
    let container = Container::with(Runtime::Runc, |config| {
        for set in ["bounding", "effective", "permitted"] {
            config["process"]["capabilities"][set] = json!(capabilities);
        }
        config["process"]["noNewPrivileges"] = json!(false);
        // To be bound by it takes more than the container has.
        config["linux"]["seccomp"] = json!({
            "defaultAction": "SCMP_ACT_ALLOW",
            "syscalls": [{ "names": ["reboot"], "action": "SCMP_ACT_ERRNO" }],
        });
    });
    let source = container.path("attacker.c");
    std::fs::write(&source, ATTACKER).expect("written");
    let compiled = Command::new("cc")
        .args(["-static", "-O1", "-w", "-o"])
        .args([&container.path("bin/attacker"), &source])
        .status();
    assert!(compiled.expect("cc runs").success());
    // What the kernel executes for it is whatever runs the script: the helper, if it looks at the wrong moment.
    std::fs::write(container.path("bin/itself"), "#!/proc/self/exe\n").expect("written");
    let executable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(container.path("bin/itself"), executable).expect("chmod");

    let log = container.path("../attack");
    let out = std::fs::File::create(&log).expect("a log");
    let mut attacker = container
        .runtime(&["exec", &container.name, "/bin/attacker"])
        .stdout(out)
        .stderr(Stdio::null())
        .spawn()
        .expect("it runs");
    let said = || std::fs::read_to_string(&log).unwrap_or_default();
    wait_until("the attacker looks", || said().contains("READY"));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                for _ in 0..25 {
                    let _ = by(&container)
                        .stdout(Stdio::null())
                        .stderr(Stdio::null())
                        .status();
                }
            });
        }
    });
    let _ = container.runtime(&["kill", &container.name, "KILL"]).status();
    let _ = attacker.wait();
    said()
        .lines()
        .map(|line| line.split(' ').next().unwrap_or_default().to_owned())
        .collect()
}

fn counted(all: &[String]) -> Vec<(String, usize)> {
    let mut sums: std::collections::BTreeMap<String, usize> = std::collections::BTreeMap::new();
    for word in all {
        *sums.entry(word.clone()).or_default() += 1;
    }
    sums.into_iter().collect()
}

#[test]
fn root_inside_gets_nothing_of_who_enters() {
    needs_root!("containers");
    let usual = [
        "CAP_CHOWN",
        "CAP_DAC_OVERRIDE",
        "CAP_FOWNER",
        "CAP_SETUID",
        "CAP_SETGID",
        "CAP_KILL",
    ];
    let tracing = [&usual[..], &["CAP_SYS_PTRACE"]].concat();
    for (what, capabilities) in [
        ("without CAP_SYS_PTRACE", &usual[..]),
        ("with CAP_SYS_PTRACE", &tracing[..]),
    ] {
        let may_look = capabilities.contains(&"CAP_SYS_PTRACE");
        let mut seen = 0;
        for command in ["true", "/proc/self/exe", "itself"] {
            let came = attacked(capabilities, |container| container.command(&["-T"], &[command]));
            println!("{what}, {command}: {:?}", counted(&came));
            seen += came.iter().filter(|said| *said == "SEEN").count();
            let mut forbidden = FORBIDDEN.to_vec();
            if command == "true" && !may_look {
                forbidden.extend(OF_THE_COPY);
            }
            for word in forbidden {
                assert!(
                    !came.iter().any(|said| said == word),
                    "{what}, {command}: {:?}",
                    counted(&came)
                );
            }
        }
        // An attack that never meets the copy would prove nothing.
        assert!(seen > 0 || !may_look, "{what}: it has seen nobody");
        let came = attacked(capabilities, |container| {
            container.runtime(&["exec", &container.name, "/proc/self/exe"])
        });
        println!("{what}, the machine's runc: {:?}", counted(&came));
    }
}

/// Says which program has loaded it.
const PRELOADED: &str = r#"
#include <stdio.h>
#include <unistd.h>
__attribute__((constructor)) static void loaded(void) {
    char exe[4096] = {0};
    if (readlink("/proc/self/exe", exe, sizeof exe - 1) < 0) return;
    FILE *f = fopen("/tmp/loaded", "a");
    if (f) { fprintf(f, "%s %d\n", exe, (int)getuid()); fclose(f); }
}
"#;

#[test]
fn libraries_of_the_container_are_loaded_by_its_own_programs_alone() {
    needs_root!("containers");
    let container = Container::with(Runtime::Runc, |config| {
        let env = config["process"]["env"].as_array_mut().expect("variables");
        env.extend([
            json!("LD_PRELOAD=/lib/preloaded.so"),
            json!("LD_LIBRARY_PATH=/lib"),
        ]);
    });
    for folder in ["lib", "lib64", "etc", "tmp"] {
        std::fs::create_dir_all(container.path(folder)).expect("made");
    }
    std::fs::write(container.path("etc/ld.so.preload"), "/lib/preloaded.so\n").expect("written");
    let compile = |text: &str, to: &str, flags: &[&str]| {
        let source = container.path("source.c");
        std::fs::write(&source, text).expect("written");
        let compiled = Command::new("cc")
            .args(flags)
            .args(["-O1", "-w", "-o"])
            .args([&container.path(to), &source])
            .status();
        assert!(compiled.expect("cc runs").success());
    };
    compile(PRELOADED, "lib/preloaded.so", &["-shared", "-fPIC"]);
    compile("int main(void) { return 7; }", "bin/dynamic", &[]);
    // What a program that is not static needs, from the machine.
    let needed = Command::new("ldd").arg(container.path("bin/dynamic")).output();
    let needed = String::from_utf8(needed.expect("ldd runs").stdout).expect("text");
    for path in needed.split_whitespace().filter(|word| word.starts_with('/')) {
        let to = container.path(path.trim_start_matches('/'));
        std::fs::create_dir_all(to.parent().expect("a folder")).expect("made");
        std::fs::copy(path, to).expect("copied");
    }
    let loaded = || {
        let text = std::fs::read_to_string(container.path("tmp/loaded")).unwrap_or_default();
        let _ = std::fs::remove_file(container.path("tmp/loaded"));
        text
    };
    let out = container.exec(&["-T"], &["dynamic"]);
    assert_eq!(out.status.code(), Some(7), "{}", errors(&out));
    // The container's program loads it once; whoever brought it there does not.
    assert_eq!(loaded(), "/bin/dynamic 0\n");
    assert!(container.exec(&["-T"], &["busybox", "true"]).status.success());
    assert_eq!(loaded(), "");
    let by_runc = container.runtime(&["exec", &container.name, "dynamic"]).status();
    println!("the machine's runc ({:?}): {:?}", by_runc, loaded());
}

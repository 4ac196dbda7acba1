//! `fleetgate seal run` and `--verify`: what runs, what is refused and how that is said, what the program sees.

use fleetgate_tests::seal::{Place, SPEAK, said, seal_run};
use fleetgate_tests::{fleetgate, skip};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

const STRATEGIES: [&str; 4] = ["overlay", "memfd", "tmpfile", "unlinked"];

#[test]
fn static_and_dynamic_programs_run_with_their_name_and_arguments() {
    let place = Place::below("/var/tmp");
    let linked = place.compile("dynamic", SPEAK, &[]);
    let alone = place.compile("static", SPEAK, &["-static"]);
    for program in [&linked, &alone] {
        for strategy in STRATEGIES.iter().map(|s| Some(*s)).chain([None, Some("none")]) {
            let out = seal_run(strategy)
                .arg(program)
                .args(["-a", "b c", ""])
                .output()
                .expect("runs");
            let want = format!("{}\n-a\nb c\n\n", program.display());
            assert_eq!(
                said(&out),
                (want, String::new(), 7),
                "{strategy:?} {}",
                program.display()
            );
        }
    }
}

#[test]
fn a_name_without_a_slash_is_looked_up_and_kept() {
    let place = Place::below("/var/tmp");
    place.compile("speak", SPEAK, &[]);
    place.file("plain", b"no program", 0o644);
    let run = |name: &str, path: &str| {
        let out = seal_run(None).arg(name).env("PATH", path).output().expect("runs");
        said(&out)
    };
    let path = format!("/nowhere:{}:/usr/bin", place.path.display());
    assert_eq!(run("speak", &path), ("speak\n".to_owned(), String::new(), 7));
    let missing = (
        "".to_owned(),
        "fleetgate: no-such-program: not found\n".to_owned(),
        127,
    );
    assert_eq!(run("no-such-program", &path), missing);
    let (_, error, code) = run("plain", &path);
    assert!(error.contains("Permission denied (EACCES)"), "{error}");
    assert_eq!(code, 126);
    let (_, error, code) = run("./no/such", &path);
    assert_eq!((error.as_str(), code), ("fleetgate: ./no/such: not found\n", 127));
}

/// Each is refused by name with its reason; beside each stands what is run when the trait is taken away.
#[test]
fn what_would_behave_differently_is_refused() {
    let place = Place::below("/var/tmp");
    let speak = place.compile("speak", SPEAK, &[]);
    let set = |name: &str, mode: u32| {
        let copy = place.copy(&speak, name);
        std::fs::set_permissions(&copy, std::os::unix::fs::PermissionsExt::from_mode(mode)).expect("chmod");
        copy
    };
    let capable = place.copy(&speak, "capable");
    let given = Command::new("setcap")
        .arg("cap_net_raw+ep")
        .arg(&capable)
        .status();
    assert!(given.expect("setcap runs").success());
    let whole = std::fs::read(&speak).expect("read");
    let foreign = {
        let mut bytes = whole.clone();
        bytes[18] = 0x15;
        bytes
    };
    for (program, reason) in [
        (
            place.file("script", b"#!/bin/sh -e\nexit 3\n", 0o755),
            "is a script (#!/bin/sh -e)",
        ),
        (set("setuid", 0o4755), "has the set-user-ID bit"),
        (set("setgid", 0o2755), "has the set-group-ID bit"),
        (capable, "has file capabilities"),
        (
            place.compile(
                "runpath",
                SPEAK,
                &["-Wl,-rpath,$ORIGIN/lib", "-Wl,--enable-new-dtags"],
            ),
            "looks for libraries beside itself ($ORIGIN/lib)",
        ),
        (
            place.compile(
                "rpath",
                SPEAK,
                &["-Wl,-rpath,/x:${ORIGIN}/../lib", "-Wl,--disable-new-dtags"],
            ),
            "looks for libraries beside itself (/x:${ORIGIN}/../lib)",
        ),
        (
            place.compile("loader", SPEAK, &["-Wl,--dynamic-linker=$ORIGIN/ld.so"]),
            "looks for libraries beside itself ($ORIGIN/ld.so)",
        ),
        (
            place.file("text", b"hello\n", 0o755),
            "is no ELF program of this machine",
        ),
        (
            place.file("foreign", &foreign, 0o755),
            "is no ELF program of this machine",
        ),
        (place.file("cut", &whole[..100], 0o755), "it is cut or damaged"),
        (place.path.clone(), "Permission denied (EACCES)"),
        (set("unexecutable", 0o644), "Permission denied (EACCES)"),
    ] {
        for strategy in [None, Some("memfd")] {
            let (out, error, code) = said(&seal_run(strategy).arg(&program).output().expect("runs"));
            assert!(
                error.contains(reason) && error.contains(&*program.to_string_lossy()),
                "{error}"
            );
            assert_eq!((out.as_str(), code), ("", 126), "{}", program.display());
        }
    }
    // The controls: an absolute run path, no bits, no capabilities.
    let absolute = place.compile("absolute", SPEAK, &["-Wl,-rpath,/opt/lib"]);
    for program in [speak, absolute] {
        let (_, error, code) = said(&seal_run(None).arg(&program).output().expect("runs"));
        assert_eq!((error.as_str(), code), ("", 7));
    }
}

#[test]
fn a_running_process_tells_how_it_is_sealed() {
    for (strategy, word, sealed) in [
        ("overlay", "overlay", true),
        ("memfd", "memfd", true),
        ("tmpfile", "not sealed", false),
        ("unlinked", "not sealed", false),
        ("none", "not sealed", false),
    ] {
        let mut child = seal_run(Some(strategy))
            .args(["/bin/sh", "-c", "echo up; read line"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("starts");
        let mut up = [0u8; 3];
        let mut out = child.stdout.take().expect("piped");
        std::io::Read::read_exact(&mut out, &mut up).expect("it is up");
        let pid = child.id().to_string();
        let look = |words: &[&str]| {
            let out = Command::new(fleetgate()).args(words).output();
            said(&out.expect("runs"))
        };
        let (text, _, code) = look(&["seal", "run", "--verify", &pid]);
        assert!(text.starts_with(&format!("{pid}: {word}: ")), "{text}");
        assert_eq!(code, i32::from(!sealed), "{strategy}");
        let (text, _, code) = look(&["seal", "verify", "--json", &pid]);
        let json: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        assert_eq!(json["processes"][0]["sealed"], sealed, "{text}");
        assert_eq!(code, i32::from(!sealed), "{strategy}");
        drop(child.stdin.take());
        child.wait().expect("ends");
    }
    let out = Command::new(fleetgate())
        .args(["seal", "verify", "2147483647"])
        .output();
    let (text, _, code) = said(&out.expect("runs"));
    assert_eq!(
        (text.as_str(), code),
        ("2147483647: unknown: there is no process 2147483647\n", 1)
    );
}

/// The program inherits what a directly started one does: no descriptor of ours, no ignored signal.
#[test]
fn nothing_of_ours_leaks_into_the_program() {
    let seen = |strategy: &str, program: &[&str]| {
        said(&seal_run(Some(strategy)).args(program).output().expect("runs")).0
    };
    for strategy in STRATEGIES {
        for program in [
            &["/bin/ls", "/proc/self/fd"][..],
            &["/bin/grep", "-E", "^Sig(Ign|Blk|Cgt)", "/proc/self/status"],
            &["/bin/grep", "-E", "^Cap", "/proc/self/status"],
            &["/usr/bin/readlink", "/proc/self/ns/mnt", "/proc/self/ns/user"],
        ] {
            let plain = seen("none", program);
            assert!(!plain.is_empty());
            assert_eq!(seen(strategy, program), plain, "{strategy} {program:?}");
        }
    }
}

#[test]
fn an_ordinary_user_seals_too() {
    let place = Place::below("/var/tmp");
    // The program under test may lie where that user cannot look.
    let own = place.copy(&fleetgate(), "fleetgate");
    for strategy in STRATEGIES {
        let script = format!("{} seal --verify $$", own.display());
        let out = Command::new(&own)
            .args([
                "seal",
                "run",
                "--strategy",
                strategy,
                "--",
                "/bin/sh",
                "-c",
                &script,
            ])
            .uid(65534)
            .gid(65534)
            .output()
            .expect("runs");
        let (text, error, _) = said(&out);
        let word = if strategy == "overlay" || strategy == "memfd" {
            strategy
        } else {
            "not sealed"
        };
        assert!(text.contains(&format!(": {word}: ")), "{strategy}: {text}{error}");
    }
}

#[test]
fn many_are_sealed_at_once() {
    let place = Place::below("/var/tmp");
    let speak = place.compile("speak", SPEAK, &["-static"]);
    let many: Vec<_> = (0..64)
        .map(|i| {
            let strategy = STRATEGIES[i % STRATEGIES.len()];
            let mut command = seal_run(Some(strategy));
            command
                .arg(&speak)
                .arg(i.to_string())
                .stdout(Stdio::piped())
                .stderr(Stdio::piped());
            (i, command.spawn().expect("starts"))
        })
        .collect();
    for (i, child) in many {
        let out = child.wait_with_output().expect("ends");
        assert_eq!(
            said(&out),
            (format!("{}\n{i}\n", speak.display()), String::new(), 7)
        );
    }
}

/// The number that stands in crates/seal/src/once.rs.
#[test]
fn the_system_calls_of_an_overlay_are_counted() {
    if !Path::new("/usr/bin/strace").exists() {
        return skip("strace is not installed");
    }
    let place = Place::below("/var/tmp");
    let speak = place.compile("speak", SPEAK, &["-static"]);
    let trace = place.path.join("trace");
    let mut command = Command::new("/usr/bin/strace");
    command.arg("-o").arg(&trace).arg(fleetgate());
    let out = command
        .args(["seal", "run", "--strategy", "overlay", "--"])
        .arg(&speak)
        .output();
    assert_eq!(said(&out.expect("strace runs")).2, 7);
    let text = std::fs::read_to_string(&trace).expect("a trace");
    let opened = format!("openat(AT_FDCWD, \"{}\"", speak.display());
    let calls: Vec<&str> = text.lines().skip_while(|l| !l.starts_with(&opened)).collect();
    let exec = calls
        .iter()
        .position(|l| l.starts_with("execveat("))
        .expect("an exec");
    let calls: Vec<&str> = calls[..=exec]
        .iter()
        .copied()
        .filter(|l| !l.starts_with("brk("))
        .collect();
    assert_eq!(calls.len(), 23, "{}", calls.join("\n"));
}

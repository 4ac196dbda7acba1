//! `FLEETGATE_SEAL_LOG`: what it says, where it may say it, and that it never stops a run.

use fleetgate_sys::Errno;
use fleetgate_sys::seccomp::{self, Rule};
use fleetgate_tests::fleetgate;
use fleetgate_tests::seal::{Place, said, seal_run};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

const VARIABLE: &str = "FLEETGATE_SEAL_LOG";

/// `seal run` of a shell that leaves with 7; what it said.
fn logged(value: &str, strategy: Option<&str>) -> (String, String, i32) {
    let mut command = seal_run(strategy);
    command.args(["/bin/sh", "-c", "exit 7"]).env(VARIABLE, value);
    said(&command.output().expect("it runs"))
}

fn lines(path: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(path).expect("a log");
    assert!(text.ends_with('\n'), "{text}");
    text.lines().map(str::to_owned).collect()
}

#[test]
fn a_line_is_appended_with_the_strategy_and_every_refusal() {
    let place = Place::below("/var/tmp");
    let log = place.path.join("log");
    let value = log.to_str().expect("text");
    let silent = (String::new(), String::new(), 7);
    assert_eq!(logged(value, None), silent);
    assert_eq!(logged(value, Some("memfd")), silent);
    assert_eq!(logged(value, Some("none")), silent);
    let refused = {
        let value = value.to_owned();
        std::thread::spawn(move || {
            let rules = [
                Rule::deny(libc::SYS_fsopen, Errno::EPERM),
                Rule::deny(libc::SYS_memfd_create, Errno::EACCES),
            ];
            seccomp::confine(&rules).expect("a filter");
            logged(&value, None)
        })
    };
    assert_eq!(refused.join().expect("no panic"), silent);
    let mut missing = seal_run(None);
    missing.arg("/no/such").env(VARIABLE, value);
    assert_eq!(said(&missing.output().expect("runs")).2, 127);

    let lines = lines(&log);
    let ends = [
        "/bin/sh runs from a sealed image: overlay",
        "/bin/sh runs from a sealed image: memfd; no other was tried, as was asked for",
        "/bin/sh runs from its file, not sealed, as was asked for",
        "memfd is not used: memfd_create: Permission denied (EACCES); overlay is not used: fsopen(overlay): Operation not \
         permitted (EPERM)",
        "/no/such: not found",
    ];
    assert_eq!(lines.len(), ends.len(), "{lines:?}");
    for (line, end) in lines.iter().zip(ends) {
        assert!(line.ends_with(end), "{line}");
        // 2026-11-29T02:17:36.123Z fleetgate[4711]: …
        let (time, rest) = line.split_once(' ').expect("a time");
        assert!(time.ends_with('Z') && rest.starts_with("fleetgate["), "{line}");
    }
    assert!(
        lines[3].contains("]: /bin/sh runs from a sealed image: tmpfile, made in /"),
        "{}",
        lines[3]
    );
    assert_eq!(
        std::fs::metadata(&log).expect("there").permissions().mode() & 0o777,
        0o600
    );
}

#[test]
fn a_run_inside_of_a_run_logs_too() {
    let place = Place::below("/var/tmp");
    let log = place.path.join("log");
    let mut outer = seal_run(Some("memfd"));
    outer.args([
        fleetgate().to_str().expect("text"),
        "seal",
        "run",
        "--strategy",
        "overlay",
        "--",
    ]);
    let out = outer
        .args(["/bin/sh", "-c", "exit 7"])
        .env(VARIABLE, &log)
        .output();
    assert_eq!(said(&out.expect("runs")).2, 7);
    let lines = lines(&log);
    assert!(
        lines.len() == 2 && lines[0].contains("fleetgate runs from a sealed image: memfd"),
        "{lines:?}"
    );
    assert!(
        lines[1].contains("/bin/sh runs from a sealed image: overlay"),
        "{lines:?}"
    );
}

#[test]
fn standard_error_has_what_verbose_says() {
    let want = "fleetgate: /bin/sh runs from a sealed image: memfd; no other was tried, as was asked for\n";
    for value in ["-", "stderr"] {
        assert_eq!(logged(value, Some("memfd")), (String::new(), want.to_owned(), 7));
        // With the flag it is said once.
        let mut both = Command::new(fleetgate());
        both.args([
            "seal",
            "run",
            "--verbose",
            "--strategy",
            "memfd",
            "--",
            "/bin/sh",
            "-c",
            "exit 7",
        ]);
        assert_eq!(said(&both.env(VARIABLE, value).output().expect("runs")).1, want);
    }
    assert_eq!(logged("", Some("memfd")), (String::new(), String::new(), 7));
}

/// Each is told once and the program runs.
#[test]
fn a_log_that_cannot_be_had_stops_nothing() {
    let place = Place::below("/var/tmp");
    let target = place.file("target", b"mine\n", 0o644);
    let path = |name: &str| place.path.join(name).to_str().expect("text").to_owned();
    symlink(&target, path("link")).expect("a link");
    assert!(
        Command::new("mkfifo")
            .arg(path("pipe"))
            .status()
            .expect("mkfifo")
            .success()
    );
    let full = std::fs::File::create(path("full")).expect("a file");
    full.set_len(16 << 20).expect("as large as it may be");
    for (value, why) in [
        (path("link"), "it is a link"),
        (path("pipe"), "ENXIO"),
        (path("full"), "it has 16 MB, and grows no further"),
        (path("no/such/place"), "ENOENT"),
        (path(""), "EISDIR"),
        ("/dev/null".to_owned(), "it is no file"),
        ("log".to_owned(), "is neither an absolute path nor `-`"),
        (format!("/{}", "x".repeat(5000)), "ENAMETOOLONG"),
    ] {
        let (out, error, code) = logged(&value, None);
        assert!(
            error.contains(why) && error.starts_with(&format!("fleetgate: {VARIABLE} is not used: ")),
            "{error}"
        );
        assert_eq!(
            (error.lines().count(), out.as_str(), code),
            (1, "", 7),
            "{value}: {error}"
        );
    }
    // A write beyond the limit would be a deadly signal.
    let limited = "ulimit -f 0; exec \"$@\"";
    let mut command = Command::new("sh");
    command.args(["-c", limited, "sh"]).arg(fleetgate());
    command.args([
        "seal",
        "run",
        "--strategy",
        "overlay",
        "--",
        "/bin/sh",
        "-c",
        "exit 7",
    ]);
    let (_, error, code) = said(&command.env(VARIABLE, path("limited")).output().expect("runs"));
    assert!(error.contains("RLIMIT_FSIZE"), "{error}");
    assert_eq!(code, 7, "{error}");
    assert_eq!(std::fs::read(&target).expect("there"), b"mine\n");
}

/// Where the program has rights that its caller lacks, the caller's variable names no file for it.
#[test]
fn the_variable_of_a_caller_with_fewer_rights_is_ignored() {
    let place = Place::below("/var/tmp");
    let own = place.copy(&fleetgate(), "fleetgate");
    let open = place.path.join("open");
    std::fs::create_dir(&open).expect("a directory");
    std::fs::set_permissions(&open, PermissionsExt::from_mode(0o777)).expect("chmod");
    for (mode, written) in [(0o755, true), (0o2755, false), (0o4755, false)] {
        std::fs::set_permissions(&own, PermissionsExt::from_mode(mode)).expect("chmod");
        let log = open.join(format!("{mode:o}"));
        let mut command = Command::new(&own);
        command.args([
            "seal",
            "run",
            "--strategy",
            "memfd",
            "--",
            "/bin/sh",
            "-c",
            "exit 7",
        ]);
        command.uid(65534).gid(65534).env(VARIABLE, &log);
        let (_, error, code) = said(&command.output().expect("runs"));
        assert_eq!((error.as_str(), code), ("", 7), "{mode:o}");
        assert_eq!(log.exists(), written, "{mode:o}");
    }
}

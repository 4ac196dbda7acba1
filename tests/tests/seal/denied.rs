//! What the fallback chain stands on when the machine forbids its rungs, one after the other; and what moves it while it is
//! in use: a watcher that kills programs in memory, but nobody's own deaths and no shortage.

use fleetgate_seal::{Cause, Death, FallbackChain, Options, Probe, Source, Strategy, Verdict};
use fleetgate_sys::seccomp::{self, Action, Rule};
use fleetgate_sys::{Errno, exe};
use fleetgate_tests::seal::{Place, SPEAK, said, seal_run};
use fleetgate_tests::{fleetgate, helper, skip};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const NO_MEMFD: Rule = Rule::deny(libc::SYS_memfd_create, Errno::EACCES);
const NO_OVERLAY: Rule = Rule::deny(libc::SYS_fsopen, Errno::EPERM);
/// Refuses openat with exactly these flags.
const fn no_open(flags: i32, errno: Errno) -> Rule {
    Rule {
        call: libc::SYS_openat,
        argument: Some((2, flags as u32)),
        action: Action::Deny(errno),
    }
}
const NO_TMPFILE: Rule = no_open(exe::NAMELESS_FLAGS, Errno::EOPNOTSUPP);
const NO_UNLINKED: Rule = no_open(exe::CREATE_NEW_FLAGS, Errno::EROFS);

/// The doctor's JSON, said by a process that these rules bind.
fn doctor(rules: &[Rule], before: &[&str]) -> serde_json::Value {
    let rules = rules.to_vec();
    let before: Vec<String> = before.iter().map(|s| (*s).to_owned()).collect();
    // A thread of its own: there is no way back from a filter.
    let out = std::thread::spawn(move || {
        let own = fleetgate();
        let mut words = before;
        words.push(own.to_string_lossy().into_owned());
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).args(["seal", "doctor", "--json"]);
        seccomp::confine(&rules).expect("a filter");
        command.output().expect("it runs")
    });
    let out = out.join().expect("no panic");
    let (text, error, _) = said(&out);
    serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e}: {text}{error}"))
}

fn rung<'a>(report: &'a serde_json::Value, strategy: &str) -> &'a serde_json::Value {
    let all = report["strategies"].as_array().expect("a list");
    all.iter()
        .find(|r| r["strategy"] == strategy)
        .expect("every strategy is listed")
}

#[test]
fn each_refusal_leads_one_rung_down() {
    for (rules, current) in [
        (&[][..], "memfd"),
        (&[NO_MEMFD], "overlay"),
        (&[NO_MEMFD, NO_OVERLAY], "tmpfile"),
        (&[NO_MEMFD, NO_OVERLAY, NO_TMPFILE], "unlinked"),
        (&[NO_MEMFD, NO_OVERLAY, NO_TMPFILE, NO_UNLINKED], "plain"),
    ] {
        let report = doctor(rules, &[]);
        assert_eq!(report["current"], current, "{report:#}");
        for (strategy, errno) in [
            ("memfd", "EACCES"),
            ("overlay", "EPERM"),
            ("tmpfile", "EOPNOTSUPP"),
            ("unlinked", "EROFS"),
        ] {
            let order = ["memfd", "overlay", "tmpfile", "unlinked", "plain"];
            let place = |s: &str| order.iter().position(|o| *o == s);
            let refused = place(strategy) < place(current);
            let rung = rung(&report, strategy);
            assert_eq!(rung["available"], !refused, "{rung:#}");
            let errnos = rung["refusals"].as_array().expect("a list");
            assert!(!refused || errnos.iter().any(|r| r["errno"] == errno), "{rung:#}");
            assert!(rung["why"].as_str().is_some_and(|w| !w.is_empty()));
        }
    }
}

/// The sysctl belongs to a process namespace; a fresh one is given the strictest value.
#[test]
fn a_kernel_that_forbids_executable_memory_is_served_by_an_overlay() {
    if !Path::new("/proc/sys/vm/memfd_noexec").exists() {
        return skip("this kernel has no vm.memfd_noexec (before 6.3)");
    }
    for (value, current) in [("0", "memfd"), ("1", "memfd"), ("2", "overlay")] {
        let set = format!("echo {value} > /proc/sys/vm/memfd_noexec && exec \"$@\"");
        let before = [
            "unshare",
            "--pid",
            "--fork",
            "--mount-proc",
            "--propagation",
            "private",
            "sh",
            "-c",
            &set,
            "sh",
        ];
        let report = doctor(&[], &before);
        assert_eq!(report["current"], current, "memfd_noexec={value}: {report:#}");
        if value == "2" {
            let memfd = rung(&report, "memfd");
            assert_eq!(memfd["available"], false);
            assert!(
                memfd["why"].as_str().expect("text").contains("memfd_create: "),
                "{memfd:#}"
            );
            for (rules, next) in [
                (&[NO_OVERLAY][..], "tmpfile"),
                (&[NO_OVERLAY, NO_TMPFILE], "unlinked"),
                (&[NO_OVERLAY, NO_TMPFILE, NO_UNLINKED], "plain"),
            ] {
                assert_eq!(doctor(rules, &before)["current"], next);
            }
        }
    }
}

#[test]
fn run_goes_down_its_own_ladder_and_never_to_the_bare_file() {
    let place = Place::below("/var/tmp");
    let speak = place.compile("speak", SPEAK, &[]);
    for (rules, code) in [
        (vec![NO_OVERLAY], 7),
        (vec![NO_OVERLAY, NO_MEMFD], 7),
        (vec![NO_OVERLAY, NO_MEMFD, NO_TMPFILE], 7),
        (vec![NO_OVERLAY, NO_MEMFD, NO_TMPFILE, NO_UNLINKED], 126),
    ] {
        let mut command = seal_run(None);
        command.arg(&speak);
        let out = std::thread::spawn(move || {
            seccomp::confine(&rules).expect("a filter");
            command.output().expect("it runs")
        });
        let (_, error, got) = said(&out.join().expect("no panic"));
        assert_eq!(got, code, "{error}");
        if code == 126 {
            for reason in [
                "overlay: fsopen(overlay): ",
                "memfd: memfd_create: ",
                "tmpfile: ",
                "unlinked: ",
            ] {
                assert!(error.contains(reason), "{error}");
            }
        }
    }
}

#[test]
fn a_noexec_mount_is_passed_over() {
    let place = Place::below("/var/tmp");
    let (bad, good) = (place.path.join("noexec"), place.path.join("good"));
    std::fs::create_dir(&bad).expect("a directory");
    std::fs::create_dir(&good).expect("a directory");
    if !fleetgate_tests::seal::plays("inside") {
        let test = fleetgate_tests::test_name(module_path!(), "a_noexec_mount_is_passed_over");
        let script = format!("mount -t tmpfs -o noexec none {} && exec \"$@\"", bad.display());
        let before = [
            "unshare",
            "--mount",
            "--propagation",
            "private",
            "sh",
            "-c",
            &script,
            "sh",
        ];
        let mut inside = fleetgate_tests::seal::play(&before, &test, "inside");
        let out = inside
            .env("BAD", &bad)
            .env("GOOD", &good)
            .output()
            .expect("unshare");
        assert!(out.status.success(), "{}{}", said(&out).0, said(&out).1);
        return;
    }
    let from = |name: &str| std::path::PathBuf::from(std::env::var_os(name).expect("set above"));
    for strategy in [Strategy::Tmpfile, Strategy::Unlinked] {
        let options = Options {
            order: vec![strategy],
            directories: vec![from("BAD"), "/nowhere".into(), from("GOOD")],
            ..Options::default()
        };
        let chain = FallbackChain::open(Source::File(helper()), options).expect("the third works");
        let report = chain.report();
        let rung = report
            .strategies
            .iter()
            .find(|r| r.strategy == strategy)
            .expect("listed");
        assert_eq!(rung.place, Some(from("GOOD")));
        assert_eq!(
            rung.refusals[0].cause,
            Cause::Because("mounted noexec".to_owned())
        );
        assert_eq!(rung.refusals[1].cause, Cause::Errno(Errno::ENOENT));
    }
}

/// Kills whatever executes from a memfd of this name, until told to stop.
fn watch<'a>(scope: &'a std::thread::Scope<'a, '_>, name: &'a str, stop: &'a AtomicBool) {
    let wanted = format!("/memfd:{name}");
    scope.spawn(move || {
        while !stop.load(Ordering::Relaxed) {
            for entry in std::fs::read_dir("/proc").expect("/proc").flatten() {
                let Ok(exe) = std::fs::read_link(entry.path().join("exe")) else {
                    continue;
                };
                let pid = entry.file_name().to_str().and_then(|p| p.parse::<i32>().ok());
                if let Some(pid) = pid
                    && exe.to_string_lossy().starts_with(&wanted)
                    && let Ok(pidfd) = fleetgate_sys::process::pidfd_open(pid)
                {
                    let _ = fleetgate_sys::process::signal(&pidfd, fleetgate_sys::process::SIGKILL);
                }
            }
        }
    });
}

fn options(linger: u64) -> Options {
    Options {
        order: vec![Strategy::Memfd, Strategy::Overlay],
        climb_after: Duration::ZERO,
        probe: Probe {
            linger: Duration::from_millis(linger),
            ..Probe::default()
        },
        ..Options::default()
    }
}

#[test]
fn a_watcher_that_kills_counts_as_a_refusal() {
    let place = Place::below("/var/tmp");
    let program = place.copy(&helper(), "watched-from-the-start");
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        watch(scope, "watched-from-the-start", &stop);
        let chain = FallbackChain::open(Source::File(program), options(2000));
        stop.store(true, Ordering::Relaxed);
        let report = chain.expect("the overlay works").report();
        assert_eq!(report.current, Strategy::Overlay);
        let memfd = report
            .strategies
            .iter()
            .find(|r| r.strategy == Strategy::Memfd)
            .expect("listed");
        assert_eq!(memfd.why, "running `true` from it: killed by signal 9");
    });
}

#[test]
fn a_rung_that_fails_at_run_time_is_left_and_tried_again_later() {
    let place = Place::below("/var/tmp");
    let program = place.copy(&helper(), "watched-later");
    let chain = FallbackChain::open(Source::File(program), options(0)).expect("memfd works");
    let image = chain.image().expect("an image");
    assert_eq!(image.strategy(), Strategy::Memfd);
    let death = Death::Killed {
        signal: 9,
        lived: Duration::from_millis(400),
    };
    // Nobody watches yet: whoever died did not die of the image.
    assert_eq!(chain.image_failed(&image, death), Verdict::ImageIsFine);
    assert!(chain.climb().is_none());
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        watch(scope, "watched-later", &stop);
        let moved = Verdict::Moved {
            from: Strategy::Memfd,
            to: Strategy::Overlay,
        };
        // An exec error is looked into at once, a death again when the last look is a second old.
        let mut verdict = chain.image_failed(&image, death);
        while verdict == Verdict::ImageIsFine {
            verdict = chain.image_failed(&image, death);
        }
        assert_eq!(verdict, moved);
        assert_eq!(chain.image().expect("an image").strategy(), Strategy::Overlay);
        // Who comes later with an image of the old rung is sent on without another probe.
        assert_eq!(chain.image_failed(&image, death), moved);
        assert_eq!(chain.report().moves.len(), 1);
        assert!(chain.climb().is_none(), "the watcher still is there");
        stop.store(true, Ordering::Relaxed);
    });
    let climbed = chain.climb().expect("the watcher is gone");
    assert_eq!((climbed.from, climbed.to), (Strategy::Overlay, Strategy::Memfd));
    assert_eq!(chain.image().expect("an image").strategy(), Strategy::Memfd);
}

#[test]
fn a_shortage_moves_nothing() {
    let chain = FallbackChain::open(Source::File(helper()), options(0)).expect("memfd works");
    let image = chain.image().expect("an image");
    let verdict = std::thread::scope(|scope| {
        let short = scope.spawn(|| {
            let rules = [
                Rule::deny(libc::SYS_clone3, Errno::EAGAIN),
                Rule::deny(libc::SYS_clone, Errno::EAGAIN),
            ];
            seccomp::confine(&rules).expect("a filter");
            chain.image_failed(&image, Death::Exec(Errno::EAGAIN))
        });
        short.join().expect("no panic")
    });
    assert_eq!(verdict, Verdict::ImageIsFine);
    // The control: another error at the same place is the image's.
    let verdict = std::thread::scope(|scope| {
        let denied = scope.spawn(|| {
            seccomp::confine(&[Rule::deny(libc::SYS_execveat, Errno::EACCES)]).expect("a filter");
            chain.image_failed(&image, Death::Exec(Errno::EACCES))
        });
        denied.join().expect("no panic")
    });
    assert_eq!(verdict, Verdict::NoStrategyLeft);
    assert_eq!(chain.report().current, Strategy::Memfd);
}

/// A supervisor that never answers an exec, as a security product does that waits for a person.
#[test]
fn an_exec_that_is_held_up_is_a_refusal() {
    let options = Options {
        order: vec![Strategy::Memfd],
        probe: Probe {
            deadline: Duration::from_secs(2),
            ..Probe::default()
        },
        ..Options::default()
    };
    let rule = Rule {
        action: Action::Ask,
        ..Rule::deny(libc::SYS_execveat, Errno::EPERM)
    };
    let error = std::thread::spawn(move || {
        let _listener = seccomp::confine(&[rule]).expect("a filter").expect("a listener");
        FallbackChain::open(Source::File(helper()), options).expect_err("nobody lets it run")
    });
    let error = error.join().expect("no panic").to_string();
    assert!(
        error.contains("running `true` from it: its exec was held up for 2 s"),
        "{error}"
    );
}

/// What `seal run --verbose` says of a shell, by a process that these rules bind.
fn verbose(rules: &[Rule], words: &[&str]) -> (String, String, i32) {
    let (rules, words) = (
        rules.to_vec(),
        words.iter().map(|w| (*w).to_owned()).collect::<Vec<_>>(),
    );
    let ran = std::thread::spawn(move || {
        let mut command = Command::new(fleetgate());
        command.args(["seal", "run"]).args(words);
        command.args(["--", "/bin/sh", "-c", "echo ran >&2; exit 7"]);
        seccomp::confine(&rules).expect("a filter");
        said(&command.output().expect("it runs"))
    });
    ran.join().expect("no panic")
}

#[test]
fn verbose_says_which_strategy_is_taken_and_why_no_better_one() {
    let order = ["overlay", "memfd", "tmpfile", "unlinked"];
    let reasons = ["EPERM", "EACCES", "EOPNOTSUPP", "EROFS"];
    for (rules, taken) in [
        (&[][..], 0),
        (&[NO_OVERLAY], 1),
        (&[NO_OVERLAY, NO_MEMFD], 2),
        (&[NO_OVERLAY, NO_MEMFD, NO_TMPFILE], 3),
    ] {
        let (_, error, code) = verbose(rules, &["--verbose"]);
        let lines: Vec<&str> = error.lines().collect();
        assert_eq!((lines.last(), code), (Some(&"ran"), 7), "{error}");
        for (strategy, reason) in order.iter().zip(reasons).take(taken) {
            let refused = format!("fleetgate: {strategy} is not used: ");
            assert!(
                lines
                    .iter()
                    .any(|l| l.starts_with(&refused) && l.contains(reason)),
                "{error}"
            );
        }
        let says = format!("fleetgate: /bin/sh runs from a sealed image: {}", order[taken]);
        assert!(lines[lines.len() - 2].starts_with(&says), "{error}");
        for worse in &order[taken + 1..] {
            assert!(!error.contains(worse), "{worse} was not tried: {error}");
        }
        // Without the flag nothing is said.
        assert_eq!(verbose(rules, &[]).1, "ran\n");
    }
    let (_, error, _) = verbose(&[], &["--verbose", "--strategy", "memfd"]);
    assert!(
        error.contains("sealed image: memfd; no other was tried, as was asked for\n"),
        "{error}"
    );
    let (_, error, _) = verbose(&[], &["--verbose", "--strategy", "none"]);
    assert!(
        error.contains("runs from its file, not sealed, as was asked for\n"),
        "{error}"
    );
    let out = Command::new(fleetgate())
        .args(["seal", "run", "--verbose", "--verify", "1"])
        .output();
    let (_, error, code) = said(&out.expect("runs"));
    assert!(error.contains("`--verify` runs none") && code == 2, "{error}");
}

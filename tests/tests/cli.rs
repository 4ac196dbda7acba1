//! The command line as a user meets it: help, mistakes, exit codes, completions, manual pages. Texts are pinned
//! in tests/snapshots/cli; `FLEETGATE_BLESS=1` writes them anew.
#![forbid(unsafe_code)]

use std::path::PathBuf;
use std::process::{Command, Output};

/// Runs `fleetgate` with the words of `line`.
fn fleetgate(line: &str) -> Output {
    let mut command = Command::new(fleetgate_tests::fleetgate());
    command.args(line.split_whitespace());
    command.output().expect("fleetgate starts")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("fleetgate prints UTF-8")
}

/// What a line prints and how it exits, held to the snapshot called `name`.
fn pinned(name: &str, line: &str) {
    let out = fleetgate(line);
    let code = out.status.code().expect("it exits");
    let said = format!(
        "exit {code}\n--- stdout\n{}--- stderr\n{}",
        text(&out.stdout),
        text(&out.stderr)
    );
    let file = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(format!("snapshots/cli/{name}.txt"));
    if std::env::var_os("FLEETGATE_BLESS").is_some() {
        std::fs::write(&file, &said).expect("the snapshot is written");
    }
    let pinned = std::fs::read_to_string(&file).unwrap_or_default();
    assert_eq!(said, pinned, "`fleetgate {line}` and {}", file.display());
}

/// A log whose reader has gone away costs its lines and nothing else.
#[test]
fn a_closed_log_ends_nothing() {
    let line = ["--log-level", "info", "seal", "doctor"];
    let (reader, log) = std::io::pipe().expect("a pipe");
    drop(reader);
    let mut command = Command::new(fleetgate_tests::fleetgate());
    let out = command.args(line).stderr(log).output().expect("it starts");
    assert_eq!(out.status.code(), Some(0));
    // The control: there is something to log.
    let out = fleetgate(&line.join(" "));
    assert!(
        text(&out.stderr).contains("executable images"),
        "{}",
        text(&out.stderr)
    );
}

#[test]
fn help() {
    pinned("none", "");
    pinned("help", "--help");
    pinned("help-node", "node --help");
    pinned("help-doctor", "doctor --help");
    pinned("help-sessions-show", "sessions show --help");
    pinned("help-seal", "seal --help");
    pinned("help-seal-run", "seal run --help");
    pinned("help-seal-doctor", "seal doctor -h");
    pinned("help-completions", "completions --help");
    pinned("help-trace", "trace --help");
}

#[test]
fn mistakes_are_named_and_exit_with_2() {
    for (name, line) in [
        ("no-such-command", "sael doctor"),
        ("no-such-subcommand", "seal docter"),
        ("group-alone", "seal"),
        ("no-such-flag", "seal run --stratgy memfd -- true"),
        ("no-such-value", "seal run --strategy memdf -- true"),
        ("no-value", "seal run --strategy"),
        ("no-program", "seal run"),
        ("verify-and-program", "seal run --verify 1 -- true"),
        ("not-a-process", "seal verify one"),
        ("no-such-shell", "completions tcsh"),
        ("too-many-words", "man a b"),
        ("no-such-level", "--log-level loud version"),
    ] {
        pinned(name, line);
        assert_eq!(fleetgate(line).status.code(), Some(2), "{line}");
    }
}

#[test]
fn the_version_names_the_images_or_that_there_are_none() {
    let out = text(&fleetgate("--version").stdout);
    assert!(out.starts_with("fleetgate "), "{out}");
    let images = std::env::var("FLEETGATE_SUBJECT").as_deref() == Ok("images");
    assert_eq!(out.contains("fleetgate-session "), images, "{out}");
    assert_eq!(out.contains("executes itself"), !images, "{out}");
}

#[test]
fn a_reader_that_went_away_is_no_error() {
    let mut child = Command::new(fleetgate_tests::fleetgate())
        .arg("man")
        .stdout(std::process::Stdio::piped())
        .spawn()
        .expect("fleetgate starts");
    drop(child.stdout.take());
    let status = child.wait().expect("it ends");
    assert!(status.success(), "{status}");
}

#[test]
fn manual_pages_are_pages() {
    let directory = std::env::temp_dir().join(format!("fleetgate-man-{}", std::process::id()));
    let out = fleetgate(&format!("man {}", directory.display()));
    assert!(out.status.success(), "{}", text(&out.stderr));
    let mut names = Vec::new();
    for entry in std::fs::read_dir(&directory).expect("it wrote there") {
        let path = entry.expect("an entry").path();
        // mandoc is not everywhere; groff's own warnings are what `man` would show.
        let read = Command::new("groff")
            .args(["-man", "-Tutf8", "-ww", "-z"])
            .arg(&path)
            .output()
            .expect("groff");
        assert!(
            read.status.success() && read.stderr.is_empty(),
            "{}: {}",
            path.display(),
            text(&read.stderr)
        );
        names.push(path.file_name().expect("a name").to_string_lossy().into_owned());
    }
    std::fs::remove_dir_all(&directory).expect("removed");
    names.sort();
    assert!(names.contains(&"fleetgate.1".to_owned()) && names.contains(&"fleetgate-seal-run.1".to_owned()));
    let nowhere = fleetgate("man /dev/null/x");
    assert_eq!(nowhere.status.code(), Some(1));
    assert!(
        text(&nowhere.stderr).contains("/dev/null/x"),
        "{}",
        text(&nowhere.stderr)
    );
}

/// What bash offers for a line whose last word is being typed.
fn bash_offers(words: &[&str]) -> String {
    let script = text(&fleetgate("completions bash").stdout);
    let quoted: Vec<String> = words.iter().map(|w| format!("'{w}'")).collect();
    let ask = format!(
        "{script}\nCOMP_WORDS=({})\nCOMP_CWORD={}\n_fleetgate\necho \"${{COMPREPLY[*]}}\"",
        quoted.join(" "),
        words.len() - 1
    );
    let out = Command::new("bash")
        .args(["-c", &ask])
        .output()
        .expect("bash starts");
    assert!(out.stderr.is_empty(), "{}", text(&out.stderr));
    text(&out.stdout).trim().to_owned()
}

#[test]
fn bash_completes() {
    assert_eq!(bash_offers(&["fleetgate", "sea"]), "seal");
    assert_eq!(bash_offers(&["fleetgate", "seal", "d"]), "doctor");
    assert_eq!(
        bash_offers(&["fleetgate", "--log-level", "debug", "seal", "doctor", "--j"]),
        "--json"
    );
    assert_eq!(
        bash_offers(&["fleetgate", "seal", "run", "--strategy", "mem"]),
        "memfd"
    );
    assert_eq!(bash_offers(&["fleetgate", "completions", "f"]), "fish");
    // Hidden commands are not offered.
    assert_eq!(bash_offers(&["fleetgate", "monit"]), "");
}

#[test]
fn fish_completes() {
    let ask = |line: &str| {
        let script = text(&fleetgate("completions fish").stdout);
        let ask = format!("{script}\ncomplete -C '{line}'");
        let out = Command::new("fish")
            .args(["--no-config", "-c", &ask])
            .output()
            .expect("fish starts");
        let offers = text(&out.stdout);
        offers
            .lines()
            .map(|l| l.split('\t').next().unwrap_or_default().to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(ask("fleetgate seal d"), ["doctor"]);
    assert_eq!(ask("fleetgate seal run --strategy mem"), ["memfd"]);
    assert_eq!(ask("fleetgate completions z"), ["zsh"]);
}

#[test]
fn zsh_reads_its_script() {
    let script = text(&fleetgate("completions zsh").stdout);
    assert!(script.starts_with("#compdef fleetgate\n"));
    let ask = format!("autoload -U compinit; compinit -D -u; {script}\nprint $_comps[fleetgate]");
    let out = Command::new("zsh")
        .args(["-f", "-c", &ask])
        .output()
        .expect("zsh starts");
    assert_eq!(text(&out.stdout).trim(), "_fleetgate", "{}", text(&out.stderr));
    assert!(out.stderr.is_empty(), "{}", text(&out.stderr));
}

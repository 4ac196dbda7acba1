//! The command line as a user meets it: help, mistakes, exit codes, completions, manual pages. Texts are pinned
//! in tests/snapshots/cli; `FLEETGATE_BLESS=1` writes them anew.

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
fn help_is_as_pinned() {
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
fn help_is_had_either_way_and_ssh_has_its_flags_in_it() {
    let ssh = text(&fleetgate("help ssh").stdout);
    assert_eq!(ssh, text(&fleetgate("ssh --help").stdout));
    for flag in [
        "-L [BIND:]PORT:HOST:PORT",
        "-f ",
        "-F FILE",
        "-G ",
        "-O COMMAND",
        "-X ",
        "--explain",
    ] {
        assert!(
            ssh.lines().any(|l| l.trim_start().starts_with(flag)),
            "{flag}: {ssh}"
        );
    }
    assert_eq!(text(&fleetgate("help").stdout), text(&fleetgate("--help").stdout));
    assert_eq!(
        text(&fleetgate("help seal run").stdout),
        text(&fleetgate("seal run --help").stdout)
    );
    for wrong in ["help sshh", "help ssh web1"] {
        let out = fleetgate(wrong);
        assert_eq!(out.status.code(), Some(2), "{wrong}");
        assert!(out.stdout.is_empty() && !out.stderr.is_empty(), "{wrong}");
    }
    let page = std::env::temp_dir().join(format!("fleetgate-man-ssh-{}", std::process::id()));
    assert!(
        fleetgate(&format!("man --directory {}", page.display()))
            .status
            .success()
    );
    let roff = std::fs::read_to_string(page.join("fleetgate-ssh.1")).expect("a page");
    std::fs::remove_dir_all(&page).expect("removed");
    assert_eq!(text(&fleetgate("man ssh").stdout), roff);
    assert!(
        roff.contains(".B \\-O COMMAND") && roff.contains(".B \\-X"),
        "{roff}"
    );
}

/// What plain ssh knows is no error; what it does not know is one, as with ssh.
#[test]
fn options_of_ssh_are_taken_left_aside_or_refused_in_words() {
    let out = fleetgate("ssh -G -o Compression=yes -o ServerAliveInterval=9 ann@web1");
    assert_eq!(out.status.code(), Some(0));
    let printed = text(&out.stdout);
    assert!(
        printed.contains("user ann\n") && printed.contains("serveraliveinterval 9\n"),
        "{printed}"
    );
    for (line, words) in [
        ("ssh -o Nonsense=1 web1", "knows an option `Nonsense`"),
        ("ssh -o ProxyCommand=nc web1", "is not served"),
    ] {
        let out = fleetgate(line);
        assert_eq!(out.status.code(), Some(2), "{line}");
        assert!(text(&out.stderr).contains(words), "{line}: {}", text(&out.stderr));
    }
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
        ("too-many-words", "man a b c"),
        ("no-such-page", "man nosuch"),
        ("no-such-level", "--log-level loud version"),
    ] {
        pinned(name, line);
        assert_eq!(fleetgate(line).status.code(), Some(2), "{line}");
    }
}

#[test]
fn mistakes_are_lines_of_json_where_the_log_is() {
    for line in [
        "--log-format json frob",
        "seal run --stratgy memfd --log-format=json -- true",
    ] {
        let out = fleetgate(line);
        assert_eq!(out.status.code(), Some(2), "{line}");
        let said = text(&out.stderr);
        let told: serde_json::Value = serde_json::from_str(said.trim()).expect("one object");
        let message = told["message"].as_str().expect("text");
        assert!(
            message.contains("there is no") && told["level"] == "ERROR",
            "{said}"
        );
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
    let out = fleetgate(&format!("man --directory {}", directory.display()));
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
    let nowhere = fleetgate("man --directory /dev/null/x");
    assert_eq!(nowhere.status.code(), Some(1));
    assert!(
        text(&nowhere.stderr).contains("/dev/null/x"),
        "{}",
        text(&nowhere.stderr)
    );
}

/// What bash offers for a line whose last word is being typed.
fn bash_offers(words: &[&str]) -> String {
    bash_offers_in(words, None)
}

fn bash_offers_in(words: &[&str], home: Option<&std::path::Path>) -> String {
    let script = text(&fleetgate("completions bash").stdout);
    let quoted: Vec<String> = words.iter().map(|w| format!("'{w}'")).collect();
    let ask = format!(
        "{script}\nCOMP_WORDS=({})\nCOMP_CWORD={}\n_fleetgate\necho \"${{COMPREPLY[*]}}\"",
        quoted.join(" "),
        words.len() - 1
    );
    let mut bash = Command::new("bash");
    bash.args(["-c", &ask]);
    if let Some(home) = home {
        bash.env("FLEETGATE_HOME", home);
    }
    let out = bash.output().expect("bash starts");
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
    // What ssh reads itself is offered from the same table, and the cluster's names, in a second from what was kept.
    let home = std::env::temp_dir().join(format!("fleetgate-names-{}", std::process::id()));
    std::fs::create_dir_all(home.join("mux")).expect("made");
    std::fs::write(home.join("mux/nodes"), "db1\nweb1\nweb2\n").expect("written");
    std::fs::write(home.join("mux/roles"), "access\nadmin\n").expect("written");
    let own = fleetgate_tests::fleetgate().display().to_string();
    let offers = |words: &[&str]| {
        let words: Vec<&str> = [&[own.as_str()], words].concat();
        bash_offers_in(&words, Some(&home))
    };
    assert_eq!(offers(&["ssh", "--dir"]), "--direct");
    assert_eq!(offers(&["ssh", "we"]), "web1 web2");
    assert_eq!(offers(&["ssh", "root", "@", "web2"]), "web2");
    assert_eq!(
        offers(&["ssh", "root", "@"])
            .split(' ')
            .filter(|w| w.starts_with("web"))
            .count(),
        2
    );
    assert_eq!(offers(&["ls", "db"]), "db1");
    // Behind `user@` stands a node and no flag.
    std::fs::write(home.join("mux/users"), "ada\nbob\n").expect("written");
    assert_eq!(offers(&["role", "test", "ad"]), "ada");
    assert_eq!(offers(&["role", "test", "ada", "@"]), "db1 web1 web2");
    assert_eq!(offers(&["role", "test", "ada", "@", "d"]), "db1");
    assert_eq!(offers(&["role", "test", "ada@d"]), "ada@db1");
    assert_eq!(offers(&["lock", "add", "--role", "ad"]), "admin");
    std::fs::remove_dir_all(&home).expect("removed");
    assert_eq!(
        offers(&["ssh", "we"]),
        "",
        "without a login nothing is offered and nothing said"
    );
    // Hidden commands are not offered.
    assert_eq!(bash_offers(&["fleetgate", "monit"]), "");
}

#[test]
fn fish_completes() {
    let home = std::env::temp_dir().join(format!("fleetgate-fish-{}", std::process::id()));
    std::fs::create_dir_all(home.join("mux")).expect("made");
    std::fs::write(home.join("mux/nodes"), "db1\nweb1\n").expect("written");
    std::fs::write(home.join("mux/users"), "ada\nbob\n").expect("written");
    let own = fleetgate_tests::fleetgate().display().to_string();
    let ask = |line: &str| {
        let script = text(&fleetgate("completions fish").stdout);
        // The program under test need not be in the PATH.
        let line = line.replacen("fleetgate", &own, 1);
        let ask = format!("{script}\ncomplete -C '{line}'");
        let out = Command::new("fish")
            .args(["--no-config", "-c", &ask])
            .env("FLEETGATE_HOME", &home)
            .output()
            .expect("fish starts");
        assert!(out.stderr.is_empty(), "{line}: {}", text(&out.stderr));
        let offers = text(&out.stdout);
        offers
            .lines()
            .map(|l| l.split('\t').next().unwrap_or_default().to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(ask("fleetgate seal d"), ["doctor"]);
    assert_eq!(ask("fleetgate seal run --strategy mem"), ["memfd"]);
    assert_eq!(ask("fleetgate completions z"), ["zsh"]);
    assert_eq!(ask("fleetgate ssh "), ["db1", "web1"]);
    assert_eq!(ask("fleetgate ssh root@w"), ["root@web1"]);
    assert_eq!(ask("fleetgate lock add --user "), ["ada", "bob"]);
    assert_eq!(ask("fleetgate role test ada@"), ["ada@db1", "ada@web1"]);
    std::fs::remove_dir_all(&home).expect("removed");
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
    // A package's file is loaded at the first call, and that one has to offer something already.
    let directory = std::env::temp_dir().join(format!("fleetgate-zsh-{}", std::process::id()));
    std::fs::create_dir_all(&directory).expect("made");
    std::fs::write(directory.join("_fleetgate"), &script).expect("written");
    let ask = format!(
        "fpath=({} $fpath); autoload -U compinit; compinit -D -u; _describe() {{ print $#offers }}; \
         words=(fleetgate seal ''); CURRENT=3; $_comps[fleetgate]",
        directory.display()
    );
    let out = Command::new("zsh")
        .args(["-f", "-c", &ask])
        .output()
        .expect("zsh starts");
    std::fs::remove_dir_all(&directory).expect("removed");
    let offers: u32 = text(&out.stdout).trim().parse().unwrap_or(0);
    assert!(offers > 1, "{offers}: {}", text(&out.stderr));
}

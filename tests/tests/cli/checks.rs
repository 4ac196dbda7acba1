//! What somebody types who comes from NRPE.

use fleetgate_tests::folder::Folder;
use std::process::{Command, Output};

/// As Debian's package has it, with a check of one's own.
const NRPE: &str = "\
# NRPE's configuration
server_port=5666
allowed_hosts=127.0.0.1,::1
dont_blame_nrpe=1
command_timeout=60
command[check_users]=/usr/lib/nagios/plugins/check_users -w 5 -c 10
command[check_load]=/usr/lib/nagios/plugins/check_load -w $ARG1$ -c $ARG2$
command[queue]=/usr/bin/mailq | wc -l
";

fn fleetgate(words: &[&str]) -> Output {
    let mut command = Command::new(fleetgate_tests::fleetgate());
    command.args(words).output().expect("it starts")
}

#[test]
fn what_is_imported_from_nrpe_is_a_nodes_configuration() {
    let dir = Folder::new();
    let path = |name: &str| dir.join(name).to_str().expect("text").to_owned();
    std::fs::write(path("nrpe.cfg"), NRPE).expect("written");
    let imported = fleetgate(&["check", "import", &path("nrpe.cfg")]);
    assert!(imported.status.success(), "{imported:?}");
    let notes = String::from_utf8(imported.stderr).expect("text");
    for wanted in [
        "note: allowed_hosts: ",
        "note: check_load: ",
        "note: queue: it needs a shell",
    ] {
        assert!(notes.contains(wanted), "{wanted}: {notes}");
    }
    std::fs::write(path("node.toml"), &imported.stdout).expect("written");
    let checked = fleetgate(&["node", "--check", "--config", &path("node.toml")]);
    assert!(checked.status.success(), "{checked:?}");
    // A positive control: what is wrong there is found.
    let text = String::from_utf8(imported.stdout).expect("text");
    std::fs::write(path("node.toml"), text.replace("\"word\"", "\"9..1\"")).expect("written");
    let checked = fleetgate(&["node", "--check", "--config", &path("node.toml")]);
    let said = String::from_utf8_lossy(&checked.stderr).into_owned();
    assert!(!checked.status.success() && said.contains("check_load"), "{said}");

    let machine = fleetgate(&["check", "import", "--cluster", &path("nrpe.cfg")]);
    let text = String::from_utf8(machine.stdout).expect("text");
    assert!(text.contains("[node.commands.check_users]"), "{text}");
    std::fs::write(path("nrpe.cfg"), "127.0.0.1 localhost\n").expect("written");
    let nothing = fleetgate(&["check", "import", &path("nrpe.cfg")]);
    let said = String::from_utf8_lossy(&nothing.stderr).into_owned();
    assert!(
        !nothing.status.success() && said.contains("no line `command[NAME]=...`"),
        "{said}"
    );
}

#[test]
fn a_wrong_word_is_unknown_and_never_255() {
    for words in [
        &["check", "run"][..],
        &["check", "run", "-H", "web1"],
        &["check", "run", "--zqzq"],
    ] {
        let out = fleetgate(words);
        let said = String::from_utf8_lossy(&out.stdout).into_owned();
        assert_eq!(out.status.code(), Some(3), "{words:?}: {said}");
        assert!(
            said.starts_with("UNKNOWN - ") && said.lines().count() == 1,
            "{words:?}: {said}"
        );
    }
    // Nobody has logged in: said in the same way.
    let home = Folder::new();
    let home = home.to_str().expect("text");
    let out = fleetgate(&["check", "run", "--home", home, "-H", "web1", "-c", "load"]);
    let said = String::from_utf8_lossy(&out.stdout).into_owned();
    assert_eq!(out.status.code(), Some(3), "{said}");
    assert!(
        said.starts_with("UNKNOWN - web1 load: ") && said.contains("login"),
        "{said}"
    );
}

#[test]
fn this_machines_commands_are_listed_and_tested() {
    let dir = Folder::new();
    let path = |name: &str| dir.join(name).to_str().expect("text").to_owned();
    let config = path("node.toml");
    let script = path("plugin");
    std::fs::write(&script, "#!/bin/sh\necho \"$GREETING $PASSWORD $1\"\nexit 1\n").expect("written");
    let set = |path: &str, mode: u32| {
        std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(mode)).expect("set");
    };
    set(&script, 0o755);
    let text = format!(
        "[commands.greet]\nargv = [\"/bin/sh\", \"{script}\", \"{{}}\"]\nargs = [\"1..9\"]\nsecrets = [\"PASSWORD\"]\n\
         environment = {{ GREETING = \"hello\" }}\n\
         [commands.late]\nargv = [\"/bin/sleep\", \"600\"]\ntimeout = \"200ms\"\n\
         [commands.much]\nargv = [\"/bin/sh\", \"-c\", \"echo 12345; echo odd >&2\"]\noutput = 4\n"
    );
    std::fs::write(&config, &text).expect("written");
    set(&config, 0o600);
    std::fs::write(path("secret"), "hunter2\n").expect("written");
    set(&path("secret"), 0o600);
    let run = |words: &[&str]| {
        let out = fleetgate(&[&words[..2], &["--config", &config], &words[2..]].concat());
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (out.status.code(), text(&out.stdout), text(&out.stderr))
    };
    let (code, listed, _) = run(&["check", "list"]);
    assert_eq!(code, Some(0));
    for wanted in ["greet  <a1: 1..9>  1m", "needs PASSWORD", "/bin/sleep 600"] {
        assert!(listed.contains(wanted), "{wanted}: {listed}");
    }
    let (_, lines, _) = run(&["check", "list", "--json"]);
    assert_eq!(lines.lines().count(), 3, "{lines}");

    let secret = format!("PASSWORD={}", path("secret"));
    let (code, said, told) = run(&["check", "test", "--secret", &secret, "greet", "7"]);
    assert_eq!((code, &said[..]), (Some(1), "hello hunter2 7\n"), "{told}");
    assert!(told.contains("exit code 1 (WARNING)"), "{told}");
    for (words, wanted) in [
        (&["greet", "7"][..], "needs its secret PASSWORD"),
        (&["greet", "70"], "does not take \"70\""),
        (&["nothing"], "does not stand in"),
    ] {
        let (code, _, told) = run(&[&["check", "test"], words].concat());
        assert!(code == Some(1) && told.contains(wanted), "{words:?}: {told}");
    }
    let (code, _, told) = run(&["check", "test", "late"]);
    assert!(code == Some(3) && told.contains("its `timeout`, 0.2 s"), "{told}");
    let (code, said, told) = run(&["check", "test", "much"]);
    assert_eq!((code, &said[..]), (Some(0), "1234"), "{told}");
    assert!(told.contains("2 bytes of output beyond"), "{told}");

    let (code, said, _) = run(&["check", "test"]);
    assert!(code == Some(0) && said.matches("good").count() == 3, "{said}");
    let wrong = "[commands.gone]\nargv = [\"/nonexistent/plugin\"]\n[commands.no]\nargv = [\"/bin/true\"]\nuser = \"no-such\"\n";
    std::fs::write(&config, format!("{text}{wrong}")).expect("written");
    let (code, said, _) = run(&["check", "test"]);
    assert_eq!(code, Some(1), "{said}");
    for wanted in [
        "gone   /nonexistent/plugin: ",
        "no     its account no-such is not in /etc/passwd",
    ] {
        assert!(said.contains(wanted), "{wanted}: {said}");
    }
    let (code, said, _) = run(&["check", "test", "--json"]);
    assert!(
        code == Some(1) && said.contains("{\"name\":\"gone\",\"good\":false"),
        "{said}"
    );
}

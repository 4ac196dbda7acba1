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

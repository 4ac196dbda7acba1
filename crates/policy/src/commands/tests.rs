//! Named commands: what may stand in them, how they are built, and what two lists of them have in common.

use super::*;

fn list() -> Commands {
    let mut list = Commands::new();
    let disk = Command::define(
        &["/usr/lib/check_disk", "-w", "{warn}", "--path={path}", "{x"],
        &[("warn", "0..100", None), ("path", "path", Some("/"))],
    );
    list.add("check_disk", disk.unwrap()).unwrap();
    list.add("uptime", Command::define(&["/usr/bin/uptime"], &[]).unwrap())
        .unwrap();
    let unit = Command::define(
        &["/bin/systemctl", "status", "{unit}"],
        &[("unit", "ssh|nginx@*", None)],
    );
    list.add("unit", unit.unwrap()).unwrap();
    let word = Command::define(&["/bin/echo", "{w}"], &[("w", "word", None)]);
    list.add("echo", word.unwrap()).unwrap();
    let size = Command::define(&["/usr/bin/du", "{a}"], &[("a", "/var/*", None)]);
    list.add("du", size.unwrap()).unwrap();
    list
}

#[test]
fn an_environment_is_bounded_and_a_variable_that_cannot_be_set_is_named_with_the_reason() {
    let set = |name: &str, value: &str| {
        let command = Command::define(&["/bin/true"], &[]).unwrap();
        command.with_environment(vec![(name.to_owned(), value.to_owned())])
    };
    assert!(set("LC_ALL", "C").is_ok());
    assert!(set("A", &"x".repeat(MAX_ENVIRONMENT - 1)).is_ok());
    for (name, value, part) in [
        ("", "1", "has no name"),
        ("A=B", "1", "has no name"),
        ("A\0", "1", "has no name"),
        ("FLEETGATE_USER", "1", "is the node's own"),
        ("A", "b\0", "has a zero byte in its value"),
        ("A", &"x".repeat(MAX_ENVIRONMENT), "at most 32768"),
    ] {
        let why = set(name, value).unwrap_err().to_string();
        assert!(why.contains(part), "{name:?}: {why}");
    }
}

#[test]
fn secrets_are_variables_of_their_own_names() {
    let with = |names: &[&str]| {
        let command = Command::define(&["/bin/true"], &[]).unwrap();
        let set = vec![("LC_ALL".to_owned(), "C".to_owned())];
        let names = names.iter().map(|name| (*name).to_owned()).collect();
        command.with_environment(set).unwrap().with_secrets(names)
    };
    for obeyed in ["LD_PRELOAD", "PATH", "BASH_ENV", "PYTHONPATH"] {
        assert!(with(&[obeyed]).is_err(), "{obeyed}");
    }
    let mut list = Commands::new();
    list.add("db", with(&["PASSWORD", "TOKEN"]).unwrap()).unwrap();
    let found = list.find(b"db", &Rule::new("the test")).unwrap();
    assert_eq!(found.secrets, ["PASSWORD", "TOKEN"]);
    let many: Vec<String> = (0..=MAX_SECRETS).map(|n| format!("A{n}")).collect();
    for (names, part) in [
        (&["A", "A"][..], "stands twice"),
        (&["LC_ALL"], "stands twice"),
        (&[""], "has no name"),
        (&["A=B"], "has no name"),
        (&["FLEETGATE_USER"], "is the node's own"),
        (
            &many.iter().map(String::as_str).collect::<Vec<_>>(),
            "has room for 16",
        ),
    ] {
        let why = with(names).unwrap_err().to_string();
        assert!(why.contains(part), "{names:?}: {why}");
    }
}

#[test]
fn lines_become_argument_vectors_or_refusals() {
    let list = list();
    let rule = Rule::new("[commands] of node.toml");
    for (line, want) in [
        ("uptime", Ok("/usr/bin/uptime")),
        ("  uptime ", Ok("/usr/bin/uptime")),
        ("'up'\"time\"", Ok("/usr/bin/uptime")),
        ("check_disk 20", Ok("/usr/lib/check_disk|-w|20|--path=/|{x")),
        (
            "check_disk 20 '/var/my files'",
            Ok("/usr/lib/check_disk|-w|20|--path=/var/my files|{x"),
        ),
        (
            "check_disk 20 /var\\ x",
            Ok("/usr/lib/check_disk|-w|20|--path=/var x|{x"),
        ),
        ("unit ssh", Ok("/bin/systemctl|status|ssh")),
        ("unit nginx@web.1", Ok("/bin/systemctl|status|nginx@web.1")),
        ("echo a%b", Ok("/bin/echo|a%b")),
        ("du /var/log/nginx", Ok("/usr/bin/du|/var/log/nginx")),
        (
            "check_disk 20 '/a$(id);x'",
            Err(
                "the command \"check_disk\" of [commands] of node.toml does not take \"/a$(id);x\" as its argument path, which is an absolute path of letters, digits, blanks and ._-@%+=:,/~, without ..",
            ),
        ),
        (
            "check_disk 20 /a\u{202e}x",
            Err(
                "the command \"check_disk\" of [commands] of node.toml does not take \"/a\\u{202e}x\" as its argument path, which is an absolute path of letters, digits, blanks and ._-@%+=:,/~, without ..",
            ),
        ),
        (
            "check_disk 20 /straße",
            Ok("/usr/lib/check_disk|-w|20|--path=/straße|{x"),
        ),
        (
            "du /var/../etc",
            Err(
                "the command \"du\" of [commands] of node.toml does not take \"/var/../etc\" as its argument a, which is one of /var/*",
            ),
        ),
        ("", Err("the command is empty")),
        (
            "uptime; id",
            Err("the command \"uptime;\" does not stand in [commands] of node.toml"),
        ),
        (
            "uptime -p",
            Err("the command \"uptime\" of [commands] of node.toml takes 0 arguments, not 1"),
        ),
        (
            "/usr/bin/uptime",
            Err("the command \"/usr/bin/uptime\" does not stand in [commands] of node.toml"),
        ),
        (
            "check_disk",
            Err(
                "the command \"check_disk\" of [commands] of node.toml needs its argument warn, which is a whole number from 0 to 100",
            ),
        ),
        (
            "check_disk 101",
            Err(
                "the command \"check_disk\" of [commands] of node.toml does not take \"101\" as its argument warn, which is a whole number from 0 to 100",
            ),
        ),
        (
            "check_disk 20 /a/../b",
            Err(
                "the command \"check_disk\" of [commands] of node.toml does not take \"/a/../b\" as its argument path, which is an absolute path of letters, digits, blanks and ._-@%+=:,/~, without ..",
            ),
        ),
        (
            "unit nginx@$(id)",
            Err(
                "the command \"unit\" of [commands] of node.toml does not take \"nginx@$(id)\" as its argument unit, which is one of ssh, nginx@*",
            ),
        ),
        (
            "unit 'nginx@a b'",
            Err(
                "the command \"unit\" of [commands] of node.toml does not take \"nginx@a b\" as its argument unit, which is one of ssh, nginx@*",
            ),
        ),
        (
            "unit nginx@a/../b",
            Err(
                "the command \"unit\" of [commands] of node.toml does not take \"nginx@a/../b\" as its argument unit, which is one of ssh, nginx@*",
            ),
        ),
        (
            "echo -n",
            Err(
                "the command \"echo\" of [commands] of node.toml does not take \"-n\" as its argument w, which is a word of letters, digits and ._-@%+=:,",
            ),
        ),
        (
            "echo ''",
            Err(
                "the command \"echo\" of [commands] of node.toml does not take \"\" as its argument w, which is a word of letters, digits and ._-@%+=:,",
            ),
        ),
        ("echo 'a", Err("the command has a quote that is never closed")),
        ("echo a\\", Err("the command ends with a backslash")),
    ] {
        let got = list
            .find(line.as_bytes(), &rule)
            .map(|command| String::from_utf8(command.argv.join(&b'|')).unwrap());
        assert_eq!(
            got.map_err(|d| d.to_string()),
            want.map(str::to_string).map_err(str::to_string),
            "{line}"
        );
    }
}

#[test]
fn lines_and_lists_are_bounded() {
    let list = list();
    let rule = Rule::new("x");
    let refused = |line: String| list.find(line.as_bytes(), &rule).unwrap_err().to_string();
    assert!(refused("a".repeat(MAX_LINE + 1)).contains("longer"));
    assert!(refused("uptime".to_string() + &" a".repeat(MAX_ARGUMENTS + 2)).contains("more than"));
    assert!(refused(format!("echo {}", "a".repeat(MAX_ARGUMENT + 1))).contains("does not take"));
    assert!(
        list.find(format!("echo {}", "a".repeat(MAX_ARGUMENT)).as_bytes(), &rule)
            .is_ok()
    );
    let mut full = Commands::new();
    let command = Command::define(&["/bin/true"], &[]).unwrap();
    for i in 0..MAX_COMMANDS {
        full.add(&format!("c{i}"), command.clone()).unwrap();
    }
    assert!(full.add("one-more", command.clone()).is_err());
    assert!(Commands::new().add(&"n".repeat(MAX_NAME + 1), command).is_err());
}

#[test]
fn definitions_that_mean_nothing_are_refused() {
    type Arguments<'a> = &'a [(&'a str, &'a str, Option<&'a str>)];
    let bad: [(&[&str], Arguments<'_>); 10] = [
        (&[], &[]),
        (&["true"], &[]),
        (&["/bin/{a}"], &[("a", "word", None)]),
        (&["/bin/a", "{b}"], &[]),
        (&["/bin/a"], &[("b", "word", None)]),
        (&["/bin/a", "{b}"], &[("b", "9..1", None)]),
        (&["/bin/a", "{b}"], &[("b", "x||y", None)]),
        (&["/bin/a", "{b}"], &[("b", "1..5", Some("6"))]),
        (
            &["/bin/a", "{b}{c}"],
            &[("b", "word", Some("x")), ("c", "word", None)],
        ),
        (&["/bin/a", "{b}"], &[("b", "word", None), ("b", "word", None)]),
    ];
    for (argv, arguments) in bad {
        assert!(
            Command::define(argv, arguments).is_err(),
            "{argv:?} {arguments:?}"
        );
    }
}

//! Tests: what permits allow, source by source and together.

use super::*;
use crate::commands::{Command, CommandLimits, NamedCommand};
use std::time::Duration;

fn rule(words: &str) -> Rule {
    Rule::new(words)
}

fn target(text: &str, listen: bool) -> Target {
    Target::parse(text, listen).unwrap()
}

#[test]
fn each_kind_is_forbidden_alone() {
    let asked = [
        What::Shell,
        What::Exec(b"id"),
        What::Subsystem(b"sftp"),
        What::Subsystem(b"netconf"),
        What::Pty,
        What::ConnectTcp(b"h", 1),
        What::ListenTcp(b"h", 1),
        What::ConnectUnix(b"/s"),
        What::ListenUnix(b"/s"),
        What::Agent,
        What::X11,
        What::Environment(b"LANG"),
        What::UserRc,
    ];
    assert_eq!(asked.map(|w| w.kind()), Kind::ALL);
    for forbidden in Kind::ALL {
        let mut permits = Permits::all();
        permits.forbid(&[forbidden], &rule("the test"));
        for what in &asked {
            let want = match what.kind() == forbidden {
                true => Err(format!("{} is not allowed by the test", forbidden.name())),
                false => Ok(()),
            };
            assert_eq!(permits.allow(what).map_err(|d| d.to_string()), want, "{what:?}");
            assert!(Permits::none(&rule("x")).allow(what).is_err());
        }
    }
}

#[test]
fn targets_are_read_and_fit() {
    for (text, listen, host, port, want) in [
        ("host:80", false, "host", 80, true),
        ("host:80", false, "HOST", 80, true),
        ("host:80", false, "host", 81, false),
        ("host:80", false, "other", 80, false),
        ("host:*", false, "host", 7, true),
        ("*:80", false, "anything", 80, true),
        ("*.example.com:80", false, "www.example.com", 80, false),
        ("[2001:db8::1]:80", false, "2001:db8::1", 80, true),
        ("8080", true, "", 8080, true),
        ("8080", true, "localhost", 8080, true),
        ("8080", true, "localhost", 8081, false),
        ("localhost:8080", true, "localhost", 8080, true),
        ("localhost:8080", true, "", 8080, false),
        ("localhost:8080", true, "127.0.0.1", 8080, false),
        ("127.*:8080", true, "127.0.0.1", 8080, true),
        ("localhost:*", true, "localhost", 0, true),
        ("localhost:8080", true, "localhost", 0, false),
    ] {
        let mut permits = Permits::all();
        let list = vec![target("never:1", false), target(text, listen)];
        let what = match listen {
            true => What::ListenTcp(host.as_bytes(), port),
            false => What::ConnectTcp(host.as_bytes(), port),
        };
        match listen {
            true => permits.only_listen(list, &rule("x")),
            false => permits.only_connect(list, &rule("x")),
        }
        assert_eq!(permits.allow(&what).is_ok(), want, "{text} {host:?}:{port}");
        // A list of the one direction holds nobody in the other.
        let other = match listen {
            true => What::ConnectTcp(b"h", 1),
            false => What::ListenTcp(b"h", 1),
        };
        assert!(permits.allow(&other).is_ok());
        // Unix sockets are no way around it.
        assert_eq!(permits.allow(&What::ListenUnix(b"/s")).is_ok(), !listen);
        assert_eq!(permits.allow(&What::ConnectUnix(b"/s")).is_ok(), listen);
    }
    for bad in [
        "",
        "host",
        ":80",
        "host:",
        "host:0",
        "host:65536",
        "host:+1",
        "::1:80",
        "[::1:80",
        "a b:1",
    ] {
        assert!(Target::parse(bad, false).is_err(), "{bad}");
    }
}

#[test]
fn a_forced_command_takes_the_place_of_everything() {
    let mut permits = Permits::all();
    permits.force(b"/bin/backup".to_vec(), &rule("the key"));
    let line = |original: Option<&[u8]>| Program::Line {
        command: b"/bin/backup".to_vec(),
        original: original.map(<[u8]>::to_vec),
    };
    assert_eq!(permits.program(&What::Shell), Ok(line(None)));
    assert_eq!(permits.program(&What::Exec(b"id")), Ok(line(Some(b"id"))));
    assert_eq!(
        permits.program(&What::Subsystem(b"sftp")),
        Ok(line(Some(b"sftp")))
    );
    // Without a shell allowed it still runs; without commands it does not.
    permits.forbid(&[Kind::Shell, Kind::Sftp], &rule("x"));
    assert!(permits.program(&What::Shell).is_ok());
    permits.forbid(&[Kind::Exec], &rule("x"));
    assert!(permits.program(&What::Shell).is_err());

    for (command, arguments) in [
        ("internal-sftp", Some("")),
        ("internal-sftp  -R", Some("-R")),
        ("internal-sftpx", None),
    ] {
        let mut permits = Permits::all();
        permits.force(command.as_bytes().to_vec(), &rule("the key"));
        let want = arguments.map(|a| Program::Sftp {
            arguments: a.as_bytes().to_vec(),
        });
        let got = permits.program(&What::Shell).unwrap();
        assert_eq!(
            Some(got.clone()).filter(|p| matches!(p, Program::Sftp { .. })),
            want,
            "{command}"
        );
    }
}

#[test]
fn without_a_rule_everything_runs_as_asked() {
    let all = Permits::all();
    for (what, want) in [
        (What::Shell, Program::Shell),
        (
            What::Exec(b"id"),
            Program::Line {
                command: b"id".to_vec(),
                original: None,
            },
        ),
        (
            What::Subsystem(b"sftp"),
            Program::Sftp {
                arguments: Vec::new(),
            },
        ),
        (
            What::Subsystem(b"netconf"),
            Program::Subsystem(b"netconf".to_vec()),
        ),
    ] {
        assert_eq!(all.program(&what), Ok(want));
    }
}

fn named(name: &str, program: &str) -> Program {
    Program::Named(NamedCommand {
        name: name.to_owned(),
        argv: vec![program.as_bytes().to_vec()],
        limits: CommandLimits::default(),
        environment: Vec::new(),
        secrets: Vec::new(),
        cache: None,
        user: None,
    })
}

#[test]
fn of_two_lists_the_stricter_limits_count() {
    let list = |timeout: Option<u64>, concurrency| {
        let mut list = Commands::new();
        let command = Command::define(&["/bin/uptime"], &[]).unwrap();
        let limits = CommandLimits {
            timeout: timeout.map(Duration::from_secs),
            concurrency,
            output: None,
        };
        list.add("up", command.limited(limits)).unwrap();
        Arc::new(list)
    };
    let mut permits = Permits::all();
    permits.only_commands(list(Some(9), None), &rule("one"));
    permits.only_commands(list(Some(5), Some(3)), &rule("two"));
    permits.only_commands(list(None, Some(4)), &rule("three"));
    let Ok(Program::Named(command)) = permits.program(&What::Exec(b"up")) else {
        panic!("allowed");
    };
    let limits = command.limits;
    assert_eq!(
        (limits.timeout, limits.concurrency),
        (Some(Duration::from_secs(5)), Some(3))
    );
}

#[test]
fn command_lists_leave_nothing_else() {
    let mut list = Commands::new();
    list.add("up", Command::define(&["/bin/uptime"], &[]).unwrap())
        .unwrap();
    list.add("both", Command::define(&["/bin/a"], &[]).unwrap())
        .unwrap();
    let mut permits = Permits::all();
    permits.only_commands(Arc::new(list), &rule("[commands.checks]"));
    assert_eq!(
        permits.program(&What::Exec(b"up")),
        Ok(named("up", "/bin/uptime"))
    );
    for what in [
        What::Shell,
        What::Subsystem(b"sftp"),
        What::Exec(b"id"),
        What::Exec(b""),
    ] {
        assert!(permits.program(&what).is_err(), "{what:?}");
        assert!(permits.allow(&what).is_err(), "{what:?}");
    }
    // Two lists: both have to mean the same program.
    let mut other = Commands::new();
    other
        .add("up", Command::define(&["/bin/uptime"], &[]).unwrap())
        .unwrap();
    other
        .add("both", Command::define(&["/bin/b"], &[]).unwrap())
        .unwrap();
    let mut second = Permits::all();
    second.only_commands(Arc::new(other), &rule("the role"));
    let together = permits.and(second).unwrap();
    assert!(together.program(&What::Exec(b"up")).is_ok());
    let refused = together.program(&What::Exec(b"both")).unwrap_err().to_string();
    assert_eq!(refused, "the role means another program by this command's name");
}

#[test]
fn a_forced_list_and_a_roles_list_leave_what_both_have() {
    let mut all = Commands::new();
    for name in ["disk", "load", "up"] {
        let program = format!("/bin/{name}");
        all.add(name, Command::define(&[&program], &[]).unwrap()).unwrap();
    }
    let mut permits = Permits::all();
    permits.force(b"fleetgate:disk,load".to_vec(), &rule("node.toml"));
    permits.only_exec(&["load", "up"], Commands::new(), &rule("role check"));
    assert_eq!(
        permits.named_commands(),
        None,
        "a program is forced until the lists are known"
    );
    permits.name_commands(&all).unwrap();
    assert_eq!(
        permits.program(&What::Exec(b"load")),
        Ok(named("load", "/bin/load"))
    );
    for (line, rule) in [(&b"disk"[..], "role check"), (b"up", "node.toml")] {
        let refused = permits.program(&What::Exec(line)).unwrap_err().to_string();
        assert!(
            refused.ends_with(&format!("does not stand in {rule}")),
            "{refused}"
        );
    }
    let names = |permits: &Permits| {
        let commands = permits.named_commands().expect("lists");
        commands.names().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(names(&permits), ["load"]);
    // Another program by the name is not common to both.
    let mut other = Commands::new();
    other
        .add("load", Command::define(&["/bin/other"], &[]).unwrap())
        .unwrap();
    permits.only_commands(Arc::new(other), &rule("a key"));
    assert_eq!(names(&permits), Vec::<String>::new());
    assert_eq!(Permits::all().named_commands(), None);
}

#[test]
fn what_holds_is_what_every_source_allows() {
    let (cert, line) = (rule("the certificate"), rule("line 3"));
    let mut a = Permits::none(&cert);
    a.permit(&[Kind::Pty, Kind::Shell, Kind::Exec, Kind::ConnectTcp]);
    a.only_connect(vec![target("db:5432", false), target("web:80", false)], &cert);
    a.set("A", "1");
    let mut b = Permits::all();
    b.forbid(&[Kind::Pty], &line);
    b.only_connect(vec![target("*:5432", false)], &line);
    b.set("A", "2");
    b.set("B", "3");
    let both = a.clone().and(b.clone()).unwrap();
    let said = |what: What<'_>| both.allow(&what).map_err(|d| d.to_string());
    assert_eq!(said(What::Shell), Ok(()));
    assert_eq!(said(What::Pty), Err("a terminal is not allowed by line 3".into()));
    assert_eq!(
        said(What::X11),
        Err("X11 forwarding is not allowed by the certificate".into())
    );
    assert_eq!(said(What::ConnectTcp(b"db", 5432)), Ok(()));
    let web = said(What::ConnectTcp(b"web", 80)).unwrap_err();
    assert_eq!(
        web,
        "forwarding to a TCP address \"web\" port 80 is not allowed by line 3"
    );
    assert_eq!(
        both.environment(),
        [
            ("A".to_string(), "1".to_string()),
            ("B".to_string(), "3".to_string())
        ]
    );

    a.force(b"x".to_vec(), &cert);
    assert_eq!(a.clone().and(b.clone()).unwrap().forced(), Some(&b"x"[..]));
    b.force(b"x".to_vec(), &line);
    assert_eq!(a.clone().and(b.clone()).unwrap().forced(), Some(&b"x"[..]));
    b.force(b"y".to_vec(), &line);
    let refused = a.and(b).unwrap_err().to_string();
    assert_eq!(refused, "the certificate and line 3 force different commands");
}

#[test]
fn a_forced_command_can_name_commands() {
    let mut all = Commands::new();
    for name in ["disk", "load", "reboot"] {
        let program = format!("/bin/{name}");
        all.add(name, Command::define(&[&program], &[]).unwrap()).unwrap();
    }
    let forced = |command: &str| {
        let mut permits = Permits::all();
        permits.force(command.as_bytes().to_vec(), &rule("line 3"));
        permits
            .name_commands(&all)
            .map(|()| permits)
            .map_err(|d| d.to_string())
    };
    let permits = forced("fleetgate:disk, load").unwrap();
    assert!(permits.only_named() && permits.forced().is_none());
    assert_eq!(
        permits.program(&What::Exec(b"load")),
        Ok(named("load", "/bin/load"))
    );
    assert!(permits.program(&What::Exec(b"reboot")).is_err());
    assert!(permits.program(&What::Shell).is_err());
    for (command, why) in [
        (
            "fleetgate:disk,halt",
            "nothing is allowed by line 3: there is no command \"halt\"",
        ),
        (
            "fleetgate:",
            "nothing is allowed by line 3: there is no command \"\"",
        ),
    ] {
        assert_eq!(forced(command).unwrap_err(), why);
    }
    let other = forced("/usr/bin/fleetgate:disk").unwrap();
    assert!(!other.only_named() && other.forced().is_some());
}

#[test]
fn a_roles_list_stands_over_a_keys_forced_command_and_not_over_the_nodes() {
    let mut all = Commands::new();
    all.add("disk", Command::define(&["/bin/disk"], &[]).unwrap())
        .unwrap();
    let within_role = |forced: &str, by_node: bool| {
        let mut permits = Permits::all();
        match by_node {
            true => permits.force_for_all(forced.as_bytes().to_vec(), &rule("node.toml")),
            false => permits.force(forced.as_bytes().to_vec(), &rule("line 3")),
        }
        permits.only_exec(&["disk"], Commands::new(), &rule("role check"));
        permits.name_commands(&all).unwrap();
        permits
            .program(&What::Exec(b"disk"))
            .map_err(|denied| denied.to_string())
    };
    let refused = "the command of line 3 is not allowed by role check";
    assert_eq!(within_role("id", false), Err(refused.to_owned()));
    assert!(matches!(within_role("id", true), Ok(Program::Line { .. })));
    assert_eq!(
        within_role("fleetgate:disk", false),
        Ok(named("disk", "/bin/disk"))
    );
}

#[test]
fn the_nodes_forced_command_stands_over_a_keys() {
    let forced = |command: Option<&str>, words: &str| {
        let mut permits = Permits::all();
        if let Some(command) = command {
            permits.force(command.as_bytes().to_vec(), &rule(words));
        }
        permits
    };
    for (own, node, want) in [
        (None, None, None),
        (Some("a"), None, Some("a")),
        (None, Some("b"), Some("b")),
        (Some("a"), Some("b"), Some("b")),
    ] {
        let mut everybody = forced(node, "node.toml");
        everybody.forbid(&[Kind::X11], &rule("node.toml"));
        let got = forced(own, "line 3").within(everybody);
        assert_eq!(got.forced(), want.map(str::as_bytes), "{own:?} {node:?}");
        assert!(got.allow(&What::X11).is_err() && got.allow(&What::Pty).is_ok());
    }
}

#[test]
fn command_lines_by_name_leave_other_kinds_alone() {
    let mut list = Commands::new();
    for (name, program) in [("disk", "/bin/df"), ("load", "/bin/uptime")] {
        list.add(name, Command::define(&[program], &[]).unwrap()).unwrap();
    }
    let rule = Rule::new("role check");
    let mut permits = Permits::all();
    let mut defined = Commands::new();
    for (name, program) in [("disk", "/bin/other"), ("own", "/bin/own")] {
        defined
            .add(name, Command::define(&[program], &[]).unwrap())
            .unwrap();
    }
    permits.only_exec(&["disk", "elsewhere"], defined, &rule);
    // Before the node's list is known, no line is allowed: there is nothing to look it up in.
    assert!(permits.program(&What::Exec(b"disk")).is_err());
    permits.name_commands(&list).unwrap();
    let disk = named("disk", "/bin/df");
    let refused = |name: &str| Err(format!("the command {name:?} does not stand in role check"));
    for (what, want) in [
        // By a name that both have, the node's own program is meant.
        (What::Exec(b"disk"), Ok(disk.clone())),
        (What::Exec(b"own"), Ok(named("own", "/bin/own"))),
        (What::Exec(b"load"), refused("load")),
        (
            What::Exec(b"elsewhere -x"),
            Err(
                "role check lists the command \"elsewhere\", and this node has none of that name: neither its own \
                 [commands] nor the role defines it"
                    .to_owned(),
            ),
        ),
        (What::Exec(b"/bin/df"), refused("/bin/df")),
        (What::Shell, Ok(Program::Shell)),
    ] {
        assert_eq!(
            permits.program(&what).map_err(|d| d.to_string()),
            want,
            "{what:?}"
        );
    }
    assert!(!permits.only_named());
    permits.forbid(&[Kind::Shell, Kind::Sftp, Kind::Subsystem], &rule);
    assert!(permits.only_named());
    // Two lists: what stands in both.
    let mut other = Permits::all();
    other.only_exec(&["load"], Commands::new(), &Rule::new("role other"));
    other.name_commands(&list).unwrap();
    let both = permits.and(other).unwrap();
    assert!(both.program(&What::Exec(b"disk")).is_err());
    assert!(both.program(&What::Exec(b"load")).is_err());
}

//! The order that a helper gets: variables, checks and limits by what was decided and what is known of the account.

use super::*;

fn account() -> Account {
    Account {
        name: c"ada".into(),
        ids: Ids {
            uid: 1000,
            gid: 1000,
            groups: vec![1000],
        },
        home: c"/home/ada".into(),
        shell: c"/bin/sh".into(),
        ageing: None,
    }
}

fn ends() -> ConnectionAddresses {
    let v4 = |last: u8, port| Endpoint {
        address: [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 192, 0, 2, last],
        scope: 0,
        port,
    };
    ConnectionAddresses {
        peer: v4(7, 4711),
        local: v4(1, 22),
    }
}

/// What the facts are unless a case says otherwise.
struct Case {
    config: Config,
    grant: Grant,
    start: Start,
    terminal: Option<CString>,
    agent: Option<CString>,
    display: Option<u16>,
    cluster_user: ClusterUser,
    pam: bool,
    root: bool,
}

impl Case {
    fn new(permits: May, start: Start) -> Case {
        Case {
            config: Config::default(),
            grant: grant(permits),
            start,
            terminal: None,
            agent: None,
            display: None,
            cluster_user: ClusterUser::default(),
            pam: false,
            root: true,
        }
    }

    fn order(&self) -> Result<Exec, SessionRefusal> {
        let decided = choose_program(&self.grant, &self.start, NOW)?;
        exec(&self.facts(&account(), &ends(), &inherited()), &decided)
    }

    fn facts<'a>(
        &'a self,
        account: &'a Account,
        addresses: &'a ConnectionAddresses,
        inherited: &'a Inherited,
    ) -> OrderFacts<'a> {
        OrderFacts {
            config: &self.config,
            grant: &self.grant,
            addresses,
            start: &self.start,
            account,
            session: [3; 16],
            at: Time { sec: 5, nsec: 6 },
            terminal: self.terminal.as_ref(),
            agent: self.agent.as_ref(),
            display: self.display,
            cluster_user: &self.cluster_user,
            inherited,
            context: None,
            pam: self.pam,
            root: self.root,
        }
    }
}

fn inherited() -> Inherited {
    Inherited {
        limits: vec![Limit {
            resource: 7,
            soft: 1024,
            hard: 4096,
        }],
        oom_score_adj: Some(0),
    }
}

fn lines(variables: &[Variable]) -> Vec<String> {
    let one = |v: &Variable| format!("{}={}", v.name.to_string_lossy(), v.value.to_string_lossy());
    variables.iter().map(one).collect()
}

#[test]
fn a_session_has_its_variables() {
    let connection = [
        "SSH_CLIENT=192.0.2.7 4711 22",
        "SSH_CONNECTION=192.0.2.7 4711 192.0.2.1 22",
    ];
    let mut keys = May::all();
    keys.set("LANG", "de");
    keys.set("X", "1");
    let mut set_env = Case::new(keys, shell());
    set_env.config.set_env.insert("X".to_owned(), "2".to_owned());
    let x11 = front::X11 {
        display: 4,
        protocol: b"p".to_vec(),
        cookie: b"00".to_vec(),
        screen: 1,
    };
    let full = Case {
        terminal: Some(c"/dev/pts/3".into()),
        agent: Some(c"/tmp/ssh-x/agent.1".into()),
        display: Some(12),
        ..Case::new(
            May::all(),
            Start {
                x11: Some(x11),
                ..with_terminal()
            },
        )
    };
    let who = |user: &str, roles: &str| {
        [
            format!("FLEETGATE_USER={user}"),
            format!("FLEETGATE_ROLES={roles}"),
            format!("FLEETGATE_SESSION={}", "03".repeat(16)),
        ]
    };
    let mut of_cluster = Case::new(May::all(), line("id"));
    of_cluster.cluster_user.user = "ann".to_owned();
    of_cluster.cluster_user.roles = "dev,ops".to_owned();
    let mut set = of_cluster.order().expect("an order").environment.set;
    assert_eq!(lines(&set.split_off(2)), who("ann", "dev,ops"));
    // The last of a name counts.
    let mut forged = May::all();
    forged.set("FLEETGATE_USER", "eve");
    let forged = Case::new(forged, line("id")).order().expect("an order");
    let last = lines(&forged.environment.set);
    let last = last.iter().rfind(|l| l.starts_with("FLEETGATE_USER"));
    assert_eq!(last.expect("it is set"), "FLEETGATE_USER=");
    for (case, wanted) in [
        (Case::new(May::all(), line("id")), connection.to_vec()),
        (
            set_env,
            ["LANG=de", "X=1", "X=2"].into_iter().chain(connection).collect(),
        ),
        (
            full,
            connection
                .into_iter()
                .chain([
                    "SSH_TTY=/dev/pts/3",
                    "TERM=xterm",
                    "DISPLAY=localhost:12.1",
                    "SSH_AUTH_SOCK=/tmp/ssh-x/agent.1",
                ])
                .collect(),
        ),
        (
            Case::new(forced("uptime"), line("id -a")),
            connection
                .into_iter()
                .chain(["SSH_ORIGINAL_COMMAND=id -a"])
                .collect(),
        ),
    ] {
        let wanted: Vec<String> = wanted
            .iter()
            .map(ToString::to_string)
            .chain(who("", ""))
            .collect();
        assert_eq!(lines(&case.order().expect("an order").environment.set), wanted);
    }
}

#[test]
fn a_named_command_gets_the_secrets_that_it_names_and_no_other_variable() {
    let with = |sent: &[(&str, &str)]| {
        let one = |(name, value): &(&str, &str)| ClientVariable {
            name: name.as_bytes().to_vec(),
            value: value.as_bytes().to_vec(),
        };
        let start = Start {
            environment: sent.iter().map(one).collect(),
            ..line("check")
        };
        // Secrets are the command's, whatever a role says of variables.
        let mut permits = named();
        permits.forbid(&[fleetgate_policy::Kind::Environment], &Rule::new("a role"));
        Case::new(permits, start)
    };
    let order = with(&[("PASSWORD", "hunter2"), ("OTHER", "x")])
        .order()
        .expect("an order");
    let set = lines(&order.environment.set);
    assert!(set.contains(&"PASSWORD=hunter2".to_owned()), "{set:?}");
    assert!(!set.iter().any(|line| line.starts_with("OTHER")), "{set:?}");
    assert!(order.environment.client.is_empty());
    for sent in [&[][..], &[("OTHER", "x")]] {
        let refused = with(sent).order().expect_err("it is missing").words;
        assert!(
            refused.contains("the command \"check\" needs its secret PASSWORD"),
            "{refused}"
        );
    }
}

#[test]
fn a_command_of_another_account_gets_nothing_of_its_logins() {
    let variable = |name: &[u8]| ClientVariable {
        name: name.to_vec(),
        value: b"x".to_vec(),
    };
    let of = |user: &str| {
        let mut list = Commands::new();
        let command = Command::define(&["/bin/raid"], &[]).expect("a command");
        let command = command
            .with_secrets(vec!["PASSWORD".to_owned()])
            .expect("secrets");
        let user = AccountName::parse(user.as_bytes()).expect("a name");
        list.add("raid", command.run_as(user)).expect("one");
        let mut permits = May::all();
        permits.set("LD_PRELOAD", "/home/ada/evil.so");
        permits.only_commands(Arc::new(list), &Rule::new("the test"));
        let start = Start {
            environment: vec![variable(b"PASSWORD"), variable(b"LC_ALL")],
            ..line("raid")
        };
        let mut case = Case::new(permits, start);
        case.config.user_environment = true;
        case.order().expect("an order")
    };
    let (other, own) = (of("root"), of("ada"));
    let set = |order: &Exec, name: &str| {
        lines(&order.environment.set)
            .iter()
            .any(|line| line.split('=').next() == Some(name))
    };
    assert!(set(&own, "LD_PRELOAD") && own.environment.user_environment);
    assert_eq!(lines(&own.environment.client), ["PASSWORD=x", "LC_ALL=x"]);
    assert!(set(&own, "SSH_ORIGINAL_COMMAND") && !set(&other, "SSH_ORIGINAL_COMMAND"));
    assert!(!set(&other, "LD_PRELOAD") && !other.environment.user_environment);
    assert!(other.environment.client.is_empty());
    assert!(set(&other, "PASSWORD"), "what the command itself asks for");
    assert!(own.checks.expiry && !other.checks.expiry && !other.checks.nologin);
}

#[test]
fn a_client_reads_which_commands_it_may_run() {
    let read = |permits: May, name: &str| command_list(&grant(permits), &subsystem(name));
    let list = read(named(), "fleetgate-commands").expect("a list");
    assert!(
        list.starts_with("NAME ") && list.contains("check") && list.contains("PASSWORD"),
        "{list}"
    );
    assert!(!list.contains("/bin/"), "{list}");
    let lines = read(named(), "fleetgate-commands-json").expect("a list");
    assert!(
        lines.lines().all(|line| line.starts_with("{\"name\":")),
        "{lines}"
    );
    for (permits, name, wanted) in [
        (May::all(), "fleetgate-commands", Some(ANY_COMMAND)),
        (May::all(), "fleetgate-commands-json", Some("")),
        (May::all(), "sftp", None),
        (forced("uptime"), "fleetgate-commands", None),
        (without(fleetgate_policy::Kind::Exec), "fleetgate-commands", None),
        (May::none(&Rule::new("x")), "fleetgate-commands", None),
    ] {
        assert_eq!(read(permits, name).as_deref(), wanted, "{name}");
    }
}

#[test]
fn a_list_that_is_too_long_says_how_much_is_left_out() {
    let lines = "0123456789\n".repeat(100);
    for (most, is_json, last) in [
        (lines.len(), false, "0123456789"),
        (
            lines.len() - 1,
            false,
            "6 more are left out: the list is too long.",
        ),
        (lines.len() - 1, true, "{\"left_out\":6}"),
        (64, true, "{\"left_out\":100}"),
    ] {
        let mut list = lines.clone();
        shorten(&mut list, most, is_json);
        assert!(list.len() <= most && list.ends_with('\n'), "{most}");
        assert_eq!(list.lines().last(), Some(last), "{most}");
    }
}

#[test]
fn clients_set_what_the_grant_lets_them() {
    let environment = vec![
        ClientVariable {
            name: b"LC_ALL".to_vec(),
            value: b"C".to_vec(),
        },
        ClientVariable {
            name: b"A\0B".to_vec(),
            value: b"x".to_vec(),
        },
        ClientVariable {
            name: b"FLEETGATE_ROLES".to_vec(),
            value: b"ops".to_vec(),
        },
    ];
    let ask = Start {
        environment,
        ..shell()
    };
    let case = Case::new(May::all(), ask.clone());
    let order = case.order().expect("an order");
    assert_eq!(lines(&order.environment.client), ["LC_ALL=C"]);
    let accept: Vec<_> = order.environment.accept.iter().map(|p| p.as_c_str()).collect();
    assert_eq!(accept, [c"LANG", c"LC_*", c"COLORTERM", c"NO_COLOR"]);
    let refused = Case::new(without(fleetgate_policy::Kind::Environment), ask);
    assert_eq!(
        lines(&refused.order().expect("an order").environment.client),
        Vec::<String>::new()
    );
}

#[test]
fn logins_checks_and_resources_are_as_sshd_has_them() {
    struct Want {
        login: Option<(bool, bool)>,
        checks: (bool, bool),
        keyring: bool,
        loginuid: bool,
        limits: usize,
        etc: bool,
    }
    let plain = || Want {
        login: Some((false, false)),
        checks: (true, true),
        keyring: true,
        loginuid: true,
        limits: 1,
        etc: true,
    };
    let on_terminal = || Case {
        terminal: Some(c"/dev/pts/3".into()),
        ..Case::new(May::all(), with_terminal())
    };
    for (name, case, want) in [
        ("a command", Case::new(May::all(), line("id")), plain()),
        (
            "a terminal",
            on_terminal(),
            Want {
                login: Some((true, true)),
                ..plain()
            },
        ),
        (
            "PAM",
            Case {
                pam: true,
                ..on_terminal()
            },
            Want {
                login: Some((true, true)),
                checks: (true, false),
                limits: 0,
                etc: false,
                ..plain()
            },
        ),
        (
            "PAM says that the password has expired",
            Case {
                pam: true,
                grant: Grant {
                    must_change_password: true,
                    ..grant(May::all())
                },
                ..on_terminal()
            },
            Want {
                login: Some((true, true)),
                checks: (true, true),
                limits: 0,
                etc: false,
                ..plain()
            },
        ),
        (
            "a named command",
            Case::new(named(), line("echo hi")),
            Want {
                login: None,
                loginuid: false,
                ..plain()
            },
        ),
        (
            "no root",
            Case {
                root: false,
                ..on_terminal()
            },
            Want {
                login: None,
                checks: (false, false),
                keyring: false,
                loginuid: false,
                ..plain()
            },
        ),
    ] {
        let order = case.order().expect(name);
        assert_eq!(
            order.login.as_ref().map(|l| (l.utmp, l.motd)),
            want.login,
            "{name}"
        );
        assert_eq!((order.checks.nologin, order.checks.expiry), want.checks, "{name}");
        let last_change = order.account.ageing.as_ref().map(|a| a.last_change);
        let must_change = case.grant.must_change_password.then_some(0);
        assert_eq!(last_change, must_change, "{name}");
        assert_eq!(order.resources.keyring, want.keyring, "{name}");
        assert_eq!(order.resources.loginuid, want.loginuid, "{name}");
        assert_eq!(order.resources.limits.len(), want.limits, "{name}");
        assert_eq!(order.environment.etc_environment, want.etc, "{name}");
        if let Some(login) = &order.login {
            assert_eq!(
                (login.host.as_c_str(), login.at.sec, login.at.nsec),
                (c"192.0.2.7", 5, 6),
                "{name}"
            );
        }
    }
}

#[test]
fn the_file_servers_order_follows_its_forced_arguments() {
    let plain = |f: fn(&mut Sftp)| {
        let mut order = Sftp {
            ids: account().ids,
            home: c"/home/ada".into(),
            chroot: None,
            start: None,
            read_only: false,
            umask: None,
            selinux: None,
        };
        f(&mut order);
        Ok(order)
    };
    let mut confined = Config {
        sftp_chroot: Some("/srv/%u%%%h".to_owned()),
        ..Config::default()
    };
    confined.sftp_read_only = true;
    for (config, arguments, wanted) in [
        (Config::default(), "", plain(|_| {})),
        (
            Config::default(),
            " -R -e\t-l INFO -f AUTH ",
            plain(|o| o.read_only = true),
        ),
        (
            Config::default(),
            "-d /pub/%u -u 027",
            plain(|o| {
                o.start = Some(c"/pub/ada".into());
                o.umask = Some(0o27);
            }),
        ),
        (
            confined,
            "",
            plain(|o| {
                o.chroot = Some(c"/srv/ada%/home/ada".into());
                o.read_only = true;
            }),
        ),
        (Config::default(), "-x", Err("-x")),
        (Config::default(), "-u 8", Err("-u")),
        (Config::default(), "-u 1777", Err("-u")),
        (Config::default(), "-d", Err("-d")),
    ] {
        let case = Case {
            config,
            ..Case::new(May::all(), subsystem("sftp"))
        };
        let got = sftp(
            &case.facts(&account(), &ends(), &inherited()),
            arguments.as_bytes(),
        );
        let wanted = wanted.map_err(|word| {
            SessionRefusal::new(format!(
                "the forced internal-sftp has an argument that is not known here: {word:?}"
            ))
        });
        assert_eq!(got, wanted, "{arguments}");
    }
}

#[test]
fn xauth_reads_the_cookie_and_nothing_else() {
    let x11 = |protocol: &str, cookie: &str| front::X11 {
        display: 1,
        protocol: protocol.into(),
        cookie: cookie.into(),
        screen: 2,
    };
    let good = x11("MIT-MAGIC-COOKIE-1", "00ffAA");
    let script = xauth_script(&good, 10).expect("a script");
    assert_eq!(
        String::from_utf8_lossy(&script),
        "remove unix:10.2\nadd unix:10.2 MIT-MAGIC-COOKIE-1 00ffAA\n"
    );
    for bad in [
        x11("", "00"),
        x11("a b", "00"),
        x11("a\nsource /x", "00"),
        x11("-x", "00"),
        x11("p", ""),
        x11("p", "0"),
        x11("p", "0g"),
        x11("p", "00\nadd x"),
        x11("p", &"0".repeat(MAX_X11 + 2)),
        x11(&"p".repeat(MAX_X11 + 1), "00"),
    ] {
        assert!(xauth_script(&bad, 10).is_err(), "{bad:?}");
    }
}

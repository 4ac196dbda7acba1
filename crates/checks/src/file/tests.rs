//! The file of checks: what it may say, and what is refused with which line.

use super::*;

const GOOD: &str = r#"
interval = "5m"
[service.load]
on = ["env=prod", "db*"]
check = "load"
arguments = ["15,10,5", "-1", ""]
interval = "60s"
timeout = "30s"
login = "nagios"
secrets = { PASSWORD = "/etc/x=y", TOKEN = "/etc/token" }
container = "web"
failure_threshold = 3
success_threshold = 2
initial_delay = "45s"
[service."disk of /"]
on = ["*"]
check = "disk"
"#;

#[test]
fn a_file_says_what_runs_where_and_how_often() {
    let file = ChecksFile::parse(GOOD).expect("read");
    let load = &file.services["load"];
    assert_eq!(load.on, ["env=prod", "db*"]);
    assert_eq!((load.interval.as_secs(), load.options.timeout), (60, 30));
    assert_eq!(load.options.login.as_deref(), Some(&b"nagios"[..]));
    assert_eq!(load.options.login_name(), b"nagios+web");
    let thresholds = |failure, success| Thresholds { failure, success };
    assert_eq!(
        (load.thresholds, load.initial_delay.as_secs()),
        (thresholds(3, 2), 45)
    );
    let disk = &file.services["disk of /"];
    assert_eq!(
        (disk.thresholds, disk.initial_delay.as_secs()),
        (thresholds(1, 1), 0)
    );
    assert_eq!((disk.interval.as_secs(), disk.options.timeout), (300, TIMEOUT));
    let usual = ChecksFile::parse("[service.x]\non = [\"*\"]\ncheck = \"x\"").expect("read");
    assert_eq!(usual.services["x"].interval, USUAL_INTERVAL);
    // For two turns at least, unless the file says for how long.
    assert_eq!(usual.services["x"].options.keep, KEEP);
    let kept = |lines: &str| {
        let file = ChecksFile::parse(&format!("{lines}\n[service.x]\non = [\"*\"]\ncheck = \"x\""));
        file.expect("read").services["x"].options.keep
    };
    assert_eq!(kept("interval = \"1h\""), 7200);
    assert_eq!(kept("interval = \"1d\""), MAX_KEEP);
    assert_eq!((kept("keep = \"5m\""), kept("keep = 300")), (300, 300));
    assert_eq!(kept("interval = \"1h\"\nkeep = \"always\""), ALWAYS);
    // What is started with these words is the same check.
    let options = Options {
        host: b"web1".to_vec(),
        home: Some(b"/h".to_vec()),
        ..load.options.clone()
    };
    let words = words(&options);
    let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
    assert_eq!(parse(&words), Ok(Invocation::Run(options)));
}

#[test]
fn a_bad_file_is_refused_with_the_line_and_the_remedy() {
    let service = |line: &str| format!("[service.x]\non = [\"*\"]\ncheck = \"x\"\n{line}");
    let many: String = (0..=MAX_SERVICES)
        .map(|n| format!("[service.s{n}]\non = [\"*\"]\ncheck = \"x\"\n"))
        .collect();
    for (text, line, why) in [
        (String::new(), 1, "begin one with [service.NAME]"),
        (many, 1, "use several files"),
        (
            "intervall = \"5m\"".into(),
            1,
            "unknown field `intervall`, expected one of `interval`, `keep`, `service`",
        ),
        (
            service("argument = []"),
            4,
            "unknown field `argument`, did you mean `arguments`?",
        ),
        (
            service("secrets = { PASSWORD = \"hunter2\" }"),
            4,
            "the absolute path of the file",
        ),
        (
            service("secrets = { 1 = \"/etc/x\" }"),
            4,
            "the absolute path of the file",
        ),
        (
            "keep = \"0s\"".into(),
            1,
            "keep is a time from 1s to 1d, or \"always\"",
        ),
        ("keep = \"2d\"".into(), 1, "keep is a time from 1s to 1d"),
        ("keep = \"ever\"".into(), 1, "keep is a time from 1s to 1d"),
        ("keep = -1".into(), 1, "keep is a time from 1s to 1d"),
        ("keep = true".into(), 1, "keep is a time from 1s to 1d"),
        (service("interval = \"0s\""), 4, "from 1s to 1d"),
        (service("interval = \"2d\""), 4, "from 1s to 1d"),
        (service("interval = \"soon\""), 4, "\"90s\""),
        (service("timeout = \"0s\""), 4, "from 1s to 3600s"),
        (service("timeout = \"1d\""), 4, "from 1s to 3600s"),
        (service("arguments = [\"a\\nb\"]"), 4, "control characters"),
        (service("login = \"a b\""), 4, "the account has a name"),
        (service("login = \"+web\""), 4, "the account is missing"),
        (service("container = \"a b\""), 4, "the container has a name"),
        (
            service("container = [\"x\"]"),
            4,
            "`service.x.container` is a text in quotes, not a list: write container = \"web\"",
        ),
        (
            "[service.x]\non = \"web1\"\ncheck = \"x\"".into(),
            2,
            "`service.x.on` is a list, not the text \"web1\": write on = [\"env=prod\", \"db*\"]",
        ),
        (
            service("timeout = 30s"),
            4,
            "`service.x.timeout`: 30s is no value: a text stands in quotes, as \"30s\"",
        ),
        (
            service("secrets = []"),
            4,
            "`service.x.secrets` is a table, not a list: write secrets = { DB",
        ),
        (
            "service = 3".into(),
            1,
            "`service` is a table, not the number 3: write [service.NAME]",
        ),
        (service("container = \"\""), 4, "the container has a name"),
        (
            service("container = \"web-*\""),
            4,
            "\"web-*\" is a pattern, and a check runs in one container",
        ),
        (
            "[service.x]\non = [\"db1+web-1\"]\ncheck = \"x\"".into(),
            2,
            "write on = [\"db1\"] and container = \"web-1\"",
        ),
        (
            format!("\n{}", service("container = \"a\"\nlogin = \"ann+b\"")),
            2,
            "\"ann+b\" names a container already",
        ),
        (
            service("failure_threshold = 0"),
            4,
            "failure_threshold is a number",
        ),
        (service("failure_threshold = -1"), 4, "from 1 to 1000"),
        (service("failure_threshold = 1001"), 4, "from 1 to 1000"),
        (service("failure_threshold = 1.5"), 4, "from 1 to 1000"),
        (
            service("failure_threshold = \"3\""),
            4,
            "failure_threshold is a number of results in a row, from 1 to 1000: write failure_threshold = 3",
        ),
        (
            service("success_threshold = 0"),
            4,
            "success_threshold is a number",
        ),
        (service("success_threshold = true"), 4, "from 1 to 1000"),
        (
            service("initial_delay = \"0s\""),
            4,
            "an initial_delay is from 1s to 1d",
        ),
        (
            service("initial_delay = \"2d\""),
            4,
            "an initial_delay is from 1s to 1d",
        ),
        (service("initial_delay = \"later\""), 4, "\"90s\""),
        (
            "\n[service.x]\non = []\ncheck = \"x\"".into(),
            3,
            "1 to 64 selectors",
        ),
        (
            "[service.x]\non = [\" \"]\ncheck = \"x\"".into(),
            2,
            "every node: on = [\"*\"]",
        ),
        (
            "[service.x]\non = [\"a=b=c,,\"]\ncheck = \"x\"".into(),
            2,
            "the selector",
        ),
        (
            "[service.x]\non = [\"*\"]\ncheck = \"x;id\"".into(),
            3,
            "the check has a name",
        ),
        (
            "[service.x]\non = [\"*\"]".into(),
            1,
            "missing field `check` in [service.x]: write check = \"load\"",
        ),
        (
            "[service.\"x;y\"]\non = [\"*\"]\ncheck = \"x\"".into(),
            1,
            "a name that is not taken",
        ),
        (
            "[service.\"\"]\non = [\"*\"]\ncheck = \"x\"".into(),
            1,
            "a name that is not taken",
        ),
        ("x".into(), 1, ""),
    ] {
        let error = ChecksFile::parse(&text).expect_err(&text);
        assert!(error.why.contains(why), "{text}: {error}");
        assert_eq!(error.line, line, "{text}: {error}");
        assert!(!error.to_string().contains('\n'), "{error}");
    }
}

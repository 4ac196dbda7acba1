//! What node.toml says and how its errors read.

use super::*;
use fleetgate_policy::{Recording, RecordingFailure};

fn parse(text: &str) -> Result<Config, String> {
    Config::parse(Path::new("node.toml"), text).map_err(|e| e.to_string())
}

#[test]
fn an_empty_file_is_the_default() {
    assert_eq!(parse("").expect("empty"), Config::default());
}

#[test]
fn times_and_sizes_have_units() {
    for (text, seconds) in [("90", 90), ("\"90s\"", 90), ("\"10m\"", 600), ("\"2h\"", 7200)] {
        let config = parse(&format!("alive_interval = {text}")).expect(text);
        assert_eq!(config.alive_interval, Duration::from_secs(seconds), "{text}");
    }
    for (text, bytes) in [("70000", 70_000), ("\"64K\"", 65536), ("\"1G\"", 1 << 30)] {
        let config = parse(&format!("rekey_bytes = {text}")).expect(text);
        assert_eq!(config.rekey_bytes, Size(bytes), "{text}");
    }
}

#[test]
fn the_section_recording_is_read() {
    let said = "[recording]\nsessions = \"output\"\non_failure = \"go-on\"\ndirectory = \"/srv/recordings\"\nkeep_days = 90\n\
                max_size = \"2G\"\nrecipients = [\"age1dc3xeggyp2p9556c0r8nplujq2tga0rguvtcp9hz97kwywghd4pqycqsp2\"]";
    let config = parse(said).expect(said);
    let wanted = recording::Settings {
        sessions: Recording::Output,
        on_failure: RecordingFailure::GoOn,
        recipients: vec![
            "age1dc3xeggyp2p9556c0r8nplujq2tga0rguvtcp9hz97kwywghd4pqycqsp2"
                .parse()
                .expect("a key"),
        ],
        directory: "/srv/recordings".into(),
        keep_days: 90,
        max_size: Size(2 << 30),
    };
    assert_eq!(config.recording, wanted);
    let unbounded = parse("[node.recording]\nmax_size = 0").expect("a section of a section");
    let wanted = recording::Settings {
        max_size: Size(0),
        ..recording::Settings::default()
    };
    assert_eq!(unbounded.recording, wanted);
}

#[test]
fn recordings_lie_in_the_state_directory_unless_the_file_names_another() {
    for (text, directory) in [
        ("", recording::DIRECTORY),
        ("[recording]\nkeep_days = 9", recording::DIRECTORY),
        ("[auth]\nx = 1", recording::DIRECTORY),
        (
            "[node]\nlisten = []\nstate_directory = \"/srv/one\"",
            "/srv/one/recordings",
        ),
        (
            "state_directory = \"/srv/one\"\n[recording]\nkeep_days = 9",
            "/srv/one/recordings",
        ),
        (
            "state_directory = \"/srv/one\"\n[recording]\ndirectory = \"/srv/two\"",
            "/srv/two",
        ),
        (
            "state_directory = \"/srv/one\"\n[recording]\ndirectory = \"/var/lib/fleetgate/recordings\"",
            recording::DIRECTORY,
        ),
    ] {
        assert_eq!(
            parse(text).expect(text).recording.directory,
            Path::new(directory),
            "{text}"
        );
    }
}

#[test]
fn an_error_names_its_line_and_what_was_expected() {
    for (text, place, part) in [
        (
            "listen = 22",
            "node.toml:1:10: ",
            "`listen` is a list, not the number 22: write listen = [\"[::]:22\"]",
        ),
        (
            "containers = \"web\"",
            "node.toml:1:14: ",
            "`containers` is a list, not the text \"web\": write containers = [\"deploy+web*\"]",
        ),
        (
            "[limits]\ntries = \"6\"",
            "node.toml:2:9: ",
            "`limits.tries` is a number from 0 to 4294967295, not the text \"6\": write tries = 6",
        ),
        (
            "[node]\ncontainers = [web]",
            "node.toml:2:15: ",
            "`node.containers`: web is no value: a text stands in quotes, as \"web\": write containers = [\"deploy+web*\"]",
        ),
        (
            "[commands.x]\nargv = \"uptime\"",
            "node.toml:2:8: ",
            "`commands.x.argv` is a list",
        ),
        (
            "[recording]\nsessions = \"all\"",
            "node.toml:2:12: ",
            "`recording.sessions` is one of `events`, `output`, `full`, not `all`",
        ),
        (
            "[recording]\nsessions = true",
            "node.toml:2:12: ",
            "`recording.sessions` is a text in quotes, not true: write sessions = \"output\"",
        ),
        (
            "[limits]\nsessions = \"many\"",
            "node.toml:2:12: ",
            "`limits.sessions` is a number from 0 to 4294967295, not the text \"many\": write sessions = 10",
        ),
        (
            "[recording]\non_failure = \"refuse\"",
            "node.toml:2:14: ",
            "`recording.on_failure` is `go-on` or `end`, not `refuse`",
        ),
        (
            "[recording]\nrecipients = [\"ssh-ed25519 AAAA\"]",
            "node.toml:2:14: ",
            "the recipient \"ssh-ed25519 AAAA\" is no key of age: it begins with age1",
        ),
        (
            "[recording]\nrecipients = \"age1\"",
            "node.toml:2:14: ",
            "`recording.recipients` is a list, not the text \"age1\": write recipients = [",
        ),
        (
            "[recording]\ndirectory = \"recordings\"",
            "node.toml:2:13: ",
            "\"recordings\" is no path from / on: begin it with /",
        ),
        (
            "[recording]\nkeep_days = \"90d\"",
            "node.toml:2:13: ",
            "`keep_days` is a number of days without quotes: write keep_days = 90",
        ),
        (
            "[recording]\nmax_size = \"10GB\"",
            "node.toml:2:12: ",
            "a number of bytes such as",
        ),
        (
            "recording = \"full\"",
            "node.toml:1:13: ",
            "`recording` is a table, not the text \"full\": write [recording] and its keys in the lines below",
        ),
        (
            "listen = [\"127.0.0.1:99999\"]",
            "node.toml:1:11: ",
            "an entry of `listen` is an address with its port, as \"127.0.0.1:22\"",
        ),
        (
            "[node]\nlisten = []\n[limits]\ntries = 3",
            "node.toml:3:2: ",
            "stands below `node` here, as [node.limits]",
        ),
        (
            "\npassword = true\nroot_login = \"maybe\"",
            "node.toml:3:14: ",
            "`root_login` is one of `yes`, `prohibit-password`, `forced-commands-only`, `no`, not `maybe`",
        ),
        ("paswword = true", "node.toml:1:1: ", "unknown field `paswword`"),
        (
            "[limits]\nlogin_grace = \"soon\"",
            "node.toml:2:15: ",
            "a time such as",
        ),
        (
            "rekey_bytes = \"99999999999999999999G\"",
            "node.toml:1:15: ",
            "a number of bytes such as",
        ),
        ("alive_interval = -1", "node.toml:1:18: ", "a time such as"),
        (
            "[limits]\ntries = 0",
            "node.toml:2:9: ",
            "0 would let nobody log in",
        ),
        (
            "[limits]\nconnections = 0",
            "node.toml:2:15: ",
            "0 would let nobody log in",
        ),
        (
            "sftp_chroot = \"jail\"",
            "node.toml:1:15: ",
            "\"jail\" is no directory from / on",
        ),
        ("force_command = \"\"", "node.toml:1:17: ", "is empty"),
        ("state_directory = \"\"", "node.toml:1:19: ", "is empty"),
        (
            "audit_log = \"audit.jsonl\"",
            "node.toml:1:13: ",
            "\"audit.jsonl\" is no path from / on",
        ),
        (
            "[limits]\nlogin_grace = \"0s\"",
            "node.toml:2:15: ",
            "less than a second would let nobody log in",
        ),
        (
            "accept_env = [\"LANG\", \"A B\"]",
            "node.toml:1:14: ",
            "\"A B\" is no pattern of names",
        ),
        (
            "containers = [\"root+*\", \"deploy\"]",
            "node.toml:1:14: ",
            "`containers`: \"deploy\" fits no login: no container stands behind the account: write deploy+* for all of them",
        ),
        (
            "containers = [\"{user}+web\"]",
            "node.toml:1:14: ",
            "\"{user}+web\" fits no login: \"{user}\" is no account's name",
        ),
        (
            "containers = [\"*+web\"]",
            "node.toml:1:14: ",
            "\"*+web\" fits no login: \"*\" is no account's name, and only the container may be a pattern",
        ),
        (
            "containers = [\"deploy+\"]",
            "node.toml:1:14: ",
            "\"deploy+\" fits no login: no container stands behind the `+`: write deploy+* for all of them",
        ),
        (
            "containers = [\"+web\"]",
            "node.toml:1:14: ",
            "\"+web\" fits no login: no account stands before the `+`: write it there, as root+web",
        ),
        (
            "containers = [\"deploy+{user}\"]",
            "node.toml:1:14: ",
            "any container is deploy+*",
        ),
        (
            "containers = [\"root++\"]",
            "node.toml:1:14: ",
            "one `+` is enough: write root+*",
        ),
        (
            "containers = [\"root +a\"]",
            "node.toml:1:14: ",
            "there are spaces around the account",
        ),
        (
            "containers = [\"root+a b\"]",
            "node.toml:1:14: ",
            "write \"root+a\", \"root+b\"",
        ),
        (
            "containers = [\"root+a,b\"]",
            "node.toml:1:14: ",
            "write \"root+a\", \"root+b\"",
        ),
        (
            "containers = [\"web*\"]",
            "node.toml:1:14: ",
            "no account stands before it: write ACCOUNT+web*, as root+web*",
        ),
        (
            "containers = [\"app=web\"]",
            "node.toml:1:14: ",
            "labels choose containers in a cluster's roles only",
        ),
        (
            "container = [\"root+a\"]",
            "node.toml:1:1: ",
            "did you mean `containers`?",
        ),
        (
            "set_env = { \"A B\" = \"1\" }",
            "node.toml:1:11: ",
            "\"A B\" is no name of a variable",
        ),
        (
            "set_env = { FLEETGATE_USER = \"ada\" }",
            "node.toml:1:11: ",
            "the node sets FLEETGATE_USER itself",
        ),
        (
            "[commands.a]\nargv = [\"/bin/true\"]\nenvironment = { \"A B\" = \"1\" }",
            "node.toml:3:15: ",
            "\"A B\" is no name of a variable",
        ),
    ] {
        let error = parse(text).expect_err(text);
        assert!(
            error.starts_with(place) && error.contains(part),
            "{text}: {error}"
        );
    }
}

#[test]
fn examples_are_right() {
    for (key, line) in types::EXAMPLES.iter().filter(|(_, line)| !line.starts_with('[')) {
        let text = match *key {
            "argv" => format!("[commands.x]\n{line}"),
            "args" => format!("[commands.x]\nargv = [\"/x\", \"{{}}\"]\n{line}"),
            "command" => format!("[label_commands.x]\n{line}"),
            "recording.sessions" | "on_failure" | "recipients" => format!("[recording]\n{line}"),
            _ => (*line).to_owned(),
        };
        parse(&text).expect(line);
    }
}

#[test]
fn keys_are_not_replaced_more_often_than_a_session_can_live_with() {
    for (text, part) in [
        ("rekey_bytes = 16", "rekey_bytes of 16: "),
        ("rekey_bytes = \"63K\"", "rekey_bytes of 64512: "),
        ("rekey_after = \"999ms\"", "rekey_after of 999 ms: "),
    ] {
        let error = parse(text).expect_err(text);
        assert!(
            error.starts_with("node.toml:1:15: ") && error.contains(part),
            "{text}: {error}"
        );
    }
    for text in [
        "rekey_bytes = 0",
        "rekey_bytes = \"64K\"",
        "rekey_after = 0",
        "rekey_after = \"1s\"",
    ] {
        parse(text).expect(text);
    }
}

/// Every key, as the error about an unknown one lists them.
fn keys(unknown: &str) -> Vec<String> {
    let error = parse(unknown).expect_err("an unknown key");
    let listed = error.split("expected one of ").nth(1).expect("a list");
    listed
        .split(", ")
        .map(|key| key.trim().trim_matches('`').to_owned())
        .collect()
}

#[test]
fn every_key_is_documented() {
    let page = include_str!("../../../docs/node.md");
    let documented: Vec<&str> = page
        .lines()
        .filter(|line| line.starts_with("| `"))
        .flat_map(|line| line.split('|').nth(1).unwrap_or_default().split(", "))
        .map(|key| key.trim().trim_matches('`'))
        .collect();
    let mut expected = keys("no_such_key = 1");
    expected.extend(keys("[limits]\nno_such_key = 1"));
    expected.extend(keys("[strangers]\nno_such_key = 1"));
    expected.extend(keys("[recording]\nno_such_key = 1"));
    expected.extend(keys("[commands.check]\nargv = [\"/bin/true\"]\nno_such_key = 1"));
    for key in &expected {
        assert!(
            documented.contains(&key.as_str()),
            "docs/node.md does not explain `{key}`"
        );
    }
    for key in documented {
        assert!(
            expected.iter().any(|k| k == key),
            "docs/node.md explains `{key}`, which is no key"
        );
    }
}

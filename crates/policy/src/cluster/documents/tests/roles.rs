//! Files of roles: what is written is read again, what is wrong is named with its line, and every key is documented.

use super::{dba, dev};
use crate::cluster::*;
use crate::recording::{Recording, RecordingFailure};

const FILE: &str = r#"
[role.dba]
nodes = ["env=prod,role=db", "bastion*"]
logins = ["{user}", "postgres", "postgres+db-*"]
containers = ["app=db|cache", "tier!=front"]
kinds = ["shell", "terminal", "forward", "sftp"]
commands = ["disk", "load"]
require_mfa = "15m"
require_trusted_device = true
recording = "full"
recording_failure = "go-on"
audit = "files"
io_uring = "refuse"
unwatched = "allow"
lifetime = "8h"
renewal = "90d"
session = 3600
sessions = 4
admin = true

[role.dba.command.vacuum]
argv = ["/usr/bin/vacuumdb", "--dbname", "{}"]
args = ["word"]
timeout = "2m"
environment = { LC_ALL = "C" }

[role."eu.dev"]
nodes = ["env=dev"]
logins = ["{user}"]
"#;

#[test]
fn role_files_are_read_and_written() {
    let roles = parse_roles("roles.toml", FILE).unwrap();
    assert_eq!(roles, [dba(), dev()]);
    let written = write_roles(&roles);
    assert_eq!(
        written,
        r#"[role."dba"]
nodes = ["env=prod,role=db","bastion*"]
logins = ["{user}","postgres","postgres+db-*"]
containers = ["app=db|cache","tier!=front"]
kinds = ["shell","sftp","terminal","forward"]
commands = ["disk","load"]
require_mfa = "15m"
require_trusted_device = true
recording = "full"
recording_failure = "go-on"
audit = "files"
io_uring = "refuse"
unwatched = "allow"
lifetime = "8h"
renewal = "90d"
session = "1h"
sessions = 4
admin = true
[role."dba".command."vacuum"]
argv = ["/usr/bin/vacuumdb","--dbname","{a1}"]
arguments = [{ "name" = "a1", "form" = "word" }]
timeout = "2m"
environment = { "LC_ALL" = "C" }

[role."eu.dev"]
nodes = ["env=dev"]
logins = ["{user}"]
"#
    );
    assert_eq!(parse_roles("roles.toml", &written).unwrap(), roles);
    for role in roles {
        assert_eq!(Role::parse_json(role.to_json().as_bytes()).unwrap(), role);
    }
}

#[test]
fn a_stored_role_with_a_login_for_nobody_is_read_and_cannot_be_applied_again() {
    for login in ["deploy+", "+web", "deploy+{user}", "root++", "a+b c"] {
        let old = format!(r#"{{"name":"x","logins":["{login}"]}}"#);
        let role = Role::parse_json(old.as_bytes()).expect(login);
        assert_eq!(role.logins, [login]);
        let refused = parse_roles("r.toml", &write_roles([&role]))
            .expect_err(login)
            .to_string();
        let place = format!("r.toml line 3: `role.x.logins`: the login {login:?}: ");
        assert!(refused.starts_with(&place), "{refused}");
    }
}

#[test]
fn a_role_that_does_not_say_what_happens_without_a_recording_ends_its_sessions() {
    for (stored, recording, failure) in [
        (r#"{"name":"x"}"#, Recording::Events, RecordingFailure::End),
        (
            r#"{"name":"x","recording":"full"}"#,
            Recording::Full,
            RecordingFailure::End,
        ),
        (
            r#"{"name":"x","recording":"output","recording_failure":"end"}"#,
            Recording::Output,
            RecordingFailure::End,
        ),
        (
            r#"{"name":"x","recording":"output","recording_failure":"go-on"}"#,
            Recording::Output,
            RecordingFailure::GoOn,
        ),
    ] {
        let role = Role::parse_json(stored.as_bytes()).expect(stored);
        assert_eq!((role.recording, role.recording_failure), (recording, failure));
        assert_eq!(
            parse_roles("r.toml", &write_roles([&role])).expect(stored),
            [role]
        );
    }
    // What an older fleetgate reads stays as it was.
    let role = Role::parse_json(br#"{"name":"x","recording":"full","recording_failure":"end"}"#).unwrap();
    assert!(
        !role.to_json().contains("recording_failure"),
        "{}",
        role.to_json()
    );
}

#[test]
fn what_is_wrong_in_a_role_file_is_named_with_its_line() {
    for (line, want) in [
        (
            "nodse = []",
            "r.toml line 2: unknown field `nodse`, expected one of `name`, `nodes`, `logins`, `containers`, `kinds`, `commands`, `command`, \
             `require_mfa`, `require_trusted_device`, `recording`, `recording_failure`, `audit`, `io_uring`, \
             `unwatched`, `lifetime`, `renewal`, `session`, `sessions`, `admin`",
        ),
        (
            "nodes = [\"web1\",\n\"Env\"]",
            "r.toml line 2: `role.x.nodes`: the selector \"Env\" has 'E' in what should be a node's name or label=value",
        ),
        (
            "logins = [\"*\"]",
            "r.toml line 2: `role.x.logins`: the login \"*\": it is an account's name or \"{user}\", not a pattern; only what stands \
             behind `+`, a container, may be one",
        ),
        (
            "logins = [\"{user}+web-*\", \"ada+*\", \"a*+web\"]",
            "r.toml line 2: `role.x.logins`: the login \"a*+web\": it is an account's name or \"{user}\", not a pattern; only what stands \
             behind `+`, a container, may be one",
        ),
        (
            "logins = [\"a/b\"]",
            "r.toml line 2: `role.x.logins`: the login \"a/b\": the user name holds a slash, a colon or a control character",
        ),
        (
            "kinds = [\"shel\"]",
            "r.toml line 2: `role.x.kinds`: \"shel\" is no kind: there are all, shell, exec, sftp, subsystem, terminal, forward, \
             connect-tcp, listen-tcp, connect-unix, listen-unix, agent, x11, environment, user-rc",
        ),
        (
            "[role.x.command.load]\nargv = [\"/bin/true\"]",
            "r.toml: role x: it lets its users run anything (`exec` among its kinds), so the commands that it defines would do \
             nothing: leave `exec` out of `kinds`, or the commands",
        ),
        (
            "kinds = []\n[role.x.command.load]\nargv = [\"/bin/true\"]\nuser = \"root\"",
            "r.toml: role x: the command load: `user` stands in a node's own file only. A role's commands run as the account \
             that logs in: put it into `logins`, or the command into node.toml",
        ),
        (
            "kinds = []\n[role.x.command.load]\nargv = [\"uptime\"]",
            "r.toml: role x: the command load: the program \"uptime\" has to be an absolute path without arguments in it",
        ),
        (
            "commands = [\"/bin/sh\"]",
            "r.toml line 2: `role.x.commands`: the command \"/bin/sh\": a command's name has 1 to 128 letters, digits and _.-",
        ),
        (
            "require_mfa = \"soon\"",
            "r.toml line 2: `role.x.require_mfa` is a time such as \"90s\", \"15m\", \"12h\", \"7d\" or a number of seconds, \
             not the text \"soon\"",
        ),
        (
            "require_mfa = -1",
            "r.toml line 2: `role.x.require_mfa` is a time such as \"90s\", \"15m\", \"12h\", \"7d\" or a number of seconds, \
             not the number -1",
        ),
        (
            "audit = \"all\"",
            "r.toml line 2: `role.x.audit` is one of `none`, `commands`, `files`, `full`, not `all`",
        ),
        (
            "io_uring = \"refuse\"",
            "r.toml: role x: io_uring and unwatched say how a watched session is to be: set audit, or leave them out",
        ),
        (
            "recording = \"all\"",
            "r.toml line 2: `role.x.recording` is one of `events`, `output`, `full`, not `all`",
        ),
        (
            "recording = true",
            "r.toml line 2: `role.x.recording` is a text in quotes, not true: write recording = \"output\"",
        ),
        (
            "recording = \"full\"\nrecording_failure = \"refuse\"",
            "r.toml line 3: `role.x.recording_failure` is `go-on` or `end`, not `refuse`",
        ),
        (
            "recording_failure = \"go-on\"",
            "r.toml: role x: recording_failure says what happens to a session that should be recorded: set recording, or leave \
             it out",
        ),
        (
            "lifetime = 59",
            "r.toml: role x: lifetime is from 1m to 30d, not 59s",
        ),
        (
            "lifetime = \"31d\"",
            "r.toml: role x: lifetime is from 1m to 30d, not 31d",
        ),
        (
            "renewal = \"11h\"",
            "r.toml: role x: renewal is from its lifetime, 12h, to 365d, not 11h",
        ),
        (
            "renewal = \"366d\"",
            "r.toml: role x: renewal is from its lifetime, 12h, to 365d, not 366d",
        ),
        (
            "sessions = 0",
            "r.toml: role x: a limit of 0 would end every session: leave it out, or take the kinds away",
        ),
        (
            "name = \"x\"",
            "r.toml: role x: its name stands in the table's line already",
        ),
        (
            "admin = \"yes\"",
            "r.toml line 2: `role.x.admin` is true or false, not the text \"yes\": write admin = true",
        ),
        (
            "[role.x.commands.load]",
            "r.toml line 2: `role.x.commands` is a list of names (a command that the role defines is a table: \
             [role.ROLE.command.NAME]), not a table: write commands = [\"disk\", \"load\"]",
        ),
        (
            "logins = \"deploy\"",
            "r.toml line 2: `role.x.logins` is a list, not the text \"deploy\": write logins = [\"{user}\", \"deploy+web*\"]",
        ),
        (
            "logins = [5]",
            "r.toml line 2: an entry of `role.x.logins` is a text in quotes, not the number 5: \
             write logins = [\"{user}\", \"deploy+web*\"]",
        ),
        (
            "# a line more\nlogins = [\"root\", \"deploy+\"]",
            "r.toml line 3: `role.x.logins`: the login \"deploy+\": no container stands behind the `+`: write deploy+* for all \
             of them, or \"deploy\" for the account itself",
        ),
        (
            "logins = [\"deploy+{user}\"]",
            "r.toml line 2: `role.x.logins`: the login \"deploy+{user}\": no container is called \"{user}\": {user} stands \
             before the `+` alone; any container is deploy+*",
        ),
        (
            "container = [\"app=web\"]",
            "r.toml line 2: unknown field `container`, did you mean `containers`?",
        ),
        (
            "logins = [\"deploy+web,db\"]",
            "r.toml line 2: `role.x.logins`: the login \"deploy+web,db\": no container is called \"web,db\": several logins \
             are several texts of the list: write \"deploy+web\", \"deploy+db\"",
        ),
        (
            "logins = [\"a+*\"]\ncontainers = []",
            "r.toml line 3: `role.x.containers`: `containers` names no label, which would let its users into every container: \
             leave the key out if that is meant, or the logins ACCOUNT+CONTAINER",
        ),
        (
            "logins = [\"a+*\"]\ncontainers = [\"web-*\"]",
            "r.toml line 3: `role.x.containers`: containers are chosen by labels, and web-* is none: a container's name stands \
             in `logins`, ACCOUNT+NAME",
        ),
        (
            "logins = [\"a\"]\ncontainers = [\"app=web\"]",
            "r.toml line 3: `role.x.containers`: none of its logins leads into a container, so `containers` would do nothing: \
             write a login ACCOUNT+*",
        ),
        (
            "logins = [\"a+*\"]\ncontainers = [\"app=x\", \"app==web\"]",
            "r.toml line 3: `role.x.containers`: the selector \"app==web\" fits nothing: one `=` is enough: write app=web",
        ),
        (
            "nodes = [\"owner={user}\"]",
            "r.toml line 2: `role.x.nodes`: the selector \"owner={user}\" fits nothing: {user} stands in `logins` alone; write \
             a value or a pattern, as owner=* for any",
        ),
        ("[rule.y]", "r.toml line 2: unknown field `rule`, expected `role`"),
        (
            "[role.Y]",
            "r.toml line 2: the name \"Y\" has 'Y' in it: a name has lower-case letters, digits and . _ -",
        ),
    ] {
        let text = format!("[role.x]\n{line}\n");
        assert_eq!(
            parse_roles("r.toml", &text).unwrap_err().to_string(),
            want,
            "{line}"
        );
    }
    assert_eq!(parse_roles("r.toml", "[role.x]\n").unwrap().len(), 1);
    let many = |count: usize| format!("[role.x]\nlogins = [{}]", "\"a\",".repeat(count));
    assert!(parse_roles("r.toml", &many(MAX_ROLE_ENTRIES)).is_ok());
    assert_eq!(
        parse_roles("r.toml", &many(MAX_ROLE_ENTRIES + 1))
            .unwrap_err()
            .to_string(),
        "r.toml: role x: it has room for 256 logins"
    );
}

#[test]
fn every_key_and_kind_of_a_role_is_documented() {
    let page = include_str!("../../../../../../docs/roles.md");
    let said = parse_roles("r.toml", "[role.x]\nno-such-key = 1")
        .unwrap_err()
        .to_string();
    let (_, known) = said.split_once("expected one of ").unwrap();
    // The name stands in the table's line.
    let known: Vec<&str> = known.split(", ").filter(|key| *key != "`name`").collect();
    let rows = page.lines().filter_map(|line| line.strip_prefix("| `"));
    let rows: Vec<String> = rows
        .map(|row| format!("`{}", row.split('|').next().unwrap().trim()))
        .collect();
    let mut sorted = (known.clone(), rows);
    sorted.0.sort();
    sorted.1.sort();
    assert_eq!(sorted.0, sorted.1);
    let said = parse_roles("r.toml", "[role.x]\nkinds = [\"no\"]")
        .unwrap_err()
        .to_string();
    let (_, kinds) = said.split_once("there are ").unwrap();
    for kind in kinds.split(", ") {
        assert!(page.contains(&format!("`{kind}`")), "{kind}");
    }
    // The page's own example is one.
    let example: Vec<&str> = page
        .lines()
        .filter_map(|line| line.strip_prefix("    "))
        .collect();
    assert_eq!(parse_roles("roles.md", &example.join("\n")).unwrap().len(), 3);
}

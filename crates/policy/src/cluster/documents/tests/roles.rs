//! Files of roles: what is written is read again, what is wrong is named with its line, and every key is documented.

use super::{dba, dev};
use crate::cluster::*;
use crate::recording::{MAX_RECIPIENTS, Recipient, Recording, RecordingFailure};

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
onward_ssh = "refuse"
recording_keep = "90d"
audit = "files"
io_uring = "refuse"
unwatched = "allow"
lifetime = "8h"
renewal = "90d"
session = 3600
sessions = 4
admin = true

[role.dba.recordings]
of = ["{user}", "web-*"]
nodes = ["env=prod"]
logins = ["root", "root+*"]
may = ["watch", "play", "watch"]

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
onward_ssh = "refuse"
recording_keep = "90d"
audit = "files"
io_uring = "refuse"
unwatched = "allow"
lifetime = "8h"
renewal = "90d"
session = "1h"
sessions = 4
admin = true
[role."dba".recordings]
of = ["{user}","web-*"]
nodes = ["env=prod"]
logins = ["root","root+*"]
may = ["play","watch"]
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
fn recipients_are_written_and_read() {
    let keys: Vec<Recipient> = (1..4).map(|n| Recipient([n; 32])).collect();
    let role = Role {
        recording_recipients: keys.clone(),
        ..dev()
    };
    let text = write_roles([&role]);
    assert!(
        text.contains(&format!("recording_recipients = [\"{}\",", keys[0])),
        "{text}"
    );
    assert_eq!(parse_roles("r.toml", &text).unwrap()[0], role);
    let many = Role {
        recording_recipients: vec![keys[0]; MAX_RECIPIENTS + 1],
        ..role
    };
    let why = parse_roles("r.toml", &write_roles([&many])).expect_err("too many");
    assert_eq!(
        why.to_string(),
        "r.toml: role eu.dev: it has room for 8 recording_recipients"
    );
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
             `require_mfa`, `require_trusted_device`, `recording`, `recording_failure`, `onward_ssh`, `recording_keep`, `recordings`, \
             `recording_recipients`, `audit`, `io_uring`, `unwatched`, `lifetime`, `renewal`, `session`, `sessions`, `admin`",
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
            "recording_recipients = [\"age1\"]",
            "r.toml line 2: `role.x.recording_recipients`: the recipient \"age1\" is no key of age: it begins with age1, and \
             `age-keygen` makes it",
        ),
        (
            "recording_failure = \"go-on\"",
            "r.toml: role x: recording_failure says what happens to a session that should be recorded: set recording, or leave \
             it out",
        ),
        (
            "recording_keep = \"90d\"",
            "r.toml: role x: recording_keep says for how long recordings are kept that this role asks for: set recording, or \
             leave it out",
        ),
        (
            "recording = \"full\"\nrecording_keep = \"90m\"",
            "r.toml: role x: recording_keep is from 1d to 36500d, not 90m",
        ),
        (
            "recordings = \"all\"",
            "r.toml line 2: `role.x.recordings` is a table, not the text \"all\": write [role.ROLE.recordings] and its keys in \
             the lines below",
        ),
        (
            "[role.x.recordings]\nmay = [\"play\"]",
            "r.toml line 2: missing field `of` in [role.x.recordings]: write of = [\"*\"]",
        ),
        (
            "[role.x.recordings]\nof = [\"*\"]\nmay = [\"read\"]",
            "r.toml line 4: an entry of `role.x.recordings.may` is one of `list`, `play`, `watch`, `join`, `delete`, not `read`",
        ),
        (
            "[role.x.recordings]\nof = [\"*\"]\nmay = []",
            "r.toml: role x: `may` of its recordings is empty, so the table would give nothing: name what may be done, as \"play\"",
        ),
        (
            "[role.x.recordings]\nof = [\"Ada\"]\nmay = [\"play\"]",
            "r.toml line 3: `role.x.recordings.of`: the user \"Ada\": it is a user's name, a pattern such as \"*\", or \
             \"{user}\": the name \"Ada\" has 'A' in it: a name has lower-case letters, digits and . _ -",
        ),
        (
            "[role.x.recordings]\nof = [\"*\"]\nmay = [\"play\"]\nlogins = [\"a/b\"]",
            "r.toml line 5: `role.x.recordings.logins`: the login \"a/b\": it is an account's name, a pattern of names such as \
             \"*\" or \"deploy+*\", or \"{user}\"",
        ),
        (
            "[role.x.recordings]\nof = [\"*\"]\nmay = [\"play\"]\nnode = [\"*\"]",
            "r.toml line 5: unknown field `node`, did you mean `nodes`?",
        ),
        (
            "[role.x.recordings]\nof = [\"*\"]\nmay = [\"play\"]\nnodes = [\"env==prod\"]",
            "r.toml line 2: `role.x.recordings`: `nodes`: the selector \"env==prod\" fits nothing: one `=` is enough: write \
             env=prod",
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
    let (role, recordings) = page.split_once("## Whose recordings").unwrap();
    for (part, file) in [
        (role, "[role.x]\nno-such-key = 1"),
        (recordings, "[role.x.recordings]\nof = []\nno-such-key = 1"),
    ] {
        let said = parse_roles("r.toml", file).unwrap_err().to_string();
        let (_, known) = said.split_once("expected one of ").unwrap();
        // The name stands in the table's line.
        let mut known: Vec<&str> = known.split(", ").filter(|key| *key != "`name`").collect();
        let rows = part.lines().filter_map(|line| line.strip_prefix("| `"));
        let mut rows: Vec<String> = rows
            .map(|row| format!("`{}", row.split('|').next().unwrap().trim()))
            .collect();
        known.sort_unstable();
        rows.sort();
        assert_eq!(known, rows);
    }
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
    assert_eq!(parse_roles("roles.md", &example.join("\n")).unwrap().len(), 4);
}

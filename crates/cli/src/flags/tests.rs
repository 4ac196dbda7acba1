//! What lines are understood as, and what is said of those that are not.

use super::value::distance;
use super::*;

fn nothing(_: &Arguments) -> Outcome {
    Ok(0)
}

const fn command(words: &'static [&'static str], flags: &'static [Flag], operands: Operands) -> Command {
    Command {
        words,
        summary: "",
        about: "",
        flags,
        operands,
        examples: &[],
        hidden: false,
        run: nothing,
    }
}

const VERIFY: &[Flag] = &[
    Flag::new("verify", Value::Pid, "").repeated(),
    Flag::new("strategy", Value::Choice("S", &["memfd", "overlay"]), ""),
    Flag::new("json", Value::None, ""),
];
const SSH: &[Flag] = &[
    Flag::new("local", Value::Text("SPEC"), "").letter('L').repeated(),
    Flag::new("no-command", Value::None, "").letter('N'),
    Flag::new("tty", Value::None, "").letter('t').repeated(),
];
const TIMES: &[Flag] = &[
    Flag::new("ttl", Value::Lifetime, ""),
    Flag::new("proxy", Value::HostPort, ""),
    Flag::new("gate", Value::Proxy, ""),
    Flag::new("label", Value::Pair("KEY=VALUE"), "").repeated(),
    Flag::new("limit", Value::Number("NUMBER"), ""),
];
const ROLES: &[Flag] = &[Flag::new("role", Value::Name("ROLE"), "")];
const FROM: &[Flag] = &[Flag::new("from", Value::Path("FILE"), "").required()];
const TABLE: &[Command] = &[
    command(&["role", "apply"], FROM, Operands::None),
    command(&["seal"], VERIFY, Operands::None),
    command(&["seal", "run"], VERIFY, Operands::Program { unless: "verify" }),
    command(&["seal", "verify"], &[], Operands::Pids),
    command(&["completions"], &[], Operands::Choice("SHELL", &["bash", "zsh"])),
    command(
        &["man"],
        &[],
        Operands::Words {
            name: "COMMAND",
            each: Value::Text("COMMAND"),
            least: 0,
            most: 1,
        },
    ),
    command(&["login"], &[], Operands::None),
    command(&["join"], &[], Operands::None),
    command(&["user", "lock"], &[], Operands::None),
    command(
        &["choose"],
        &[],
        Operands::Choice("SHELL", &["bash", "zsh", "fish"]),
    ),
    command(&["session"], &[], Operands::Anything),
    command(
        &["user", "add"],
        ROLES,
        Operands::Words {
            name: "USER",
            each: Value::Name("USER"),
            least: 1,
            most: 1,
        },
    ),
    command(&["user", "ls"], TIMES, Operands::None),
    command(
        &["ssh"],
        SSH,
        Operands::Words {
            name: "NODE",
            each: Value::Text("NODE"),
            least: 1,
            most: 3,
        },
    ),
    command(&["scp"], &[], Operands::PassedOn("ARGUMENT")),
];

/// What a line is understood as: the command, flags with values, operands; or what is wrong with it.
fn read(line: &str) -> String {
    let args: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
    match parse(TABLE, &args) {
        Ok(Invocation::Run(given)) => {
            let flags = given
                .flags
                .iter()
                .map(|(n, v)| format!(" {n}={v}"))
                .collect::<String>();
            let operands = given.operands.iter().map(|o| format!(" {}", o.to_string_lossy()));
            format!(
                "{}:{flags} |{}",
                given.command.words.join(" "),
                operands.collect::<String>()
            )
        }
        Ok(Invocation::Help(command)) => format!("help {}", command.words.join(" ")),
        Ok(Invocation::Overview { group, .. }) => ["overview".to_owned(), group.join(" ")]
            .join(" ")
            .trim_end()
            .to_owned(),
        Err(usage) => usage.what,
    }
}

#[test]
fn lines_are_understood() {
    for (line, meaning) in [
        ("seal run ls -l", "seal run: | ls -l"),
        (
            "seal run --strategy memfd -- ls --json",
            "seal run: strategy=memfd | ls --json",
        ),
        (
            "seal run --strategy=overlay -- --odd",
            "seal run: strategy=overlay | --odd",
        ),
        ("--log-level debug seal run ls", "seal run: log-level=debug | ls"),
        ("seal run --verify 1 --verify 2", "seal run: verify=1 verify=2 |"),
        ("seal --verify 7", "seal: verify=7 |"),
        ("seal verify 1 2", "seal verify: | 1 2"),
        ("man", "man: |"),
        ("man --log-format json x", "man: log-format=json | x"),
        ("session --help --order", "session: | --help --order"),
        ("completions zsh", "completions: | zsh"),
        ("seal run --help", "help seal run"),
        ("seal run -h", "help seal run"),
        ("", "overview"),
        ("--help", "overview"),
        ("seal --help", "help seal"),
        ("user", "overview user"),
        ("user --help", "overview user"),
        ("user add alice", "user add: | alice"),
        ("ssh web1 ls -N", "ssh: no-command= | web1 ls"),
        ("ssh web1 -N", "ssh: no-command= | web1"),
        (
            "ssh -NL 1:a:2 -L3:b:4 web1",
            "ssh: no-command= local=1:a:2 local=3:b:4 | web1",
        ),
        ("ssh -tt web1 -- top -d", "ssh: tty= tty= | web1 top -d"),
        ("ssh --tty web1", "ssh: tty= | web1"),
        ("ssh -h", "help ssh"),
        ("scp -r a web1:b", "scp: | -r a web1:b"),
        ("scp --help", "help scp"),
        (
            "user ls --gate gate.example.org",
            "user ls: gate=gate.example.org |",
        ),
        ("user ls --gate [::1]:443", "user ls: gate=[::1]:443 |"),
        ("user ls --gate 2001:db8::1", "user ls: gate=2001:db8::1 |"),
        (
            "user ls --ttl 8h --proxy [::1]:3080 --label a=b=c --limit 3",
            "user ls: ttl=8h proxy=[::1]:3080 label=a=b=c limit=3 |",
        ),
    ] {
        assert_eq!(read(line), meaning, "{line}");
    }
}

#[test]
fn mistakes_are_named_with_what_would_be_right() {
    for (line, what) in [
        ("sael run", "there is no command `sael`; did you mean `seal`?"),
        ("seal ruin x", "there is no command `ruin`; did you mean `run`?"),
        ("frobnicate", "there is no command `frobnicate`"),
        ("loign", "there is no command `loign`; did you mean `login`?"),
        (
            "user unlock ada",
            "there is no command `unlock`; `fleetgate lock rm ID` takes a lock back",
        ),
        ("unman", "there is no command `unman`"),
        (
            "exec web ls",
            "there is no command `exec`; `fleetgate container exec` runs a program in a container of this machine, `fleetgate \
             ssh NODE COMMAND` one on a node",
        ),
        ("choose tcsh", "SHELL is one of bash, zsh, fish, not `tcsh`"),
        (
            "seal run --stratgy memfd x",
            "there is no flag `--stratgy`; did you mean `--strategy`?",
        ),
        ("seal run -x", "there is no flag `-x`"),
        (
            "seal run --strategy",
            "`--strategy` wants a value: one of memfd, overlay",
        ),
        (
            "seal run --strategy memdf x",
            "`--strategy` wants one of memfd, overlay, not `memdf`; did you mean `memfd`?",
        ),
        ("seal run --json=yes x", "`--json` takes no value"),
        ("seal run --json --json x", "`--json` is given twice"),
        ("seal run", "PROGRAM is missing: what is to be run"),
        (
            "seal run --verify 1 ls",
            "`--verify` runs nothing: `ls` is too much",
        ),
        (
            "seal run --verify 0",
            "`--verify` wants the id of a process, not `0`",
        ),
        ("seal verify", "PID is missing: the id of a process"),
        ("seal verify x", "`x` is not the id of a process"),
        ("completions", "SHELL is missing: one of bash, zsh"),
        (
            "completions bsh",
            "SHELL is one of bash, zsh, not `bsh`; did you mean `bash`?",
        ),
        ("completions bash x", "`x` is one word too many"),
        ("man a b", "`b` is one word too many"),
        ("user add", "USER is missing"),
        ("user add a b", "`b` is one word too many"),
        ("ssh", "NODE is missing"),
        ("ssh -x web1", "there is no flag `-x`"),
        ("ssh -L", "`-L` wants a value: SPEC, which is not empty"),
        (
            "user ls --ttl 8y",
            "`--ttl` wants a time, as 90s, 10m, 8h or 7d, not `8y`",
        ),
        (
            "user ls --gate gate:ssh",
            "`--gate` wants a host, as proxy.example.org or proxy.example.org:3080, not `gate:ssh`",
        ),
        (
            "user ls --proxy ::1:22",
            "`--proxy` wants a host with its port, as host.example.org:3080, not `::1:22`",
        ),
        (
            "user ls --label =b",
            "`--label` wants KEY=VALUE, a name and a value, not `=b`",
        ),
        ("user ls --limit -1", "`--limit` wants a number, not `-1`"),
        ("user ls --label a=1 --label a=2", "`--label` gives `a` twice"),
        // The place is where the word stands, whatever stands elsewhere.
        (
            "user add A --role A",
            "`--role`: the name \"A\" has 'A' in it: a name has lower-case letters, digits and . _ -",
        ),
        (
            "user add A --role a",
            "USER: the name \"A\" has 'A' in it: a name has lower-case letters, digits and . _ -",
        ),
        ("role apply", "`--from` is missing: a file"),
    ] {
        assert_eq!(read(line), what, "{line}");
    }
}

#[test]
fn distances() {
    for (a, b, d) in [
        ("", "", 0),
        ("a", "", 1),
        ("abc", "abd", 1),
        ("stratgy", "strategy", 1),
        ("ab", "ba", 1),
        ("loign", "login", 1),
        ("abc", "cab", 2),
    ] {
        assert_eq!(distance(a, b), d, "{a} {b}");
    }
}

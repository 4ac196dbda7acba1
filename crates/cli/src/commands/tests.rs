//! Every mistake that can be made at every command and flag of the program's table. Each is refused before anything is done, with
//! one sentence that names the wrong word once, and a line that says where help is.

use super::COMMANDS;
use crate::flags::{Command, Flag, GLOBAL, Invocation, Operands, Value, parse};
use fleetgate_base::exit;
use fleetgate_policy::text;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

/// Read by commands themselves.
fn is_read_here(command: &Command) -> bool {
    !matches!(
        command.operands,
        Operands::PassedOn(_) | Operands::Anything | Operands::Ssh
    )
}

/// A word of this kind, and one that is none; none: there is no wrong one.
fn words_of(value: Value) -> (&'static str, Option<&'static str>) {
    match value {
        Value::None => ("", None),
        Value::Choice(_, words) => (words[0], Some("zqzq")),
        Value::Pid => ("1", Some("0")),
        Value::Path(_) | Value::Text(_) => ("zq", Some("")),
        Value::Address => ("127.0.0.1:1", Some("zqzq")),
        Value::Name(_) => ("zq", Some("ZQ zq")),
        Value::AccountName => ("zq", Some("zq/zq")),
        Value::Selector => ("env=zq", Some("ZQ zq")),
        Value::Session => ("7eb5cf00", Some("zqzq")),
        Value::UserAtNode => ("zq@zq", Some("zqzq")),
        Value::Connection => ("7", Some("0")),
        Value::HostPort => ("zq:1", Some("zqzq")),
        Value::Proxy => ("zq", Some("zq:zq")),
        Value::Lifetime => ("0", Some("5y")),
        Value::Ttl => ("1h", Some("0")),
        Value::Moment => ("today", Some("zqzq")),
        Value::Pair(_) => ("zq=zq", Some("zqzq")),
        Value::Number(_) => ("7", Some("-7")),
    }
}

/// A flag in every spelling.
fn spellings(flag: &Flag) -> Vec<String> {
    let long = (!flag.long.is_empty()).then(|| format!("--{}", flag.long));
    long.into_iter()
        .chain(flag.short.map(|letter| format!("-{letter}")))
        .collect()
}

/// The flags that a command cannot do without.
fn required(command: &Command) -> Vec<OsString> {
    let flags = command.flags.iter().filter(|flag| flag.required);
    flags
        .flat_map(|flag| [format!("--{}", flag.long).into(), words_of(flag.value).0.into()])
        .collect()
}

/// The least words that the command takes, and the most.
fn operands(command: &Command) -> (Vec<OsString>, Option<Vec<OsString>>) {
    let some = |word: &str, n: usize| vec![OsString::from(word); n];
    match command.operands {
        Operands::None => (Vec::new(), Some(Vec::new())),
        Operands::Choice(_, words) => (some(words[0], 1), Some(some(words[0], 1))),
        Operands::Words {
            each, least, most, ..
        } => (some(words_of(each).0, least), Some(some(words_of(each).0, most))),
        Operands::Pids => (some("1", 1), None),
        Operands::Program { .. } => (some("zq", 1), None),
        _ => (Vec::new(), None),
    }
}

fn line(command: &Command, parts: &[&[OsString]]) -> Vec<OsString> {
    let words = command.words.iter().map(OsString::from);
    words.chain(parts.concat()).collect()
}

/// How often a message names a word: a flag as it is, a value in quotation marks.
fn times(what: &str, wrong: &str) -> usize {
    match wrong.starts_with('`') || wrong.contains(" is missing") {
        true => what.matches(wrong).count(),
        false => what.matches(&format!("`{wrong}`")).count() + what.matches(&format!("{wrong:?}")).count(),
    }
}

/// Refuses the line, and names `wrong` in it.
fn refused(command: &Command, args: &[OsString], wrong: &str) {
    let Err(usage) = parse(COMMANDS, args) else {
        panic!("{args:?} is understood");
    };
    let (said, path) = (usage.to_string(), command.words.join(" "));
    let (what, help) = said.split_once('\n').unwrap_or_default();
    assert_eq!(help, format!("try `fleetgate {path} --help`"), "{args:?}");
    assert_eq!(times(what, wrong), 1, "{args:?}: {wrong:?} in {what}");
    assert!(!what.contains(text::is_unseen), "{args:?}: {what:?}");
    // It is refused, so it runs nothing.
    assert_eq!(crate::fleetgate(args.to_vec()), usage.code(), "{args:?}");
    let gives_codes_away = command.words == ["container", "exec"];
    assert_eq!(
        usage.code(),
        if gives_codes_away { 125 } else { exit::USAGE },
        "{args:?}"
    );
}

#[test]
fn a_container_in_the_wrong_place_is_told_its_own() {
    for (line, said) in [
        (
            "run --on db1+web-1 -- true",
            "label=value; the login names a container: `--on db1 -l ACCOUNT+web-1`",
        ),
        (
            "run --on db1 --container web-1 -- true",
            "there is no flag `--container`; the login names it: `-l ACCOUNT+CONTAINER`",
        ),
        ("role test ada@db1+web-1", "write ada@db1 --login ada+web-1"),
        ("role test ada+web-1@db1", "write ada@db1 --login ada+web-1"),
        ("container ps", "there is no command `ps`; did you mean `ls`?"),
        (
            "exec web ls",
            "`fleetgate container exec` runs a program in a container",
        ),
    ] {
        let args: Vec<OsString> = line.split(' ').map(OsString::from).collect();
        let Err(usage) = parse(COMMANDS, &args) else {
            panic!("{line} is understood");
        };
        assert!(usage.to_string().contains(said), "{line}: {usage}");
    }
}

#[test]
fn every_mistake_at_every_flag_is_refused_and_named() {
    for command in COMMANDS.iter().filter(|c| is_read_here(c)) {
        let (needed, (least, _)) = (required(command), operands(command));
        let with = |more: &[OsString]| line(command, &[&needed, more, &least]);
        // The control: this much is understood.
        assert!(parse(COMMANDS, &with(&[])).is_ok(), "{:?}", with(&[]));
        refused(command, &with(&["--zqzq".into()]), "`--zqzq`");
        refused(command, &with(&["--zqzq=7".into()]), "`--zqzq`");
        refused(command, &with(&["--zq\u{1b}[2J\nzq".into()]), "`--zq");
        refused(
            command,
            &with(&[OsString::from_vec(b"--zq\xff".to_vec())]),
            "`--zq\u{fffd}`",
        );
        refused(command, &with(&["-!".into()]), "`-!`");
        for flag in command.flags.iter().chain(GLOBAL).filter(|f| f.long != "help") {
            let (good, bad) = words_of(flag.value);
            for spelled in spellings(flag) {
                let named = format!("`{spelled}`");
                let given: Vec<OsString> = match flag.value {
                    Value::None => vec![spelled.clone().into()],
                    _ => vec![spelled.clone().into(), good.into()],
                };
                let alone = |args: &[OsString]| match flag.required {
                    true => line(command, &[args, &least]),
                    false => with(args),
                };
                let is_instead =
                    matches!(command.operands, Operands::Program { unless } if unless == flag.long);
                if !is_instead {
                    assert!(parse(COMMANDS, &alone(&given)).is_ok(), "{:?}", alone(&given));
                }
                if !flag.repeats {
                    refused(command, &alone(&[given.clone(), given.clone()].concat()), &named);
                }
                if flag.value == Value::None {
                    if spelled.starts_with("--") {
                        refused(command, &with(&[format!("{spelled}=zqzq").into()]), &named);
                    }
                    continue;
                }
                // Behind a program all is the program's.
                let program = matches!(command.operands, Operands::Program { .. });
                let before: &[&[OsString]] = &[
                    if flag.required { &[] } else { &needed },
                    if program { &[] } else { &least },
                    &given[..1],
                ];
                let last = line(command, before);
                refused(command, &last, &named);
                let bytes = OsString::from_vec(b"zq\xffzq".to_vec());
                refused(command, &alone(&[given[0].clone(), bytes]), "zq\u{fffd}zq");
                if let Some(bad) = bad {
                    refused(command, &alone(&[given[0].clone(), bad.into()]), &named);
                    let place = match spelled.starts_with("--") {
                        true => format!("{spelled}={bad}"),
                        // Nothing behind a letter is no value.
                        false if bad.is_empty() => continue,
                        false => format!("{spelled}{bad}"),
                    };
                    refused(command, &alone(&[place.into()]), bad);
                }
            }
        }
    }
}

#[test]
fn every_mistake_at_every_operand_is_refused_and_named() {
    for command in COMMANDS.iter().filter(|c| is_read_here(c)) {
        let (needed, (least, most)) = (required(command), operands(command));
        if let Some(most) = most {
            refused(
                command,
                &line(command, &[&needed, &most, &["zqtoomany".into()]]),
                "`zqtoomany`",
            );
            refused(
                command,
                &line(command, &[&needed, &most, &["--".into(), "-zqtoomany".into()]]),
                "`-zqtoomany`",
            );
        }
        if !least.is_empty() {
            let named = match command.operands {
                Operands::Choice(name, _) | Operands::Words { name, .. } => name,
                Operands::Pids => "PID",
                _ => "PROGRAM",
            };
            refused(
                command,
                &line(command, &[&needed]),
                &format!("{named} is missing"),
            );
        }
        if let Some(flag) = command.flags.iter().find(|flag| flag.required) {
            let named = format!("`--{}` is missing", flag.long);
            refused(command, &line(command, &[&least]), &named);
        }
        let kind = match command.operands {
            Operands::Words { each, .. } => Some(each),
            Operands::Choice(name, words) => Some(Value::Choice(name, words)),
            Operands::Pids => Some(Value::Pid),
            _ => None,
        };
        if let Some(bad) = kind.and_then(|kind| words_of(kind).1) {
            refused(command, &line(command, &[&needed, &[bad.into()]]), bad);
        }
        if kind.is_some_and(|kind| !matches!(kind, Value::Path(_))) {
            let bytes = OsString::from_vec(b"zq\xffzq".to_vec());
            refused(command, &line(command, &[&needed, &[bytes]]), "zq\u{fffd}zq");
        }
    }
}

#[test]
fn words_that_are_no_command_are_refused_and_named() {
    let groups = COMMANDS
        .iter()
        .filter(|c| c.words.len() > 1)
        .map(|c| &c.words[..1]);
    for group in groups.chain([&[][..]]) {
        let mut args: Vec<OsString> = group.iter().map(OsString::from).collect();
        let path = group.join(" ");
        args.push("zqzq".into());
        let Err(usage) = parse(COMMANDS, &args) else {
            panic!("{args:?} is understood");
        };
        assert_eq!(usage.path, path);
        assert_eq!(usage.what.matches("`zqzq`").count(), 1, "{}", usage.what);
        assert_eq!(crate::fleetgate(args), exit::USAGE);
    }
}

/// What the table cannot say: which flags go together.
#[test]
fn what_does_not_go_together_is_refused_and_named() {
    for (args, what) in [
        ("lock add", "give one of `--user`, `--node`"),
        ("lock add --user a --node b", "`--user` and `--node` together"),
        ("user change a", "`--no-roles`"),
        (
            "user change a --role b --no-roles",
            "`--role` and `--no-roles` together",
        ),
        ("help zqzq", "`zqzq`"),
        ("help version zqzq", "`zqzq`"),
        ("seal run --verify 1 --verbose", "`--verbose`"),
        ("trace", "what is to be traced?"),
        ("trace --status zqzq", "`--status`"),
        ("trace --diff zqzq", "`--diff`"),
        ("trace -p zqzq", "`zqzq`"),
        ("trace -e zqzq zq", "zqzq"),
        ("trace -A zq", "-o is missing"),
        ("trace -z -Z zq", "-z and -Z"),
        ("sessions play", "SESSION is missing"),
        ("sessions play 7eb5cf00 --last", "SESSION and `--last` together"),
        ("sessions play 7eb5cf00 --speed 0", "--speed wants a factor"),
        (
            "sessions export 7eb5cf00 --text --svg",
            "`--text` and `--svg` together",
        ),
        ("sessions export 7eb5cf00 --at 5", "`--at` goes with `--svg`"),
        ("sessions verify 7eb5cf00 --all", "`--all`"),
        ("sessions grep -E ( --directory zq", "PATTERN"),
    ] {
        let words: Vec<OsString> = args.split_whitespace().map(OsString::from).collect();
        let Ok(Invocation::Run(given)) = parse(COMMANDS, &words) else {
            panic!("{args}: not by the table");
        };
        let error = (given.command.run)(&given).expect_err(args);
        let said = error.to_string();
        assert!(said.contains(what), "{args}: {said}");
        assert!(said.ends_with(" --help`"), "{args}: {said}");
        assert_eq!(crate::done(&given, Err(error)), exit::USAGE, "{args}");
    }
}

/// The words of ssh are read as ssh reads them; what is wrong with them is said as everywhere.
#[test]
fn mistakes_at_ssh_are_refused_and_named() {
    use fleetgate_client::ssh::options::{Options, flags::FLAGS};
    let refused = |args: &[&str], wrong: &str| {
        let words: Vec<OsString> = args.iter().map(OsString::from).collect();
        let why = match Options::parse(&words) {
            Err(why) => why.to_string(),
            Ok(_) => panic!("{args:?} is understood"),
        };
        assert_eq!(times(&why, wrong), 1, "{args:?}: {why}");
        let all = [&["ssh".into()], words.as_slice()].concat();
        let Ok(Invocation::Run(given)) = parse(COMMANDS, &all) else {
            panic!("{args:?}: ssh's words are not read here");
        };
        let code = (given.command.run)(&given).expect("it says it itself");
        assert_eq!(code, exit::USAGE, "{args:?}");
    };
    refused(&[], "NODE is missing");
    refused(&["--zqzq", "web1"], "`--zqzq`");
    refused(&["--zqzq=7", "web1"], "`--zqzq`");
    refused(&["-z", "web1"], "`-z`");
    refused(&["--explain=zqzq", "web1"], "zqzq");
    refused(&["-O", "zqzq", "web1"], "zqzq");
    refused(&["--direct=zqzq", "web1"], "`--direct`");
    refused(&["-p", "zqzq", "web1"], "zqzq");
    refused(&["-L", "zqzq", "web1"], "zqzq");
    refused(&["-D", "zq:zq", "web1"], "zq:zq");
    refused(&["-o", "Zqzq=7", "web1"], "Zqzq");
    for flag in FLAGS.iter().filter(|flag| !flag.value.is_empty()) {
        for name in spellings(&Flag {
            short: flag.letter,
            ..Flag::new(flag.long, Value::None, "")
        }) {
            // Its value may stand behind `=` alone.
            if name != "--explain" {
                refused(&["web1", &name], &format!("`{name}`"));
            }
        }
    }
}

#[test]
fn every_visible_command_is_explained() {
    for command in COMMANDS.iter().filter(|c| !c.hidden) {
        let name = command.words.join(" ");
        assert!(!command.summary.is_empty() && !command.about.is_empty(), "{name}");
        for (_, line) in command.examples {
            assert!(
                line.contains(&format!("fleetgate {name}")) || name == "seal",
                "{name}: {line}"
            );
        }
    }
}

#[test]
fn an_example_is_a_line_that_is_understood() {
    for command in COMMANDS {
        for (_, line) in command.examples {
            let words = line.trim_start_matches("source <(").split_whitespace().skip(1);
            let words = words.take_while(|w| !matches!(*w, "|" | ">"));
            let args: Vec<_> = words.map(|w| w.trim_end_matches(')').into()).collect();
            if let Err(usage) = parse(COMMANDS, &args) {
                panic!("{line}: {usage}");
            }
        }
    }
}

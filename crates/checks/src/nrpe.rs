//! `fleetgate check import`: NRPE's configuration as named commands of a node. What NRPE leaves to a shell, and what cannot be
//! carried over, is told, and stands in the output as a comment.

use fleetgate_policy::commands::Command;
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// NRPE's own time for a command, in seconds, and a node's.
const USUAL_TIMEOUT: u64 = 60;
/// What NRPE's configuration says of how arguments are filled in.
const MAX_ARGUMENT: usize = 16;

/// An imported configuration.
#[derive(Debug, PartialEq, Eq)]
pub struct Import {
    /// Tables for the node's configuration.
    pub toml: String,
    /// What a person has to know, a line each.
    pub notes: Vec<String>,
}

/// The lines that count.
#[derive(Default)]
struct Settings<'a> {
    commands: BTreeMap<&'a str, &'a str>,
    prefix: &'a str,
    timeout: Option<u64>,
    /// `dont_blame_nrpe`: clients may send arguments.
    takes_arguments: bool,
    notes: Vec<String>,
}

/// Reads the text of nrpe.cfg; `table` stands before the commands' names.
pub fn import(text: &str, table: &str) -> Import {
    let settings = read(text);
    let (mut toml, mut notes) = (String::new(), settings.notes);
    for (name, line) in &settings.commands {
        let is_empty = line.is_empty();
        let line = match settings.prefix {
            "" => (*line).to_owned(),
            prefix => format!("{prefix} {line}"),
        };
        let made = match is_empty {
            true => Err("the line is empty".to_owned()),
            false => entry(name, &line, settings.timeout, settings.takes_arguments),
        };
        match made {
            Ok((lines, note)) => {
                let _ = write!(toml, "[{table}.{}]\n{lines}\n", key(name));
                notes.extend(note.map(|note| format!("{name}: {note}")));
            }
            Err(why) => {
                let _ = write!(
                    toml,
                    "# {} is not carried over: {why}\n# {}\n\n",
                    one_line(name),
                    one_line(&line)
                );
                notes.push(format!("{}: not carried over: {why}", one_line(name)));
            }
        }
    }
    Import { toml, notes }
}

fn read(text: &str) -> Settings<'_> {
    let mut settings = Settings::default();
    for (number, line) in (1..).zip(text.lines().map(str::trim)) {
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let unknown = || {
            let line = one_line(line);
            format!("line {number}: `{line}` is left out: a command is `command[NAME]=LINE`")
        };
        let Some((key, value)) = line.split_once('=') else {
            settings.notes.push(unknown());
            continue;
        };
        let (key, value) = (key.trim(), value.trim());
        if let Some(name) = key
            .strip_prefix("command[")
            .and_then(|rest| rest.strip_suffix(']'))
        {
            if settings.commands.insert(name, value).is_some() {
                settings.notes.push(format!(
                    "{}: stands there twice; the last one counts",
                    one_line(name)
                ));
            }
            continue;
        }
        match key {
            "command_prefix" => settings.prefix = value,
            "command_timeout" => settings.timeout = value.parse().ok(),
            "dont_blame_nrpe" => {
                settings.takes_arguments = value == "1";
                if settings.takes_arguments {
                    settings.notes.push(
                        "dont_blame_nrpe: any client could send any argument to a shell. Here an argument has a form: narrow \
                         each `word` down to what the check needs"
                            .to_owned(),
                    );
                }
            }
            "allow_bash_command_substitution" if value == "1" => settings.notes.push(
                "allow_bash_command_substitution: there is no shell, so nothing is substituted".to_owned(),
            ),
            "allowed_hosts" => settings.notes.push(
                "allowed_hosts: addresses prove nothing; who may run a check is said by a role, or by a key's line in \
                 authorized_keys"
                    .to_owned(),
            ),
            "include" | "include_file" | "include_dir" => settings
                .notes
                .push(format!("{key}={}: not read; import what it names too", one_line(value))),
            // What NRPE would not take for a command either.
            _ if key.starts_with("command") || key.contains('[') => settings.notes.push(unknown()),
            _ => {}
        }
    }
    settings
}

/// The lines of one command's table, and what is to be looked at.
fn entry(
    name: &str,
    line: &str,
    timeout: Option<u64>,
    takes_arguments: bool,
) -> Result<(String, Option<String>), String> {
    let fits = |c: char| c.is_ascii_alphanumeric() || "_.-".contains(c);
    if name.is_empty() || !name.chars().all(fits) {
        return Err("a name has letters, digits and _.-".to_owned());
    }
    if line.contains(['{', '}']) {
        return Err("a brace would be read as the place of an argument".to_owned());
    }
    let numbers: Vec<usize> = (1..=MAX_ARGUMENT)
        .filter(|n| line.contains(&format!("$ARG{n}$")))
        .collect();
    if !numbers.is_empty() && !takes_arguments {
        return Err(
            "it has places for arguments, and dont_blame_nrpe is not 1, so none were ever filled in"
                .to_owned(),
        );
    }
    let mut place = line.to_owned();
    for n in numbers.iter().rev() {
        place = place.replace(&format!("$ARG{n}$"), &format!("{{arg{n}}}"));
    }
    // Of no use to a shell either.
    if let Some(macro_name) = macro_of(&place) {
        return Err(format!("{macro_name} is no macro that is filled in here"));
    }
    if is_quote_open(&place) {
        return Err("a quote is never closed".to_owned());
    }
    let (argv, note) = match words(&place) {
        Some(argv) => (argv, None),
        None if numbers.is_empty() => {
            let argv = ["/bin/sh", "-c", line].map(str::to_owned).to_vec();
            (
                argv,
                Some("it needs a shell, which is kept: a program of its own would be safer".to_owned()),
            )
        }
        None => return Err("it needs a shell, and arguments are never given to one".to_owned()),
    };
    let names: Vec<String> = numbers.iter().map(|n| format!("arg{n}")).collect();
    let arguments: Vec<(&str, &str, Option<&str>)> =
        names.iter().map(|name| (name.as_str(), "word", None)).collect();
    let refs: Vec<&str> = argv.iter().map(String::as_str).collect();
    Command::define(&refs, &arguments)?;
    let mut lines = format!("argv = [{}]\n", list(&argv));
    if !names.is_empty() {
        lines += "arguments = [\n";
        for name in &names {
            let _ = writeln!(lines, "    {{ name = {}, form = \"word\" }},", quoted(name));
        }
        lines += "]\n";
    }
    if let Some(timeout) = timeout.filter(|timeout| *timeout != USUAL_TIMEOUT) {
        let _ = writeln!(lines, "timeout = {timeout}");
    }
    let note = match names.is_empty() {
        true => note,
        false => Some("its arguments may be any `word`: narrow them down".to_owned()),
    };
    Ok((lines, note))
}

/// The words that a shell makes of a line; none where it would do more than that.
fn words(line: &str) -> Option<Vec<String>> {
    let (mut words, mut word, mut is_word) = (Vec::new(), String::new(), false);
    let mut rest = line.chars();
    while let Some(c) = rest.next() {
        match c {
            ' ' | '\t' => {
                if is_word {
                    words.push(std::mem::take(&mut word));
                }
                is_word = false;
                continue;
            }
            '\'' => loop {
                match rest.next()? {
                    '\'' => break,
                    c => word.push(c),
                }
            },
            '"' => loop {
                match rest.next()? {
                    '"' => break,
                    '$' | '`' => return None,
                    '\\' => match rest.next()? {
                        c @ ('"' | '\\' | '$' | '`') => word.push(c),
                        c => word.extend(['\\', c]),
                    },
                    c => word.push(c),
                }
            },
            '\\' => word.push(rest.next()?),
            '|' | '&' | ';' | '<' | '>' | '(' | ')' | '$' | '`' | '*' | '?' | '[' | ']' => return None,
            '#' | '~' | '!' if !is_word => return None,
            c => word.push(c),
        }
        is_word = true;
    }
    if is_word {
        words.push(word);
    }
    (!words.is_empty()).then_some(words)
}

/// The first `$NAME$` of a line.
fn macro_of(line: &str) -> Option<String> {
    let pieces: Vec<&str> = line.split('$').collect();
    let is_name = |piece: &&&str| {
        !piece.is_empty()
            && piece
                .bytes()
                .all(|c| c.is_ascii_uppercase() || c.is_ascii_digit())
    };
    // What stands between two signs, so neither the first nor the last.
    let between = pieces.get(1..pieces.len().saturating_sub(1))?;
    between.iter().find(is_name).map(|name| format!("${name}$"))
}

/// Whether a shell would wait for the end of a quote.
fn is_quote_open(line: &str) -> bool {
    let (mut quote, mut letters) = (None, line.chars());
    while let Some(c) = letters.next() {
        match (c, quote) {
            ('\\', None | Some('"')) => {
                letters.next();
            }
            ('\'' | '"', None) => quote = Some(c),
            (c, Some(open)) if c == open => quote = None,
            _ => {}
        }
    }
    quote.is_some()
}

fn list(words: &[String]) -> String {
    let words: Vec<String> = words.iter().map(|word| quoted(word)).collect();
    words.join(", ")
}

/// As TOML has it; JSON's escapes are TOML's too.
fn quoted(word: &str) -> String {
    serde_json::Value::from(word).to_string()
}

/// A name with a dot would be two.
fn key(name: &str) -> String {
    match name.contains('.') {
        true => quoted(name),
        false => name.to_owned(),
    }
}

/// For a comment or a note.
fn one_line(text: &str) -> String {
    fleetgate_policy::text::printable(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_carried_over_and_notes_say_what_to_look_at() {
        let text = "\
# command[off]=/bin/false
command_timeout=30
dont_blame_nrpe=1
allowed_hosts=127.0.0.1,10.0.0.1
include_dir=/etc/nagios/nrpe.d/
command[check_users]=/usr/lib/nagios/plugins/check_users -w 5 -c '1 0'
command[check_load]=/usr/lib/nagios/plugins/check_load -w $ARG1$ -c $ARG2$
command[check_zombies]=/bin/ps ax | wc -l
command[check_evil]=/bin/ps ax | grep $ARG1$
command[bad name]=/bin/true
command[braces]=/bin/echo {x}
command[relative]=check_load
";
        let Import { toml, notes } = import(text, "commands");
        assert_eq!(
            toml,
            "# bad name is not carried over: a name has letters, digits and _.-\n# /bin/true\n\n\
             # braces is not carried over: a brace would be read as the place of an argument\n# /bin/echo {x}\n\n\
             # check_evil is not carried over: it needs a shell, and arguments are never given to one\n\
             # /bin/ps ax | grep $ARG1$\n\n\
             [commands.check_load]\nargv = [\"/usr/lib/nagios/plugins/check_load\", \"-w\", \"{arg1}\", \"-c\", \"{arg2}\"]\n\
             arguments = [\n    { name = \"arg1\", form = \"word\" },\n    { name = \"arg2\", form = \"word\" },\n]\ntimeout = 30\n\n\
             [commands.check_users]\nargv = [\"/usr/lib/nagios/plugins/check_users\", \"-w\", \"5\", \"-c\", \"1 0\"]\ntimeout = 30\n\n\
             [commands.check_zombies]\nargv = [\"/bin/sh\", \"-c\", \"/bin/ps ax | wc -l\"]\ntimeout = 30\n\n\
             # relative is not carried over: the program \"check_load\" has to be an absolute path without arguments in it\n\
             # check_load\n\n"
        );
        for wanted in [
            "dont_blame_nrpe: any client",
            "allowed_hosts: ",
            "include_dir=/etc/nagios/nrpe.d/: not read",
            "check_load: its arguments may be any",
            "check_zombies: it needs a shell",
            "check_evil: not carried over",
        ] {
            assert!(
                notes.iter().any(|note| note.starts_with(wanted)),
                "{wanted}: {notes:?}"
            );
        }
    }

    #[test]
    fn arguments_that_nrpe_never_filled_in_are_told_and_a_prefix_counts() {
        let text = "command_prefix=/usr/bin/sudo\ncommand[a]=/bin/x $ARG1$\ncommand[b]=/bin/y\n";
        let Import { toml, notes } = import(text, "node.commands");
        assert!(
            toml.contains("[node.commands.b]\nargv = [\"/usr/bin/sudo\", \"/bin/y\"]\n\n"),
            "{toml}"
        );
        assert!(toml.contains("# a is not carried over"), "{toml}");
        assert!(
            notes.iter().any(|note| note.contains("dont_blame_nrpe is not 1")),
            "{notes:?}"
        );
    }

    #[test]
    fn a_line_that_would_mean_something_else_is_not_carried_over() {
        for (line, why) in [
            ("", "the line is empty"),
            ("$USER1$/check_x", "$USER1$ is no macro"),
            ("/bin/echo $ARGX$", "$ARGX$ is no macro"),
            ("/bin/echo $ARG17$", "$ARG17$ is no macro"),
            ("/bin/echo \"all good", "a quote is never closed"),
            ("/bin/echo it's", "a quote is never closed"),
        ] {
            for prefix in ["", "command_prefix=/usr/bin/sudo\n"] {
                let text = format!("{prefix}dont_blame_nrpe=1\ncommand[x]={line}\n");
                let Import { toml, notes } = import(&text, "commands");
                assert!(toml.starts_with("# x is not carried over: "), "{line}: {toml}");
                assert!(notes.iter().any(|note| note.contains(why)), "{line}: {notes:?}");
            }
        }
        // The control: what a shell makes something of.
        let kept = import("command[x]=/bin/echo \"$HOME\" 'a b' | wc -l\n", "commands");
        assert!(kept.toml.contains("/bin/sh"), "{}", kept.toml);
    }

    #[test]
    fn a_line_that_is_no_setting_is_told() {
        let text =
            "command[a]=/bin/a\n\ncommand check_b=/bin/b\ncommand[c] /bin/c\nlog_facility=daemon\n# d\n";
        let Import { toml, notes } = import(text, "commands");
        assert_eq!(toml, "[commands.a]\nargv = [\"/bin/a\"]\n\n");
        let left_out =
            |at, line| format!("line {at}: `{line}` is left out: a command is `command[NAME]=LINE`");
        assert_eq!(
            notes,
            [
                left_out(3, "command check_b=/bin/b"),
                left_out(4, "command[c] /bin/c")
            ]
        );
    }

    #[test]
    fn a_line_is_split_as_a_shell_splits_it_or_not_at_all() {
        for (line, wanted) in [
            (
                "/a 'b c' \"d \\\" e\" f\\ g ''",
                Some(&["/a", "b c", "d \" e", "f g", ""][..]),
            ),
            ("/a $HOME", None),
            ("/a \"$(id)\"", None),
            ("/a `id`", None),
            ("/a *", None),
            ("/a ~root", None),
            ("/a 'open", None),
            ("/a \\", None),
            ("", None),
        ] {
            let found = words(line);
            let found: Option<Vec<&str>> = found.as_ref().map(|w| w.iter().map(String::as_str).collect());
            assert_eq!(found.as_deref(), wanted, "{line}");
        }
    }
}

//! `fleetgate completions SHELL`: what a shell can offer while a command is typed, made from the table.
//!
//! Each script finds out which command stands on the line (flags and their values left out) and then offers
//! what may follow. File names are left to the shell.

use crate::flags::{Command, Flag, GLOBAL, Operands, Value};
use std::collections::BTreeMap;
use std::fmt::Write;

/// What may follow a command: words, and the flags that take one of a few values.
struct Place {
    /// The command's words, joined.
    path: String,
    /// What may be typed, and what it does.
    words: Vec<(String, String)>,
    /// Whether a program or path follows, which is the shell's own to complete.
    files: bool,
}

/// The script for `shell`, one of bash, zsh, fish.
pub fn script(commands: &[Command], shell: &str) -> String {
    let places = places(commands);
    let values = values(commands);
    match shell {
        "zsh" => zsh(&places, &values),
        "fish" => fish(&places, &values),
        _ => bash(&places, &values),
    }
}

fn places(commands: &[Command]) -> Vec<Place> {
    let shown: Vec<&Command> = commands.iter().filter(|c| !c.hidden).collect();
    let mut paths: BTreeMap<Vec<&str>, Option<&Command>> = BTreeMap::new();
    for command in &shown {
        for depth in 0..command.words.len() {
            paths.entry(command.words[..depth].to_vec()).or_default();
        }
        paths.insert(command.words.to_vec(), Some(command));
    }
    let place = |(path, command): (&Vec<&str>, &Option<&Command>)| {
        let mut words: Vec<(String, String)> = Vec::new();
        for next in shown
            .iter()
            .filter(|c| c.words.len() > path.len() && c.words.starts_with(path))
        {
            let word = next.words[path.len()];
            if !words.iter().any(|(w, _)| w == word) {
                words.push((word.to_owned(), next.summary.to_owned()));
            }
        }
        if let Some(Operands::Choice(_, choices)) = command.map(|c| c.operands) {
            words.extend(choices.iter().map(|c| (c.to_string(), String::new())));
        }
        let own = command.map(|c| c.flags).unwrap_or_default();
        words.extend(
            own.iter()
                .chain(GLOBAL)
                .map(|f| (format!("--{}", f.long), f.help.to_owned())),
        );
        let files = matches!(
            command.map(|c| c.operands),
            Some(
                Operands::Program { .. }
                    | Operands::OptionalProgram
                    | Operands::OptionalPath(_)
                    | Operands::PassedOn(_)
            )
        );
        Place {
            path: path.join(" "),
            words,
            files,
        }
    };
    paths.iter().map(place).collect()
}

/// The words that a flag's value may be; none: it is a file.
type Words = Option<&'static [&'static str]>;

/// Every flag that takes a value.
fn values(commands: &[Command]) -> BTreeMap<&'static str, Words> {
    let flags = commands
        .iter()
        .filter(|c| !c.hidden)
        .flat_map(|c| c.flags)
        .chain(GLOBAL);
    let words = |flag: &'static Flag| match flag.value {
        Value::None => None,
        Value::Choice(_, words) => Some((flag.long, Some(words))),
        Value::Pid
        | Value::Address
        | Value::Text(_)
        | Value::HostPort
        | Value::Lifetime
        | Value::Pair(_)
        | Value::Number(_) => Some((flag.long, Some([].as_slice()))),
        Value::Path(_) => Some((flag.long, None)),
    };
    flags.filter_map(words).collect()
}

/// `--a|--b`, for a shell's case.
fn alternatives(values: &BTreeMap<&str, Words>) -> String {
    values
        .keys()
        .map(|name| format!("--{name}"))
        .collect::<Vec<_>>()
        .join("|")
}

fn joined(place: &Place) -> String {
    place
        .words
        .iter()
        .map(|(w, _)| w.as_str())
        .collect::<Vec<_>>()
        .join(" ")
}

fn bash(places: &[Place], values: &BTreeMap<&str, Words>) -> String {
    let mut out = String::from(
        "# bash completion for fleetgate\n_fleetgate() {\n    \
         local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} path= words= i\n    \
         case $prev in\n",
    );
    for (name, words) in values {
        let offer = words.map_or("-f".to_owned(), |words| format!("-W \"{}\"", words.join(" ")));
        let _ = writeln!(
            out,
            "    --{name}) COMPREPLY=($(compgen {offer} -- \"$cur\")); return ;;"
        );
    }
    let _ = write!(
        out,
        "    esac\n    for ((i = 1; i < COMP_CWORD; i++)); do\n        case ${{COMP_WORDS[i]}} in\n        \
         {}) ((i++)) ;;\n        --) COMPREPLY=($(compgen -f -- \"$cur\")); return ;;\n        -*) ;;\n        \
         *) path+=\"${{path:+ }}${{COMP_WORDS[i]}}\" ;;\n        esac\n    done\n    case $path in\n",
        alternatives(values)
    );
    for place in places {
        let _ = writeln!(out, "    \"{}\") words=\"{}\" ;;", place.path, joined(place));
    }
    out.push_str(
        "    esac\n    COMPREPLY=($(compgen -W \"$words\" -- \"$cur\"))\n}\n\
         complete -o default -F _fleetgate fleetgate\n",
    );
    out
}

fn zsh(places: &[Place], values: &BTreeMap<&str, Words>) -> String {
    let mut out = String::from(
        "#compdef fleetgate\n_fleetgate() {\n    local path_ i\n    local -a offers\n    case $words[CURRENT-1] in\n",
    );
    for (name, words) in values {
        let offer = words.map_or("_files".to_owned(), |words| {
            format!("compadd -- {}", words.join(" "))
        });
        let _ = writeln!(out, "    --{name}) {offer}; return ;;");
    }
    let _ = write!(
        out,
        "    esac\n    for ((i = 2; i < CURRENT; i++)); do\n        case $words[i] in\n        {}) ((i++)) ;;\n        \
         --) _files; return ;;\n        -*) ;;\n        *) path_+=\"${{path_:+ }}$words[i]\" ;;\n        \
         esac\n    done\n    case $path_ in\n",
        alternatives(values)
    );
    for place in places {
        let offers = place.words.iter().map(|(word, help)| {
            let text = if help.is_empty() {
                word.clone()
            } else {
                format!("{}:{help}", word)
            };
            format!("'{}'", text.replace('\'', "'\\''"))
        });
        let files = if place.files { " _files;" } else { "" };
        let _ = writeln!(
            out,
            "    \"{}\") offers=({});{files} ;;",
            place.path,
            offers.collect::<Vec<_>>().join(" ")
        );
    }
    out.push_str("    *) _files; return ;;\n    esac\n    _describe fleetgate offers\n}\ncompdef _fleetgate fleetgate\n");
    out
}

fn fish(places: &[Place], values: &BTreeMap<&str, Words>) -> String {
    let names = values
        .keys()
        .map(|name| format!("--{name}"))
        .collect::<Vec<_>>()
        .join(" ");
    let mut out = format!(
        "# fish completion for fleetgate\nfunction __fleetgate_at\n    set -l path\n    set -l skip no\n    \
         for word in (commandline -opc)[2..-1]\n        if test $skip = yes\n            set skip no\n        \
         else if contains -- $word {names}\n            set skip yes\n        \
         else if not string match -q -- '-*' $word\n            set -a path $word\n        end\n    end\n    \
         test \"$path\" = \"$argv\"\nend\n"
    );
    for place in places {
        let condition = format!("__fleetgate_at {}", place.path);
        let files = if place.files { "" } else { " -f" };
        for (word, help) in &place.words {
            let help = help.replace('\'', "\\'");
            let line = match word.strip_prefix("--") {
                Some(long) => match values.get(long) {
                    Some(Some(words)) => format!("-l {long} -xa '{}'", words.join(" ")),
                    Some(None) => format!("-l {long} -rF"),
                    None => format!("-l {long}"),
                },
                None => format!("-a {word}"),
            };
            let _ = writeln!(
                out,
                "complete -c fleetgate{files} -n '{}' {line} -d '{help}'",
                condition.trim()
            );
        }
    }
    out
}

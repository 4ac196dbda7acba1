//! `fleetgate completions SHELL`: what a shell can offer while a command is typed, made from the table.
//!
//! Each script finds out which command stands on the line (flags and their values left out) and then offers
//! what may follow. File names are left to the shell.

pub mod live;

use crate::flags::{Command, Flag, GLOBAL, Operands, Value, shared};
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
    /// What of the cluster follows: its names are asked for.
    live: Option<&'static str>,
    /// The same, behind the `@` of `user@node`.
    behind: Option<&'static str>,
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
                .chain(shared(*command))
                .map(|f| match (f.long, f.short) {
                    ("", Some(letter)) => (format!("-{letter}"), f.help.to_owned()),
                    (long, _) => (format!("--{long}"), f.help.to_owned()),
                }),
        );
        let live = command.and_then(|c| match c.operands {
            Operands::Words { name, .. } => live::of(name.split('@').next().unwrap_or(name)),
            Operands::Ssh => live::of("NODE"),
            _ => None,
        });
        let behind = command.and_then(|c| match c.operands {
            Operands::Words { name, .. } => name.split_once('@').and_then(|(_, node)| live::of(node)),
            Operands::Ssh => live::of("NODE"),
            _ => None,
        });
        let files = matches!(
            command.map(|c| c.operands),
            Some(
                Operands::Program { .. }
                    | Operands::OptionalProgram(_)
                    | Operands::ProgramIn(_)
                    | Operands::PassedOn(_)
            )
        );
        Place {
            path: path.join(" "),
            words,
            files,
            live,
            behind,
        }
    };
    paths.iter().map(place).collect()
}

/// What a flag's value may be.
#[derive(Clone, Copy)]
enum Words {
    /// A file.
    File,
    /// One of these; none: nobody knows.
    These(&'static [&'static str]),
    /// A name of the cluster's.
    Live(&'static str),
}

/// Every flag that takes a value.
fn values(commands: &[Command]) -> BTreeMap<&'static str, Words> {
    let flags = commands
        .iter()
        .filter(|c| !c.hidden)
        .flat_map(|c| c.flags)
        .chain(GLOBAL);
    let words = |flag: &'static Flag| match flag.value {
        Value::None => None,
        Value::Choice(_, words) => Some((flag.long, Words::These(words))),
        Value::Text(name) | Value::Name(name) => {
            Some((flag.long, live::of(name).map_or(Words::These(&[]), Words::Live)))
        }
        Value::Path(_) => Some((flag.long, Words::File)),
        // What nobody can guess.
        _ => Some((flag.long, Words::These(&[]))),
    };
    // Letters alone are ssh's, whose values no shell can guess.
    flags.filter(|f| !f.long.is_empty()).filter_map(words).collect()
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
         local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} path= words= names= nodes= behind= account= i\n    \
         case $prev in\n",
    );
    for (name, words) in values {
        let offer = match words {
            Words::File => "-f".to_owned(),
            Words::These(words) => format!("-W \"{}\"", words.join(" ")),
            Words::Live(what) => format!("-W \"$(\"${{COMP_WORDS[0]}}\" complete {what} 2>/dev/null)\""),
        };
        // What is no file is not completed as one where there is nothing to offer.
        let only = match words {
            Words::File => "",
            _ => " compopt +o default 2>/dev/null;",
        };
        let _ = writeln!(
            out,
            "    --{name}){only} COMPREPLY=($(compgen {offer} -- \"$cur\")); return ;;"
        );
    }
    // Bash takes the `@` of `user@node` for a word of its own: what stands before it is no part of the command.
    let _ = write!(
        out,
        "    esac\n    for ((i = 1; i < COMP_CWORD; i++)); do\n        case ${{COMP_WORDS[i]}} in\n        \
         {}) ((i++)) ;;\n        --) COMPREPLY=($(compgen -f -- \"$cur\")); return ;;\n        -*) ;;\n        \
         @) path=${{path% *}} ;;\n        *) path+=\"${{path:+ }}${{COMP_WORDS[i]}}\" ;;\n        esac\n    done\n    \
         [[ $prev == @ ]] && behind=1\n    [[ $cur == @ ]] && cur= && path=${{path% *}} && behind=1\n    case $path in\n",
        alternatives(values)
    );
    for place in places {
        let _ = writeln!(
            out,
            "    \"{}\") words=\"{}\" names={} nodes={} ;;",
            place.path,
            joined(place),
            place.live.unwrap_or_default(),
            place.behind.unwrap_or_default()
        );
    }
    // Behind `user@` stands a node and nothing else; for some shells an `@` of its own would be another word.
    out.push_str(
        "    esac\n    [[ $cur == *@* ]] && account=${cur%%@*}@ && cur=${cur#*@} && behind=1\n    \
         [[ $behind ]] && words= && names=$nodes\n    \
         [[ $names ]] && words+=\" $(\"${COMP_WORDS[0]}\" complete \"$names\" 2>/dev/null)\"\n    \
         COMPREPLY=($(compgen -P \"$account\" -W \"$words\" -- \"$cur\"))\n}\n\
         complete -o default -F _fleetgate fleetgate\n",
    );
    out
}

fn zsh(places: &[Place], values: &BTreeMap<&str, Words>) -> String {
    let mut out = String::from(
        "#compdef fleetgate\n_fleetgate() {\n    local path_ i\n    local -a offers\n    case $words[CURRENT-1] in\n",
    );
    for (name, words) in values {
        let offer = match words {
            Words::File => "_files".to_owned(),
            Words::These(words) => format!("compadd -- {}", words.join(" ")),
            Words::Live(what) => format!("compadd -- $($words[1] complete {what} 2>/dev/null)"),
        };
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
        let behind = place
            .behind
            .map(|what| {
                format!(
                    " compset -P '*@' && {{ compadd -- $($words[1] complete {what} 2>/dev/null); return }};"
                )
            })
            .unwrap_or_default();
        let live = place
            .live
            .map(|what| {
                // A user of `user@node` is half of the word.
                let ending = if place.behind != place.live && place.behind.is_some() {
                    "-S @ "
                } else {
                    ""
                };
                format!(" compadd {ending}-- $($words[1] complete {what} 2>/dev/null);")
            })
            .unwrap_or_default();
        let _ = writeln!(
            out,
            "    \"{}\") offers=({});{files}{behind}{live} ;;",
            place.path,
            offers.collect::<Vec<_>>().join(" ")
        );
    }
    // Zsh runs an autoloaded file as the function's first call.
    out.push_str(
        "    *) _files; return ;;\n    esac\n    _describe fleetgate offers\n}\n\
         if [[ $funcstack[1] = _fleetgate ]]; then\n    _fleetgate \"$@\"\nelse\n    compdef _fleetgate fleetgate\nfi\n",
    );
    out
}

/// Functions of the fish script: which command stands on the line, and the cluster's names. The program's own name is a variable:
/// fish takes no command substitution for a command.
const FISH_NAMES: &str = "function __fleetgate_names
    set -l line (commandline -opc)
    set -l token (commandline -ct)
    if set -q argv[2]; and string match -q -- '*@*' $token
        set -l account (string split -m 1 -- @ $token)[1]
        for name in ($line[1] complete $argv[2] 2>/dev/null)
            echo $account@$name
        end
    else
        $line[1] complete $argv[1] 2>/dev/null
    end
end
";

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
         test \"$path\" = \"$argv\"\nend\n{FISH_NAMES}"
    );
    for place in places {
        let condition = format!("__fleetgate_at {}", place.path);
        let files = if place.files { "" } else { " -f" };
        for (word, help) in &place.words {
            let help = help.replace('\'', "\\'");
            let line = match word.strip_prefix("--") {
                Some(long) => match values.get(long) {
                    Some(Words::These(words)) => format!("-l {long} -xa '{}'", words.join(" ")),
                    Some(Words::Live(what)) => format!("-l {long} -xa '(__fleetgate_names {what})'"),
                    Some(Words::File) => format!("-l {long} -rF"),
                    None => format!("-l {long}"),
                },
                None => match word.strip_prefix('-') {
                    Some(letter) => format!("-s {letter}"),
                    None => format!("-a {word}"),
                },
            };
            // The value is a file though no file follows the command.
            let files = if line.ends_with("-rF") { "" } else { files };
            let _ = writeln!(
                out,
                "complete -c fleetgate{files} -n '{}' {line} -d '{help}'",
                condition.trim()
            );
        }
        if let Some(what) = place.live {
            let _ = writeln!(
                out,
                "complete -c fleetgate{files} -n '{}' -a '(__fleetgate_names {what} {})'",
                condition.trim(),
                place.behind.unwrap_or_default()
            );
        }
    }
    out
}

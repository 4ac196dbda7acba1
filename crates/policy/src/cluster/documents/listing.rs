//! Named commands as they are listed for those who may run them: a table for people, and a line of JSON for each. What a
//! command executes and the values of its environment are the administrator's, and stand there for him alone.

use super::forms::Span;
use crate::commands::{Argument, Command, Commands};
use crate::text;
use serde_json::{Map, Value, json};

/// For whom the list is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reader {
    /// Somebody who may run them.
    Client,
    /// Who may read the files that define them.
    Administrator,
}

/// As a table. It ends where the longest names and arguments say.
pub fn table(commands: &Commands, reader: Reader) -> String {
    let for_administrator = |heading| (reader == Reader::Administrator).then_some(heading);
    let headings: Vec<&str> = ["NAME", "ARGUMENTS", "TIMEOUT", "FURTHER"]
        .into_iter()
        .chain(for_administrator("PROGRAM"))
        .collect();
    let row = |(name, command): (&str, &Command)| -> Vec<String> {
        let cells = [
            name.to_owned(),
            arguments(command),
            timeout(command),
            further(command),
        ];
        let program = (reader == Reader::Administrator).then(|| command.argv.join(" "));
        cells.into_iter().chain(program).collect()
    };
    let rows: Vec<Vec<String>> = commands.iter().map(row).collect();
    text::table(&headings, &rows)
}

/// As a line of JSON for each.
pub fn json_lines(commands: &Commands, reader: Reader) -> String {
    let line = |(name, command): (&str, &Command)| format!("{}\n", object(name, command, reader));
    commands.iter().map(line).collect()
}

/// Each as `<name: form>`, or `[name: form = default]`.
fn arguments(command: &Command) -> String {
    let one = |Argument { name, form, default }: &Argument| match default {
        None => format!("<{name}: {form}>"),
        Some(default) => format!("[{name}: {form} = {default}]"),
    };
    let all: Vec<String> = command.arguments.iter().map(one).collect();
    all.join(" ")
}

fn timeout(command: &Command) -> String {
    command
        .limits
        .timeout
        .map_or("-".to_owned(), |time| Span(time).to_string())
}

fn further(command: &Command) -> String {
    let limits = command.limits;
    let parts = [
        command.user.as_ref().map(|user| format!("runs as {user}")),
        (!command.secrets.is_empty()).then(|| format!("needs {}", command.secrets.join(" "))),
        limits.concurrency.map(|most| format!("{most} at a time")),
        command
            .cache
            .map(|time| format!("results are kept {}", Span(time))),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    parts.join(", ")
}

fn object(name: &str, command: &Command, reader: Reader) -> Value {
    let argument = |Argument { name, form, default }: &Argument| json!({ "name": name, "form": form.to_string(), "default": default });
    let mut object = Map::new();
    let mut put = |key: &str, value: Value| drop(object.insert(key.to_owned(), value));
    put("name", name.into());
    put("arguments", command.arguments.iter().map(argument).collect());
    put(
        "timeout",
        json!(command.limits.timeout.map(|time| time.as_secs_f64())),
    );
    put("output", json!(command.limits.output));
    put("concurrency", json!(command.limits.concurrency));
    put("cache", json!(command.cache.map(|time| time.as_secs_f64())));
    put("secrets", json!(command.secrets));
    put("user", json!(command.user.as_ref().map(ToString::to_string)));
    if reader == Reader::Administrator {
        put("argv", json!(command.argv));
    }
    object.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::CommandEntry;

    fn commands() -> Commands {
        let mut commands = Commands::new();
        for (name, text) in [
            (
                "disk",
                "argv = [\"/bin/disk\", \"{}\"]\nargs = [\"1..99\"]\nuser = \"root\"\nsecrets = [\"A\"]\n\
                 environment = { B = \"of nobody else\" }",
            ),
            (
                "load",
                "argv = [\"/bin/load\", \"{warn}\"]\narguments = [{ name = \"warn\", form = \"word\", default = \"5\" }]\n\
                 timeout = \"10s\"\nconcurrency = 2\ncache = \"30s\"\noutput = \"64K\"",
            ),
        ] {
            let entry: CommandEntry = toml::from_str(text).expect(text);
            commands.add(name, entry.define().expect(text)).expect(name);
        }
        commands
    }

    #[test]
    fn a_client_reads_how_to_run_them_and_not_what_runs() {
        assert_eq!(
            table(&commands(), Reader::Client),
            "NAME  ARGUMENTS         TIMEOUT  FURTHER\n\
             disk  <a1: 1..99>       1m       runs as root, needs A\n\
             load  [warn: word = 5]  10s      2 at a time, results are kept 30s\n"
        );
        let lines = json_lines(&commands(), Reader::Client);
        assert!(!lines.contains("/bin/") && !lines.contains("nobody"), "{lines}");
        assert!(lines.ends_with('\n') && lines.lines().count() == 2, "{lines}");
        assert!(table(&commands(), Reader::Administrator).contains("/bin/load {warn}"));
        assert_eq!(json_lines(&Commands::new(), Reader::Client), "");
    }
}

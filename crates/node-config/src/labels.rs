//! The node's labels as node.toml has them: values, and commands that say values. It runs none: it looks whether they can be run.

use crate::Config;
use fleetgate_policy::cluster::{Labels, MAX_LABELS};
use std::time::Duration;

/// A command is not run more often.
pub const LEAST_EVERY: Duration = Duration::from_secs(10);
/// No command takes longer.
pub const MOST_TIMEOUT: Duration = Duration::from_secs(60);

/// Whether these labels can be had, and the commands run; an error names the key of node.toml.
pub fn check(config: &Config) -> Result<(), String> {
    if config.labels.len() + config.label_commands.len() > MAX_LABELS {
        return Err(format!(
            "`labels` and `label_commands` have more than {MAX_LABELS} labels"
        ));
    }
    let mut labels = Labels::new();
    for (key, value) in &config.labels {
        labels.set(key, value).map_err(|why| format!("`labels`: {why}"))?;
    }
    for (key, command) in &config.label_commands {
        let bad = |why: &str| Err(format!("`label_commands.{key}`: {why}"));
        labels
            .set(key, "")
            .map_err(|why| format!("`label_commands`: {why}"))?;
        match command.command.first() {
            Some(program) if program.starts_with('/') => {}
            _ => return bad("`command` begins with the absolute path of a program"),
        }
        if command.command.iter().any(|word| word.contains('\0')) {
            return bad("`command` holds a zero byte");
        }
        if command.every.0 < LEAST_EVERY {
            return bad("`every` is 10 s or more");
        }
        if command.timeout.0.is_zero() || command.timeout.0 > MOST_TIMEOUT {
            return bad("`timeout` is more than 0 and at most 60 s");
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn label_commands_that_cannot_be_run_are_named() {
        let check =
            |text: &str| check(&Config::parse(Path::new("node.toml"), text).expect("a configuration"));
        assert_eq!(
            check("[label_commands.kernel]\ncommand = [\"/bin/uname\", \"-r\"]"),
            Ok(())
        );
        let many: String = (0..=MAX_LABELS).map(|i| format!("l{i} = \"x\"\n")).collect();
        for (text, part) in [
            (
                "[label_commands.x]\ncommand = []",
                "`label_commands.x`: `command`",
            ),
            (
                "[label_commands.x]\ncommand = [\"uname\"]",
                "`label_commands.x`: `command`",
            ),
            (
                "[label_commands.x]\ncommand = [\"/bin/true\"]\nevery = \"9s\"",
                "`label_commands.x`: `every`",
            ),
            (
                "[label_commands.x]\ncommand = [\"/bin/true\"]\ntimeout = \"61s\"",
                "`label_commands.x`: `timeout`",
            ),
            (
                "[label_commands.x]\ncommand = [\"/bin/true\"]\ntimeout = 0",
                "`label_commands.x`: `timeout`",
            ),
            (
                "[label_commands.\"a b\"]\ncommand = [\"/bin/true\"]",
                "`label_commands`: ",
            ),
            ("labels = { env = \"a,b\" }", "`labels`: "),
            (&format!("[labels]\n{many}"), "more than 64 labels"),
        ] {
            let error = check(text).expect_err(text);
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}

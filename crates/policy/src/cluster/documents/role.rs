//! A role as a document, and role files. What it means is `cluster::role`'s.

use super::command::CommandEntry;
use super::forms::Span;
use super::recordings::RecordingsDocument;
use crate::cluster::role::{kinds_of, words_of};
use crate::cluster::{
    Limits, MAX_CLUSTER_ROLES, MAX_LIFETIME, MAX_RECORDING_KEEP, MAX_RENEWAL, MAX_ROLE_ENTRIES, MAX_STATE,
    MIN_LIFETIME, MIN_RECORDING_KEEP, Name, Role, Selector, USER,
};
use crate::commands::Commands;
use crate::permits::Kind;
use crate::recording::{self, OnwardSsh, Recipient, Recording, RecordingFailure};
use crate::toml_mistake::{Example, Mistake, line_of};
use crate::watching::{Audit, Stance, Watching};
use crate::{AccountName, account_and_container, check_written_login};
use serde::de::{Error, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt;

/// A role; its name stands in front of it in a role file. A key that is not known is refused: it may take something
/// away, and a node that skipped it would allow too much.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RoleDocument {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    name: Option<Name>,
    #[serde(default)]
    nodes: Vec<Selector>,
    #[serde(default)]
    logins: Vec<LoginForm>,
    /// The labels of the containers that logins lead into.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    containers: Option<Vec<Selector>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    kinds: Option<Vec<KindWord>>,
    #[serde(
        default,
        skip_serializing_if = "Vec::is_empty",
        deserialize_with = "command_names"
    )]
    commands: Vec<CommandName>,
    /// Commands that the role defines, by their names.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    command: BTreeMap<CommandName, CommandEntry>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    require_mfa: Option<Span>,
    #[serde(default, skip_serializing_if = "is_false")]
    require_trusted_device: bool,
    #[serde(default, skip_serializing_if = "is_events")]
    recording: Recording,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    recording_failure: Option<RecordingFailure>,
    #[serde(default, skip_serializing_if = "is_allowed")]
    onward_ssh: OnwardSsh,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    recording_keep: Option<Span>,
    /// Whose recordings its users may see.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    recordings: Option<RecordingsDocument>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    recording_recipients: Vec<Recipient>,
    #[serde(default, skip_serializing_if = "is_unwatched")]
    audit: Audit,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    io_uring: Option<Stance>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    unwatched: Option<Stance>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    lifetime: Option<Span>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    renewal: Option<Span>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    session: Option<Span>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    sessions: Option<u32>,
    #[serde(default, skip_serializing_if = "is_false")]
    admin: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RoleFile {
    role: BTreeMap<Name, RoleDocument>,
}

/// `{user}` or an account's name.
#[derive(Serialize)]
#[serde(transparent)]
struct LoginForm(String);

impl<'de> Deserialize<'de> for LoginForm {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<LoginForm, D::Error> {
        let text = String::deserialize(from)?;
        let (account, container) = account_and_container(&text);
        if account == USER && container.is_none_or(|container| !container.contains(['{', '}'])) {
            return Ok(LoginForm(text));
        }
        if account.contains(['{', '}', '*', '?']) {
            return Err(D::Error::custom(format!(
                "the login {text:?}: it is an account's name or {USER:?}, not a pattern; only what stands behind `+`, a \
                 container, may be one"
            )));
        }
        match AccountName::parse(text.as_bytes()) {
            Ok(_) => Ok(LoginForm(text)),
            Err(why) => Err(D::Error::custom(format!("the login {text:?}: {why}"))),
        }
    }
}

struct KindWord(&'static str, &'static [Kind]);

impl Serialize for KindWord {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(self.0)
    }
}

impl<'de> Deserialize<'de> for KindWord {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<KindWord, D::Error> {
        let kinds = kinds_of(&String::deserialize(from)?).map_err(D::Error::custom)?;
        Ok(KindWord("", kinds))
    }
}

/// The name of a command of a node's list.
#[derive(Serialize, PartialEq, Eq, PartialOrd, Ord)]
#[serde(transparent)]
struct CommandName(String);

/// A list; a table is most likely meant for `command`.
fn command_names<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<CommandName>, D::Error> {
    struct Names;
    impl<'de> Visitor<'de> for Names {
        type Value = Vec<CommandName>;

        fn expecting(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
            to.write_str(
                "a list of names (a command that the role defines is a table: [role.ROLE.command.NAME])",
            )
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut from: A) -> Result<Vec<CommandName>, A::Error> {
            let mut names = Vec::new();
            while let Some(name) = from.next_element()? {
                names.push(name);
            }
            Ok(names)
        }
    }
    from.deserialize_seq(Names)
}

impl<'de> Deserialize<'de> for CommandName {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<CommandName, D::Error> {
        let text = String::deserialize(from)?;
        if crate::commands::is_name(&text) {
            return Ok(CommandName(text));
        }
        let most = crate::commands::MAX_NAME;
        Err(D::Error::custom(format!(
            "the command {text:?}: a command's name has 1 to {most} letters, digits and _.-"
        )))
    }
}

fn is_false(value: &bool) -> bool {
    !value
}

fn is_unwatched(value: &Audit) -> bool {
    *value == Audit::None
}

fn is_allowed(value: &OnwardSsh) -> bool {
    *value == OnwardSsh::Allow
}

fn is_events(value: &Recording) -> bool {
    !value.is_wanted()
}

/// Lines that are right, for keys whose type does not say what they hold.
const EXAMPLES: [Example; 19] = [
    ("nodes", "nodes = [\"env=prod\", \"web*\"]"),
    ("logins", "logins = [\"{user}\", \"deploy+web*\"]"),
    ("containers", "containers = [\"app=web\"]"),
    ("kinds", "kinds = [\"shell\", \"exec\"]"),
    ("commands", "commands = [\"disk\", \"load\"]"),
    (
        "command",
        "[role.ROLE.command.NAME] and its keys in the lines below",
    ),
    ("argv", "argv = [\"/usr/bin/uptime\"]"),
    ("args", "args = [\"word\"]"),
    ("recording", "recording = \"output\""),
    ("recording_failure", "recording_failure = \"go-on\""),
    ("onward_ssh", "onward_ssh = \"refuse\""),
    (
        "recordings",
        "[role.ROLE.recordings] and its keys in the lines below",
    ),
    ("of", "of = [\"*\"]"),
    ("may", "may = [\"list\", \"play\"]"),
    (
        "recording_recipients",
        "recording_recipients = [\"age1dc3xeggyp2p9556c0r8nplujq2tga0rguvtcp9hz97kwywghd4pqycqsp2\"]",
    ),
    ("audit", "audit = \"commands\""),
    ("io_uring", "io_uring = \"refuse\""),
    ("unwatched", "unwatched = \"allow\""),
    ("role", "[role.NAME] and its keys in the lines below"),
];

/// Reads a role file.
pub(super) fn file(file: &str, text: &str) -> Result<Vec<Role>, String> {
    if text.len() > MAX_STATE {
        return Err(format!("{file} is longer than {MAX_STATE} bytes"));
    }
    let read: RoleFile = toml::from_str(text).map_err(|why| {
        let mistake = Mistake::new(text, &why, &EXAMPLES);
        format!("{file} line {}: {}", mistake.line, mistake.why)
    })?;
    if read.role.len() > MAX_CLUSTER_ROLES {
        return Err(format!("{file} has more than {MAX_CLUSTER_ROLES} roles"));
    }
    let roles = read.role.into_iter().map(|(name, role)| {
        let at = |key: &str, why: String| match line_of(text, &["role", name.as_str(), key]) {
            Some(line) => format!("{file} line {line}: `role.{name}.{key}`: {why}"),
            None => format!("{file}: role {name}: {why}"),
        };
        check_containers(role.containers.as_deref(), &role.logins).map_err(|why| at("containers", why))?;
        let role = role
            .named(Some(name.clone()))
            .map_err(|why| format!("{file}: {why}"))?;
        logins(&role).map_err(|why| at("logins", why))?;
        for (key, selectors) in [("nodes", &role.nodes), ("containers", &role.containers)] {
            let fit = selectors.iter().try_for_each(Selector::check_written);
            fit.map_err(|why| at(key, why.into()))?;
        }
        if let Some(rights) = &role.recordings {
            let fit = rights.nodes.iter().try_for_each(Selector::check_written);
            fit.map_err(|why| at("recordings", format!("`nodes`: {why}")))?;
        }
        Ok(role)
    });
    roles.collect()
}

/// Whether each login can let somebody in. Only a role file is asked: a cluster that has another from before has to start, and
/// what lets nobody in does no harm there. The same holds for selectors.
fn logins(role: &Role) -> Result<(), String> {
    for login in &role.logins {
        check_written_login(login).map_err(|why| format!("the login {login:?}: {why}"))?;
    }
    Ok(())
}

/// Whether `containers` means what it seems to.
fn check_containers(containers: Option<&[Selector]>, logins: &[LoginForm]) -> Result<(), String> {
    let Some(containers) = containers else {
        return Ok(());
    };
    if containers.is_empty() {
        return Err(
            "`containers` names no label, which would let its users into every container: leave the key out if that is meant, \
             or the logins ACCOUNT+CONTAINER"
                .to_owned(),
        );
    }
    if let Some(selector) = containers.iter().find(|selector| !selector.is_of_labels()) {
        return Err(format!(
            "containers are chosen by labels, and {selector} is none: a container's name stands in `logins`, ACCOUNT+NAME"
        ));
    }
    let enters = |login: &LoginForm| account_and_container(&login.0).1.is_some();
    match logins.iter().any(enters) {
        true => Ok(()),
        false => Err(
            "none of its logins leads into a container, so `containers` would do nothing: write a login ACCOUNT+*".to_owned(),
        ),
    }
}

/// Roles as a role file.
pub(super) fn write<'a>(roles: impl IntoIterator<Item = &'a Role>) -> String {
    let mut text = String::new();
    for role in roles {
        if !text.is_empty() {
            text.push('\n');
        }
        // A name may have dots, which would make tables within tables.
        text.push_str(&format!("[role.\"{}\"]\n", role.name));
        let document = RoleDocument {
            name: None,
            ..RoleDocument::from(role)
        };
        let value = serde_json::to_value(&document).expect("a role is a table of text, numbers and lists");
        lines(&mut text, &value);
        if let Some(recordings) = value.get(RECORDINGS) {
            text.push_str(&format!("[role.\"{}\".{RECORDINGS}]\n", role.name));
            lines(&mut text, recordings);
        }
        let commands = value.get(COMMANDS).and_then(Value::as_object);
        for (name, command) in commands.into_iter().flatten() {
            text.push_str(&format!("[role.\"{}\".{COMMANDS}.\"{name}\"]\n", role.name));
            lines(&mut text, command);
        }
    }
    text
}

/// The tables of a role's own commands, and of what its users may see, stand behind its other lines.
const COMMANDS: &str = "command";
const RECORDINGS: &str = "recordings";

/// A table's lines.
fn lines(text: &mut String, table: &Value) {
    let entries = table.as_object().into_iter().flatten();
    for (key, value) in entries.filter(|(key, _)| ![COMMANDS, RECORDINGS].contains(&key.as_str())) {
        text.push_str(&format!("{key} = {}\n", in_line(value)));
    }
}

/// Text, numbers and lists of text are the same in JSON and in TOML; tables are not.
fn in_line(value: &Value) -> String {
    match value {
        Value::Array(values) => {
            let values: Vec<String> = values.iter().map(in_line).collect();
            format!("[{}]", values.join(","))
        }
        Value::Object(table) => {
            let entry = |(key, value): (&String, &Value)| {
                format!("{} = {}", Value::from(key.as_str()), in_line(value))
            };
            let entries: Vec<String> = table.iter().map(entry).collect();
            format!("{{ {} }}", entries.join(", "))
        }
        other => other.to_string(),
    }
}

impl From<&Role> for RoleDocument {
    fn from(role: &Role) -> RoleDocument {
        let default = Limits::default();
        let mut kinds = role.kinds.clone();
        kinds.sort();
        kinds.dedup();
        let words = words_of(&kinds)
            .into_iter()
            .map(|word| KindWord(word, &[]))
            .collect();
        let mut usual = Role::DEFAULT_KINDS;
        usual.sort();
        let usual_watching = Watching::default();
        RoleDocument {
            name: Some(role.name.clone()),
            nodes: role.nodes.clone(),
            logins: role.logins.iter().cloned().map(LoginForm).collect(),
            containers: (!role.containers.is_empty()).then(|| role.containers.clone()),
            kinds: (kinds != usual).then_some(words),
            commands: role.commands.iter().cloned().map(CommandName).collect(),
            command: role
                .defined
                .iter()
                .map(|(name, command)| (CommandName(name.to_owned()), CommandEntry::from(command)))
                .collect(),
            require_mfa: role.require_mfa.map(Span),
            require_trusted_device: role.require_trusted_device,
            recording: role.recording,
            recording_failure: (role.recording_failure != RecordingFailure::default())
                .then_some(role.recording_failure),
            onward_ssh: role.onward_ssh,
            recording_keep: role.recording_keep.map(Span),
            recordings: role.recordings.as_ref().map(RecordingsDocument::from),
            recording_recipients: role.recording_recipients.clone(),
            audit: role.watching.audit,
            io_uring: (role.watching.io_uring != usual_watching.io_uring).then_some(role.watching.io_uring),
            unwatched: (role.watching.unwatched != usual_watching.unwatched)
                .then_some(role.watching.unwatched),
            lifetime: (role.limits.lifetime != default.lifetime).then_some(Span(role.limits.lifetime)),
            renewal: role.limits.renewal.map(Span),
            session: role.limits.session.map(Span),
            sessions: role.limits.sessions,
            admin: role.admin,
        }
    }
}

impl RoleDocument {
    /// The role, within its bounds.
    pub(super) fn named(self, name: Option<Name>) -> Result<Role, String> {
        let name = match (name, self.name) {
            (Some(name), None) | (None, Some(name)) => name,
            (Some(name), Some(_)) => {
                return Err(format!(
                    "role {name}: its name stands in the table's line already"
                ));
            }
            (None, None) => return Err("a role has no name".to_string()),
        };
        let refuse = |why: String| Err(format!("role {name}: {why}"));
        for (what, count) in [
            ("nodes", self.nodes.len()),
            ("logins", self.logins.len()),
            ("containers", self.containers.as_ref().map_or(0, Vec::len)),
            ("commands", self.commands.len()),
            ("commands of its own", self.command.len()),
        ] {
            if count > MAX_ROLE_ENTRIES {
                return refuse(format!("it has room for {MAX_ROLE_ENTRIES} {what}"));
            }
        }
        if let Err(why) = check_containers(self.containers.as_deref(), &self.logins) {
            return refuse(why);
        }
        let mut limits = Limits {
            renewal: self.renewal.map(|s| s.0),
            session: self.session.map(|s| s.0),
            sessions: self.sessions,
            ..Limits::default()
        };
        if let Some(Span(lifetime)) = self.lifetime {
            limits.lifetime = lifetime;
        }
        if !(MIN_LIFETIME..=MAX_LIFETIME).contains(&limits.lifetime) {
            let (least, most) = (Span(MIN_LIFETIME), Span(MAX_LIFETIME));
            return refuse(format!(
                "lifetime is from {least} to {most}, not {}",
                Span(limits.lifetime)
            ));
        }
        if let Some(renewal) = limits.renewal
            && !(limits.lifetime..=MAX_RENEWAL).contains(&renewal)
        {
            return refuse(format!(
                "renewal is from its lifetime, {}, to {}, not {}",
                Span(limits.lifetime),
                Span(MAX_RENEWAL),
                Span(renewal)
            ));
        }
        if limits.session.is_some_and(|s| s.is_zero()) || limits.sessions == Some(0) {
            return refuse(
                "a limit of 0 would end every session: leave it out, or take the kinds away".to_string(),
            );
        }
        if self.recording_recipients.len() > recording::MAX_RECIPIENTS {
            let most = recording::MAX_RECIPIENTS;
            return refuse(format!("it has room for {most} recording_recipients"));
        }
        if !self.recording.is_wanted() && self.recording_failure.is_some() {
            return refuse(
                "recording_failure says what happens to a session that should be recorded: set recording, or leave it out"
                    .to_string(),
            );
        }
        if !self.recording.is_wanted() && self.recording_keep.is_some() {
            return refuse(
                "recording_keep says for how long recordings are kept that this role asks for: set recording, or leave it out"
                    .to_string(),
            );
        }
        if let Some(Span(keep)) = self.recording_keep
            && !(MIN_RECORDING_KEEP..=MAX_RECORDING_KEEP).contains(&keep)
        {
            return refuse(format!(
                "recording_keep is from {} to {}, not {}",
                Span(MIN_RECORDING_KEEP),
                Span(MAX_RECORDING_KEEP),
                Span(keep)
            ));
        }
        let recordings = match self.recordings.map(RecordingsDocument::read).transpose() {
            Ok(recordings) => recordings,
            Err(why) => return refuse(why),
        };
        if self.audit == Audit::None && (self.io_uring.is_some() || self.unwatched.is_some()) {
            return refuse(
                "io_uring and unwatched say how a watched session is to be: set audit, or leave them out"
                    .to_string(),
            );
        }
        let watching = Watching {
            audit: self.audit,
            io_uring: self.io_uring.unwrap_or(Watching::default().io_uring),
            unwatched: self.unwatched.unwrap_or(Watching::default().unwatched),
        };
        let mut kinds: Vec<Kind> = match self.kinds {
            Some(words) => words
                .into_iter()
                .flat_map(|word| word.1.iter().copied())
                .collect(),
            None => Role::DEFAULT_KINDS.to_vec(),
        };
        kinds.sort();
        kinds.dedup();
        if !self.command.is_empty() && kinds.contains(&Kind::Exec) {
            return refuse(
                "it lets its users run anything (`exec` among its kinds), so the commands that it defines would do nothing: \
                 leave `exec` out of `kinds`, or the commands"
                    .to_string(),
            );
        }
        let mut defined = Commands::new();
        for (CommandName(command), entry) in self.command {
            if entry.user.is_some() {
                return refuse(format!(
                    "the command {command}: `user` stands in a node's own file only. A role's commands run as the account that \
                     logs in: put it into `logins`, or the command into node.toml"
                ));
            }
            let added = entry.define().and_then(|made| defined.add(&command, made));
            if let Err(why) = added {
                return refuse(format!("the command {command}: {why}"));
            }
        }
        Ok(Role {
            nodes: self.nodes,
            logins: self.logins.into_iter().map(|login| login.0).collect(),
            containers: self.containers.unwrap_or_default(),
            kinds,
            commands: self.commands.into_iter().map(|command| command.0).collect(),
            defined,
            require_mfa: self.require_mfa.map(|s| s.0),
            require_trusted_device: self.require_trusted_device,
            recording: self.recording,
            recording_failure: self.recording_failure.unwrap_or_default(),
            onward_ssh: self.onward_ssh,
            recording_keep: self.recording_keep.map(|keep| keep.0),
            recordings,
            recording_recipients: self.recording_recipients,
            watching,
            limits,
            admin: self.admin,
            name,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn examples_are_right() {
        for (key, line) in EXAMPLES.iter().filter(|(_, line)| !line.starts_with('[')) {
            let text = match *key {
                "argv" => format!("[role.x]\nkinds = []\n[role.x.command.y]\n{line}"),
                "args" => {
                    format!("[role.x]\nkinds = []\n[role.x.command.y]\nargv = [\"/x\", \"{{}}\"]\n{line}")
                }
                "containers" => format!("[role.x]\nlogins = [\"a+*\"]\n{line}"),
                "recording_failure" => format!("[role.x]\nrecording = \"output\"\n{line}"),
                "of" => format!("[role.x.recordings]\nmay = [\"play\"]\n{line}"),
                "may" => format!("[role.x.recordings]\nof = [\"*\"]\n{line}"),
                "io_uring" | "unwatched" => format!("[role.x]\naudit = \"files\"\n{line}"),
                _ => format!("[role.x]\n{line}"),
            };
            assert!(
                file("r.toml", &text).is_ok(),
                "{line}: {:?}",
                file("r.toml", &text)
            );
        }
    }
}

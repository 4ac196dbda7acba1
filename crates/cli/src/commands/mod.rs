//! The table of commands. Each function here turns what was given into types and calls the module that does it.

mod admin;
mod cluster;
mod container;
mod machine;
mod recordings;
mod trace;
mod user;

use crate::flags::{Command, Flag, Value};

const PARTS: &[&[Command]] = &[
    cluster::TABLE,
    user::TABLE,
    admin::TABLE,
    recordings::TABLE,
    trace::TABLE,
    container::TABLE,
    machine::TABLE,
];
const COUNT: usize = counted(PARTS);
const ALL: [Command; COUNT] = joined(PARTS);

/// Every command.
pub const COMMANDS: &[Command] = &ALL;

const JSON: Flag = Flag::new("json", Value::None, "Print one JSON document instead of a table.");
const HOME: Flag = Flag::new(
    "home",
    Value::Path("DIR"),
    "Where the login is kept, instead of FLEETGATE_HOME or ~/.fleetgate.",
);
const STATE: Flag = Flag::new(
    "state",
    Value::Path("DIR"),
    "The state directory, instead of /var/lib/fleetgate, or ~/.local/state/fleetgate without root.",
);
const PROXY: Flag = Flag::new(
    "proxy",
    Value::Proxy,
    "The cluster's proxy. Without a port: 3080, or 443 where nothing answers there.",
);

/// How many commands the tables have.
const fn counted(parts: &[&[Command]]) -> usize {
    let (mut part, mut count) = (0, 0);
    while part < parts.len() {
        (count, part) = (count + parts[part].len(), part + 1);
    }
    count
}

/// The tables one after the other.
const fn joined(parts: &[&[Command]]) -> [Command; COUNT] {
    let mut all = [parts[0][0]; COUNT];
    let (mut part, mut at) = (0, 0);
    while part < parts.len() {
        let mut index = 0;
        while index < parts[part].len() {
            all[at] = parts[part][index];
            (at, index) = (at + 1, index + 1);
        }
        part += 1;
    }
    all
}

#[cfg(test)]
mod tests;

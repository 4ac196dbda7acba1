//! Containers that are known without a configuration: systemd-machined's by a file, LXC's by a cgroup.

use super::{MAX_CONTAINERS, id_of};
use crate::find::{ContainerRecord, Runtime};
use crate::on_disk::{directories_called, text};
use crate::process;
use std::fs;
use std::path::Path;

/// Lines of NAME=VALUE.
pub(super) fn of_machines(root: &Path, all: &mut Vec<ContainerRecord>) {
    let entries = fs::read_dir(root).into_iter().flatten().flatten();
    for path in entries.map(|entry| entry.path()).take(MAX_CONTAINERS) {
        let Some(text) = text(&path) else {
            continue;
        };
        let field = |name: &str| {
            text.lines()
                .find_map(|line| line.strip_prefix(name)?.strip_prefix('='))
        };
        // A user may register processes of his own as a machine, under any name.
        if field("UID").is_some_and(|uid| uid != "0") {
            continue;
        }
        let leader = field("LEADER").and_then(|pid| pid.parse().ok());
        if let (Some("container"), Some(name), Some(pid)) = (field("CLASS"), field("NAME"), leader) {
            all.push(ContainerRecord::new(name.to_owned(), Runtime::Machined, pid));
        }
    }
}

/// A cgroup for the process that watches each container. The container's first process is a child of that, and 1 inside. The
/// container's own cgroup does not tell which one it is: systemd inside moves itself into one below.
pub(super) fn of_lxc(root: &Path, all: &mut Vec<ContainerRecord>) {
    const BEGINNING: &str = "lxc.monitor.";
    for path in directories_called(root, BEGINNING) {
        let Some(name) = id_of(&path).and_then(|id| id.strip_prefix(BEGINNING).map(str::to_owned)) else {
            continue;
        };
        if all.iter().any(|found| found.id == name) {
            continue;
        }
        let watching = text(&path.join("cgroup.procs")).unwrap_or_default();
        let children: String = watching
            .lines()
            .filter_map(|pid| process::read(format!("/proc/{pid}/task/{pid}/children")).ok())
            .collect();
        let mut pids = children.split_whitespace().filter_map(|pid| pid.parse().ok());
        let first = pids.find(|pid: &i32| {
            process::read(format!("/proc/{pid}/status")).is_ok_and(|status| {
                let numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
                numbers.is_some_and(|numbers| numbers.split_whitespace().last() == Some("1"))
            })
        });
        if let Some(pid) = first {
            all.push(ContainerRecord::new(name, Runtime::Lxc, pid));
        }
    }
}

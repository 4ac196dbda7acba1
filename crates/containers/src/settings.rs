//! What a container's processes are given and limited to, from its configuration (config.json of the Open Container
//! Initiative), as an order has it.

use crate::error::Unusable;
use crate::on_disk::document;
use crate::process::Bounds;
use crate::profile;
use crate::remembered::{Remembered, Weighed};
use fleetgate_wire::common::{Ids, Variable};
use fleetgate_wire::container::{Capabilities, Container, InsideUser, Label, Window};
use fleetgate_wire::exec::Limit;
use serde::Deserialize;
use serde_json::Value;
use std::ffi::CString;
use std::path::Path;

/// The most containers whose settings are kept: a filter has some kilobytes.
const MAX_KNOWN: usize = 256;
/// The most bytes of them.
const MAX_REMEMBERED: usize = 16 << 20;

/// Capabilities by number.
const CAPABILITIES: [&str; 41] = [
    "CHOWN",
    "DAC_OVERRIDE",
    "DAC_READ_SEARCH",
    "FOWNER",
    "FSETID",
    "KILL",
    "SETGID",
    "SETUID",
    "SETPCAP",
    "LINUX_IMMUTABLE",
    "NET_BIND_SERVICE",
    "NET_BROADCAST",
    "NET_ADMIN",
    "NET_RAW",
    "IPC_LOCK",
    "IPC_OWNER",
    "SYS_MODULE",
    "SYS_RAWIO",
    "SYS_CHROOT",
    "SYS_PTRACE",
    "SYS_PACCT",
    "SYS_ADMIN",
    "SYS_BOOT",
    "SYS_NICE",
    "SYS_RESOURCE",
    "SYS_TIME",
    "SYS_TTY_CONFIG",
    "MKNOD",
    "LEASE",
    "AUDIT_WRITE",
    "AUDIT_CONTROL",
    "SETFCAP",
    "MAC_OVERRIDE",
    "MAC_ADMIN",
    "SYSLOG",
    "WAKE_ALARM",
    "BLOCK_SUSPEND",
    "AUDIT_READ",
    "PERFMON",
    "BPF",
    "CHECKPOINT_RESTORE",
];

/// What a container has whose configuration is not known (systemd-nspawn, LXC, a process): what containers usually have, so
/// that nobody comes to more by entering than its programs have.
const USUAL: [u32; 14] = [0, 1, 3, 4, 5, 6, 7, 8, 10, 13, 18, 27, 29, 31];

/// Limits by number (RLIMIT_…).
const LIMITS: [&str; 16] = [
    "CPU",
    "FSIZE",
    "DATA",
    "STACK",
    "CORE",
    "RSS",
    "NPROC",
    "NOFILE",
    "MEMLOCK",
    "AS",
    "LOCKS",
    "SIGPENDING",
    "MSGQUEUE",
    "NICE",
    "RTPRIO",
    "RTTIME",
];

/// What is read of a configuration.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Configuration {
    process: Value,
    linux: Option<Linux>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Linux {
    seccomp: Value,
}

/// The order's part about a container that has no configuration: root inside, with what its first process may have at most.
pub fn unknown(bounds: Bounds) -> Container {
    let usual = USUAL.iter().fold(0, |all, one| all | 1u64 << one) & bounds.capabilities;
    Container {
        namespaces: 0,
        cgroups: Vec::new(),
        user: InsideUser::Numbers {
            ids: Ids {
                uid: 0,
                gid: 0,
                groups: vec![0],
            },
        },
        window: Window::default(),
        environment: Vec::new(),
        directory: None,
        capabilities: Capabilities {
            bounding: usual,
            effective: usual,
            permitted: usual,
            inheritable: 0,
            ambient: 0,
        },
        no_new_privileges: bounds.no_new_privileges,
        filter: Vec::new(),
        filter_flags: 0,
        label: None,
        limits: Vec::new(),
        oom_score_adj: None,
        umask: None,
    }
}

impl Weighed for Container {
    fn bytes(&self) -> usize {
        let variables = self.environment.iter();
        let variables =
            variables.map(|variable| variable.name.as_bytes().len() + variable.value.as_bytes().len());
        self.filter.len() + variables.sum::<usize>()
    }
}

/// The order's part by a configuration.
pub fn read(config: &Path) -> Result<Container, Unusable> {
    static KNOWN: Remembered = Remembered::new(MAX_KNOWN, MAX_REMEMBERED);
    KNOWN
        .of(config, || parsed(config))
        .map(|known| Container::clone(&known))
}

fn parsed(config: &Path) -> Result<Container, Unusable> {
    let broken = |why: &str| Unusable::File(config.to_owned(), why.to_owned());
    let document: Configuration =
        document(config).ok_or_else(|| broken("it cannot be read as a container's configuration"))?;
    let process = &document.process;
    if !process.is_object() {
        return Err(broken("it has no `process`"));
    }
    let user = &process["user"];
    let id = |value: &Value| u32::try_from(value.as_u64().unwrap_or(0)).ok();
    let (uid, gid) = id(&user["uid"])
        .zip(id(&user["gid"]))
        .ok_or_else(|| broken("its user has a number that is none"))?;
    let groups = list(&user["additionalGids"]).filter_map(id).collect();
    let capabilities = &process["capabilities"];
    let set = |name: &str| {
        let names = list(&capabilities[name]).filter_map(Value::as_str);
        names.filter_map(capability).fold(0, |all, one| all | 1u64 << one)
    };
    let (filter, filter_flags) = match &document.linux.unwrap_or_default().seccomp {
        Value::Null => (Vec::new(), 0),
        profile => {
            let (program, flags) = profile::compile(profile).map_err(Unusable::Profile)?;
            (profile::bytes(&program), flags)
        }
    };
    let limit = |limit: &Value| {
        let name = limit["type"].as_str()?.strip_prefix("RLIMIT_")?;
        Some(Limit {
            resource: LIMITS.iter().position(|known| *known == name)? as u32,
            soft: limit["soft"].as_u64()?,
            hard: limit["hard"].as_u64()?,
        })
    };
    Ok(Container {
        namespaces: 0,
        cgroups: Vec::new(),
        user: InsideUser::Numbers {
            ids: Ids { uid, gid, groups },
        },
        window: Window::default(),
        environment: list(&process["env"])
            .filter_map(|variable| variable.as_str()?.split_once('='))
            .filter_map(|(name, value)| {
                Some(Variable {
                    name: CString::new(name).ok()?,
                    value: CString::new(value).ok()?,
                })
            })
            .collect(),
        directory: process["cwd"].as_str().and_then(|path| CString::new(path).ok()),
        capabilities: Capabilities {
            bounding: set("bounding"),
            effective: set("effective"),
            permitted: set("permitted"),
            inheritable: set("inheritable"),
            ambient: set("ambient"),
        },
        no_new_privileges: process["noNewPrivileges"].as_bool().unwrap_or(false),
        filter,
        filter_flags,
        label: label(process),
        limits: list(&process["rlimits"]).filter_map(limit).collect(),
        oom_score_adj: process["oomScoreAdj"]
            .as_i64()
            .and_then(|score| i32::try_from(score).ok()),
        umask: user["umask"].as_u64().and_then(|mask| u32::try_from(mask).ok()),
    })
}

/// A capability's number, from `CAP_NAME`.
fn capability(name: &str) -> Option<u32> {
    let name = name.strip_prefix("CAP_")?;
    let at = CAPABILITIES.iter().position(|known| *known == name)?;
    u32::try_from(at).ok()
}

/// What AppArmor or SELinux calls its programs.
fn label(process: &Value) -> Option<Label> {
    let made = |file: &str, text: String| {
        Some(Label {
            file: CString::new(file).ok()?,
            text: CString::new(text).ok()?,
        })
    };
    let given = |name: &str| process[name].as_str().filter(|label| !label.is_empty());
    if let Some(profile) = given("apparmorProfile") {
        return made("apparmor/exec", format!("exec {profile}"));
    }
    made("exec", given("selinuxLabel")?.to_owned())
}

/// The elements of a list; nothing where there is none.
pub(crate) fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tables_are_in_the_kernels_order() {
        for (name, number) in [
            ("CAP_CHOWN", 0),
            ("CAP_SYS_ADMIN", 21),
            ("CAP_SETFCAP", 31),
            ("CAP_CHECKPOINT_RESTORE", 40),
        ] {
            assert_eq!(capability(name), Some(number));
        }
        assert_eq!(capability("CAP_NONE"), None);
        assert_eq!((LIMITS[7], LIMITS[15]), ("NOFILE", "RTTIME"));
    }

    #[test]
    fn a_label_goes_where_its_module_reads_it() {
        let of = |text: &str| label(&serde_json::from_str(text).expect("JSON"));
        assert_eq!(of("{}"), None);
        assert_eq!(of(r#"{"apparmorProfile":"","selinuxLabel":""}"#), None);
        let found = of(r#"{"apparmorProfile":"docker-default"}"#).expect("one");
        assert_eq!(
            (found.file.as_c_str(), found.text.as_c_str()),
            (c"apparmor/exec", c"exec docker-default")
        );
        let found = of(r#"{"selinuxLabel":"system_u:system_r:container_t:s0:c1,c2"}"#).expect("one");
        assert_eq!(found.file.as_c_str(), c"exec");
    }
}

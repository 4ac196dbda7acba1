//! Whether SELinux would let the services begin sessions: asked of the kernel, whose policy answers for domains that
//! nothing runs in yet.

use super::node::Finding;
use fleetgate_base::selinux::{KERNEL, LABEL, MAX_LABEL, ask, bare, index, read};
use fleetgate_node::config::{Config, SelinuxUse};
use fleetgate_sys::file;
use std::ffi::CString;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

const WHAT: &str = "SELinux";
/// What the services' units ask systemd for.
const OURS: &str = "system_u:system_r:fleetgate_t:s0";
const REMEDY: &str = "semodule -i /usr/share/fleetgate/selinux/fleetgate.cil, then restart the service; docs/node.md says \
    what the module adds";
/// Where libselinux.so.1 may be.
const LIBRARIES: [&str; 8] = [
    "/lib64",
    "/usr/lib64",
    "/lib",
    "/usr/lib",
    "/lib/x86_64-linux-gnu",
    "/usr/lib/x86_64-linux-gnu",
    "/lib/aarch64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
];

/// From which context the services would enter which, and how they may.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Entry {
    from: String,
    to: String,
    /// By executing a program, as shells begin.
    execute: bool,
    /// As it runs, as file transfer and forwardings begin.
    change: bool,
}

pub fn look(config: &Config) -> Finding {
    let enforce = fs::read_to_string(Path::new(KERNEL).join("enforce")).ok();
    let has_library = LIBRARIES
        .iter()
        .any(|directory| Path::new(directory).join("libselinux.so.1").exists());
    found(config.selinux, enforce.as_deref(), has_library, entry().as_ref())
}

/// `enforce`: what the kernel says; none: it does not run SELinux.
fn found(wanted: SelinuxUse, enforce: Option<&str>, has_library: bool, entry: Option<&Entry>) -> Finding {
    match (wanted, enforce.map(str::trim)) {
        (SelinuxUse::Auto, None) => return Finding::good(WHAT, "the kernel does not run it"),
        (SelinuxUse::Required, None) => {
            return Finding::wrong(
                WHAT,
                "required, and the kernel does not run it: no session begins",
                "enable it, or set `selinux = \"auto\"`",
            );
        }
        (_, Some(_)) if !has_library => {
            return Finding::wrong(
                WHAT,
                "active, and libselinux.so.1 is not there: no session begins",
                "install libselinux1 (Debian) or libselinux (Fedora)",
            );
        }
        (_, Some("0")) => return Finding::good(WHAT, "permissive"),
        _ => {}
    }
    match entry {
        None => Finding::good(WHAT, "enforcing"),
        Some(Entry {
            from,
            to,
            execute: true,
            change: true,
        }) => Finding::good(WHAT, format!("enforcing; a service in {from} may enter {to}")),
        Some(Entry {
            from,
            to,
            execute: true,
            ..
        }) => Finding::less(
            WHAT,
            format!(
                "enforcing; a service in {from} may enter {to} for shells alone: it refuses file transfer and forwardings"
            ),
            REMEDY,
        ),
        Some(Entry { from, to, .. }) => Finding::wrong(
            WHAT,
            format!("enforcing; a service in {from} may not enter {to}: it refuses every session"),
            REMEDY,
        ),
    }
}

/// How the service of this machine would enter the context of the person who asks; none where the kernel does not say.
fn entry() -> Option<Entry> {
    let to = read("/proc/self/attr/current").ok()?;
    let from = match ask("context", OURS) {
        Ok(_) => OURS.to_owned(),
        Err(_) => started_by_init()?,
    };
    let class = index("process/index").ok()?;
    let answer = ask("access", &format!("{from} {to} {class}")).ok()?;
    let may = |permission: &str| {
        let index = index(&format!("process/perms/{permission}")).ok()?;
        Some(allowed(&answer, index))
    };
    let (execute, change) = (may("transition")?, may("dyntransition")?);
    Some(Entry {
        from,
        to,
        execute,
        change,
    })
}

/// The context that this program gets where init starts it.
fn started_by_init() -> Option<String> {
    let init = read("/proc/1/attr/current").ok()?;
    let program = std::env::current_exe().ok()?;
    let program = CString::new(program.as_os_str().as_bytes()).ok()?;
    let program = file::openat(file::CWD, &program, file::flags::O_RDONLY, 0).ok()?;
    let label = file::attribute(&program, LABEL, MAX_LABEL).ok()?;
    let class = index("process/index").ok()?;
    ask("create", &format!("{init} {} {class}", bare(&label))).ok()
}

/// Whether the kernel's answer about access has the permission of that number: its first word is the mask.
fn allowed(answer: &str, index: u32) -> bool {
    let mask = answer.split_whitespace().next();
    let mask = mask.and_then(|mask| u32::from_str_radix(mask, 16).ok());
    let bit = index.checked_sub(1).and_then(|bit| 1u32.checked_shl(bit));
    matches!((mask, bit), (Some(mask), Some(bit)) if mask & bit != 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Grade;

    #[test]
    fn selinux_is_looked_at_as_the_node_needs_it() {
        use SelinuxUse::{Auto, Required};
        for (wanted, enforce, has_library, expected) in [
            (Auto, None, false, (Grade::Good, "the kernel does not run it")),
            (Required, None, true, (Grade::Wrong, "required, and the kernel")),
            (Auto, Some("1\n"), false, (Grade::Wrong, "active, and libselinux")),
            (Auto, Some("1\n"), true, (Grade::Good, "enforcing")),
            (Required, Some("0"), true, (Grade::Good, "permissive")),
        ] {
            let finding = found(wanted, enforce, has_library, None);
            assert!(
                finding.grade == expected.0 && finding.found.starts_with(expected.1),
                "{finding:?}"
            );
        }
    }

    #[test]
    fn domains_that_may_not_be_entered_are_told_of() {
        for (execute, change, grade, words) in [
            (true, true, Grade::Good, "a service in a:b:c_t may enter d:e:f_t"),
            (true, false, Grade::Less, "refuses file transfer and forwardings"),
            (false, true, Grade::Wrong, "refuses every session"),
            (false, false, Grade::Wrong, "refuses every session"),
        ] {
            let (from, to) = ("a:b:c_t".to_owned(), "d:e:f_t".to_owned());
            let entry = Entry {
                from,
                to,
                execute,
                change,
            };
            let finding = found(SelinuxUse::Auto, Some("1"), true, Some(&entry));
            assert!(
                finding.grade == grade && finding.found.ends_with(words),
                "{finding:?}"
            );
            let permissive = found(SelinuxUse::Auto, Some("0"), true, Some(&entry));
            assert_eq!(permissive.grade, Grade::Good);
        }
    }

    #[test]
    fn the_kernels_mask_is_read() {
        // transition is the second permission of a process, dyntransition the 24th.
        let answer = "800002 ffffffff 0 fffbffff 5 0";
        assert!(allowed(answer, 2) && allowed(answer, 24));
        assert!(!allowed(answer, 1) && !allowed(answer, 0) && !allowed(answer, 33));
        assert!(!allowed("", 2));
    }
}

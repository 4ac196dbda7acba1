//! A container's seccomp profile binds who enters as it binds the container's own programs.

use fleetgate_tests::containers::{Container, Runtime};
use fleetgate_tests::needs_root;
use serde_json::{Value, json};

fn denying(names: &[&str]) -> Value {
    json!({
        "defaultAction": "SCMP_ACT_ALLOW",
        "syscalls": [{ "names": names, "action": "SCMP_ACT_ERRNO", "errnoRet": 95 }],
    })
}

#[test]
fn a_profile_holds_with_and_without_no_new_privs() {
    needs_root!("containers");
    for no_new_privileges in [true, false] {
        let container = Container::with(Runtime::Runc, |config| {
            config["process"]["noNewPrivileges"] = json!(no_new_privileges);
            config["linux"]["seccomp"] = denying(&["mkdir", "mkdirat"]);
        });
        let try_it = ["sh", "-c", "mkdir /tmp/x 2>&1; cat /proc/self/status"];
        let fields = |text: String| {
            let wanted = |line: &&str| {
                ["mkdir", "Seccomp:", "NoNewPrivs", "Cap"]
                    .iter()
                    .any(|word| line.starts_with(word))
            };
            text.lines().filter(wanted).map(str::to_owned).collect::<Vec<_>>()
        };
        let ours = fields(container.says(&[], &try_it));
        assert_eq!(
            ours,
            fields(container.runtime_says(&try_it)),
            "{no_new_privileges}"
        );
        assert!(ours[0].contains("not supported"), "{ours:?}");
    }
}

/// runc can neither start nor enter such a container: it changes its ids behind the filter.
#[test]
fn a_profile_that_forbids_setuid_keeps_nobody_out() {
    needs_root!("containers");
    for no_new_privileges in [true, false] {
        let container = Container::new();
        container.reconfigure(|config| {
            config["process"]["noNewPrivileges"] = json!(no_new_privileges);
            let ids = ["setuid", "setresuid", "setgid", "setresgid", "setgroups"];
            config["linux"]["seccomp"] = denying(&ids);
        });
        assert_eq!(
            container.says(&["--user", "app"], &["id", "-u"]),
            "1000\n",
            "{no_new_privileges}"
        );
    }
}

/// What it takes to be bound must be given up again before the container sees anything.
#[test]
fn a_profile_that_forbids_giving_up_capabilities_is_refused() {
    needs_root!("containers");
    let container = Container::new();
    let with = |no_new_privileges: bool| {
        container.reconfigure(|config| {
            config["process"]["noNewPrivileges"] = json!(no_new_privileges);
            config["linux"]["seccomp"] = denying(&["capset"]);
        });
    };
    with(false);
    let why = container.refuses(&[], &["true"]);
    assert!(why.contains("forbids giving up a capability (capset)"), "{why}");
    // Without gaining privileges nothing is kept for it.
    with(true);
    assert_eq!(container.says(&[], &["echo", "in"]), "in\n");
}

#[test]
fn a_profile_that_cannot_be_kept_is_refused() {
    needs_root!("containers");
    let container = Container::new();
    container.reconfigure(|config| {
        config["linux"]["seccomp"] =
            json!({ "defaultAction": "SCMP_ACT_NOTIFY", "listenerPath": "/run/none.sock" });
    });
    let why = container.refuses(&[], &["true"]);
    assert!(
        why.contains("its seccomp profile") && why.contains("SCMP_ACT_NOTIFY"),
        "{why}"
    );
}

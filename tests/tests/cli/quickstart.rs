//! docs/quickstart.md as it stands: every block of it is run, one after the other, as root on a machine of its own (mounts,
//! network and processes that go with the test). Nothing of the host's is changed.

use fleetgate_tests::folder::Folder;
use fleetgate_tests::needs_root;
use std::path::Path;
use std::process::{Command, Stdio};

/// Longer than this only a hang takes, in seconds.
const PATIENCE: &str = "180";

/// The blocks of the page, as one script.
fn script(page: &str) -> String {
    let mut out = String::from("set -eu\n");
    for block in page.split("\n```sh\n").skip(1) {
        let (code, _) = block.split_once("\n```").expect("a block that ends");
        // A backup holds the audit log as far as it has come in: nobody types as fast as this script.
        if code.starts_with("fleetgate backup") {
            out += "until fleetgate audit | grep -q forwarded; do sleep 0.1; done\n";
        }
        out += code;
        out.push('\n');
    }
    out
}

/// A machine of its own for `SCRIPT`: what it writes goes with it, and so does what it leaves running.
const MACHINE: &str = include_str!("../../scripts/quickstart.sh");

#[test]
fn the_quickstart_works_as_it_is_written() {
    needs_root!("namespaces");
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/quickstart.md");
    let script = script(&std::fs::read_to_string(page).expect("the page"));
    let dir = Folder::below(Path::new("/var/tmp"));
    for name in ["work", "bin"] {
        std::fs::create_dir_all(dir.join(name)).expect("made");
    }
    // A copy: the machine sees nothing of the host's /tmp.
    std::fs::copy(fleetgate_tests::fleetgate(), dir.join("bin/fleetgate")).expect("copied");
    std::fs::write(dir.join("script"), script).expect("written");
    let out = Command::new("unshare")
        .args([
            "--mount",
            "--net",
            "--pid",
            "--fork",
            "--kill-child",
            "--mount-proc",
        ])
        .args(["bash", "-euc", MACHINE])
        .env("DIR", &*dir)
        .env("SCRIPT", dir.join("script"))
        .env("PATIENCE", PATIENCE)
        .stdin(Stdio::null())
        .output()
        .expect("unshare runs");
    let (said, errors) = (
        String::from_utf8_lossy(&out.stdout),
        String::from_utf8_lossy(&out.stderr),
    );
    let log = |name: &str| std::fs::read_to_string(dir.join("work").join(name)).unwrap_or_default();
    let all = format!(
        "--- stdout\n{said}\n--- stderr\n{errors}\n--- up.log\n{}\n--- up2.log\n{}\n--- web2.log\n{}",
        log("up.log"),
        log("up2.log"),
        log("web2.log")
    );
    assert!(out.status.success(), "{}\n{all}", out.status);
    for words in [
        // status and ls
        "alice",
        "web1  connected",
        "web2  connected",
        // a command by name, one by labels
        "Linux",
        "uid=0(root)",
        // the agent, seen from the node
        "(ED25519-CERT)",
        // the restored cluster
        "after the restore",
        "on the new machine",
        "restored",
        // what the session was told
        "user alice is locked (laptop stolen)",
        // audit
        "cluster_made",
        "user_added",
        "joined",
        "login_accepted",
        "session_started",
        "forwarded",
        "lock_added",
        "dial_denied",
        "session_ended",
    ] {
        assert!(said.contains(words), "{words:?} is missing in\n{all}");
    }
}

#[test]
fn blocks_are_found_and_prose_is_not_run() {
    assert_eq!(
        script("a\n```sh\nb\nc\n```\nd\n```toml\ne\n```\n```sh\nf\n```\n"),
        "set -eu\nb\nc\nf\n"
    );
}

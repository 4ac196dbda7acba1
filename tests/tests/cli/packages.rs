//! What the packages hold, who owns it, and that installing and removing them leaves a system as it should be.
//! A plain build has no images and so no packages: there these tests have nothing to look at.

use fleetgate_tests::installed::{Root, VERSION, deb, rpm};
use fleetgate_tests::needs_root;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::Command;

fn output(command: &mut Command) -> String {
    let out = command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    assert!(
        out.status.success(),
        "{command:?}: {}",
        String::from_utf8_lossy(&out.stderr)
    );
    String::from_utf8(out.stdout).expect("text")
}

/// Each file of the .deb: mode, owner, path.
fn deb_files(deb: &Path) -> Vec<(String, String, String)> {
    let list = output(Command::new("dpkg-deb").arg("--contents").arg(deb));
    let row = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        (
            words[0].to_owned(),
            words[1].to_owned(),
            words[5].trim_start_matches('.').to_owned(),
        )
    };
    list.lines().map(row).collect()
}

/// What both packages install, with its mode.
fn common() -> Vec<(&'static str, String)> {
    let lib = format!("/usr/lib/fleetgate/{VERSION}");
    vec![
        ("-rwxr-xr-x", "/usr/bin/fleetgate".to_owned()),
        ("-rwxr-xr-x", "/usr/bin/fleetgate-exec".to_owned()),
        ("-rwxr-xr-x", format!("{lib}/fleetgate-session")),
        ("-rwxr-xr-x", format!("{lib}/fleetgate-front")),
        ("-rwxr-xr-x", format!("{lib}/fleetgate-tunnel")),
        ("-rwxr-xr-x", format!("{lib}/fleetgate-recorder")),
        ("-rwxr-xr-x", format!("{lib}/fleetgate-resolver")),
        ("-rwxr-xr-x", "/usr/lib/nagios/plugins/check_fleetgate".to_owned()),
        ("-rw-r--r--", "/etc/pam.d/fleetgate".to_owned()),
        ("-rw-r--r--", "/etc/logrotate.d/fleetgate".to_owned()),
        (
            "-rw-r--r--",
            "/usr/lib/systemd/system/fleetgate-node.service".to_owned(),
        ),
        (
            "-rw-r--r--",
            "/usr/lib/systemd/system/fleetgate-node.socket".to_owned(),
        ),
        (
            "-rw-r--r--",
            "/usr/lib/systemd/system/fleetgate.service".to_owned(),
        ),
        (
            "-rw-r--r--",
            "/usr/lib/systemd/system/fleetgate-master@.service".to_owned(),
        ),
        (
            "-rw-r--r--",
            "/usr/share/man/man1/fleetgate-master-run.1.gz".to_owned(),
        ),
        ("-rw-r--r--", "/usr/lib/sysusers.d/fleetgate.conf".to_owned()),
        ("-rw-r--r--", "/usr/share/man/man1/fleetgate.1.gz".to_owned()),
        (
            "-rw-r--r--",
            "/usr/share/man/man1/fleetgate-seal-doctor.1.gz".to_owned(),
        ),
        (
            "-rw-r--r--",
            "/usr/share/bash-completion/completions/fleetgate".to_owned(),
        ),
        (
            "-rw-r--r--",
            "/usr/share/fish/vendor_completions.d/fleetgate.fish".to_owned(),
        ),
    ]
}

#[test]
fn the_deb_holds_what_it_should_and_all_of_it_is_roots() {
    let Some(deb) = deb() else { return };
    let files = deb_files(&deb);
    for (mode, path) in common() {
        assert!(
            files.iter().any(|f| f.0 == mode && f.2 == path),
            "{mode} {path} in {files:#?}"
        );
    }
    for (mode, owner, path) in &files {
        assert_eq!(owner, "root/root", "{path}");
        assert!(!mode[1..].contains(['s', 'S', 't', 'T']), "{mode} {path}");
        assert!(
            mode.as_bytes()[5] == b'-' && mode.as_bytes()[8] == b'-',
            "others may write {path}: {mode}"
        );
    }
    let field = |name: &str| output(Command::new("dpkg-deb").arg("--field").arg(&deb).arg(name));
    assert_eq!(field("Version").trim(), VERSION);
    assert!(field("Depends").contains("libc6 (>= 2."), "{}", field("Depends"));
}

#[test]
fn the_rpm_holds_the_same() {
    let Some(rpm) = rpm() else { return };
    let list = output(Command::new("rpm").args(["-qplv"]).arg(&rpm));
    for (mode, path) in common() {
        let line = list.lines().find(|l| l.ends_with(&format!(" {path}")));
        let line = line.unwrap_or_else(|| panic!("{path} in {list}"));
        let words: Vec<&str> = line.split_whitespace().collect();
        assert_eq!((words[0], words[2], words[3]), (mode, "root", "root"), "{line}");
    }
    let configuration = output(Command::new("rpm").args(["-qpc"]).arg(&rpm));
    let configuration: Vec<&str> = configuration.lines().collect();
    assert_eq!(
        configuration,
        ["/etc/logrotate.d/fleetgate", "/etc/pam.d/fleetgate"]
    );
}

#[test]
fn installed_it_runs_and_removed_it_leaves_nothing() {
    let Some(deb) = deb() else { return };
    needs_root!("a system to install into");
    let root = Root::with(&deb);
    let version = output(root.command("fleetgate").arg("--version"));
    assert!(
        version.starts_with(&format!("fleetgate {VERSION}\n")),
        "{version}"
    );

    let lib = root.path().join("usr/lib/fleetgate").join(VERSION);
    for name in [
        "fleetgate-session",
        "fleetgate-front",
        "fleetgate-tunnel",
        "fleetgate-recorder",
        "fleetgate-resolver",
    ] {
        let file = std::fs::metadata(lib.join(name)).expect("installed");
        assert_eq!(
            (file.uid(), file.gid(), file.permissions().mode() & 0o7777),
            (0, 0, 0o755),
            "{name}"
        );
        let digest = output(Command::new("sha256sum").arg(lib.join(name)));
        let digest = digest.split(' ').next().unwrap_or_default();
        let line = format!("{name} {VERSION} {digest}\n");
        assert!(
            version.contains(&line),
            "the installed file is the embedded image: {line}{version}"
        );
    }

    let pam = root.path().join("etc/pam.d/fleetgate");
    for line in std::fs::read_to_string(&pam)
        .expect("installed")
        .lines()
        .filter(|l| l.starts_with("@include"))
    {
        let included = line.trim_start_matches("@include ").trim();
        assert!(root.path().join("etc/pam.d").join(included).exists(), "{line}");
    }

    output(root.command("dpkg").args(["--remove", "fleetgate"]));
    assert!(!root.path().join("usr/lib/fleetgate").exists());
    assert!(pam.exists(), "configuration stays until it is purged");
    output(root.command("dpkg").args(["--purge", "fleetgate"]));
    assert!(!pam.exists());
    let left = output(Command::new("find").arg(root.path()).args([
        "-name",
        "*fleetgate*",
        "-not",
        "-path",
        "*/tmp/*",
    ]));
    assert_eq!(left.trim(), "");
}

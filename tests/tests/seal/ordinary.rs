//! `fleetgate seal run` by a user without privileges: an overlay, made in a user namespace that ends at once; where those are
//! forbidden, a memfd, and the reason. What he runs is told from outside as root's is.

use fleetgate_tests::fleetgate;
use fleetgate_tests::seal::{Place, said};
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

const NOBODY: u32 = 65534;

/// This command as nobody.
fn as_nobody(program: &std::path::Path) -> Command {
    let mut command = Command::new(program);
    command.uid(NOBODY).gid(NOBODY).current_dir("/");
    command
}

#[test]
fn he_gets_an_overlay_that_others_can_verify() {
    let place = Place::below("/var/tmp");
    // The program under test may lie where that user cannot look.
    let own = place.copy(&fleetgate(), "fleetgate");
    for (words, word) in [(&[][..], "overlay"), (&["--strategy", "memfd"], "memfd")] {
        let script = "readlink /proc/self/ns/user /proc/self/ns/mnt; grep -E '^(Uid|CapEff)' /proc/self/status; echo up; read line";
        let mut child = as_nobody(&own)
            .args(["seal", "run", "--verbose"])
            .args(words)
            .args(["--", "/bin/sh", "-c", script])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("starts");
        let mut text = String::new();
        let mut out = child.stdout.take().expect("piped");
        let mut byte = [0];
        while !text.ends_with("up\n") {
            out.read_exact(&mut byte).expect("it is up");
            text.push(char::from(byte[0]));
        }
        // The namespaces were the child's that made the overlay, and the program is in none of them.
        for name in ["user", "mnt"] {
            let ours = std::fs::read_link(format!("/proc/self/ns/{name}")).expect("a link");
            assert!(text.contains(ours.to_str().expect("text")), "{text}");
        }
        assert!(text.contains(&format!("Uid:\t{NOBODY}\t{NOBODY}")), "{text}");
        assert!(text.contains("CapEff:\t0000000000000000"), "{text}");

        let pid = child.id().to_string();
        for mut look in [Command::new(&own), as_nobody(&own)] {
            let (text, error, code) = said(&look.args(["seal", "verify", &pid]).output().expect("runs"));
            assert!(text.starts_with(&format!("{pid}: {word}: ")), "{text}{error}");
            assert_eq!(code, 0, "{text}");
        }
        drop(child.stdin.take());
        let mut error = String::new();
        child
            .stderr
            .take()
            .expect("piped")
            .read_to_string(&mut error)
            .expect("text");
        child.wait().expect("ends");
        assert!(
            error.contains(&format!("runs from a sealed image: {word}")),
            "{error}"
        );
        assert!(!error.contains("is not used"), "{error}");
    }
}

/// The limit belongs to the user namespace that it is set in, so the machine's own stays.
#[test]
fn where_user_namespaces_are_forbidden_he_gets_a_memfd_and_the_reason() {
    let place = Place::below("/var/tmp");
    let own = place.copy(&fleetgate(), "fleetgate");
    for (limit, word) in [("1", "overlay"), ("0", "memfd")] {
        let script = format!("echo {limit} > /proc/sys/user/max_user_namespaces && exec \"$@\"");
        let mut command = as_nobody(std::path::Path::new("/usr/bin/unshare"));
        command
            .args(["--user", "--map-root-user", "sh", "-c", &script, "sh"])
            .arg(&own);
        let inside = format!("{} seal verify $$", own.display());
        command.args(["seal", "run", "--verbose", "--", "/bin/sh", "-c", &inside]);
        let (text, error, _) = said(&command.output().expect("runs"));
        assert!(text.contains(&format!(": {word}: ")), "{text}{error}");
        let reason = "fleetgate: overlay is not used: making a user namespace for it: user.max_user_namespaces allows no more \
                      (No space left on device (ENOSPC))\n";
        assert_eq!(error.contains(reason), limit == "0", "{error}");
    }
}

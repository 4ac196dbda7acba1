//! `cargo xtask bench pam`: a PAM session from the warm fork server beside one of a program executed for it, and what
//! an open session keeps in memory. Both run in a mount namespace of their own, on a service written there; nothing
//! of the machine's /etc is changed.

use super::{Bench, Goal, Promised, Subject};
use crate::shell::{Result, build_benches};
use std::cell::RefCell;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

const WARM: &str = "warm fork server";
const COLD: &str = "program per session";
const CASE: &str = "PAM session, until closed";
const SAMPLES: usize = 200;
const OF_COLD: &str = "warm PAM session, of a cold one";
/// See [`super::Entry`].
pub const PROMISES: &[Promised] = &[Promised {
    name: OF_COLD,
    goal: Goal::AtMost(0.334),
}];

/// What Debian's and Fedora's sshd have in common, without what needs a login manager.
const SERVICE: &str = "auth required pam_unix.so\\naccount required pam_nologin.so\\naccount required pam_unix.so\\n\
    session optional pam_keyinit.so force revoke\\nsession required pam_limits.so\\n\
    session required pam_unix.so\\nsession required pam_env.so\\nsession optional pam_umask.so\\n\
    session optional pam_mail.so standard noenv\\npassword required pam_unix.so\\n";

/// A line-driven program in its own mount namespace.
struct Driver {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Driver {
    fn start(bench: &Bench) -> Result<Driver> {
        let mounts = format!(
            "set -e; d=$(mktemp -d); cp -a /etc/pam.d $d; printf '{SERVICE}' > $d/pam.d/fleetgate-bench; \
             mount --bind $d/pam.d /etc/pam.d; mount -t tmpfs none $d; exec \"$@\""
        );
        let mut child = Command::new("unshare")
            .args([
                "--mount",
                "--propagation",
                "private",
                "bash",
                "-c",
                &mounts,
                "bench",
            ])
            .arg(bench.programs.join("bench-pam"))
            .arg(&bench.built.resolver)
            .arg(bench.programs.join("bench-pam-cold"))
            .args(["fleetgate-bench", "root"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|e| format!("unshare (package util-linux): {e}"))?;
        let (input, output) = (child.stdin.take(), child.stdout.take());
        Ok(Driver {
            child,
            input: input.ok_or("no stdin")?,
            output: BufReader::new(output.ok_or("no stdout")?),
        })
    }

    /// One word, and the numbers that come back.
    fn ask(&mut self, word: &str) -> Result<Vec<f64>> {
        let gone = |e| format!("the PAM driver does not answer: {e} (is this root?)");
        writeln!(self.input, "{word}").map_err(gone)?;
        let mut line = String::new();
        self.output.read_line(&mut line).map_err(gone)?;
        let numbers: Option<Vec<f64>> = line.split_whitespace().map(|n| n.parse().ok()).collect();
        match numbers {
            Some(numbers) if !numbers.is_empty() => Ok(numbers),
            _ => Err(format!("the PAM driver ended over {word:?}: see its line above")),
        }
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Measures.
pub fn run(bench: &mut Bench) -> Result {
    build_benches(&["bench-pam", "bench-pam-cold"])?;
    let driver = RefCell::new(Driver::start(bench)?);
    // Each word measures both cases at once; the second is kept beside for its own row.
    let wholes = [RefCell::new(Vec::new()), RefCell::new(Vec::new())];
    let one = |word: &'static str, whole: usize| {
        let (driver, whole) = (&driver, &wholes[whole]);
        move || {
            let numbers = driver.borrow_mut().ask(word)?;
            whole.borrow_mut().push(numbers[1]);
            Ok(numbers[0])
        }
    };
    let subjects = vec![
        Subject::sampled(WARM, one("warm", 0)),
        Subject::sampled(COLD, one("cold", 1)),
    ];
    bench.run("PAM session, until open", "us", 10, SAMPLES, subjects)?;
    for (name, samples) in [WARM, COLD].into_iter().zip(&wholes) {
        let all = samples.borrow();
        let measured = all[all.len() - bench.times(SAMPLES)..].to_vec();
        bench.record(CASE, name, "us", measured);
    }
    bench.promise_of(OF_COLD, CASE, WARM, COLD)?;
    for open in [1, 10, 50] {
        let sizes = driver.borrow_mut().ask(&format!("memory {open}"))?;
        let kb = sizes.iter().map(|bytes| bytes / 1024.0).collect();
        bench.record(&format!("memory, {open} open"), "PAM process", "KB PSS", kb);
    }
    Ok(())
}

//! For the tests of sealing: programs to seal, directories to keep them in, and a part of a test that is played by
//! another process.

use crate::world::wait_until;
use fleetgate_sys::{Fd, exe};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU32, Ordering};

/// A directory that everybody may look into, gone when dropped.
pub struct Place {
    /// Where it is.
    pub path: PathBuf,
}

impl Place {
    /// A fresh one below `parent`.
    pub fn below(parent: &str) -> Place {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = PathBuf::from(format!("{parent}/fleetgate-seal-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a fresh directory");
        Place { path }
    }

    /// A copy of `program` called `name`, mode 0755.
    pub fn copy(&self, program: &Path, name: &str) -> PathBuf {
        let to = self.path.join(name);
        std::fs::copy(program, &to).expect("copied");
        std::fs::set_permissions(&to, PermissionsExt::from_mode(0o755)).expect("chmod");
        without_writer(&to);
        to
    }

    /// A program compiled from C with `flags`.
    pub fn compile(&self, name: &str, source: &str, flags: &[&str]) -> PathBuf {
        let (code, to) = (self.path.join(format!("{name}.c")), self.path.join(name));
        std::fs::write(&code, source).expect("written");
        let mut cc = Command::new("cc");
        cc.arg("-O1").arg("-o").args([&to, &code]).args(flags);
        assert!(cc.status().expect("cc runs").success(), "compiling {name}");
        to
    }

    /// A file with this content and mode.
    pub fn file(&self, name: &str, content: &[u8], mode: u32) -> PathBuf {
        let to = self.path.join(name);
        std::fs::write(&to, content).expect("written");
        std::fs::set_permissions(&to, PermissionsExt::from_mode(mode)).expect("chmod");
        without_writer(&to);
        to
    }
}

/// A test beside this one that starts a program at this moment has, until that program runs, a copy of the descriptor
/// we wrote with: executing the file would be "Text file busy".
pub fn without_writer(path: &Path) {
    let file = Fd::from(std::fs::File::open(path).expect("just written"));
    wait_until("nobody has it open for writing", || exe::has_no_writer(&file));
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.path);
    }
}

/// Prints its name and arguments and leaves with 7.
pub const SPEAK: &str = r#"
#include <stdio.h>
int main(int argc, char **argv) { for (int i = 0; i < argc; i++) puts(argv[i]); return 7; }
"#;

/// `fleetgate seal run [--strategy S] -- command…`.
pub fn seal_run(strategy: Option<&str>) -> Command {
    let mut command = Command::new(crate::fleetgate());
    command.args(["seal", "run"]);
    if let Some(strategy) = strategy {
        command.args(["--strategy", strategy]);
    }
    command.arg("--");
    command
}

/// What a command printed, both ways, and its exit code.
pub fn said(out: &Output) -> (String, String, i32) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (
        text(&out.stdout),
        text(&out.stderr),
        out.status.code().unwrap_or(-1),
    )
}

/// The variable that tells a test binary which part it plays.
const PART: &str = "FLEETGATE_TEST_PART";

/// Whether this process was started to play `part`.
pub fn plays(part: &str) -> bool {
    std::env::var(PART).is_ok_and(|p| p == part)
}

/// This test binary once more, playing `part` in the test called `test`, started by `before` (`unshare`, say).
pub fn play(before: &[&str], test: &str, part: &str) -> Command {
    let own = std::env::current_exe().expect("this test");
    let mut command = match before {
        [] => Command::new(own),
        [first, rest @ ..] => {
            let mut command = Command::new(first);
            command.args(rest).arg(own);
            command
        }
    };
    command
        .args(["--exact", test, "--nocapture", "--test-threads=1"])
        .env(PART, part);
    command
}

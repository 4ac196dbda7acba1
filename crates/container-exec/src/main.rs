//! `fleetgate-exec`: `fleetgate container exec` by a small static program, for scripts and probes that run a command in a
//! container often. What it does not do itself, it executes `fleetgate` for.
#![forbid(unsafe_code)]

use fleetgate_container_exec::{NOT_RUN, exit_code, options, run};
use fleetgate_policy::text;
use fleetgate_seal::Source;
use fleetgate_sys::process::effective_uid;
use fleetgate_sys::short_lived::ShortLived;
use std::ffi::OsString;
use std::io::IsTerminal;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, exit};

// It lives for a millisecond, and each call counts.
#[global_allocator]
static HEAP: ShortLived = ShortLived::new();

include!(concat!(env!("OUT_DIR"), "/images.rs"));

/// Where the full program is looked for, before the directory of this one.
const FULL: [&str; 2] = ["/usr/bin/fleetgate", "/usr/local/bin/fleetgate"];
/// Others than the owner may write.
const OTHERS_WRITE: u32 = 0o022;

fn main() {
    let words: Vec<OsString> = std::env::args_os().skip(1).collect();
    let has_terminal = std::io::stdin().is_terminal() && std::io::stdout().is_terminal();
    let Some((helper, request)) = ENTER.as_ref().zip(options::parse(&words, has_terminal)) else {
        exit(full_program(&words));
    };
    exit(match run(request, None, Source::Embedded(helper)) {
        Ok(code) => code,
        Err(e) => {
            eprintln!("fleetgate-exec: {}", text::printable_lines(&e.to_string()));
            exit_code(&*e)
        }
    });
}

/// Becomes `fleetgate container exec`; comes back only without it.
fn full_program(words: &[OsString]) -> i32 {
    let beside = std::env::current_exe()
        .ok()
        .map(|path| path.with_file_name("fleetgate"));
    let beside = beside.filter(|path| path.parent().is_some_and(is_ours) && is_ours(path));
    let mut why = std::io::Error::from(std::io::ErrorKind::NotFound);
    for place in FULL.map(PathBuf::from).into_iter().chain(beside) {
        let error = Command::new(place).args(["container", "exec"]).args(words).exec();
        if error.kind() != std::io::ErrorKind::NotFound {
            why = error;
        }
    }
    eprintln!(
        "fleetgate-exec: the program fleetgate, which this takes, cannot be executed ({why}): is the package whole?"
    );
    NOT_RUN
}

/// Whether nobody but root and who runs this can have put it there: this program may have been copied to a place of all.
fn is_ours(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|kept| {
        let owner = kept.uid();
        (owner == 0 || owner == effective_uid()) && kept.mode() & OTHERS_WRITE == 0
    })
}

//! Rows and how they are run: each in an empty directory and a process namespace of its own, so that a client left
//! in the background ends with its row.

use super::server::{Server, Subject, subjects};
use super::world::DIR;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// How long anything may take before a test gives up: only a hang reaches it.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// One thing that a real client does.
#[derive(Clone, Debug)]
pub struct Row {
    /// What it is, in a few words.
    pub name: String,
    /// Bash; it succeeds, or says what is wrong. `tests/peers/prelude.sh` stands before it.
    pub script: String,
    /// Run over the release build only: it takes long, and what it shows does not hang on the build.
    pub heavy: bool,
}

impl Row {
    /// A row.
    pub fn new(name: impl Into<String>, script: impl Into<String>) -> Row {
        Row {
            name: name.into(),
            script: script.into(),
            heavy: false,
        }
    }

    /// A row that only the release build is asked to do.
    pub fn heavy(name: impl Into<String>, script: impl Into<String>) -> Row {
        Row {
            heavy: true,
            ..Row::new(name, script)
        }
    }
}

/// The folder `tests/peers`.
pub fn peers() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("peers")
}

/// A program that `cargo xtask` has fetched or built from `tests/peers`, if it could.
pub fn fetched(path: &str) -> Option<PathBuf> {
    let program = target().join("peers").join(path);
    program.canonicalize().ok()
}

/// Where cargo builds.
pub(super) fn target() -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..");
    root.join(target.unwrap_or_else(|| PathBuf::from("target")))
}

/// Runs every row against every subject of this run; fails at the end, naming all rows that failed. `FLEETGATE_ROW`
/// leaves only the rows whose name holds it.
pub fn drive(rows: &[Row]) {
    drive_all(rows, &subjects());
}

/// Runs every row against the subjects that are reached directly: for a client that is told to do just that.
pub fn drive_directly(rows: &[Row]) {
    let mut directly = subjects();
    directly.retain(|(subject, _)| !subject.through_proxy());
    drive_all(rows, &directly);
}

/// Runs every row against one subject.
pub fn drive_by(rows: &[Row], subject: Subject) {
    drive_all(rows, &[(subject, usize::MAX)]);
}

fn drive_all(rows: &[Row], subjects: &[(Subject, usize)]) {
    if !crate::is_root() {
        return crate::skip("a network and accounts of its own need root");
    }
    let only = std::env::var("FLEETGATE_ROW").unwrap_or_default();
    let plain = std::env::var("FLEETGATE_SUBJECT").is_ok_and(|s| s == "plain");
    let wanted = |row: &&Row| row.name.contains(&only) && !(plain && row.heavy);
    let name = std::thread::current().name().unwrap_or_default().to_owned();
    // A thread has one world, so they are asked side by side.
    let failed: Vec<String> = std::thread::scope(|scope| {
        let mut asking = Vec::new();
        for &(subject, most) in subjects {
            let asked: Vec<&Row> = rows.iter().filter(wanted).take(most).collect();
            if asked.is_empty() {
                continue;
            }
            let thread = std::thread::Builder::new().name(name.clone());
            asking.push(
                thread
                    .spawn_scoped(scope, move || ask(subject, &asked))
                    .expect("a thread"),
            );
        }
        let answers = asking.into_iter().map(|one| one.join().expect("it has said why"));
        answers.flatten().collect()
    });
    assert!(failed.is_empty(), "these rows failed:\n  {}", failed.join("\n  "));
}

/// Asks one subject; the rows that failed.
fn ask(subject: Subject, rows: &[&Row]) -> Vec<String> {
    let server = Server::start(subject);
    let log = |from: usize| server.log((server.logged() - from).min(40));
    run_all(rows, &format!("{subject:?}"), || server.logged(), log)
}

/// Runs rows beside a server of the caller's, which is in this world, and fails naming those that failed; `log` is what it
/// has logged.
pub fn drive_beside(rows: &[Row], server: &str, log: impl Fn() -> Vec<String>) {
    let only = std::env::var("FLEETGATE_ROW").unwrap_or_default();
    let asked: Vec<&Row> = rows.iter().filter(|row| row.name.contains(&only)).collect();
    let since = |from: usize| log().split_off(from).join("\n");
    let failed = run_all(&asked, server, || log().len(), since);
    assert!(failed.is_empty(), "these rows failed:\n  {}", failed.join("\n  "));
}

/// The rows that failed; `logged` is how long the server's log is, `since` what stands behind that.
fn run_all(
    rows: &[&Row],
    server: &str,
    logged: impl Fn() -> usize,
    since: impl Fn(usize) -> String,
) -> Vec<String> {
    let mut failed = Vec::new();
    for row in rows {
        let (begun, before) = (Instant::now(), logged());
        let result = run(row, server);
        let took = begun.elapsed().as_secs_f64();
        match result {
            Ok(()) => println!("{server}: {}: passed in {took:.1} s", row.name),
            Err(said) if said.starts_with("exit status: 77:") => {
                let why = said.lines().next().unwrap_or_default();
                crate::skip(&format!("{}: {why}", row.name));
            }
            Err(said) => {
                let log = since(before);
                println!(
                    "{server}: {}: FAILED after {took:.1} s\n{said}\n-- server:\n{log}\n--",
                    row.name
                );
                failed.push(format!("{server}: {}", row.name));
            }
        }
    }
    failed
}

/// Runs one; what it said when it failed.
fn run(row: &Row, server: &str) -> Result<(), String> {
    let dir = Path::new(DIR).join("row");
    let _ = std::fs::remove_dir_all(&dir);
    std::fs::create_dir(&dir).expect("mkdir");
    let log = dir.with_extension("log");
    let file = File::create(&log).expect("create");
    let prelude = peers().join("prelude.sh");
    let script = format!(". '{}'\n{}", prelude.display(), row.script);
    // Files, not pipes: a client left in the background would hold a pipe open.
    let status = Command::new("timeout")
        .args([
            "--signal=KILL",
            &PATIENCE.as_secs().to_string(),
            "unshare",
            "--pid",
            "--fork",
        ])
        .args(["--kill-child", "--mount-proc", "bash", "-c", &script, "row"])
        .current_dir(&dir)
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("HOME", "/run/home/root")
        .env("USER", "root")
        .env("LC_ALL", "C.UTF-8")
        .env("TERM", "xterm")
        .env("SUBJECT", server)
        .env("FLEETGATE", crate::fleetgate())
        .env("PEERS", peers())
        // Where `cargo xtask` puts the clients that no distribution has.
        .env("FETCHED", target().join("peers"))
        .stdin(Stdio::null())
        .stdout(file.try_clone().expect("dup"))
        .stderr(file)
        .status()
        .expect("timeout");
    if status.success() {
        return Ok(());
    }
    let end = |path: &Path, most: usize| {
        let all = std::fs::read(path).unwrap_or_default();
        String::from_utf8_lossy(&all[all.len().saturating_sub(most)..]).into_owned()
    };
    let (said, steps) = (end(&log, 8000), end(&dir.with_extension("trace"), 1000));
    Err(format!("{status}: {said}\n-- its last steps:\n{steps}"))
}

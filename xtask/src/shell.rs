//! Running other programs and saying what went wrong. Everything here ends in a sentence a person can act on.

use std::path::{Path, PathBuf};
use std::process::Command;

/// What every chore returns; the error is the sentence that `cargo xtask` prints.
pub type Result<T = ()> = std::result::Result<T, String>;

/// The checkout.
pub fn root() -> PathBuf {
    let manifest = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    manifest.parent().map(Path::to_path_buf).unwrap_or(manifest)
}

/// Where cargo builds.
pub fn target() -> PathBuf {
    match std::env::var_os("CARGO_TARGET_DIR") {
        Some(dir) => root().join(dir),
        None => root().join("target"),
    }
}

/// Cargo, in the checkout. What `cargo run` tells of this package it is not told: build scripts that look at such a variable,
/// ring's for one, would run anew whenever a build of a person's own follows one of ours. A check from nothing writes no files
/// for the next build, which never comes.
pub fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root());
    for (name, _) in std::env::vars_os() {
        let told = name.to_str().is_some_and(|name| {
            ["CARGO_PKG_", "CARGO_MANIFEST_"]
                .iter()
                .any(|begin| name.starts_with(begin))
        });
        if told {
            command.env_remove(name);
        }
    }
    if std::env::var_os("CI").is_some_and(|ci| ci == "true") {
        command.env("CARGO_INCREMENTAL", "0");
    }
    command
}

/// The musl target of this machine's processor.
pub fn musl() -> String {
    format!("{}-unknown-linux-musl", std::env::consts::ARCH)
}

/// Runs `command`; its failure is an error that names it.
pub fn run(command: &mut Command) -> Result {
    let status = command
        .status()
        .map_err(|e| format!("{}: {e}", command.get_program().display()))?;
    if status.success() {
        Ok(())
    } else {
        Err(format!("`{}` failed: {status}", line(command)))
    }
}

/// Runs `command` and returns what it printed; its failure is an error with what it said.
pub fn output(command: &mut Command) -> Result<String> {
    let out = command
        .output()
        .map_err(|e| format!("{}: {e}", command.get_program().display()))?;
    if out.status.success() {
        String::from_utf8(out.stdout).map_err(|_| format!("`{}` printed no text", line(command)))
    } else {
        let said = String::from_utf8_lossy(&out.stderr);
        Err(format!(
            "`{}` failed: {}: {}",
            line(command),
            out.status,
            said.trim()
        ))
    }
}

/// A command as a person would type it.
fn line(command: &Command) -> String {
    let program = Path::new(command.get_program());
    let mut words = vec![
        program
            .file_name()
            .unwrap_or(program.as_os_str())
            .to_string_lossy(),
    ];
    words.extend(command.get_args().map(|a| a.to_string_lossy()));
    words.join(" ")
}

/// Reads a file; the error names it.
pub fn read(path: &Path) -> Result<Vec<u8>> {
    std::fs::read(path).map_err(|e| format!("{}: {e}", path.display()))
}

/// Reads a text; the error names it.
pub fn read_text(path: &Path) -> Result<String> {
    std::fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))
}

/// Writes a file, only if it would change: cargo rebuilds what depends on it otherwise.
pub fn write(path: &Path, data: &[u8]) -> Result {
    if std::fs::read(path).is_ok_and(|old| old == data) {
        return Ok(());
    }
    if let Some(parent) = path.parent() {
        std::fs::create_dir_all(parent).map_err(|e| format!("{}: {e}", parent.display()))?;
    }
    std::fs::write(path, data).map_err(|e| format!("{}: {e}", path.display()))
}

/// A heading between the chores of one run.
pub fn heading(text: &str) {
    println!("\n== {text}");
}

/// Bytes as a person reads them.
pub fn bytes(n: u64) -> String {
    match n {
        0..10_000 => format!("{n} B"),
        10_000..10_000_000 => format!("{} KB", n / 1000),
        _ => format!("{:.1} MB", n as f64 / 1e6),
    }
}

/// Builds these programs of the benches, with which ours and rivals are measured.
pub fn build_benches(programs: &[&str]) -> Result {
    build_benches_with("measure", programs)
}

/// The same of those that need another feature.
pub fn build_benches_with(feature: &str, programs: &[&str]) -> Result {
    let mut build = cargo();
    build.args(["build", "--release", "--package", "fleetgate-benches"]);
    build.args(["--features", feature]);
    for program in programs {
        build.args(["--bin", program]);
    }
    run(&mut build)
}

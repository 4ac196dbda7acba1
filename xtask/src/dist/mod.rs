//! `cargo xtask dist`: a .deb and an .rpm in target/dist, made from the release build without debhelper.
//!
//! The session helper, the front and the resolver lie under a path that carries the version, so that an upgrade never
//! changes the file that a running server holds. The same sources at the same SOURCE_DATE_EPOCH (by default the
//! commit's time) give the same bytes.

mod deb;
mod rpm;

use crate::build::{self, Built};
use crate::shell::{Result, bytes, heading, output, read, root, run, target};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime};

/// What differs between the two families of systems.
struct Layout {
    name: &'static str,
    pam: &'static str,
    zsh: &'static str,
    /// Where the licence goes, and the file in the checkout.
    papers: &'static [(&'static str, &'static str)],
}

/// The version of the packages.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// `cargo xtask dist`
pub fn main(args: &[String]) -> Result {
    if let Some(arg) = args.first() {
        return Err(format!("dist takes no arguments, not {arg:?}"));
    }
    let built = build::release()?;
    for package in packages(&built, &target().join("dist"))? {
        println!("{}: {}", package.display(), bytes(read(&package)?.len() as u64));
    }
    Ok(())
}

/// Makes both packages in `directory`.
pub fn packages(built: &Built, directory: &Path) -> Result<Vec<PathBuf>> {
    heading("packages");
    if directory.exists() {
        fs::remove_dir_all(directory).map_err(|e| format!("{}: {e}", directory.display()))?;
    }
    let epoch = epoch()?;
    let deb = deb::package(built, directory, epoch)?;
    let rpm = rpm::package(built, directory, epoch)?;
    Ok(vec![deb, rpm])
}

/// Makes both packages, twice, and compares them; the directory that holds them.
pub fn reproducible(built: &Built) -> Result<PathBuf> {
    let (first, second) = (target().join("dist"), target().join("dist-again"));
    for (one, other) in packages(built, &first)?.iter().zip(packages(built, &second)?) {
        if read(one)? != read(&other)? {
            return Err(format!(
                "{} and {} differ: the packages depend on when or where they are made",
                one.display(),
                other.display()
            ));
        }
    }
    fs::remove_dir_all(&second).map_err(|e| format!("{}: {e}", second.display()))?;
    Ok(first)
}

/// The time that every file in a package has.
fn epoch() -> Result<u64> {
    let text = match std::env::var("SOURCE_DATE_EPOCH") {
        Ok(text) => text,
        Err(_) => output(
            Command::new("git")
                .current_dir(root())
                .args(["log", "-1", "--format=%ct"]),
        )?,
    };
    text.trim()
        .parse()
        .map_err(|_| format!("SOURCE_DATE_EPOCH: {text:?} is not a number of seconds"))
}

/// Lays out everything that is installed, below `stage`.
fn stage(built: &Built, layout: &Layout, stage: &Path, epoch: u64) -> Result {
    let lib = stage.join("usr/lib/fleetgate").join(VERSION);
    let program = stage.join("usr/bin/fleetgate");
    place(&program, &read(&built.fleetgate)?, 0o755)?;
    // Symbols are a seventh of the file; what they would say in a backtrace, `addr2line` says with the build's own file.
    run(Command::new("strip").arg("--strip-all").arg(&program))
        .map_err(|e| format!("{e} (package binutils)"))?;
    place(&stage.join("usr/bin/fleetgate-exec"), &read(&built.exec)?, 0o755)?;
    place(&lib.join("fleetgate-session"), &read(&built.helper)?, 0o755)?;
    place(&lib.join("fleetgate-front"), &read(&built.front)?, 0o755)?;
    place(&lib.join("fleetgate-tunnel"), &read(&built.tunnel)?, 0o755)?;
    place(&lib.join("fleetgate-recorder"), &read(&built.recorder)?, 0o755)?;
    place(&lib.join("fleetgate-resolver"), &read(&built.resolver)?, 0o755)?;
    // Where monitoring systems look for their plugins, Debian's at least.
    place(
        &stage.join("usr/lib/nagios/plugins/check_fleetgate"),
        &read(&built.check)?,
        0o755,
    )?;
    place(
        &stage.join("etc/pam.d/fleetgate"),
        &read(&root().join("packaging").join(layout.pam))?,
        0o644,
    )?;
    for (path, source) in [
        (
            "usr/lib/systemd/system/fleetgate-node.service",
            "fleetgate-node.service",
        ),
        (
            "usr/lib/systemd/system/fleetgate-node.socket",
            "fleetgate-node.socket",
        ),
        ("usr/lib/systemd/system/fleetgate.service", "fleetgate.service"),
        (
            "usr/lib/systemd/system/fleetgate-master@.service",
            "fleetgate-master@.service",
        ),
        ("usr/lib/sysusers.d/fleetgate.conf", "sysusers.conf"),
        ("etc/logrotate.d/fleetgate", "logrotate"),
    ] {
        place(
            &stage.join(path),
            &read(&root().join("packaging").join(source))?,
            0o644,
        )?;
    }
    for (path, source) in layout.papers {
        place(&stage.join(path), &read(&root().join(source))?, 0o644)?;
    }
    for (shell, path) in [
        ("bash", "usr/share/bash-completion/completions/fleetgate"),
        ("fish", "usr/share/fish/vendor_completions.d/fleetgate.fish"),
        ("zsh", layout.zsh),
    ] {
        let script = output(Command::new(&built.fleetgate).args(["completions", shell]))?;
        place(&stage.join(path), script.as_bytes(), 0o644)?;
    }
    let man = stage.join("usr/share/man/man1");
    run(Command::new(&built.fleetgate)
        .args(["man", "--directory"])
        .arg(&man))?;
    for page in walk(&man)? {
        compress(&page)?;
    }
    settle(stage, epoch)
}

/// Writes a file with its mode, whatever the umask.
fn place(path: &Path, data: &[u8], mode: u32) -> Result {
    let said = |e: std::io::Error| format!("{}: {e}", path.display());
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent).map_err(said)?;
    }
    fs::write(path, data).map_err(said)?;
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).map_err(said)
}

/// gzip without a name and a time inside.
fn compress(path: &Path) -> Result {
    run(Command::new("gzip").args(["-9", "-n", "-f"]).arg(path))?;
    let mut packed = path.as_os_str().to_owned();
    packed.push(".gz");
    let mode = fs::Permissions::from_mode(0o644);
    fs::set_permissions(&packed, mode).map_err(|e| format!("{}: {e}", packed.display()))
}

/// Gives directories their mode and everything its time.
fn settle(stage: &Path, epoch: u64) -> Result {
    let time = SystemTime::UNIX_EPOCH + Duration::from_secs(epoch);
    let mut paths = walk(stage)?;
    paths.push(stage.to_path_buf());
    // What lies deeper first: writing into a directory would give it a new time.
    paths.sort_by_key(|p| std::cmp::Reverse(p.components().count()));
    for path in paths {
        let said = |e: std::io::Error| format!("{}: {e}", path.display());
        if path.is_dir() {
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).map_err(said)?;
        }
        let file = fs::File::open(&path).map_err(said)?;
        file.set_modified(time).map_err(said)?;
    }
    Ok(())
}

/// Everything below `directory`, sorted.
fn walk(directory: &Path) -> Result<Vec<PathBuf>> {
    let said = |e: std::io::Error| format!("{}: {e}", directory.display());
    let mut paths = Vec::new();
    for entry in fs::read_dir(directory).map_err(said)? {
        let path = entry.map_err(said)?.path();
        if path.is_dir() {
            paths.extend(walk(&path)?);
        }
        paths.push(path);
    }
    paths.sort();
    Ok(paths)
}

/// The newest glibc that `program` asks for, as its symbols' versions say.
fn glibc(program: &[u8]) -> (u32, u32) {
    const MARK: &[u8] = b"GLIBC_";
    let at = program
        .windows(MARK.len())
        .enumerate()
        .filter(|(_, w)| *w == MARK);
    let versions = at.filter_map(|(at, _)| {
        let rest = &program[at + MARK.len()..];
        let end = rest.iter().position(|b| !matches!(b, b'0'..=b'9' | b'.'))?;
        let (major, minor) = std::str::from_utf8(&rest[..end]).ok()?.split_once('.')?;
        Some((major.parse().ok()?, minor.split('.').next()?.parse().ok()?))
    });
    versions.max().unwrap_or((2, 17))
}

#[cfg(test)]
mod tests {
    use super::glibc;

    #[test]
    fn the_newest_glibc_is_found() {
        for (program, version) in [
            (&b"\0GLIBC_2.2.5\0GLIBC_2.34\0GLIBC_2.9\0"[..], (2, 34)),
            (b"\0GLIBC_PRIVATE\0", (2, 17)),
            (b"", (2, 17)),
        ] {
            assert_eq!(glibc(program), version);
        }
    }
}

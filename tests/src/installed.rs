//! Debian systems with the package installed, to break at will: for what only an installed fleetgate does.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

/// The .deb under test; none where the subject is a plain build, which has no images to package.
pub fn deb() -> Option<PathBuf> {
    package("deb")
}

/// The .rpm under test; none where the subject is a plain build.
pub fn rpm() -> Option<PathBuf> {
    package("rpm")
}

fn package(kind: &str) -> Option<PathBuf> {
    let dist = PathBuf::from(std::env::var_os("FLEETGATE_DIST")?);
    let entries = fs::read_dir(&dist).expect("xtask made the packages");
    let mut paths = entries.filter_map(|e| Some(e.ok()?.path()));
    let found = paths.find(|p| p.extension().is_some_and(|e| e == kind));
    Some(found.expect("xtask made a package of each kind"))
}

/// The version that the packages carry, part of the path of what they install.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// A small Debian in a directory of its own, gone when dropped.
pub struct Root {
    path: PathBuf,
}

impl Root {
    /// A fresh Debian with `deb` installed.
    pub fn with(deb: &Path) -> Root {
        let root = Root::bare();
        let inside = root.path.join("tmp/fleetgate.deb");
        fs::copy(deb, &inside).expect("the package is copied");
        let mut install = root.command("dpkg");
        install.args(["--install", "/tmp/fleetgate.deb"]);
        succeed(&mut install);
        root
    }

    /// A fresh Debian without fleetgate. The first one is made by debootstrap and kept beside the build, so that
    /// later ones, and later runs without a network, are copies.
    pub fn bare() -> Root {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let base = base();
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = scratch().join(format!("root-{}-{count}", std::process::id()));
        succeed(
            Command::new("cp")
                .args(["-a", "--reflink=auto"])
                .arg(&base)
                .arg(&path),
        );
        Root { path }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// `program`, to be run inside: its own mount and process namespaces, /proc mounted, devices at hand.
    pub fn command(&self, program: &str) -> Command {
        // Everything is mounted in a namespace that ends with the command, so a killed test leaves no mount.
        const ENTER: &str = "root=$1; shift; mount -t proc proc \"$root/proc\" && \
            mount --rbind /dev \"$root/dev\" && mount -t tmpfs -o mode=755 run \"$root/run\" && \
            exec chroot \"$root\" \"$@\"";
        let mut command = Command::new("unshare");
        command
            .args([
                "--mount",
                "--pid",
                "--fork",
                "--kill-child",
                "--propagation",
                "private",
                "sh",
                "-c",
                ENTER,
            ])
            .arg("enter")
            .arg(&self.path)
            .arg(program)
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
            .env("LC_ALL", "C.UTF-8");
        command
    }
}

impl Drop for Root {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// Beside the programs under test: on a disk, and removed by `cargo clean`.
fn scratch() -> PathBuf {
    let dist = PathBuf::from(std::env::var_os("FLEETGATE_DIST").expect("set by `cargo xtask test`"));
    let scratch = dist.parent().expect("below the target directory").join("roots");
    fs::create_dir_all(&scratch).expect("the directory for test systems");
    scratch
}

/// The system that others are copies of. One process makes it, the others wait.
fn base() -> PathBuf {
    let scratch = scratch();
    let base = scratch.join("base");
    let lock = fs::File::create(scratch.join("lock")).expect("a lock");
    lock.lock().expect("locked");
    if !base.exists() {
        let making = scratch.join("making");
        let _ = fs::remove_dir_all(&making);
        succeed(
            Command::new("debootstrap")
                .args(["--variant=minbase", "--include=libpam-modules", "stable"])
                .arg(&making)
                .stdout(std::process::Stdio::null()),
        );
        for needless in [
            "usr/share/doc",
            "usr/share/locale",
            "usr/share/man",
            "var/cache/apt",
            "var/lib/apt/lists",
        ] {
            let _ = fs::remove_dir_all(making.join(needless));
        }
        fs::create_dir_all(making.join("usr/share/man/man1")).expect("a directory");
        fs::rename(&making, &base).expect("moved into place");
    }
    base
}

/// Runs `command`, whose failure is the test's.
fn succeed(command: &mut Command) {
    let out = command
        .output()
        .unwrap_or_else(|e| panic!("{}: {e}", command.get_program().display()));
    assert!(
        out.status.success(),
        "{command:?}: {}\n{}{}",
        out.status,
        String::from_utf8_lossy(&out.stdout),
        String::from_utf8_lossy(&out.stderr)
    );
}

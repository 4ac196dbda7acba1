//! SSH clients that no distribution packages, for the end-to-end program `interop`, and an object store for the unit tests of
//! `archive`: fetched once into `target/peers`, each at
//! one version that its lock file names with a digest, by the tool that its language has for that. A security key made of
//! software, which is ours, is compiled beside them.
//!
//! What cannot be fetched is said and left out; the rows that need it then skip themselves by name, which with
//! `CI=true` is a failure. Nothing is installed outside `target`.

use crate::shell::{Result, heading, read, root, run, target, write};
use sha2::{Digest, Sha256};
use std::path::Path;
use std::process::Command;

/// One language's clients.
struct Peer {
    /// Its folder, in `tests/peers` and in `target/peers`.
    name: &'static str,
    /// What decides whether the fetched files are still right.
    locks: &'static [&'static str],
    /// Fills the folder; the folder of the sources, then its own.
    fetch: fn(&Path, &Path) -> Result,
}

const PEERS: &[Peer] = &[
    Peer {
        name: "python",
        locks: &["requirements.txt"],
        fetch: python,
    },
    Peer {
        name: "node",
        locks: &["package.json", "package-lock.json"],
        fetch: node,
    },
    Peer {
        name: "go",
        locks: &["go.mod", "go.sum", "main.go", "server/main.go"],
        fetch: go,
    },
    Peer {
        name: "fido",
        locks: &["token.c"],
        fetch: fido,
    },
];

/// Fetches what is not there yet.
pub fn fetch() -> Result {
    heading("clients from outside the distribution");
    for peer in PEERS {
        let (sources, to) = (
            root().join("tests/peers").join(peer.name),
            target().join("peers").join(peer.name),
        );
        let mut digest = Sha256::new();
        for lock in peer.locks {
            digest.update(read(&sources.join(lock))?);
        }
        let (stamp, wanted) = (to.join("fetched"), digest.finalize());
        if std::fs::read(&stamp).is_ok_and(|had| had == wanted.as_slice()) {
            println!("{}: there", peer.name);
            continue;
        }
        let _ = std::fs::remove_dir_all(&to);
        std::fs::create_dir_all(&to).map_err(|e| format!("{}: {e}", to.display()))?;
        match (peer.fetch)(&sources, &to) {
            Ok(()) => write(&stamp, &wanted)?,
            Err(e) => println!("{}: left out: {e}", peer.name),
        }
    }
    Ok(())
}

/// Debian's and Fedora's own Python: another may be first in the path.
fn python(sources: &Path, to: &Path) -> Result {
    run(Command::new("/usr/bin/python3").args(["-m", "venv"]).arg(to))?;
    let mut pip = Command::new(to.join("bin/pip"));
    pip.args([
        "install",
        "--quiet",
        "--no-deps",
        "--only-binary=:all:",
        "--require-hashes",
    ])
    .args(["--disable-pip-version-check", "--requirement"]);
    run(pip.arg(sources.join("requirements.txt")))
}

/// Without scripts of packages, and without what is only faster.
fn node(sources: &Path, to: &Path) -> Result {
    for file in ["package.json", "package-lock.json"] {
        write(&to.join(file), &read(&sources.join(file))?)?;
    }
    run(Command::new("npm").current_dir(to).args([
        "ci",
        "--ignore-scripts",
        "--omit=optional",
        "--no-audit",
        "--no-fund",
        "--loglevel=error",
    ]))
}

/// With the Go that is installed: no other is fetched.
fn go(sources: &Path, to: &Path) -> Result {
    for (program, package) in [("client", "."), ("server", "./server")] {
        let mut go = Command::new("go");
        go.current_dir(sources)
            .env("GOTOOLCHAIN", "local")
            .args(["build", "-mod=readonly", "-o"]);
        run(go.arg(to.join(program)).arg(package))?;
    }
    Ok(())
}

/// With the libraries that ssh-sk-helper has: the token is loaded into it.
fn fido(sources: &Path, to: &Path) -> Result {
    let mut cc = Command::new("cc");
    cc.args([
        "-std=c11", "-Wall", "-Wextra", "-Werror", "-O1", "-fPIC", "-shared", "-o",
    ])
    .arg(to.join("token.so"))
    .arg(sources.join("token.c"));
    run(cc.args(["-lfido2", "-lcrypto"]))
}

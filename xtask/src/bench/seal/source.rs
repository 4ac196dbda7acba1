//! runc, built from the source of its Go modules: as it is, and with its sealing changed by one line. Everything that is
//! fetched or built for that lies in target/bench/runc.

use crate::bench::rival;
use crate::shell::{Result, output, read_text, root, run, target, write};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The release whose sealing is measured, and its digest as Go's checksum database has it.
pub const RELEASE: [&str; 2] = ["v1.3.2", "h1:GUwgo0Fx9M/pl2utaSYlJfdBcXAB/CZXDxe322lvJ3Y="];
/// The last release with runc-dmz.
pub const DMZ: [&str; 2] = ["v1.2.0-rc.3", "h1:5vQhejBp4S5w1DwFZ7L3CSOQX9cmcc8JKFy/mOBTJlo="];

const MODULE: &str = "github.com/opencontainers/runc";
/// How long one command may fetch or build, in seconds.
const WITHIN: &str = "600";

/// A change of one line in a file of runc's.
pub struct Change {
    file: &'static str,
    from: &'static str,
    to: &'static str,
}

/// It takes its own file for sealed, so it does not seal it.
const NO_SEALING: [&str; 2] = [
    "func IsSelfExeCloned() bool {\n",
    "func IsSelfExeCloned() bool {\n\treturn true\n",
];

/// [`RELEASE`] without sealing.
pub const NONE: Change = Change {
    file: "libcontainer/exeseal/cloned_binary_linux.go",
    from: NO_SEALING[0],
    to: NO_SEALING[1],
};

/// [`RELEASE`] without its overlay, so it copies itself to a memfd.
pub const MEMFD: Change = Change {
    file: "libcontainer/exeseal/cloned_binary_linux.go",
    from: "overlayFile, err := sealedOverlayfs(\"/proc/self/exe\", tmpDir)",
    to: "overlayFile, err := (*os.File)(nil), errors.New(\"left out\")",
};

/// [`DMZ`] without sealing.
pub const DMZ_NONE: Change = Change {
    file: "libcontainer/dmz/cloned_binary_linux.go",
    from: NO_SEALING[0],
    to: NO_SEALING[1],
};

/// A release's source.
pub struct Source {
    go: PathBuf,
    /// Where it lies.
    pub directory: PathBuf,
}

/// The directory with everything.
pub fn place() -> PathBuf {
    target().join("bench/runc")
}

impl Source {
    /// Fetches a release by Go's module proxy (`GOPROXY` says which), and copies it to where it can be changed.
    pub fn fetch([version, digest]: [&str; 2]) -> Result<Source> {
        let go = rival("go", "golang-go")?;
        let which = output(Command::new(&go).args(["env", "GOVERSION"]))?;
        let number =
            |text: &str| -> Option<u32> { text.trim().strip_prefix("go1.")?.split('.').next()?.parse().ok() };
        if number(&which).is_none_or(|minor| minor < 23) {
            return Err(format!(
                "runc {version} needs Go 1.23 or later, and {} is {}: install a later one (https://go.dev/dl) and put it \
                 first in PATH",
                go.display(),
                which.trim()
            ));
        }
        let module = format!("{MODULE}@{version}");
        let mut fetch = bounded(&go, &place());
        let told = output(fetch.args(["mod", "download", "-json", &module])).map_err(|e| {
            format!("the source of runc, {module}, could not be fetched by Go's module proxy (GOPROXY): {e}")
        })?;
        let told: Value =
            serde_json::from_str(&told).map_err(|e| format!("go mod download {module}: {e}"))?;
        if told["Sum"] != digest {
            return Err(format!(
                "{module} has the digest {}, and {digest} was expected",
                told["Sum"]
            ));
        }
        let fetched = told["Dir"].as_str().ok_or("go mod download named no directory")?;
        let directory = place().join(version);
        let _ = std::fs::remove_dir_all(&directory);
        run(Command::new("cp").args(["-r", fetched]).arg(&directory))?;
        run(Command::new("chmod").args(["-R", "u+w"]).arg(&directory))?;
        // The module has no more of it than a list, which Go would hold to.
        let _ = std::fs::remove_dir_all(directory.join("vendor"));
        Ok(Source { go, directory })
    }

    /// Replaces `from` by `to`, as often as it stands in a file.
    pub fn replace(&self, file: &str, from: &str, to: &str) -> Result {
        let path = self.directory.join(file);
        let text = read_text(&path)?;
        if !text.contains(from) {
            return Err(format!(
                "{} has no {from:?}: this is another release",
                path.display()
            ));
        }
        write(&path, text.replace(from, to).as_bytes())
    }

    /// Builds a package as `name`.
    pub fn program(&self, package: &str, change: Option<&Change>, name: &str) -> Result<PathBuf> {
        self.build(&["build", "-trimpath"], package, change, name)
    }

    /// Builds the tests of a package as `name`.
    pub fn tests(&self, package: &str, change: Option<&Change>, name: &str) -> Result<PathBuf> {
        self.build(&["test", "-c"], package, change, name)
    }

    fn build(&self, words: &[&str], package: &str, change: Option<&Change>, name: &str) -> Result<PathBuf> {
        let out = place().join("bin").join(name);
        let mut go = bounded(&self.go, &self.directory);
        go.args(words).arg("-mod=mod");
        if let Some(change) = change {
            go.arg("-overlay").arg(self.changed(change, name)?);
        }
        run(go.arg("-o").arg(&out).arg(package)).map_err(|e| format!("runc could not be built: {e}"))?;
        Ok(out)
    }

    /// The list by which Go takes a changed file in the place of the release's.
    fn changed(&self, change: &Change, name: &str) -> Result<PathBuf> {
        let path = self.directory.join(change.file);
        let text = read_text(&path)?;
        if text.matches(change.from).count() != 1 {
            return Err(format!(
                "{} has no {:?}: this is another release",
                path.display(),
                change.from
            ));
        }
        let (file, list) = (
            place().join(format!("{name}.go")),
            place().join(format!("{name}.json")),
        );
        write(&file, text.replace(change.from, change.to).as_bytes())?;
        let replaced =
            serde_json::json!({"Replace": {path.display().to_string(): file.display().to_string()}});
        write(&list, replaced.to_string().as_bytes())?;
        Ok(list)
    }

    /// Embeds runc-dmz, as its own `go generate` does.
    pub fn embed_dmz(&self) -> Result {
        let mut make = Command::new("make");
        make.args([
            "--silent",
            "--always-make",
            "binary/runc-dmz",
            "CC=cc",
            "STRIP=strip",
        ]);
        make.env("GO", &self.go);
        run(make.current_dir(self.directory.join("libcontainer/dmz")))
    }

    /// Lets the tests of libcontainer take `archive` for their container, where they would fetch an image.
    pub fn give_image(&self, archive: &Path) -> Result {
        let script = self.directory.join("tests/integration/get-images.sh");
        let text = format!("#!/bin/sh\necho BUSYBOX_IMAGE='{}'\n", archive.display());
        write(&script, text.as_bytes())?;
        run(Command::new("chmod").arg("0755").arg(&script))
    }

    /// Puts a file of ours into it.
    pub fn add(&self, from: &Path, to: &str) -> Result {
        let text = read_text(from)?;
        write(&self.directory.join(to), text.as_bytes())
    }
}

/// Go, with its caches in [`place`], for at most [`WITHIN`].
fn bounded(go: &Path, directory: &Path) -> Command {
    let _ = std::fs::create_dir_all(directory);
    let mut command = Command::new("timeout");
    command
        .args(["--kill-after=10", WITHIN])
        .arg(go)
        .current_dir(directory);
    command.env("GOMODCACHE", place().join("modules"));
    command.env("GOCACHE", place().join("cache"));
    command.env("GOFLAGS", "-buildvcs=false -modcacherw");
    command.env("GOTOOLCHAIN", "local").env("GOWORK", "off");
    command
}

/// The program that seals itself by runc's code.
pub fn image() -> PathBuf {
    root().join("benches/runc/image.go")
}

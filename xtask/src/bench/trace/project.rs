//! A project of Debian's, from its source package: configured and built as it is, over and over.

use super::{Cost, Tools, Way};
use crate::shell::{Result, run, target};
use std::path::{Path, PathBuf};
use std::process::Command;

/// In C, by autoconf; some thirty seconds.
const NAME: &str = "pcre2";

/// What builds it where it is configured.
pub const MAKE: &[&str] = &["make", "-s", "-j2"];

/// Its unpacked source.
pub struct Project {
    source: PathBuf,
}

impl Project {
    /// Fetched by apt, from where the machine's own packages come from.
    pub fn fetched() -> Result<Project> {
        let place = target().join("bench/source");
        if let Some(source) = unpacked(&place) {
            return Ok(Project { source });
        }
        let script = format!(
            "set -eu; mkdir -p lists/partial parts; cd parts
             for f in /etc/apt/sources.list /etc/apt/sources.list.d/*; do
                 [ -f \"$f\" ] && sed 's/^Types:.*/Types: deb-src/; s/^deb /deb-src /' \"$f\" > \"$(basename \"$f\")\"
             done; cd ..
             apt='-o Dir::Etc::SourceList=/dev/null -o Dir::Etc::SourceParts='\"$PWD\"'/parts -o Dir::State::Lists='\"$PWD\"'/lists'
             apt-get $apt -o APT::Sandbox::User=root -q update
             apt-get $apt -o APT::Sandbox::User=root -q source --download-only --tar-only {NAME}
             mkdir unpacked; tar -xf {NAME}_*.orig.tar.* -C unpacked --strip-components=1"
        );
        std::fs::create_dir_all(&place).map_err(|e| format!("{}: {e}", place.display()))?;
        run(Command::new("sh").args(["-c", &script]).current_dir(&place))?;
        let source = unpacked(&place);
        source
            .map(|source| Project { source })
            .ok_or_else(|| format!("{}: the source of {NAME} is not as it was", place.display()))
    }

    /// `./configure` into a fresh folder.
    pub fn configure(&self, tools: &Tools, way: &Way) -> Result<Cost> {
        let place = self.fresh()?;
        tools.cost(way, &mut |words| {
            self.command(&place, words, &["../unpacked/configure", "-q"])
        })
    }

    /// `make` in a folder that was configured without being traced.
    pub fn build(&self, tools: &Tools, way: &Way) -> Result<Cost> {
        let place = self.source.with_file_name("configured");
        if place.join("Makefile").is_file() {
            run(Command::new("make")
                .args(["-s", "clean"])
                .current_dir(&place)
                .stdout(std::process::Stdio::null()))?;
        } else {
            self.configured(&place)?;
        }
        tools.cost(way, &mut |words| self.command(&place, words, MAKE))
    }

    /// Copies it, configured, to where a user can build it.
    pub fn copy_to(&self, place: &Path) -> Result {
        std::fs::create_dir_all(place).map_err(|e| format!("{}: {e}", place.display()))?;
        run(Command::new("cp").arg("-a").arg(&self.source).arg(place))?;
        self.configured(&place.join("configured"))
    }

    fn configured(&self, place: &Path) -> Result {
        std::fs::create_dir(place).map_err(|e| format!("{}: {e}", place.display()))?;
        run(self
            .command(place, Vec::new(), &["../unpacked/configure", "-q"])
            .stdout(std::process::Stdio::null()))
    }

    fn fresh(&self) -> Result<PathBuf> {
        let place = self.source.with_file_name("built");
        let failed = |e: std::io::Error| format!("{}: {e}", place.display());
        if place.exists() {
            std::fs::remove_dir_all(&place).map_err(failed)?;
        }
        std::fs::create_dir(&place).map_err(failed)?;
        Ok(place)
    }

    fn command(&self, place: &Path, words: Vec<PathBuf>, rest: &[&str]) -> Command {
        let mut all = words.into_iter().chain(rest.iter().map(PathBuf::from));
        let mut command = Command::new(all.next().unwrap_or_default());
        command.args(all).current_dir(place);
        command
    }
}

fn unpacked(place: &Path) -> Option<PathBuf> {
    let source = place.join("unpacked");
    source.join("configure").is_file().then_some(source)
}

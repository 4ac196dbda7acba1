//! The .rpm, by rpmbuild, from a tree that is already complete.

use super::{Layout, VERSION, stage, walk};
use crate::build::Built;
use crate::shell::{Result, output, root};
use std::path::{Path, PathBuf};
use std::process::Command;

const LAYOUT: Layout = Layout {
    name: "rpm",
    pam: "pam.fedora",
    zsh: "usr/share/zsh/site-functions/_fleetgate",
    papers: &[("usr/share/licenses/fleetgate/LICENSE", "LICENSE")],
};

/// Makes it.
pub fn package(built: &Built, directory: &Path, epoch: u64) -> Result<PathBuf> {
    let tree = directory.join(LAYOUT.name);
    stage(built, &LAYOUT, &tree, epoch)?;
    let top = directory.join("rpmbuild");
    output(
        Command::new("rpmbuild")
            .arg("-bb")
            .arg(root().join("packaging/fleetgate.spec"))
            .arg("--define")
            .arg(format!("_topdir {}", top.display()))
            .arg("--define")
            .arg(format!("fleetgate_version {VERSION}"))
            .arg("--define")
            .arg(format!("stage {}", tree.display()))
            .env("SOURCE_DATE_EPOCH", epoch.to_string()),
    )?;
    let made = walk(&top.join("RPMS"))?;
    let made = made.iter().find(|p| p.extension().is_some_and(|e| e == "rpm"));
    let made = made.ok_or("rpmbuild made no package")?;
    let package = directory.join(made.file_name().unwrap_or_default());
    std::fs::copy(made, &package).map_err(|e| format!("{}: {e}", package.display()))?;
    Ok(package)
}

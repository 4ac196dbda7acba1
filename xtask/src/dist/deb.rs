//! The .deb, by dpkg-deb alone.

use super::{Layout, VERSION, compress, glibc, place, settle, stage, walk};
use crate::build::Built;
use crate::shell::{Result, output, read, root, run};
use std::path::{Path, PathBuf};
use std::process::Command;

const LAYOUT: Layout = Layout {
    name: "deb",
    pam: "pam.debian",
    zsh: "usr/share/zsh/vendor-completions/_fleetgate",
    papers: &[
        ("usr/share/doc/fleetgate/copyright", "packaging/copyright"),
        ("usr/share/doc/fleetgate/changelog", "CHANGELOG.md"),
        (
            "usr/share/fleetgate/selinux/fleetgate.cil",
            "packaging/selinux/fleetgate.cil",
        ),
    ],
};

/// Makes it.
pub fn package(built: &Built, directory: &Path, epoch: u64) -> Result<PathBuf> {
    let tree = directory.join(LAYOUT.name);
    stage(built, &LAYOUT, &tree, epoch)?;
    compress(&tree.join("usr/share/doc/fleetgate/changelog"))?;
    let size: u64 = walk(&tree)?
        .iter()
        .filter_map(|p| Some(p.metadata().ok()?.len()))
        .sum();
    let architecture = output(Command::new("dpkg").arg("--print-architecture"))?;
    let architecture = architecture.trim();
    let control = tree.join("DEBIAN");
    let (major, minor) = glibc(&read(&built.fleetgate)?).max(glibc(&read(&built.resolver)?));
    let text = format!(
        "Package: fleetgate\nVersion: {VERSION}\nArchitecture: {architecture}\n\
         Maintainer: fleetgate developers <developers@fleetgate.example>\nInstalled-Size: {}\n\
         Depends: libc6 (>= {major}.{minor}), libgcc-s1, passwd\nRecommends: libpam0g, libpam-modules\n\
         Section: admin\nPriority: optional\n\
         Description: fast, accountable way into Linux machines\n \
         fleetgate gives people and programs a way into Linux machines that costs a\n \
         machine almost nothing, knows who came in, and can show afterwards what they\n \
         did. Every session is started from an executable image that nobody can alter.\n",
        size.div_ceil(1024)
    );
    place(&control.join("control"), text.as_bytes(), 0o644)?;
    place(
        &control.join("conffiles"),
        b"/etc/pam.d/fleetgate\n/etc/logrotate.d/fleetgate\n",
        0o644,
    )?;
    for script in ["postinst", "prerm", "postrm"] {
        let source = root().join("packaging").join(script);
        place(&control.join(script), &read(&source)?, 0o755)?;
    }
    settle(&tree, epoch)?;
    let package = directory.join(format!("fleetgate_{VERSION}_{architecture}.deb"));
    run(Command::new("dpkg-deb")
        .args(["--root-owner-group", "-Zxz", "--build"])
        .arg(&tree)
        .arg(&package)
        // How xz splits its work shows in the bytes.
        .env("DPKG_DEB_THREADS_MAX", "1")
        .env("SOURCE_DATE_EPOCH", epoch.to_string())
        .stdout(std::process::Stdio::null()))?;
    Ok(package)
}

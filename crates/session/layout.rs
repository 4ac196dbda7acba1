//! How the static program is laid out: as few segments as there can be, because every launch maps, faults in and
//! unmaps each of them. Position-independent it stays, since `sftp` and `networking` read what users send.
//!
//! - noseparate-code: headers, constants and code are one mapping instead of three;
//! - norelro: its few relocated words are not worth an mprotect and a split mapping in a program that loads no
//!   library, binds nothing lazily and has no writable function table but these;
//! - relative relocations packed in a bitmap (musl reads them since 1.2.4): 6 KB less to map;
//! - a build id, which tells two builds apart (`--version`);
//! - no unwind tables (helper.ld) and no header for them: nothing unwinds.
//!
//! The images for checks and for containers are laid out the same: their build scripts take this file.

use std::path::Path;

/// Tells cargo so, of the crate that is being built. `here` is where this file lies, from that crate.
pub fn lay_out(here: &str) {
    let here = Path::new(env!("CARGO_MANIFEST_DIR")).join(here);
    let script = here.join("helper.ld");
    for file in [Path::new("build.rs"), &here.join("layout.rs"), &script] {
        println!("cargo::rerun-if-changed={}", file.display());
    }
    if std::env::var_os("CARGO_FEATURE_PROGRAM").is_none() {
        return;
    }
    for flag in [
        "-Wl,-z,noseparate-code",
        "-Wl,-z,norelro",
        "-Wl,--no-eh-frame-hdr",
        "-Wl,--hash-style=gnu",
        "-Wl,-z,pack-relative-relocs",
        "-Wl,--build-id=sha1",
    ] {
        println!("cargo::rustc-link-arg-bins={flag}");
    }
    println!("cargo::rustc-link-arg-bins=-Wl,-T,{}", script.display());
}

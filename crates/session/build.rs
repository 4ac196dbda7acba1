//! How the static program is laid out: as few segments as there can be, because every launch maps, faults in and
//! unmaps each of them. Position-independent it stays, since `sftp` and `networking` read what users send.
//!
//! - noseparate-code: headers, constants and code are one mapping instead of three;
//! - norelro: its few relocated words are not worth an mprotect and a split mapping in a program that loads no
//!   library, binds nothing lazily and has no writable function table but these;
//! - relative relocations packed in a bitmap (musl reads them since 1.2.4): 6 KB less to map;
//! - a build id, which tells two builds apart (`--version`);
//! - no unwind tables (helper.ld) and no header for them: nothing unwinds.
#![forbid(unsafe_code)]

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=helper.ld");
    if std::env::var_os("CARGO_FEATURE_PROGRAM").is_some() {
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
        let script = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("helper.ld");
        println!("cargo::rustc-link-arg-bins=-Wl,-T,{}", script.display());
    }
}

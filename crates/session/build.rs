//! How the static program is laid out: as few segments as there can be, because every launch maps, faults in and
//! unmaps each of them. Position-independent it stays, since `sftp` and `networking` read what users send.
//!
//! - noseparate-code: headers, constants and code are one mapping instead of three;
//! - norelro: its few relocated words are not worth an mprotect and a split mapping in a program that loads no
//!   library, binds nothing lazily and has no writable function table but these;
//! - no eh-frame header: nothing unwinds.
#![forbid(unsafe_code)]

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    if std::env::var_os("CARGO_FEATURE_PROGRAM").is_some() {
        for flag in [
            "-Wl,-z,noseparate-code",
            "-Wl,-z,norelro",
            "-Wl,--no-eh-frame-hdr",
            "-Wl,--hash-style=gnu",
        ] {
            println!("cargo::rustc-link-arg-bins={flag}");
        }
    }
}

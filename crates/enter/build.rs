//! How the static program is laid out: as the session helper's, for the same reasons (its build.rs has them).
#![forbid(unsafe_code)]

fn main() {
    let script = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../session/helper.ld");
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed={}", script.display());
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
        println!("cargo::rustc-link-arg-bins=-Wl,-T,{}", script.display());
    }
}

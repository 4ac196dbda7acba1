//! Turns what `cargo xtask build` left in FLEETGATE_IMAGES into constants; without it there are no images.
//!
//! The directory holds a line per image in `list`: NAME VERSION PACKING LENGTH SHA256, and the packed bytes in a
//! file called NAME.
#![forbid(unsafe_code)]

use std::path::{Path, PathBuf};

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=FLEETGATE_IMAGES");
    let images = std::env::var_os("FLEETGATE_IMAGES").filter(|v| !v.is_empty());
    let images = images.map(PathBuf::from);
    let [session, enter, front, tunnel, resolver] = [
        "fleetgate-session",
        "fleetgate-enter",
        "fleetgate-front",
        "fleetgate-tunnel",
        "fleetgate-resolver",
    ]
    .map(|name| match &images {
        Some(directory) => constant(directory, name),
        None => "None".to_owned(),
    });
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets it")).join("images.rs");
    let text = format!(
        "/// The session helper.\npub static SESSION: Option<fleetgate_seal::Embedded> = {session};\n\
         /// The same for containers.\npub static ENTER: Option<fleetgate_seal::Embedded> = {enter};\n\
         /// The lobby and the fronts.\npub static FRONT: Option<fleetgate_seal::Embedded> = {front};\n\
         /// The tunnel.\npub static TUNNEL: Option<fleetgate_seal::Embedded> = {tunnel};\n\
         /// The resolver.\npub static RESOLVER: Option<fleetgate_seal::Embedded> = {resolver};\n"
    );
    std::fs::write(&out, text).unwrap_or_else(|e| panic!("{}: {e}", out.display()));
}

fn constant(directory: &Path, name: &str) -> String {
    let list = directory.join("list");
    println!("cargo::rerun-if-changed={}", list.display());
    let text = std::fs::read_to_string(&list).unwrap_or_else(|e| panic!("{}: {e}", list.display()));
    let line = text
        .lines()
        .map(|l| l.split(' ').collect::<Vec<_>>())
        .find(|words| words.first() == Some(&name))
        .unwrap_or_else(|| panic!("{}: no line for {name}", list.display()));
    let [_, version, packing, len, sha256] = line[..] else {
        panic!("{}: the line of {name} has not five words", list.display());
    };
    let packing = match packing {
        "raw" => "Raw",
        "lz4" => "Lz4",
        other => panic!("{}: {name} is packed as {other:?}", list.display()),
    };
    let digest: Vec<u8> = (0..sha256.len() / 2)
        .filter_map(|i| u8::from_str_radix(&sha256[2 * i..2 * i + 2], 16).ok())
        .collect();
    assert!(digest.len() == 32, "{}: the digest of {name}", list.display());
    let data = directory.join(name);
    println!("cargo::rerun-if-changed={}", data.display());
    format!(
        "Some(fleetgate_seal::Embedded {{ name: {name:?}, version: {version:?}, packing: fleetgate_seal::Packing::{packing}, \
         data: include_bytes!({data:?}), len: {len}, sha256: {digest:?} }})"
    )
}

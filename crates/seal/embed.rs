//! What the build scripts of programs with images inside share: `images.rs`, with a constant for each image.

use std::fmt::Write;
use std::path::{Path, PathBuf};

/// Writes it: a constant, the image's name and what it is, for each.
///
/// FLEETGATE_IMAGES, which `cargo xtask build` sets, names a directory with a line per image in `list`: NAME VERSION PACKING
/// LENGTH SHA256, and the packed bytes in a file called NAME. Without it there are no images.
pub fn write(images: &[(&str, &str, &str)]) {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=../seal/embed.rs");
    println!("cargo::rerun-if-env-changed=FLEETGATE_IMAGES");
    let directory = std::env::var_os("FLEETGATE_IMAGES").filter(|v| !v.is_empty());
    let directory = directory.map(PathBuf::from);
    let mut text = String::new();
    for (constant_name, name, what) in images {
        let value = match &directory {
            Some(directory) => constant(directory, name),
            None => "None".to_owned(),
        };
        writeln!(
            text,
            "/// {what}\npub static {constant_name}: Option<fleetgate_seal::Embedded> = {value};"
        )
        .expect("a string takes it");
    }
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets it")).join("images.rs");
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

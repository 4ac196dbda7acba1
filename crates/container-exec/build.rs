//! Finds the helper for containers that `cargo xtask build` left in FLEETGATE_IMAGES; without it this program has none.
#![forbid(unsafe_code)]

#[path = "../seal/embed.rs"]
mod embed;

fn main() {
    // Fewer mappings and fewer pages to read before it begins; musl moves packed pointers since 1.2.4.
    if std::env::var("CARGO_CFG_TARGET_ENV").is_ok_and(|env| env == "musl") {
        for flag in ["noseparate-code", "pack-relative-relocs"] {
            println!("cargo::rustc-link-arg-bins=-Wl,-z,{flag}");
        }
    }
    embed::write(&[("ENTER", "fleetgate-enter", "The helper for containers.")]);
}

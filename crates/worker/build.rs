//! Of the static programs of workers and tunnel: relative relocations are packed in a bitmap, which musl reads since 1.2.4. The
//! front has 2,800 of them, 66 KB that each start would map and read.
#![forbid(unsafe_code)]

fn main() {
    println!("cargo::rerun-if-changed=../worker/build.rs");
    if std::env::var("CARGO_CFG_TARGET_ENV").is_ok_and(|libc| libc == "musl") {
        println!("cargo::rustc-link-arg-bins=-Wl,-z,pack-relative-relocs");
    }
}

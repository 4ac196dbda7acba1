//! What every end-to-end test stands on: the programs under test, a private world to break, honest skipping.
//!
//! `cargo xtask test` runs the suites twice, over two subjects: `images` (the static helper and the glibc
//! resolver, embedded) and `plain` (one `fleetgate` that executes itself). A test asks [`helper`], [`resolver`]
//! and [`fleetgate`] and never knows which it is.
#![forbid(unsafe_code)]

pub mod bounded;
pub mod by_hand;
pub mod cluster;
pub mod containers;
pub mod fleet;
pub mod folder;
pub mod honest;
pub mod installed;
pub mod joined;
pub mod kubernetes;
pub mod launching;
pub mod login_world;
pub mod networking;
pub mod node_desk;
pub mod orders;
pub mod peer;
pub mod plain;
pub mod recording;
pub mod resolver;
pub mod rounds;
pub mod seal;
pub mod service;
pub mod sftp;
pub mod taken;
pub mod ways_in;
pub mod weight;
pub mod world;

use std::path::PathBuf;
use std::process::Command;

fn program(variable: &str) -> PathBuf {
    match std::env::var_os(variable) {
        Some(path) => PathBuf::from(path),
        None => panic!("{variable} is not set: run the end-to-end tests with `cargo xtask test`"),
    }
}

/// The `fleetgate` program under test.
pub fn fleetgate() -> PathBuf {
    program("FLEETGATE_BIN")
}

/// The program that serves as session helper when started with argv[0] `fleetgate-session`.
pub fn helper() -> PathBuf {
    program("FLEETGATE_HELPER")
}

/// The program that serves as resolver when started with argv[0] `fleetgate-resolver`.
pub fn resolver() -> PathBuf {
    program("FLEETGATE_RESOLVER")
}

/// The helper as a command, by its proper name.
pub fn helper_command() -> Command {
    named(helper(), "fleetgate-session")
}

/// The resolver as a command, by its proper name.
pub fn resolver_command() -> Command {
    named(resolver(), "fleetgate-resolver")
}

/// How the test program knows the test `function` of this module (`module_path!()`): for a test that starts itself anew.
pub fn test_name(module: &str, function: &str) -> String {
    match module.split_once("::") {
        Some((_, inner)) => format!("{inner}::{function}"),
        None => function.to_owned(),
    }
}

fn named(path: PathBuf, name: &str) -> Command {
    use std::os::unix::process::CommandExt;
    let mut command = Command::new(path);
    command.arg0(name);
    command
}

/// Leaves the calling test, counted and named at the end of `cargo xtask test`; a failure where `CI=true`.
/// Use as `return skip("why")`.
pub fn skip(why: &str) {
    let name = std::thread::current().name().unwrap_or("a test").to_owned();
    assert!(
        std::env::var_os("CI").is_none_or(|v| v != "true"),
        "{name} would skip itself in CI: {why}"
    );
    eprintln!("skipped: {name}: {why}");
    if let Some(file) = std::env::var_os("FLEETGATE_SKIPS") {
        use std::io::Write;
        let opened = std::fs::OpenOptions::new().append(true).create(true).open(file);
        let _ = opened.and_then(|mut f| writeln!(f, "{name}: {why}"));
    }
}

/// Leaves the calling test, as [`skip`] does, unless it runs as root; a word says what it needs root for.
#[macro_export]
macro_rules! needs_root {
    ($why:expr) => {
        if !$crate::is_root() {
            return $crate::skip(concat!("needs root for ", $why));
        }
    };
}

/// Whether this is root; most end-to-end tests need it.
pub fn is_root() -> bool {
    fleetgate_sys::process::effective_uid() == 0
}

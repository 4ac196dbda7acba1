//! `fleetgate`: one program for every role.
#![forbid(unsafe_code)]

mod images;

use std::ffi::{CString, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

fn main() {
    let mut args = std::env::args_os();
    let name = args.next().unwrap_or_default();
    let rest: Vec<OsString> = args.collect();
    std::process::exit(match name.as_bytes().rsplit(|b| *b == b'/').next() {
        // Where no static images are embedded, this program is launched under their names.
        Some(b"fleetgate-session") => session(rest),
        Some(b"fleetgate-resolver") => fleetgate_resolver::run(&rest),
        _ => version(),
    });
}

fn session(args: Vec<OsString>) -> i32 {
    let args: Vec<CString> = args
        .into_iter()
        .filter_map(|a| CString::new(a.into_vec()).ok())
        .collect();
    fleetgate_session::run(&args.iter().map(CString::as_c_str).collect::<Vec<_>>())
}

fn version() -> i32 {
    println!("fleetgate {}", env!("CARGO_PKG_VERSION"));
    for image in [&images::SESSION, &images::RESOLVER].into_iter().flatten() {
        println!("  {} {}: {} bytes", image.name, image.version, image.len);
    }
    0
}

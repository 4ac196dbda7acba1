//! Runs one program on this process's own descriptors and leaves in a file what processor time it took, in
//! microseconds: `bench-usage FILE PROGRAM [ARGS…]`. For a program that another one starts and waits for.
#![forbid(unsafe_code)]

use std::ffi::OsString;
use std::process::{Command, ExitCode};

fn main() -> ExitCode {
    let mut args = std::env::args_os().skip(1);
    let (Some(file), Some(program)) = (args.next(), args.next()) else {
        eprintln!("usage: bench-usage FILE PROGRAM [ARGS…]");
        return ExitCode::from(2);
    };
    let ended = match Command::new(&program)
        .args(args.collect::<Vec<OsString>>())
        .status()
    {
        Ok(status) => status,
        Err(e) => {
            eprintln!("bench-usage: {}: {e}", program.display());
            return ExitCode::from(1);
        }
    };
    let micros = fleetgate_sys::process::children_cpu_micros().unwrap_or(0);
    if let Err(e) = std::fs::write(&file, micros.to_string()) {
        eprintln!("bench-usage: {}: {e}", file.display());
        return ExitCode::from(1);
    }
    ExitCode::from(ended.code().unwrap_or(1) as u8)
}

//! `cargo xtask`: every chore of the house. `cargo xtask help` lists them.
//!
//! Light on purpose (it is built before anything else): the standard library, JSON, digests, lz4, and the lab. It never
//! runs in production and nothing depends on it.
#![forbid(unsafe_code)]

mod bench;
mod build;
mod dist;
mod elf;
mod figures;
mod fuzz;
mod graph;
mod peers;
mod programs;
mod proto;
mod selinux;
mod shell;
mod size;
mod soak;
mod tables;
mod test;
mod tidy;

use std::process::ExitCode;

/// A chore: its name, what it takes, what it does.
struct Chore {
    name: &'static str,
    takes: &'static str,
    does: &'static str,
    run: fn(&[String]) -> shell::Result,
}

const CHORES: &[Chore] = &[
    Chore {
        name: "build",
        takes: "[--timed]",
        does: "build the static helper, the resolver, and fleetgate with both inside",
        run: build::main,
    },
    Chore {
        name: "test",
        takes: "[FILTER] [--only tidy|unit|images|plain]",
        does: "everything that must hold: tidy, clippy, unit tests, the end-to-end programs over both subjects, and what each took",
        run: test::main,
    },
    Chore {
        name: "tidy",
        takes: "",
        does: "formatting and the house rules",
        run: tidy::main,
    },
    Chore {
        name: "bench",
        takes: "NAME [--quick] [--without-ours] [--size N]",
        does: "measure ours beside theirs; writes target/bench/NAME.json",
        run: bench::main,
    },
    Chore {
        name: "figures",
        takes: "[NAME...]",
        does: "docs/performance.md and its plots from docs/figures; takes over the runs of the named benchmarks first",
        run: figures::main,
    },
    Chore {
        name: "soak",
        takes: "[--minutes N] [--faults] [--program FILE]",
        does: "sessions through a cluster of its own for ten minutes, and how each service's memory grows with them",
        run: soak::main,
    },
    Chore {
        name: "selinux",
        takes: "[--deb FILE]",
        does: "a Debian that enforces SELinux, in an emulator: the contexts of fleetgate's sessions beside sshd's",
        run: selinux::main,
    },
    Chore {
        name: "graph",
        takes: "[CRATE]",
        does: "draws crates and modules into docs/pictures; prints sizes, depths, and circles of imports; of one crate, the \
               imports that make its circles",
        run: graph::main,
    },
    Chore {
        name: "size",
        takes: "[FILE]",
        does: "what the release build is made of: its sections, and its text by crate",
        run: size::main,
    },
    Chore {
        name: "dist",
        takes: "",
        does: "a .deb and an .rpm in target/dist",
        run: dist::main,
    },
    Chore {
        name: "proto",
        takes: "[--check]",
        does: "the committed code of the .proto files anew, or whether it is what they make",
        run: proto::main,
    },
    Chore {
        name: "tables",
        takes: "[--check]",
        does: "the tracer's committed tables of the kernel's headers anew, or whether they are what those make",
        run: tables::main,
    },
    Chore {
        name: "fuzz",
        takes: "[TARGET] [--seconds N]",
        does: "every fuzz target, a minute each; fetches nightly and cargo-fuzz when missing",
        run: fuzz::main,
    },
];

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let Some((name, rest)) = args.split_first() else {
        help();
        return ExitCode::from(2);
    };
    if matches!(name.as_str(), "help" | "--help" | "-h") {
        help();
        return ExitCode::SUCCESS;
    }
    let Some(chore) = CHORES.iter().find(|c| c.name == name) else {
        eprintln!("xtask: unknown chore {name:?}; `cargo xtask help` lists them");
        return ExitCode::from(2);
    };
    match (chore.run)(rest) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("\nxtask {name}: {error}");
            ExitCode::FAILURE
        }
    }
}

fn help() {
    println!("cargo xtask CHORE [ARGUMENTS]\n");
    for chore in CHORES {
        println!("  {} {}\n      {}", chore.name, chore.takes, chore.does);
    }
}

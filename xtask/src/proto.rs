//! `cargo xtask proto`: the code of the `.proto` files, which is committed so that no build needs a protobuf compiler. With
//! `--check` nothing is written; code that differs is an error.

use crate::shell::{Result, root, run};
use std::fs;
use std::path::Path;
use std::process::Command;

const COMMITTED: &str = "crates/proto/src/generated";

/// Writes it anew, or compares.
pub fn main(args: &[String]) -> Result {
    let check = match args {
        [] => false,
        [flag] if flag == "--check" => true,
        _ => return Err("usage: cargo xtask proto [--check]".to_owned()),
    };
    let committed = root().join(COMMITTED);
    if !check {
        return generate(&committed);
    }
    let fresh = root().join("target/proto");
    let _ = fs::remove_dir_all(&fresh);
    fs::create_dir_all(&fresh).map_err(|e| format!("{}: {e}", fresh.display()))?;
    generate(&fresh)?;
    let (made, kept) = (names(&fresh)?, names(&committed)?);
    if made != kept {
        return Err(format!(
            "{COMMITTED} holds {kept:?}, and the .proto files make {made:?}: run `cargo xtask proto`"
        ));
    }
    for name in made {
        if read(&fresh.join(&name))? != read(&committed.join(&name))? {
            return Err(format!(
                "{COMMITTED}/{name} is not what the .proto files make: run `cargo xtask proto`"
            ));
        }
    }
    Ok(())
}

fn generate(into: &Path) -> Result {
    run(Command::new(env!("CARGO"))
        .current_dir(root())
        .args([
            "run",
            "--quiet",
            "--locked",
            "--manifest-path",
            "crates/proto/generate/Cargo.toml",
            "--",
        ])
        .arg(into))
}

fn read(path: &Path) -> Result<Vec<u8>> {
    fs::read(path).map_err(|e| format!("{}: {e}", path.display()))
}

fn names(folder: &Path) -> Result<Vec<String>> {
    let failed = |e: std::io::Error| format!("{}: {e}", folder.display());
    let mut names = Vec::new();
    for entry in fs::read_dir(folder).map_err(failed)? {
        names.push(entry.map_err(failed)?.file_name().to_string_lossy().into_owned());
    }
    names.sort();
    Ok(names)
}

//! `cargo xtask build`: the static helpers, the static front, tunnel and recorder, the resolver, all packed, and `fleetgate`
//! with them inside.
//!
//! Each is a cargo invocation of its own, so that no crate gets a feature because another program wants it. A
//! plain `cargo build` never needs any of this: it makes a `fleetgate` that executes itself.

use crate::elf;
use crate::shell::{Result, bytes, cargo, heading, musl, read, root, run, target, write};
use sha2::{Digest, Sha256};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// The static helper's bound; every session maps it.
pub const HELPER_MAX: u64 = 200_000;
/// The bound of the helper for containers: the session helper, and what it takes to enter one.
const ENTER_MAX: u64 = 230_000;
/// The largest `check_fleetgate`.
const CHECK_MAX: u64 = 100_000;
/// The static front's bound.
pub const FRONT_MAX: u64 = 1_700_000;
/// The static tunnel's bound: TLS, HTTP/2 and gRPC are in it.
pub const TUNNEL_MAX: u64 = 3_000_000;
/// The static recorder's bound: zstd's compressor is in it.
pub const RECORDER_MAX: u64 = 980_000;
/// zstd without what its levels above 3 compress by, a quarter of the recorder: `record` uses level 3. zstd's lib/README.md has them.
const WITHOUT_SLOW_LEVELS: &str = "-DZSTD_EXCLUDE_GREEDY_BLOCK_COMPRESSOR -DZSTD_EXCLUDE_LAZY_BLOCK_COMPRESSOR \
    -DZSTD_EXCLUDE_LAZY2_BLOCK_COMPRESSOR -DZSTD_EXCLUDE_BTLAZY2_BLOCK_COMPRESSOR -DZSTD_EXCLUDE_BTOPT_BLOCK_COMPRESSOR \
    -DZSTD_EXCLUDE_BTULTRA_BLOCK_COMPRESSOR";
/// The bound of `fleetgate-exec`, the helper for containers inside it.
const EXEC_MAX: u64 = 1_300_000;
/// The resolver's bound.
pub const RESOLVER_MAX: u64 = 550_000;
/// What a cold release build may take on two cores.
const COLD_MAX: Duration = Duration::from_secs(8 * 60);
/// The programs that are embedded.
const IMAGES: [&str; 6] = [
    "fleetgate-session",
    "fleetgate-enter",
    "fleetgate-front",
    "fleetgate-tunnel",
    "fleetgate-recorder",
    "fleetgate-resolver",
];

/// What was built.
#[derive(Clone, Debug)]
pub struct Built {
    /// `fleetgate` with its images.
    pub fleetgate: PathBuf,
    /// The static session helper.
    pub helper: PathBuf,
    /// The same for containers.
    pub enter: PathBuf,
    /// The static program of lobby and fronts.
    pub front: PathBuf,
    /// The static program of the tunnel.
    pub tunnel: PathBuf,
    /// The static program of the recorder.
    pub recorder: PathBuf,
    /// The resolver.
    pub resolver: PathBuf,
    /// The monitoring's plugin.
    pub check: PathBuf,
    /// `fleetgate container exec` as a program of its own.
    pub exec: PathBuf,
}

impl Built {
    /// For who needs none of it.
    pub fn nothing() -> Built {
        let nowhere = || PathBuf::from("/nowhere");
        Built {
            fleetgate: nowhere(),
            helper: nowhere(),
            enter: nowhere(),
            front: nowhere(),
            tunnel: nowhere(),
            recorder: nowhere(),
            resolver: nowhere(),
            check: nowhere(),
            exec: nowhere(),
        }
    }
}

/// How the bytes of an image are stored.
enum Packing {
    Raw,
    Lz4,
}

/// `cargo xtask build [--timed]`
pub fn main(args: &[String]) -> Result {
    match args.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        [] => {
            let built = release()?;
            println!("built {}", built.fleetgate.display());
            Ok(())
        }
        ["--timed"] => timed(),
        [other, ..] => Err(format!(
            "build: unknown argument {other:?}; it takes --timed or nothing"
        )),
    }
}

/// Everything that a release holds, in cargo's own target directory.
pub fn release() -> Result<Built> {
    release_into(&target())
}

/// A plain `cargo build`, which has no images; the path of its `fleetgate`.
pub fn plain() -> Result<PathBuf> {
    run(cargo().args([
        "build",
        "--package",
        "fleetgate-cli",
        "--package",
        "fleetgate-container-exec",
    ]))?;
    Ok(target().join("debug/fleetgate"))
}

/// The static helper alone, without what of its file is never mapped.
pub fn helper_into(target: &Path) -> Result<PathBuf> {
    let helper = small_into(
        target,
        &Small {
            name: "fleetgate-session",
            package: "fleetgate-session",
            most: HELPER_MAX,
            why: "every session pays for it",
        },
    )?;
    run(Command::new(&helper).arg("true"))?;
    Ok(helper)
}

/// The static helper for containers.
fn enter_into(target: &Path) -> Result<PathBuf> {
    let enter = small_into(
        target,
        &Small {
            name: "fleetgate-enter",
            package: "fleetgate-enter",
            most: ENTER_MAX,
            why: "every session in a container maps it",
        },
    )?;
    run(Command::new(&enter).arg("true"))?;
    Ok(enter)
}

/// The static `check_fleetgate`, beside `fleetgate`, which it executes where it has to.
fn check_into(target: &Path) -> Result<PathBuf> {
    let built = small_into(
        target,
        &Small {
            name: "check_fleetgate",
            package: "fleetgate-check",
            most: CHECK_MAX,
            why: "every check maps it",
        },
    )?;
    let check = target.join("release/check_fleetgate");
    write_program(&check, &read(&built)?)?;
    Ok(check)
}

/// A static program without the standard library.
struct Small {
    name: &'static str,
    package: &'static str,
    most: u64,
    why: &'static str,
}

fn small_into(target: &Path, small: &Small) -> Result<PathBuf> {
    let Small {
        name,
        package,
        most,
        why,
    } = small;
    ensure_musl()?;
    let mut command = building(target);
    command.args([
        "--profile",
        "helper",
        "--package",
        package,
        "--bin",
        name,
        "--features",
        "program",
    ]);
    run(command.args(["--target", &musl()]))?;
    let linked = target.join(musl()).join("helper").join(name);
    let stripped = target.join("helper-without-sections").join(name);
    let program = elf::without_sections(&read(&linked)?).map_err(|e| format!("{}: {e}", linked.display()))?;
    write_program(&stripped, &program)?;
    let size = program.len() as u64;
    println!("{name}: {size} bytes (at most {most})");
    if size > *most {
        return Err(format!(
            "{name} has {size} bytes, {most} are allowed: {why}. Look for formatting of floats, panics with text and new \
             dependencies"
        ));
    }
    Ok(stripped)
}

/// The static program of lobby and fronts, watcher and guardian.
fn front_into(target: &Path) -> Result<PathBuf> {
    static_into(
        target,
        &Static {
            name: "fleetgate-front",
            package: "fleetgate-worker",
            images: None,
            most: FRONT_MAX,
            why: "every login maps it",
        },
    )
}

/// The static program of the tunnel.
fn tunnel_into(target: &Path) -> Result<PathBuf> {
    static_into(
        target,
        &Static {
            name: "fleetgate-tunnel",
            package: "fleetgate-tunnel",
            images: None,
            most: TUNNEL_MAX,
            why: "every node of a cluster maps it",
        },
    )
}

/// The static program of the recorder.
fn recorder_into(target: &Path) -> Result<PathBuf> {
    static_into(
        target,
        &Static {
            name: "fleetgate-recorder",
            package: "fleetgate-recorder",
            images: None,
            most: RECORDER_MAX,
            why: "every node that records maps it",
        },
    )
}

/// The static `fleetgate-exec`, with the helper that is among the `images`.
fn exec_into(target: &Path, images: &Path) -> Result<PathBuf> {
    let built = static_into(
        target,
        &Static {
            name: "fleetgate-exec",
            package: "fleetgate-container-exec",
            images: Some(images),
            most: EXEC_MAX,
            why: "every command in a container maps it",
        },
    )?;
    // Beside `fleetgate`, which it executes where it has to.
    let exec = target.join("release/fleetgate-exec");
    write_program(&exec, &read(&built)?)?;
    Ok(exec)
}

/// A static program with the standard library.
struct Static<'a> {
    name: &'static str,
    package: &'static str,
    images: Option<&'a Path>,
    most: u64,
    why: &'static str,
}

fn static_into(target: &Path, program: &Static) -> Result<PathBuf> {
    let Static {
        name,
        package,
        images,
        most,
        why,
    } = program;
    ensure_musl()?;
    let mut command = building(target);
    // One profile for all: what they share is built once.
    command.args(["--profile", "front", "--package", package, "--bin", name]);
    command.args(["--target", &musl()]);
    // ring's C and assembly, and zstd's, want a compiler by the target's name; the system's own makes the same objects, as they
    // use nothing of the C library but its headers' types.
    for (variable, value) in [("CC", "gcc"), ("CFLAGS", WITHOUT_SLOW_LEVELS)] {
        let variable = format!("{variable}_{}", musl().replace('-', "_"));
        if std::env::var_os(&variable).is_none() {
            command.env(&variable, value);
        }
    }
    if let Some(images) = images {
        command.env("FLEETGATE_IMAGES", images);
    }
    run(&mut command)?;
    let program = target.join(musl()).join("front").join(name);
    let size = size(&program)?;
    println!("{name}: {size} bytes (at most {most})");
    if size > *most {
        return Err(format!(
            "{name} has {size} bytes, {most} are allowed: {why}. Look for new dependencies"
        ));
    }
    Ok(program)
}

fn release_into(target: &Path) -> Result<Built> {
    let helper = helper_into(target)?;
    let enter = enter_into(target)?;
    let front = front_into(target)?;
    let tunnel = tunnel_into(target)?;
    let recorder = recorder_into(target)?;
    run(building(target).args([
        "--release",
        "--package",
        "fleetgate-resolver",
        "--bin",
        "fleetgate-resolver",
    ]))?;
    let resolver = target.join("release/fleetgate-resolver");
    let resolver_size = size(&resolver)?;
    println!("resolver: {resolver_size} bytes (at most {RESOLVER_MAX})");
    if resolver_size > RESOLVER_MAX {
        return Err(format!(
            "the resolver has {resolver_size} bytes, {RESOLVER_MAX} are allowed: every node holds it in memory"
        ));
    }
    let check = check_into(target)?;
    let images = target.join("images");
    let added = pack_all(&images, &[&helper, &enter, &front, &tunnel, &recorder, &resolver])?;
    let exec = exec_into(target, &images)?;
    run(building(target)
        .args(["--release", "--package", "fleetgate-cli"])
        .env("FLEETGATE_IMAGES", &images))?;
    let fleetgate = target.join("release/fleetgate");
    println!(
        "fleetgate: {}, of which the images are {}",
        bytes(size(&fleetgate)?),
        bytes(added)
    );
    Ok(Built {
        fleetgate,
        helper,
        enter,
        front,
        tunnel,
        recorder,
        resolver,
        check,
        exec,
    })
}

/// A build whose result does not depend on where the checkout lies.
fn building(target: &Path) -> Command {
    let mut command = cargo();
    let mut flags = vec![format!("--remap-path-prefix={}=/fleetgate", root().display())];
    if let Some(home) = cargo_home() {
        flags.push(format!("--remap-path-prefix={}=/cargo", home.display()));
    }
    command
        .env("CARGO_ENCODED_RUSTFLAGS", flags.join("\x1f"))
        .env_remove("FLEETGATE_IMAGES")
        .arg("build")
        .arg("--target-dir")
        .arg(target);
    command
}

fn cargo_home() -> Option<PathBuf> {
    std::env::var_os("CARGO_HOME")
        .map(PathBuf::from)
        .or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cargo")))
}

/// The musl target's library, fetched when rustup has not done so by itself.
fn ensure_musl() -> Result {
    let mut rustc = Command::new("rustc");
    rustc
        .current_dir(root())
        .args(["--print", "target-libdir", "--target", &musl()]);
    let there = crate::shell::output(&mut rustc).is_ok_and(|dir| Path::new(dir.trim()).is_dir());
    if there {
        return Ok(());
    }
    run(Command::new("rustup")
        .current_dir(root())
        .args(["target", "add", &musl()]))
    .map_err(|e| {
        format!(
            "{e}\nthe static helper needs Rust's {} target: `rustup target add {}`",
            musl(),
            musl()
        )
    })
}

/// Packs the programs into `images`, in the form that crates/cli/build.rs reads; the packed bytes altogether.
fn pack_all(images: &Path, programs: &[&Path]) -> Result<u64> {
    let version = env!("CARGO_PKG_VERSION");
    let mut list = String::new();
    let mut added = 0;
    for (name, program) in IMAGES.iter().zip(programs) {
        let raw = read(program)?;
        let (packing, data) = pack(&raw);
        let word = match packing {
            Packing::Raw => "raw",
            Packing::Lz4 => "lz4",
        };
        write(&images.join(name), &data)?;
        list += &format!(
            "{name} {version} {word} {} {}\n",
            raw.len(),
            hex(&Sha256::digest(&raw))
        );
        println!("image {name}: {} bytes, {word} {}", raw.len(), data.len());
        added += data.len() as u64;
    }
    write(&images.join("list"), list.as_bytes())?;
    Ok(added)
}

/// lz4 where it saves a quarter; a smaller gain is not worth the time that unpacking takes.
fn pack(raw: &[u8]) -> (Packing, Vec<u8>) {
    let packed = lz4_flex::block::compress(raw);
    if packed.len() < raw.len() / 4 * 3 {
        (Packing::Lz4, packed)
    } else {
        (Packing::Raw, raw.to_vec())
    }
}

/// Lower-case hexadecimal.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

/// Writes a program, only if it would change, and never into one that runs.
fn write_program(path: &Path, data: &[u8]) -> Result {
    if std::fs::read(path).is_ok_and(|old| old == data) {
        return Ok(());
    }
    let failed = |e: std::io::Error| format!("{}: {e}", path.display());
    let new = path.with_extension("new");
    write(&new, data)?;
    std::fs::set_permissions(&new, std::fs::Permissions::from_mode(0o755)).map_err(failed)?;
    std::fs::rename(&new, path).map_err(failed)
}

fn size(path: &Path) -> Result<u64> {
    let meta = std::fs::metadata(path).map_err(|e| format!("{}: {e}", path.display()))?;
    Ok(meta.len())
}

/// A release build from nothing, timed, and what embedding adds, measured against a build without images.
fn timed() -> Result {
    let cold = target().join("cold");
    if cold.exists() {
        std::fs::remove_dir_all(&cold).map_err(|e| format!("{}: {e}", cold.display()))?;
    }
    run(cargo().arg("fetch"))?;
    heading("a cold release build");
    let start = Instant::now();
    let built = release_into(&cold)?;
    let took = start.elapsed();
    let with = size(&built.fleetgate)?;
    heading("the same without images");
    run(building(&cold).args(["--release", "--package", "fleetgate-cli"]))?;
    let without = size(&cold.join("release/fleetgate"))?;
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    println!(
        "\nembedding adds {} bytes to fleetgate's {without}",
        with - without
    );
    println!(
        "cold release build: {} min {:02} s on {cores} cores (goal on 2: below {} min)",
        took.as_secs() / 60,
        took.as_secs() % 60,
        COLD_MAX.as_secs() / 60
    );
    std::fs::remove_dir_all(&cold).map_err(|e| format!("{}: {e}", cold.display()))?;
    if cores >= 2 && took > COLD_MAX {
        return Err("the cold release build takes too long".to_owned());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_compresses_is_packed_and_what_does_not_is_raw() {
        let zeros = vec![0u8; 100_000];
        let (packing, data) = pack(&zeros);
        assert!(matches!(packing, Packing::Lz4));
        assert_eq!(
            lz4_flex::block::decompress(&data, zeros.len()).expect("ours"),
            zeros
        );

        // A digest chain: nothing repeats.
        let mut noise = Vec::new();
        let mut last = Sha256::digest(b"noise");
        while noise.len() < 4096 {
            noise.extend_from_slice(&last);
            last = Sha256::digest(last);
        }
        let (packing, data) = pack(&noise);
        assert!(matches!(packing, Packing::Raw));
        assert_eq!(data, noise);
    }
}

//! `cargo xtask bench record-rsync`: rsync fetches 5 GB from a session that is recorded, and from one that is not. The file has
//! random bytes, which nobody compresses, lies in memory on the server's side, and is written to /dev/null on the client's. Of the
//! recording its length counts: a transfer is not recorded byte by byte.

use super::CIPHER;
use super::record::{Line, PLAIN, RECORDED, finished};
use super::world::World;
use crate::bench::{Bench, Goal, Promised, Subject, rival};
use crate::shell::Result;
use std::fs::File;
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

const RATE: &str = "rsync of 5 GB through a recorded session, at least, of one that is not";
const BYTES: &str = "recording of an rsync of 5 GB, of 100 KB";

/// What it promises.
pub const PROMISES: &[Promised] = &[
    Promised {
        name: RATE,
        goal: Goal::AtLeast(0.97),
    },
    Promised {
        name: BYTES,
        goal: Goal::AtMost(1.0),
    },
];

/// In MB, unless `--size` says another number.
const SIZE: u64 = 5000;
const QUICK: u64 = 200;
/// Five differ by three hundredths from run to run.
const TRANSFERS: usize = 15;
const CASE: &str = "rsync from a session";

/// Measures.
pub fn measure(bench: &mut Bench) -> Result {
    let rsync = rival("rsync", "rsync")?;
    let world = World::new(bench)?;
    let size = bench.size.unwrap_or(if bench.is_quick() { QUICK } else { SIZE });
    let file = world.at.join("random");
    random(&file, size)?;
    let lines: Vec<Line> = [RECORDED, PLAIN]
        .into_iter()
        .map(|kind| Line::open(&world, kind))
        .collect::<Result<_>>()?;
    let (recorded, plain) = (RECORDED.name(), PLAIN.name());
    let subjects = lines
        .iter()
        .map(|line| {
            let (rsync, file) = (&rsync, &file);
            Subject::sampled(line.name(), move || Ok(size as f64 / fetch(rsync, line, file)?))
        })
        .collect();
    bench.run(CASE, "MB/s", 1, TRANSFERS, subjects)?;
    bench.promise_of(RATE, CASE, recorded, plain)?;
    let (length, _) = finished(&world, &lines[0], || fetch(&rsync, &lines[0], &file))?;
    bench.record("recording of an rsync", recorded, "bytes", vec![length]);
    bench.promise(BYTES, length / 100e3)
}

/// A file of so many MB.
fn random(path: &Path, megabytes: u64) -> Result {
    let failed = |e: std::io::Error| format!("{}: {e}", path.display());
    let from = File::open("/dev/urandom").map_err(failed)?;
    let mut to = File::create(path).map_err(failed)?;
    std::io::copy(&mut from.take(megabytes * 1_000_000), &mut to).map_err(failed)?;
    to.flush().map_err(failed)
}

/// One transfer, in seconds.
fn fetch(rsync: &Path, line: &Line<'_>, file: &Path) -> Result<f64> {
    let ssh = line.command("-T", "");
    let words: Vec<String> = [ssh.get_program()]
        .into_iter()
        .chain(ssh.get_args())
        .map(|word| word.to_string_lossy().into_owned())
        // The host and the command are rsync's.
        .take_while(|word| word != "127.0.0.1")
        .collect();
    let start = Instant::now();
    let status = Command::new(rsync)
        .args(["--whole-file", "--write-devices", "-e", &words.join(" ")])
        .arg(format!("127.0.0.1:{}", file.display()))
        .arg("/dev/null")
        .stdin(Stdio::null())
        .status()
        .map_err(|e| format!("rsync: {e}"))?;
    match status.success() {
        true => Ok(start.elapsed().as_secs_f64()),
        false => Err(format!("rsync: {status} (cipher {CIPHER})")),
    }
}

//! `cargo xtask bench sftp`: OpenSSH's own client, `sftp -D`, gets and puts 1 GB and 10,000 small files, from our
//! server and from OpenSSH's in turn. Everything lies in memory (/dev/shm), so that no disk is measured. What the
//! server alone costs is taken by `bench-usage`, which the client starts in its place.

use super::{Bench, Goal, Promised, Subject, rival};
use crate::shell::{Result, build_benches, target};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

/// What it promises.
pub const PROMISES: &[Promised] = &[
    Promised {
        name: "sftp bytes per CPU second, at least, of OpenSSH's sftp-server",
        goal: Goal::AtLeast(1.2),
    },
    Promised {
        name: "sftp of 10,000 small files, of OpenSSH's sftp-server",
        goal: Goal::AtMost(1.0),
    },
];

/// The large file, in MiB.
const LARGE: usize = 1024;
/// How many small ones, of how many bytes.
const FILES: usize = 10_000;
const SMALL: usize = 1000;
/// Transfers per subject and case.
const TRANSFERS: usize = 15;

const OURS: &str = "fleetgate";
const THEIRS: &str = "OpenSSH";

/// Measures.
pub fn measure(bench: &mut Bench) -> Result {
    build_benches(&["bench-usage"])?;
    let world = World::new(bench)?;
    let mut bytes_of = Vec::new();
    for (case, batch) in [("get 1 GB", "get large copy"), ("put 1 GB", "put large copy")] {
        let name = format!("{case}, per CPU second of the server");
        bench.run(
            &name,
            "MiB/s",
            1,
            TRANSFERS,
            world.subjects(batch, |micros| LARGE as f64 * 1e6 / micros),
        )?;
        bytes_of.push(bench.median(&name, OURS)? / bench.median(&name, THEIRS)?);
    }
    let mut wall_of = Vec::new();
    for (case, batch) in [
        ("get 10,000 files", "get -R small copy"),
        ("put 10,000 files", "put -R small copy"),
    ] {
        bench.run(case, "ms", 1, TRANSFERS, world.timed(batch))?;
        wall_of.push(bench.median(case, OURS)? / bench.median(case, THEIRS)?);
    }
    // The worse direction counts.
    bench.promise(PROMISES[0].name, bytes_of.into_iter().fold(f64::MAX, f64::min))?;
    bench.promise(PROMISES[1].name, wall_of.into_iter().fold(0.0, f64::max))
}

/// The files, the servers, and the way to run one transfer.
struct World {
    at: PathBuf,
    sftp: PathBuf,
    servers: [(&'static str, String); 2],
    usage: PathBuf,
}

impl World {
    fn new(bench: &Bench) -> Result<World> {
        let at = Path::new("/dev/shm").join(format!("fleetgate-bench-sftp-{}", std::process::id()));
        let failed = |e: std::io::Error| format!("making files in {}: {e}", at.display());
        std::fs::create_dir_all(at.join("small")).map_err(failed)?;
        let large: Vec<u8> = (0..1u32 << 20)
            .map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8)
            .collect();
        let mut file = std::fs::File::create(at.join("large")).map_err(failed)?;
        for _ in 0..LARGE {
            std::io::Write::write_all(&mut file, &large).map_err(failed)?;
        }
        for n in 0..FILES {
            std::fs::write(at.join(format!("small/{n}")), &large[n..n + SMALL]).map_err(failed)?;
        }
        // The client splits its server's command at spaces and gives it no name: a link has the proper one.
        let helper = at.join("fleetgate-session");
        std::os::unix::fs::symlink(&bench.built.helper, &helper).map_err(failed)?;
        let server = rival("sftp-server", "openssh-sftp-server")?;
        Ok(World {
            sftp: rival("sftp", "openssh-client")?,
            servers: [
                (OURS, format!("{} sftp", helper.display())),
                (THEIRS, server.display().to_string()),
            ],
            usage: target().join("release/bench-usage"),
            at,
        })
    }

    /// One transfer, in milliseconds; the copy is looked at and removed, which is not part of them.
    fn transfer(&self, command: &str, batch: &str) -> Result<f64> {
        let failed = |e: std::io::Error| format!("{batch:?} with {command:?}: {e}");
        std::fs::write(self.at.join("batch"), batch).map_err(failed)?;
        let start = Instant::now();
        let status = Command::new(&self.sftp)
            .args(["-q", "-D", command, "-b", "batch"])
            .current_dir(&self.at)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .status()
            .map_err(failed)?;
        let taken = start.elapsed().as_secs_f64() * 1e3;
        if !status.success() {
            return Err(format!("{batch:?} with {command:?}: {status}"));
        }
        let copy = self.at.join("copy");
        let (got, want) = if copy.is_dir() {
            let count = std::fs::read_dir(&copy).map_err(failed)?.count();
            std::fs::remove_dir_all(&copy).map_err(failed)?;
            (count as u64, FILES as u64)
        } else {
            let len = copy.metadata().map_err(failed)?.len();
            std::fs::remove_file(&copy).map_err(failed)?;
            (len, (LARGE as u64) << 20)
        };
        if got != want {
            return Err(format!("{batch:?} with {command:?} brought {got} of {want}"));
        }
        Ok(taken)
    }

    /// Subjects whose sample is made of the server's processor time in microseconds.
    fn subjects<'a>(&'a self, batch: &'a str, sample: impl Fn(f64) -> f64 + Copy + 'a) -> Vec<Subject<'a>> {
        let told = self.at.join("usage");
        let subject = |(name, server): &'a (&'static str, String)| {
            let told = told.clone();
            Subject::sampled(name, move || {
                let command = format!("{} {} {server}", self.usage.display(), told.display());
                self.transfer(&command, batch)?;
                let micros = std::fs::read_to_string(&told).map_err(|e| e.to_string())?;
                let micros: f64 = micros
                    .parse()
                    .map_err(|_| format!("bench-usage left {micros:?}"))?;
                Ok(sample(micros))
            })
        };
        self.servers.iter().map(subject).collect()
    }

    /// Subjects whose whole command is timed.
    fn timed<'a>(&'a self, batch: &'a str) -> Vec<Subject<'a>> {
        let subject = |(name, server): &'a (&'static str, String)| {
            Subject::sampled(name, move || self.transfer(server, batch))
        };
        self.servers.iter().map(subject).collect()
    }
}

impl Drop for World {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.at);
    }
}

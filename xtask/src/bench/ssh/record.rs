//! `cargo xtask bench record`: what recording costs. Two nodes of ours that differ in that alone, by OpenSSH's client over
//! connections that are open already; and the bytes of a recording, beside asciinema's of the same session, compressed: of a burst
//! of two seconds, recorded by both, and of an hour in which somebody types (`bench-recording` makes that without waiting for it).
//!
//! Recordings lie in memory, so that no disk is measured. Output is what `yes` writes to a terminal, and for bulk a file
//! without one. The typed key goes to `cat` in a terminal that echoes it.

use super::CIPHER;
use super::recordings;
use super::server::{Kind, Master, OURS, Server};
use super::world::{LARGE, World, login};
use crate::bench::{Bench, Goal, Promised, Subject, rival};
use crate::shell::{Result, build_benches};
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

const YES: &str = "output of yes in a recorded terminal, at least, of one that is not";
const BULK: &str = "bulk from a recorded session, at least, of one that is not";
const KEY: &str = "99th percentile of a typed key's echo in a recorded terminal, of one that is not";
const MEMORY: &str = "memory that a recording adds to an open shell, of 256 KB";
const BYTES: &str = "bytes of a recording of a shell session, of asciinema's through gzip";

/// What it promises.
pub const PROMISES: &[Promised] = &[
    Promised {
        name: YES,
        goal: Goal::AtLeast(0.9),
    },
    Promised {
        name: BULK,
        goal: Goal::AtLeast(0.97),
    },
    Promised {
        name: KEY,
        goal: Goal::AtMost(1.05),
    },
    Promised {
        name: MEMORY,
        goal: Goal::AtMost(1.0),
    },
    Promised {
        name: BYTES,
        goal: Goal::AtMost(0.7),
    },
];

pub(super) const RECORDED: Kind = Kind::Ours {
    pam: false,
    timed: false,
    watched: false,
    alone: true,
    installed: false,
    recorded: Some("output"),
};
pub(super) const PLAIN: Kind = OURS.with(true, false);

/// What `yes` writes in one transfer, in MB.
const OUTPUT: usize = 50;
const TRANSFERS: usize = 20;
const KEYS: usize = 4000;
/// Open shells whose memory is measured.
const SHELLS: usize = 20;
/// A server rests when nothing has happened for so long.
const QUIET: Duration = Duration::from_secs(4);

/// Measures.
pub fn measure(bench: &mut Bench) -> Result {
    let world = World::new(bench)?;
    let lines: Vec<Line> = [RECORDED, PLAIN]
        .into_iter()
        .map(|kind| Line::open(&world, kind))
        .collect::<Result<_>>()?;
    let (recorded, plain) = (RECORDED.name(), PLAIN.name());
    let yes = format!("yes | head -c {OUTPUT}000000");
    throughput(bench, &lines, "yes in a terminal", ("-tt", &yes), OUTPUT as f64)?;
    bench.promise_of(YES, "yes in a terminal", recorded, plain)?;
    let cat = format!("cat {}", world.at.join("large").display());
    throughput(bench, &lines, "bulk", ("-T", &cat), LARGE as f64)?;
    bench.promise_of(BULK, "bulk", recorded, plain)?;
    processor_time(bench, &lines, &yes)?;
    keys(bench, &lines)?;
    memory(bench, &world, &lines)?;
    burst(bench, &world, &lines[0])?;
    hour(bench, &world)
}

/// A node and an open connection to it.
pub(super) struct Line<'a> {
    world: &'a World,
    server: Server,
    master: Master,
}

impl<'a> Line<'a> {
    pub(super) fn open(world: &'a World, kind: Kind) -> Result<Line<'a>> {
        let server = Server::start(world, kind)?;
        let master = Master::connect(world, &server, &login(0), CIPHER)?;
        Ok(Line {
            world,
            server,
            master,
        })
    }

    pub(super) fn name(&self) -> &'static str {
        self.server.kind.name()
    }

    /// `ssh` with a terminal or without one.
    pub(super) fn command(&self, terminal: &str, command: &str) -> Command {
        let mut ssh = self.master.client(self.world);
        ssh.args([terminal, "127.0.0.1", command]).stderr(Stdio::null());
        ssh
    }

    fn run(&self, terminal: &str, command: &str) -> Result<Duration> {
        let start = Instant::now();
        let status = self
            .command(terminal, command)
            .status()
            .map_err(|e| format!("ssh: {e}"))?;
        match status.success() {
            true => Ok(start.elapsed()),
            false => Err(format!("{command}: {status}: {}", self.server.said())),
        }
    }
}

fn throughput(
    bench: &mut Bench,
    lines: &[Line<'_>],
    case: &str,
    (terminal, command): (&str, &str),
    megabytes: f64,
) -> Result {
    let subjects = lines
        .iter()
        .map(|line| {
            Subject::sampled(line.name(), move || {
                Ok(megabytes / line.run(terminal, command)?.as_secs_f64())
            })
        })
        .collect();
    bench.run(case, "MB/s", 1, TRANSFERS, subjects)
}

/// What the whole node takes for a recorded and an unrecorded megabyte of terminal output.
fn processor_time(bench: &mut Bench, lines: &[Line<'_>], command: &str) -> Result {
    let subjects = lines
        .iter()
        .map(|line| {
            Subject::sampled(line.name(), move || {
                let before = line.server.group.cpu_at_rest()?;
                line.run("-tt", command)?;
                let used = line.server.group.cpu_at_rest()?.saturating_sub(before);
                Ok(used as f64 / OUTPUT as f64)
            })
        })
        .collect();
    bench.run(
        "processor time of a terminal's output, yes included",
        "us/MB",
        1,
        TRANSFERS / 2,
        subjects,
    )
}

/// A terminal with `cat` in it, which echoes what is typed.
struct Typed {
    child: Child,
    input: ChildStdin,
    output: ChildStdout,
}

impl Typed {
    fn open(line: &Line<'_>) -> Result<Typed> {
        let mut child = line
            .command("-tt", "stty echo opost onlcr; echo ready; exec cat >/dev/null")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|e| format!("ssh: {e}"))?;
        let (Some(input), Some(mut output)) = (child.stdin.take(), child.stdout.take()) else {
            return Err("ssh has no pipes".to_owned());
        };
        let mut ready = [0; 7];
        output
            .read_exact(&mut ready)
            .map_err(|e| format!("ssh says nothing: {e}"))?;
        Ok(Typed { child, input, output })
    }

    /// One key and its echo, in microseconds. A line is never ended: its echo would be two characters.
    fn key(&mut self) -> Result<f64> {
        let failed = |e: std::io::Error| format!("typing: {e}");
        let start = Instant::now();
        self.input.write_all(b"k").map_err(failed)?;
        self.output.read_exact(&mut [0]).map_err(failed)?;
        Ok(start.elapsed().as_secs_f64() * 1e6)
    }
}

impl Drop for Typed {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn keys(bench: &mut Bench, lines: &[Line<'_>]) -> Result {
    let mut typed: Vec<Typed> = lines.iter().map(Typed::open).collect::<Result<_>>()?;
    let n = bench.times(KEYS);
    let mut samples = vec![Vec::with_capacity(n); typed.len()];
    for turn in 0..n {
        // A line in a terminal has at most 4,095 characters.
        if turn % 4000 == 3999 {
            typed = lines.iter().map(Typed::open).collect::<Result<_>>()?;
        }
        for (typed, samples) in typed.iter_mut().zip(&mut samples) {
            samples.push(typed.key()?);
        }
    }
    let mut late = Vec::new();
    for (line, samples) in lines.iter().zip(samples) {
        let mut sorted = samples.clone();
        sorted.sort_by(f64::total_cmp);
        late.push(sorted[sorted.len() * 99 / 100]);
        bench.record("a typed key's echo", line.name(), "us", samples);
    }
    for (line, late) in lines.iter().zip(&late) {
        bench.record(
            "a typed key's echo, 99th percentile",
            line.name(),
            "us",
            vec![*late],
        );
    }
    bench.promise(KEY, late[0] / late[1])
}

/// What shells add to both nodes.
fn memory(bench: &mut Bench, world: &World, lines: &[Line<'_>]) -> Result {
    let shell = world.shell()?;
    let mut each = Vec::new();
    for line in lines {
        // One that is open already: the recorder runs.
        let _first = Typed::open(line)?;
        sleep(QUIET);
        let before = line.server.group.memory(&shell)?.kilobytes();
        let shells: Vec<Child> = (0..SHELLS)
            .map(|_| {
                // What a shell of some minutes has shown.
                line.command("-tt", "ls -lR /etc | head -n 2000; exec sh")
                    .stdin(Stdio::piped())
                    .spawn()
                    .map_err(|e| format!("ssh: {e}"))
            })
            .collect::<Result<_>>()?;
        sleep(QUIET + Duration::from_secs(3));
        let after = line.server.group.memory(&shell)?.kilobytes();
        each.push((after - before) / SHELLS as f64);
        for mut shell in shells {
            let _ = shell.kill();
            let _ = shell.wait();
        }
    }
    for (line, each) in lines.iter().zip(&each) {
        bench.record("memory of an open shell", line.name(), "KB", vec![*each]);
    }
    bench.promise(MEMORY, (each[0] - each[1]).max(0.0) / 256.0)
}

/// What a shell prints, word by word, with pauses left out.
const SESSION: &str = "for d in /etc /usr/bin /usr/share/doc /var/log; do for w in ls -l $d; do printf '%s ' $w; done; echo; \
    ls -l --color=always $d | head -n 150; sleep 0.05; done; seq 1 300; dmesg 2>/dev/null | head -n 100; ps aux | head -n 60; \
    for n in $(seq 1 100); do printf '\\r%3d %% of it' $n; sleep 0.01; done; echo; cat /etc/services | head -n 200";

/// The bytes of a burst, and no promise: people do not read so fast.
fn burst(bench: &mut Bench, world: &World, line: &Line<'_>) -> Result {
    let asciinema = rival("asciinema", "asciinema")?;
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..bench.rounds(3) {
        let (bytes, _) = finished(world, line, || line.run("-tt", SESSION))?;
        ours.push(bytes);
        let cast = world.at.join("session.cast");
        let status = Command::new(&asciinema)
            .args(["rec", "--quiet", "--overwrite", "--command", SESSION])
            .arg(&cast)
            .env("TERM", "xterm-256color")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .status()
            .map_err(|e| format!("asciinema: {e}"))?;
        if !status.success() {
            return Err(format!("asciinema: {status}"));
        }
        theirs.push(zipped(&cast)?);
    }
    bench.record("bytes of a burst's recording", RECORDED.name(), "bytes", ours);
    bench.record("bytes of a burst's recording", ZIPPED, "bytes", theirs);
    Ok(())
}

const ZIPPED: &str = "asciinema, gzip";

/// The bytes of an hour in a shell: by the code that the recorder writes with, and in asciinema's format.
fn hour(bench: &mut Bench, world: &World) -> Result {
    build_benches(&["bench-recording"])?;
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for seed in 1..=bench.rounds(5) {
        let made = Command::new(bench.programs.join("bench-recording"))
            .arg(&world.at)
            .arg(seed.to_string())
            .status();
        if !made.is_ok_and(|status| status.success()) {
            return Err("bench-recording failed".to_owned());
        }
        ours.push(length(&world.at.join("hour.rec"))?);
        theirs.push(zipped(&world.at.join("hour.cast"))?);
    }
    let case = "bytes of the recording of an hour in a shell";
    bench.record(case, RECORDED.name(), "bytes", ours);
    bench.record(case, ZIPPED, "bytes", theirs);
    bench.promise_of(BYTES, case, RECORDED.name(), ZIPPED)
}

fn length(path: &Path) -> Result<f64> {
    let facts = path.metadata().map_err(|e| format!("{}: {e}", path.display()))?;
    Ok(facts.len() as f64)
}

/// The length of a file that gzip has made smaller.
fn zipped(path: &Path) -> Result<f64> {
    let gzip = Command::new("gzip").arg("-f").arg(path).status();
    if !gzip.is_ok_and(|status| status.success()) {
        return Err("gzip failed".to_owned());
    }
    length(&path.with_extension("cast.gz"))
}

/// How long the recording is of what `session` does, and what that gives.
pub(super) fn finished<T>(
    world: &World,
    line: &Line<'_>,
    session: impl FnOnce() -> Result<T>,
) -> Result<(f64, T)> {
    let directory = world.recordings(line.server.port);
    let before = recordings::files(&directory);
    let done = session()?;
    let until = Instant::now() + Duration::from_secs(10);
    loop {
        let new = recordings::files(&directory)
            .into_iter()
            .find(|path| !before.contains(path) && !path.with_extension("tail").exists());
        match new {
            Some(new) => return Ok((length(&new)?, done)),
            None if Instant::now() > until => return Err("no recording was finished".to_owned()),
            None => sleep(Duration::from_millis(20)),
        }
    }
}

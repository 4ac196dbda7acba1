//! Measures sealing in a process that does nothing else. Prints a line per row: case, subject, unit, samples.
//!
//! `bench-seal PROGRAM IMAGES N`: PROGRAM is sealed, IMAGES is the directory with the packed helper.
//!
//! `bench-seal --rounds none|overlay|memfd|kept PROGRAM N`: prints N samples alone, a line for each. A round seals PROGRAM
//! and runs `PROGRAM true` from the image; with `kept`, a memfd made before serves all rounds.
#![forbid(unsafe_code)]

use fleetgate_seal::{Embedded, Image, Packing, Source, Strategy};
use fleetgate_sys::Fd;
use fleetgate_sys::process::{self, Exit};
use fleetgate_sys::spawn::{Program, Spawn, Stack, Strings, spawn};
use std::error::Error;
use std::fs::File;
use std::path::Path;
use std::time::Instant;

type Result<T = ()> = std::result::Result<T, Box<dyn Error>>;

/// How many threads seal at once.
const THREADS: [usize; 3] = [1, 8, 64];

fn main() -> Result {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if let [flag, subject, program, n] = &args[..]
        && flag == "--rounds"
    {
        return rounds(subject, &Source::File(program.into()), n.parse()?);
    }
    let [program, images, n] = &args[..] else {
        return Err("bench-seal PROGRAM IMAGES N".into());
    };
    let n: usize = n.parse()?;
    let program = Source::File(program.into());
    embedded(Path::new(images), n)?;
    fresh_and_started(&program, n)?;
    for threads in THREADS {
        at_once(&program, threads, n)?;
    }
    Ok(())
}

fn print(case: &str, subject: &str, samples: &[f64]) {
    let samples: Vec<String> = samples.iter().map(|s| format!("{s:.3}")).collect();
    println!("{case}\t{subject}\tus\t{}", samples.join(" "));
}

fn image(strategy: Strategy, source: &Source) -> Result<Image> {
    Image::make(strategy, source, c"bench", None).map_err(|refusal| refusal.to_string().into())
}

fn micros(since: Instant) -> f64 {
    since.elapsed().as_secs_f64() * 1e6
}

/// What a server pays once: the packed helper, unpacked and sealed.
fn embedded(images: &Path, n: usize) -> Result {
    let list = std::fs::read_to_string(images.join("list"))?;
    let line = list.lines().find(|l| l.starts_with("fleetgate-session "));
    let words: Vec<&str> = line.ok_or("the list has no helper")?.split(' ').collect();
    let [_, _, packing, len, _] = words[..] else {
        return Err("the helper's line has not five words".into());
    };
    let source = Source::Embedded(Box::leak(Box::new(Embedded {
        name: "fleetgate-session",
        version: "0",
        packing: if packing == "raw" {
            Packing::Raw
        } else {
            Packing::Lz4
        },
        data: std::fs::read(images.join("fleetgate-session"))?.leak(),
        len: len.parse()?,
        sha256: [0; 32],
    })));
    let strategies = [Strategy::Memfd, Strategy::Overlay];
    let mut samples = [const { Vec::new() }; 2];
    for _ in 0..n {
        for (strategy, samples) in strategies.iter().zip(&mut samples) {
            let start = Instant::now();
            let image = image(*strategy, &source);
            samples.push(micros(start));
            // Before 6.15 an overlay takes no layer that is attached nowhere.
            if image.is_err() {
                samples.clear();
            }
        }
    }
    for (strategy, samples) in strategies.iter().zip(samples) {
        if !samples.is_empty() {
            print("embedded image, sealed once", strategy.name(), &samples);
        }
    }
    Ok(())
}

/// Sealed anew, started, reaped, each time: what a container runtime does.
fn fresh_and_started(source: &Source, n: usize) -> Result {
    let strategies = [Strategy::Plain, Strategy::Memfd, Strategy::Overlay];
    let mut samples = [const { Vec::new() }; 3];
    let mut runner = Runner::new()?;
    for _ in 0..n {
        for (strategy, samples) in strategies.iter().zip(&mut samples) {
            let start = Instant::now();
            let image = image(*strategy, source)?;
            runner.run(&image)?;
            drop(image);
            samples.push(micros(start));
        }
    }
    for (strategy, samples) in strategies.iter().zip(samples) {
        let subject = if *strategy == Strategy::Plain {
            "none"
        } else {
            strategy.name()
        };
        print("sealed, started and reaped in process", subject, &samples);
    }
    Ok(())
}

/// What starts a program from its image.
struct Runner {
    null: Fd,
    stack: Stack,
}

impl Runner {
    fn new() -> Result<Runner> {
        Ok(Runner {
            null: File::options().read(true).write(true).open("/dev/null")?.into(),
            stack: Stack::new()?,
        })
    }

    /// Runs it with the argument `true`, until it is reaped.
    fn run(&mut self, image: &Image) -> Result {
        let (argv, envp) = (Strings::new([c"bench", c"true"]), Strings::new([]));
        let what = Spawn {
            program: Program::Fd(image.fd()),
            argv: &argv,
            envp: &envp,
            fds: &[self.null.raw(); 3],
            cgroup: None,
        };
        let child = spawn(&what, &mut self.stack)?;
        match process::wait(&child.pidfd, true)? {
            Some(Exit::Code(0)) => Ok(()),
            other => Err(format!("the program ended by {other:?}").into()),
        }
    }
}

/// One subject alone, to be run in turn with programs of others.
fn rounds(subject: &str, source: &Source, n: usize) -> Result {
    let mut runner = Runner::new()?;
    let kept = match subject {
        "kept" => Some(image(Strategy::Memfd, source)?),
        _ => None,
    };
    let strategy = match subject {
        "none" => Strategy::Plain,
        "kept" => Strategy::Memfd,
        name => name.parse()?,
    };
    for _ in 0..n {
        let start = Instant::now();
        match &kept {
            Some(image) => runner.run(image)?,
            None => runner.run(&image(strategy, source)?)?,
        }
        println!("{:.3}", micros(start));
    }
    Ok(())
}

/// The time of one seal while so many threads seal.
fn at_once(source: &Source, threads: usize, n: usize) -> Result {
    for strategy in [Strategy::Memfd, Strategy::Overlay] {
        let each = n.div_ceil(threads).max(2);
        let one = || -> std::result::Result<Vec<f64>, String> {
            let mut samples = Vec::with_capacity(each);
            for _ in 0..each {
                let start = Instant::now();
                let image = image(strategy, source).map_err(|e| e.to_string())?;
                drop(image);
                samples.push(micros(start));
            }
            Ok(samples)
        };
        let start = Instant::now();
        let samples: std::result::Result<Vec<Vec<f64>>, String> = std::thread::scope(|scope| {
            let running: Vec<_> = (0..threads).map(|_| scope.spawn(one)).collect();
            running
                .into_iter()
                .map(|t| t.join().map_err(|_| "a thread panicked".to_owned())?)
                .collect()
        });
        let samples = samples?.concat();
        let rate = micros(start) / samples.len() as f64;
        let case = format!("fresh seals, {threads} threads");
        print(&case, strategy.name(), &samples);
        print(
            &format!("{case}, machine's time per seal"),
            strategy.name(),
            &[rate],
        );
    }
    Ok(())
}

//! `cargo xtask bench NAME`: how every benchmark measures, what it prints and what it leaves behind.
//!
//! Ours and theirs are [`Subject`]s of one [`Bench::run`], which takes them in turn (A B C A B C …), so that a
//! busy moment of the machine falls on all of them. A benchmark declares its promises beside its code; the same
//! names stand in SPECIFICATION.md (`cargo xtask tidy` compares), and a promise that was declared and not
//! settled is an error. Nothing here asserts behaviour: that is the tests' work.

#![allow(dead_code)] // Which parts are in use depends on the benchmarks entered below.

mod commands;
mod containers;
mod launch;
mod pam;
mod proxy;
mod record_grep;
mod regions;
mod report;
mod seal;
mod sftp;
mod ssh;
mod trace;

use crate::build::{self, Built};
use crate::shell::{Result, cargo, heading, run, target};
use std::path::PathBuf;
use std::time::Instant;

pub use report::{Promise, Row};

/// One benchmark; a new one adds its module and its line in [`BENCHES`].
pub struct Entry {
    /// What `cargo xtask bench` calls it.
    pub name: &'static str,
    /// One line for the help.
    pub does: &'static str,
    /// What it promises, word for word as in SPECIFICATION.md.
    pub promises: &'static [Promised],
    /// Measures; settles each promise.
    pub run: fn(&mut Bench) -> Result,
}

/// A promise before it is measured.
pub struct Promised {
    /// Its name.
    pub name: &'static str,
    /// What its ratio has to be.
    pub goal: Goal,
}

/// The side on which a ratio has to lie.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Goal {
    /// Costs: lower is better.
    AtMost(f64),
    /// Yields: higher is better.
    AtLeast(f64),
}

/// Every benchmark: the place where owners enter theirs, one line each.
pub const BENCHES: &[Entry] = &[
    Entry {
        name: "commands",
        does: "one command as monitoring asks for it, from ours, NRPE and OpenSSH: time, and how many a second",
        promises: commands::PROMISES,
        run: commands::measure,
    },
    Entry {
        name: "containers",
        does: "a command in a container, by ours, crun, runc and nsenter; a session there, beside one on the machine",
        promises: containers::PROMISES,
        run: containers::measure,
    },
    Entry {
        name: "eight-cases",
        does: "check_load by NRPE, ssh and ControlMaster as a mail of 2012 compared them, and by ours; with a plot",
        promises: &[],
        run: commands::eight_cases::measure,
    },
    Entry {
        name: "icinga",
        does: "Icinga 2 with 1,000 services for ten minutes, by check_fleetgate and by check_nrpe at the same time",
        promises: commands::icinga::PROMISES,
        run: commands::icinga::measure,
    },
    Entry {
        name: "launch",
        does: "a launch until it is reaped, beside the direct way; memory of a waiting helper",
        promises: launch::PROMISES,
        run: launch::measure,
    },
    Entry {
        name: "pam",
        does: "a PAM session from the warm fork server, beside a program per session; memory of an open one",
        promises: pam::PROMISES,
        run: pam::run,
    },
    Entry {
        name: "proxy",
        does: "the proxy's memory for 10,000 nodes and for sessions; bytes through it, beside direct and `ssh -J`",
        promises: proxy::PROMISES,
        run: proxy::measure,
    },
    Entry {
        name: "record",
        does: "what recording costs: a terminal's output, bulk, a typed key, memory, bytes; beside asciinema",
        promises: ssh::record::PROMISES,
        run: ssh::record::measure,
    },
    Entry {
        name: "record-grep",
        does: "a search over 1,000 hours of recordings (--size HOURS), by their indexes and without",
        promises: record_grep::PROMISES,
        run: record_grep::measure,
    },
    Entry {
        name: "record-intake",
        does: "recordings of up to 1,000 sessions at once (--size N), by a proxy to auth: memory and processor time of each",
        promises: &[],
        run: proxy::intake::measure,
    },
    Entry {
        name: "record-rsync",
        does: "rsync of 5 GB (--size MB) from a session that is recorded, and from one that is not; the recording's bytes",
        promises: ssh::rsync::PROMISES,
        run: ssh::rsync::measure,
    },
    Entry {
        name: "regions",
        does: "`ssh target true` by way of a proxy between three continents, beside ProxyJump and published figures",
        promises: regions::PROMISES,
        run: regions::measure,
    },
    Entry {
        name: "seal",
        does: "a 10 MB program sealed and run, whole command and in process; seals at once; the embedded image",
        promises: seal::PROMISES,
        run: seal::measure,
    },
    Entry {
        name: "seal-runc",
        does: "runc run sealed by runc's overlay, memfd, dmz and memfd-bind, and by ours; and the images in process",
        promises: &[],
        run: seal::runc::measure,
    },
    Entry {
        name: "sftp",
        does: "OpenSSH's client gets and puts 1 GB and 10,000 small files, from our server and from OpenSSH's",
        promises: sftp::PROMISES,
        run: sftp::measure,
    },
    Entry {
        name: "ssh",
        does: "`ssh host true`, bulk and 200 connections at once, from our node, sshd, dropbear and Go's server",
        promises: ssh::PROMISES,
        run: ssh::measure,
    },
    Entry {
        name: "ssh-memory",
        does: "what the same servers keep in memory: idle, for connections of one login and of many, for shells",
        promises: ssh::memory::PROMISES,
        run: ssh::memory::measure,
    },
    Entry {
        name: "trace",
        does: "a traced call, and one that is not selected, from our tracer and from strace",
        promises: trace::PROMISES,
        run: trace::measure,
    },
    Entry {
        name: "trace-build",
        does: "a project of Debian's, built and configured: untraced, under strace, under ours",
        promises: trace::build::PROMISES,
        run: trace::build::measure,
    },
    Entry {
        name: "trace-session",
        does: "the same build in a session that is watched and in one that is not, in pairs",
        promises: trace::session::PROMISES,
        run: trace::session::measure,
    },
];

/// One thing that is measured beside others.
pub struct Subject<'a> {
    name: String,
    sample: Box<dyn FnMut() -> Result<f64> + 'a>,
}

impl<'a> Subject<'a> {
    /// A subject that measures itself: each call is one sample, in the case's unit.
    pub fn sampled(name: &str, sample: impl FnMut() -> Result<f64> + 'a) -> Subject<'a> {
        Subject {
            name: name.to_owned(),
            sample: Box::new(sample),
        }
    }

    /// A subject whose calls are timed, in milliseconds.
    pub fn timed(name: &str, mut work: impl FnMut() -> Result + 'a) -> Subject<'a> {
        Subject::sampled(name, move || {
            let start = Instant::now();
            work()?;
            Ok(start.elapsed().as_secs_f64() * 1e3)
        })
    }

    /// A subject whose calls are timed, in microseconds.
    pub fn timed_us(name: &str, mut work: impl FnMut() -> Result + 'a) -> Subject<'a> {
        Subject::sampled(name, move || {
            let start = Instant::now();
            work()?;
            Ok(start.elapsed().as_secs_f64() * 1e6)
        })
    }
}

/// A benchmark being run.
pub struct Bench {
    /// The release build: `fleetgate` with images, the helper, the resolver.
    pub built: Built,
    /// Where the programs of package `fleetgate-benches` are.
    pub programs: PathBuf,
    name: &'static str,
    promised: &'static [Promised],
    /// How much is measured, of what the benchmark counts; none: its own number.
    pub size: Option<u64>,
    quick: bool,
    without_ours: bool,
    rows: Vec<Row>,
    promises: Vec<Promise>,
}

impl Bench {
    /// How often something is really done when `n` times are asked for: a tenth with `--quick`.
    pub fn times(&self, n: usize) -> usize {
        if self.quick { n.div_ceil(10).max(3) } else { n }
    }

    /// The same of what takes minutes each time: once with `--quick`.
    pub fn rounds(&self, n: usize) -> usize {
        if self.quick { 1 } else { n }
    }

    /// Whether less is measured than for figures that are kept.
    pub fn is_quick(&self) -> bool {
        self.quick
    }

    /// Whether only the rivals are measured; no promise is settled then.
    pub fn without_ours(&self) -> bool {
        self.without_ours
    }

    /// Runs one case: each subject `warm_up` times unmeasured, then all of them in turn, `n` times.
    pub fn run(
        &mut self,
        case: &str,
        unit: &'static str,
        warm_up: usize,
        n: usize,
        subjects: Vec<Subject<'_>>,
    ) -> Result {
        let mut subjects = subjects;
        let (warm_up, n) = (if self.quick { warm_up.min(2) } else { warm_up }, self.times(n));
        let mut samples = vec![Vec::with_capacity(n); subjects.len()];
        for turn in 0..warm_up + n {
            for (subject, samples) in subjects.iter_mut().zip(&mut samples) {
                let value = (subject.sample)().map_err(|e| format!("{case}, {}: {e}", subject.name))?;
                if turn >= warm_up {
                    samples.push(value);
                }
            }
        }
        for (subject, samples) in subjects.iter().zip(samples) {
            self.record(case, &subject.name, unit, samples);
        }
        Ok(())
    }

    /// Records samples that were taken another way: memory, throughput, a minute's count.
    pub fn record(&mut self, case: &str, subject: &str, unit: &'static str, samples: Vec<f64>) {
        let row = Row::of(case, subject, unit, samples);
        println!("{}", row.line());
        self.rows.push(row);
    }

    /// The median of a row.
    pub fn median(&self, case: &str, subject: &str) -> Result<f64> {
        let row = self.rows.iter().find(|r| r.case == case && r.subject == subject);
        row.map(|r| r.median)
            .ok_or_else(|| format!("nothing was measured for {case:?}, {subject:?}"))
    }

    /// A row with the ratio of two subjects' medians in one case. It promises nothing.
    pub fn compare(&mut self, case: &str, subject: &str, of: &str) -> Result {
        let ratio = self.median(case, subject)? / self.median(case, of)?;
        self.record(&format!("{case}, of {of}"), subject, "", vec![ratio]);
        Ok(())
    }

    /// Settles a promise by the ratio of two subjects' medians in one case.
    pub fn promise_of(&mut self, name: &str, case: &str, ours: &str, theirs: &str) -> Result {
        let ratio = self.median(case, ours)? / self.median(case, theirs)?;
        self.promise(name, ratio)
    }

    /// Settles a promise.
    pub fn promise(&mut self, name: &str, ratio: f64) -> Result {
        let promised = self.promised.iter().find(|p| p.name == name);
        let promised =
            promised.ok_or_else(|| format!("{name:?} is not among the promises of {}", self.name))?;
        if !ratio.is_finite() {
            return Err(format!("{name:?} cannot be judged: the ratio is {ratio}"));
        }
        self.promises.push(Promise::of(promised, ratio));
        Ok(())
    }

    /// Whether every declared promise was settled, once.
    fn complete(&self) -> Result {
        for promised in self.promised {
            let times = self.promises.iter().filter(|p| p.name == promised.name).count();
            if times != 1 {
                return Err(format!(
                    "the promise {:?} was settled {times} times",
                    promised.name
                ));
            }
        }
        Ok(())
    }
}

/// The path of a rival's program; one that is missing is an error with the package to install.
pub fn rival(program: &str, package: &str) -> Result<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let places =
        std::env::split_paths(&path).chain(["/usr/sbin", "/sbin", "/usr/lib/openssh"].map(PathBuf::from));
    places.map(|dir| dir.join(program)).find(|p| p.is_file()).ok_or_else(|| {
        format!("{program} is missing, and it is measured beside ours: install the package {package} (`make install-deps`)")
    })
}

/// The benchmarks that can measure the rivals alone.
const ALSO_WITHOUT_OURS: [&str; 1] = ["regions"];

/// `cargo xtask bench NAME [--quick] [--without-ours] [--size N]`
pub fn main(args: &[String]) -> Result {
    let (args, size) = sized(args)?;
    let flag = |flag: &str| args.iter().any(|a| a == flag);
    let (quick, without_ours) = (flag("--quick"), flag("--without-ours"));
    let names: Vec<&String> = args
        .iter()
        .filter(|a| !matches!(a.as_str(), "--quick" | "--without-ours"))
        .collect();
    let [name] = names[..] else {
        return Err(format!("bench takes one name: {}", known()));
    };
    let entry = BENCHES.iter().find(|e| e.name == name);
    let entry = entry.ok_or_else(|| format!("there is no benchmark {name:?}; there are: {}", known()))?;

    if without_ours && !ALSO_WITHOUT_OURS.contains(&entry.name) {
        return Err(format!(
            "bench {name} cannot do --without-ours: it measures ours against theirs"
        ));
    }

    let built = if without_ours {
        Built::nothing()
    } else {
        build::release()?
    };
    if !without_ours {
        run(cargo().args(["build", "--release", "--package", "fleetgate-benches"]))?;
    }
    heading(&format!("bench {}: {}", entry.name, entry.does));
    let mut bench = Bench {
        built,
        programs: target().join("release"),
        name: entry.name,
        promised: entry.promises,
        size,
        quick,
        without_ours,
        rows: Vec::new(),
        promises: Vec::new(),
    };
    (entry.run)(&mut bench)?;
    if !without_ours {
        bench.complete()?;
    }
    report::finish(bench.name, quick, &bench.rows, &bench.promises)
}

/// The words without `--size N`, and N.
fn sized(args: &[String]) -> Result<(Vec<String>, Option<u64>)> {
    let mut args = args.to_vec();
    let Some(at) = args.iter().position(|arg| arg == "--size") else {
        return Ok((args, None));
    };
    let number = args.get(at + 1).and_then(|n| n.parse().ok()).filter(|n| *n > 0);
    let number = number.ok_or("--size takes a number above 0")?;
    args.drain(at..at + 2);
    Ok((args, Some(number)))
}

fn known() -> String {
    let names: Vec<&str> = BENCHES.iter().map(|e| e.name).collect();
    names.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROMISED: &[Promised] = &[Promised {
        name: "ours, of theirs",
        goal: Goal::AtMost(0.5),
    }];

    fn bench() -> Bench {
        Bench {
            built: Built::nothing(),
            programs: PathBuf::from("/nowhere"),
            name: "a test",
            promised: PROMISED,
            size: None,
            quick: false,
            without_ours: false,
            rows: Vec::new(),
            promises: Vec::new(),
        }
    }

    #[test]
    fn subjects_are_run_in_turn_and_warm_up_is_not_counted() {
        let mut bench = bench();
        let order = std::cell::RefCell::new(String::new());
        let subject = |name: &'static str, value: f64| {
            let order = &order;
            Subject::sampled(name, move || {
                order.borrow_mut().push_str(name);
                Ok(value)
            })
        };
        bench
            .run("case", "ms", 1, 3, vec![subject("A", 1.0), subject("B", 4.0)])
            .expect("runs");
        assert_eq!(*order.borrow(), "ABABABAB");
        assert_eq!(bench.rows[0].n, 3);
        bench.compare("case", "B", "A").expect("both were measured");
        assert_eq!(bench.median("case, of A", "B"), Ok(4.0));
        assert!(bench.compare("case", "C", "A").is_err());
        assert!(bench.complete().is_err(), "a promise that nobody settled");
        bench
            .promise_of("ours, of theirs", "case", "A", "B")
            .expect("settles");
        bench.complete().expect("settled once");
        assert!(bench.promises[0].holds);
        assert_eq!(bench.promises[0].ratio, 0.25);
        assert!(bench.promise("another", 1.0).is_err());
        assert!(bench.promise("ours, of theirs", f64::NAN).is_err());
    }

    #[test]
    fn a_missing_rival_is_an_error_that_names_its_package() {
        let error = rival("no-such-program-as-this", "its-package").expect_err("missing");
        assert!(
            error.contains("no-such-program-as-this") && error.contains("its-package"),
            "{error}"
        );
        rival("sh", "dash").expect("a positive control");
    }
}

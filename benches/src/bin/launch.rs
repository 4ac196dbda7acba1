//! Measures launches, in a process that does nothing else. Prints a line per row: case, subject, unit, samples.
//!
//! `bench-launch HELPER TRUE FLEETGATE N SECONDS`; as root, because the ids change.
#![forbid(unsafe_code)]

use fleetgate_launch::{Launch, LaunchThreads, Launcher, RunningHelper, Threads};
use fleetgate_seal::{FallbackChain, Options, Source, Strategy};
use fleetgate_sys::spawn::{Program, Spawn, Stack, Strings, spawn};
use fleetgate_sys::{Fd, process};
use fleetgate_wire::common::{Account, Ids};
use fleetgate_wire::exec::{self, Exec};
use fleetgate_wire::net::Networking;
use fleetgate_wire::order::{Role, Work};
use std::error::Error;
use std::ffi::CString;
use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

type Result<T = ()> = std::result::Result<T, Box<dyn Error>>;

/// Nobody: whom launched programs become.
const USER: u32 = 65534;
/// The memory of the parent that forks.
const LARGE: usize = 300 << 20;
/// Waiting helpers whose memory is measured.
const WAITING: usize = 50;

fn main() -> Result {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [helper, truth, fleetgate, n, seconds] = &args[..] else {
        return Err("bench-launch HELPER TRUE FLEETGATE N SECONDS".into());
    };
    let bench = Measured {
        chain: chain(helper)?,
        truth: CString::new(truth.as_str())?,
        fleetgate: fleetgate.clone(),
        null: File::options().read(true).write(true).open("/dev/null")?.into(),
        n: n.parse()?,
    };
    bench.until_reaped()?;
    bench.large_parent()?;
    bench.hand_off()?;
    bench.sustained(Duration::from_secs(seconds.parse()?))?;
    bench.waiting()
}

fn chain(program: &str) -> Result<Arc<FallbackChain>> {
    let options = Options {
        order: vec![Strategy::Memfd],
        ..Options::default()
    };
    Ok(Arc::new(FallbackChain::open(
        Source::File(program.into()),
        options,
    )?))
}

struct Measured {
    chain: Arc<FallbackChain>,
    truth: CString,
    fleetgate: String,
    null: Fd,
    n: usize,
}

impl Measured {
    /// The order: `bench-true` as nobody, without any shell.
    fn order(&self) -> Result<Launch> {
        let ids = Ids {
            uid: USER,
            gid: USER,
            groups: vec![USER],
        };
        let account = Account {
            name: c"nobody".into(),
            ids,
            home: c"/".into(),
            shell: c"/bin/sh".into(),
            ageing: None,
        };
        let argv = vec![self.truth.clone()];
        let work = Work::Exec(Exec::new([7; 16], account, exec::Program::Direct { argv }));
        let roles = [Role::Stdin, Role::Stdout, Role::Stderr];
        let fds = roles.map(|role| self.null.duplicate(3).map(|fd| (role, fd)));
        Ok(Launch::new(
            work,
            fds.into_iter().collect::<std::result::Result<_, _>>()?,
        ))
    }

    /// clone3 and exec, with nothing between; then one more exec, if asked for.
    fn direct(&self, program: &Fd, stack: &mut Stack, twice: bool) -> Result {
        let words = [c"bench-true", c"ids", c"65534", c"65534", &self.truth];
        let argv = Strings::new(words.into_iter().take(if twice { 5 } else { 4 }));
        let envp = Strings::new([]);
        let null = self.null.raw();
        let what = Spawn {
            program: Program::Fd(program),
            argv: &argv,
            envp: &envp,
            fds: &[null, null, null],
            cgroup: None,
        };
        let child = spawn(&what, stack)?;
        well(process::wait(&child.pidfd, true)?)
    }

    fn until_reaped(&self) -> Result {
        let truth: Fd = File::open(self.truth.to_str()?)?.into();
        let mut stack = Stack::new()?;
        let mut second = Stack::new()?;
        let mut twice = || self.direct(&truth, &mut second, true);
        let mut sealed = Launcher::new(self.chain.clone())?;
        let mut own = Launcher::new(plain_ladder(&self.fleetgate)?)?;
        let mut direct = || self.direct(&truth, &mut stack, false);
        let mut sealed = || {
            let (running, _) = sealed.launch(self.order()?)?;
            well_ended(&running)
        };
        let mut own = || {
            let (running, _) = own.launch(self.order()?)?;
            well_ended(&running)
        };
        let mut posix_spawn = || {
            let mut command = Command::new(&self.fleetgate);
            let status = command.arg0("fleetgate-session").args(["true"]).status()?;
            status
                .success()
                .then_some(())
                .ok_or_else(|| "fleetgate failed".into())
        };
        self.run(
            "launch, until reaped",
            &mut [
                ("direct clone3+exec", &mut direct),
                ("sealed helper", &mut sealed),
                ("two execs and nothing else", &mut twice),
                ("the whole main binary, by our launcher", &mut own),
                ("the whole main binary's `true`, posix_spawn", &mut posix_spawn),
            ],
        )
    }

    fn large_parent(&self) -> Result {
        let mut memory = vec![1u8; LARGE];
        std::hint::black_box(&mut memory);
        let truth: Fd = File::open(self.truth.to_str()?)?.into();
        let mut stack = Stack::new()?;
        let mut sealed = Launcher::new(self.chain.clone())?;
        let mut direct = || self.direct(&truth, &mut stack, false);
        let mut sealed = || {
            let (running, _) = sealed.launch(self.order()?)?;
            well_ended(&running)
        };
        let mut fork = || {
            // An id to change makes the standard library fork; it has no other way.
            let mut command = Command::new(self.truth.to_str()?);
            let status = command.uid(USER).gid(USER).status()?;
            status
                .success()
                .then_some(())
                .ok_or_else(|| "bench-true failed".into())
        };
        self.run(
            "launch from a parent of 300 MB",
            &mut [
                ("direct clone3+exec", &mut direct),
                ("sealed helper", &mut sealed),
                ("fork+exec of the same true", &mut fork),
            ],
        )
    }

    /// What the launch thread costs the caller on top.
    fn hand_off(&self) -> Result {
        let mut here = Launcher::new(self.chain.clone())?;
        let there = LaunchThreads::new(self.chain.clone(), Threads::default())?;
        let mut here = || well_ended(&here.launch(self.order()?)?.0);
        let mut there = || well_ended(&there.launch(self.order()?)?.0);
        self.run(
            "hand-off",
            &mut [
                ("on the caller's thread", &mut here),
                ("through the launch thread", &mut there),
            ],
        )
    }

    fn sustained(&self, time: Duration) -> Result {
        let mut launcher = Launcher::new(self.chain.clone())?;
        let start = Instant::now();
        let mut per_second = Vec::new();
        while start.elapsed() < time {
            let second = Instant::now();
            let mut count = 0u32;
            while second.elapsed() < Duration::from_secs(1) {
                let (running, _) = launcher.launch(self.order()?)?;
                well_ended(&running)?;
                count += 1;
            }
            per_second.push(f64::from(count) / second.elapsed().as_secs_f64());
        }
        print(
            "sustained",
            "sealed helper, one thread",
            "launches/s",
            &per_second,
        );
        Ok(())
    }

    /// The memory of helpers that wait for requests.
    fn waiting(&self) -> Result {
        let group = MemoryGroup::new();
        let mut launcher = Launcher::new(self.chain.clone())?;
        let before = group.as_ref().map_or(Ok(0), MemoryGroup::usage)?;
        let mut waiting = Vec::new();
        for _ in 0..WAITING {
            let work = Work::Networking(Networking {
                ids: Ids {
                    uid: USER,
                    gid: USER,
                    groups: vec![USER],
                },
                max_pending: 64,
                selinux: None,
            });
            waiting.push(launcher.launch(Launch::new(work, vec![]))?.0);
        }
        let after = group.as_ref().map_or(Ok(0), MemoryGroup::usage)?;
        let pss: Result<Vec<f64>> = waiting.iter().map(|r| pss_kb(r.pid)).collect();
        print("a waiting helper", "PSS", "KB", &pss?);
        if group.is_some() {
            let each = (after.saturating_sub(before)) as f64 / 1024.0 / WAITING as f64;
            print("a waiting helper", "memcg, kernel memory included", "KB", &[each]);
        }
        for running in &waiting {
            running.signal(9)?;
            running.wait_exit()?;
        }
        Ok(())
    }

    /// Takes the subjects in turn and prints a row for each.
    fn run(&self, case: &str, subjects: &mut [(&str, &mut dyn FnMut() -> Result)]) -> Result {
        let mut samples = vec![Vec::new(); subjects.len()];
        let warm_up = (self.n / 10).clamp(3, 50);
        for turn in 0..warm_up + self.n {
            for ((name, work), samples) in subjects.iter_mut().zip(&mut samples) {
                let start = Instant::now();
                work().map_err(|e| format!("{case}, {name}: {e}"))?;
                if turn >= warm_up {
                    samples.push(start.elapsed().as_secs_f64() * 1e6);
                }
            }
        }
        for ((name, _), samples) in subjects.iter().zip(&samples) {
            print(case, name, "us", samples);
        }
        Ok(())
    }
}

fn plain_ladder(program: &str) -> Result<Arc<FallbackChain>> {
    let options = Options {
        order: vec![Strategy::Plain],
        ..Options::default()
    };
    Ok(Arc::new(FallbackChain::open(
        Source::File(program.into()),
        options,
    )?))
}

fn well_ended(running: &RunningHelper) -> Result {
    well(Some(running.wait_exit()?))
}

fn well(exit: Option<process::Exit>) -> Result {
    match exit {
        Some(process::Exit::Code(0)) => Ok(()),
        other => Err(format!("ended with {other:?}").into()),
    }
}

fn print(case: &str, subject: &str, unit: &str, samples: &[f64]) {
    let samples: Vec<String> = samples.iter().map(|s| format!("{s:.3}")).collect();
    println!("{case}\t{subject}\t{unit}\t{}", samples.join(" "));
}

fn pss_kb(pid: i32) -> Result<f64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup"))?;
    let line = text
        .lines()
        .find_map(|l| l.strip_prefix("Pss:"))
        .ok_or("no Pss line")?;
    Ok(line.trim().trim_end_matches(" kB").parse()?)
}

/// A memory cgroup (version 1) that this process is in for a while; its children are born in it.
struct MemoryGroup {
    path: std::path::PathBuf,
}

const MEMORY: &str = "/sys/fs/cgroup/memory";

impl MemoryGroup {
    fn new() -> Option<MemoryGroup> {
        let path = Path::new(MEMORY).join(format!("fleetgate-bench-{}", std::process::id()));
        std::fs::create_dir(&path).ok()?;
        let group = MemoryGroup { path };
        std::fs::write(group.path.join("cgroup.procs"), "0").ok()?;
        Some(group)
    }
    fn usage(&self) -> Result<u64> {
        Ok(std::fs::read_to_string(self.path.join("memory.usage_in_bytes"))?
            .trim()
            .parse()?)
    }
}

impl Drop for MemoryGroup {
    fn drop(&mut self) {
        let _ = std::fs::write(Path::new(MEMORY).join("cgroup.procs"), "0");
        let _ = std::fs::remove_dir(&self.path);
    }
}

//! `cargo xtask bench seal-runc`: runc's ways of sealing itself beside ours, as runc's pull request 4448 compared them: the whole
//! command `runc run`, a command in a container by libcontainer, and one image made and executed. runc is built from its
//! source (`source.rs`). Needs root, and the module proxy of Go at the first run.
//!
//! The commands run in mounts and processes of their own, at the root of the hierarchy that counts memory, where there is one:
//! runc could not make its cgroups in another.

use super::source::{self, DMZ, DMZ_NONE, MEMFD, NONE, RELEASE, Source, place};
use crate::bench::containers::{bench_true, bundle};
use crate::bench::{Bench, rival};
use crate::shell::{Result, build_benches, run};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Whole commands of each subject.
const COMMANDS: usize = 300;
/// Rounds of libcontainer's benchmark.
const ROUNDS: usize = 40;
/// Rounds of programs that make images, and how many each makes in its round.
const IMAGE_ROUNDS: usize = 200;
const IMAGES: &str = "5";
/// Commands in a container of which libcontainer's benchmark gives the mean.
const IN_CONTAINER: &str = "-test.benchtime=30x";
/// How long one case may take, in seconds.
const WITHIN: &str = "1800";

const WHOLE: &str = "runc run, whole command";
const CONTAINER: &str = "true in a container, by libcontainer";
const IMAGE: &str = "image made, true executed from it";

/// The programs that are built from runc's source.
struct Programs {
    own: PathBuf,
    none: PathBuf,
    memfd: PathBuf,
    bound: PathBuf,
    bind: PathBuf,
    dmz: PathBuf,
    dmz_none: PathBuf,
    image: PathBuf,
    image_memfd: PathBuf,
}

/// The same benchmark of libcontainer's, in programs that seal themselves differently.
struct Tests {
    own: PathBuf,
    none: PathBuf,
    memfd: PathBuf,
    bound: PathBuf,
    dmz: PathBuf,
    dmz_none: PathBuf,
}

/// Measures.
pub fn measure(bench: &mut Bench) -> Result {
    build_benches(&["bench-turns", "bench-seal"])?;
    let bundle_place = place().join("bundle");
    bundle(&bundle_place, &bench_true()?, &["/bin/bench-true"])?;
    let (programs, tests) = built(&bundle_place)?;
    println!(
        "runc {}; with runc-dmz, {}; each built without build tags, by the same Go",
        RELEASE[0], DMZ[0]
    );
    whole(bench, &programs, &bundle_place)?;
    in_container(bench, &programs, &tests)?;
    images(bench, &programs)
}

/// Fetches and builds.
fn built(bundle: &Path) -> Result<(Programs, Tests)> {
    let release = Source::fetch(RELEASE)?;
    let with_dmz = Source::fetch(DMZ)?;
    with_dmz.embed_dmz()?;

    let archive = place().join("busybox.tar");
    run(Command::new("tar")
        .arg("-C")
        .arg(bundle.join("rootfs"))
        .arg("-cf")
        .arg(&archive)
        .arg("."))?;
    release.give_image(&archive)?;
    with_dmz.give_image(&archive)?;
    // The benchmark came after runc-dmz had gone. Its helpers then were for tests alone.
    const INTEGRATION: &str = "libcontainer/integration";
    let benchmark = format!("{INTEGRATION}/bench_test.go");
    with_dmz.add(&release.directory.join(&benchmark), &benchmark)?;
    for file in ["utils_test.go", "template_test.go"] {
        with_dmz.replace(&format!("{INTEGRATION}/{file}"), "t *testing.T", "t testing.TB")?;
    }
    release.add(&source::image(), "fleetgate-image/main.go")?;

    let copy = |from: &Path, name: &str| -> Result<PathBuf> {
        let to = place().join("bin").join(name);
        std::fs::copy(from, &to).map_err(|e| format!("{}: {e}", to.display()))?;
        Ok(to)
    };
    let own = release.program(".", None, "runc")?;
    let programs = Programs {
        bound: copy(&own, "runc-bound")?,
        own,
        none: release.program(".", Some(&NONE), "runc-none")?,
        memfd: release.program(".", Some(&MEMFD), "runc-memfd")?,
        bind: release.program("./contrib/cmd/memfd-bind", None, "memfd-bind")?,
        dmz: with_dmz.program(".", None, "runc-dmz")?,
        dmz_none: with_dmz.program(".", Some(&DMZ_NONE), "runc-dmz-none")?,
        image: release.program("./fleetgate-image", None, "image")?,
        image_memfd: release.program("./fleetgate-image", Some(&MEMFD), "image-memfd")?,
    };
    let package = format!("./{INTEGRATION}");
    let own = release.tests(&package, None, "exec")?;
    let tests = Tests {
        bound: copy(&own, "exec-bound")?,
        own,
        none: release.tests(&package, Some(&NONE), "exec-none")?,
        memfd: release.tests(&package, Some(&MEMFD), "exec-memfd")?,
        dmz: with_dmz.tests(&package, None, "exec-dmz")?,
        dmz_none: with_dmz.tests(&package, Some(&DMZ_NONE), "exec-dmz-none")?,
    };
    Ok((programs, tests))
}

/// The first table of the pull request.
fn whole(bench: &mut Bench, programs: &Programs, bundle: &Path) -> Result {
    let fleetgate = bench.built.fleetgate.display().to_string();
    let sealed = |strategy: &str| format!("{fleetgate}\tseal\trun\t--strategy\t{strategy}\t--\t");
    let debian = rival("runc", "runc")?;
    let mut plan = Plan::default();
    plan.bind(&programs.bind, &programs.bound);
    // What runc's debug log says of its executable, where it says anything.
    const OVERLAY: &str = "using overlayfs for sealed";
    const COPY: &str = "using /proc/self/exe clone";
    const NOTHING: &str = "skipping binary cloning";
    for (name, before, program, says) in [
        ("none", "", &programs.none, NOTHING),
        ("overlay, runc's own", "", &programs.own, OVERLAY),
        (
            "overlay, ours",
            sealed("overlay").as_str(),
            &programs.none,
            NOTHING,
        ),
        ("memfd, runc's own", "", &programs.memfd, COPY),
        // As it is: it knows the seals.
        ("memfd, ours", &sealed("memfd"), &programs.own, NOTHING),
        ("memfd-bind", "", &programs.bound, NOTHING),
        (
            "seal run --strategy none",
            &sealed("none"),
            &programs.none,
            NOTHING,
        ),
        (
            "dmz (1.2.0-rc.3)",
            "RUNC_DMZ=true\t",
            &programs.dmz,
            "using runc-dmz",
        ),
        ("none (1.2.0-rc.3)", "", &programs.dmz_none, NOTHING),
        ("Debian's runc as it is", "", &debian, ""),
    ] {
        let id = name.replace(|c: char| !c.is_ascii_alphanumeric(), "-");
        let command = |flag: &str| {
            let (program, state) = (program.display(), state());
            let bundle = bundle.display();
            format!(
                "{before}{program}{flag}\t--root\t{}\trun\t--bundle\t{bundle}\tfg-bench-{id}",
                state.display()
            )
        };
        plan.check(name, says, &command("\t--debug"));
        plan.turn(name, &command(""));
    }
    plan.measure(bench, "whole", 10, bench.times(COMMANDS), WHOLE, "ms")
}

/// The second table of the pull request: libcontainer's `BenchmarkExecTrue`.
fn in_container(bench: &mut Bench, programs: &Programs, tests: &Tests) -> Result {
    let mut plan = Plan::default();
    plan.bind(&programs.bind, &tests.bound);
    for (name, before, program) in [
        ("none", "", &tests.none),
        ("overlay, runc's own", "", &tests.own),
        ("memfd, runc's own", "", &tests.memfd),
        ("memfd-bind", "", &tests.bound),
        ("dmz (1.2.0-rc.3)", "RUNC_DMZ=true\t", &tests.dmz),
        ("none (1.2.0-rc.3)", "", &tests.dmz_none),
    ] {
        let words = "-test.run=^$\t-test.bench=^BenchmarkExecTrue$";
        plan.turn(
            name,
            &format!("{before}{}\t{words}\t{IN_CONTAINER}", program.display()),
        );
    }
    plan.measure(bench, "printed", 1, bench.times(ROUNDS), CONTAINER, "us")
}

/// The same without a container: what an image costs, by runc's code in Go and by ours. All seal one program, Go's.
fn images(bench: &mut Bench, programs: &Programs) -> Result {
    let mut plan = Plan::default();
    let (image, memfd) = (programs.image.display(), programs.image_memfd.display());
    let ours = bench.programs.join("bench-seal");
    let ours = |subject: &str| format!("{}\t--rounds\t{subject}\t{image}\t{IMAGES}", ours.display());
    for (name, command) in [
        ("none, by runc's code", format!("{image}\tnone\t{IMAGES}")),
        ("overlay, runc's", format!("{image}\tsealed\t{IMAGES}")),
        ("memfd, runc's", format!("{memfd}\tsealed\t{IMAGES}")),
        ("none, by our code", ours("none")),
        ("overlay, ours", ours("overlay")),
        ("memfd, ours", ours("memfd")),
        ("memfd kept for all, ours", ours("kept")),
    ] {
        plan.turn(name, &command);
    }
    plan.measure(bench, "printed", 1, bench.times(IMAGE_ROUNDS), IMAGE, "us")
}

/// Where runc keeps its containers. It is also the second layer of its overlay, so the program may not lie above it.
fn state() -> PathBuf {
    place().join("state")
}

/// What `bench-turns` reads.
#[derive(Default)]
struct Plan(String);

impl Plan {
    fn bind(&mut self, bind: &Path, program: &Path) {
        self.0 += &format!("beside\tcreated\t{}\t{}\n", bind.display(), program.display());
    }

    fn check(&mut self, name: &str, says: &str, command: &str) {
        self.0 += &format!("check\t{name}\t{says}\t{command}\n");
    }

    fn turn(&mut self, name: &str, command: &str) {
        self.0 += &format!("turn\t{name}\t{command}\n");
    }

    /// Runs it, and records what was measured.
    fn measure(
        self,
        bench: &mut Bench,
        kind: &str,
        warm_up: usize,
        n: usize,
        case: &str,
        unit: &'static str,
    ) -> Result {
        const APART: &str = "set -e
            memory=/sys/fs/cgroup/memory/cgroup.procs
            [ ! -e $memory ] || echo 0 > $memory
            mount -t tmpfs none \"$1\"
            shift
            exec \"$@\"";
        std::fs::create_dir_all(state()).map_err(|e| format!("{}: {e}", state().display()))?;
        let mut turns = Command::new("timeout");
        turns.args([
            "--kill-after=10",
            WITHIN,
            "unshare",
            "--mount",
            "--propagation",
            "private",
            "--pid",
            "--fork",
        ]);
        turns
            .args(["--mount-proc", "--kill-child", "sh", "-c", APART, "apart"])
            .arg(state());
        turns
            .arg(bench.programs.join("bench-turns"))
            .args([kind, &warm_up.to_string(), &n.to_string()]);
        let failed = |e: std::io::Error| format!("bench-turns: {e}");
        let mut turns = turns
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(failed)?;
        let mut input = turns.stdin.take().ok_or("its standard input is a pipe")?;
        input.write_all(self.0.as_bytes()).map_err(failed)?;
        drop(input);
        let out = turns.wait_with_output().map_err(failed)?;
        if !out.status.success() {
            return Err(format!(
                "{case}: {}; this takes root, and {WITHIN} s at most",
                out.status
            ));
        }
        for line in String::from_utf8_lossy(&out.stdout).lines() {
            let (name, samples) = line
                .split_once('\t')
                .ok_or_else(|| format!("bench-turns printed {line:?}"))?;
            let samples: Option<Vec<f64>> = samples.split(' ').map(|s| s.parse().ok()).collect();
            let samples = samples.ok_or_else(|| format!("bench-turns printed {line:?}"))?;
            bench.record(case, name, unit, samples);
        }
        Ok(())
    }
}

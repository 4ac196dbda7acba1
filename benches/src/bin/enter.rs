//! Measures a session in a container beside one on the machine, in a process that does nothing else: as a node launches
//! them, until they are reaped. Prints a line per row: case, subject, unit, samples.
//!
//! `bench-enter HELPER ENTER ROOT NAME TRUE N`: TRUE is a static program, and lies in the container as /bin/bench-true.
#![forbid(unsafe_code)]

use fleetgate_containers::{Overrides, SearchPaths, find, open};
use fleetgate_launch::{Launch, Launcher, RunningHelper};
use fleetgate_seal::{FallbackChain, Options, Source};
use fleetgate_sys::Fd;
use fleetgate_sys::process::Exit;
use fleetgate_wire::common::{Account, Ids};
use fleetgate_wire::exec::{Exec, Program};
use fleetgate_wire::order::{Role, Work};
use std::error::Error;
use std::ffi::CString;
use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

type Result<T = ()> = std::result::Result<T, Box<dyn Error>>;

/// Nobody: whom sessions are for.
const USER: u32 = 65534;

fn main() -> Result {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [helper, enter, root, name, truth, n] = &args[..] else {
        return Err("bench-enter HELPER ENTER ROOT NAME TRUE N".into());
    };
    let roots = SearchPaths {
        runtimes: vec![PathBuf::from(root)],
        ..SearchPaths::none()
    };
    let null: Fd = File::options().read(true).write(true).open("/dev/null")?.into();
    let mut here = Launcher::new(chain(helper, c"fleetgate-session", false)?)?;
    let mut inside = Launcher::new(chain(enter, c"fleetgate-enter", true)?)?;
    // Found once, where a node and a command line look for it each time: what the search costs.
    let found = find(&roots, name)?;
    let mut session = || well_ended(&here.launch(order(truth, &null)?)?.0);
    let mut container = || {
        let found = find(&roots, name)?;
        enter_once(&mut inside, &found, &null)
    };
    let mut again = Launcher::new(chain(enter, c"fleetgate-enter", true)?)?;
    let mut known = || enter_once(&mut again, &found, &null);
    let mut subjects: [(&str, &mut dyn FnMut() -> Result); 3] = [
        ("a session of the machine", &mut session),
        ("a session in a container", &mut container),
        ("the same, without the search", &mut known),
    ];
    let n: usize = n.parse()?;
    let mut samples = vec![Vec::with_capacity(n); subjects.len()];
    for round in 0..n + 20 {
        for ((_, work), samples) in subjects.iter_mut().zip(&mut samples) {
            let began = Instant::now();
            work()?;
            if round >= 20 {
                samples.push(began.elapsed().as_secs_f64() * 1e6);
            }
        }
    }
    for ((name, _), samples) in subjects.iter().zip(samples) {
        let text: Vec<String> = samples.iter().map(|s| format!("{s:.3}")).collect();
        println!("launch, until reaped\t{name}\tus\t{}", text.join(" "));
    }
    Ok(())
}

fn enter_once(launcher: &mut Launcher, found: &fleetgate_containers::ContainerRecord, null: &Fd) -> Result {
    let opened = open(found, &Overrides::default())?;
    let launch =
        order("/bin/bench-true", null)?.entering(opened.container, opened.first, opened.root, opened.cgroup);
    well_ended(&launcher.launch(launch)?.0)
}

fn chain(program: &str, name: &std::ffi::CStr, container: bool) -> Result<Arc<FallbackChain>> {
    let options = Options {
        name: Some(name.into()),
        container,
        ..Options::default()
    };
    Ok(Arc::new(FallbackChain::open(
        Source::File(program.into()),
        options,
    )?))
}

fn order(program: &str, null: &Fd) -> Result<Launch> {
    let account = Account {
        name: c"nobody".into(),
        ids: Ids {
            uid: USER,
            gid: USER,
            groups: vec![USER],
        },
        home: c"/".into(),
        shell: c"/bin/sh".into(),
        ageing: None,
    };
    let argv = vec![CString::new(program)?];
    let work = Work::Exec(Exec::new([7; 16], account, Program::Direct { argv }));
    let roles = [Role::Stdin, Role::Stdout, Role::Stderr];
    let fds = roles.map(|role| null.duplicate(3).map(|fd| (role, fd)));
    Ok(Launch::new(
        work,
        fds.into_iter().collect::<std::result::Result<_, _>>()?,
    ))
}

fn well_ended(running: &RunningHelper) -> Result {
    match running.wait_exit()? {
        Exit::Code(0) => Ok(()),
        other => Err(format!("it ended with {other:?}").into()),
    }
}

//! Launches through the real chain, for the tests of `launch`: a fallback chain of the helper under test, a session with
//! pipes, a thread that security software watches.

use crate::orders::{self, pipe, read_all};
use fleetgate_launch::{Begun, Launch, LaunchError, Launcher, RunningHelper};
use fleetgate_seal::{FallbackChain, Options, Source, Strategy};
use fleetgate_sys::Fd;
use fleetgate_sys::process::{self, Exit};
use fleetgate_wire::exec::Exec;
use fleetgate_wire::order::{Role, Work};
use std::sync::Arc;
use std::time::Duration;

/// A fallback chain of the helper under test, with every rung.
pub fn chain() -> Arc<FallbackChain> {
    chain_of(&Strategy::ALL)
}

/// The same with these rungs. Its image stands at a number that a launch has no other use for, so that a rule on
/// execveat can name it.
pub fn chain_of(order: &[Strategy]) -> Arc<FallbackChain> {
    const LOW: i32 = 8;
    let _low: Vec<std::fs::File> = (0..LOW)
        .map(|_| std::fs::File::open("/dev/null").expect("/dev/null"))
        .collect();
    let options = Options {
        order: order.to_vec(),
        // No test waits for the fallback chain to climb by itself.
        climb_after: Duration::from_secs(3600),
        ..Options::default()
    };
    // Another test's thread may give a low number back meanwhile: what got it keeps it until one did not.
    let mut at_low_numbers = Vec::new();
    loop {
        let chain = FallbackChain::open(Source::File(crate::helper()), options.clone()).expect("a chain");
        match chain.image() {
            Ok(image) if image.fd().raw() < LOW => at_low_numbers.push(chain),
            _ => return Arc::new(chain),
        }
    }
}

/// A session that was asked for, and what it will print.
pub struct Asked {
    /// The request.
    pub launch: Launch,
    /// The reading end of its output.
    pub output: Fd,
}

/// `order` with three pipes, nothing on standard input.
pub fn ask(order: Exec) -> Asked {
    let (stdin, feed) = pipe();
    let (output, stdout) = pipe();
    drop(feed);
    let stderr = stdout.duplicate(3).expect("dup");
    let fds = vec![
        (Role::Stdin, stdin),
        (Role::Stdout, stdout),
        (Role::Stderr, stderr),
    ];
    Asked {
        launch: Launch::new(Work::Exec(order), fds),
        output,
    }
}

/// A session of the ordinary user that prints `line`.
pub fn echo(line: &str) -> Asked {
    ask(orders::command(orders::user(), &format!("echo {line}")))
}

/// Launches an [`echo`] and makes sure that it really ran, to its end.
pub fn session(launcher: &mut Launcher) -> Result<RunningHelper, LaunchError> {
    let asked = echo("here I am");
    let (running, begun) = launcher.launch(asked.launch)?;
    assert!(matches!(begun, Begun::Executed { .. }), "{begun:?}");
    assert_eq!(read_all(asked.output), "here I am\n");
    assert_eq!(running.wait_exit(), Ok(Exit::Code(0)));
    Ok(running)
}

/// Whether a call waits on `listener`; `over` is looked at now and then, and ends the wait with false.
pub fn asked(listener: &Fd, over: &std::sync::atomic::AtomicBool) -> bool {
    use fleetgate_sys::poll::{READ, Watch, poll};
    while !over.load(std::sync::atomic::Ordering::SeqCst) {
        if poll(&mut [Watch::new(listener.raw(), READ)], Some(50)).expect("poll") == 1 {
            return true;
        }
    }
    false
}

/// Runs `body` on a thread of its own: what it is confined to binds nobody else.
pub fn apart<T: Send>(body: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| match scope.spawn(body).join() {
        Ok(done) => done,
        Err(panic) => std::panic::resume_unwind(panic),
    })
}

/// Whether the process runs from memory.
pub fn runs_from_memory(pid: i32) -> bool {
    std::fs::read_link(format!("/proc/{pid}/exe"))
        .is_ok_and(|exe| exe.to_string_lossy().starts_with("/memfd:"))
}

/// The children of this process's threads of this name (at most 15 bytes, and no other test's).
pub fn children_of_thread(name: &str) -> Vec<i32> {
    let Ok(tasks) = std::fs::read_dir("/proc/self/task") else {
        return Vec::new();
    };
    let watched = tasks
        .flatten()
        .map(|task| task.path())
        .filter(|task| std::fs::read_to_string(task.join("comm")).is_ok_and(|comm| comm.trim() == name));
    let lists = watched.filter_map(|task| std::fs::read_to_string(task.join("children")).ok());
    lists
        .flat_map(|list| {
            list.split_whitespace()
                .filter_map(|pid| pid.parse().ok())
                .collect::<Vec<_>>()
        })
        .collect()
}

/// Stops whom it suspects, looks again, and kills who still runs from memory: so it never hits a user's program.
pub fn stop_and_kill(pid: i32) {
    const STOP: i32 = 19;
    const CONTINUE: i32 = 18;
    let Ok(pidfd) = process::pidfd_open(pid) else {
        return;
    };
    if process::signal(&pidfd, STOP).is_err() {
        return;
    }
    // Stopped, gone, or a zombie: from then on it executes nothing more.
    while let Ok(stat) = std::fs::read_to_string(format!("/proc/{pid}/stat")) {
        if stat
            .rsplit(')')
            .next()
            .is_some_and(|rest| rest.starts_with(" T") || rest.starts_with(" Z") || rest.starts_with(" X"))
        {
            break;
        }
    }
    let signal = if runs_from_memory(pid) { 9 } else { CONTINUE };
    let _ = process::signal(&pidfd, signal);
}

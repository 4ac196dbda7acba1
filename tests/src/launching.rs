//! Launches through the real ladder, for the tests of `launch`: a ladder of the helper under test, a session with
//! pipes, a thread that security software watches.

use crate::orders::{self, pipe, read_all};
use fleetgate_launch::{Begun, Launch, LaunchError, Launcher, Running};
use fleetgate_seal::{Ladder, Options, Source, Strategy};
use fleetgate_sys::Fd;
use fleetgate_sys::process::Exit;
use fleetgate_wire::exec::Exec;
use fleetgate_wire::order::{Role, Work};
use std::sync::Arc;
use std::time::Duration;

/// A ladder of the helper under test, with every rung.
pub fn ladder() -> Arc<Ladder> {
    ladder_of(&Strategy::ALL)
}

/// The same with these rungs. Its image stands at a number that a launch has no other use for, so that a rule on
/// execveat can name it.
pub fn ladder_of(order: &[Strategy]) -> Arc<Ladder> {
    let _low: Vec<std::fs::File> = (0..8)
        .map(|_| std::fs::File::open("/dev/null").expect("/dev/null"))
        .collect();
    let options = Options {
        order: order.to_vec(),
        // No test waits for the ladder to climb by itself.
        climb_after: Duration::from_secs(3600),
        ..Options::default()
    };
    Arc::new(Ladder::open(Source::File(crate::helper()), options).expect("a ladder"))
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
pub fn session(launcher: &mut Launcher) -> Result<Running, LaunchError> {
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

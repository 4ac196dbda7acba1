//! A program that was started in a place.

use std::io::{self, Read};
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, ExitStatus, Output};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The place keeps it too: the first process of a process namespace cannot end before all others in it were reaped, also
/// those whose parent is outside.
pub(crate) type Shared = Arc<Mutex<Child>>;

/// A program that runs in a place. It goes on when this is dropped, and ends with the lab.
#[derive(Debug)]
pub struct Process {
    child: Shared,
    /// As in [`Child`].
    pub stdin: Option<ChildStdin>,
    /// As in [`Child`].
    pub stdout: Option<ChildStdout>,
    /// As in [`Child`].
    pub stderr: Option<ChildStderr>,
}

impl Process {
    pub(crate) fn new(mut child: Child) -> Process {
        Process {
            stdin: child.stdin.take(),
            stdout: child.stdout.take(),
            stderr: child.stderr.take(),
            child: Arc::new(Mutex::new(child)),
        }
    }

    pub(crate) fn share(&self) -> Shared {
        self.child.clone()
    }

    /// Its number, for the machine.
    pub fn id(&self) -> u32 {
        hold(&self.child).id()
    }

    /// Waits for its end, with its input closed.
    pub fn wait(&mut self) -> io::Result<ExitStatus> {
        drop(self.stdin.take());
        hold(&self.child).wait()
    }

    /// Whether it has ended.
    pub fn has_ended(&self) -> io::Result<Option<ExitStatus>> {
        hold(&self.child).try_wait()
    }

    /// Ends it.
    pub fn kill(&self) -> io::Result<()> {
        hold(&self.child).kill()
    }

    /// Waits for its end; what it wrote, as far as that was piped.
    pub fn output(mut self) -> io::Result<Output> {
        drop(self.stdin.take());
        let (out, error) = (self.stdout.take(), self.stderr.take());
        let (stdout, stderr) = std::thread::scope(|scope| {
            let error = scope.spawn(|| all(error));
            (all(out), error.join().expect("it does not panic"))
        });
        Ok(Output {
            status: self.wait()?,
            stdout: stdout?,
            stderr: stderr?,
        })
    }
}

/// Waits for the end of one whose place is being ended.
pub(crate) fn reap(child: &Shared) {
    let _ = hold(child).wait();
}

/// Whether nobody can ask for it any more, and it has ended.
pub(crate) fn is_over(child: &Shared) -> bool {
    Arc::strong_count(child) == 1 && !matches!(hold(child).try_wait(), Ok(None))
}

fn hold(child: &Shared) -> MutexGuard<'_, Child> {
    child.lock().unwrap_or_else(PoisonError::into_inner)
}

fn all(from: Option<impl Read>) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    if let Some(mut from) = from {
        from.read_to_end(&mut bytes)?;
    }
    Ok(bytes)
}

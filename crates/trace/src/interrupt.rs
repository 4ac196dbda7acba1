//! Signals that are meant for the tracer. A thread of its own takes them, because what a tracer waits for has no descriptor;
//! they are blocked in every other, so none of them ends the tracer while it has a task stopped.

use crate::TraceError;
use fleetgate_sys::{Fd, process, signals};
use std::io::Write;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// What the tracer takes care of.
const TAKEN: [i32; 4] = [signals::INT, signals::TERM, signals::HUP, libc::SIGQUIT];
/// A wait may just not have begun when it is to be ended: it is tried again.
const AGAIN: Duration = Duration::from_millis(10);

/// What is done about them.
pub enum Does {
    /// The program that was started here has what a terminal sends itself; a request to end is passed on to it, and the
    /// tracer sees to the end how it takes it.
    PassesOn(i32),
    /// What was attached to is left.
    Leaves,
}

/// The thread that takes them.
pub struct Interrupt {
    leave: Arc<AtomicBool>,
    done: Arc<AtomicBool>,
    wake: std::io::PipeReader,
}

impl Interrupt {
    /// Begins. Processes are to be started before, as they would have these signals blocked.
    ///
    /// # Errors
    /// No thread, or nothing that signals can be read from.
    pub fn begin(does: Does) -> Result<Interrupt, TraceError> {
        let refused = |e: &dyn std::fmt::Display| format!("cannot take signals: {e}");
        let taken = signals::descriptor(&TAKEN).map_err(|e| refused(&e))?;
        signals::wakes(signals::URG).map_err(|e| refused(&e))?;
        let (wake, mut waker) = std::io::pipe().map_err(|e| refused(&e))?;
        let (leave, done) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let (tell, heard) = (Arc::clone(&leave), Arc::clone(&done));
        let tracer = signals::thread();
        let pidfd = match does {
            Does::PassesOn(pid) => Some(process::pidfd_open(pid).map_err(|e| refused(&e))?),
            Does::Leaves => None,
        };
        let thread = std::thread::Builder::new().name("fleetgate-signals".to_owned());
        let started = thread.spawn(move || {
            while let Some(signal) = wait(&taken) {
                match &pidfd {
                    // The terminal has sent it to the program itself.
                    Some(_) if signal == signals::INT || signal == libc::SIGQUIT => {}
                    Some(program) => {
                        let _ = process::signal(program, signal);
                    }
                    None => {
                        tell.store(true, Ordering::SeqCst);
                        let _ = waker.write_all(b"!");
                        while !heard.load(Ordering::SeqCst) {
                            let _ = signals::wake(tracer, signals::URG);
                            std::thread::sleep(AGAIN);
                        }
                        return;
                    }
                }
            }
        });
        started.map_err(|e| refused(&e))?;
        Ok(Interrupt { leave, done, wake })
    }

    /// Whether to leave.
    #[must_use]
    pub fn is_told_to_leave(&self) -> bool {
        let leave = self.leave.load(Ordering::SeqCst);
        if leave {
            self.done.store(true, Ordering::SeqCst);
        }
        leave
    }

    /// Readable once it is told to leave: for waits that a descriptor ends.
    ///
    /// # Errors
    /// There are no more descriptors to be had.
    pub fn descriptor(&self) -> std::io::Result<Fd> {
        let ours = self.wake.as_fd().try_clone_to_owned()?;
        Ok(ours.into())
    }
}

impl Drop for Interrupt {
    fn drop(&mut self) {
        self.done.store(true, Ordering::SeqCst);
    }
}

fn wait(taken: &Fd) -> Option<i32> {
    use fleetgate_sys::poll::{READ, Watch, poll};
    loop {
        match signals::next(taken) {
            Ok(Some(signal)) => return Some(signal),
            Ok(None) => {
                poll(&mut [Watch::new(taken.raw(), READ)], None).ok()?;
            }
            Err(_) => return None,
        }
    }
}

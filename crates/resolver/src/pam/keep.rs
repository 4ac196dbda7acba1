//! An open PAM session: helpers are started in it and waited for, until the last has ended. Each launching side has a link of
//! its own; the first opened the session, others came by its door.

use super::conversation::Link;
use fleetgate_sys::glibc::fork;
use fleetgate_sys::poll::{self, READ, Watch};
use fleetgate_sys::process::{self, Exit};
use fleetgate_sys::spawn::{self, Program, Spawn, Stack, Strings};
use fleetgate_sys::{Errno, Fd};
use fleetgate_wire::pam::{FromPam, HOLD_MS, NOT_A_LAUNCH, ToPam};
use std::ffi::CStr;
use std::rc::Rc;

/// The most helpers of one side at once.
const MAX_HELPERS: usize = 64;
/// The most sides of one session at once.
const MAX_SIDES: usize = 16;

/// A helper that runs.
struct Helper {
    pid: i32,
    pidfd: Fd,
}

/// One launching side, and its helpers.
struct Side {
    link: Rc<Link>,
    helpers: Vec<Helper>,
    /// A helper was started.
    started: bool,
    /// Another try may come.
    held: bool,
    /// It wants no helper.
    closed: bool,
}

/// Waits until the helpers of all sides have ended and no other try is coming, or until there is none and nobody to order one.
/// The side that was the last.
pub fn keep(first: &Rc<Link>, door: Option<Fd>, opened: &FromPam) -> Rc<Link> {
    let mut door = door.and_then(|socket| first.beside(socket).ok());
    let mut sides = vec![Side::new(Rc::clone(first))];
    loop {
        while let Some(at) = sides.iter().position(Side::is_over) {
            let side = sides.remove(at);
            // The last hears of the end when the session is closed.
            if sides.is_empty() {
                return side.link;
            }
            side.link.leave(&FromPam::Ended {
                close_errors: Vec::new(),
            });
        }
        let door_fd = door.as_ref().and_then(|door| door.raw());
        let mut watches = vec![Watch::new(door_fd.unwrap_or(-1), READ)];
        watches.extend(
            sides
                .iter()
                .map(|side| Watch::new(side.link.raw().unwrap_or(-1), READ)),
        );
        let helpers = sides.iter().flat_map(|side| &side.helpers);
        watches.extend(helpers.map(|helper| Watch::new(helper.pidfd.raw(), READ)));
        let patience = sides.iter().any(Side::awaits_try).then_some(HOLD_MS);
        match poll::poll(&mut watches, patience) {
            Ok(0) => sides.iter_mut().for_each(|side| side.held &= !side.awaits_try()),
            Ok(_) => {}
            Err(_) => return sides.remove(0).link,
        }
        let has_word: Vec<bool> = watches.iter().map(|watch| watch.happened() != 0).collect();
        for (side, has_word) in sides.iter_mut().zip(&has_word[1..]) {
            side.reap();
            if *has_word {
                side.hear();
            }
        }
        if has_word[0] {
            match door.as_ref().map(|door| door.hear(true)) {
                // One that is turned away sees its socket close.
                Some(Ok((ToPam::Join, mut fds))) if sides.len() < MAX_SIDES => {
                    if let Some(link) = fds.pop().and_then(|socket| first.beside(socket).ok()) {
                        link.say(opened, &[]);
                        sides.push(Side::new(link));
                    }
                }
                Some(Ok(_)) => {}
                // Nobody is left who may come in.
                _ => door = None,
            }
        }
    }
}

impl Side {
    fn new(link: Rc<Link>) -> Side {
        Side {
            link,
            helpers: Vec::new(),
            started: false,
            held: false,
            closed: false,
        }
    }

    fn is_over(&self) -> bool {
        self.helpers.is_empty() && (self.closed || self.link.is_gone() || (self.started && !self.held))
    }

    fn awaits_try(&self) -> bool {
        self.helpers.is_empty() && self.held
    }

    fn reap(&mut self) {
        let link = &self.link;
        self.helpers
            .retain(|helper| match process::wait(&helper.pidfd, false) {
                Ok(None) => true,
                Ok(Some(exit)) => {
                    link.say(&exited(helper.pid, exit), &[]);
                    false
                }
                Err(_) => false,
            });
    }

    fn hear(&mut self) {
        match self.link.hear(true) {
            Ok((
                ToPam::Launch {
                    subcommand,
                    cgroup,
                    hold,
                },
                fds,
            )) if self.helpers.len() < MAX_HELPERS => match launch(&subcommand, cgroup, &fds) {
                Ok(helper) => {
                    let pid = helper.pid;
                    self.link.say(&FromPam::Started { pid }, &[helper.pidfd.raw()]);
                    self.helpers.push(helper);
                    (self.started, self.held) = (true, hold);
                    drop(fds);
                    fork::trim_memory();
                }
                Err((step, errno)) => {
                    let errno = errno.0;
                    self.link.say(&FromPam::NotStarted { step, errno }, &[]);
                }
            },
            Ok((ToPam::Launch { .. }, _)) => {
                let (step, errno) = (NOT_A_LAUNCH, Errno::EAGAIN.0);
                self.link.say(&FromPam::NotStarted { step, errno }, &[]);
            }
            Ok((ToPam::Close, _)) => self.closed |= self.helpers.is_empty(),
            Ok((ToPam::Settled, _)) => self.held = false,
            // Anything else has no meaning here; a peer that is gone is seen above.
            _ => {}
        }
    }
}

fn exited(pid: i32, exit: Exit) -> FromPam {
    match exit {
        Exit::Code(status) => FromPam::Exited {
            pid,
            signalled: false,
            status,
            core: false,
        },
        Exit::Signal { number, core } => FromPam::Exited {
            pid,
            signalled: true,
            status: number,
            core,
        },
    }
}

/// Starts a helper as this process's child, so that it inherits what the modules have set: limits, namespaces,
/// keyrings, audit's login uid, cgroup.
fn launch(subcommand: &CStr, cgroup: bool, fds: &[Fd]) -> Result<Helper, (u32, Errno)> {
    let (image, control, null, cgroup) = match (fds, cgroup) {
        ([image, control, null], false) => (image, control, null, None),
        ([image, control, null, cgroup], true) => (image, control, null, Some(cgroup)),
        _ => return Err((NOT_A_LAUNCH, Errno::EINVAL)),
    };
    let argv = Strings::new([c"fleetgate-session", subcommand, c"--order"]);
    let envp = Strings::new([]);
    let what = Spawn {
        program: Program::Fd(image),
        argv: &argv,
        envp: &envp,
        fds: &[null.raw(), null.raw(), null.raw(), control.raw()],
        cgroup,
    };
    let mut stack = Stack::new().map_err(|e| (spawn::Step::Stack as u32, e))?;
    match spawn::spawn(&what, &mut stack) {
        Ok(child) => Ok(Helper {
            pid: child.pid,
            pidfd: child.pidfd,
        }),
        Err(e) => Err((e.step as u32, e.errno)),
    }
}

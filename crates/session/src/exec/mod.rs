//! Becoming the user's shell or command: the whole of `exec`, in the order in which it happens.
//!
//! Until [`Reply::Ready`] this is root and does what needs root; then it becomes the user, and everything of the
//! user's (home directory, `.hushlogin`, `~/.ssh/environment`) is touched as the user. It never looks up a name,
//! never starts another process, and never returns to being root.
//!
//! System calls of a command without terminal and records, from the order's arrival to execve: 21 (`the_fast_path_is_short`
//! holds it). recvmsg, geteuid, dup3 three times, setsid, sendmsg (Ready), ten that drop the privileges and make
//! sure of it, chdir, rt_sigaction, rt_sigprocmask, sendmsg (Leaving). Before them, not counted: close_range, fcntl, and a recvfrom that waits
//! for the order.

mod account;
pub mod environment;
mod localtime;
pub mod messages;
mod paths;
pub mod process_settings;
pub mod program;
mod records;
pub mod streams;
pub mod timings;
pub mod watch;

use crate::order::{Control, OrderDescriptors, failure};
use crate::privileges;
use fleetgate_sys::{Errno, close_range, exec, file};
use fleetgate_wire::exec::{Exec, Program};
use fleetgate_wire::order::Work;
use fleetgate_wire::{Failure, Reason, Reply};
use timings::StepTimer;

/// The exit code when the order or its descriptors were refused.
pub const REFUSED: i32 = 70;
/// sshd's exit code when /etc/nologin keeps somebody out.
const NO_LOGIN: i32 = 254;
/// sshd's exit code when the shell could not be executed, and when a password has to be changed first.
const NO_SHELL: i32 = 1;

/// Why this process ends without having become the program.
pub struct Stop {
    /// What the launching side is told.
    pub failure: Failure,
    /// The exit code.
    pub code: i32,
}

impl From<Failure> for Stop {
    fn from(failure: Failure) -> Stop {
        Stop {
            failure,
            code: REFUSED,
        }
    }
}

/// A step that the kernel refused.
pub fn refused(step: &'static str) -> impl Fn(Errno) -> Stop {
    move |errno| failure(reason(errno), errno, step).into()
}

/// The kind of refusal that an error number stands for.
fn reason(errno: Errno) -> Reason {
    match errno {
        Errno::ENOMEM => Reason::NoMemory,
        Errno::EPERM | Errno::EACCES => Reason::Denied,
        Errno::ENOENT => Reason::Missing,
        Errno::E2BIG => Reason::TooLarge,
        _ => Reason::System,
    }
}

/// Serves one order on the control socket.
pub fn run() -> i32 {
    // Whoever started this may have leaked descriptors; from here on all that is opened closes on exec.
    let _ = close_range(4, u32::MAX);
    let control = match Control::inherited() {
        Ok(control) => control,
        Err(_) => {
            let text =
                b"fleetgate-session exec: no order waits on descriptor 3; fleetgate starts this program\n";
            let _ = file::write_all(2, text);
            return REFUSED;
        }
    };
    let stop = match control.receive() {
        // The refusal has been told.
        Err(_) => return REFUSED,
        Ok((Work::Exec(order), given)) => become_program(&control, &order, given),
        Ok(_) => failure(
            Reason::BadOrder,
            Errno(0),
            "an order of another kind came to exec",
        )
        .into(),
    };
    control.fail(stop.failure);
    stop.code
}

/// Returns only with the reason why not.
fn become_program(control: &Control, order: &Exec, given: OrderDescriptors) -> Stop {
    let Err(stop) = run_steps(control, order, given);
    stop
}

fn run_steps(
    control: &Control,
    order: &Exec,
    mut given: OrderDescriptors,
) -> Result<core::convert::Infallible, Stop> {
    let mut timer = StepTimer::new(order.timings);
    let root = fleetgate_sys::process::effective_uid() == 0;

    // As root.
    let watched = watch::asked(order.watch.as_ref(), &mut given)?;
    let terminal = streams::place(order, given)?;
    timer.done(c"descriptors");
    let verdict = account::check(order)?;
    timer.done(c"checks");
    streams::lead_session(order, terminal.as_ref(), root)?;
    timer.done(c"terminal");
    if order.resources.loginuid {
        process_settings::set_login_uid(order.account.ids.uid)?;
        timer.done(c"loginuid");
    }
    let records = records::write(order);
    if order.login.is_some() {
        timer.done(c"records");
    }
    process_settings::apply(&order.resources)?;
    timer.done(c"resources");
    // The last that needs root, and the first that it sees.
    let unwatched = watch::begin(watched)?;
    if order.watch.is_some() {
        timer.done(c"watch");
    }
    control.say(&Reply::Ready);
    timer.done(c"ready");

    // As the user.
    privileges::become_user(&order.account.ids).map_err(|r| refused(r.step)(r.errno))?;
    timer.done(c"privileges");
    if order.resources.keyring {
        process_settings::new_keyring()?;
        timer.done(c"keyring");
    }
    let environment = environment::build(order);
    timer.done(c"environment");
    // As sshd: only who gets an interactive shell is greeted, unless he does not want to be.
    if terminal.is_some() && matches!(order.program, Program::Shell) {
        messages::greet(order, records.last.as_ref());
        timer.done(c"messages");
    }
    enter_home(order);
    timer.done(c"home");
    let program = match verdict {
        account::Verdict::Allowed => program::of(order, &environment),
        account::Verdict::ChangePassword => program::change_password(),
    }?;
    exec::reset_signals();
    if let Some(context) = &order.selinux {
        process_settings::set_exec_context(context)?;
        timer.done(c"selinux");
    }
    control.say(&Reply::Leaving {
        timings: timer.into_timings(),
        unrecorded: records.failure,
        unwatched,
    });
    Err(program.execute(&environment))
}

/// Goes to the home directory, or to `/` with sshd's message. That it exists, is a directory and may be entered
/// is exactly what chdir finds out.
fn enter_home(order: &Exec) {
    let home = &order.account.home;
    let Err(e) = exec::change_directory(home) else {
        return;
    };
    let _ = exec::change_directory(c"/");
    messages::error(&[
        b"Could not chdir to home directory ",
        home.to_bytes(),
        b": ",
        e.text().as_bytes(),
        b"\n",
    ]);
}

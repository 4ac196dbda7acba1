//! Entering a container and becoming a program there: all of it, in the order in which it happens.

use crate::namespaces::Entrance;
use crate::privileges::{self, Then};
use crate::{host, program, user};
use alloc::ffi::CString;
use fleetgate_session::exec::{REFUSED, Stop, process_settings, refused, streams, timings::StepTimer, watch};
use fleetgate_session::order::{Control, OrderDescriptors, failure};
use fleetgate_session::{networking, sftp};
use fleetgate_sys::{Errno, Fd, clock, close_range, credentials, file, socket, terminal};
use fleetgate_wire::common::Account;
use fleetgate_wire::container::{Container, ContainerOrder, Window};
use fleetgate_wire::exec::Exec;
use fleetgate_wire::net::Networking;
use fleetgate_wire::order::{Role, Work};
use fleetgate_wire::sftp::Sftp;
use fleetgate_wire::{Reason, Reply};

/// Serves one order on the control socket.
pub fn run() -> i32 {
    // First of all: a process of the machine's root that nobody may look into.
    let closed = credentials::set_dumpable(false);
    let _ = close_range(4, u32::MAX);
    let control = match Control::inherited() {
        Ok(control) => control,
        Err(_) => {
            let text = b"fleetgate-enter: no order waits on descriptor 3; fleetgate starts this program\n";
            let _ = file::write_all(2, text);
            return REFUSED;
        }
    };
    let received =
        control.receive_as(|order: ContainerOrder| ((order.container, order.order.work), order.order.roles));
    let stop = match (received, closed) {
        // The refusal has been told.
        (Err(_), _) => return REFUSED,
        (_, Err(errno)) => failure(Reason::System, errno, "closing the process to tracing").into(),
        (Ok(((container, work), given)), Ok(())) => {
            let done = match work {
                Work::Exec(order) => become_program(&control, &container, order, given),
                Work::Sftp(order) => serve_files(&control, &container, order, given),
                Work::Networking(order) => match enter_to_serve(&container, given) {
                    Ok((account, given)) => return open_sockets(control, &container, order, account, given),
                    Err(stop) => Err(stop),
                },
                Work::CheckHome(_) => Err(failure(
                    Reason::BadOrder,
                    Errno(0),
                    "an order that no container is entered for",
                )
                .into()),
            };
            match done {
                Ok(code) => return code,
                Err(stop) => stop,
            }
        }
    };
    control.fail(stop.failure);
    stop.code
}

/// The exit code of a helper whose copy goes on, or the reason why there is no program. It does not return in the process
/// that becomes the program.
fn become_program(
    control: &Control,
    container: &Container,
    mut order: Exec,
    mut given: OrderDescriptors,
) -> Result<i32, Stop> {
    let mut timer = StepTimer::new(order.timings);
    let entrance = Entrance::take(container, &mut given)?;
    let console = given.take(Role::Console);
    let watched = watch::asked(order.watch.as_ref(), &mut given)?;
    if console.is_some() == order.terminal.is_none() {
        let text = "a terminal needs somebody who takes its other side, and nobody else does";
        return Err(failure(Reason::BadDescriptors, Errno(0), text).into());
    }

    // As the machine's root, with the machine's files.
    if order.resources.loginuid {
        process_settings::set_login_uid(order.account.ids.uid)?;
    }
    host::apply_limits(container)?;
    timer.done(c"host");
    control.say(&Reply::Ready);
    timer.done(c"ready");

    // In the container's namespaces, but for its processes', as its root.
    entrance.enter()?;
    timer.done(c"namespaces");
    let account = user::find(&container.user)?;
    timer.done(c"account");
    if let Some(console) = console {
        let (theirs, path) = open_terminal(&container.window, &console)?;
        given.add(Role::Terminal, theirs);
        order.terminal = Some(path);
        timer.done(c"terminal");
    }
    order.account = account;
    let terminal = streams::place(&order, given)?;
    if let Some(terminal) = &terminal {
        // By a devpts without a group for terminals it is the user's alone: /etc/group is anybody's here.
        streams::give_to(terminal, &order.account.ids, || None)
            .map_err(refused("giving the terminal to its user"))?;
    }
    let unwatched = watch::begin(watched)?;
    let environment = program::environment(container, &order);
    privileges::become_user(container, &order.account.ids, Then::Execute)?;
    process_settings::new_keyring()?;
    timer.done(c"privileges");

    // As the user, with the container's capabilities. What comes now is seen by its processes.
    program::start(
        control,
        container,
        &order,
        terminal.as_ref(),
        &environment,
        (timer, unwatched),
    )
}

/// Enters for a work that this process does itself, and no program: nobody inside sees it. As whom, and what else was given.
fn enter_to_serve(
    container: &Container,
    mut given: OrderDescriptors,
) -> Result<(Account, OrderDescriptors), Stop> {
    let entrance = Entrance::take(container, &mut given)?;
    host::apply_limits(container)?;
    entrance.enter()?;
    Ok((user::find(&container.user)?, given))
}

fn serve_files(
    control: &Control,
    container: &Container,
    order: Sftp,
    given: OrderDescriptors,
) -> Result<i32, Stop> {
    // The C library reads its time zone once: now, and not what the container has in that place.
    let _ = clock::local(0);
    let (account, given) = enter_to_serve(container, given)?;
    let order = Sftp {
        ids: account.ids,
        home: account.home,
        // Where a shell would be.
        start: order.start.or_else(|| container.directory.clone()),
        chroot: None,
        selinux: None,
        ..order
    };
    Ok(sftp::serve_order(control, order, given, &mut |order| {
        privileges::become_user(container, &order.ids, Then::Serve).map_err(|stop| stop.failure)
    })?)
}

fn open_sockets(
    control: Control,
    container: &Container,
    order: Networking,
    account: Account,
    given: OrderDescriptors,
) -> i32 {
    let order = Networking {
        ids: account.ids,
        selinux: None,
        ..order
    };
    networking::serve_order(control, &order, given, &mut |order| {
        privileges::become_user(container, &order.ids, Then::Serve).map_err(|stop| stop.failure)
    })
}

/// A terminal of the container's own, whose other side goes to `console`: the user's side, and its path.
fn open_terminal(window: &Window, console: &Fd) -> Result<(Fd, CString), Stop> {
    let (ours, theirs, path) =
        terminal::open_mounted().map_err(refused("opening a terminal of the container's /dev/pts"))?;
    let begin = |theirs: &Fd| {
        let pixels = (window.width, window.height);
        terminal::set_window(theirs, (window.columns, window.rows), pixels)?;
        if window.modes.is_empty() {
            return Ok(());
        }
        let modes = terminal::modes(theirs.raw())?;
        terminal::set_modes(theirs.raw(), &modes.with_encoded(&window.modes))
    };
    begin(&theirs).map_err(refused("setting the terminal's size and modes"))?;
    socket::send(console, b"t", &[ours.raw()]).map_err(refused("handing the terminal over"))?;
    Ok((theirs, path))
}

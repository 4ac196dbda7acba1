//! Standard descriptors, the session, and its terminal.

use super::{Stop, refused};
use crate::order::{OrderDescriptors, failure};
use alloc::vec::Vec;
use fleetgate_sys::{Errno, Fd, exe, exec, file};
use fleetgate_wire::Reason;
use fleetgate_wire::common::Ids;
use fleetgate_wire::exec::Exec;
use fleetgate_wire::order::Role;

/// devpts gives a terminal its group (`tty`) where it is mounted so; else the group stays the opener's: root's.
const NO_GROUP: u32 = 0;
/// The most of /etc/group that is read for the group's number.
const MAX_GROUPS: usize = 1 << 20;

/// Puts the order's descriptors at 0, 1 and 2, and returns the terminal if that is what they are. Anything but
/// one terminal or three streams is refused.
pub fn place(order: &Exec, mut given: OrderDescriptors) -> Result<Option<Fd>, Stop> {
    let terminal = given.take(Role::Terminal);
    let streams = [Role::Stdin, Role::Stdout, Role::Stderr].map(|role| given.take(role));
    let bad = |subject| failure(Reason::BadDescriptors, Errno(0), subject);
    if !given.is_empty() {
        return Err(bad("a descriptor that exec has no use for").into());
    }
    let step = "placing descriptors";
    match (terminal, streams, &order.terminal) {
        (Some(terminal), [None, None, None], Some(_)) => {
            let terminal = lifted(terminal).map_err(refused(step))?;
            for target in 0..=2 {
                terminal.place_at(target, false).map_err(refused(step))?;
            }
            Ok(Some(terminal))
        }
        (None, [Some(stdin), Some(stdout), Some(stderr)], None) => {
            let lifted: Vec<Fd> = [stdin, stdout, stderr]
                .into_iter()
                .map(lifted)
                .collect::<Result<_, _>>()
                .map_err(refused(step))?;
            for (target, fd) in (0..).zip(lifted) {
                fd.place_at(target, false).map_err(refused(step))?;
                // Closed by exec, like everything above the three: no call of its own for that.
                let _ = fd.into_raw();
            }
            Ok(None)
        }
        (_, _, Some(_)) => Err(bad("an order with a terminal's name needs a terminal and no streams").into()),
        (_, _, None) => Err(bad("an order without a terminal needs standard input, output and error").into()),
    }
}

/// The same descriptor above the three: whoever started this without them may have got one of those numbers.
fn lifted(fd: Fd) -> Result<Fd, Errno> {
    if fd.raw() > 2 { Ok(fd) } else { fd.duplicate(3) }
}

/// Makes a session of its own, and the terminal its controlling terminal and the user's.
pub fn lead_session(order: &Exec, terminal: Option<&Fd>, root: bool) -> Result<(), Stop> {
    exec::new_session().map_err(refused("making a session"))?;
    let Some(terminal) = terminal else { return Ok(()) };
    exec::take_terminal(terminal).map_err(|e| match e {
        Errno::ENOTTY => failure(Reason::BadDescriptors, e, "the terminal is no terminal").into(),
        e => refused("taking the terminal")(e),
    })?;
    if root {
        give_to(terminal, &order.account.ids, terminal_group)
            .map_err(refused("giving the terminal to its user"))?;
    }
    Ok(())
}

/// As sshd: the user's, group `tty` (by `tty_group`, where devpts does not say) with permission to write, 0620; without such a group his alone, 0600.
pub fn give_to(terminal: &Fd, ids: &Ids, tty_group: fn() -> Option<u32>) -> Result<(), Errno> {
    let status = exe::identity(terminal)?;
    let tty = match status.gid {
        NO_GROUP => tty_group(),
        group => Some(group),
    };
    let (gid, mode) = tty.map_or((ids.gid, 0o600), |group| (group, 0o620));
    if (status.uid, status.gid) != (ids.uid, gid) {
        exec::change_owner(terminal, ids.uid, gid)?;
    }
    if status.mode & 0o7777 != mode {
        exe::change_mode(terminal, mode)?;
    }
    Ok(())
}

/// The number of group `tty`, from the file alone: no name service knows it better.
fn terminal_group() -> Option<u32> {
    let fd = file::openat(file::CWD, c"/etc/group", file::flags::O_RDONLY, 0).ok()?;
    let text = file::read_to_end(&fd, MAX_GROUPS).ok()?;
    let line = text
        .split(|b| *b == b'\n')
        .find(|line| line.starts_with(b"tty:"))?;
    let number = line.split(|b| *b == b':').nth(2)?;
    core::str::from_utf8(number).ok()?.parse().ok()
}

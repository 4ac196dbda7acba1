//! Opening sockets as the user, in the namespaces that the session is in.
//!
//! One helper serves one login until told to stop: it connects, listens and accepts, and hands the descriptors
//! back ([`fleetgate_wire::net`] has the words). It is one loop around one poll: nothing in it waits for a name, a
//! peer or a full socket while another request could go on. It never reads or writes what travels on the sockets
//! it opens, never looks names up (the resolver does), and keeps nothing that grows with what a peer does.
//!
//! Read in this order: `helper` (the loop), `requests` (what each word does), then what they use: `host`, `names`,
//! `connecting`, `listening`, `unix`, `outbox`, `refusal`.

mod connecting;
mod helper;
mod host;
mod listening;
mod names;
mod outbox;
mod refusal;
mod requests;
mod unix;

use crate::order::{Control, OrderDescriptors, failure};
use crate::selinux;
use fleetgate_sys::{Errno, Fd, credentials, process};
use fleetgate_wire::net::{MAX_KEPT_SOCKETS, MAX_UNANSWERED_REQUESTS, Networking};
use fleetgate_wire::order::{Role, Work};
use fleetgate_wire::{Failure, Reason, Reply};

/// It was told to stop, or the other side went away.
const ENDED: i32 = 0;
/// The order or a request was refused in a way that ends the helper; the other side was told.
const REFUSED: i32 = 1;

/// Serves one order on the control socket.
pub fn run() -> i32 {
    let Ok(control) = Control::inherited() else {
        return REFUSED;
    };
    let Ok((work, given)) = control.receive() else {
        return REFUSED;
    };
    let Work::Networking(order) = work else {
        control.fail(failure(
            Reason::BadOrder,
            Errno(0),
            "networking got an order for another subcommand",
        ));
        return REFUSED;
    };
    let mut attribute = selinux::attribute(&order.selinux);
    serve_order(control, &order, given, &mut |order| {
        // Before no_new_privs, under which hardly any policy lets a context change.
        selinux::become_user(&order.ids, &order.selinux, attribute.take())
            .map_err(|r| failure(Reason::System, r.errno, r.step))
    })
}

/// Serves an order, as whom `become_user` makes of this process.
pub fn serve_order(
    control: Control,
    order: &Networking,
    mut given: OrderDescriptors,
    become_user: &mut dyn FnMut(&Networking) -> Result<(), Failure>,
) -> i32 {
    let resolver = given.take(Role::Resolver);
    let begun = match given.is_empty() {
        true => begin(order, become_user),
        false => Err(failure(
            Reason::BadDescriptors,
            Errno(0),
            "networking takes a resolver and no other descriptor",
        )),
    };
    let max_pending = match begun {
        Ok(max) => max,
        Err(why) => {
            control.fail(why);
            return REFUSED;
        }
    };
    control.say(&Reply::Ready);
    serve(control.into_socket(), resolver, max_pending)
}

fn serve(control: Fd, resolver: Option<Fd>, max_pending: usize) -> i32 {
    match helper::Helper::new(control, resolver, max_pending).run() {
        helper::End::Stopped => ENDED,
        helper::End::Refused => REFUSED,
    }
}

/// Becomes the user; returns how many requests may wait.
fn begin(
    order: &Networking,
    become_user: &mut dyn FnMut(&Networking) -> Result<(), Failure>,
) -> Result<usize, Failure> {
    if order.max_pending == 0 || order.max_pending > MAX_UNANSWERED_REQUESTS {
        return Err(failure(
            Reason::BadOrder,
            Errno(0),
            "max_pending is not from 1 to 1024",
        ));
    }
    let max_pending = order.max_pending as usize;
    let system = |step| move |errno| failure(Reason::System, errno, step);
    raise_descriptors(max_pending).map_err(system("raising the limit of descriptors"))?;
    become_user(order)?;
    // The user may end this process, but not look into it or make it run something.
    credentials::set_dumpable(false).map_err(system("closing the process to tracing"))?;
    credentials::set_no_new_privileges().map_err(system("setting no_new_privs"))?;
    Ok(max_pending)
}

/// Room for all that the bounds allow: two attempts and an unsent answer per request, two sockets per kept
/// listener, and a few. Never beyond the hard limit: then a request fails with EMFILE.
fn raise_descriptors(max_pending: usize) -> Result<(), Errno> {
    const NOFILE: u32 = libc_rlimit::NOFILE;
    let needed = (3 * max_pending + 2 * MAX_KEPT_SOCKETS + 16) as u64;
    let mut limit = process::limit(NOFILE)?;
    if limit.soft >= needed {
        return Ok(());
    }
    limit.soft = needed.min(limit.hard);
    process::set_limit(NOFILE, limit)
}

mod libc_rlimit {
    /// RLIMIT_NOFILE on x86_64 and aarch64.
    pub const NOFILE: u32 = 7;
}

//! Binding and listening: all the addresses of a request on one port, or none.

use super::{host, refusal};
use alloc::format;
use alloc::vec::Vec;
use fleetgate_sys::net::{self, Address};
use fleetgate_sys::{Errno, Fd};
use fleetgate_wire::Failure;
use fleetgate_wire::net::{MAX_BACKLOG, MAX_DISPLAYS, X11_PORT};

/// How often port 0 is asked anew because the number was taken on another of the addresses.
const PORT_TRIES: u32 = 16;
/// What a display's queue holds; X clients come one by one.
const DISPLAY_BACKLOG: i32 = 10;
/// What a request that asks for 0 gets.
const DEFAULT_BACKLOG: u32 = 128;

/// A bound socket and its address.
pub struct Listener {
    /// The socket.
    pub socket: Fd,
    /// Where it is.
    pub at: Address,
}

/// The queue that a request gets.
pub fn backlog(asked: u32) -> i32 {
    let asked = if asked == 0 { DEFAULT_BACKLOG } else { asked };
    asked.min(MAX_BACKLOG).cast_signed()
}

/// Binds (and listens, with a backlog) on every address of `list`. With `complete` false those of a version that
/// this machine has not got are left out, unless all are.
pub fn open(list: &[Address], complete: bool, backlog: Option<i32>) -> Result<Vec<Listener>, Failure> {
    let failed = |(errno, at): (Errno, Address)| {
        let doing = if backlog.is_some() {
            "listening on"
        } else {
            "binding"
        };
        refusal::system(errno, &format!("{doing} {}", refusal::written(&at)))
    };
    let any_port = list.first().is_none_or(|a| a.port == 0);
    let mut tries = 0;
    loop {
        match all(list, complete, backlog) {
            Err((Errno::EADDRINUSE, _)) if any_port && tries < PORT_TRIES => tries += 1,
            other => return other.map_err(failed),
        }
    }
}

fn all(list: &[Address], complete: bool, backlog: Option<i32>) -> Result<Vec<Listener>, (Errno, Address)> {
    let mut bound: Vec<Listener> = Vec::with_capacity(list.len());
    let mut absent = None;
    for want in list {
        // Port 0: the number that the first one got.
        let want = match bound.first() {
            Some(first) => want.with_port(first.at.port),
            None => *want,
        };
        match single(&want, backlog) {
            Ok(one) => bound.push(one),
            Err(e @ (Errno::EAFNOSUPPORT | Errno::EADDRNOTAVAIL)) if !complete => absent = Some((e, want)),
            Err(e) => return Err((e, want)),
        }
    }
    match absent {
        Some(why) if bound.is_empty() => Err(why),
        _ => Ok(bound),
    }
}

fn single(want: &Address, backlog: Option<i32>) -> Result<Listener, Errno> {
    let socket = net::tcp(want)?;
    net::set_reuse_address(&socket)?;
    if !want.is_v4() {
        net::set_v6_only(&socket)?;
    }
    net::bind(&socket, want)?;
    if let Some(backlog) = backlog {
        net::listen(&socket, backlog)?;
    }
    let at = if want.port == 0 {
        net::local(&socket)?
    } else {
        *want
    };
    Ok(Listener { socket, at })
}

/// The first display from `first` to `last` whose port is free on all of its addresses.
pub fn display(first: u16, last: u16, any_address: bool) -> Result<(u16, Vec<Listener>), Failure> {
    if first > last || last - first >= MAX_DISPLAYS || last > u16::MAX - X11_PORT {
        return Err(refusal::bad(
            "displays go from first to last, at most 1000 of them, the last below 59536",
        ));
    }
    for number in first..=last {
        let list = host::display(any_address, X11_PORT + number);
        match all(&list, false, Some(DISPLAY_BACKLOG)) {
            Ok(bound) => return Ok((number, bound)),
            Err((Errno::EADDRINUSE, _)) => continue,
            Err((errno, at)) => {
                let thing = format!("listening for a display on {}", refusal::written(&at));
                return Err(refusal::system(errno, &thing));
            }
        }
    }
    let thing = format!("every display from {first} to {last} is taken");
    Err(refusal::system(Errno::EADDRINUSE, &thing))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queues_are_bounded() {
        assert_eq!(backlog(0), 128);
        assert_eq!(backlog(1), 1);
        assert_eq!(backlog(u32::MAX), 4096);
    }

    #[test]
    fn displays_are_counted_before_they_are_tried() {
        for (first, last) in [(11, 10), (0, 1000), (59_535, 59_536)] {
            assert!(display(first, last, false).is_err());
        }
    }
}

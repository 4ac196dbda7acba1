//! One TCP connect: several addresses, each with a share of the time, at most two under way at once.
//!
//! The next address is begun when the one before failed, or has not answered for [`DELAY`]; both then run on and
//! the first to connect wins (RFC 8305, whose §4 also says to take the two versions in turn).
//!
//! A connection that comes about costs the helper eleven system calls: ppoll, clock_gettime, recvmsg for the request;
//! socket, setsockopt, connect; ppoll, clock_gettime, getsockopt when it stands; sendmsg, close.

use alloc::vec::Vec;
use fleetgate_sys::net::{self, Address};
use fleetgate_sys::{Errno, Fd};

/// How long one address has the field to itself: RFC 8305 §5 recommends 250 ms.
pub const DELAY: i64 = 250_000_000;
/// The most addresses tried for one name.
pub const MAX_ADDRESSES: usize = 16;
/// Attempts of one request at the same time.
const MAX_FLYING: usize = 2;

/// A connect under way.
pub struct ConnectAttempt {
    addresses: Vec<Address>,
    next: usize,
    flying: Vec<Attempt>,
    /// When all of it must be done.
    deadline: i64,
    /// When the last attempt began.
    begun: i64,
    /// The error that tells most.
    failed: Option<(Errno, Address)>,
}

struct Attempt {
    socket: Fd,
    to: Address,
    until: i64,
}

/// Where a connect stands.
pub enum Progress {
    /// Wait for its sockets, or until [`ConnectAttempt::wake_at`].
    Waiting,
    /// It is done.
    Connected(Fd, Address),
    /// Every address failed.
    Failed(Errno, Address),
}

impl ConnectAttempt {
    /// A connect to `addresses`, which are not empty; call [`ConnectAttempt::proceed`] next.
    pub fn new(addresses: &[Address], deadline: i64) -> ConnectAttempt {
        ConnectAttempt {
            addresses: in_turn(addresses),
            next: 0,
            flying: Vec::new(),
            deadline,
            begun: 0,
            failed: None,
        }
    }

    /// Ends attempts whose share is over and begins what is due.
    pub fn proceed(&mut self, now: i64) -> Progress {
        while let Some(over) = self.flying.iter().position(|a| a.until <= now) {
            let attempt = self.flying.swap_remove(over);
            self.note(Errno::ETIMEDOUT, attempt.to);
        }
        while self.due(now) {
            let to = self.addresses[self.next];
            let until = now + share(self.deadline - now, self.addresses.len() - self.next);
            self.next += 1;
            self.begun = now;
            match begin(&to) {
                Ok((socket, true)) => return Progress::Connected(socket, to),
                Ok((socket, false)) => self.flying.push(Attempt { socket, to, until }),
                Err(errno) => self.note(errno, to),
            }
        }
        match self.failed {
            Some((errno, to)) if self.flying.is_empty() && !self.more(now) => Progress::Failed(errno, to),
            _ => Progress::Waiting,
        }
    }

    /// Socket `fd` has news.
    pub fn ready(&mut self, fd: i32, now: i64) -> Progress {
        if let Some(at) = self.flying.iter().position(|a| a.socket.raw() == fd) {
            let attempt = self.flying.swap_remove(at);
            match net::outcome(&attempt.socket) {
                Ok(()) => return Progress::Connected(attempt.socket, attempt.to),
                Err(errno) => self.note(errno, attempt.to),
            }
        }
        self.proceed(now)
    }

    /// The sockets to wait for room to write on.
    pub fn sockets(&self) -> impl Iterator<Item = i32> {
        self.flying.iter().map(|a| a.socket.raw())
    }

    /// When to call [`ConnectAttempt::proceed`] at the latest.
    pub fn wake_at(&self) -> i64 {
        let shares = self.flying.iter().map(|a| a.until);
        let next = (self.next < self.addresses.len() && self.flying.len() < MAX_FLYING)
            .then_some(self.begun.saturating_add(DELAY));
        shares.chain(next).min().unwrap_or(self.deadline)
    }

    fn more(&self, now: i64) -> bool {
        self.next < self.addresses.len() && now < self.deadline
    }

    fn due(&self, now: i64) -> bool {
        let room = self.flying.is_empty() || (self.flying.len() < MAX_FLYING && now >= self.begun + DELAY);
        // The first is tried whatever the clock says, so that there is an error to tell.
        room && (self.more(now) || self.next == 0)
    }

    /// Keeps the error that tells most: an address that cannot even be tried from here (a version 6 address on a
    /// machine without version 6) says less about the host than one that was refused.
    fn note(&mut self, errno: Errno, to: Address) {
        let vague = |e: Errno| {
            matches!(
                e,
                Errno::ENETUNREACH | Errno::EHOSTUNREACH | Errno::EADDRNOTAVAIL | Errno::EAFNOSUPPORT
            )
        };
        if self.failed.is_none_or(|(kept, _)| vague(kept)) {
            self.failed = Some((errno, to));
        }
    }
}

/// Starts one attempt; true when it is connected already.
fn begin(to: &Address) -> Result<(Fd, bool), Errno> {
    let socket = net::tcp(to)?;
    net::set_no_delay(&socket)?;
    match net::connect(&socket, to) {
        Ok(()) => Ok((socket, true)),
        Err(Errno::EINPROGRESS) => Ok((socket, false)),
        Err(errno) => Err(errno),
    }
}

/// What one of `left` addresses gets of the time that is left.
fn share(time: i64, left: usize) -> i64 {
    time.max(0) / i64::try_from(left.max(1)).unwrap_or(i64::MAX)
}

/// The versions in turn, beginning with the first one's; else in the order given. At most [`MAX_ADDRESSES`].
fn in_turn(addresses: &[Address]) -> Vec<Address> {
    let first = addresses.first().is_some_and(Address::is_v4);
    let mut same = addresses.iter().filter(|a| a.is_v4() == first);
    let mut other = addresses.iter().filter(|a| a.is_v4() != first);
    let mut out = Vec::with_capacity(addresses.len().min(MAX_ADDRESSES));
    loop {
        let (a, b) = (same.next(), other.next());
        if out.len() >= MAX_ADDRESSES || (a.is_none() && b.is_none()) {
            out.truncate(MAX_ADDRESSES);
            return out;
        }
        out.extend(a.into_iter().chain(b));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn v4(last: u8) -> Address {
        Address::v4([192, 0, 2, last], 1)
    }
    const fn v6(last: u8) -> Address {
        Address::v6([0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last], 1)
    }

    #[test]
    fn versions_take_turns() {
        let all = [v6(1), v6(2), v4(1), v6(3)];
        assert_eq!(in_turn(&all), [v6(1), v4(1), v6(2), v6(3)]);
        assert_eq!(in_turn(&[v4(1), v4(2), v6(1)]), [v4(1), v6(1), v4(2)]);
        assert_eq!(in_turn(&[v6(1); 40]).len(), MAX_ADDRESSES);
    }

    #[test]
    fn a_share_each() {
        assert_eq!(share(900, 3), 300);
        assert_eq!(share(-5, 2), 0);
        assert_eq!(share(7, 0), 7);
    }

    #[test]
    fn the_telling_error_stays() {
        let mut c = ConnectAttempt::new(&[v6(1), v4(1)], 10);
        c.note(Errno::ENETUNREACH, v6(1));
        c.note(Errno::ECONNREFUSED, v4(1));
        c.note(Errno::ETIMEDOUT, v4(2));
        assert_eq!(c.failed, Some((Errno::ECONNREFUSED, v4(1))));
    }

    /// Documentation addresses in a closed world: here it is only the clock that is looked at.
    #[test]
    fn the_second_waits_for_its_turn() {
        let mut c = ConnectAttempt::new(&[v4(1), v4(2)], 10 * DELAY);
        c.begun = 5;
        c.next = 1;
        c.flying.push(Attempt {
            socket: net::tcp(&v4(1)).expect("socket"),
            to: v4(1),
            until: 5 * DELAY,
        });
        assert_eq!(c.wake_at(), 5 + DELAY);
        assert!(!c.due(5 + DELAY - 1));
        assert!(c.due(5 + DELAY));
        c.next = 2;
        assert_eq!(c.wake_at(), 5 * DELAY);
        assert!(matches!(
            c.proceed(5 * DELAY),
            Progress::Failed(Errno::ETIMEDOUT, _)
        ));
    }
}

//! One waiter for many descriptors, and the descriptor that wakes it.

use crate::{Errno, Fd, Result, syscall};

/// The kernel's struct epoll_event, packed on x86_64 only.
#[cfg_attr(target_arch = "x86_64", repr(C, packed))]
#[cfg_attr(not(target_arch = "x86_64"), repr(C))]
#[derive(Clone, Copy)]
pub struct Event {
    events: u32,
    data: u64,
}

impl Event {
    /// An empty place for the kernel to fill.
    pub const EMPTY: Event = Event { events: 0, data: 0 };

    /// There may be something to read: bytes, an end, an error.
    pub fn readable(&self) -> bool {
        let any = libc::EPOLLIN | libc::EPOLLRDHUP | libc::EPOLLHUP | libc::EPOLLERR;
        self.events & any as u32 != 0
    }

    /// The other side closed or shut down its sending half, or there is an error: what is read next ends.
    pub fn hung_up(&self) -> bool {
        let any = libc::EPOLLRDHUP | libc::EPOLLHUP | libc::EPOLLERR;
        self.events & any as u32 != 0
    }

    /// There may be room to write, or an error to be found by writing.
    pub fn writable(&self) -> bool {
        let any = libc::EPOLLOUT | libc::EPOLLHUP | libc::EPOLLERR;
        self.events & any as u32 != 0
    }

    /// The number under which the descriptor was added.
    pub fn key(&self) -> u64 {
        self.data
    }

    /// What happened, in poll's flags.
    pub fn happened(&self) -> i16 {
        self.events as i16
    }
}

/// Bytes and ends, once for each change.
const ARRIVALS: i32 = libc::EPOLLIN | libc::EPOLLRDHUP | libc::EPOLLET;

/// A set of descriptors to wait for.
#[derive(Debug)]
pub struct Epoll(Fd);

impl Epoll {
    /// An empty set.
    pub fn new() -> Result<Epoll> {
        // SAFETY: numbers only.
        let fd = unsafe { syscall!(libc::SYS_epoll_create1, libc::EPOLL_CLOEXEC) }?;
        Ok(Epoll(Fd::from_raw(fd as i32)))
    }

    /// Adds `fd` for `events` (poll's flags), level-triggered, under `key`.
    pub fn add(&self, fd: &Fd, events: i16, key: u64) -> Result<()> {
        self.control(libc::EPOLL_CTL_ADD, fd, i32::from(events as u16), key)
    }

    /// Watches `fd`, which was added, for these events from now on.
    pub fn change(&self, fd: &Fd, events: i16, key: u64) -> Result<()> {
        self.control(libc::EPOLL_CTL_MOD, fd, i32::from(events as u16), key)
    }

    fn control(&self, what: i32, fd: &Fd, events: i32, key: u64) -> Result<()> {
        let event = Event {
            events: events as u32,
            data: key,
        };
        // SAFETY: the kernel reads one event.
        unsafe {
            syscall!(
                libc::SYS_epoll_ctl,
                self.0.raw(),
                what,
                fd.raw(),
                &raw const event
            )
        }
        .map(drop)
    }

    /// Adds `fd` under `key`, edge-triggered: told once when there is something to read or room to write, or the other
    /// side closed, and again only after a call on it found nothing or no room. It is never changed afterwards, so
    /// who has nothing to do with what is ready costs no call.
    pub fn add_edges(&self, fd: &Fd, key: u64) -> Result<()> {
        self.control(libc::EPOLL_CTL_ADD, fd, ARRIVALS | libc::EPOLLOUT, key)
    }

    /// As [`Epoll::add_edges`], but room to write is told only while it is asked for by [`Epoll::tell_of_room`]: for a
    /// socket that mostly has some, where each read of the other side would wake this one for nothing.
    pub fn add_arrivals(&self, fd: &Fd, key: u64) -> Result<()> {
        self.control(libc::EPOLL_CTL_ADD, fd, ARRIVALS, key)
    }

    /// From now on `fd`, which was added by [`Epoll::add_arrivals`] under this key, is told of room to write, or no more.
    /// Room that is there already is told at the next wait.
    pub fn tell_of_room(&self, fd: &Fd, key: u64, told: bool) -> Result<()> {
        let room = if told { libc::EPOLLOUT } else { 0 };
        self.control(libc::EPOLL_CTL_MOD, fd, ARRIVALS | room, key)
    }

    /// Takes `fd` out.
    pub fn remove(&self, fd: &Fd) -> Result<()> {
        // SAFETY: the kernel ignores the event since 2.6.9.
        unsafe {
            syscall!(
                libc::SYS_epoll_ctl,
                self.0.raw(),
                libc::EPOLL_CTL_DEL,
                fd.raw(),
                0
            )
        }
        .map(drop)
    }

    /// Its own descriptor, readable while something happened: for a set within a set.
    pub fn fd(&self) -> &Fd {
        &self.0
    }

    /// Waits until something happened and fills `events` from the front; returns how many.
    pub fn wait(&self, events: &mut [Event], timeout_ms: Option<u32>) -> Result<usize> {
        let timeout = timeout_ms.map_or(-1, |ms| ms.min(i32::MAX as u32) as isize);
        loop {
            // SAFETY: the kernel writes at most `events.len()` events.
            match unsafe {
                syscall!(
                    libc::SYS_epoll_pwait,
                    self.0.raw(),
                    events.as_mut_ptr(),
                    events.len(),
                    timeout,
                    0,
                    8
                )
            } {
                Err(Errno::EINTR) => continue,
                other => return other,
            }
        }
    }
}

/// A counter that a waiter sees: [`ring`] makes it readable, [`quiet`] makes it unreadable again.
pub fn bell() -> Result<Fd> {
    // SAFETY: numbers only.
    let fd = unsafe { syscall!(libc::SYS_eventfd2, 0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) }?;
    Ok(Fd::from_raw(fd as i32))
}

/// Makes the bell readable.
pub fn ring(bell: &Fd) {
    // The only failure is a counter at its end, and then it is readable already.
    let _ = crate::file::write(bell.raw(), &1u64.to_ne_bytes());
}

/// Takes all rings.
pub fn quiet(bell: &Fd) {
    let mut count = [0u8; 8];
    // EAGAIN: nobody rang.
    let _ = crate::file::read(bell.raw(), &mut count);
}

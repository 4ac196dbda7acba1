//! Calls that somebody decides on, in memory that survives whoever does: when a process dies that had received a call from
//! a [listener](crate::seccomp) and not answered it, nobody is told of that call again, and only who knows its id can
//! answer it. So the kernel itself writes what it hands out into pages of an anonymous file that somebody else has too.
//!
//! There is no moment in between: the kernel marks a call as handed out before it copies it, but a process that dies
//! meanwhile dies after that copy, and a copy that fails takes the mark back.

use crate::seccomp::{Notice, Waiting, receive_at};
use crate::{Errno, Fd, Result, file, memfd, syscall};
use alloc::vec::Vec;
use core::mem::{MaybeUninit, size_of};

/// How many calls can be received and not answered at a time: as many as fill a page.
pub const SLOTS: usize = 4096 / size_of::<Notice>();
const LENGTH: usize = 4096;

/// Room for [`SLOTS`] calls, each free or with a call in it.
#[derive(Debug)]
pub struct Slots {
    at: *mut Notice,
    file: Fd,
}

// SAFETY: the mapping belongs to this value alone, and is written through `&mut self`.
unsafe impl Send for Slots {}

impl Slots {
    /// All of them free.
    pub fn new() -> Result<Slots> {
        let file = memfd::create(c"waiting calls", memfd::Kind::Data)?;
        file::truncate(&file, LENGTH as u64)?;
        memfd::add_seals(&file, libc::F_SEAL_GROW | libc::F_SEAL_SHRINK | libc::F_SEAL_SEAL)?;
        Slots::map(file)
    }

    /// Those of somebody who is gone, and all of them free: what was in them has been answered. `EINVAL`: it is no such file.
    pub fn again(file: Fd) -> Result<Slots> {
        let fixed = libc::F_SEAL_GROW | libc::F_SEAL_SHRINK;
        if memfd::seals(&file)? & fixed != fixed
            || file::read_at(file.raw(), &mut [0], LENGTH as u64 - 1)? != 1
        {
            return Err(Errno::EINVAL);
        }
        let mut slots = Slots::map(file)?;
        for slot in 0..SLOTS {
            slots.free(slot);
        }
        Ok(slots)
    }

    fn map(file: Fd) -> Result<Slots> {
        const BOTH: i32 = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping, at a place of the kernel's choice, of a file that cannot become shorter.
        let at = unsafe { syscall!(libc::SYS_mmap, 0, LENGTH, BOTH, libc::MAP_SHARED, file.raw(), 0) }?;
        Ok(Slots {
            at: at as *mut Notice,
            file,
        })
    }

    /// What somebody else needs for [`left`] and [`Slots::again`].
    #[must_use]
    pub fn file(&self) -> &Fd {
        &self.file
    }

    /// Receives the next waiting call into a free slot; waits for one. `None`: there was one whose caller was killed before
    /// it could be told of, or nobody is bound by the filter any more. `EINVAL`: the slot is not free. `EINTR`: a signal.
    pub fn receive(&mut self, slot: usize, listener: &Fd) -> Result<Option<Waiting>> {
        let at = self.slot(slot);
        // SAFETY: the slot is mapped for writing; the kernel itself sees to it that there is nothing but zeroes.
        unsafe { receive_at(listener, at) }?;
        // SAFETY: mapped and made of numbers alone; nobody else writes to it.
        let notice = unsafe { at.read_volatile() };
        Ok((notice.id != 0).then(|| notice.waiting()))
    }

    /// Makes a slot free: its call was answered.
    pub fn free(&mut self, slot: usize) {
        // SAFETY: mapped, made of numbers alone, and written by nobody else.
        unsafe { self.slot(slot).write_volatile(Notice::default()) };
    }

    fn slot(&mut self, slot: usize) -> *mut Notice {
        assert!(slot < SLOTS, "there are {SLOTS} slots");
        // SAFETY: within the mapping, which is of SLOTS notices and a rest.
        unsafe { self.at.add(slot) }
    }
}

impl Drop for Slots {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's own.
        let _ = unsafe { syscall!(libc::SYS_munmap, self.at, LENGTH) };
    }
}

/// The calls in somebody's slots: received, and perhaps answered by now.
pub fn left(file: &Fd) -> Result<Vec<Waiting>> {
    let mut left = Vec::new();
    for slot in 0..SLOTS {
        let mut bytes = [0u8; size_of::<Notice>()];
        let from = (slot * size_of::<Notice>()) as u64;
        if file::read_at(file.raw(), &mut bytes, from)? != bytes.len() {
            return Err(Errno::EINVAL);
        }
        let mut notice = MaybeUninit::<Notice>::zeroed();
        // SAFETY: as many bytes as a notice has, and any bytes are one.
        let notice = unsafe {
            core::ptr::copy_nonoverlapping(bytes.as_ptr(), notice.as_mut_ptr().cast(), bytes.len());
            notice.assume_init()
        };
        if notice.id != 0 {
            left.push(notice.waiting());
        }
    }
    Ok(left)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::poll::{CLOSED, READ, Watch, poll};
    use crate::process::{Exit, wait};
    use crate::seccomp::{Instruction, allow, flag, receive};
    use crate::spawn::Strings;
    use crate::traced::{Start, start};

    #[test]
    fn who_has_the_file_can_answer_what_another_received() {
        let step = |code, no, value| Instruction {
            code,
            yes: 0,
            no,
            value,
        };
        let filter = [
            step(0x20, 0, 0),
            step(0x15, 1, libc::SYS_chdir as u32),
            step(0x06, 0, 0x7fc0_0000),
            step(0x06, 0, 0x7fff_0000),
        ];
        let child = start(&Start {
            path: c"/bin/sh",
            argv: &Strings::new([c"sh", c"-c", c"cd / && cd / && exit 5"]),
            envp: &Strings::new([]),
            filter: &filter,
            flags: flag::NEW_LISTENER,
        })
        .expect("a child");
        child.begin();
        let listener = child.listener().expect("a listener");
        child.go();
        let mut slots = Slots::new().expect("slots");
        let call = slots.receive(3, &listener).expect("received").expect("a call");
        assert_eq!((call.call, call.pid), (libc::SYS_chdir, child.pid));
        assert_eq!(slots.receive(3, &listener), Err(Errno::EINVAL), "it is taken");
        let mut watch = [Watch::new(listener.raw(), READ)];
        assert_eq!(poll(&mut watch, Some(0)), Ok(0), "nobody is told of it again");

        let file = slots.file().duplicate(0).expect("a duplicate");
        drop(slots);
        assert_eq!(left(&file).expect("read"), [call]);
        allow(&listener, &call).expect("it still waits");
        let next = receive(&listener).expect("received").expect("the other call");
        assert_ne!(next.id, call.id);
        allow(&listener, &next).expect("it waits");
        assert_eq!(wait(&child.pidfd, true), Ok(Some(Exit::Code(5))));

        poll(&mut watch, None).expect("it hangs up");
        assert_ne!(watch[0].happened() & CLOSED, 0);
        let again = Slots::again(file).expect("as before");
        assert_eq!(left(again.file()).expect("read"), []);
        let other = memfd::create(c"other", memfd::Kind::Data).expect("a file");
        assert_eq!(Slots::again(other).err(), Some(Errno::EINVAL));
    }
}

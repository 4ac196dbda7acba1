//! Forbidding system calls to the calling thread and all that it starts, or having somebody else decide on them.
//!
//! There is no way back: a thread that calls [`confine`] stays confined. Nothing here asks for no_new_privs when
//! the kernel lets root go without.

use crate::{Errno, Fd, Result, syscall};
use alloc::vec::Vec;

/// Numbers of system calls that rules are made for.
pub mod calls {
    pub use libc::{SYS_chdir, SYS_clone3, SYS_execveat, SYS_memfd_create, SYS_recvmsg, SYS_socketpair};
}

/// What becomes of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// It answers this error.
    Deny(Errno),
    /// It waits until whoever has the listener lets it go on.
    Ask,
}

/// One rule; the first that fits decides, what no rule fits is allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    /// The system call's number (`libc::SYS_…`).
    pub call: i64,
    /// Only when the lower 32 bits of argument `.0` (from 0) equal `.1`.
    pub argument: Option<(u32, u32)>,
    /// What becomes of it.
    pub action: Action,
}

impl Rule {
    /// `call` answers `errno`, whatever its arguments.
    pub const fn deny(call: i64, errno: Errno) -> Rule {
        Rule {
            call,
            argument: None,
            action: Action::Deny(errno),
        }
    }
}

/// The most rules of one filter.
pub const MAX_RULES: usize = 64;

#[cfg(target_arch = "x86_64")]
const ARCH: u32 = 0xc000_003e;
#[cfg(target_arch = "aarch64")]
const ARCH: u32 = 0xc000_00b7;

/// One instruction of classic BPF.
#[repr(C)]
#[derive(Clone, Copy)]
struct Instruction {
    code: u16,
    yes: u8,
    no: u8,
    value: u32,
}

const LOAD: u16 = 0x20;
const EQUAL: u16 = 0x15;
const RETURN: u16 = 0x06;
const RET_ALLOW: u32 = 0x7fff_0000;
const RET_ERRNO: u32 = 0x0005_0000;
const RET_NOTIFY: u32 = 0x7fc0_0000;

fn program(rules: &[Rule]) -> Vec<Instruction> {
    let step = |code, value, no| Instruction {
        code,
        yes: 0,
        no,
        value,
    };
    let mut out = Vec::with_capacity(rules.len() * 5 + 4);
    // struct seccomp_data: nr, arch, instruction pointer, six arguments of 64 bits.
    out.push(step(LOAD, 4, 0));
    // Calls of another architecture's numbering are let through: the rules do not speak of them.
    out.push(Instruction {
        yes: 1,
        ..step(EQUAL, ARCH, 0)
    });
    out.push(step(RETURN, RET_ALLOW, 0));
    for rule in rules {
        let action = match rule.action {
            Action::Deny(errno) => RET_ERRNO | errno.0 as u32,
            Action::Ask => RET_NOTIFY,
        };
        match rule.argument {
            None => {
                out.push(step(LOAD, 0, 0));
                out.push(step(EQUAL, rule.call as u32, 1));
            }
            Some((index, value)) => {
                out.push(step(LOAD, 0, 0));
                out.push(step(EQUAL, rule.call as u32, 3));
                out.push(step(LOAD, 16 + 8 * index.min(5), 0));
                out.push(step(EQUAL, value, 1));
            }
        }
        out.push(step(RETURN, action, 0));
    }
    out.push(step(RETURN, RET_ALLOW, 0));
    out
}

/// Puts the rules on the calling thread. With [`Action::Ask`] among them, the listener on which the calls arrive.
pub fn confine(rules: &[Rule]) -> Result<Option<Fd>> {
    const SET_MODE_FILTER: u32 = 1;
    const NEW_LISTENER: u32 = 8;
    #[repr(C)]
    struct Program {
        len: u16,
        filter: *const Instruction,
    }
    if rules.len() > MAX_RULES {
        return Err(Errno::EINVAL);
    }
    let instructions = program(rules);
    let filter = Program {
        len: instructions.len() as u16,
        filter: instructions.as_ptr(),
    };
    let asks = rules.iter().any(|r| r.action == Action::Ask);
    let flags = if asks { NEW_LISTENER } else { 0 };
    let install = || {
        // SAFETY: the kernel reads the program, which lives through the call.
        unsafe { syscall!(libc::SYS_seccomp, SET_MODE_FILTER, flags, &raw const filter) }
    };
    let installed = match install() {
        Err(Errno::EACCES) => {
            // SAFETY: numbers only; only the calling thread is bound by it.
            unsafe { syscall!(libc::SYS_prctl, libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) }?;
            install()
        }
        other => other,
    }?;
    Ok(asks.then(|| Fd::from_raw(installed as i32)))
}

/// A call that waits for a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// Names it.
    pub id: u64,
    /// Who makes it.
    pub pid: i32,
    /// The system call.
    pub call: i64,
    /// Its arguments.
    pub arguments: [u64; 6],
}

/// The next call that waits on the listener; waits for one.
pub fn next(listener: &Fd) -> Result<Waiting> {
    const RECEIVE: u32 = 0xc050_2100;
    #[repr(C)]
    #[derive(Default)]
    struct Notice {
        id: u64,
        pid: u32,
        flags: u32,
        nr: i32,
        arch: u32,
        ip: u64,
        args: [u64; 6],
    }
    let mut notice = Notice::default();
    loop {
        // SAFETY: the kernel writes one struct seccomp_notif of 80 bytes, which must be zero before.
        match unsafe { syscall!(libc::SYS_ioctl, listener.raw(), RECEIVE, &raw mut notice) } {
            // ENOENT: the caller was killed before it could be told of.
            Err(Errno::EINTR | Errno::ENOENT) => notice = Notice::default(),
            other => {
                other?;
                break;
            }
        }
    }
    Ok(Waiting {
        id: notice.id,
        pid: notice.pid as i32,
        call: notice.nr.into(),
        arguments: notice.args,
    })
}

/// Lets a waiting call go on. `ENOENT`: its caller is gone.
pub fn allow(listener: &Fd, waiting: &Waiting) -> Result<()> {
    const SEND: u32 = 0xc018_2101;
    const CONTINUE: u32 = 1;
    #[repr(C)]
    struct Decision {
        id: u64,
        value: i64,
        error: i32,
        flags: u32,
    }
    let decision = Decision {
        id: waiting.id,
        value: 0,
        error: 0,
        flags: CONTINUE,
    };
    // SAFETY: the kernel reads one struct seccomp_notif_resp of 24 bytes.
    unsafe { syscall!(libc::SYS_ioctl, listener.raw(), SEND, &raw const decision) }.map(drop)
}

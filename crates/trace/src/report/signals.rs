//! A signal in words: `{si_signo=SIGCHLD, si_code=CLD_EXITED, …}`, as strace shows it. Pure text.

use fleetgate_calls::abi::low_signed;
use fleetgate_calls::tables::signal;
use fleetgate_sys::ptrace::Signal;
use std::fmt::Write;

/// From the kernel itself, whatever the signal.
const KERNEL: i32 = 0x80;

/// A signal's name, or its number.
#[must_use]
pub fn name(number: i32) -> String {
    signal::name(number).map_or_else(|| format!("SIG_{number}"), str::to_owned)
}

/// The name of a `si_code`, which means another thing for each signal.
#[must_use]
pub fn code_name(number: i32, code: i32) -> Option<&'static str> {
    let common = match code {
        0 => "SI_USER",
        KERNEL => "SI_KERNEL",
        -1 => "SI_QUEUE",
        -2 => "SI_TIMER",
        -3 => "SI_MESGQ",
        -4 => "SI_ASYNCIO",
        -5 => "SI_SIGIO",
        -6 => "SI_TKILL",
        -7 => "SI_DETHREAD",
        -60 => "SI_ASYNCNL",
        _ => "",
    };
    if !common.is_empty() {
        return Some(common);
    }
    let own: &[&str] = match number {
        libc::SIGILL => &[
            "ILL_ILLOPC",
            "ILL_ILLOPN",
            "ILL_ILLADR",
            "ILL_ILLTRP",
            "ILL_PRVOPC",
            "ILL_PRVREG",
            "ILL_COPROC",
            "ILL_BADSTK",
            "ILL_BADIADDR",
        ],
        libc::SIGFPE => &[
            "FPE_INTDIV",
            "FPE_INTOVF",
            "FPE_FLTDIV",
            "FPE_FLTOVF",
            "FPE_FLTUND",
            "FPE_FLTRES",
            "FPE_FLTINV",
            "FPE_FLTSUB",
        ],
        libc::SIGSEGV => &[
            "SEGV_MAPERR",
            "SEGV_ACCERR",
            "SEGV_BNDERR",
            "SEGV_PKUERR",
            "SEGV_ACCADI",
            "SEGV_ADIDERR",
            "SEGV_ADIPERR",
            "SEGV_MTEAERR",
            "SEGV_MTESERR",
            "SEGV_CPERR",
        ],
        libc::SIGBUS => &[
            "BUS_ADRALN",
            "BUS_ADRERR",
            "BUS_OBJERR",
            "BUS_MCEERR_AR",
            "BUS_MCEERR_AO",
        ],
        libc::SIGTRAP => &[
            "TRAP_BRKPT",
            "TRAP_TRACE",
            "TRAP_BRANCH",
            "TRAP_HWBKPT",
            "TRAP_UNK",
            "TRAP_PERF",
        ],
        libc::SIGCHLD => &[
            "CLD_EXITED",
            "CLD_KILLED",
            "CLD_DUMPED",
            "CLD_TRAPPED",
            "CLD_STOPPED",
            "CLD_CONTINUED",
        ],
        libc::SIGIO => &[
            "POLL_IN", "POLL_OUT", "POLL_MSG", "POLL_ERR", "POLL_PRI", "POLL_HUP",
        ],
        libc::SIGSYS => &["SYS_SECCOMP", "SYS_USER_DISPATCH"],
        _ => &[],
    };
    usize::try_from(code.checked_sub(1)?)
        .ok()
        .and_then(|at| own.get(at))
        .copied()
}

/// Whether somebody is named who sent it: a process did, or it is about a child.
#[must_use]
pub fn has_sender(info: &Signal) -> bool {
    matches!(info.code, 0 | -1 | -6) || has_status(info)
}

/// Whether it is about a child, and says what became of it.
#[must_use]
pub fn has_status(info: &Signal) -> bool {
    info.number == libc::SIGCHLD && (1..KERNEL).contains(&info.code)
}

/// Whether it is about an address.
#[must_use]
pub fn has_address(info: &Signal) -> bool {
    let faults = [
        libc::SIGSEGV,
        libc::SIGBUS,
        libc::SIGILL,
        libc::SIGFPE,
        libc::SIGTRAP,
    ];
    info.code > 0 && faults.contains(&info.number)
}

/// All that is known of it, in braces.
#[must_use]
pub fn describe(info: &Signal) -> String {
    let mut out = format!("{{si_signo={}, si_code=", name(info.number));
    let _ = match code_name(info.number, info.code) {
        Some(name) => write!(out, "{name}"),
        None => write!(out, "{:#x}", info.code),
    };
    let sent = |out: &mut String| {
        let _ = write!(out, ", si_pid={}, si_uid={}", info.pid, info.uid);
    };
    let valued = |out: &mut String| {
        if info.value != 0 {
            let _ = write!(
                out,
                ", si_int={}, si_ptr={:#x}",
                low_signed(info.value),
                info.value
            );
        }
    };
    match (info.code, info.number) {
        (0 | -6, _) => sent(&mut out),
        // A timer's number and how often it was late stand where others have their sender.
        (-2, _) => {
            let timer = if info.pid == 0 {
                String::from("0")
            } else {
                format!("{:#x}", info.pid)
            };
            let _ = write!(out, ", si_timerid={timer}, si_overrun={}", info.uid);
            valued(&mut out);
        }
        (..=-1, _) => {
            sent(&mut out);
            valued(&mut out);
        }
        (KERNEL, libc::SIGSEGV | libc::SIGBUS | libc::SIGILL | libc::SIGFPE) => {
            address(&mut out, info.address)
        }
        (KERNEL, _) => {}
        (_, libc::SIGCHLD) => {
            sent(&mut out);
            let _ = match info.code {
                1 => write!(out, ", si_status={}", info.status),
                _ => write!(out, ", si_status={}", name(info.status)),
            };
            ticks(&mut out, "si_utime", info.user);
            ticks(&mut out, "si_stime", info.system);
        }
        (_, libc::SIGSEGV | libc::SIGBUS | libc::SIGILL | libc::SIGFPE | libc::SIGTRAP) => {
            address(&mut out, info.address);
        }
        (_, libc::SIGSYS) => {
            let _ = write!(
                out,
                ", si_call_addr={:#x}, si_syscall={}",
                info.address, info.status
            );
        }
        (_, libc::SIGIO) => {
            let _ = write!(out, ", si_band={}", info.address.cast_signed());
        }
        _ if info.pid != 0 || info.uid != 0 => sent(&mut out),
        _ => {}
    }
    out.push('}');
    out
}

fn address(out: &mut String, address: u64) {
    let _ = match address {
        0 => write!(out, ", si_addr=NULL"),
        address => write!(out, ", si_addr={address:#x}"),
    };
}

/// Ticks of the clock, a hundred a second on every Linux that a program sees.
fn ticks(out: &mut String, name: &str, ticks: i64) {
    let _ = write!(out, ", {name}={ticks}");
    if ticks != 0 {
        let _ = write!(out, " /* {}.{:02} s */", ticks / 100, ticks % 100);
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A signal of which nothing but this is known.
    pub(crate) fn signal(number: i32, code: i32) -> Signal {
        Signal {
            number,
            code,
            ..Signal::default()
        }
    }

    #[test]
    fn a_signal_is_shown_as_strace_shows_it() {
        let from = |signal: Signal| Signal {
            pid: 9634,
            uid: 7,
            ..signal
        };
        for (info, text) in [
            (
                from(signal(15, 0)),
                "{si_signo=SIGTERM, si_code=SI_USER, si_pid=9634, si_uid=7}",
            ),
            (
                from(signal(10, -6)),
                "{si_signo=SIGUSR1, si_code=SI_TKILL, si_pid=9634, si_uid=7}",
            ),
            (
                Signal {
                    value: 77,
                    ..from(signal(10, -1))
                },
                "{si_signo=SIGUSR1, si_code=SI_QUEUE, si_pid=9634, si_uid=7, si_int=77, si_ptr=0x4d}",
            ),
            (
                Signal {
                    uid: 2,
                    value: 5,
                    ..signal(14, -2)
                },
                "{si_signo=SIGALRM, si_code=SI_TIMER, si_timerid=0, si_overrun=2, si_int=5, si_ptr=0x5}",
            ),
            (signal(14, KERNEL), "{si_signo=SIGALRM, si_code=SI_KERNEL}"),
            (
                from(signal(17, 1)),
                "{si_signo=SIGCHLD, si_code=CLD_EXITED, si_pid=9634, si_uid=7, si_status=0, si_utime=0, si_stime=0}",
            ),
            (
                Signal {
                    status: 15,
                    system: 123,
                    ..from(signal(17, 2))
                },
                "{si_signo=SIGCHLD, si_code=CLD_KILLED, si_pid=9634, si_uid=7, si_status=SIGTERM, si_utime=0, \
                 si_stime=123 /* 1.23 s */}",
            ),
            (
                Signal {
                    address: 0x10,
                    ..signal(11, 1)
                },
                "{si_signo=SIGSEGV, si_code=SEGV_MAPERR, si_addr=0x10}",
            ),
            (
                signal(11, KERNEL),
                "{si_signo=SIGSEGV, si_code=SI_KERNEL, si_addr=NULL}",
            ),
            (signal(99, 300), "{si_signo=SIG_99, si_code=0x12c}"),
        ] {
            assert_eq!(describe(&info), text);
        }
    }
}

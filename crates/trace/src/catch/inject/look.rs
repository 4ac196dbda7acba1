//! What `/proc` says of a process before anything is done to it. All of it is read anew by nobody: what changes meanwhile is
//! found by the steps that follow.

use super::Error;
use crate::catch::proc::{field, status, text};
use fleetgate_calls::abi::low_signed;
use fleetgate_sys::memory;
use std::fs;

/// The most of one mapping that is searched.
const MAX_CODE: usize = 256 << 10;
/// The most mappings that are searched.
const MAX_MAPPINGS: usize = 16;

/// Calls that answer EINTR to whoever is stopped in them, and are not made again by the kernel: see [`again`].
pub(super) const CUT_SHORT: &[i64] = &[
    #[cfg(target_arch = "x86_64")]
    libc::SYS_epoll_wait,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    libc::SYS_semop,
    libc::SYS_semtimedop,
    libc::SYS_rt_sigtimedwait,
    libc::SYS_io_getevents,
    libc::SYS_io_uring_enter,
];

/// Whether one of them can be made again from its beginning without anybody noticing: it waits without end. (One with a time
/// would wait for all of it again; programs are used to EINTR there, which a stop and SIGCONT brings as well.)
pub(super) fn again(call: u64, arguments: &[u64; 6]) -> bool {
    match i64::try_from(call).unwrap_or(-1) {
        #[cfg(target_arch = "x86_64")]
        libc::SYS_epoll_wait => low_signed(arguments[3]) == -1,
        libc::SYS_epoll_pwait => low_signed(arguments[3]) == -1,
        libc::SYS_epoll_pwait2 | libc::SYS_semtimedop => arguments[3] == 0,
        libc::SYS_rt_sigtimedwait => arguments[2] == 0,
        libc::SYS_semop => true,
        _ => false,
    }
}

/// Whether a signal waits for a task that does not block it: then EINTR is what it was to have.
pub(super) fn has_signal(tid: i32, blocked: u64) -> bool {
    let status = status(tid).unwrap_or_default();
    let mask = |name: &str| field::<String>(&status, name).and_then(|hex| u64::from_str_radix(&hex, 16).ok());
    let pending = mask("SigPnd:").unwrap_or(u64::MAX) | mask("ShdPnd:").unwrap_or(u64::MAX);
    pending & !blocked != 0
}

/// What is to be known before.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Target {
    /// Who traces it; 0: nobody.
    pub(super) tracer: i32,
    /// 0: no filter; 1: read, write and exit alone; 2: filters.
    pub(super) seccomp: u8,
    /// Tasks that can be stopped, the likeliest first.
    pub(super) tasks: Vec<i32>,
}

pub(super) fn target(pid: i32) -> Result<Target, Error> {
    let status = status(pid).ok_or(Error::Gone)?;
    let mut tasks = Vec::new();
    for entry in fs::read_dir(format!("/proc/{pid}/task"))
        .map_err(|_| Error::Gone)?
        .flatten()
    {
        let Some(tid) = entry.file_name().to_str().and_then(|n| n.parse::<i32>().ok()) else {
            continue;
        };
        let call = text(&format!("/proc/{pid}/task/{tid}/syscall"))
            .and_then(|line| line.split(' ').next()?.parse::<i64>().ok());
        let cut = call.is_some_and(|call| CUT_SHORT.contains(&call));
        let rank = text(&format!("/proc/{pid}/task/{tid}/stat"))
            .and_then(|stat| rank(&stat))
            .map(|rank| if cut { rank.max(1) } else { rank });
        // The first task has the process's descriptors for sure.
        tasks.extend(rank.map(|rank| (rank, tid != pid, tid)));
    }
    tasks.sort_unstable();
    Ok(Target {
        tracer: field(&status, "TracerPid:").unwrap_or(0),
        seccomp: field(&status, "Seccomp:").unwrap_or(0),
        tasks: tasks.into_iter().map(|(_, _, tid)| tid).collect(),
    })
}

/// How readily a task stops, by its state. None: it is dead.
fn rank(stat: &str) -> Option<u8> {
    // The name before it may hold anything, parentheses included.
    match stat.rsplit_once(") ")?.1.as_bytes().first()? {
        b'Z' | b'X' | b'x' => None,
        b'D' => Some(2),
        _ => Some(0),
    }
}

/// Where the process has an instruction that makes a system call: in the kernel's own page, or in what it executes.
pub(super) fn instruction(pid: i32) -> Result<u64, Error> {
    let maps = text(&format!("/proc/{pid}/maps")).ok_or(Error::Gone)?;
    let mut mappings: Vec<(bool, u64, u64)> = maps.lines().filter_map(executable).collect();
    mappings.sort_unstable();
    for (_, from, to) in mappings.into_iter().take(MAX_MAPPINGS) {
        let mut code = vec![0; usize::try_from(to - from).unwrap_or(MAX_CODE).min(MAX_CODE)];
        let got = memory::read(pid, from, &mut code).unwrap_or(0);
        if let Some(at) = find(&code[..got]) {
            return Ok(from + at as u64);
        }
    }
    Err(Error::NoInstruction)
}

/// The range of an executable mapping; the kernel's own comes first.
fn executable(line: &str) -> Option<(bool, u64, u64)> {
    let mut words = line.split_ascii_whitespace();
    let (from, to) = words.next()?.split_once('-')?;
    let number = |hex| u64::from_str_radix(hex, 16).ok();
    let (from, to) = (number(from)?, number(to)?);
    let mode = words.next()?;
    // The page of the old vsyscalls can be executed, but not called into like this.
    let counts = mode.starts_with("r-x") && from < to && !line.ends_with("[vsyscall]");
    counts.then_some((!line.ends_with("[vdso]"), from, to))
}

/// `syscall`.
#[cfg(target_arch = "x86_64")]
fn find(code: &[u8]) -> Option<usize> {
    code.windows(2).position(|w| w == [0x0f, 0x05])
}

/// `svc #0`.
#[cfg(target_arch = "aarch64")]
fn find(code: &[u8]) -> Option<usize> {
    let words = code.chunks_exact(4);
    words
        .map(|w| w == [0x01, 0x00, 0x00, 0xd4])
        .position(|is| is)
        .map(|at| at * 4)
}

/// How the kernel restricts tracing: `/proc/sys/kernel/yama/ptrace_scope`.
pub(super) fn restriction() -> Option<u8> {
    text("/proc/sys/kernel/yama/ptrace_scope")?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_and_mappings_are_read() {
        for (stat, expected) in [
            ("7 (a) b) S 1 2", Some(0)),
            ("7 (a) R 1", Some(0)),
            ("7 (a) T 1", Some(0)),
            ("7 (a) D 1", Some(2)),
            ("7 (a) Z 1", None),
            ("7 (a", None),
        ] {
            assert_eq!(rank(stat), expected, "{stat}");
        }
        for (line, expected) in [
            (
                "1000-2000 r-xp 00000000 00:00 0 [vdso]",
                Some((false, 0x1000, 0x2000)),
            ),
            (
                "1000-2000 r-xp 00000000 fe:00 3 /bin/a",
                Some((true, 0x1000, 0x2000)),
            ),
            ("1000-2000 rw-p 00000000 fe:00 3 /bin/a", None),
            ("2000-1000 r-xp 00000000 fe:00 3 /bin/a", None),
            ("1000-2000 r-xp 00000000 00:00 0 [vsyscall]", None),
            ("x-2000 r-xp", None),
            ("", None),
        ] {
            assert_eq!(executable(line), expected, "{line}");
        }
    }

    #[test]
    fn this_process_is_known_and_has_the_instruction() {
        let pid = std::process::id() as i32;
        let target = target(pid).expect("it lives");
        assert_eq!((target.tracer, target.seccomp), (0, 0));
        assert!(target.tasks.contains(&pid));
        let at = instruction(pid).expect("there is one");
        let mut code = [0; 4];
        assert_eq!(memory::read(pid, at, &mut code), Ok(4));
        assert_eq!(find(&code), Some(0));
        assert_eq!(super::target(i32::MAX), Err(Error::Gone));
    }
}

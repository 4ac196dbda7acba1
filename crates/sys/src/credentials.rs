//! Whom this process acts as. Raw calls: they change the calling thread only, so a process drops privileges
//! before it has a second one.

use crate::{Errno, Result, syscall};

/// Real, effective and saved user id.
pub fn user_ids() -> Result<[u32; 3]> {
    let mut ids = [0u32; 3];
    let at = ids.as_mut_ptr();
    // SAFETY: the kernel writes three numbers.
    unsafe { syscall!(libc::SYS_getresuid, at, at.wrapping_add(1), at.wrapping_add(2)) }?;
    Ok(ids)
}

/// Real, effective and saved group id.
pub fn group_ids() -> Result<[u32; 3]> {
    let mut ids = [0u32; 3];
    let at = ids.as_mut_ptr();
    // SAFETY: the kernel writes three numbers.
    unsafe { syscall!(libc::SYS_getresgid, at, at.wrapping_add(1), at.wrapping_add(2)) }?;
    Ok(ids)
}

/// Whether this process got privileges by its exec that its caller lacks (set-id bits, file capabilities): the kernel's
/// AT_SECURE. Its environment is the caller's, and may not decide what it does with them.
#[cfg(feature = "std")]
pub fn raised_by_exec() -> bool {
    // SAFETY: it reads the vector that the kernel gave at the exec.
    unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
}

/// The supplementary groups.
pub fn groups() -> Result<alloc::vec::Vec<u32>> {
    // SAFETY: with a count of 0 the kernel writes nothing and gives the count; then it writes at most that many
    // numbers, and only this thread changes its groups.
    unsafe {
        let count = syscall!(libc::SYS_getgroups, 0, 0)?;
        let mut list = alloc::vec![0u32; count];
        let got = syscall!(libc::SYS_getgroups, count, list.as_mut_ptr())?;
        list.truncate(got);
        Ok(list)
    }
}

/// Replaces the supplementary groups.
pub fn set_groups(groups: &[u32]) -> Result<()> {
    // SAFETY: the kernel reads as many numbers as it is told.
    unsafe { syscall!(libc::SYS_setgroups, groups.len(), groups.as_ptr()) }.map(drop)
}

/// Sets real, effective and saved group id.
pub fn set_group_ids(gid: u32) -> Result<()> {
    // SAFETY: numbers only.
    unsafe { syscall!(libc::SYS_setresgid, gid, gid, gid) }.map(drop)
}

/// Sets real, effective and saved user id. Leaving 0 clears the permitted, effective and ambient capabilities.
pub fn set_user_ids(uid: u32) -> Result<()> {
    // SAFETY: numbers only.
    unsafe { syscall!(libc::SYS_setresuid, uid, uid, uid) }.map(drop)
}

/// The kernel's version 3 of capset's header, and its two halves of three sets.
const CAPABILITY_VERSION: u32 = 0x2008_0522;

/// Gives up every capability, the inheritable ones too.
pub fn drop_capabilities() -> Result<()> {
    keep_capabilities(&[])
}

/// Gives up every capability but these, which must be permitted. None is inherited.
pub fn keep_capabilities(kept: &[u32]) -> Result<()> {
    let header = [CAPABILITY_VERSION, 0];
    let all = kept.iter().fold(0u64, |all, one| all | 1 << one);
    let (low, high) = (all as u32, (all >> 32) as u32);
    // Effective, permitted, inheritable.
    let sets = [low, low, 0, high, high, 0];
    // SAFETY: the kernel reads a header of two numbers and two triples.
    unsafe { syscall!(libc::SYS_capset, header.as_ptr(), sets.as_ptr()) }.map(drop)
}

/// Sets of capabilities, bit N for capability N.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CapabilitySets {
    /// In force.
    pub effective: u64,
    /// Could be raised.
    pub permitted: u64,
    /// May pass an exec, with a file's.
    pub inheritable: u64,
}

/// Sets what this process has; all of it must be permitted already.
pub fn set_capabilities(sets: CapabilitySets) -> Result<()> {
    let header = [CAPABILITY_VERSION, 0];
    let [effective, permitted, inheritable] =
        [sets.effective, sets.permitted, sets.inheritable].map(|set| [set as u32, (set >> 32) as u32]);
    let halves = [
        effective[0],
        permitted[0],
        inheritable[0],
        effective[1],
        permitted[1],
        inheritable[1],
    ];
    // SAFETY: the kernel reads a header of two numbers and two triples.
    unsafe { syscall!(libc::SYS_capset, header.as_ptr(), halves.as_ptr()) }.map(drop)
}

/// Takes every capability that is not in `kept` from all that this process will ever execute. One call for each that goes.
pub fn bound_capabilities(kept: u64) -> Result<()> {
    for capability in 0..64 {
        if kept >> capability & 1 == 1 {
            continue;
        }
        // SAFETY: numbers only.
        match unsafe { syscall!(libc::SYS_prctl, libc::PR_CAPBSET_DROP, capability, 0, 0, 0) } {
            // The kernel's last capability is behind us.
            Err(Errno::EINVAL) => return Ok(()),
            other => other?,
        };
    }
    Ok(())
}

/// Lets this process keep what is permitted to it when it leaves user 0. An exec takes the flag back.
pub fn keep_permitted() -> Result<()> {
    // SAFETY: numbers only.
    unsafe { syscall!(libc::SYS_prctl, libc::PR_SET_KEEPCAPS, 1, 0, 0, 0) }.map(drop)
}

/// Lets a capability, which must be permitted and inheritable, pass an exec of an ordinary program.
pub fn raise_ambient(capability: u32) -> Result<()> {
    const RAISE: usize = 2;
    // SAFETY: numbers only.
    unsafe { syscall!(libc::SYS_prctl, libc::PR_CAP_AMBIENT, RAISE, capability, 0, 0) }.map(drop)
}

/// `CAP_SYS_ADMIN`: among much else, binding a process by a filter without no_new_privs.
pub const ADMINISTER: u32 = 21;

/// `CAP_NET_BIND_SERVICE`: ports below 1024.
pub const LOW_PORTS: u32 = 10;

/// `CAP_SYS_PTRACE`: reading the memory of others, and what they execute.
pub const READ_OTHERS: u32 = 19;

/// `CAP_DAC_READ_SEARCH`: looking into directories of others, such as /proc/PID/fd.
pub const LOOK_EVERYWHERE: u32 = 2;

/// Becomes a user and group of no other groups who has these capabilities of root's and no way to another.
pub fn become_with(uid: u32, gid: u32, capabilities: &[u32]) -> Result<()> {
    set_groups(&[])?;
    set_group_ids(gid)?;
    keep_permitted()?;
    set_user_ids(uid)?;
    keep_capabilities(capabilities)
}

/// The capabilities that are in force or could be raised: permitted, both halves as one number.
pub fn permitted_capabilities() -> Result<u64> {
    let header = [CAPABILITY_VERSION, 0];
    let mut sets = [0u32; 6];
    // SAFETY: the kernel reads a header of two numbers and writes two triples.
    unsafe { syscall!(libc::SYS_capget, header.as_ptr(), sets.as_mut_ptr()) }?;
    Ok(sets[1] as u64 | (sets[4] as u64) << 32)
}

/// Whether other processes of the same user may trace this one, read its memory and its descriptors.
pub fn set_dumpable(on: bool) -> Result<()> {
    // SAFETY: numbers only.
    unsafe { syscall!(libc::SYS_prctl, libc::PR_SET_DUMPABLE, on as usize, 0, 0, 0) }.map(drop)
}

/// From here on no exec of this process gains privileges.
pub fn set_no_new_privileges() -> Result<()> {
    // SAFETY: numbers only.
    unsafe { syscall!(libc::SYS_prctl, libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) }.map(drop)
}

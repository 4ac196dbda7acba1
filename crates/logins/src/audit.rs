//! What the kernel's audit is told, in the words of libaudit's `audit_log_acct_message`, which sshd and PAM send
//! and which `aureport` and `ausearch` read.

use crate::Entry;
use alloc::vec::Vec;
use fleetgate_sys::audit::Audit;
use fleetgate_sys::{Errno, Result, file};

/// Which event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub enum Event {
    /// Credentials were established.
    CredentialsAcquired = 1103,
    /// Credentials were given up.
    CredentialsDisposed = 1104,
    /// A session began.
    SessionStart = 1105,
    /// A session ended.
    SessionEnd = 1106,
    /// Somebody logged in, or failed to.
    Login = 1112,
    /// Somebody logged out.
    Logout = 1113,
}

/// Tells audit of `events`, in order. A kernel without audit, or a namespace that may not speak to it, is told
/// nothing and that is no error, as with sshd.
pub fn tell(entry: &Entry, events: &[Event], success: bool) -> Result<()> {
    let mut audit = match Audit::open() {
        Err(Errno::EINVAL | Errno::EPROTONOSUPPORT | Errno::EAFNOSUPPORT) => return Ok(()),
        other => other?,
    };
    let exe = file::read_link(c"/proc/self/exe").unwrap_or_default();
    for event in events {
        match audit.tell(*event as u16, &text(entry, *event, success, &exe)) {
            Ok(()) => {}
            // No audit in this namespace; not for this process.
            Err(Errno::ECONNREFUSED | Errno::EPERM) => return Ok(()),
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

/// The message's text. A failed login names the account as typed, everything else the id.
pub fn text(entry: &Entry, event: Event, success: bool, exe: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(256);
    let op: &[u8] = match event {
        Event::CredentialsAcquired | Event::CredentialsDisposed => b"op=setcred",
        Event::SessionStart | Event::SessionEnd | Event::Login | Event::Logout => b"op=login",
    };
    out.extend_from_slice(op);
    if success {
        out.extend_from_slice(alloc::format!(" id={}", entry.uid).as_bytes());
    } else {
        out.extend_from_slice(b" acct=");
        encoded(&mut out, entry.user.to_bytes());
    }
    out.extend_from_slice(b" exe=");
    encoded(&mut out, if exe.is_empty() { b"?" } else { exe });
    for (name, value) in [
        (&b" hostname="[..], entry.host.to_bytes().to_vec()),
        (b" addr=", address(&entry.address)),
        (b" terminal=", entry.line.to_bytes().to_vec()),
    ] {
        out.extend_from_slice(name);
        plain(&mut out, &value);
    }
    out.extend_from_slice(if success { b" res=success" } else { b" res=failed" });
    out
}

/// In quotes; in hexadecimal when it holds what would end the quotes or the field.
fn encoded(out: &mut Vec<u8>, value: &[u8]) {
    if value.iter().any(|b| *b <= b' ' || *b == b'"' || *b >= 0x7f) {
        for b in value {
            out.extend_from_slice(alloc::format!("{b:02X}").as_bytes());
        }
    } else {
        out.push(b'"');
        out.extend_from_slice(value);
        out.push(b'"');
    }
}

/// As it is; `?` where there is none. What could forge another field becomes `_`.
fn plain(out: &mut Vec<u8>, value: &[u8]) {
    if value.is_empty() {
        out.push(b'?');
    }
    out.extend(value.iter().map(|b| match b {
        b' '..=b'~' if !matches!(b, b' ' | b'"' | b'\'' | b'=') => *b,
        _ => b'_',
    }));
}

/// The address as text; empty where there is none.
fn address(bytes: &[u8; 16]) -> Vec<u8> {
    let address = core::net::Ipv6Addr::from(*bytes);
    match address.to_ipv4_mapped() {
        _ if *bytes == [0; 16] => Vec::new(),
        Some(v4) => alloc::format!("{v4}").into_bytes(),
        None => alloc::format!("{address}").into_bytes(),
    }
}

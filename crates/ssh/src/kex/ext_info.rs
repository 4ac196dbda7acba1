//! EXT_INFO (RFC 8308): the extensions that each side names behind its first keys.

use crate::codec::{Malformed, Reader, Write, number};
use crate::info::Extensions;
use crate::message::EXT_INFO;
use crate::settings::{Role, Settings};
use crate::transport::Outgoing;
use crate::transport::version::printable;

/// Extensions in one EXT_INFO.
const EXTENSIONS_MAX: u32 = 64;

/// What we say by EXT_INFO (RFC 8308 §3, OpenSSH's PROTOCOL), as the first message behind our first NEWKEYS.
pub(super) fn send_extensions(settings: &Settings, role: Role, out: &mut Outgoing) {
    let algorithms: Vec<&str> = settings.server_sig_algs.iter().map(String::as_str).collect();
    let mut names = Vec::new();
    names.put_names(&algorithms);
    let algorithms = &names[4..];
    let mut said: Vec<(&str, &[u8])> = Vec::new();
    if role == Role::Server {
        if !algorithms.is_empty() {
            said.push(("server-sig-algs", algorithms));
        }
        said.push(("publickey-hostbound@openssh.com", b"0"));
    }
    said.push(("ping@openssh.com", b"0"));
    if settings.channel_mirror {
        said.push(("channel-mirror@fleetgate", b"0"));
    }
    let mut payload = Vec::with_capacity(256);
    payload.put_u8(EXT_INFO);
    payload.put_u32(number(said.len()));
    for (name, value) in said {
        payload.put_string(name);
        payload.put_string(value);
    }
    out.now(&payload);
}

/// Reads the peer's, behind the message number.
pub(crate) fn read_extensions(r: &mut Reader<'_>, said: &mut Extensions) -> Result<(), Malformed> {
    let count = r.u32("number of extensions")?;
    if count > EXTENSIONS_MAX {
        return Err(Malformed::Invalid("number of extensions"));
    }
    for _ in 0..count {
        let (name, value) = (r.string("extension")?, r.string("extension's value")?);
        match name {
            b"server-sig-algs" => {
                let list = value.split(|&b| b == b',').filter(|n| !n.is_empty()).take(64);
                said.server_sig_algs = Some(list.map(printable).collect());
            }
            b"ping@openssh.com" => said.ping = value == b"0",
            b"channel-mirror@fleetgate" => said.channel_mirror = value == b"0",
            b"publickey-hostbound@openssh.com" => said.hostbound = value == b"0",
            _ => {}
        }
    }
    r.end()
}

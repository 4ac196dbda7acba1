//! Kinds of channels, channel requests and global requests: their names and fields (RFC 4254 §6 and §7, RFC 4335,
//! OpenSSH's PROTOCOL). What has another name is handed on whole.

use crate::codec::{Malformed, Reader, Write};
use crate::event::{ChannelKind, Global, Pty, Request, WindowSize};
use crate::message as number;

/// Host keys in one hostkeys message, at most.
pub const MAX_HOST_KEYS: usize = 64;

/// The numbers: the sender's channel, its window, its largest packet.
pub(super) fn read_open(mut r: Reader<'_>) -> Result<(ChannelKind, [u32; 3]), Malformed> {
    let name = r.string("channel type")?;
    let numbers = [
        r.u32("sender's channel")?,
        r.u32("window")?,
        r.u32("largest packet")?,
    ];
    let kind = match name {
        b"session" => ChannelKind::Session,
        b"direct-tcpip" => {
            let (host, port, origin, origin_port) = addresses(&mut r)?;
            ChannelKind::DirectTcpip {
                host,
                port,
                origin,
                origin_port,
            }
        }
        b"forwarded-tcpip" => {
            let (host, port, origin, origin_port) = addresses(&mut r)?;
            ChannelKind::ForwardedTcpip {
                host,
                port,
                origin,
                origin_port,
            }
        }
        b"direct-streamlocal@openssh.com" => {
            let path = r.string("path")?.to_vec();
            r.string("reserved string")?;
            r.u32("reserved number")?;
            ChannelKind::DirectStreamlocal { path }
        }
        b"forwarded-streamlocal@openssh.com" => {
            let path = r.string("path")?.to_vec();
            r.string("reserved string")?;
            ChannelKind::ForwardedStreamlocal { path }
        }
        b"x11" => ChannelKind::X11 {
            origin: r.string("origin")?.to_vec(),
            origin_port: r.u32("origin's port")?,
        },
        b"auth-agent@openssh.com" => ChannelKind::Agent,
        name => ChannelKind::Other {
            name: name.to_vec(),
            payload: rest(&mut r),
        },
    };
    r.end()?;
    Ok((kind, numbers))
}

pub(super) fn write_open(out: &mut Vec<u8>, kind: &ChannelKind, numbers: [u32; 3]) {
    out.put_u8(number::CHANNEL_OPEN);
    let name: &[u8] = match kind {
        ChannelKind::Session => b"session",
        ChannelKind::DirectTcpip { .. } => b"direct-tcpip",
        ChannelKind::ForwardedTcpip { .. } => b"forwarded-tcpip",
        ChannelKind::DirectStreamlocal { .. } => b"direct-streamlocal@openssh.com",
        ChannelKind::ForwardedStreamlocal { .. } => b"forwarded-streamlocal@openssh.com",
        ChannelKind::X11 { .. } => b"x11",
        ChannelKind::Agent => b"auth-agent@openssh.com",
        ChannelKind::Other { name, .. } => &name[..],
    };
    out.put_string(name);
    for field in numbers {
        out.put_u32(field);
    }
    match kind {
        ChannelKind::Session | ChannelKind::Agent => {}
        ChannelKind::DirectTcpip {
            host,
            port,
            origin,
            origin_port,
        }
        | ChannelKind::ForwardedTcpip {
            host,
            port,
            origin,
            origin_port,
        } => {
            out.put_string(host);
            out.put_u32(*port);
            out.put_string(origin);
            out.put_u32(*origin_port);
        }
        ChannelKind::DirectStreamlocal { path } => {
            out.put_string(path);
            out.put_string("");
            out.put_u32(0);
        }
        ChannelKind::ForwardedStreamlocal { path } => {
            out.put_string(path);
            out.put_string("");
        }
        ChannelKind::X11 { origin, origin_port } => {
            out.put_string(origin);
            out.put_u32(*origin_port);
        }
        ChannelKind::Other { payload, .. } => out.put(payload),
    }
}

/// The request, and whether it is to be answered.
pub(super) fn read_request(mut r: Reader<'_>) -> Result<(Request, bool), Malformed> {
    let name = r.string("request's name")?;
    let want_reply = r.bool("want reply flag")?;
    let request = match name {
        b"pty-req" => {
            let term = r.string("terminal")?.to_vec();
            let size = size(&mut r)?;
            let modes = r.string("modes")?.to_vec();
            Request::Pty(Pty { term, size, modes })
        }
        b"shell" => Request::Shell,
        b"exec" => Request::Exec {
            command: r.string("command")?.to_vec(),
        },
        b"subsystem" => Request::Subsystem {
            name: r.string("subsystem")?.to_vec(),
        },
        b"env" => Request::Env {
            name: r.string("variable's name")?.to_vec(),
            value: r.string("variable's value")?.to_vec(),
        },
        b"window-change" => Request::WindowChange(size(&mut r)?),
        b"signal" => Request::Signal {
            name: r.string("signal")?.to_vec(),
        },
        b"break" => Request::Break {
            milliseconds: r.u32("length")?,
        },
        b"x11-req" => Request::X11 {
            single: r.bool("single connection flag")?,
            protocol: r.string("protocol")?.to_vec(),
            cookie: r.string("cookie")?.to_vec(),
            screen: r.u32("screen")?,
        },
        b"auth-agent-req@openssh.com" => Request::Agent,
        b"exit-status" => Request::ExitStatus {
            code: r.u32("status")?,
        },
        b"exit-signal" => {
            let name = r.string("signal")?.to_vec();
            let core = r.bool("core flag")?;
            let message = r.string("text")?.to_vec();
            r.string("language")?;
            Request::ExitSignal { name, core, message }
        }
        b"eow@openssh.com" => Request::EndOfWrite,
        name => Request::Other {
            name: name.to_vec(),
            payload: rest(&mut r),
        },
    };
    r.end()?;
    Ok((request, want_reply))
}

pub(super) fn write_request(out: &mut Vec<u8>, ours: u32, request: &Request, want_reply: bool) {
    out.put_u8(number::CHANNEL_REQUEST);
    out.put_u32(ours);
    let name: &[u8] = match request {
        Request::Pty(_) => b"pty-req",
        Request::Shell => b"shell",
        Request::Exec { .. } => b"exec",
        Request::Subsystem { .. } => b"subsystem",
        Request::Env { .. } => b"env",
        Request::WindowChange(_) => b"window-change",
        Request::Signal { .. } => b"signal",
        Request::Break { .. } => b"break",
        Request::X11 { .. } => b"x11-req",
        Request::Agent => b"auth-agent-req@openssh.com",
        Request::ExitStatus { .. } => b"exit-status",
        Request::ExitSignal { .. } => b"exit-signal",
        Request::EndOfWrite => b"eow@openssh.com",
        Request::Other { name, .. } => &name[..],
    };
    out.put_string(name);
    out.put_bool(want_reply);
    match request {
        Request::Shell | Request::Agent | Request::EndOfWrite => {}
        Request::Pty(pty) => {
            out.put_string(&pty.term);
            put_size(out, &pty.size);
            out.put_string(&pty.modes);
        }
        Request::Exec { command: only }
        | Request::Subsystem { name: only }
        | Request::Signal { name: only } => {
            out.put_string(only);
        }
        Request::Env { name, value } => {
            out.put_string(name);
            out.put_string(value);
        }
        Request::WindowChange(size) => put_size(out, size),
        Request::Break { milliseconds: only } | Request::ExitStatus { code: only } => out.put_u32(*only),
        Request::X11 {
            single,
            protocol,
            cookie,
            screen,
        } => {
            out.put_bool(*single);
            out.put_string(protocol);
            out.put_string(cookie);
            out.put_u32(*screen);
        }
        Request::ExitSignal { name, core, message } => {
            out.put_string(name);
            out.put_bool(*core);
            out.put_string(message);
            out.put_string("");
        }
        Request::Other { payload, .. } => out.put(payload),
    }
}

/// The request, and whether it is to be answered.
pub(super) fn read_global(mut r: Reader<'_>) -> Result<(Global, bool), Malformed> {
    let name = r.string("request's name")?;
    let want_reply = r.bool("want reply flag")?;
    let request = match name {
        b"tcpip-forward" => Global::TcpipForward {
            host: r.string("address")?.to_vec(),
            port: r.u32("port")?,
        },
        b"cancel-tcpip-forward" => Global::CancelTcpipForward {
            host: r.string("address")?.to_vec(),
            port: r.u32("port")?,
        },
        b"streamlocal-forward@openssh.com" => Global::StreamlocalForward {
            path: r.string("path")?.to_vec(),
        },
        b"cancel-streamlocal-forward@openssh.com" => Global::CancelStreamlocalForward {
            path: r.string("path")?.to_vec(),
        },
        b"no-more-sessions@openssh.com" => Global::NoMoreSessions,
        b"hostkeys-00@openssh.com" => Global::HostKeys { keys: keys(&mut r)? },
        b"hostkeys-prove-00@openssh.com" => Global::ProveHostKeys { keys: keys(&mut r)? },
        name => Global::Other {
            name: name.to_vec(),
            payload: rest(&mut r),
        },
    };
    r.end()?;
    Ok((request, want_reply))
}

pub(super) fn write_global(out: &mut Vec<u8>, request: &Global, want_reply: bool) {
    out.put_u8(number::GLOBAL_REQUEST);
    let name: &[u8] = match request {
        Global::TcpipForward { .. } => b"tcpip-forward",
        Global::CancelTcpipForward { .. } => b"cancel-tcpip-forward",
        Global::StreamlocalForward { .. } => b"streamlocal-forward@openssh.com",
        Global::CancelStreamlocalForward { .. } => b"cancel-streamlocal-forward@openssh.com",
        Global::NoMoreSessions => b"no-more-sessions@openssh.com",
        Global::HostKeys { .. } => b"hostkeys-00@openssh.com",
        Global::ProveHostKeys { .. } => b"hostkeys-prove-00@openssh.com",
        Global::Other { name, .. } => &name[..],
    };
    out.put_string(name);
    out.put_bool(want_reply);
    match request {
        Global::TcpipForward { host, port } | Global::CancelTcpipForward { host, port } => {
            out.put_string(host);
            out.put_u32(*port);
        }
        Global::StreamlocalForward { path } | Global::CancelStreamlocalForward { path } => {
            out.put_string(path);
        }
        Global::NoMoreSessions => {}
        Global::HostKeys { keys } | Global::ProveHostKeys { keys } => {
            for key in keys {
                out.put_string(key);
            }
        }
        Global::Other { payload, .. } => out.put(payload),
    }
}

/// Host, port, origin, origin's port.
fn addresses(r: &mut Reader<'_>) -> Result<(Vec<u8>, u32, Vec<u8>, u32), Malformed> {
    Ok((
        r.string("host")?.to_vec(),
        r.u32("port")?,
        r.string("origin")?.to_vec(),
        r.u32("origin's port")?,
    ))
}

fn size(r: &mut Reader<'_>) -> Result<WindowSize, Malformed> {
    Ok(WindowSize {
        columns: r.u32("columns")?,
        rows: r.u32("rows")?,
        width: r.u32("width")?,
        height: r.u32("height")?,
    })
}

fn put_size(out: &mut Vec<u8>, size: &WindowSize) {
    for field in [size.columns, size.rows, size.width, size.height] {
        out.put_u32(field);
    }
}

fn keys(r: &mut Reader<'_>) -> Result<Vec<Vec<u8>>, Malformed> {
    let mut keys = Vec::new();
    while !r.rest().is_empty() {
        if keys.len() == MAX_HOST_KEYS {
            return Err(Malformed::Invalid("number of host keys"));
        }
        keys.push(r.string("host key")?.to_vec());
    }
    Ok(keys)
}

/// All that is left, taken.
fn rest(r: &mut Reader<'_>) -> Vec<u8> {
    let rest = r.rest().to_vec();
    *r = Reader::new(&[]);
    rest
}

//! The one thing that is read of a TLS ClientHello before TLS itself reads it: the name that is asked for (RFC 6066 §3).
//! Whatever is not as it should be is nobody's name: TLS itself says what is wrong with it.

/// The most that is read before the name is known; a ClientHello with a post-quantum share has 1.8 KB.
pub const HELLO_MAX: usize = 16 * 1024;

/// What the bytes so far say.
#[derive(Debug, PartialEq, Eq)]
pub enum ServerName<'a> {
    /// Not enough yet.
    More,
    /// For this name.
    Name(&'a str),
    /// For no name, or it is no ClientHello.
    Nobody,
}

/// The name in the first bytes of a connection. Records are put together in `room`.
#[must_use]
pub fn name<'a>(bytes: &[u8], room: &'a mut Vec<u8>) -> ServerName<'a> {
    room.clear();
    let mut rest = bytes;
    loop {
        // A record: type, version, length (RFC 8446 §5.1). A hello may be cut into several.
        let Some((head, body)) = rest.split_first_chunk::<5>() else {
            return waits(bytes);
        };
        if head[0] != 22 {
            return ServerName::Nobody;
        }
        let length = usize::from(u16::from_be_bytes([head[3], head[4]]));
        // An empty one could go on for ever.
        if length == 0 || length > 1 << 14 {
            return ServerName::Nobody;
        }
        let complete = body.len() >= length;
        room.extend_from_slice(&body[..length.min(body.len())]);
        if let Some(whole) = whole(room) {
            let range = match whole {
                Whole::Is(length) => 4..4 + length,
                Whole::Not => return ServerName::Nobody,
            };
            return match server_name(&room[range]) {
                Some(name) => ServerName::Name(name),
                None => ServerName::Nobody,
            };
        }
        if !complete {
            return waits(bytes);
        }
        rest = &body[length..];
    }
}

fn waits(bytes: &[u8]) -> ServerName<'static> {
    if bytes.len() < HELLO_MAX {
        ServerName::More
    } else {
        ServerName::Nobody
    }
}

enum Whole {
    Is(usize),
    Not,
}

/// A handshake message: type 1, 24 bits of length (RFC 8446 §4).
fn whole(message: &[u8]) -> Option<Whole> {
    let (&kind, _) = message.split_first()?;
    if kind != 1 {
        return Some(Whole::Not);
    }
    let head = message.first_chunk::<4>()?;
    let length = u32::from_be_bytes([0, head[1], head[2], head[3]]) as usize;
    if length > HELLO_MAX {
        return Some(Whole::Not);
    }
    (message.len() >= 4 + length).then_some(Whole::Is(length))
}

/// RFC 8446 §4.1.2: version, random, session id, suites, compression, extensions.
fn server_name(hello: &[u8]) -> Option<&str> {
    let rest = hello.get(2 + 32..)?;
    let (_, rest) = vector(rest, 1)?;
    let (_, rest) = vector(rest, 2)?;
    let (_, rest) = vector(rest, 1)?;
    let (mut extensions, _) = vector(rest, 2)?;
    while let Some((kind, rest)) = extensions.split_first_chunk::<2>() {
        let (body, rest) = vector(rest, 2)?;
        if u16::from_be_bytes(*kind) == 0 {
            // A list with one entry of the one type that there is.
            let (list, _) = vector(body, 2)?;
            let (&kind, list) = list.split_first()?;
            let (name, _) = vector(list, 2)?;
            return if kind == 0 {
                std::str::from_utf8(name).ok()
            } else {
                None
            };
        }
        extensions = rest;
    }
    None
}

/// What its length in the first `width` bytes says, and the rest.
fn vector(bytes: &[u8], width: usize) -> Option<(&[u8], &[u8])> {
    let (length, rest) = bytes.split_at_checked(width)?;
    let length = length
        .iter()
        .fold(0, |length, byte| length << 8 | usize::from(*byte));
    rest.split_at_checked(length)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A hello that asks for the name, in records of so many bytes.
    fn hello(asked: Option<&str>, record: usize) -> Vec<u8> {
        let mut body = vec![3, 3];
        body.extend([7; 32]);
        body.extend([0, 0, 2, 0x13, 1, 1, 0]);
        let mut extensions = vec![0, 43, 0, 3, 2, 3, 4];
        if let Some(name) = asked {
            let length = name.len() as u8;
            extensions.extend([0, 0, 0, length + 5, 0, length + 3, 0, 0, length]);
            extensions.extend(name.as_bytes());
        }
        body.extend((extensions.len() as u16).to_be_bytes());
        body.extend(extensions);
        let mut message = vec![1];
        message.extend(&(body.len() as u32).to_be_bytes()[1..]);
        message.extend(body);
        message
            .chunks(record)
            .flat_map(|part| [&[22, 3, 1][..], &(part.len() as u16).to_be_bytes(), part].concat())
            .collect()
    }

    #[test]
    fn a_name_is_found_however_it_is_cut() {
        let mut room = Vec::new();
        for record in [1, 7, 50, 1000] {
            let bytes = hello(Some("auth.fleetgate"), record);
            for end in 0..bytes.len() {
                assert_eq!(name(&bytes[..end], &mut room), ServerName::More, "{record} {end}");
            }
            assert_eq!(name(&bytes, &mut room), ServerName::Name("auth.fleetgate"));
            assert_eq!(
                name(&[bytes, vec![9]].concat(), &mut room),
                ServerName::Name("auth.fleetgate")
            );
        }
        assert_eq!(name(&hello(None, 1000), &mut room), ServerName::Nobody);
    }

    #[test]
    fn what_is_no_hello_is_nobodys() {
        let good = hello(Some("x"), 1000);
        let mut room = Vec::new();
        let mut with = |at: usize, byte: u8| {
            let mut bad = good.clone();
            bad[at] = byte;
            name(&bad, &mut room) == ServerName::Nobody
        };
        // Not a handshake; an empty record; one too long; not a hello; a hello too long; a name of another type.
        assert!(with(0, 23) && with(3, 0x41) && with(5, 2) && with(6, 1));
        assert!(with(good.len() - 4, 1));
        let mut room = Vec::new();
        assert_eq!(name(&[22, 3, 1, 0, 0], &mut room), ServerName::Nobody);
        let mut never = vec![22, 3, 1, 0x40, 0, 1, 0, 0x3f, 0xff];
        never.resize(HELLO_MAX, 0);
        assert_eq!(name(&never, &mut room), ServerName::Nobody, "bounded");
        assert_eq!(name(&never[..100], &mut room), ServerName::More, "control");
    }
}

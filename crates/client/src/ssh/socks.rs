//! The server's half of SOCKS 4, 4a and 5 (RFC 1928), without passwords: only who is on this machine reaches it. It reads
//! what is asked for and writes what came of it; it connects to nothing.

use super::forward::Target;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// A name of a host or user that is asked for, at most (RFC 1928 §5 has one byte of length).
pub const MAX_NAME: usize = 255;
/// How long somebody may take to say what he wants.
pub(crate) const ASK_TIME: Duration = Duration::from_secs(30);

/// Which version is spoken: for the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Version {
    Four,
    Five,
}

impl Version {
    /// What whoever asked is told when the way is open, or is not.
    pub(crate) fn answer(self, open: bool) -> Vec<u8> {
        match (self, open) {
            (Version::Four, true) => vec![0, 90, 0, 0, 0, 0, 0, 0],
            (Version::Four, false) => vec![0, 91, 0, 0, 0, 0, 0, 0],
            (Version::Five, true) => vec![5, 0, 0, 1, 0, 0, 0, 0, 0, 0],
            (Version::Five, false) => vec![5, 5, 0, 1, 0, 0, 0, 0, 0, 0],
        }
    }
}

/// Reads where to connect to.
pub(crate) async fn ask(stream: &mut (impl AsyncRead + AsyncWrite + Unpin)) -> io::Result<(Target, Version)> {
    match stream.read_u8().await? {
        4 => four(stream).await,
        5 => five(stream).await,
        _ => Err(wrong("it is neither SOCKS 4 nor SOCKS 5")),
    }
}

async fn four(stream: &mut (impl AsyncRead + AsyncWrite + Unpin)) -> io::Result<(Target, Version)> {
    let command = stream.read_u8().await?;
    let port = stream.read_u16().await?;
    let address = stream.read_u32().await?;
    name(stream).await?;
    // 4a: an address that cannot be says that a name follows.
    let host = match address {
        1..=255 => name(stream).await?,
        address => Ipv4Addr::from(address).to_string(),
    };
    if command != 1 {
        stream.write_all(&Version::Four.answer(false)).await?;
        return Err(wrong("only CONNECT is served"));
    }
    Ok((Target::Tcp { host, port }, Version::Four))
}

async fn five(stream: &mut (impl AsyncRead + AsyncWrite + Unpin)) -> io::Result<(Target, Version)> {
    let mut methods = vec![0; usize::from(stream.read_u8().await?)];
    stream.read_exact(&mut methods).await?;
    if !methods.contains(&0) {
        stream.write_all(&[5, 0xff]).await?;
        return Err(wrong("it wants a password"));
    }
    stream.write_all(&[5, 0]).await?;
    let [version, command, _, kind] = stream.read_u32().await?.to_be_bytes();
    let host = match kind {
        1 => Ipv4Addr::from(stream.read_u32().await?).to_string(),
        4 => Ipv6Addr::from(stream.read_u128().await?).to_string(),
        3 => {
            let mut name = vec![0; usize::from(stream.read_u8().await?)];
            stream.read_exact(&mut name).await?;
            String::from_utf8(name).map_err(|_| wrong("a name that is no text"))?
        }
        _ => return Err(wrong("an address of an unknown kind")),
    };
    let port = stream.read_u16().await?;
    if version != 5 || command != 1 {
        // RFC 1928 §6: 7, the command is not supported.
        stream.write_all(&[5, 7, 0, 1, 0, 0, 0, 0, 0, 0]).await?;
        return Err(wrong("only CONNECT is served"));
    }
    Ok((Target::Tcp { host, port }, Version::Five))
}

/// Up to a zero byte.
async fn name(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<String> {
    let mut name = Vec::new();
    loop {
        match stream.read_u8().await? {
            0 => return String::from_utf8(name).map_err(|_| wrong("a name that is no text")),
            _ if name.len() == MAX_NAME => return Err(wrong("a name of more than 255 bytes")),
            byte => name.push(byte),
        }
    }
}

fn wrong(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_for_is_read_and_bounded() {
        let long = [&[4, 1, 0, 80, 0, 0, 0, 1, 0][..], &[b'x'; MAX_NAME + 1], &[0]].concat();
        type Row<'a> = (&'a [u8], Option<(&'a str, u16)>);
        let table: [Row<'_>; 9] = [
            (&[4, 1, 0, 80, 10, 0, 0, 1, b'm', b'e', 0], Some(("10.0.0.1", 80))),
            (
                &[4, 1, 0, 80, 0, 0, 0, 1, 0, b'w', b'e', b'b', 0],
                Some(("web", 80)),
            ),
            (
                &[5, 1, 0, 5, 1, 0, 3, 3, b'w', b'e', b'b', 0, 80],
                Some(("web", 80)),
            ),
            (
                &[5, 2, 1, 0, 5, 1, 0, 1, 10, 0, 0, 1, 1, 0],
                Some(("10.0.0.1", 256)),
            ),
            (&[5, 1, 2], None),
            (&[5, 1, 0, 5, 2, 0, 1, 10, 0, 0, 1, 1, 0], None),
            (&[4, 2, 0, 80, 10, 0, 0, 1, 0], None),
            (b"GET / HTTP/1.1\r\n\r\n", None),
            (&long, None),
        ];
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        for (asked, wanted) in table {
            let (mut ours, mut theirs) = tokio::io::duplex(1024);
            let got = runtime.block_on(async {
                theirs.write_all(asked).await.unwrap();
                theirs.shutdown().await.unwrap();
                ask(&mut ours).await
            });
            let got = got.ok().map(|(to, _)| to);
            let wanted = wanted.map(|(host, port)| Target::Tcp {
                host: host.into(),
                port,
            });
            assert_eq!(got, wanted, "{asked:?}");
        }
    }
}

//! A connection that a proxy passes on to auth without looking into it. The proxy proves its certificate first, by TLS of
//! its own ([`crate::tls::RELAY`]). In it comes one line that says where the connection is from, the PROXY protocol's
//! version 1 with the destination left open, and behind it the connection's bytes. The line alone proves nothing, and is read
//! from nobody but a proxy.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::time::timeout;

/// The longest line (the protocol's own bound).
pub const MAX_LINE: usize = 107;
/// How long the line may take.
pub const DEADLINE: Duration = Duration::from_secs(5);

/// The line of a connection from there.
#[must_use]
pub fn line(source: SocketAddr) -> String {
    let port = source.port();
    match source.ip().to_canonical() {
        IpAddr::V4(ip) => format!("PROXY TCP4 {ip} 0.0.0.0 {port} 0\r\n"),
        IpAddr::V6(ip) => format!("PROXY TCP6 {ip} :: {port} 0\r\n"),
    }
}

/// Takes the line off a connection.
pub async fn read<IO: AsyncRead + Unpin>(stream: &mut IO) -> io::Result<SocketAddr> {
    let late = |_| io::Error::new(io::ErrorKind::TimedOut, "the line did not come");
    timeout(DEADLINE, read_line(stream)).await.map_err(late)?
}

async fn read_line<IO: AsyncRead + Unpin>(stream: &mut IO) -> io::Result<SocketAddr> {
    let wrong = || {
        io::Error::new(
            io::ErrorKind::InvalidData,
            "the proxy's first line cannot be read",
        )
    };
    let mut line = Vec::with_capacity(MAX_LINE);
    while !line.ends_with(b"\r\n") {
        if line.len() == MAX_LINE {
            return Err(wrong());
        }
        line.push(stream.read_u8().await?);
    }
    parse(&line).ok_or_else(wrong)
}

fn parse(line: &[u8]) -> Option<SocketAddr> {
    let line = std::str::from_utf8(line).ok()?.strip_suffix("\r\n")?;
    let mut words = line.split(' ');
    let (kind, family) = (words.next()?, words.next()?);
    let (source, _, port, _) = (words.next()?, words.next()?, words.next()?, words.next()?);
    let source: IpAddr = source.parse().ok()?;
    let right = kind == "PROXY" && matches!(family, "TCP4" | "TCP6") && words.next().is_none();
    right.then_some(SocketAddr::new(source, port.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::AsyncWriteExt;

    #[tokio::test]
    async fn a_line_says_where_a_connection_comes_from() {
        let long = format!("PROXY TCP4 {}\r\n", "1".repeat(MAX_LINE));
        let source = |text: &str| text.parse::<SocketAddr>().unwrap();
        let table = [
            (
                line("192.0.2.1:40000".parse().unwrap()),
                Ok(source("192.0.2.1:40000")),
            ),
            (
                line("[::ffff:192.0.2.1]:7".parse().unwrap()),
                Ok(source("192.0.2.1:7")),
            ),
            (
                line("[2001:db8::1]:7".parse().unwrap()),
                Ok(source("[2001:db8::1]:7")),
            ),
            // What the protocol's other users send.
            (
                "PROXY TCP4 192.0.2.1 127.0.0.1 40000 3025\r\n".into(),
                Ok(source("192.0.2.1:40000")),
            ),
            ("\u{16}TLS".into(), Err(())),
            ("PROXY UNKNOWN\r\n".into(), Err(())),
            ("PROXY TCP4 192.0.2.1 127.0.0.1 40000\r\n".into(), Err(())),
            ("PROXY TCP4 192.0.2.1 127.0.0.1 70000 3025\r\n".into(), Err(())),
            ("PROXY TCP4 web1 127.0.0.1 40000 3025\r\n".into(), Err(())),
            ("PROXY TCP4 192.0.2.1 127.0.0.1 40000 3025 x\r\n".into(), Err(())),
            (long, Err(())),
            ("PROXY TCP4 192".into(), Err(())),
        ];
        for (sent, told) in table {
            let (mut client, mut server) = tokio::io::duplex(1024);
            client.write_all(sent.as_bytes()).await.unwrap();
            client.write_all(b"rest").await.unwrap();
            client.shutdown().await.unwrap();
            assert_eq!(read(&mut server).await.map_err(drop), told, "{sent:?}");
            if told.is_ok() {
                let mut rest = String::new();
                server.read_to_string(&mut rest).await.unwrap();
                assert_eq!(rest, "rest", "nothing more of it was taken");
            }
        }
    }
}

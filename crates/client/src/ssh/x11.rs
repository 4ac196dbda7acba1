//! X11 from the far side to the display here. The far side gets a cookie of our own making; a connection that shows it is
//! led to the display with the display's cookie in its place (RFC 4254 §6.3.1), any other is ended. It asks xauth(1) for
//! cookies and speaks nothing of X11 but the first packet of a connection.

use super::forward::Target;
use super::options::X11;
use fleetgate_ssh::event::Request;
use ring::rand::{SecureRandom, SystemRandom};
use std::io;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpStream, UnixStream};

/// The only protocol of cookies that is used.
const PROTOCOL: &[u8] = b"MIT-MAGIC-COOKIE-1";
/// A cookie's bytes.
const COOKIE: usize = 16;
/// The first port of displays.
const PORT: u16 = 6000;
/// How long a connection may take to show its cookie.
const FIRST_PACKET: Duration = Duration::from_secs(30);
/// How long the display takes connections with a cookie that it distrusts (ssh: ForwardX11Timeout).
const UNTRUSTED: Duration = Duration::from_secs(1200);

/// The display, and the cookies for it.
#[derive(Clone, Debug)]
pub struct Display {
    to: Target,
    screen: u32,
    ours: [u8; COOKIE],
    its: [u8; COOKIE],
    until: Option<Instant>,
}

impl Display {
    /// The display that DISPLAY names. Why there is none, in words.
    pub fn find(how: X11) -> Result<Display, String> {
        let name = std::env::var("DISPLAY").map_err(|_| "DISPLAY is not set".to_owned())?;
        let (to, screen) = place(&name).ok_or_else(|| format!("DISPLAY is {name:?}, which is no display"))?;
        let mut random = [0; 2 * COOKIE];
        SystemRandom::new()
            .fill(&mut random)
            .map_err(|_| "there are no random numbers".to_owned())?;
        let (mut ours, mut its) = ([0; COOKIE], [0; COOKIE]);
        ours.copy_from_slice(&random[..COOKIE]);
        its.copy_from_slice(&random[COOKIE..]);
        let until = match how {
            X11::Untrusted => {
                its = distrusted(&name)?;
                Some(Instant::now() + UNTRUSTED)
            }
            X11::Trusted => {
                // A display that wants no cookie takes any.
                its = xauth(&["list", &listed(&name)])
                    .and_then(|out| cookie(&out))
                    .unwrap_or(its);
                None
            }
        };
        Ok(Display {
            to,
            screen,
            ours,
            its,
            until,
        })
    }

    /// What the far side is asked.
    pub fn request(&self) -> Request {
        Request::X11 {
            single: false,
            protocol: PROTOCOL.to_vec(),
            cookie: fleetgate_policy::text::hex(&self.ours).into_bytes(),
            screen: self.screen,
        }
    }

    /// Whether a connection may still begin.
    pub fn is_open(&self) -> bool {
        self.until.is_none_or(|until| Instant::now() < until)
    }

    /// Carries one connection, from its first packet to its end.
    pub async fn carry(self, mut client: UnixStream) -> io::Result<()> {
        let first = tokio::time::timeout(FIRST_PACKET, self.first_packet(&mut client));
        let first = first
            .await
            .map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
        match &self.to {
            Target::Unix(path) => join(client, UnixStream::connect(path).await?, &first).await,
            Target::Tcp { host, port } => {
                join(client, TcpStream::connect((host.as_str(), *port)).await?, &first).await
            }
            Target::Socks => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    /// The first packet with the display's cookie, of a client that shows ours.
    pub(crate) async fn first_packet(&self, client: &mut (impl AsyncRead + Unpin)) -> io::Result<Vec<u8>> {
        let refused = |why: &str| io::Error::new(io::ErrorKind::PermissionDenied, why.to_owned());
        let mut packet = vec![0; 12];
        client.read_exact(&mut packet).await?;
        let number = |at: usize| match packet[0] {
            b'B' => Some(u16::from_be_bytes([packet[at], packet[at + 1]])),
            b'l' => Some(u16::from_le_bytes([packet[at], packet[at + 1]])),
            _ => None,
        };
        let (Some(name), Some(data)) = (number(6), number(8)) else {
            return Err(refused("it does not speak X11"));
        };
        if (usize::from(name), usize::from(data)) != (PROTOCOL.len(), COOKIE) {
            return Err(refused("it shows no cookie"));
        }
        let at = 12 + PROTOCOL.len().next_multiple_of(4);
        packet.resize(at + COOKIE, 0);
        client.read_exact(&mut packet[12..]).await?;
        let same = packet[at..]
            .iter()
            .zip(self.ours)
            .fold(0, |sum, (a, b)| sum | (a ^ b))
            == 0;
        if &packet[12..12 + PROTOCOL.len()] != PROTOCOL || !same {
            return Err(refused("it shows another cookie"));
        }
        packet[at..].copy_from_slice(&self.its);
        Ok(packet)
    }
}

async fn join<S>(mut client: UnixStream, mut display: S, first: &[u8]) -> io::Result<()>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    display.write_all(first).await?;
    copy_bidirectional(&mut client, &mut display).await.map(drop)
}

/// Where a display is: `:0`, `unix:0`, `host:10.1`; and its screen.
fn place(name: &str) -> Option<(Target, u32)> {
    let (host, number) = name.rsplit_once(':')?;
    let (number, screen) = number.split_once('.').unwrap_or((number, "0"));
    let (number, screen) = (number.parse::<u16>().ok()?, screen.parse().ok()?);
    let to = match host {
        "" | "unix" => Target::Unix(PathBuf::from(format!("/tmp/.X11-unix/X{number}"))),
        host => Target::Tcp {
            host: host.trim_start_matches('[').trim_end_matches(']').to_owned(),
            port: PORT.checked_add(number)?,
        },
    };
    Some((to, screen))
}

/// As xauth lists it: a display of this machine by its socket.
fn listed(name: &str) -> String {
    match name.strip_prefix("localhost:") {
        Some(number) => format!("unix:{number}"),
        None => name.to_owned(),
    }
}

/// A cookie that the display made for clients it distrusts.
fn distrusted(name: &str) -> Result<[u8; COOKIE], String> {
    let directory = std::env::temp_dir().join(format!("fleetgate-x11-{}", std::process::id()));
    let failed = |e: &dyn std::fmt::Display| format!("{}: {e}", directory.display());
    std::os::unix::fs::DirBuilderExt::mode(&mut std::fs::DirBuilder::new(), 0o700)
        .create(&directory)
        .map_err(|e| failed(&e))?;
    let file = directory.join("cookie");
    let file = file.to_string_lossy().into_owned();
    let time = UNTRUSTED.as_secs().to_string();
    let protocol = String::from_utf8_lossy(PROTOCOL).into_owned();
    let made = xauth(&[
        "-f",
        &file,
        "generate",
        name,
        &protocol,
        "untrusted",
        "timeout",
        &time,
    ])
    .and_then(|_| xauth(&["-f", &file, "list", name]))
    .and_then(|out| cookie(&out));
    let _ = std::fs::remove_dir_all(&directory);
    made.ok_or_else(|| {
        "the display makes no cookie that it distrusts (xauth generate); -Y forwards with its full trust"
            .to_owned()
    })
}

fn xauth(words: &[&str]) -> Option<String> {
    let out = Command::new("xauth")
        .arg("-q")
        .args(words)
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output()
        .ok()?;
    out.status
        .success()
        .then(|| String::from_utf8_lossy(&out.stdout).into_owned())
}

/// The first cookie in what xauth lists: a display, a protocol, and hexadecimal.
fn cookie(list: &str) -> Option<[u8; COOKIE]> {
    let hex = list.lines().find_map(|line| {
        let mut words = line.split_whitespace().skip(1);
        (words.next()?.as_bytes() == PROTOCOL).then(|| words.next())?
    })?;
    let mut cookie = [0; COOKIE];
    if hex.len() != 2 * COOKIE || !hex.is_ascii() {
        return None;
    }
    for (byte, digits) in cookie.iter_mut().zip(hex.as_bytes().chunks(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?;
    }
    Some(cookie)
}

/// One whose cookies are known.
#[cfg(any(test, feature = "fuzz"))]
pub(crate) fn known(to: Target) -> Display {
    Display {
        to,
        screen: 0,
        ours: [7; COOKIE],
        its: [9; COOKIE],
        until: None,
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub fn at(socket: &std::path::Path) -> Display {
        known(Target::Unix(socket.to_owned()))
    }

    fn packet(order: u8, name: &[u8], data: &[u8]) -> Vec<u8> {
        let number = |n: usize| match order {
            b'B' => (n as u16).to_be_bytes(),
            _ => (n as u16).to_le_bytes(),
        };
        let mut packet = vec![order, 0, 0, 11, 0, 0];
        packet.extend(number(name.len()));
        packet.extend(number(data.len()));
        packet.extend([0, 0]);
        packet.extend(name);
        packet.resize(packet.len().next_multiple_of(4), 0);
        packet.extend(data);
        packet
    }

    /// Whoever comes by the far side reaches the display with our cookie alone, and never learns the display's.
    #[test]
    fn a_connection_without_our_cookie_does_not_reach_the_display() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            let table: [(&str, Vec<u8>, bool); 8] = [
                ("right", packet(b'B', PROTOCOL, &[7; 16]), true),
                (
                    "right, the other way round",
                    packet(b'l', PROTOCOL, &[7; 16]),
                    true,
                ),
                ("the display's own", packet(b'B', PROTOCOL, &[9; 16]), false),
                (
                    "one byte off",
                    packet(b'l', PROTOCOL, &[[7; 15].as_slice(), &[6]].concat()),
                    false,
                ),
                ("none", packet(b'l', b"", b""), false),
                (
                    "another protocol",
                    packet(b'l', b"MIT-MAGIC-COOKIE-2", &[7; 16]),
                    false,
                ),
                ("a long one", packet(b'B', PROTOCOL, &[7; 60_000]), false),
                (
                    "no X11",
                    b"GET / HTTP/1.1\r\n\r\n and so on, and so on".to_vec(),
                    false,
                ),
            ];
            for (name, bytes, taken) in table {
                let display = known(Target::Socks);
                let first = display.first_packet(&mut bytes.as_slice()).await;
                assert_eq!(first.is_ok(), taken, "{name}: {first:?}");
                if let Ok(first) = first {
                    assert_eq!(first, packet(bytes[0], PROTOCOL, &[9; 16]), "{name}");
                }
            }
            let cut = packet(b'B', PROTOCOL, &[7; 16]);
            for end in 0..cut.len() {
                assert!(known(Target::Socks).first_packet(&mut &cut[..end]).await.is_err());
            }
        });
    }

    #[test]
    fn displays_and_cookies_are_read() {
        let unix = |n: u16| Some((Target::Unix(format!("/tmp/.X11-unix/X{n}").into()), 0));
        assert_eq!(place(":0"), unix(0));
        assert_eq!(place("unix:10.0"), unix(10));
        let tcp = |host: &str, port| Target::Tcp {
            host: host.to_owned(),
            port,
        };
        assert_eq!(place("localhost:10.1"), Some((tcp("localhost", 6010), 1)));
        assert_eq!(place("[::1]:1"), Some((tcp("::1", 6001), 0)));
        for none in ["", "0", ":x", "h:65535", ":0.x"] {
            assert_eq!(place(none), None, "{none}");
        }
        let list = "web1/unix:0  XDM-AUTHORIZATION-1  00\nweb1/unix:0  MIT-MAGIC-COOKIE-1  000102030405060708090a0b0c0d0eff\n";
        assert_eq!(cookie(list).map(|c| (c[1], c[15])), Some((1, 255)));
        for none in ["", "web1/unix:0  MIT-MAGIC-COOKIE-1  00", "x MIT-MAGIC-COOKIE-1"] {
            assert_eq!(cookie(none), None, "{none}");
        }
    }
}

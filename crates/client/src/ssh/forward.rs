//! What is forwarded where: `-L`, `-R` and `-D` read into types, and our own listeners opened. Where a connection leads
//! is `flow`'s and `engine`'s business.

use fleetgate_policy::Invalid;
use fleetgate_ssh::event::{ChannelKind, Global};
use std::fmt;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use tokio::net::{TcpListener, UnixListener, lookup_host};

/// Forwards of one command line, at most.
pub const MAX_FORWARDS: usize = 128;

/// Where is listened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Listen {
    /// At a port. No host: loopback. `*` or an empty one: everywhere.
    Tcp {
        /// An address or name.
        host: Option<String>,
        /// 0: any, on the far side.
        port: u16,
    },
    /// At a socket file.
    Unix(PathBuf),
}

/// Where a connection leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// To a port.
    Tcp {
        /// An address or name.
        host: String,
        /// The port.
        port: u16,
    },
    /// To a socket file.
    Unix(PathBuf),
    /// Where whoever connects says by SOCKS.
    Socks,
}

/// One forward.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Forward {
    /// Where is listened.
    pub listen: Listen,
    /// Where that leads.
    pub to: Target,
}

impl Forward {
    /// `[bind:]port:host:port`, with socket paths in either place: `-L` and `-R`.
    pub fn parse(text: &str) -> Result<Forward, Invalid> {
        let wrong = || {
            Invalid::from(format!(
                "{text:?} is no forward: [BIND:]PORT:HOST:PORT, or an absolute path of a socket for either half; \
                 an IPv6 address stands in [ ]"
            ))
        };
        let parts = split(text).ok_or_else(wrong)?;
        let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
        let (listen, to) = match parts.as_slice() {
            [path, to @ ..] if path.starts_with('/') => (Listen::Unix(path.into()), to),
            [port, path] if path.starts_with('/') => (bound(None, port).ok_or_else(wrong)?, &parts[1..]),
            [bind, port, path] if path.starts_with('/') => {
                (bound(Some(bind), port).ok_or_else(wrong)?, &parts[2..])
            }
            [port, _, _] => (bound(None, port).ok_or_else(wrong)?, &parts[1..]),
            [bind, port, _, _] => (bound(Some(bind), port).ok_or_else(wrong)?, &parts[2..]),
            _ => return Err(wrong()),
        };
        let to = match to {
            [path] if path.starts_with('/') => Target::Unix(path.into()),
            [host, port] if !host.is_empty() => Target::Tcp {
                host: (*host).to_owned(),
                port: number(port).filter(|&p| p != 0).ok_or_else(wrong)?,
            },
            _ => return Err(wrong()),
        };
        Ok(Forward { listen, to })
    }

    /// `[bind:]port`: `-D`.
    pub fn parse_dynamic(text: &str) -> Result<Forward, Invalid> {
        let wrong = || Invalid::from(format!("{text:?} is no place for a SOCKS proxy: [BIND:]PORT"));
        let parts = split(text).ok_or_else(wrong)?;
        let listen = match parts.as_slice() {
            [port] => bound(None, port).ok_or_else(wrong)?,
            [bind, port] => bound(Some(bind), port).ok_or_else(wrong)?,
            _ => return Err(wrong()),
        };
        Ok(Forward {
            listen,
            to: Target::Socks,
        })
    }

    /// The request to listen on the far side.
    pub(crate) fn request(&self) -> Global {
        match &self.listen {
            Listen::Tcp { host, port } => Global::TcpipForward {
                host: remote_host(host).into_bytes(),
                port: u32::from(*port),
            },
            Listen::Unix(path) => Global::StreamlocalForward {
                path: path_bytes(path),
            },
        }
    }

    /// Whether a channel that the far side opened belongs to this forward; `port` is the one that it listens at.
    pub(crate) fn owns(&self, kind: &ChannelKind, port: u16) -> bool {
        match (&self.listen, kind) {
            (
                Listen::Tcp { host, .. },
                ChannelKind::ForwardedTcpip {
                    host: at, port: to, ..
                },
            ) => {
                u32::from(port) == *to
                    && (remote_host(host).as_bytes() == &at[..] || at.is_empty() || host.is_some())
            }
            (Listen::Unix(path), ChannelKind::ForwardedStreamlocal { path: at }) => path_bytes(path) == *at,
            _ => false,
        }
    }
}

impl Target {
    /// `host:port` or a path: `-W`.
    pub fn parse(text: &str) -> Result<Target, Invalid> {
        let parts = split(text).unwrap_or_default();
        match parts.as_slice() {
            [path] if path.starts_with('/') => Ok(Target::Unix(path.into())),
            [host, port] if !host.is_empty() => match number(port).filter(|&p| p != 0) {
                Some(port) => Ok(Target::Tcp {
                    host: host.clone(),
                    port,
                }),
                None => Err(Invalid::from(format!("{port:?} is no port"))),
            },
            _ => Err(Invalid::from(format!(
                "{text:?} is no place to connect to: HOST:PORT, an IPv6 address in [ ]"
            ))),
        }
    }

    /// The channel that leads there.
    pub(crate) fn channel(&self, origin: (&str, u16)) -> Option<ChannelKind> {
        Some(match self {
            Target::Tcp { host, port } => ChannelKind::DirectTcpip {
                host: host.clone().into_bytes(),
                port: u32::from(*port),
                origin: origin.0.as_bytes().to_vec(),
                origin_port: u32::from(origin.1),
            },
            Target::Unix(path) => ChannelKind::DirectStreamlocal {
                path: path_bytes(path),
            },
            Target::Socks => return None,
        })
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Target::Tcp { host, port } => write!(f, "{host}:{port}"),
            Target::Unix(path) => write!(f, "{}", path.display()),
            Target::Socks => f.write_str("wherever SOCKS says"),
        }
    }
}

impl fmt::Display for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Listen::Tcp { host: None, port } => write!(f, "port {port}"),
            Listen::Tcp {
                host: Some(host),
                port,
            } => write!(f, "{host}:{port}"),
            Listen::Unix(path) => write!(f, "{}", path.display()),
        }
    }
}

/// One of our own listening sockets.
pub(crate) enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener, PathBuf),
}

/// What came of listening in one place.
pub(crate) struct OpenListeners {
    pub(crate) listeners: Vec<Listener>,
    /// Addresses of the place that could not be had, though others could.
    pub(crate) taken: Vec<(std::net::SocketAddr, io::Error)>,
}

impl Listener {
    /// Listens where a forward says: on loopback that is both of its addresses, where both are there. One that somebody
    /// else has is told beside those that are open; a family that this machine does not have is not.
    pub(crate) async fn open(listen: &Listen) -> io::Result<OpenListeners> {
        let (host, port) = match listen {
            Listen::Unix(path) => {
                let listener = UnixListener::bind(path)?;
                std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
                return Ok(OpenListeners {
                    listeners: vec![Listener::Unix(listener, path.clone())],
                    taken: Vec::new(),
                });
            }
            Listen::Tcp { host, port } => (host.as_deref(), *port),
        };
        let addresses: Vec<std::net::SocketAddr> = match host {
            None | Some("localhost") => vec![
                ([127, 0, 0, 1], port).into(),
                (std::net::Ipv6Addr::LOCALHOST, port).into(),
            ],
            // One socket for both families.
            Some("" | "*") => vec![
                (std::net::Ipv6Addr::UNSPECIFIED, port).into(),
                ([0, 0, 0, 0], port).into(),
            ],
            Some(host) => lookup_host((host, port)).await?.collect(),
        };
        let everywhere = matches!(host, Some("" | "*"));
        let (mut listeners, mut failed) = (Vec::new(), Vec::new());
        for address in addresses {
            match TcpListener::bind(address).await {
                Ok(listener) => listeners.push(Listener::Tcp(listener)),
                // The socket for both families has it already.
                Err(_) if everywhere && !listeners.is_empty() => {}
                Err(e) => failed.push((address, e)),
            }
        }
        if listeners.is_empty() {
            return match failed.into_iter().next() {
                Some((_, e)) => Err(e),
                None => Ok(OpenListeners {
                    listeners,
                    taken: Vec::new(),
                }),
            };
        }
        let is_missing = |e: &io::Error| {
            // EAFNOSUPPORT has no kind of its own.
            e.kind() == io::ErrorKind::AddrNotAvailable
                || e.raw_os_error() == Some(fleetgate_sys::Errno::EAFNOSUPPORT.0)
        };
        failed.retain(|(_, e)| !is_missing(e));
        Ok(OpenListeners {
            listeners,
            taken: failed,
        })
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Listener::Unix(_, path) = self {
            let _ = std::fs::remove_file(path);
        }
    }
}

/// What the far side is told to bind: RFC 4254 §7.1 knows the empty name (everywhere) and `localhost`.
fn remote_host(host: &Option<String>) -> String {
    match host.as_deref() {
        None => "localhost".into(),
        Some("*") => String::new(),
        Some(host) => host.into(),
    }
}

fn path_bytes(path: &std::path::Path) -> Vec<u8> {
    std::os::unix::ffi::OsStrExt::as_bytes(path.as_os_str()).to_vec()
}

fn bound(bind: Option<&str>, port: &str) -> Option<Listen> {
    let host = bind.map(str::to_owned);
    number(port).map(|port| Listen::Tcp { host, port })
}

fn number(text: &str) -> Option<u16> {
    text.parse()
        .ok()
        .filter(|_| text.bytes().all(|b| b.is_ascii_digit()))
}

/// At colons that are not in brackets; brackets are taken off.
fn split(text: &str) -> Option<Vec<String>> {
    let mut parts = vec![String::new()];
    let mut inside = false;
    for c in text.chars() {
        match c {
            '[' if !inside && parts.last().is_some_and(String::is_empty) => inside = true,
            ']' if inside => inside = false,
            ':' if !inside => parts.push(String::new()),
            c => parts.last_mut()?.push(c),
        }
    }
    (!inside).then_some(parts)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tcp(host: Option<&str>, port: u16) -> Listen {
        Listen::Tcp {
            host: host.map(str::to_owned),
            port,
        }
    }

    fn to(host: &str, port: u16) -> Target {
        Target::Tcp {
            host: host.into(),
            port,
        }
    }

    #[test]
    fn forwards_are_read_as_openssh_reads_them() {
        for (text, listen, target) in [
            ("8080:web:80", tcp(None, 8080), to("web", 80)),
            ("*:8080:web:80", tcp(Some("*"), 8080), to("web", 80)),
            (":8080:web:80", tcp(Some(""), 8080), to("web", 80)),
            (
                "[::1]:8080:[fe80::1]:80",
                tcp(Some("::1"), 8080),
                to("fe80::1", 80),
            ),
            ("0:web:80", tcp(None, 0), to("web", 80)),
            ("8080:/run/x", tcp(None, 8080), Target::Unix("/run/x".into())),
            (
                "here:8080:/run/x",
                tcp(Some("here"), 8080),
                Target::Unix("/run/x".into()),
            ),
            ("/tmp/x:web:80", Listen::Unix("/tmp/x".into()), to("web", 80)),
            (
                "/tmp/x:/run/x",
                Listen::Unix("/tmp/x".into()),
                Target::Unix("/run/x".into()),
            ),
        ] {
            assert_eq!(Forward::parse(text), Ok(Forward { listen, to: target }), "{text}");
        }
        for text in [
            "",
            "8080",
            "web:80",
            "x:web:80",
            "8080:web:0",
            "8080:web:99999",
            "8080::80",
            "1:2:3:4:5",
            "[::1:8080:a:1",
            "+1:a:1",
        ] {
            assert!(Forward::parse(text).is_err(), "{text}");
        }
        for (text, listen) in [("1080", tcp(None, 1080)), ("[::1]:1080", tcp(Some("::1"), 1080))] {
            assert_eq!(Forward::parse_dynamic(text).unwrap().listen, listen);
        }
        assert!(Forward::parse_dynamic("a:b").is_err());
        assert_eq!(Target::parse("[::1]:22"), Ok(to("::1", 22)));
        assert!(Target::parse("web").is_err() && Target::parse("web:x").is_err());
    }

    #[test]
    fn a_forwarded_channel_finds_its_forward() {
        let forward = Forward::parse("0:web:80").unwrap();
        let came = |host: &str, port| ChannelKind::ForwardedTcpip {
            host: host.into(),
            port,
            origin: b"10.0.0.1".to_vec(),
            origin_port: 1,
        };
        assert!(forward.owns(&came("localhost", 4000), 4000));
        assert!(!forward.owns(&came("localhost", 4001), 4000));
        assert!(!forward.owns(&came("elsewhere", 4000), 4000));
        assert!(!forward.owns(&ChannelKind::ForwardedStreamlocal { path: b"/x".to_vec() }, 4000));
    }

    #[test]
    fn a_family_whose_port_is_taken_is_told() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            if std::net::TcpListener::bind("[::1]:0").is_err() {
                return;
            }
            let theirs = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
            let address = theirs.local_addr().unwrap();
            let listen = |host: Option<&str>| Listen::Tcp {
                host: host.map(str::to_owned),
                port: address.port(),
            };
            let opened = Listener::open(&listen(None)).await.unwrap();
            let taken: Vec<_> = opened.taken.iter().map(|(a, e)| (*a, e.kind())).collect();
            assert_eq!(
                (opened.listeners.len(), &taken[..]),
                (1, &[(address, io::ErrorKind::AddrInUse)][..])
            );
            drop(opened);
            assert!(Listener::open(&listen(Some("127.0.0.1"))).await.is_err());
            // The control: nobody has it.
            drop(theirs);
            let opened = Listener::open(&listen(None)).await.unwrap();
            assert_eq!((opened.listeners.len(), opened.taken.len()), (2, 0));
            drop(opened);
            let opened = Listener::open(&listen(Some("*"))).await.unwrap();
            assert_eq!(
                (opened.listeners.len(), opened.taken.len()),
                (1, 0),
                "one socket for both"
            );
        });
    }
}

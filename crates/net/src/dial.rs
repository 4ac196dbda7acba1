//! A TCP connection to whichever address of a name answers first (RFC 8305), without delay of small packets. Who answers
//! there is for TLS to find out.

use std::collections::VecDeque;
use std::fmt;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};

/// How long an address has before the next one is tried beside it (RFC 8305 §5).
pub const NEXT: Duration = Duration::from_millis(250);
/// How long all of it may take, unless told otherwise.
pub const DEADLINE: Duration = Duration::from_secs(10);
/// How many addresses of a name are tried.
pub const ADDRESSES_MAX: usize = 16;

/// Why there is no connection.
#[derive(Debug)]
pub enum Error {
    /// The name has no address.
    Name {
        /// As it was given.
        target: String,
        /// What the resolver said, if anything.
        why: Option<io::Error>,
    },
    /// No address took the connection.
    Unreachable {
        /// As it was given.
        target: String,
        /// The address that was tried last, and what came of it.
        last: (SocketAddr, io::Error),
    },
    /// Time was up.
    Deadline {
        /// As it was given.
        target: String,
        /// The time.
        after: Duration,
    },
}

/// Connects to "host:port" (an IPv6 address in brackets).
pub async fn connect(target: &str, deadline: Duration) -> Result<TcpStream, Error> {
    let attempt = async {
        let addresses = tokio::net::lookup_host(target).await.map_err(|e| Error::Name {
            target: target.to_owned(),
            why: Some(e),
        })?;
        to_any(target, addresses.collect()).await
    };
    in_time(target, deadline, attempt).await
}

/// Connects to one of these, which somebody else looked up; `target` is for the errors.
pub async fn any(target: &str, addresses: Vec<SocketAddr>, deadline: Duration) -> Result<TcpStream, Error> {
    in_time(target, deadline, to_any(target, addresses)).await
}

async fn to_any(target: &str, addresses: Vec<SocketAddr>) -> Result<TcpStream, Error> {
    if addresses.is_empty() {
        return Err(Error::Name {
            target: target.to_owned(),
            why: None,
        });
    }
    first(&order(addresses), |address| async move {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(stream)
    })
    .await
    .map_err(|last| Error::Unreachable {
        target: target.to_owned(),
        last,
    })
}

async fn in_time<T>(
    target: &str,
    deadline: Duration,
    attempt: impl Future<Output = Result<T, Error>>,
) -> Result<T, Error> {
    timeout(deadline, attempt).await.unwrap_or_else(|_| {
        Err(Error::Deadline {
            target: target.to_owned(),
            after: deadline,
        })
    })
}

/// The families in turn, beginning with the one that the resolver put first (RFC 8305 §4).
fn order(addresses: Vec<SocketAddr>) -> Vec<SocketAddr> {
    let begin = addresses.first().is_none_or(SocketAddr::is_ipv6);
    let (mut one, mut other): (VecDeque<_>, VecDeque<_>) =
        addresses.into_iter().partition(|a| a.is_ipv6() == begin);
    let mut ordered = Vec::new();
    while ordered.len() < ADDRESSES_MAX && !(one.is_empty() && other.is_empty()) {
        ordered.extend(one.pop_front());
        ordered.extend(other.pop_front());
    }
    ordered.truncate(ADDRESSES_MAX);
    ordered
}

/// The first that comes of `begin`: each address is begun when the one before has failed, or after [`NEXT`].
async fn first<T, F>(
    addresses: &[SocketAddr],
    begin: impl Fn(SocketAddr) -> F,
) -> Result<T, (SocketAddr, io::Error)>
where
    T: Send + 'static,
    F: Future<Output = io::Result<T>> + Send + 'static,
{
    let mut waiting = addresses.iter().copied();
    let mut under_way = JoinSet::new();
    let mut last = None;
    loop {
        if let Some(address) = waiting.next() {
            let attempt = begin(address);
            under_way.spawn(async move { (address, attempt.await) });
        } else if under_way.is_empty() {
            return Err(last.expect("there is an address"));
        }
        let next = Instant::now() + NEXT;
        let more = waiting.len() > 0;
        tokio::select! {
            done = under_way.join_next() => match done {
                Some(Ok((_, Ok(stream)))) => return Ok(stream),
                Some(Ok((address, Err(error)))) => last = Some((address, error)),
                Some(Err(_)) | None => {}
            },
            () = sleep_until(next), if more => {}
        }
    }
}

impl Error {
    /// Whither, as it was given.
    #[must_use]
    pub fn target(&self) -> &str {
        match self {
            Error::Name { target, .. }
            | Error::Unreachable { target, .. }
            | Error::Deadline { target, .. } => target,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Name { target, why } => {
                write!(f, "{target} has no address")?;
                if let Some(why) = why {
                    write!(f, ": {why}")?;
                }
                f.write_str(": is the name right? It is to be HOST:PORT")
            }
            Error::Unreachable { target, last } if *target == last.0.to_string() => {
                write!(f, "no connection to {target}: {}", last.1)
            }
            Error::Unreachable { target, last } => {
                write!(f, "no connection to {target}: {}: {}", last.0, last.1)
            }
            Error::Deadline { target, after } => {
                write!(f, "no connection to {target} within {} s", after.as_secs())
            }
        }
    }
}

impl std::error::Error for Error {}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::pending;

    fn address(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    #[test]
    fn families_take_turns() {
        let sorted = |addresses: &[&str]| {
            order(addresses.iter().map(|a| address(a)).collect())
                .iter()
                .map(ToString::to_string)
                .collect::<Vec<_>>()
        };
        assert_eq!(
            sorted(&["[::1]:1", "[::2]:1", "[::3]:1", "1.1.1.1:1", "2.2.2.2:1"]),
            ["[::1]:1", "1.1.1.1:1", "[::2]:1", "2.2.2.2:1", "[::3]:1"]
        );
        assert_eq!(sorted(&["1.1.1.1:1", "[::1]:1"]), ["1.1.1.1:1", "[::1]:1"]);
        let many: Vec<String> = (0..40).map(|n| format!("1.1.1.1:{n}")).collect();
        assert_eq!(
            order(many.iter().map(|a| address(a)).collect()).len(),
            ADDRESSES_MAX
        );
    }

    #[tokio::test(start_paused = true)]
    async fn the_first_that_answers_is_taken_and_failures_are_not_waited_for() {
        let all = ["1.1.1.1:1", "2.2.2.2:2", "3.3.3.3:3"].map(address);
        // port 1 hangs, 2 fails, 3 answers.
        let act = |a: SocketAddr| async move {
            match a.port() {
                1 => pending().await,
                2 => Err(io::Error::from(io::ErrorKind::ConnectionRefused)),
                _ => Ok(a),
            }
        };
        let begun = Instant::now();
        assert_eq!(first(&all, act).await.unwrap(), all[2]);
        assert_eq!(begun.elapsed(), NEXT, "once for the one that hangs");
        let (which, _) = first(&all[1..2], act).await.unwrap_err();
        assert_eq!(which, all[1]);
    }

    #[tokio::test]
    async fn errors_say_what_to_do() {
        let error = connect("no port", DEADLINE).await.unwrap_err().to_string();
        assert!(
            error.starts_with("no port has no address: ") && error.ends_with("It is to be HOST:PORT"),
            "{error}"
        );
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let target = listener.local_addr().unwrap().to_string();
        let stream = connect(&target, DEADLINE).await.unwrap();
        assert!(stream.nodelay().unwrap());
        drop((listener, stream));
        let error = connect(&target, DEADLINE).await.unwrap_err().to_string();
        assert_eq!(
            error,
            format!("no connection to {target}: Connection refused (os error 111)")
        );
    }
}

//! TLS for the auth service, passed on unread. Auth counts its callers by their source, and believes a proxy in that which has
//! proven itself by TLS of its own; so each caller costs a handshake of this proxy with auth. Those are few at once and go
//! by turns: one source that begins many holds up itself alone, and auth never has more of this proxy's than it allows.

use crate::auth;
use crate::config::Config;
use crate::prefixed::PrefixedStream;
use crate::shared::Shared;
use crate::strangers::{GAVE_WAY, Strangers};
use fleetgate_net::{relay, tls};
use fleetgate_policy::strangers::{Bounds, Offence};
use std::io;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, copy_bidirectional_with_sizes};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Connections that are passed on at once. Auth has 4096 places, for all of its proxies.
pub const PASSED_ON: usize = 1_024;
/// Of one source.
pub const PASSED_ON_OF_ONE: usize = 128;
/// Handshakes of this proxy with auth at once for callers. Of more than 64 from one address auth ends the oldest.
pub const REACHING: usize = 24;
/// For callers of one source.
pub const REACHING_OF_ONE: usize = 8;
/// How long a caller may take to go on with the handshake.
pub const HANDSHAKE: Duration = Duration::from_secs(10);
/// An encrypted alert: who gets no more from auth than that has proven nothing.
const ALERT: u64 = 24;
/// What is on its way to auth in either direction.
const SPLICE: usize = 16 * 1024;
/// The same while the handshake goes on.
const FLIGHT: usize = 4 * 1024;

/// What became of a caller's handshake.
#[derive(Debug, PartialEq, Eq)]
enum Handshake {
    /// The caller went on with it.
    GoesOn,
    /// Auth ended the connection.
    Ended,
    /// The caller left; whether auth had answered.
    Left(bool),
}

/// Places of those who are passed on, none taken yet; sources are told apart as everywhere in this proxy.
pub(crate) fn places(config: &Config) -> Strangers {
    let bounds = Bounds {
        all: PASSED_ON,
        of_source: PASSED_ON_OF_ONE,
    };
    Strangers::new(config.strangers.clone(), bounds)
}

/// Bytes to auth and back, as long as the caller has its place.
pub(crate) async fn pass_on(shared: &Shared, connection: PrefixedStream<TcpStream>, address: SocketAddr) {
    let place = match shared.auth_relay_slots.enter(address.ip()) {
        Ok(place) => place,
        Err(why) => return tracing::debug!(%address, "not passed on to auth: {why}"),
    };
    tokio::select! {
        () = carry(shared, connection, address) => {}
        () = place.given_up() => tracing::debug!(%address, "{}", GAVE_WAY),
        () = shared.stopped() => {}
    }
}

/// Bytes to auth and back; whichever side has no more says so, and the other goes on.
async fn carry(shared: &Shared, mut connection: PrefixedStream<TcpStream>, address: SocketAddr) {
    let strangers = &shared.strangers;
    let turn = shared
        .auth_relay_turns
        .wait(&strangers.source(address.ip()))
        .await;
    let reached = async {
        let mut auth = auth::dial(shared, tls::RELAY).await?;
        let line = relay::line(address);
        let written = auth.write_all(line.as_bytes()).await;
        written.map(|()| auth).map_err(|e| e.to_string())
    };
    let mut auth = match reached.await {
        Ok(auth) => auth,
        Err(why) => {
            return match strangers.has_line(address.ip(), "auth_not_reached", false) {
                true => tracing::warn!(%address, "auth is not reached: {why}"),
                false => tracing::debug!(%address, "auth is not reached: {why}"),
            };
        }
    };
    drop(turn);
    match timeout(HANDSHAKE, begin(&mut connection, &mut auth)).await {
        Ok(Ok(Handshake::GoesOn)) => {}
        Ok(Ok(Handshake::Left(true))) => {
            strangers.offend(address.ip(), Offence::Garbage);
            return tracing::debug!(%address, "passed on to auth, and left in its handshake");
        }
        Ok(Ok(Handshake::Ended | Handshake::Left(false)) | Err(_)) => {
            return tracing::debug!(%address, "passed on to auth, and ended in its handshake");
        }
        Err(_) => {
            strangers.offend(address.ip(), Offence::TooLate);
            return tracing::debug!(%address, "passed on to auth, and silent for too long");
        }
    }
    match copy_bidirectional_with_sizes(&mut connection, &mut auth, SPLICE, SPLICE).await {
        Ok((to, from)) => {
            if (1..=ALERT).contains(&from) {
                strangers.offend(address.ip(), Offence::Garbage);
            }
            tracing::debug!(%address, "passed on to auth: {to} bytes there, {from} back");
        }
        Err(error) => tracing::debug!(%address, "passed on to auth, and broke: {error}"),
    }
}

/// Carries bytes until the caller has gone on with its handshake behind auth's first words.
async fn begin<A, B>(caller: &mut A, auth: &mut B) -> io::Result<Handshake>
where
    A: AsyncRead + AsyncWrite + Unpin,
    B: AsyncRead + AsyncWrite + Unpin,
{
    let (mut there, mut back) = (vec![0; FLIGHT], vec![0; FLIGHT]);
    let mut is_answered = false;
    loop {
        tokio::select! {
            read = caller.read(&mut there) => match read {
                Ok(0) | Err(_) => return Ok(Handshake::Left(is_answered)),
                Ok(length) => {
                    auth.write_all(&there[..length]).await?;
                    auth.flush().await?;
                    if is_answered {
                        return Ok(Handshake::GoesOn);
                    }
                }
            },
            read = auth.read(&mut back) => match read? {
                0 => return Ok(Handshake::Ended),
                length => {
                    is_answered = true;
                    caller.write_all(&back[..length]).await?;
                }
            },
        }
    }
}

#[cfg(test)]
mod tests {
    //! What of a handshake is the caller's fault.

    use super::*;
    use tokio::io::duplex;

    /// Who says what.
    type Words<'a> = &'a [(&'a str, &'a [u8])];

    /// The words of caller and auth, in order; then the first of them that says nothing leaves.
    async fn becomes(words: Words<'_>, leaves: &str) -> Handshake {
        let ((mut caller, mut one), (mut auth, mut two)) = (duplex(64), duplex(64));
        let begun = async { begin(&mut one, &mut two).await.expect("no error") };
        let spoken = async {
            for (who, word) in words {
                let mut heard = vec![0; word.len()];
                let (from, to) = match *who {
                    "caller" => (&mut caller, &mut auth),
                    _ => (&mut auth, &mut caller),
                };
                from.write_all(word).await.expect("room");
                to.read_exact(&mut heard).await.expect("it is carried");
                assert_eq!(heard, *word);
            }
            match leaves {
                "caller" => drop(caller),
                "auth" => drop(auth),
                _ => std::future::pending().await,
            }
            std::future::pending::<()>().await;
        };
        tokio::select! {
            became = begun => became,
            () = spoken => unreachable!("it waits"),
        }
    }

    #[tokio::test]
    async fn a_caller_that_leaves_before_it_answers_auth_is_told_from_others() {
        let (hello, flight): (&[u8], &[u8]) = (b"hello", b"certificate");
        let table: [(Words<'_>, &str, Handshake); 4] = [
            (&[("caller", hello)], "caller", Handshake::Left(false)),
            (
                &[("caller", hello), ("auth", flight)],
                "caller",
                Handshake::Left(true),
            ),
            (&[("caller", hello)], "auth", Handshake::Ended),
            (&[("caller", hello), ("caller", hello)], "auth", Handshake::Ended),
        ];
        for (words, leaves, became) in table {
            assert_eq!(
                becomes(words, leaves).await,
                became,
                "{words:?}, then {leaves} leaves"
            );
        }
        let whole: [(&str, &[u8]); 3] = [("caller", hello), ("auth", flight), ("caller", hello)];
        assert_eq!(becomes(&whole, "nobody").await, Handshake::GoesOn);
    }
}

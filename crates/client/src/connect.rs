//! Connections to the auth service: by the unix socket on its own machine, or by the proxy's address, which passes TLS for
//! it on unread. Who is at the other end is checked by TLS and nowhere else.

use crate::error::ClientError;
use crate::profile::{Home, STATE};
use crate::waiting::{BoundedChannel, Peer, with_notice, with_timeout};
use fleetgate_net::h2::{self, Tuning};
use fleetgate_net::tls::{self, Believe, Client, Credentials, Trust};
use fleetgate_net::{dial, x509};
use fleetgate_policy::cluster::State;
use fleetgate_proto::v1::admin_client::AdminClient;
use fleetgate_proto::v1::identity_client::IdentityClient;
use fleetgate_proto::v1::recordings_client::RecordingsClient;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::net::UnixStream;

/// Runs a command's one future on a runtime of its own.
pub fn run<T>(work: impl Future<Output = Result<T, ClientError>>) -> Result<T, ClientError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime =
        runtime.map_err(|e| ClientError::Unreachable("starting the runtime".to_owned(), e.to_string()))?;
    runtime.block_on(work)
}

/// Where the auth service is asked for something that administrators may, or whoever a role lets.
#[derive(Clone, Debug)]
pub enum AdminEndpoint {
    /// On its own machine.
    Socket(PathBuf),
    /// Through the proxy, with the login in this home.
    Login(Home),
}

impl AdminEndpoint {
    /// Connects.
    pub async fn admin(&self) -> Result<AdminClient<BoundedChannel>, ClientError> {
        Ok(AdminClient::new(self.channel().await?)
            .max_decoding_message_size(h2::AUTH_MESSAGE)
            .max_encoding_message_size(h2::AUTH_MESSAGE))
    }

    /// Connects for recordings, which roles let others see than administrators.
    pub async fn recordings(&self) -> Result<RecordingsClient<BoundedChannel>, ClientError> {
        Ok(RecordingsClient::new(self.channel().await?))
    }

    async fn channel(&self) -> Result<BoundedChannel, ClientError> {
        match self {
            AdminEndpoint::Socket(path) => by_socket(path).await,
            AdminEndpoint::Login(home) => {
                let profile = home.login()?;
                let credentials = credentials(home)?;
                auth(&profile.proxy, &believe(home)?, Some(&credentials)).await
            }
        }
    }
}

/// Files of a login: what it shows.
const CHAIN: &str = "tls.crt";
pub(crate) const KEY: &str = "tls.key";

/// Where a proxy usually listens, best first: its own port, and the one that every network lets out.
const PORTS: [u16; 2] = [3080, 443];
/// How long the first of them has before the second is tried beside it.
const NEXT_PORT: Duration = Duration::from_secs(1);

/// `host:port` as it is given. Without a port: with the usual port that takes a connection; who answers there is found out
/// by TLS, later.
pub async fn address(given: &str) -> Result<String, ClientError> {
    if has_port(given) {
        return Ok(given.to_owned());
    }
    let host = match given.contains(':') && !given.starts_with('[') {
        true => format!("[{given}]"),
        false => given.to_owned(),
    };
    let found = first_open(PORTS.map(|port| format!("{host}:{port}")), NEXT_PORT);
    with_notice(&Peer::proxy(&host).name, found).await
}

/// Whether a port stands behind the host: `name:port`, `192.0.2.1:port`, `[2001:db8::1]:port`.
#[must_use]
pub fn has_port(given: &str) -> bool {
    given.rsplit_once(':').is_some_and(|(host, port)| {
        let bare = !host.contains(':') || (host.starts_with('[') && host.ends_with(']'));
        !host.is_empty() && bare && port.parse::<u16>().is_ok()
    })
}

/// Whichever of two addresses takes a connection, the second tried when the first failed or had its time.
async fn first_open([one, other]: [String; 2], time: Duration) -> Result<String, ClientError> {
    let open = async |address: &str| dial::connect(address, dial::DEADLINE).await.map(drop);
    let first = open(&one);
    tokio::pin!(first);
    let why = match tokio::time::timeout(time, &mut first).await {
        Ok(Ok(())) => return Ok(one.clone()),
        Ok(Err(why)) => match open(&other).await {
            Ok(()) => return Ok(other.clone()),
            Err(_) => why,
        },
        Err(_) => {
            let second = open(&other);
            tokio::pin!(second);
            tokio::select! {
                got = &mut first => match got {
                    Ok(()) => return Ok(one.clone()),
                    Err(why) => match second.await {
                        Ok(()) => return Ok(other.clone()),
                        Err(_) => why,
                    },
                },
                got = &mut second => match got {
                    Ok(()) => return Ok(other.clone()),
                    Err(_) => match first.await {
                        Ok(()) => return Ok(one.clone()),
                        Err(why) => why,
                    },
                },
            }
        }
    };
    let why = match why {
        // The port is not what is wrong.
        dial::Error::Name { .. } => why.to_string(),
        _ => format!("{why}; {other} takes no connection either; say the port: HOST:PORT"),
    };
    Err(ClientError::Unreachable(one.clone(), why))
}

/// The auth service by its unix socket.
pub async fn by_socket(path: &Path) -> Result<BoundedChannel, ClientError> {
    let stream = UnixStream::connect(path).await.map_err(|e| {
        let why = match e.kind() {
            std::io::ErrorKind::NotFound | std::io::ErrorKind::ConnectionRefused => {
                format!("{e}: the auth service does not run here; `fleetgate up` starts it")
            }
            std::io::ErrorKind::PermissionDenied => {
                format!("{e}: it answers to root and to its own user")
            }
            _ => e.to_string(),
        };
        ClientError::Unreachable(path.display().to_string(), why)
    })?;
    h2::connect(stream, Tuning::AUTH)
        .await
        .map(|channel| BoundedChannel::new(channel, Peer::auth_here(path)))
        .map_err(|e| ClientError::Unreachable(path.display().to_string(), e.to_string()))
}

/// The auth service through a proxy.
pub async fn auth(
    proxy: &str,
    believe: &Believe,
    credentials: Option<&Credentials>,
) -> Result<BoundedChannel, ClientError> {
    let failed = |e: &dyn std::fmt::Display| ClientError::Unreachable(proxy.to_owned(), e.to_string());
    let client = Client::new(believe, credentials, &[tls::H2]).map_err(|e| failed(&e))?;
    let peer = Peer::proxy(proxy);
    let stream = with_timeout(&peer, async {
        let connected = dial::connect(proxy, dial::DEADLINE).await;
        connected.map_err(|e| peer.unreached(&e))
    })
    .await?;
    // TLS is with auth itself: a handshake that hangs hangs there, or between the proxy and it.
    let auth = Peer::auth_behind(proxy);
    let stream = with_timeout(&auth, async {
        match client.connect(tls::AUTH, stream).await {
            Ok((stream, _)) => Ok(stream),
            Err(e) if e.is_late() => Err(ClientError::Unreachable(auth.name.clone(), auth.late())),
            Err(e) => Err(handshake_failed(proxy, believe, &e)),
        }
    })
    .await?;
    let channel = h2::connect(stream, Tuning::AUTH).await.map_err(|e| failed(&e))?;
    Ok(BoundedChannel::new(channel, auth))
}

/// Why a TLS handshake failed. A login believes the authorities of its cluster's state at that time: one that was replaced
/// since is the likely cause, and only a hash from an administrator helps.
pub(crate) fn handshake_failed(proxy: &str, believe: &Believe, error: &tls::Error) -> ClientError {
    let why = match (error.kind(), believe) {
        (tls::Kind::Authority, Believe::Trust(_)) => format!(
            "{error} If it was replaced (`fleetgate ca rotate`), `fleetgate login --ca sha256:HASH` learns the new one; an \
             administrator reads the hash in `fleetgate ca status`, at the active one of kind tls"
        ),
        _ => error.to_string(),
    };
    ClientError::Unreachable(proxy.to_owned(), why)
}

/// What the auth service does for whoever is not known yet.
pub async fn identity(
    proxy: &str,
    believe: &Believe,
    credentials: Option<&Credentials>,
) -> Result<IdentityClient<BoundedChannel>, ClientError> {
    let channel = auth(proxy, believe, credentials).await?;
    Ok(IdentityClient::new(channel).max_decoding_message_size(h2::AUTH_MESSAGE))
}

/// Whom the login in this home believes.
pub fn believe(home: &Home) -> Result<Believe, ClientError> {
    let document = home.read(STATE)?;
    let broken = |e: &dyn std::fmt::Display| home.broken(STATE, e);
    let state = State::parse_json(&document).map_err(|e| broken(&e))?;
    Ok(Believe::Trust(
        Trust::new(&state.trust.tls_ca).map_err(|e| broken(&e))?,
    ))
}

/// What the login in this home shows.
pub fn credentials(home: &Home) -> Result<Credentials, ClientError> {
    let (chain, key) = (home.read(CHAIN)?, home.read_secret(KEY)?);
    Credentials::given(&chain, &key).map_err(|e| {
        let name = if tls::is_key(&key) { CHAIN } else { KEY };
        home.broken(name, &e)
    })
}

/// The certificate that the login in this home shows.
pub fn certificate(home: &Home) -> Result<x509::Certificate, ClientError> {
    Ok(credentials(home)?.certificate().clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proxy_without_a_port_is_at_whichever_usual_one_takes_a_connection() {
        for (given, has) in [
            ("gate", false),
            ("gate:3080", true),
            ("192.0.2.1", false),
            ("2001:db8::1", false),
            ("[2001:db8::1]", false),
            ("[2001:db8::1]:443", true),
            ("gate:x", false),
        ] {
            assert_eq!(has_port(given), has, "{given}");
        }
        let answer = run(async {
            assert_eq!(
                address("gate:1").await?,
                "gate:1",
                "one that is given is taken as it is"
            );
            let listen = || std::net::TcpListener::bind("127.0.0.1:0").expect("a listener");
            let (one, other) = (listen(), listen());
            let name = |l: &std::net::TcpListener| l.local_addr().expect("an address").to_string();
            let (one_at, other_at) = (name(&one), name(&other));
            // Ports that no test is given by the kernel, so nobody listens there meanwhile.
            let (gone_at, away) = ("127.0.0.1:1".to_owned(), "127.0.0.1:2".to_owned());
            let time = Duration::from_secs(60);
            let both = first_open([one_at.clone(), other_at.clone()], time).await?;
            assert_eq!(both, one_at, "the first counts where both are open");
            let second = first_open([gone_at.clone(), other_at.clone()], time).await?;
            assert_eq!(second, other_at);
            // The first one's time is over at once: whichever is open is taken.
            let late = first_open([gone_at.clone(), other_at.clone()], Duration::ZERO).await?;
            assert_eq!(late, other_at);
            first_open([gone_at, away], time).await
        });
        let error = answer.expect_err("neither is open").to_string();
        assert!(
            error.contains("takes no connection either; say the port"),
            "{error}"
        );
    }
}

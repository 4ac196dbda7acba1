//! TLS 1.3 alone, by rustls and ring, with X25519MLKEM768 first. Whom either side believes is a [`Trust`], a [`Pin`] or
//! the system's list; who the other side is comes back as a [`Peer`] that was verified. There is no resumption: no
//! ticket is given and none is kept.

mod credentials;
mod error;
pub(crate) mod group;
mod room;
mod stream;
pub(crate) mod verify;

pub use credentials::{Credentials, Signer, client_handshake_hash, is_key};
pub use error::{Error, Kind};
pub use room::rest;
pub use stream::{LINGER, LINGER_BYTES, Stream};

use crate::pin::Pin;
use crate::x509::Certificate;
use fleetgate_policy::cluster::Identity;
use rustls::client::{ClientConfig, Resumption, danger::ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{
    ClientHello, NoServerSessionStorage, ResolvesServerCert, ServerConfig, WebPkiClientVerifier,
};
use rustls::sign::CertifiedKey;
use rustls::{CommonState, NamedGroup, RootCertStore};
use std::collections::HashMap;
use std::future::Future;
use std::sync::{Arc, LazyLock};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};

/// The names that certificates are made for. A node's is [`node_name`].
pub const PROXY: &str = "proxy.fleetgate";
/// See [`PROXY`].
pub const AUTH: &str = "auth.fleetgate";

/// gRPC.
pub const H2: &[u8] = b"h2";
/// The web.
pub const HTTP1: &[u8] = b"http/1.1";
/// A node's connection to a proxy: HTTP/2 with the roles reversed, the proxy asks and the node serves.
pub const TUNNEL: &[u8] = b"fleetgate-tunnel";
/// A proxy's connection to auth, in which somebody else's is passed on: see [`crate::relay`].
pub const RELAY: &[u8] = b"fleetgate-relay";

/// How long a handshake may take.
pub const HANDSHAKE: Duration = Duration::from_secs(10);
/// How many authorities one side believes at once.
pub const AUTHORITIES_MAX: usize = 64;
/// Where Debian and its relatives, and most others, keep the system's authorities.
pub const SYSTEM_ROOTS: &str = "/etc/ssl/certs/ca-certificates.crt";

/// The name in a node's certificate.
#[must_use]
pub fn node_name(node: &str) -> String {
    format!("{node}.node.fleetgate")
}

/// Authorities of TLS certificates that are believed.
#[derive(Clone)]
pub struct Trust {
    authorities: Arc<Vec<Certificate>>,
    pub(crate) roots: Arc<RootCertStore>,
}

/// Whom a client believes to be the server.
#[derive(Clone)]
pub enum Believe {
    /// Certificates by these authorities.
    Trust(Trust),
    /// Certificates by the one authority with this hash, which the server sends along.
    Pin(Pin),
    /// Certificates by the system's authorities: a proxy with a given certificate.
    System,
    /// Certificates by the authorities in this text (PEM): servers that are nobody's of a cluster.
    Given(Arc<[u8]>),
}

/// Who is at the other end, after the handshake.
#[derive(Debug, Clone)]
pub struct Peer {
    /// Who its certificate says it is. None: it has shown no certificate, or one without an identity.
    pub identity: Option<Identity>,
    /// Its certificate, verified; None: it has shown none.
    pub certificate: Option<Certificate>,
    /// The protocol agreed on.
    pub alpn: Option<Vec<u8>>,
    /// The group of the key exchange.
    pub group: Option<NamedGroup>,
}

/// The server's side.
#[derive(Clone)]
pub struct Server(Arc<ServerConfig>);

/// The client's side.
#[derive(Clone)]
pub struct Client(Arc<ClientConfig>);

/// What a server shows, by the name that it is asked for.
#[derive(Debug, Default)]
pub struct Shown {
    by_name: HashMap<String, Arc<CertifiedKey>>,
    otherwise: Option<Arc<CertifiedKey>>,
}

impl Trust {
    /// By the authorities' certificates, DER.
    pub fn new<C: AsRef<[u8]>>(certificates: impl IntoIterator<Item = C>) -> Result<Trust, Error> {
        let mut authorities: Vec<Certificate> = Vec::new();
        let mut roots = RootCertStore::empty();
        for certificate in certificates {
            let certificate = Certificate::read(certificate.as_ref()).map_err(Error::setting)?;
            if !certificate.is_authority() {
                return Err(Error::setting(
                    "a certificate among the authorities' may not issue others",
                ));
            }
            if authorities.len() == AUTHORITIES_MAX {
                return Err(Error::setting("there are more than 64 TLS authorities"));
            }
            roots
                .add(CertificateDer::from(certificate.der().to_vec()))
                .map_err(Error::setting)?;
            authorities.push(certificate);
        }
        if authorities.is_empty() {
            return Err(Error::setting("there is no TLS authority to believe"));
        }
        Ok(Trust {
            authorities: Arc::new(authorities),
            roots: Arc::new(roots),
        })
    }

    /// Whether this chain (DER, the leaf first) leads from one of them to a client that may show it at `now`, Unix
    /// seconds.
    pub fn check_client<C: AsRef<[u8]>>(&self, chain: &[C], now: u64) -> Result<(), Error> {
        let Some((leaf, between)) = chain.split_first() else {
            return Err(Error::setting("the chain has no certificate in it"));
        };
        let der = |c: &C| CertificateDer::from(c.as_ref().to_vec());
        let between: Vec<_> = between.iter().map(der).collect();
        let now = UnixTime::since_unix_epoch(Duration::from_secs(now));
        WebPkiClientVerifier::builder_with_provider(self.roots.clone(), provider())
            .build()
            .map_err(Error::setting)?
            .verify_client_cert(&der(leaf), &between, now)
            .map(drop)
            .map_err(Error::setting)
    }

    /// Their certificates.
    #[must_use]
    pub fn authorities(&self) -> &[Certificate] {
        &self.authorities
    }
}

impl Shown {
    /// Nothing yet.
    #[must_use]
    pub fn new() -> Shown {
        Shown::default()
    }

    /// These credentials to whoever asks for this name.
    #[must_use]
    pub fn name(mut self, name: &str, credentials: &Credentials) -> Shown {
        self.by_name.insert(name.to_owned(), credentials.certified());
        self
    }

    /// These to whoever asks for another name, or for none.
    #[must_use]
    pub fn otherwise(mut self, credentials: &Credentials) -> Shown {
        self.otherwise = Some(credentials.certified());
        self
    }
}

impl Server {
    /// A server that shows what it is asked for. With `clients`, it asks for a certificate of theirs and takes none
    /// that does not hold; whoever has none comes in without an identity.
    pub fn new(shown: Shown, clients: Option<&Trust>, alpn: &[&[u8]]) -> Result<Server, Error> {
        let builder = ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(Error::setting)?;
        let builder = match clients {
            None => builder.with_no_client_auth(),
            Some(trust) => {
                let usual: Arc<dyn ClientCertVerifier> =
                    WebPkiClientVerifier::builder_with_provider(trust.roots.clone(), provider())
                        .allow_unauthenticated()
                        .build()
                        .map_err(Error::setting)?;
                builder.with_client_cert_verifier(Arc::new(verify::Clients {
                    usual,
                    provider: provider(),
                }))
            }
        };
        let mut config = builder.with_cert_resolver(Arc::new(shown));
        config.alpn_protocols = alpn.iter().map(|protocol| protocol.to_vec()).collect();
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        config.max_early_data_size = 0;
        Ok(Server(Arc::new(config)))
    }

    /// The handshake with a client, within [`HANDSHAKE`].
    pub async fn accept<IO>(&self, io: IO) -> Result<(Stream<IO>, Peer), Error>
    where
        IO: AsyncRead + AsyncWrite + Unpin,
    {
        let stream = in_time(Stream::accept(io, self.0.clone()), Error::of_client).await?;
        let peer = peer(stream.common())?;
        Ok((stream, peer))
    }
}

impl Client {
    /// A client that believes `believe` and shows `credentials`, where it has any.
    pub fn new(
        believe: &Believe,
        credentials: Option<&Credentials>,
        alpn: &[&[u8]],
    ) -> Result<Client, Error> {
        let verifier: Arc<dyn ServerCertVerifier> = match believe {
            Believe::Trust(trust) => Arc::new(verify::Servers::by(trust.roots.clone(), provider())?),
            Believe::Pin(pin) => Arc::new(verify::PinnedServers::new(*pin, provider())),
            Believe::System => verify::system(provider())?,
            Believe::Given(pem) => verify::given(pem, provider())?,
        };
        let builder = ClientConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(Error::setting)?
            .dangerous()
            .with_custom_certificate_verifier(verifier);
        let mut config = match credentials {
            None => builder.with_no_client_auth(),
            Some(credentials) => builder.with_client_cert_resolver(credentials.resolver()),
        };
        config.alpn_protocols = alpn.iter().map(|protocol| protocol.to_vec()).collect();
        config.resumption = Resumption::disabled();
        Ok(Client(Arc::new(config)))
    }

    /// The handshake with the server that is to have this name, within [`HANDSHAKE`]. What the server thinks of our
    /// certificate it says later: [`Error::told`] reads it out of the first read's error.
    pub async fn connect<IO>(&self, name: &str, io: IO) -> Result<(Stream<IO>, Peer), Error>
    where
        IO: AsyncRead + AsyncWrite + Unpin,
    {
        let server = ServerName::try_from(name.to_owned())
            .map_err(|_| Error::setting(format!("\"{name}\" is no name of a TLS server")))?;
        let connecting = Stream::connect(io, self.0.clone(), server);
        let stream = in_time(connecting, |e| Error::of_server(e, name)).await?;
        let peer = peer(stream.common())?;
        Ok((stream, peer))
    }
}

/// The hash of the authority in a server's chain, for `fleetgate login` to show where no pin was given: the last
/// certificate, if it may issue others.
#[must_use]
pub fn authority_of<IO>(stream: &Stream<IO>) -> Option<Pin> {
    let chain = stream.common().peer_certificates()?;
    let last = Certificate::read(chain.last()?).ok()?;
    last.is_authority().then(|| last.pin())
}

/// What rustls uses: ring's TLS 1.3 suites, our group first.
pub(crate) fn provider() -> Arc<CryptoProvider> {
    static PROVIDER: LazyLock<Arc<CryptoProvider>> = LazyLock::new(|| {
        use rustls::crypto::ring::{default_provider, kx_group};
        let mut provider = default_provider();
        provider.kx_groups = vec![group::GROUP, kx_group::X25519, kx_group::SECP256R1];
        Arc::new(provider)
    });
    PROVIDER.clone()
}

async fn in_time<T>(
    handshake: impl Future<Output = std::io::Result<T>>,
    refused: impl FnOnce(std::io::Error) -> Error,
) -> Result<T, Error> {
    match tokio::time::timeout(HANDSHAKE, handshake).await {
        Ok(Ok(done)) => Ok(done),
        Ok(Err(error)) => Err(refused(error)),
        Err(_) => Err(Error::deadline()),
    }
}

fn peer(connection: &CommonState) -> Result<Peer, Error> {
    let certificate = match connection.peer_certificates().and_then(<[_]>::first) {
        Some(leaf) => Some(Certificate::read(leaf).map_err(Error::unreadable)?),
        None => None,
    };
    let identity = match &certificate {
        Some(leaf) => leaf.identity().map_err(Error::unreadable)?,
        None => None,
    };
    Ok(Peer {
        identity,
        certificate,
        alpn: connection.alpn_protocol().map(<[u8]>::to_vec),
        group: connection
            .negotiated_key_exchange_group()
            .map(|group| group.name()),
    })
}

impl ResolvesServerCert for Shown {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        hello
            .server_name()
            .and_then(|name| self.by_name.get(name))
            .or(self.otherwise.as_ref())
            .cloned()
    }
}

impl std::fmt::Debug for Trust {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list()
            .entries(self.authorities.iter().map(Certificate::pin))
            .finish()
    }
}

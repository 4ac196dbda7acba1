//! Connections to the auth service: by the unix socket on its own machine, or by the proxy's address, which passes TLS for
//! it on unread. Who is at the other end is checked by TLS and nowhere else.

use crate::error::ClientError;
use crate::files;
use crate::profile::Home;
use fleetgate_net::h2::{self, Channel, Tuning};
use fleetgate_net::tls::{self, Believe, Client, Credentials, Trust};
use fleetgate_net::{dial, x509};
use fleetgate_policy::cluster::State;
use fleetgate_proto::v1::admin_client::AdminClient;
use fleetgate_proto::v1::identity_client::IdentityClient;
use std::future::Future;
use std::path::{Path, PathBuf};
use tokio::net::UnixStream;

/// Runs a command's one future on a runtime of its own.
pub fn run<T>(work: impl Future<Output = Result<T, ClientError>>) -> Result<T, ClientError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime =
        runtime.map_err(|e| ClientError::Unreachable("starting the runtime".to_owned(), e.to_string()))?;
    runtime.block_on(work)
}

/// Where the auth service is asked for something that only administrators may.
#[derive(Clone, Debug)]
pub enum Desk {
    /// On its own machine.
    Socket(PathBuf),
    /// Through the proxy, with the login in this home.
    Login(Home),
}

impl Desk {
    /// Connects.
    pub async fn admin(&self) -> Result<AdminClient<Channel>, ClientError> {
        let channel = match self {
            Desk::Socket(path) => by_socket(path).await?,
            Desk::Login(home) => {
                let profile = home.login()?;
                let credentials = credentials(home)?;
                auth(&profile.proxy, &believe(home)?, Some(&credentials)).await?
            }
        };
        Ok(AdminClient::new(channel)
            .max_decoding_message_size(h2::AUTH_MESSAGE)
            .max_encoding_message_size(h2::AUTH_MESSAGE))
    }
}

/// The auth service by its unix socket.
pub async fn by_socket(path: &Path) -> Result<Channel, ClientError> {
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
        .map_err(|e| ClientError::Unreachable(path.display().to_string(), e.to_string()))
}

/// The auth service through a proxy.
pub async fn auth(
    proxy: &str,
    believe: &Believe,
    credentials: Option<&Credentials>,
) -> Result<Channel, ClientError> {
    let failed = |e: &dyn std::fmt::Display| ClientError::Unreachable(proxy.to_owned(), e.to_string());
    let client = Client::new(believe, credentials, &[tls::H2]).map_err(|e| failed(&e))?;
    let stream = dial::connect(proxy, dial::DEADLINE)
        .await
        .map_err(|e| failed(&e))?;
    let (stream, _) = client.connect(tls::AUTH, stream).await.map_err(|e| failed(&e))?;
    h2::connect(stream, Tuning::AUTH).await.map_err(|e| failed(&e))
}

/// What the auth service does for whoever is not known yet.
pub async fn identity(
    proxy: &str,
    believe: &Believe,
    credentials: Option<&Credentials>,
) -> Result<IdentityClient<Channel>, ClientError> {
    let channel = auth(proxy, believe, credentials).await?;
    Ok(IdentityClient::new(channel).max_decoding_message_size(h2::AUTH_MESSAGE))
}

/// Whom the login in this home believes.
pub fn believe(home: &Home) -> Result<Believe, ClientError> {
    let path = home.file("state.json");
    let document = files::read(&path)?;
    let broken = |e: &dyn std::fmt::Display| {
        ClientError::Broken(path.clone(), format!("{e}; `fleetgate login` writes it anew"))
    };
    let state = State::parse_json(&document).map_err(|e| broken(&e))?;
    Ok(Believe::Trust(
        Trust::new(&state.trust.tls_ca).map_err(|e| broken(&e))?,
    ))
}

/// What the login in this home shows.
pub fn credentials(home: &Home) -> Result<Credentials, ClientError> {
    let (chain, key) = (home.file("tls.crt"), home.file("tls.key"));
    Credentials::given(&files::read(&chain)?, &files::read(&key)?)
        .map_err(|e| ClientError::Broken(chain, format!("{e}; `fleetgate login` writes it anew")))
}

/// The certificate that the login in this home shows.
pub fn certificate(home: &Home) -> Result<x509::Certificate, ClientError> {
    Ok(credentials(home)?.certificate().clone())
}

/// An answer that is an error.
#[must_use]
pub fn refused(status: tonic::Status) -> ClientError {
    use tonic::Code;
    let words = h2::words(&status);
    match status.code() {
        Code::Unavailable | Code::DeadlineExceeded => ClientError::Unreachable("no answer".to_owned(), words),
        Code::InvalidArgument => ClientError::Usage(words),
        Code::Unimplemented => ClientError::Refused(
            "the other side does not know this: it is older than this program; update it".to_owned(),
        ),
        _ => ClientError::Refused(words),
    }
}

//! A cluster in a directory of its own, and who asks it.

use crate::clock::{Clock, SetClock};
use crate::server::MAX_CONNECTIONS;
use crate::service::Service;
use crate::{Config, Kind, SOCKET, Server, init, join_here};
use bytes::Bytes;
use fleetgate_net::h2::{self, Channel, Tuning};
use fleetgate_net::tls::{self, AUTH, Believe, H2, RELAY};
use fleetgate_net::x509::Key;
use fleetgate_net::{Credentials, Ticket, Trust, relay};
use fleetgate_policy::cluster::{Name, State, Subject};
use fleetgate_proto::v1::admin_client::AdminClient;
use fleetgate_proto::v1::cluster_client::ClusterClient;
use fleetgate_proto::v1::identity_client::IdentityClient;
use fleetgate_proto::{signed, v1};
use fleetgate_ssh::key::{KeyType, PrivateKey};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Weak};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::oneshot;

/// A password that does.
pub const PASSWORD: &str = "correct horse battery";

/// A running service.
pub struct Place {
    pub directory: PathBuf,
    pub clock: SetClock,
    pub address: SocketAddr,
    service: Weak<Service>,
    leave: Option<oneshot::Sender<()>>,
    running: Option<tokio::task::JoinHandle<()>>,
}

/// Keys of a user or machine, before somebody certifies them.
pub struct Keys {
    pub ssh: PrivateKey,
    pub tls: Key,
}

/// Somebody with certificates.
pub struct Holder {
    pub keys: Keys,
    pub chain: Vec<Bytes>,
}

/// A user who can log in.
pub struct Member {
    pub name: String,
    pub otpauth: String,
}

/// Runs a test on one thread, as the service runs.
pub fn run(work: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(work);
}

impl Place {
    /// A fresh cluster.
    pub async fn new() -> Place {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let directory = std::env::temp_dir().join(format!("fleetgate-auth-{}-{number}", std::process::id()));
        let _ = std::fs::remove_dir_all(&directory);
        // TLS asks the machine's clock: certificates of 12 hours hold by both for as long as this one is not turned on by
        // more than six.
        let clock = SetClock::at(crate::clock::MachineClock.seconds() - 6 * 3600);
        let name = Name::parse("orchard").expect("a name");
        let proxies = ["proxy.example:443".to_string()];
        init(&directory, &name, &proxies, Arc::new(clock.clone()))
            .await
            .expect("a new cluster");
        Place::on(directory, clock).await
    }

    /// The service on a directory that is there.
    pub async fn on(directory: PathBuf, clock: SetClock) -> Place {
        Place::with(directory, clock, MAX_CONNECTIONS).await
    }

    /// The same with so many connections at once.
    pub async fn with(directory: PathBuf, clock: SetClock, connections: usize) -> Place {
        let config = Config {
            connections,
            ..Config::new(&directory)
        };
        Place::by(config, clock).await
    }

    /// The service by this configuration, on a free port.
    pub async fn by(config: Config, clock: SetClock) -> Place {
        let directory = config.directory.clone();
        let config = Config {
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            clock: Arc::new(clock.clone()),
            ..config
        };
        let listener = std::net::TcpListener::bind(config.listen).expect("a free port");
        let server = Server::open(config, listener).await.expect("the service");
        let address = server.address().expect("its address");
        let service = Arc::downgrade(&server.service());
        let (leave, left) = oneshot::channel::<()>();
        let running = tokio::spawn(async move {
            let left = async { drop(left.await) };
            server.run(left).await.expect("it runs");
        });
        Place {
            directory,
            clock,
            address,
            service,
            leave: Some(leave),
            running: Some(running),
        }
    }

    /// The service itself, as long as it runs.
    pub fn service(&self) -> Arc<Service> {
        self.service.upgrade().expect("it runs")
    }

    /// What the clock shows.
    pub fn now(&self) -> u64 {
        self.clock.seconds()
    }

    /// Stops it; the directory stays.
    pub async fn stop(mut self) -> (PathBuf, SetClock) {
        drop(self.leave.take());
        if let Some(running) = self.running.take() {
            running.await.expect("it ends");
        }
        let directory = std::mem::take(&mut self.directory);
        (directory, self.clock.clone())
    }

    /// This machine's administrator.
    pub async fn admin(&self) -> AdminClient<Channel> {
        let stream = UnixStream::connect(self.directory.join(SOCKET))
            .await
            .expect("the socket");
        AdminClient::new(h2::connect(stream, Tuning::AUTH).await.expect("HTTP/2"))
    }

    /// A connection by TLS, believing the pin of a ticket.
    pub async fn by_ticket(&self, ticket: &Ticket) -> IdentityClient<Channel> {
        IdentityClient::new(self.channel(&Believe::Pin(ticket.pin), None).await)
    }

    /// Somebody with certificates, to any service.
    pub async fn channel_of(&self, holder: &Holder) -> Channel {
        let above = holder.chain.last().expect("a chain");
        let pin = fleetgate_net::x509::Certificate::read(above)
            .expect("an authority")
            .pin();
        let key = Key::from_pkcs8(holder.keys.tls.pkcs8()).expect("a key");
        let credentials = Credentials::new(key, &holder.chain).expect("a pair");
        self.channel(&Believe::Pin(pin), Some(&credentials)).await
    }

    /// The same; why it is refused.
    pub async fn try_channel_of(&self, holder: &Holder) -> Result<Channel, String> {
        let pin = self.service().pin().map_err(|refused| refused.to_string())?;
        let client =
            tls::Client::new(&Believe::Pin(pin), Some(&holder.credentials()), &[H2]).expect("a client");
        let stream = TcpStream::connect(self.address)
            .await
            .map_err(|e| e.to_string())?;
        let (stream, _) = client.connect(AUTH, stream).await.map_err(|e| e.to_string())?;
        h2::connect(stream, Tuning::AUTH).await.map_err(|e| e.to_string())
    }

    /// Somebody with certificates, who believes the authorities of a state.
    pub async fn by_trust(&self, holder: &Holder, state: &State) -> Channel {
        let key = Key::from_pkcs8(holder.keys.tls.pkcs8()).expect("a key");
        let credentials = Credentials::new(key, &holder.chain).expect("a pair");
        let trust = Trust::new(&state.trust.tls_ca).expect("authorities");
        self.channel(&Believe::Trust(trust), Some(&credentials)).await
    }

    async fn channel(&self, believe: &Believe, shown: Option<&Credentials>) -> Channel {
        let stream = TcpStream::connect(self.address).await.expect("the address");
        let client = tls::Client::new(believe, shown, &[H2]).expect("a client");
        let (stream, _) = client.connect(AUTH, stream).await.expect("TLS");
        h2::connect(stream, Tuning::AUTH).await.expect("HTTP/2")
    }

    /// A connection that this certificate's holder opens to pass on somebody's from `source`.
    pub async fn passing_on(&self, holder: &Holder, source: &str) -> Result<tls::Stream<TcpStream>, String> {
        let above = holder.chain.last().expect("a chain");
        let pin = fleetgate_net::x509::Certificate::read(above)
            .expect("an authority")
            .pin();
        let key = Key::from_pkcs8(holder.keys.tls.pkcs8()).expect("a key");
        let credentials = Credentials::new(key, &holder.chain).expect("a pair");
        let client = tls::Client::new(&Believe::Pin(pin), Some(&credentials), &[RELAY]).expect("a client");
        let tcp = TcpStream::connect(self.address).await.expect("the address");
        let (mut stream, _) = client.connect(AUTH, tcp).await.map_err(|e| e.to_string())?;
        let line = relay::line(source.parse().expect("an address"));
        stream
            .write_all(line.as_bytes())
            .await
            .map_err(|e| e.to_string())?;
        Ok(stream)
    }

    /// Somebody without certificates on such a connection, or any other.
    pub async fn stranger_by<IO>(&self, stream: IO) -> Result<IdentityClient<Channel>, String>
    where
        IO: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let pin = self.service().pin().expect("a pin");
        let client = tls::Client::new(&Believe::Pin(pin), None, &[H2]).expect("a client");
        let (stream, _) = client.connect(AUTH, stream).await.map_err(|e| e.to_string())?;
        let channel = h2::connect(stream, Tuning::AUTH)
            .await
            .map_err(|e| e.to_string())?;
        Ok(IdentityClient::new(channel))
    }

    /// What a node says of itself to a proxy, now.
    pub fn statement(&self, node: &Holder, proxy: &str, facts: v1::NodeFacts) -> v1::NodeReport {
        let name = node.name();
        let said = v1::NodeStatement {
            node: name.clone(),
            proxy: proxy.to_string(),
            facts: Some(facts),
            as_of: self.now(),
            millis: STATED.fetch_add(1, Ordering::Relaxed).into(),
        };
        v1::NodeReport {
            name,
            connected: true,
            statement: Some(node.signs(&said)),
        }
    }

    /// A user with a password and a second factor.
    pub async fn user(&self, name: &str, roles: &[&str]) -> Member {
        let request = v1::AddUserRequest {
            name: name.to_string(),
            roles: roles.iter().map(|r| r.to_string()).collect(),
            invite_lifetime: 0,
        };
        let invite = self
            .admin()
            .await
            .add_user(request)
            .await
            .expect("an invite")
            .into_inner();
        self.accept(&invite).await
    }

    /// Accepts an invite.
    pub async fn accept(&self, invite: &v1::Invite) -> Member {
        let ticket: Ticket = invite.text.parse().expect("an invite's text");
        let mut identity = self.by_ticket(&ticket).await;
        let secret = ticket.secret().to_string();
        let begun = identity
            .begin_invite(v1::BeginInviteRequest {
                secret: secret.clone(),
            })
            .await;
        let otpauth = begun.expect("it is known").into_inner().otpauth;
        let accept = v1::AcceptInviteRequest {
            secret,
            password: PASSWORD.to_string(),
            code: self.code(&otpauth),
        };
        let user = identity
            .accept_invite(accept)
            .await
            .expect("accepted")
            .into_inner()
            .user;
        Member { name: user, otpauth }
    }

    /// The code that an authenticator shows now.
    pub fn code(&self, otpauth: &str) -> String {
        code(otpauth, self.now())
    }

    /// What a user would send to log in with the next code.
    pub fn login_request(&self, member: &Member, keys: &Keys) -> v1::LoginRequest {
        self.clock.advance(30);
        v1::LoginRequest {
            user: member.name.clone(),
            password: PASSWORD.to_string(),
            code: self.code(&member.otpauth),
            keys: Some(keys.request()),
            device: None,
            lifetime: 0,
        }
    }

    /// Whoever has nothing yet.
    pub async fn stranger(&self) -> IdentityClient<Channel> {
        IdentityClient::new(self.nobody().await)
    }

    /// A connection of whoever has nothing yet, to any service.
    pub async fn nobody(&self) -> Channel {
        let authorities = self
            .admin()
            .await
            .authorities(v1::Empty {})
            .await
            .expect("authorities")
            .into_inner();
        let tls = authorities
            .authorities
            .iter()
            .find(|a| a.kind == "tls" && a.phase == "active");
        let pin = tls.expect("a TLS authority").fingerprint.parse().expect("a pin");
        self.channel(&Believe::Pin(pin), None).await
    }

    /// Logs in.
    pub async fn log_in(&self, member: &Member) -> (Holder, v1::Credentials) {
        let keys = Keys::fresh();
        let request = self.login_request(member, &keys);
        let given = self
            .stranger()
            .await
            .login(request)
            .await
            .expect("logged in")
            .into_inner();
        let chain = given.tls_chain.clone();
        (Holder { keys, chain }, given)
    }

    /// A token, and a machine that joins by it.
    pub async fn machine(&self, kind: &str, name: &str) -> Holder {
        let token = self.token(kind, name).await;
        let keys = Keys::fresh();
        let joined = self.join(&token, name, &keys).await.expect("joined");
        Holder {
            keys,
            chain: joined.tls_chain,
        }
    }

    /// A token for one name.
    pub async fn token(&self, kind: &str, name: &str) -> Ticket {
        let request = v1::AddTokenRequest {
            kind: kind.to_string(),
            name: name.to_string(),
            ..v1::AddTokenRequest::default()
        };
        let token = self
            .admin()
            .await
            .add_token(request)
            .await
            .expect("a token")
            .into_inner();
        token.text.parse().expect("a token's text")
    }

    /// Joins.
    pub async fn join(
        &self,
        token: &Ticket,
        name: &str,
        keys: &Keys,
    ) -> Result<v1::JoinReply, tonic::Status> {
        let request = v1::JoinRequest {
            secret: token.secret().to_string(),
            name: name.to_string(),
            ..keys.join()
        };
        let joined = self.by_ticket(token).await.join(request).await?;
        Ok(joined.into_inner())
    }

    /// A proxy's connection to the cluster's service.
    pub async fn proxy(&self, holder: &Holder) -> ClusterClient<Channel> {
        ClusterClient::new(self.channel_of(holder).await)
    }

    /// The events of this name that were told until now.
    pub async fn events(&self, event: &str) -> Vec<serde_json::Value> {
        self.posted().await;
        let request = v1::EventsRequest {
            event: event.to_string(),
            ..v1::EventsRequest::default()
        };
        let mut found = self
            .admin()
            .await
            .events(request)
            .await
            .expect("events")
            .into_inner();
        let mut events = Vec::new();
        while let Some(event) = found.message().await.expect("an event") {
            events.push(serde_json::from_str(&event.line).expect("JSON"));
        }
        events
    }

    /// Waits until every event that goes with a change is in the audit log.
    pub async fn posted(&self) {
        let service = self.service();
        let mut seen = service.ledger.seen();
        while !service.cache().outbox.is_empty() {
            seen.changed().await.expect("it runs");
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if self.directory.as_os_str().is_empty() {
            return;
        }
        if let Some(running) = self.running.take() {
            running.abort();
        }
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

/// Nodes' clocks, which go on with every statement.
static STATED: AtomicU32 = AtomicU32::new(1);

impl Holder {
    /// What it shows by TLS.
    pub fn credentials(&self) -> Credentials {
        let key = Key::from_pkcs8(self.keys.tls.pkcs8()).expect("a key");
        Credentials::new(key, &self.chain).expect("a pair")
    }

    /// The name in its certificate.
    pub fn name(&self) -> String {
        let leaf = fleetgate_net::x509::Certificate::read(&self.chain[0]).expect("a certificate");
        let identity = leaf.identity().expect("it reads").expect("it has one");
        match identity.subject {
            Subject::User(name) | Subject::Node(name) | Subject::Proxy(name) => name.to_string(),
            Subject::Auth => "auth".to_owned(),
        }
    }

    /// Signs a statement.
    pub fn signs(&self, said: &v1::NodeStatement) -> v1::Statement {
        let document = said.document();
        v1::Statement {
            signature: self.keys.tls.sign(&signed::statement(&document)).into(),
            key: Bytes::copy_from_slice(self.keys.tls.public().spki()),
            document,
        }
    }
}

impl Keys {
    pub fn fresh() -> Keys {
        Keys {
            ssh: PrivateKey::generate(KeyType::Ed25519, "").expect("a key").0,
            tls: Key::generate(),
        }
    }

    pub fn request(&self) -> v1::Keys {
        v1::Keys {
            ssh: Bytes::copy_from_slice(self.ssh.public().blob()),
            tls: Bytes::copy_from_slice(self.tls.public().spki()),
        }
    }

    pub fn join(&self) -> v1::JoinRequest {
        let keys = self.request();
        v1::JoinRequest {
            tls_public: keys.tls,
            host_keys: vec![keys.ssh],
            version: "0.1.0".to_string(),
            ..v1::JoinRequest::default()
        }
    }
}

/// Joins the machine that auth is on, as `fleetgate init` does.
pub async fn joined_here(
    directory: &std::path::Path,
    clock: &SetClock,
    name: &str,
    keys: &Keys,
) -> v1::JoinReply {
    let request = v1::JoinRequest {
        name: name.to_string(),
        ..keys.join()
    };
    let joined = join_here(directory, Kind::Proxy, request, Arc::new(clock.clone())).await;
    joined.expect("joined")
}

/// The code that an authenticator shows at a second.
pub fn code(otpauth: &str, seconds: u64) -> String {
    let secret = otpauth.split("secret=").nth(1).expect("a secret");
    let secret = secret.split('&').next().expect("a secret");
    let (mut bits, mut count, mut bytes) = (0u64, 0, Vec::new());
    for c in secret.bytes() {
        let value = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567".iter().position(|a| *a == c);
        bits = bits << 5 | value.expect("base32") as u64;
        count += 5;
        if count >= 8 {
            count -= 8;
            bytes.push((bits >> count) as u8);
        }
    }
    let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, &bytes);
    let tag = ring::hmac::sign(&key, &(seconds / 30).to_be_bytes());
    let tag = tag.as_ref();
    let at = usize::from(tag[19] & 15);
    let word = u32::from_be_bytes([tag[at], tag[at + 1], tag[at + 2], tag[at + 3]]) & 0x7fff_ffff;
    format!("{:06}", word % 1_000_000)
}

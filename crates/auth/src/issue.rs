//! Certificates: what they say and how long. Who may have one was decided before.

use crate::authorities::Signers;
use crate::documents::{Kind, Purpose};
use crate::error::{Refused, Result};
use crate::secret::random;
use crate::validity::{MEMBER_BEFORE, MEMBER_LIFETIME, SKEW};
use bytes::Bytes;
use fleetgate_net::tls::{AUTH, PROXY, node_name};
use fleetgate_net::x509::{self, Leaf};
use fleetgate_policy::Kind as Permit;
use fleetgate_policy::cluster::{Identity, Name, Role, SSH_EXTENSION, Subject, logins_of};
use fleetgate_proto::v1;
use fleetgate_ssh::key::{Certificate, CertificateKind, Draft, PublicKey};
use zeroize::Zeroizing;

/// How long a host certificate in the name of a plain sshd holds. A proxy gets one for each connection, with the cookie for its
/// key exchange, and is let in nowhere without auth: so it need not outlive the client's look at it, and an hour is for
/// clients whose clocks are ahead. One that is held longer is of use to a proxy that was removed, and to nobody else.
pub const PLAIN_HOST: u64 = 3600;
/// How long a certificate for one login on a plain sshd holds.
pub const ONE_LOGIN: u64 = 120;
/// The most host keys of a node.
pub const MAX_HOST_KEYS: usize = 8;
/// A name that no account has: a certificate without principals is everybody's to some.
const NOBODY: &str = "-";

/// A user's public keys, read.
pub struct UserKeys {
    ssh: PublicKey,
    tls: x509::PublicKey,
}

/// Both certificates of a user.
pub struct UserCertificates {
    /// The SSH certificate's blob.
    pub ssh: Vec<u8>,
    /// The leaf first.
    pub tls: Vec<Bytes>,
    /// The accounts in it.
    pub logins: Vec<String>,
}

impl UserKeys {
    /// As they came.
    pub fn read(keys: Option<&v1::Keys>) -> Result<UserKeys> {
        let keys = keys.ok_or_else(|| Refused::invalid("no keys to certify were sent"))?;
        let ssh = PublicKey::parse(&keys.ssh).map_err(|e| Refused::invalid(format!("the SSH key: {e}")))?;
        let tls = x509::PublicKey::from_spki(&keys.tls)
            .map_err(|e| Refused::invalid(format!("the TLS key: {e}")))?;
        Ok(UserKeys { ssh, tls })
    }
}

/// A user's certificates, from now on until `expires`.
pub async fn user(
    signers: &Signers,
    identity: &Identity,
    roles: &[&Role],
    keys: &UserKeys,
    now: u64,
    expires: u64,
) -> Result<UserCertificates> {
    let Some(user) = identity.user() else {
        return Err(Refused::forbidden("only users have logins"));
    };
    let from = now.saturating_sub(SKEW);
    let logins = logins_of(roles.iter().copied(), user);
    let mut principals: Vec<&str> = logins.iter().map(String::as_str).collect();
    if principals.is_empty() {
        principals.push(NOBODY);
    }
    let encoded = identity.encode();
    let mut extensions: Vec<(&str, &[u8])> = vec![(SSH_EXTENSION, &encoded)];
    extensions.extend(permits(roles).map(|name| (name, &b""[..])));
    let draft = Draft {
        kind: CertificateKind::User,
        serial: serial()?,
        key_id: &format!("{user} ({})", identity.cluster),
        principals: &principals,
        valid_after: from,
        valid_before: expires,
        critical: &[],
        extensions: &extensions,
    };
    let ssh = ssh(signers, Purpose::User, &draft, &keys.ssh).await?;
    let leaf = Leaf {
        public: keys.tls.spki(),
        names: &[],
        client: true,
        server: false,
        identity: Some(identity),
        validity: from..expires,
    };
    Ok(UserCertificates {
        ssh: ssh.blob().to_vec(),
        tls: tls(signers, &leaf).await?,
        logins,
    })
}

/// A node's or proxy's TLS chain, by the state of this serial.
pub async fn member(
    signers: &Signers,
    cluster: &Name,
    (kind, name): (Kind, &Name),
    public: &[u8],
    now: u64,
    serial: u64,
) -> Result<Vec<Bytes>> {
    let (subject, dns) = match kind {
        Kind::Node => (Subject::Node(name.clone()), node_name(name.as_str())),
        Kind::Proxy => (Subject::Proxy(name.clone()), PROXY.to_string()),
    };
    let identity = Identity {
        serial,
        ..Identity::of(cluster, subject, now)
    };
    let leaf = Leaf {
        public,
        names: &[dns],
        client: true,
        server: true,
        identity: Some(&identity),
        validity: now.saturating_sub(MEMBER_BEFORE)..now + MEMBER_LIFETIME,
    };
    tls(signers, &leaf).await
}

/// The auth service's own chain, and its key.
pub async fn own(signers: &Signers, cluster: &Name, now: u64) -> Result<(x509::Key, Vec<Bytes>)> {
    let key = x509::Key::generate();
    let identity = Identity::of(cluster, Subject::Auth, now);
    let public = key.public();
    let leaf = Leaf {
        public: public.spki(),
        names: &[AUTH.to_string()],
        client: false,
        server: true,
        identity: Some(&identity),
        validity: now.saturating_sub(MEMBER_BEFORE)..now + MEMBER_LIFETIME,
    };
    let chain = tls(signers, &leaf).await?;
    Ok((key, chain))
}

/// What users call a machine: plain ssh knows it below the cluster's name too, a pattern of ssh_config that no other host
/// falls under.
pub fn names(cluster: &Name, name: &Name) -> Vec<String> {
    vec![name.to_string(), format!("{name}.{cluster}")]
}

/// Host certificates in these names for these keys, in their order, that hold for so long from now on.
pub async fn hosts(
    signers: &Signers,
    cluster: &Name,
    names: &[String],
    keys: &[PublicKey],
    (now, lifetime): (u64, u64),
) -> Result<Vec<Bytes>> {
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut certificates = Vec::with_capacity(keys.len());
    for key in keys {
        let draft = Draft {
            kind: CertificateKind::Host,
            serial: serial()?,
            key_id: &format!("host {} ({cluster})", names.join(" ")),
            principals: &names,
            valid_after: now.saturating_sub(MEMBER_BEFORE),
            valid_before: now + lifetime,
            critical: &[],
            extensions: &[],
        };
        let made = ssh(signers, Purpose::Host, &draft, key).await?;
        certificates.push(Bytes::copy_from_slice(made.blob()));
    }
    Ok(certificates)
}

/// A certificate for one login on a node without fleetgate, with what `roles`, those that allow it, grant.
pub async fn one_login(
    signers: &Signers,
    identity: &Identity,
    login: &str,
    roles: &[&Role],
    key: &PublicKey,
    now: u64,
) -> Result<Bytes> {
    let encoded = identity.encode();
    let mut extensions: Vec<(&str, &[u8])> = vec![(SSH_EXTENSION, &encoded)];
    extensions.extend(permits(roles).map(|name| (name, &b""[..])));
    let draft = Draft {
        kind: CertificateKind::User,
        serial: serial()?,
        key_id: &format!("{} ({})", identity.subject, identity.cluster),
        principals: &[login],
        valid_after: now.saturating_sub(SKEW),
        valid_before: now + ONE_LOGIN,
        critical: &[],
        extensions: &extensions,
    };
    let made = ssh(signers, Purpose::User, &draft, key).await?;
    Ok(Bytes::copy_from_slice(made.blob()))
}

/// Host keys as they came.
pub fn host_keys(blobs: &[Bytes]) -> Result<Vec<PublicKey>> {
    if blobs.len() > MAX_HOST_KEYS {
        return Err(Refused::invalid(format!(
            "a node has at most {MAX_HOST_KEYS} host keys"
        )));
    }
    let read =
        |blob: &Bytes| PublicKey::parse(blob).map_err(|e| Refused::invalid(format!("a host key: {e}")));
    blobs.iter().map(read).collect()
}

async fn ssh(signers: &Signers, purpose: Purpose, draft: &Draft<'_>, key: &PublicKey) -> Result<Certificate> {
    let ca = signers.ssh(purpose).await?;
    draft
        .sign(key, ca.key())
        .map_err(|e| Refused::invalid(format!("the SSH certificate cannot be made: {e}")))
}

/// The leaf, and the authority above it: who has its hash alone finds it in the chain.
async fn tls(signers: &Signers, leaf: &Leaf<'_>) -> Result<Vec<Bytes>> {
    let ca = signers.tls().await?;
    let made = ca
        .authority()
        .issue(leaf)
        .map_err(|e| Refused::invalid(e.to_string()))?;
    let above = Bytes::copy_from_slice(ca.authority().certificate().der());
    Ok(vec![made.into(), above])
}

/// 63 random bits: none is ever given twice, and none tells how many there were.
fn serial() -> Result<u64> {
    let mut bytes = Zeroizing::new([0; 8]);
    random(&mut *bytes)?;
    Ok(u64::from_be_bytes(*bytes) >> 1)
}

/// The extensions that OpenSSH knows for what these roles grant.
fn permits<'a>(roles: &'a [&'a Role]) -> impl Iterator<Item = &'static str> + 'a {
    let table: [(&str, &[Permit]); 5] = [
        ("permit-X11-forwarding", &[Permit::X11]),
        ("permit-agent-forwarding", &[Permit::Agent]),
        ("permit-port-forwarding", &Permit::FORWARDING),
        ("permit-pty", &[Permit::Pty]),
        ("permit-user-rc", &[Permit::UserRc]),
    ];
    let granted = move |kinds: &[Permit]| {
        roles
            .iter()
            .any(|role| role.kinds.iter().any(|k| kinds.contains(k)))
    };
    table
        .into_iter()
        .filter(move |(_, kinds)| granted(kinds))
        .map(|(name, _)| name)
}

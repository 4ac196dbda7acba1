//! Logging in: fresh keys, certificates for them, and where they are kept. It prints nothing and asks nobody; passwords
//! and codes are given to it.

use crate::agent::Agent;
use crate::error::ClientError;
use crate::master_client::{self, Kind};
use crate::profile::{Home, Keys, Profile};
use crate::totp::Factor;
use crate::waiting::BoundedChannel;
use crate::{connect, device, pem, time};
use fleetgate_net::x509;
use fleetgate_policy::cluster::{Name, State};
use fleetgate_proto::v1::identity_client::IdentityClient;
use fleetgate_proto::v1::{
    AcceptInviteRequest, BeginInviteRequest, Credentials, HelloReply, HelloRequest, Keys as PublicKeys,
    LoginRequest, RefreshRequest,
};
use fleetgate_ssh::key::certificate::Certificate;
use fleetgate_ssh::key::{KeyType, PrivateKey, PublicKey};
use std::time::Duration;
use zeroize::Zeroizing;

/// A login's keys, their secret halves as they stand in files.
struct LoginKeys {
    ssh: PublicKey,
    ssh_text: Zeroizing<String>,
    /// SubjectPublicKeyInfo, DER.
    tls: Vec<u8>,
    tls_text: Zeroizing<String>,
}

impl LoginKeys {
    /// Made now: no other login has them.
    fn make(comment: &str) -> Result<LoginKeys, ClientError> {
        let (ssh, ssh_text) = PrivateKey::generate(KeyType::Ed25519, comment)
            .map_err(|e| ClientError::Refused(format!("making a key: {e}")))?;
        let tls = x509::Key::generate();
        Ok(LoginKeys {
            ssh: ssh.public().clone(),
            ssh_text,
            tls: tls.public().spki().to_vec(),
            tls_text: pem::write("PRIVATE KEY", tls.pkcs8()),
        })
    }

    /// Those of the login that is there.
    fn of(home: &Home, shown: &fleetgate_net::tls::Credentials) -> Result<LoginKeys, ClientError> {
        let (ssh_text, certificate) = keys(home)?;
        Ok(LoginKeys {
            ssh: certificate.key().clone(),
            ssh_text,
            tls: shown.certificate().public().to_vec(),
            tls_text: home.read_text(connect::KEY)?,
        })
    }

    fn public(&self) -> PublicKeys {
        PublicKeys {
            ssh: self.ssh.blob().to_vec().into(),
            tls: self.tls.clone().into(),
        }
    }
}

/// What a person showed.
pub struct PasswordLogin<'a> {
    /// Who.
    pub user: &'a str,
    /// The first factor.
    pub password: &'a str,
    /// The second.
    pub code: &'a str,
    /// How long it shall last, in seconds; 0: as long as allowed.
    pub lifetime: u32,
}

/// By how many seconds this machine's clock is ahead of the cluster's.
pub async fn clock_ahead(auth: &mut IdentityClient<BoundedChannel>) -> Result<i64, ClientError> {
    hello(auth).await.map(|(_, ahead)| ahead)
}

/// What the auth service says of itself to anybody, and by how many seconds this machine's clock is ahead of its.
pub async fn hello(auth: &mut IdentityClient<BoundedChannel>) -> Result<(HelloReply, i64), ClientError> {
    let before = time::now();
    let reply = auth.hello(HelloRequest {}).await?.into_inner();
    // The answer was made between the two.
    let ours = before + time::now().saturating_sub(before) / 2;
    let ahead = time::signed(ours) - time::signed(reply.now);
    Ok((reply, ahead))
}

/// What an invite is good for: who it is for, and the second factor to set up.
pub async fn begin_invite(
    auth: &mut IdentityClient<BoundedChannel>,
    secret: &str,
) -> Result<(String, Factor), ClientError> {
    let request = BeginInviteRequest {
        secret: secret.to_owned(),
    };
    let reply = auth.begin_invite(request).await?.into_inner();
    Ok((reply.user, Factor::parse(&reply.otpauth)?))
}

/// Sets password and second factor.
pub async fn accept_invite(
    auth: &mut IdentityClient<BoundedChannel>,
    secret: &str,
    password: &str,
    code: &str,
) -> Result<(), ClientError> {
    let request = AcceptInviteRequest {
        secret: secret.to_owned(),
        password: password.to_owned(),
        code: code.to_owned(),
    };
    auth.accept_invite(request).await?;
    Ok(())
}

/// Logs in and keeps what comes of it.
pub async fn log_in(
    auth: &mut IdentityClient<BoundedChannel>,
    home: &Home,
    proxy: &str,
    shown: &PasswordLogin<'_>,
) -> Result<Profile, ClientError> {
    let clock_ahead = clock_ahead(auth).await?;
    let login_keys = LoginKeys::make(shown.user)?;
    let keys = login_keys.public();
    let proof = device::proof(auth, home, &keys).await?;
    let request = LoginRequest {
        user: shown.user.to_owned(),
        password: shown.password.to_owned(),
        code: shown.code.to_owned(),
        keys: Some(keys),
        device: proof,
        lifetime: shown.lifetime,
    };
    let credentials = auth.login(request).await?.into_inner();
    let (keys, profile) = checked(proxy, &login_keys, &credentials, clock_ahead)?;
    take_place(home, &keys, &profile)?;
    Ok(profile)
}

/// The login that is there, with fresh keys and a fresh second factor (`code`; empty: as old as it was).
pub async fn refresh(home: &Home, code: &str) -> Result<Profile, ClientError> {
    let before = home.login()?;
    let (old_key, old_certificate) = keys(home)?;
    let (files, profile) = again(home, code, false).await?;
    home.save_after((&before, &old_key), &profile, &files)?;
    let _ = agent_forgets(&old_certificate);
    // What is kept is the old login's.
    master_client::retire(home, Kind::Login);
    Ok(profile)
}

/// The login that is there, for another lifetime, where its roles let it be renewed. Its keys stay as they are, so that whoever
/// reads its files meanwhile has ones that fit. The agent keeps the old certificate until that one's end.
pub async fn renew(home: &Home) -> Result<Profile, ClientError> {
    let (before, key) = (home.login()?, home.read_text("id")?);
    home.is_writable()?;
    let (files, profile) = again(home, "", true).await?;
    home.save_after((&before, &key), &profile, &files)?;
    Ok(profile)
}

async fn again(home: &Home, code: &str, renew: bool) -> Result<(Keys, Profile), ClientError> {
    let profile = home.login()?;
    let shown = connect::credentials(home)?;
    let mut auth = connect::identity(&profile.proxy, &connect::believe(home)?, Some(&shown)).await?;
    let login_keys = match renew {
        true => LoginKeys::of(home, &shown)?,
        false => LoginKeys::make(&profile.user)?,
    };
    let keys = login_keys.public();
    let proof = device::proof(&mut auth, home, &keys).await?;
    let request = RefreshRequest {
        keys: Some(keys),
        code: code.to_owned(),
        device: proof,
        renew,
    };
    let credentials = auth.refresh(request).await?.into_inner();
    checked(&profile.proxy, &login_keys, &credentials, profile.clock_ahead)
}

/// Checks that the certificates are for our keys; what is to be written down.
fn checked(
    proxy: &str,
    keys: &LoginKeys,
    credentials: &Credentials,
    clock_ahead: i64,
) -> Result<(Keys, Profile), ClientError> {
    let odd = |what: &str| ClientError::Refused(format!("the auth service answered with {what}"));
    let certificate = Certificate::parse(&credentials.ssh_certificate)
        .map_err(|e| odd(&format!("no SSH certificate ({e})")))?;
    if *certificate.key() != keys.ssh {
        return Err(odd("an SSH certificate for another key"));
    }
    let leaf = credentials
        .tls_chain
        .first()
        .ok_or_else(|| odd("no TLS certificate"))?;
    let leaf = x509::Certificate::read(leaf).map_err(|e| odd(&format!("no TLS certificate ({e})")))?;
    if leaf.public() != keys.tls {
        return Err(odd("a TLS certificate for another key"));
    }
    let identity = leaf
        .identity()
        .ok()
        .flatten()
        .ok_or_else(|| odd("a TLS certificate without an identity"))?;
    // It goes into lines of files.
    if identity.user().map(Name::as_str) != Some(credentials.user.as_str()) {
        return Err(odd("another user's name than its certificate has"));
    }
    let document = credentials
        .state
        .as_ref()
        .map(|s| &s.document[..])
        .unwrap_or_default();
    let state =
        State::parse_json(document).map_err(|e| odd(&format!("a state that cannot be read ({e})")))?;
    let chain = credentials
        .tls_chain
        .iter()
        .map(|der| pem::write("CERTIFICATE", der).to_string());
    let comment = format!("{}@{}", credentials.user, state.cluster);
    let files = Keys {
        ssh: keys.ssh_text.clone(),
        ssh_public: format!("{} {comment}\n", keys.ssh.line()),
        ssh_certificate: format!("{} {comment}\n", certificate.line()),
        tls: keys.tls_text.clone(),
        tls_certificates: chain.collect(),
        state: document.to_vec(),
        known_hosts: known_hosts(&state),
    };
    let profile = Profile {
        proxy: proxy.to_owned(),
        cluster: state.cluster.to_string(),
        user: credentials.user.clone(),
        roles: credentials.roles.clone(),
        logins: credentials.logins.clone(),
        issued: identity.issued,
        expires: credentials.expires,
        renewable: Some(credentials.renewable).filter(|until| *until > 0),
        mfa: identity.mfa,
        device: identity.device.map(|d| d.to_string()),
        clock_ahead,
    };
    Ok((files, profile))
}

/// Puts a login in the place of the one that was there.
fn take_place(home: &Home, keys: &Keys, profile: &Profile) -> Result<(), ClientError> {
    // The old login's key leaves the agent now: one that was refused takes nothing away, and its files are still there.
    let _ = out_of_agent(home);
    home.save(profile, keys)?;
    // What is kept is the old login's.
    master_client::retire(home, Kind::Login);
    Ok(())
}

/// Host certificates of these authorities are believed, whatever the host is called.
fn known_hosts(state: &State) -> String {
    let keys = state
        .trust
        .host_ca
        .iter()
        .filter_map(|blob| PublicKey::parse(blob).ok());
    keys.map(|key| format!("@cert-authority * {} {}\n", key.line(), state.cluster))
        .collect()
}

/// Puts the login's key into the running ssh-agent, for as long as it holds; the answer is whether there is an agent.
pub fn into_agent(home: &Home, profile: &Profile) -> Result<bool, ClientError> {
    let Some(mut agent) = agent() else {
        return Ok(false);
    };
    let (key, certificate) = keys(home)?;
    let left = profile.expires.saturating_sub(time::now());
    let comment = format!("fleetgate {}@{}", profile.user, profile.cluster);
    let failed = |e: crate::agent::AgentError| ClientError::Refused(e.to_string());
    let lifetime = Some(Duration::from_secs(left));
    agent
        .add(key.as_bytes(), Some(&certificate), &comment, lifetime)
        .map_err(failed)?;
    Ok(true)
}

/// Takes the login's key out of the running ssh-agent, if it is there.
pub fn out_of_agent(home: &Home) -> Result<bool, ClientError> {
    let Ok((_, certificate)) = keys(home) else {
        return Ok(false);
    };
    Ok(agent_forgets(&certificate))
}

/// Takes a login's key out of the running ssh-agent; whether it was there.
fn agent_forgets(certificate: &Certificate) -> bool {
    let Some(mut agent) = agent() else {
        return false;
    };
    let certified = agent.remove(certificate.blob()).is_ok();
    let plain = agent.remove(certificate.key().blob()).is_ok();
    certified || plain
}

fn agent() -> Option<Agent> {
    Agent::connect(std::env::var_os("SSH_AUTH_SOCK")).ok()
}

fn keys(home: &Home) -> Result<(Zeroizing<String>, Certificate), ClientError> {
    const CERTIFICATE: &str = "id-cert.pub";
    let line = home.read_text(CERTIFICATE)?;
    let certificate = Certificate::from_line(&line).map_err(|e| home.broken(CERTIFICATE, &e))?;
    Ok((home.read_text("id")?, certificate))
}

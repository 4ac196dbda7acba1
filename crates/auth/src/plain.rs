//! Nodes without fleetgate: a plain sshd that trusts the user authority. The proxy ends the user's SSH connection and
//! begins one of its own, for which it gets a certificate that is good for one login: if the user's own certificate would
//! let him in, and his key signed just now that he wants in there. So the proxy's word is not needed for that.

use crate::audit::event;
use crate::caller::Caller;
use crate::documents::Member;
use crate::error::{Refused, Result};
use crate::issue;
use crate::service::Service;
use crate::validity::SKEW;
use fleetgate_policy::cluster::{Attempt, ContainerLabels, Identity, Name, Role, SSH_EXTENSION, decide};
use fleetgate_proto::v1;
use fleetgate_ssh::auth::{Method, Request};
use fleetgate_ssh::codec::Reader;
use fleetgate_ssh::event::Exchange;
use fleetgate_ssh::key::{
    Algorithm, Certificate, KeyOrCertificate, PublicKey, Touch, UserCheck, verify_touched,
};
use std::net::{IpAddr, Ipv4Addr};

impl Service {
    /// A certificate for one login on a plain sshd.
    pub async fn sign_login(
        &self,
        caller: &Caller,
        request: v1::SignLoginRequest,
    ) -> Result<v1::SignLoginReply> {
        let (published, now) = (self.published(), self.now());
        caller.proxy(self)?;
        let (node, member) = self.plain(&request.node)?;
        let key =
            PublicKey::parse(&request.key).map_err(|e| Refused::invalid(format!("the proxy's key: {e}")))?;
        let trust = &published.state.trust;
        let certificate = self.proven(&node, &request, &trust.host_ca, now)?;
        let (identity, expires) = shown(&certificate, &request.login, &trust.user_ca, now)?;
        let user = identity
            .user()
            .ok_or_else(|| Refused::forbidden("the certificate is no user's"))?;
        self.active_user(user)?;
        let labels = self.inventory.labels(&member, node.as_str());
        let attempt = Attempt {
            identity: &identity,
            expires,
            cluster: &published.state.cluster,
            roles: &published.state.roles,
            locks: &published.state.locks,
            node: &node,
            labels: &labels,
            login: &request.login,
            container: ContainerLabels::PlainSshd,
            now,
            skew: SKEW,
        };
        let event = |name| {
            let event = self.event(name, caller).user(user.as_str()).node(node.as_str());
            event.with("login", request.login.as_str())
        };
        let allowed = match decide(&attempt) {
            Ok(allowed) => allowed,
            Err(refusal) => {
                let event = event(event::LOGIN_DENIED).with("rule", refusal.rule.as_str());
                let refused = Refused::forbidden(refusal.words);
                return Err(self.refuse(caller, true, event, refused).await);
            }
        };
        let roles: Vec<&Role> = allowed
            .roles
            .iter()
            .filter_map(|name| published.state.roles.get(name))
            .collect();
        let made = issue::one_login(&self.signers, &identity, &request.login, &roles, &key, now).await?;
        self.ledger.tell(event(event::LOGIN_SIGNED)).await?;
        Ok(v1::SignLoginReply { certificate: made })
    }

    /// A host certificate for the proxy's own key, in the name of a plain sshd: to its user the proxy is that node.
    pub async fn sign_host(
        &self,
        caller: &Caller,
        request: v1::SignHostRequest,
    ) -> Result<v1::SignHostReply> {
        let now = self.now();
        caller.proxy(self)?;
        let (node, _) = self.plain(&request.node)?;
        let keys = issue::host_keys(&[request.key])?;
        let cluster = self.cluster();
        let names = issue::names(&cluster, &node);
        let mut made = issue::hosts(&self.signers, &cluster, &names, &keys, (now, issue::PLAIN_HOST)).await?;
        let event = self.event(event::HOST_SIGNED, caller).node(node.as_str());
        self.ledger.tell(event).await?;
        let key = keys.first().map_or(&[][..], |key| key.blob());
        let cookie = self.cookies.give(&node, key, self.ledger.uptime())?;
        Ok(v1::SignHostReply {
            certificate: made.pop().unwrap_or_default(),
            cookie: cookie.to_vec().into(),
        })
    }

    /// The user's certificate, after he signed with its key, for this login, on a connection that was begun just now with
    /// this node's name. The signature is over the exchange's hash, so none of it can be another's, and it counts once.
    fn proven(
        &self,
        node: &Name,
        request: &v1::SignLoginRequest,
        host_ca: &[Vec<u8>],
        now: u64,
    ) -> Result<Certificate> {
        let wrong = |why: &dyn std::fmt::Display| {
            Refused::unproven(format!("what the user signed at the proxy: {why}: connect again"))
        };
        let exchange = Exchange::decode(&request.exchange).map_err(|e| wrong(&e))?;
        let session = exchange
            .hash()
            .ok_or_else(|| wrong(&"its key exchange is not known"))?;
        let asked = Request::parse(&request.request).map_err(|e| wrong(&e))?;
        if asked.user != request.login.as_bytes() {
            return Err(wrong(&"it is for another login"));
        }
        let Method::PublicKey(key) = &asked.method else {
            return Err(wrong(&"it is no key's"));
        };
        let presented = KeyOrCertificate::parse(key.key).map_err(|e| wrong(&e))?;
        if !Algorithm::parse(key.algorithm).is_some_and(|a| presented.fits(&a)) {
            return Err(wrong(&"its algorithm does not fit the key"));
        }
        let KeyOrCertificate::Certificate(certificate) = presented else {
            return Err(wrong(&"its key has no certificate"));
        };
        if key.host_key.is_some_and(|shown| shown != exchange.host_key) {
            return Err(wrong(&"it is bound to another host key"));
        }
        let signature = key.signature.ok_or_else(|| wrong(&"there is no signature"))?;
        let data = key.signed_data(session.as_ref());
        verify_touched(certificate.key(), key.algorithm, &data, signature, Touch::NONE)
            .map_err(|e| wrong(&e))?;
        // As whom the proxy stood there: a login at another node, or at the proxy itself, is none here.
        let host = KeyOrCertificate::parse(&exchange.host_key).map_err(|e| wrong(&e))?;
        if let KeyOrCertificate::Certificate(shown) = &host {
            let trusted = |ca: &PublicKey| host_ca.iter().any(|known| known == ca.blob());
            shown
                .check_host(node.as_str(), now, SKEW, trusted)
                .map_err(|e| wrong(&format!("the host certificate: {e}")))?;
        }
        let cookie = exchange
            .server_cookie()
            .ok_or_else(|| wrong(&"it has no cookie"))?;
        match self
            .cookies
            .take(&cookie, node, host.key().blob(), self.ledger.uptime())
        {
            true => Ok(*certificate),
            false => Err(wrong(&"it was used, is too old or for another node")),
        }
    }

    fn plain(&self, name: &str) -> Result<(Name, Member)> {
        let name = Name::parse(name).map_err(Refused::invalid)?;
        let cache = self.cache();
        let member = cache.nodes.get(name.as_str()).map(|m| m.document.clone());
        match member {
            Some(member) if member.address.is_some() => Ok((name, member)),
            Some(_) => Err(Refused::forbidden(format!(
                "{name} runs fleetgate: it lets nobody in by way of a proxy's own certificate"
            ))),
            None => Err(Refused::missing(format!("there is no node {name}"))),
        }
    }
}

/// Who the user's certificate says it is, when it would let him in as `login` now, and until when it holds.
fn shown(
    certificate: &Certificate,
    login: &str,
    trust: &[Vec<u8>],
    now: u64,
) -> Result<(Identity, Option<u64>)> {
    let wrong = |why: String| Refused::unproven(format!("the user's certificate: {why}"));
    let check = UserCheck {
        trusted: &|ca| trust.iter().any(|blob| blob == ca.blob()),
        principals: &[login],
        now,
        skew: SKEW,
        // None of our certificates names addresses; one that does is refused.
        source: IpAddr::V4(Ipv4Addr::UNSPECIFIED),
    };
    certificate.check_user(&check).map_err(|e| wrong(e.to_string()))?;
    let data = certificate
        .extension(SSH_EXTENSION)
        .ok_or_else(|| wrong("it carries no identity".to_string()))?;
    let bytes = Reader::new(data)
        .string("identity")
        .map_err(|e| wrong(e.to_string()))?;
    Ok((
        Identity::parse(bytes).map_err(|e| wrong(e.into()))?,
        certificate.expires(0),
    ))
}

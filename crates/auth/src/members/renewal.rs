//! Newer certificates for a machine that has some. It proves with its present key that it is the one.

use super::member_key;
use super::removal::not_ended;
use crate::audit::event;
use crate::cache;
use crate::caller::Caller;
use crate::documents::Member;
use crate::error::{Refused, Result};
use crate::issue;
use crate::ledger::Plan;
use crate::proof::gone;
use crate::service::Service;
use fleetgate_net::{Pin, x509};
use fleetgate_proto::{signed, v1};
use fleetgate_ssh::key::PublicKey;

impl Service {
    /// Newer certificates for a machine that has some: a node's by way of its proxy, or a proxy's own.
    pub async fn renew(&self, caller: &Caller, request: v1::RenewFor) -> Result<v1::Renewed> {
        caller.proxy(self)?;
        match self.renewed(caller, request).await {
            // What the machine is to be told is an answer; what is wrong with the service is not.
            Err(refused) if refused.kind != crate::RefusedKind::Unavailable => Ok(v1::Renewed {
                refused: refused.words,
                ..v1::Renewed::default()
            }),
            other => other,
        }
    }

    async fn renewed(&self, caller: &Caller, request: v1::RenewFor) -> Result<v1::Renewed> {
        let renew = request
            .renew
            .ok_or_else(|| Refused::invalid("nothing to renew was sent"))?;
        let now = self.now();
        let (kind, name, member) = self.member_of(&request.name, &renew.tls_certificate, now)?;
        self.machine_locked(kind, &name, now)?;
        let present = x509::Certificate::read(&renew.tls_certificate).and_then(|c| c.public_key());
        let signs = present.and_then(|key| key.verify(&signed::renew(&renew), &renew.signature));
        signs.map_err(|e| Refused::unproven(format!("the request of {name}: {e}")))?;
        // Behind the signature: nobody else uses up what the machine may.
        self.renewals
            .take(&(kind, name.clone()), self.ledger.uptime())
            .map_err(|seconds| {
                Refused::later(&format!("{name} renews its certificates too often"), seconds)
            })?;
        let public = x509::PublicKey::from_spki(&renew.tls_public)
            .map_err(|e| Refused::invalid(format!("the TLS key: {e}")))?;
        let host_keys = issue::host_keys(&renew.host_keys)?;
        let certified = self
            .certify_member((kind, &name), &public, &host_keys, now)
            .await?;
        let key = Pin::of(public.spki()).to_string();
        self.change(|cache| {
            let stored = cache.members(kind).get(name.as_str());
            let stored = stored
                .filter(|s| s.document.key == member.key)
                .ok_or_else(|| gone(&name))?;
            not_ended(cache, kind, &name, certified.serial)?;
            let lines = host_keys.iter().map(PublicKey::line).collect();
            let renewed = Member {
                key: Some(key.clone()),
                ..stored.document.with_host_keys(lines, now)
            };
            let event = self
                .event(event::RENEWED, caller)
                .node(name.as_str())
                .with("kind", kind.name())
                .with("key", key.as_str());
            let at = member_key(kind, &name);
            let step = match renewed == stored.document {
                true => cache::unchanged(at, Some(stored.revision)),
                false => cache::replace(at, Some(stored.revision), &renewed),
            };
            Ok(Plan::new(()).step(step).event(event))
        })
        .await?;
        Ok(v1::Renewed {
            tls_chain: certified.tls_chain,
            host_certificates: certified.host_certificates,
            refused: String::new(),
        })
    }
}

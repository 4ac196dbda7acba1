//! Newer certificates: asked for by the tunnel when it is time, checked, written, and shown from then on. When that is and which
//! are taken says `config::renewal`.

use super::keys;
use crate::config::renewal;
use crate::monitor::Monitor;
use crate::monitor::settings::offer;
use crate::monitor::timers::unix_seconds;
use fleetgate_net::x509::Key;
use fleetgate_proto::signed;
use fleetgate_proto::v1::Renew;
use fleetgate_wire::node::tunnel::ToTunnel;
use prost::Message;
use std::time::Duration;

/// The request, signed, as it travels.
pub fn request(key: &Key, host_keys: &[Vec<u8>], leaf: &[u8]) -> Vec<u8> {
    let mut message = Renew {
        tls_public: key.public().spki().to_vec().into(),
        host_keys: host_keys.iter().map(|blob| blob.clone().into()).collect(),
        signature: Vec::new().into(),
        tls_certificate: leaf.to_vec().into(),
    };
    message.signature = key.sign(&signed::renew(&message)).into();
    message.encode_to_vec()
}

impl Monitor {
    /// `tried`: it was asked for just now, and the answer may come yet.
    pub(crate) fn plan_renewal(&mut self, tried: bool) {
        let Some(tunnel) = &mut self.tunnel else { return };
        let Some(validity) = tunnel.validity() else { return };
        if let Some(timer) = tunnel.renewal.take() {
            self.tools.timers.cancel(timer);
        }
        let now = unix_seconds();
        let trust = self.tools.cluster.as_ref().map(|cluster| &cluster.state().trust);
        let retirement = trust.and_then(|trust| renewal::retirement(&tunnel.joined, trust, now));
        let replaced = retirement.as_ref().map(|r| r.due(renewal::place(&tunnel.joined)));
        tunnel.renew_at = match renewal::is_for(&tunnel.joined, &self.offer.keys.public()) {
            true => renewal::due(&validity).min(replaced.unwrap_or(u64::MAX)),
            // The host has other keys.
            false => now,
        };
        // The calendar's clock may be set meanwhile: it is looked at again every hour.
        let left = tunnel.renew_at.saturating_sub(now);
        let wait = match left {
            0 if tried && replaced.is_some_and(|at| at <= now) => renewal::AGAIN.0,
            0 if tried => renewal::again(&validity),
            _ => Duration::from_secs(left.min(3600)),
        };
        tunnel.renewal = Some(self.tools.timers.after(wait, tunnel.wake(keys::RENEW)));
    }

    pub(super) fn renew(&mut self) {
        let keys = self.offer.keys.public();
        if let Some(tunnel) = &self.tunnel
            && tunnel.renew_at <= unix_seconds()
        {
            let leaf = tunnel.joined.tls_chain.first().map_or(&[][..], Vec::as_slice);
            let message = request(&tunnel.key, &keys, leaf);
            self.tell_tunnel(&ToTunnel::Renew { message });
        }
        self.plan_renewal(true);
    }

    /// Newer certificates: checked, written, and shown from now on.
    pub(super) fn renewed(&mut self, tls_chain: Vec<Vec<u8>>, host_certificates: Vec<Vec<u8>>) {
        let keys = self.offer.keys.public();
        let (Some(tunnel), Some(cluster)) = (&mut self.tunnel, &self.tools.cluster) else {
            return;
        };
        let state = cluster.state();
        let checked = renewal::accept(
            &tunnel.joined,
            &tunnel.key,
            &keys,
            state,
            tls_chain,
            host_certificates,
            unix_seconds(),
        );
        let config = self.tools.config.clone();
        let joined = match checked {
            Ok(joined) => joined,
            Err(why) if tunnel.tells() => return tracing::error!("certificates are not renewed: {why}"),
            Err(_) => return,
        };
        let kept = tunnel
            .home
            .directory()
            .and_then(|directory| joined.save(directory));
        if let Err(why) = kept {
            return tracing::error!("newer certificates are not used: {why}");
        }
        tunnel.joined = joined;
        tracing::info!("certificates were renewed");
        match offer(&config, self.tools.user_mode) {
            Ok(offer) => self.offer_this(offer),
            Err(why) => tracing::error!("newer host certificates are not shown: {why}"),
        }
        if let Some(settings) = self.settings() {
            self.tell_tunnel(&ToTunnel::Credentials {
                credentials: settings.credentials,
            });
        }
        self.plan_renewal(true);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fleetgate_net::x509::PublicKey as TlsPublic;

    #[test]
    fn a_request_is_signed_by_the_key_that_it_is_for() {
        let key = Key::generate();
        let text = request(&key, &[b"host".to_vec()], b"leaf");
        let message = Renew::decode(text.as_slice()).expect("a message");
        let public = TlsPublic::from_spki(&message.tls_public).expect("a key");
        assert!(
            public
                .verify(&signed::renew(&message), &message.signature)
                .is_ok()
        );
        let other = Renew {
            tls_certificate: b"other".as_slice().into(),
            ..message.clone()
        };
        assert!(public.verify(&signed::renew(&other), &message.signature).is_err());
    }
}

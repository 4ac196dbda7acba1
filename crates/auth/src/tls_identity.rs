//! The service's own TLS certificate, and which authorities it believes.

use crate::error::{Refused, Result};
use crate::issue;
use crate::service::Service;
use crate::validity::{MEMBER_LIFETIME, SKEW};
use fleetgate_net::tls::{self, AUTH, H2, RELAY, Shown};
use fleetgate_net::{Credentials, Trust};
use std::sync::Arc;
use tokio::sync::watch;

/// What the service shows by TLS, and whom it believes: made anew when an authority changes or its certificate grows old.
pub struct TlsIdentity {
    service: Arc<Service>,
    credentials: Credentials,
    trust: Vec<Vec<u8>>,
    made: u64,
}

impl TlsIdentity {
    /// By the authorities of now.
    pub async fn new(service: Arc<Service>) -> Result<TlsIdentity> {
        let trust = service.published().state.trust.tls_ca.clone();
        let (cluster, made) = (service.cluster(), service.now());
        let (key, chain) = issue::own(&service.signers, &cluster, made).await?;
        let credentials = Credentials::new(key, chain).map_err(|e| Refused::unavailable(e.to_string()))?;
        Ok(TlsIdentity {
            service,
            credentials,
            trust,
            made,
        })
    }

    /// What connections are accepted with.
    pub fn server(&self) -> Result<tls::Server> {
        let wrong = |e: tls::Error| Refused::unavailable(e.to_string());
        let trust = Trust::new(&self.trust).map_err(wrong)?;
        let shown = Shown::new().name(AUTH, &self.credentials);
        tls::Server::new(shown, Some(&trust), &[H2, RELAY]).map_err(wrong)
    }

    /// Makes it anew whenever that is due, until nothing is published any more.
    pub async fn run(mut self, tell: watch::Sender<tls::Server>) {
        let mut published = self.service.published.clone();
        loop {
            if published.changed().await.is_err() {
                return;
            }
            let now = self.service.now();
            // One that was made by a clock that has been set back since is not valid yet for anybody.
            let old = now >= self.made + MEMBER_LIFETIME / 2 || now + SKEW < self.made;
            let other = published.borrow_and_update().state.trust.tls_ca != self.trust;
            if !old && !other {
                continue;
            }
            let made = async {
                let renewed = TlsIdentity::new(self.service.clone()).await?;
                let server = renewed.server()?;
                Ok::<_, Refused>((renewed, server))
            };
            match made.await {
                Ok((renewed, server)) => {
                    self = renewed;
                    tell.send_replace(server);
                }
                Err(refused) => tracing::error!("the service's own certificate: {refused}"),
            }
        }
    }
}

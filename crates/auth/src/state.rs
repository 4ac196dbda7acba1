//! The signed state: made of the documents whenever its number grows, and a sign of freshness every minute. It changes
//! nothing.

use crate::authorities::{Signers, trusted};
use crate::cache::StateCache;
use crate::documents::{Phase, Purpose};
use crate::error::{Refused, Result};
use crate::ledger::Ledger;
use bytes::Bytes;
use fleetgate_policy::cluster::{Fresh, Locks, Retiring, State, Trust};
use fleetgate_proto::v1::Signed;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// How often freshness is signed anew.
pub const FRESH_EVERY: Duration = Duration::from_secs(60);
/// How long to wait where the state could not be signed.
const AGAIN: Duration = Duration::from_secs(1);

/// What is published.
#[derive(Clone, Debug)]
pub struct Published {
    /// The state.
    pub state: Arc<State>,
    /// As it goes out.
    pub signed: Signed,
    /// That it still holds.
    pub fresh: Signed,
}

/// Who signs and publishes.
pub struct Publisher {
    ledger: Ledger,
    signers: Arc<Signers>,
    out: watch::Sender<Published>,
}

impl Publisher {
    /// Signs the state as it is.
    pub async fn new(
        ledger: Ledger,
        signers: Arc<Signers>,
    ) -> Result<(Publisher, watch::Receiver<Published>)> {
        let first = sign(&ledger, &signers).await?;
        let (out, published) = watch::channel(first);
        let publisher = Publisher { ledger, signers, out };
        Ok((publisher, published))
    }

    /// Publishes each change as it comes, and freshness every minute.
    pub async fn run(self) {
        let mut seen = self.ledger.seen();
        let mut fresh = tokio::time::interval(FRESH_EVERY);
        fresh.tick().await;
        loop {
            let done = tokio::select! {
                changed = seen.changed() => match changed {
                    Ok(()) => self.changed().await,
                    Err(_) => return,
                },
                _ = fresh.tick() => self.refresh().await,
            };
            if let Err(refused) = done {
                tracing::error!("the state cannot be signed: {refused}");
                tokio::time::sleep(AGAIN).await;
                seen.mark_changed();
            }
        }
    }

    /// Publishes the state, if it has changed.
    pub async fn changed(&self) -> Result<()> {
        let serial = self.ledger.cache().last_serial();
        if serial == self.out.borrow().state.serial {
            return Ok(());
        }
        self.out.send_replace(sign(&self.ledger, &self.signers).await?);
        Ok(())
    }

    /// Signs that it still holds.
    pub async fn refresh(&self) -> Result<()> {
        self.changed().await?;
        let serial = self.out.borrow().state.serial;
        let fresh = sign_fresh(&self.ledger, &self.signers, serial).await?;
        self.out.send_modify(|published| published.fresh = fresh);
        Ok(())
    }
}

async fn sign(ledger: &Ledger, signers: &Signers) -> Result<Published> {
    let now = ledger.now();
    let state = build(&ledger.cache(), now)?;
    let key = signers.ssh(Purpose::State).await?;
    let document = state.to_json();
    let signature = key
        .key()
        .sign("ssh-ed25519", &State::signed(&document))
        .map_err(|e| Refused::unavailable(e.to_string()))?;
    Ok(Published {
        fresh: sign_fresh(ledger, signers, state.serial).await?,
        signed: Signed {
            document: document.into(),
            signature: signature.into(),
        },
        state: Arc::new(state),
    })
}

async fn sign_fresh(ledger: &Ledger, signers: &Signers, serial: u64) -> Result<Signed> {
    let fresh = Fresh {
        serial,
        as_of: ledger.now(),
    };
    let document = fresh.to_json();
    let key = signers.ssh(Purpose::State).await?;
    let signature = key
        .key()
        .sign("ssh-ed25519", &Fresh::signed(&document))
        .map_err(|e| Refused::unavailable(e.to_string()))?;
    Ok(Signed {
        document: Bytes::from(document),
        signature: signature.into(),
    })
}

/// Authorities of machines that sign no more and are trusted still.
fn retiring(cache: &StateCache) -> Vec<Retiring> {
    let machines = [Purpose::Host, Purpose::Tls].into_iter();
    let all = machines.flat_map(|purpose| cache.authorities_of(purpose).map(move |s| (purpose, &s.document)));
    let retired = all.filter(|(_, authority)| authority.phase == Phase::Retired);
    retired
        .filter_map(|(purpose, authority)| {
            let until = authority.until?;
            Some(Retiring {
                authority: trusted(purpose, authority)?,
                since: until.saturating_sub(authority.grace),
                until,
            })
        })
        .collect()
}

/// The state that the documents make.
pub fn build(cache: &StateCache, now: u64) -> Result<State> {
    let missing = || {
        Refused::unavailable(
            "the state holds no cluster, so it is damaged: put a backup in its place with `fleetgate restore BACKUP --replace`",
        )
    };
    let cluster = &cache.cluster.as_ref().ok_or_else(missing)?.document;
    let trust = |purpose: Purpose| {
        // Who signs now first: whoever takes only one takes that.
        let mut all: Vec<_> = cache.authorities_of(purpose).map(|s| &s.document).collect();
        all.sort_by_key(|a| (a.phase != Phase::Active, a.made));
        all.into_iter().filter_map(|a| trusted(purpose, a)).collect()
    };
    Ok(State {
        cluster: cluster.name.clone(),
        serial: cache.last_serial(),
        as_of: now,
        trust: Trust {
            user_ca: trust(Purpose::User),
            host_ca: trust(Purpose::Host),
            tls_ca: trust(Purpose::Tls),
            state_keys: trust(Purpose::State),
            retiring: retiring(cache),
        },
        roles: cache
            .roles
            .values()
            .map(|s| (s.document.name.clone(), s.document.clone()))
            .collect(),
        locks: Locks::new(cache.locks.values().map(|s| s.document.clone())),
        proxies: cluster.proxies.clone(),
    })
}

//! The auth service: its parts, and what runs beside its answers. What each request does is in the module of its thing.

use crate::audit::{Event, Log};
use crate::authorities::Signers;
use crate::cache::StateCache;
use crate::caller::{Caller, CallerProof, Origin};
use crate::challenges::Challenges;
use crate::clock::Clock;
use crate::clock_watch::ClockWatch;
use crate::cookies::Cookies;
use crate::documents::Kind;
use crate::error::{Refused, Result};
use crate::intake::{STREAMS_OF_ONE, Source as IntakeSource};
use crate::inventory::Inventory;
use crate::ledger::{Follower, Ledger, Plan};
use crate::limits::{Buckets, Place, Places, Rate, Source};
use crate::password::Passwords;
use crate::recordings::{READS, VIEWS, VIEWS_OF_ONE};
use crate::refusals::Refusals;
use crate::state::{Published, Publisher};
use fleetgate_archive::Archive;
use fleetgate_base::audit::Description;
use fleetgate_policy::cluster::{ADMIN_MFA, Name};
use fleetgate_store::Store;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// What one source may ask without a certificate: so many at once, then one in so many milliseconds.
pub const STRANGERS: Rate = Rate {
    burst: 30,
    every_ms: 500,
};
/// How often one source may try a password or a secret.
pub const GUESSES: Rate = Rate {
    burst: 10,
    every_ms: 3_000,
};
/// Tries for one user from sources that are not known, all together, beyond which they are slowed.
pub const UNSLOWED: Rate = Rate {
    burst: 20,
    every_ms: 60_000,
};
/// How often one machine may have its certificates renewed. Each is signatures, a change of the state and an event.
pub const RENEWALS: Rate = Rate {
    burst: 32,
    every_ms: 60_000,
};
/// The most tries for one user that are held at once.
pub const MAX_SLOWED: usize = 8;
/// The most that one proxy watches at once. Each of its processes watches two things, and each may keep an answer waiting.
pub const WATCHES_OF_ONE: usize = 64;
/// How long a change waits to be published.
const PUBLISHED: Duration = Duration::from_secs(2);
/// How often it looks what time has done: rotations, expiry, silence.
const TURN: Duration = Duration::from_secs(1);
/// How often memory that the C library holds free is given back. It keeps up to 2 MB at the end of each heap, and every page
/// between blocks in use: each batch of records that is larger than any before would leave its pages behind.
const GIVEN_BACK: Duration = Duration::from_secs(10);

/// The auth service.
pub struct Service {
    pub(crate) ledger: Ledger,
    pub(crate) signers: Arc<Signers>,
    pub(crate) published: watch::Receiver<Published>,
    pub(crate) passwords: Passwords,
    pub(crate) challenges: Challenges,
    pub(crate) cookies: Cookies,
    pub(crate) inventory: Inventory,
    pub(crate) refusals: Refusals,
    pub(crate) clock_watch: ClockWatch,
    /// The service stops: streams that would go on for ever end.
    pub(crate) stopping: watch::Sender<bool>,
    strangers: Buckets<Source>,
    guesses: Buckets<Origin>,
    pub(crate) unslowed: Buckets<Name>,
    pub(crate) renewals: Buckets<(Kind, Name)>,
    pub(crate) slowed: Arc<Places<Name>>,
    /// What proxies watch, by their names.
    pub(crate) watches: Arc<Places<Name>>,
    /// Lists and recordings that are read: by one caller, and by all.
    pub(crate) viewers: Arc<Places<String>>,
    pub(crate) all_viewers: Arc<Places<()>>,
    pub(crate) view_reads: Buckets<String>,
    /// Streams of recordings.
    pub(crate) intakes: Arc<Places<IntakeSource>>,
    /// Recordings; none: where nothing is answered.
    pub(crate) archive: Option<Archive>,
}

/// What runs beside the service's answers.
pub struct Beside {
    follower: Follower,
    publisher: Publisher,
    service: Arc<Service>,
}

impl Service {
    /// On a store that `init` has filled. Nothing is answered before [`Beside::start`].
    pub async fn open(
        store: Arc<dyn Store>,
        audit: Log,
        clock: Arc<dyn Clock>,
        archive: Option<Archive>,
    ) -> Result<(Arc<Service>, Beside)> {
        let (ledger, follower) = Ledger::open(store, audit, clock).await?;
        let signers = Arc::new(Signers::new(ledger.clone()));
        let (publisher, published) = Publisher::new(ledger.clone(), signers.clone()).await?;
        let inventory = Inventory::new(&ledger.cache());
        let service = Arc::new(Service {
            ledger,
            signers,
            published,
            passwords: Passwords::default(),
            challenges: Challenges::default(),
            cookies: Cookies::default(),
            inventory,
            refusals: Refusals::default(),
            clock_watch: ClockWatch::default(),
            stopping: watch::Sender::new(false),
            strangers: Buckets::new(STRANGERS),
            guesses: Buckets::new(GUESSES),
            unslowed: Buckets::new(UNSLOWED),
            renewals: Buckets::new(RENEWALS),
            slowed: Places::new(MAX_SLOWED),
            watches: Places::new(WATCHES_OF_ONE),
            viewers: Places::new(VIEWS_OF_ONE),
            all_viewers: Places::new(VIEWS),
            view_reads: Buckets::new(READS),
            intakes: Places::new(STREAMS_OF_ONE),
            archive,
        });
        let beside = Beside {
            follower,
            publisher,
            service: service.clone(),
        };
        Ok((service, beside))
    }

    /// A place for something that a proxy watches.
    pub(crate) fn watches(&self, caller: &Caller) -> Result<Place<Name>> {
        let proxy = caller.proxy(self)?;
        let taken = self.watches.take(proxy.clone());
        taken.ok_or_else(|| {
            Refused::busy(format!(
                "the proxy {proxy} watches {WATCHES_OF_ONE} things, as many as it may: end other processes of it"
            ))
        })
    }

    /// A stream's task, until it has ended or the service stops.
    pub(crate) fn until_stopped<F>(&self, stream: F) -> impl Future<Output = ()> + use<F>
    where
        F: Future<Output = ()>,
    {
        let mut stopping = self.stopping.subscribe();
        async move {
            tokio::select! {
                () = stream => {}
                _ = stopping.wait_for(|stopping| *stopping) => {}
            }
        }
    }

    /// The copy of the store.
    pub(crate) fn cache(&self) -> std::sync::RwLockReadGuard<'_, StateCache> {
        self.ledger.cache()
    }

    /// The cluster's name.
    pub(crate) fn cluster(&self) -> Name {
        self.published.borrow().state.cluster.clone()
    }

    /// What is published now.
    pub(crate) fn published(&self) -> Published {
        self.published.borrow().clone()
    }

    pub(crate) fn now(&self) -> u64 {
        self.ledger.now()
    }

    /// An event that tells who did it and from where.
    pub(crate) fn event(&self, described: Description, caller: &Caller) -> Event {
        Event::new(described, self.ledger.millis())
            .with("by", caller.by())
            .with("source", caller.from())
    }

    /// Plans a change and does it; what it changes in the signed state is published when this is answered.
    pub(crate) async fn change<T>(&self, plan: impl FnMut(&StateCache) -> Result<Plan<T>>) -> Result<T> {
        let answer = self.ledger.change(plan).await?;
        let wanted = self.cache().last_serial();
        let mut published = self.published.clone();
        let done = published.wait_for(|p| p.state.serial >= wanted);
        // The change is made, whether or not the state can be signed now: that is tried again until it can.
        let _ = tokio::time::timeout(PUBLISHED, done).await;
        Ok(answer)
    }

    /// Refuses whoever asks too often. The unix socket's users are administrators already.
    pub(crate) fn bounded(&self, caller: &Caller) -> Result<()> {
        let source = caller.source();
        self.within(
            &self.strangers,
            caller,
            &source,
            "too many requests from your address",
        )
    }

    /// The same for whoever shows a secret.
    pub(crate) fn guess(&self, caller: &Caller) -> Result<()> {
        self.guess_by(caller, &Origin::of(caller))
    }

    /// The same for whoever shows a password or code, counted by its origin.
    pub(crate) fn guess_by(&self, caller: &Caller, origin: &Origin) -> Result<()> {
        let what = match origin {
            Origin::Source(_) => "too many tries from your address",
            Origin::Device(_) => "too many tries from your device",
            Origin::Login(..) => "too many tries with your login",
        };
        self.within(&self.guesses, caller, origin, what)
    }

    fn within<K: Eq + std::hash::Hash + Clone>(
        &self,
        buckets: &Buckets<K>,
        caller: &Caller,
        key: &K,
        what: &str,
    ) -> Result<()> {
        if matches!(caller.who, CallerProof::Local(_)) {
            return Ok(());
        }
        buckets
            .take(key, self.ledger.uptime())
            .map_err(|seconds| Refused::later(what, seconds))
    }

    /// That the caller may administer: by the unix socket, or with a certificate with an admin role that its user still
    /// has, and a fresh second factor.
    pub(crate) fn administrator(&self, caller: &Caller) -> Result<()> {
        if let CallerProof::Local(_) = caller.who {
            return Ok(());
        }
        let now = self.now();
        let (identity, user) = caller.user(self)?;
        let cache = self.cache();
        let held = cache.users.get(user.as_str());
        let held = held
            .filter(|u| u.document.active)
            .map_or(&[][..], |u| &u.document.roles);
        let admin = identity.roles.iter().any(|role| {
            let known = cache.roles.get(role.as_str());
            held.contains(role) && known.is_some_and(|r| r.document.admin)
        });
        if !admin {
            return Err(Refused::forbidden(format!(
                "{user} has no role that may administer the cluster: an administrator gives one with fleetgate user change"
            )));
        }
        match identity.mfa {
            Some(at) if now <= at.saturating_add(ADMIN_MFA.as_secs()) => Ok(()),
            _ => Err(Refused::forbidden(
                "administering from afar needs a second factor that is not older than an hour: run fleetgate login --mfa",
            )),
        }
    }

    /// What time has done; called every second.
    pub async fn turn(&self) {
        self.passwords.rest();
        let done = [
            // First: the others ask whether the clock was set.
            ("clock", self.turn_clock().await),
            ("rotation", self.turn_authorities().await),
            ("expiry", self.turn_expired().await),
            ("inventory", self.turn_inventory().await),
            ("refusals", self.tell_sums(false).await),
        ];
        for (what, done) in done {
            if let Err(refused) = done {
                tracing::error!("{what}: {refused}");
            }
        }
    }
}

impl Beside {
    /// Starts what keeps the service up to date; it ends when the set is dropped. A task that ends before says what it did.
    pub fn start(self) -> JoinSet<&'static str> {
        let Beside {
            follower,
            publisher,
            service,
        } = self;
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            follower.run().await;
            "keeps the copy of the state up to date"
        });
        tasks.spawn(async move {
            publisher.run().await;
            "signs the state"
        });
        let ledger = service.ledger.clone();
        tasks.spawn(async move {
            ledger.post().await;
            "writes the audit log"
        });
        tasks.spawn(async move {
            let mut turns = tokio::time::interval(TURN);
            turns.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
            let mut given_back = Instant::now();
            loop {
                turns.tick().await;
                service.turn().await;
                if given_back.elapsed() >= GIVEN_BACK {
                    fleetgate_sys::heap::rest();
                    given_back = Instant::now();
                }
            }
        });
        tasks
    }
}

//! A store that says no: the answer is in words, and nothing is half done.

use super::place::{Keys, PASSWORD, Place, run};
use crate::audit::{Log, Settings};
use crate::clock::{Clock, SetClock};
use crate::error::Refused;
use crate::init::local;
use crate::service::Service;
use crate::{Config, RefusedKind, Server};
use fleetgate_net::Ticket;
use fleetgate_proto::v1;
use fleetgate_store::sqlite::Sqlite;
use fleetgate_store::{
    Answer, Change, Entry, Error, Feed, Key, LeaseId, MAX_WAITING_UPDATES, Outcome, Page, Prefix, Range,
    Revision, Step, Store, Update, Watch,
};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A store that takes no changes while it is told not to.
struct Stubborn {
    inner: Sqlite,
    says: Mutex<Option<Error>>,
}

impl Store for Stubborn {
    fn get(&self, key: &Key) -> Answer<'_, Option<Entry>> {
        self.inner.get(key)
    }

    fn transact(&self, steps: Vec<Step>) -> Answer<'_, Outcome> {
        match self.says.lock().unwrap().clone() {
            Some(error) => Box::pin(async { Err(error) }),
            None => self.inner.transact(steps),
        }
    }

    fn range(&self, range: Range) -> Answer<'_, Page> {
        self.inner.range(range)
    }

    fn watch(&self, prefix: Prefix, after: Revision) -> Answer<'_, Watch> {
        self.inner.watch(prefix, after)
    }

    fn grant(&self, ttl: Duration) -> Answer<'_, LeaseId> {
        self.inner.grant(ttl)
    }

    fn keep_alive(&self, lease: LeaseId) -> Answer<'_, ()> {
        self.inner.keep_alive(lease)
    }

    fn revoke(&self, lease: LeaseId) -> Answer<'_, ()> {
        self.inner.revoke(lease)
    }
}

#[test]
fn what_the_store_refuses_is_said_and_leaves_no_trace() {
    run(async {
        let directory = std::env::temp_dir().join(format!("fleetgate-faults-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&directory);
        let clock = SetClock::at(1_800_000_000);
        let name = "orchard".parse().unwrap();
        crate::init(&directory, &name, &[], Arc::new(clock.clone()))
            .await
            .unwrap();
        let store = Arc::new(Stubborn {
            inner: Sqlite::open(&directory).unwrap(),
            says: Mutex::new(None),
        });
        let settings = Settings {
            size: 1 << 30,
            clock: Arc::new(clock.clone()),
        };
        let audit = Log::open(&directory.join("audit.db"), settings).unwrap();
        let (service, beside) = Service::open(store.clone(), audit, Arc::new(clock.clone()), None)
            .await
            .unwrap();
        let mut tasks = beside.start();
        let caller = local();
        let ask = |name: &str| v1::AddUserRequest {
            name: name.into(),
            roles: vec!["access".into()],
            invite_lifetime: 0,
        };
        let invite = service.add_user(&caller, ask("ada")).await.expect("the control");
        let secret = invite.text.parse::<Ticket>().unwrap().secret().to_string();
        let token = v1::AddTokenRequest {
            kind: "node".into(),
            ..v1::AddTokenRequest::default()
        };
        let token = service.add_token(&caller, token).await.expect("the control");
        let token = token.text.parse::<Ticket>().unwrap().secret().to_string();
        let join = || v1::JoinRequest {
            secret: token.clone(),
            name: "web1".into(),
            ..Keys::fresh().join()
        };
        let begun = service.begin_invite(&caller, &secret).await.unwrap();
        let accept = || v1::AcceptInviteRequest {
            secret: secret.clone(),
            password: PASSWORD.into(),
            code: super::place::code(&begun.otpauth, clock.seconds()),
        };
        let path = PathBuf::from("state.db");
        let revision = service.cache().revision;
        for (error, words) in [
            (Error::DiskFull(path.clone()), "is full: nothing was changed"),
            (
                Error::ReadOnly(path.clone()),
                "may not be written: nothing was changed",
            ),
            (
                Error::Io(path.clone(), "input/output error".into()),
                "input/output error",
            ),
        ] {
            *store.says.lock().unwrap() = Some(error);
            let told = [
                service.add_user(&caller, ask("bob")).await.map(drop),
                service.join(&caller, join()).await.map(drop),
                service.accept_invite(&caller, accept()).await.map(drop),
                service.remove_user(&caller, "ada").await,
                service
                    .rotate(
                        &caller,
                        v1::RotateRequest {
                            kind: "all".into(),
                            grace: 0,
                            sshds_ready: false,
                        },
                    )
                    .await
                    .map(drop),
            ];
            for told in told {
                let Refused { kind, words: said } = told.expect_err(words);
                assert_eq!(kind, RefusedKind::Unavailable, "{said}");
                assert!(
                    said.contains(words) && said.contains("state.db"),
                    "{words}: {said}"
                );
            }
            assert_eq!(service.users().users.len(), 1, "reading goes on");
        }
        assert_eq!(service.cache().users.len() + service.cache().nodes.len(), 1);
        assert!(service.cache().revision >= revision);
        *store.says.lock().unwrap() = None;
        // Neither invite nor token was burnt, and nobody was removed.
        service
            .accept_invite(&caller, accept())
            .await
            .expect("the invite is good");
        service.join(&caller, join()).await.expect("the token is good");
        assert_eq!(service.authorities().authorities.len(), 4);
        tasks.shutdown().await;
        drop(service);
        std::fs::remove_dir_all(&directory).unwrap();
    });
}

/// A store whose first watch the test feeds, and which cannot be read so many times.
struct Behind {
    inner: Sqlite,
    feed: Mutex<Option<Feed>>,
    refusals: AtomicU32,
}

impl Store for Behind {
    fn get(&self, key: &Key) -> Answer<'_, Option<Entry>> {
        self.inner.get(key)
    }

    fn transact(&self, steps: Vec<Step>) -> Answer<'_, Outcome> {
        self.inner.transact(steps)
    }

    fn range(&self, range: Range) -> Answer<'_, Page> {
        let less = |left: u32| left.checked_sub(1);
        match self
            .refusals
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, less)
        {
            Ok(_) => Box::pin(async { Err(Error::Io("state.db".into(), "input/output error".into())) }),
            Err(_) => self.inner.range(range),
        }
    }

    fn watch(&self, prefix: Prefix, after: Revision) -> Answer<'_, Watch> {
        let mut fed = self.feed.lock().unwrap();
        if fed.is_some() {
            return self.inner.watch(prefix, after);
        }
        let (feed, watch) = Watch::new(prefix, after);
        *fed = Some(feed);
        Box::pin(async { Ok(watch) })
    }

    fn grant(&self, ttl: Duration) -> Answer<'_, LeaseId> {
        self.inner.grant(ttl)
    }

    fn keep_alive(&self, lease: LeaseId) -> Answer<'_, ()> {
        self.inner.keep_alive(lease)
    }

    fn revoke(&self, lease: LeaseId) -> Answer<'_, ()> {
        self.inner.revoke(lease)
    }
}

#[test]
fn a_store_that_cannot_be_read_again_is_read_until_it_can() {
    run(async {
        let directory = std::env::temp_dir().join(format!("fleetgate-behind-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&directory);
        let clock = SetClock::at(1_800_000_000);
        let name = "orchard".parse().unwrap();
        crate::init(&directory, &name, &[], Arc::new(clock.clone()))
            .await
            .unwrap();
        let store = Arc::new(Behind {
            inner: Sqlite::open(&directory).unwrap(),
            feed: Mutex::default(),
            refusals: AtomicU32::new(0),
        });
        let settings = Settings {
            size: 1 << 30,
            clock: Arc::new(clock.clone()),
        };
        let audit = Log::open(&directory.join("audit.db"), settings).unwrap();
        let (service, beside) = Service::open(store.clone(), audit, Arc::new(clock.clone()), None)
            .await
            .unwrap();
        let mut tasks = beside.start();
        // More changes at once than a watch keeps.
        store.refusals.store(1, Ordering::Release);
        let revision = service.cache().revision;
        let update = Update {
            revision,
            changes: vec![Change::Delete(crate::cache::key(&["outbox", "none"]))],
        };
        {
            let feed = store.feed.lock().unwrap();
            let feed = feed.as_ref().expect("it is watched");
            for _ in 0..MAX_WAITING_UPDATES {
                assert!(feed.send(&update));
            }
            assert!(!feed.send(&update), "it fell behind");
        }
        let (lost, _) = Watch::new(Prefix::everything(), revision);
        drop(store.feed.lock().unwrap().replace(lost));
        while store.refusals.load(Ordering::Acquire) > 0 {
            tokio::task::yield_now().await;
        }
        let ask = v1::AddUserRequest {
            name: "ada".into(),
            roles: vec!["access".into()],
            invite_lifetime: 0,
        };
        service
            .add_user(&local(), ask)
            .await
            .expect("the copy is up to date again");
        assert_eq!(service.cache().users.len(), 1);
        tasks.shutdown().await;
        drop(service);
        std::fs::remove_dir_all(&directory).unwrap();
    });
}

#[test]
fn the_service_ends_with_an_error_when_what_runs_beside_it_has_ended() {
    run(async {
        let (directory, clock) = Place::new().await.stop().await;
        let config = Config {
            listen: ([127, 0, 0, 1], 0).into(),
            clock: Arc::new(clock),
            ..Config::new(&directory)
        };
        let listener = std::net::TcpListener::bind(config.listen).unwrap();
        let mut server = Server::open(config, listener).await.unwrap();
        server.beside().spawn(async { "does the test" });
        let ended = server.run(std::future::pending()).await;
        let words = ended.expect_err("it cannot go on").words;
        assert!(words.contains("what does the test has ended"), "{words}");
        std::fs::remove_dir_all(&directory).unwrap();
    });
}

//! A store that says no: the answer is in words, and nothing is half done.

use super::place::{Keys, PASSWORD, run};
use crate::RefusedKind;
use crate::audit::{Log, Settings};
use crate::clock::{Clock, SetClock};
use crate::error::Refused;
use crate::init::local;
use crate::service::Service;
use fleetgate_net::Ticket;
use fleetgate_proto::v1;
use fleetgate_store::sqlite::Sqlite;
use fleetgate_store::{
    Answer, Entry, Error, Key, LeaseId, Outcome, Page, Prefix, Range, Revision, Step, Store, Watch,
};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::Mutex;
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
        let (service, beside) = Service::open(store.clone(), audit, Arc::new(clock.clone()))
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
        let revision = service.book().revision;
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
        assert_eq!(service.book().users.len() + service.book().nodes.len(), 1);
        assert!(service.book().revision >= revision);
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

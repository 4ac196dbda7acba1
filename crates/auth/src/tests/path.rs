//! The whole path: a cluster, a user, a node, the state.

use super::place::{Holder, Keys, PASSWORD, Place, joined_here, run};
use fleetgate_policy::cluster::{Identity, SSH_EXTENSION, State, Subject};
use fleetgate_proto::v1;
use fleetgate_ssh::codec::Reader;
use fleetgate_ssh::key::{Certificate, PublicKey, verify};

#[test]
fn from_nothing_to_a_login_and_a_node() {
    run(async {
        let place = Place::new().await;
        let ada = place.user("ada", &["access"]).await;
        let (holder, given) = place.log_in(&ada).await;
        assert_eq!(given.logins, ["ada"]);
        let certificate = Certificate::parse(&given.ssh_certificate).unwrap();
        assert_eq!(certificate.signature_holds(), Ok(()));
        assert_eq!(certificate.key_id(), "ada (orchard)");
        assert_eq!(certificate.principals(), ["ada"]);
        assert_eq!(certificate.valid_before(), given.expires);
        let data = certificate.extension(SSH_EXTENSION).unwrap();
        let in_ssh = Identity::parse(Reader::new(data).string("identity").unwrap()).unwrap();
        let leaf = fleetgate_net::x509::Certificate::read(&holder.chain[0]).unwrap();
        assert_eq!(leaf.identity().unwrap(), Some(in_ssh.clone()), "the same in both");
        assert_eq!(in_ssh.subject, Subject::User("ada".parse().unwrap()));
        assert!(
            certificate.has_extension("permit-pty") && !certificate.has_extension("permit-X11-forwarding")
        );
        // Proxy and node.
        let edge = place.machine("proxy", "edge").await;
        let web1 = place.machine("node", "web1").await;
        assert_eq!(names_of(&web1), ["web1.node.fleetgate"]);
        assert_eq!(names_of(&edge), ["proxy.fleetgate"]);
        let mut proxy = place.proxy(&edge).await;
        let mut states = proxy
            .watch(v1::WatchRequest { serial: 0 })
            .await
            .unwrap()
            .into_inner();
        let first = states.message().await.unwrap().unwrap();
        let state = checked(first.state.as_ref().unwrap());
        assert!(state.trust.user_ca.contains(&certificate.ca().blob().to_vec()));
        assert_eq!(state.proxies, ["proxy.example:443"]);
        // A lock is there at once.
        let lock = v1::AddLockRequest {
            target: Some(v1::LockTarget {
                kind: "user".into(),
                name: "ada".into(),
            }),
            reason: "lost her laptop".into(),
            lifetime: 0,
        };
        place.admin().await.add_lock(lock).await.unwrap();
        let next = loop {
            let message = states.message().await.unwrap().unwrap();
            if let Some(state) = message.state {
                break checked(&state);
            }
        };
        assert!(next.serial > state.serial);
        assert_eq!(next.locks.len(), 1);
        assert!(state.follows(&next).is_ok() && next.follows(&state).is_err());
        let keys = Keys::fresh();
        let refused = place
            .stranger()
            .await
            .login(place.login_request(&ada, &keys))
            .await
            .unwrap_err();
        assert!(refused.message().contains("lost her laptop"), "{refused}");
        for event in [
            "cluster_made",
            "user_added",
            "invite_accepted",
            "login",
            "joined",
            "lock_added",
            "login_refused",
        ] {
            assert!(!place.events(event).await.is_empty(), "{event}");
        }
        let log = std::fs::read(place.directory.join("audit.db")).unwrap();
        let said = |text: &str| log.windows(text.len()).any(|w| w == text.as_bytes());
        assert!(!said(PASSWORD));
    });
}

#[test]
fn the_machine_of_auth_joins_without_a_token() {
    run(async {
        let (directory, clock) = Place::new().await.stop().await;
        let keys = Keys::fresh();
        let joined = joined_here(&directory, &clock, "edge", &keys).await;
        assert_eq!(
            (joined.kind.as_str(), joined.cluster.as_str()),
            ("proxy", "orchard")
        );
        let place = Place::on(directory, clock).await;
        let edge = Holder {
            keys,
            chain: joined.tls_chain,
        };
        let mut proxy = place.proxy(&edge).await;
        assert!(proxy.watch(v1::WatchRequest { serial: 0 }).await.is_ok());
        let (directory, clock) = place.stop().await;
        let name = "orchard".parse().unwrap();
        let again = crate::init(&directory, &name, &[], std::sync::Arc::new(clock.clone())).await;
        assert_eq!(
            again.map_err(|e| e.kind),
            Err(crate::RefusedKind::Exists),
            "one cluster for each directory"
        );
        drop(Place::on(directory, clock).await);
    });
}

/// The state that a document holds, its signature checked by the key that it names itself.
pub fn checked(signed: &v1::Signed) -> State {
    let state = State::parse_json(&signed.document).unwrap();
    let by = |blob: &Vec<u8>| {
        let key = PublicKey::parse(blob).unwrap();
        verify(
            &key,
            "ssh-ed25519",
            &State::signed(&signed.document),
            &signed.signature,
        )
        .is_ok()
    };
    assert!(state.trust.state_keys.iter().any(by), "the state is signed");
    state
}

fn names_of(holder: &Holder) -> Vec<String> {
    let leaf = fleetgate_net::x509::Certificate::read(&holder.chain[0]).unwrap();
    leaf.names().to_vec()
}

//! How many there may be of everything that somebody can make.

use super::place::{Keys, Place, run};
use crate::RefusedKind;
use crate::cache::{Stored, Table};
use crate::connections::{CERTIFIED_OF_ONE, RESERVED, STRANGERS_OF_ONE};
use crate::devices::MAX_DEVICES;
use crate::documents::{Device, Kind, Member, Token, Tries, User};
use crate::error::Refused;
use crate::init::local;
use crate::ledger::MAX_OUTBOX;
use crate::members::MAX_MEMBERS;
use crate::server::{HANDSHAKES_OF_ONE, MAX_LOCAL, SOCKET};
use crate::tokens::MAX_TOKENS;
use crate::tries::MAX_TRIED;
use crate::users::MAX_USERS;
use fleetgate_net::h2::Channel;
use fleetgate_proto::v1;
use fleetgate_proto::v1::identity_client::IdentityClient;
use fleetgate_store::Revision;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};
use tonic::Code;

/// As many as `count`, all the same.
fn full<T: Clone>(count: usize, document: &T) -> Table<T> {
    let stored = Stored {
        revision: Revision(1),
        document: document.clone(),
    };
    (0..count).map(|i| (format!("x{i}"), stored.clone())).collect()
}

fn busy<T>(done: Result<T, Refused>, words: &str) {
    let refused = done.err().expect(words);
    assert_eq!(refused.kind, RefusedKind::Busy, "{refused}");
    assert!(refused.words.contains(words), "{words}: {refused}");
}

#[test]
fn tables_of_the_cluster_are_bounded() {
    run(async {
        let place = Place::new().await;
        let service = place.service();
        let pretend =
            |change: &dyn Fn(&mut crate::cache::StateCache)| service.ledger.pretend(|cache| change(cache));
        let caller = local();
        let user = User {
            roles: Vec::new(),
            active: true,
            made: 0,
        };
        pretend(&|cache| cache.users = full(MAX_USERS, &user));
        let add = v1::AddUserRequest {
            name: "ada".into(),
            ..v1::AddUserRequest::default()
        };
        busy(service.add_user(&caller, add.clone()).await, "100000 users");
        pretend(&|cache| cache.users.clear());
        service.add_user(&caller, add).await.expect("the control");

        let token = Token {
            id: String::new(),
            kind: Kind::Node,
            expires: u64::MAX,
            reusable: false,
            name: None,
            labels: Default::default(),
            last: None,
        };
        let ask = || v1::AddTokenRequest {
            kind: "node".into(),
            ..v1::AddTokenRequest::default()
        };
        pretend(&|cache| cache.tokens = full(MAX_TOKENS, &token));
        busy(service.add_token(&caller, ask()).await, "10000 tokens");
        pretend(&|cache| cache.tokens.clear());
        service.add_token(&caller, ask()).await.expect("the control");

        let member = Member {
            key: None,
            host_keys: Vec::new(),
            earlier_host_keys: Vec::new(),
            labels: Default::default(),
            address: None,
            version: String::new(),
            made: 0,
            token: String::new(),
        };
        let join = || v1::JoinRequest {
            name: "web1".into(),
            ..Keys::fresh().join()
        };
        pretend(&|cache| cache.nodes = full(MAX_MEMBERS, &member));
        busy(
            service.join_here(&caller, Kind::Node, join()).await,
            "65536 machines",
        );
        pretend(&|cache| cache.nodes.clear());
        service
            .join_here(&caller, Kind::Node, join())
            .await
            .expect("the control");

        // Of the names that are tried the oldest one goes.
        let login = |i: usize| v1::LoginRequest {
            user: format!("nobody{i}"),
            keys: Some(Keys::fresh().request()),
            ..v1::LoginRequest::default()
        };
        let refused = service.login(&caller, login(0)).await.expect_err("nobody");
        assert_eq!(refused.kind, RefusedKind::Unproven, "{refused}");
        let later = Tries {
            failed: 1,
            last: place.now() + 10,
        };
        pretend(&|cache| cache.tries.extend(full(MAX_TRIED - 1, &later)));
        for i in 1..10 {
            let refused = service.login(&caller, login(i)).await.expect_err("nobody");
            assert_eq!(refused.kind, RefusedKind::Unproven, "{refused}");
            assert_eq!(service.cache().tries.len(), MAX_TRIED);
            assert!(
                !service
                    .cache()
                    .tries
                    .contains_key(&format!("nobody{}/local", i - 1))
            );
        }
        pretend(&|cache| cache.tries.clear());

        // Events that the audit log does not take.
        pretend(&|cache| cache.outbox = full(MAX_OUTBOX, &Vec::new()));
        let refused = service
            .add_token(&caller, ask())
            .await
            .expect_err("nothing is changed");
        assert_eq!(refused.kind, RefusedKind::Unavailable);
        assert!(refused.words.contains("audit.db"), "{refused}");
    });
}

#[test]
fn devices_of_a_user_are_bounded() {
    run(async {
        let place = Place::new().await;
        let ada = place.user("ada", &["access"]).await;
        let (holder, _) = place.log_in(&ada).await;
        let device = Device {
            user: "ada".parse().unwrap(),
            name: "x".into(),
            key: String::new(),
            approved: true,
            made: 0,
        };
        place
            .service()
            .ledger
            .pretend(|cache| cache.devices = full(MAX_DEVICES, &device));
        let enroll = async |name: &str| {
            let nonce = place.stranger().await.challenge(v1::ChallengeRequest {}).await;
            let nonce = nonce.unwrap().into_inner().nonce;
            let key = Keys::fresh().ssh;
            let blob = bytes::Bytes::copy_from_slice(key.public().blob());
            let signed = fleetgate_proto::signed::enroll(&nonce, &blob);
            let request = v1::EnrollDeviceRequest {
                name: name.to_string(),
                key: blob,
                nonce,
                signature: key.sign("ssh-ed25519", &signed).unwrap().into(),
            };
            let channel = place.channel_of(&holder).await;
            v1::identity_client::IdentityClient::new(channel)
                .enroll_device(request)
                .await
        };
        assert_eq!(
            enroll("one more").await.unwrap_err().code(),
            Code::ResourceExhausted
        );
        place.service().ledger.pretend(|cache| cache.devices.clear());
        for name in ["", "a\nb", &"a".repeat(129)] {
            assert_eq!(
                enroll(name).await.unwrap_err().code(),
                Code::InvalidArgument,
                "{name:?}"
            );
        }
        enroll(&"a".repeat(128)).await.expect("the control");
    });
}

#[test]
fn connections_by_the_unix_socket_are_bounded() {
    run(async {
        let place = Place::new().await;
        let mut held = Vec::new();
        for _ in 0..MAX_LOCAL {
            held.push(UnixStream::connect(place.directory.join(SOCKET)).await.unwrap());
        }
        let mut one_more = UnixStream::connect(place.directory.join(SOCKET)).await.unwrap();
        let mut room = [0; 1];
        // HTTP/2 is begun by the client: whoever hears something before was closed.
        assert_eq!(one_more.read(&mut room).await.unwrap_or(0), 0, "closed");
        held.clear();
        loop {
            // Those that went are noticed one after the other.
            let mut admin = place.admin().await;
            if admin.users(v1::Empty {}).await.is_ok() {
                break;
            }
        }
    });
}

#[test]
fn connections_of_strangers_are_bounded_and_take_no_place_of_others() {
    run(async {
        let place = Place::new().await;
        let edge = place.machine("proxy", "edge").await;
        let direct = async || {
            let tcp = TcpStream::connect(place.address).await.unwrap();
            let mut stranger = place.stranger_by(tcp).await?;
            let hello = stranger.hello(v1::HelloRequest {}).await;
            place.clock.advance(1);
            hello.map(|_| stranger).map_err(|status| status.to_string())
        };
        let mut held = Vec::new();
        for _ in 0..STRANGERS_OF_ONE {
            held.push(direct().await.expect("there is room"));
        }
        assert!(direct().await.is_err(), "one more of this source");
        // By way of a proxy others come in.
        let by_proxy = place.passing_on(&edge, "192.0.2.1:1").await.unwrap();
        let mut other = place.stranger_by(by_proxy).await.expect("another source");
        assert!(other.hello(v1::HelloRequest {}).await.is_ok());
        held.clear();
        // Those that went are noticed one after the other.
        while direct().await.is_err() {}
        let mut proxy = place.proxy(&edge).await;
        assert!(proxy.watch(v1::WatchRequest { serial: 0 }).await.is_ok());
    });
}

#[test]
fn handshakes_that_nobody_finishes_shut_no_proxy_out() {
    run(async {
        let place = Place::new().await;
        let edge = place.machine("proxy", "edge").await;
        let mut held = Vec::new();
        // As a user of auth's machine may: from the address that the proxy there has, too.
        for _ in 0..2 * HANDSHAKES_OF_ONE {
            let mut one = TcpStream::connect(place.address).await.unwrap();
            one.write_all(&[0x16, 3, 1, 0, 200]).await.unwrap();
            held.push(one);
        }
        // The oldest have gone by themselves.
        let mut room = [0; 1];
        assert_eq!(held[0].read(&mut room).await.unwrap_or(0), 0, "closed");
        let mut proxy = place.proxy(&edge).await;
        assert!(proxy.watch(v1::WatchRequest { serial: 0 }).await.is_ok());
        let by_proxy = place.passing_on(&edge, "192.0.2.1:1").await.unwrap();
        let mut user = place.stranger_by(by_proxy).await.expect("a user by the proxy");
        assert!(user.hello(v1::HelloRequest {}).await.is_ok());
    });
}

#[test]
fn proxies_come_in_when_all_places_are_taken_and_nobody_else() {
    run(async {
        let place = Place::new().await;
        let edge = place.machine("proxy", "edge").await;
        let (directory, clock) = place.stop().await;
        let place = Place::with(directory, clock, 16).await;
        let mut held = Vec::new();
        // The last ones are without a place, and more than are kept: none of them keeps a proxy out.
        for _ in 0..16 + RESERVED + 8 {
            held.push(TcpStream::connect(place.address).await.unwrap());
        }
        let stranger = async || {
            let tcp = TcpStream::connect(place.address).await.unwrap();
            let mut stranger = place.stranger_by(tcp).await?;
            let hello = stranger.hello(v1::HelloRequest {}).await;
            hello.map(|_| ()).map_err(|status| status.to_string())
        };
        assert!(stranger().await.is_err(), "the control: all places are taken");
        let mut proxy = place.proxy(&edge).await;
        assert!(proxy.watch(v1::WatchRequest { serial: 0 }).await.is_ok());
        let by_proxy = place.passing_on(&edge, "192.0.2.1:1").await.unwrap();
        assert!(
            place.stranger_by(by_proxy).await.is_err(),
            "what is kept for proxies is not for those they pass on"
        );
        held.clear();
        // Those that went are noticed one after the other.
        while stranger().await.is_err() {}
    });
}

#[test]
fn connections_of_one_certificate_to_auth_are_bounded() {
    run(async {
        let place = Place::new().await;
        let (ada, kim) = (place.user("ada", &[]).await, place.user("kim", &[]).await);
        let ((ada, _), (kim, _)) = (place.log_in(&ada).await, place.log_in(&kim).await);
        let mut held = Vec::new();
        let says = async |holder| {
            let mut client = IdentityClient::new(place.channel_of(holder).await);
            place.clock.advance(1);
            client.hello(v1::HelloRequest {}).await.map(|_| client)
        };
        for _ in 0..CERTIFIED_OF_ONE {
            held.push(says(&ada).await.expect("there is room"));
        }
        assert!(says(&ada).await.is_err(), "one more");
        assert!(says(&kim).await.is_ok(), "somebody else");
        held.clear();
        while says(&ada).await.is_err() {}
    });
}

/// The source that the audit log names for a join that is refused.
async fn source_in_audit(place: &Place, identity: &mut IdentityClient<Channel>) -> serde_json::Value {
    let token = place.token("node", "web1").await;
    let request = v1::JoinRequest {
        secret: token.secret().to_string(),
        name: "web2".to_string(),
        ..Keys::fresh().join()
    };
    let status = identity.join(request).await.unwrap_err();
    assert!(status.message().contains("for the name web1"), "{status}");
    let event = place.events("join_refused").await.pop().expect("an event");
    event["source"].clone()
}

#[test]
fn only_a_proxy_says_where_a_connection_comes_from() {
    run(async {
        let place = Place::new().await;
        let edge = place.machine("proxy", "edge").await;
        let by_proxy = place.passing_on(&edge, "192.0.2.7:1").await.unwrap();
        let mut user = place.stranger_by(by_proxy).await.expect("the control");
        assert_eq!(source_in_audit(&place, &mut user).await, "192.0.2.7");
        // A user of auth's own machine: no certificate, and a line.
        let mut tcp = TcpStream::connect(place.address).await.unwrap();
        let line = fleetgate_net::relay::line("192.0.2.8:1".parse().unwrap());
        tcp.write_all(line.as_bytes()).await.unwrap();
        if let Ok(mut forged) = place.stranger_by(tcp).await {
            panic!("it is believed: {}", source_in_audit(&place, &mut forged).await);
        }
        // Certificates of others, of a proxy that was removed.
        let node = place.machine("node", "web9").await;
        let user = place.user("ada", &["access"]).await;
        let (user, _) = place.log_in(&user).await;
        let gone = place.machine("proxy", "edge2").await;
        let name = v1::NodeName {
            name: "edge2".into(),
            force: false,
        };
        place.admin().await.remove_node(name).await.unwrap();
        for (what, holder) in [("a node", &node), ("a user", &user), ("a removed proxy", &gone)] {
            let Ok(stream) = place.passing_on(holder, "192.0.2.8:1").await else {
                continue;
            };
            assert!(place.stranger_by(stream).await.is_err(), "{what}");
        }
        let tcp = TcpStream::connect(place.address).await.unwrap();
        assert!(place.stranger_by(tcp).await.is_ok(), "the control");
    });
}

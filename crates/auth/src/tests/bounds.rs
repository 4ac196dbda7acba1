//! How many there may be of everything that somebody can make.

use super::place::{Keys, Place, run};
use crate::RefusedKind;
use crate::book::{Stored, Table};
use crate::devices::MAX_DEVICES;
use crate::documents::{Device, Kind, Member, Token, Tries, User};
use crate::error::Refused;
use crate::init::local;
use crate::ledger::MAX_OUTBOX;
use crate::login::MAX_TRIED;
use crate::members::{MAX_MEMBERS, MAX_TOKENS};
use crate::server::{MAX_LOCAL, SOCKET, STRANGERS_OF_ONE};
use crate::users::MAX_USERS;
use fleetgate_proto::v1;
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
        let pretend = |change: &dyn Fn(&mut crate::book::Book)| service.ledger.pretend(|book| change(book));
        let caller = local();
        let user = User {
            roles: Vec::new(),
            active: true,
            made: 0,
        };
        pretend(&|book| book.users = full(MAX_USERS, &user));
        let add = v1::AddUserRequest {
            name: "ada".into(),
            ..v1::AddUserRequest::default()
        };
        busy(service.add_user(&caller, add.clone()).await, "100000 users");
        pretend(&|book| book.users.clear());
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
        pretend(&|book| book.tokens = full(MAX_TOKENS, &token));
        busy(service.add_token(&caller, ask()).await, "10000 tokens");
        pretend(&|book| book.tokens.clear());
        service.add_token(&caller, ask()).await.expect("the control");

        let member = Member {
            key: None,
            host_keys: Vec::new(),
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
        pretend(&|book| book.nodes = full(MAX_MEMBERS, &member));
        busy(
            service.join_here(&caller, Kind::Node, join()).await,
            "65536 machines",
        );
        pretend(&|book| book.nodes.clear());
        service
            .join_here(&caller, Kind::Node, join())
            .await
            .expect("the control");

        // Names beyond those that are counted one by one share what one source has.
        let tries = Tries {
            failed: 1,
            last: place.now(),
        };
        pretend(&|book| book.tries = full(MAX_TRIED, &tries));
        let login = |i: usize| v1::LoginRequest {
            user: format!("nobody{i}"),
            keys: Some(Keys::fresh().request()),
            ..v1::LoginRequest::default()
        };
        for i in 0..10 {
            let refused = service.login(&caller, login(i)).await.expect_err("nobody");
            assert_eq!(refused.kind, RefusedKind::Unproven, "{refused}");
        }
        busy(service.login(&caller, login(11)).await.map(drop), "try again in");
        assert_eq!(service.book().tries.len(), MAX_TRIED);
        pretend(&|book| book.tries.clear());

        // Events that the audit log does not take.
        pretend(&|book| book.outbox = full(MAX_OUTBOX, &Vec::new()));
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
            .pretend(|book| book.devices = full(MAX_DEVICES, &device));
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
        place.service().ledger.pretend(|book| book.devices.clear());
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
        let mut held = Vec::new();
        for _ in 0..STRANGERS_OF_ONE {
            held.push(TcpStream::connect(place.address).await.unwrap());
            // Begins a handshake and leaves it there.
            held.last_mut()
                .unwrap()
                .write_all(&[0x16, 3, 1, 0, 200])
                .await
                .unwrap();
        }
        let mut one_more = TcpStream::connect(place.address).await.unwrap();
        one_more.write_all(b"\x16no TLS at all").await.unwrap();
        let mut room = [0; 1];
        assert_eq!(one_more.read(&mut room).await.unwrap_or(0), 0, "closed");
        // By way of a proxy others come in.
        let mut other = TcpStream::connect(place.address).await.unwrap();
        other
            .write_all(b"PROXY TCP4 192.0.2.1 127.0.0.1 1 1\r\nno TLS at all")
            .await
            .unwrap();
        assert_eq!(
            other.read(&mut room).await.unwrap(),
            1,
            "TLS answers with an alert"
        );
        held.clear();
        loop {
            // Those that went are noticed one after the other.
            let mut again = TcpStream::connect(place.address).await.unwrap();
            again.write_all(b"\x16no TLS at all").await.unwrap();
            if again.read(&mut room).await.unwrap_or(0) == 1 {
                break;
            }
        }
        let mut proxy = place.proxy(&edge).await;
        assert!(proxy.watch(v1::WatchRequest { serial: 0 }).await.is_ok());
    });
}

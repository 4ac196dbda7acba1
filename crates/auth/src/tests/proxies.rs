//! What a proxy that was taken over, and strangers who hurry, leave of auth for other proxies.

use super::place::{Holder, Place, run};
use crate::Config;
use crate::caller::{Caller, CallerProof};
use crate::connections::counts_as;
use crate::connections::{CERTIFIED_OF_ONE, HANDSHAKES_BEYOND, PASSED_ON_SHARE, PROXY_OF_ONE};
use crate::connections::{RESERVED, RESERVED_OF_ONE, STRANGERS_OF_ONE};
use crate::service::WATCHES_OF_ONE;
use fleetgate_net::h2::Channel;
use fleetgate_net::tls::{self, AUTH, Believe, H2};
use fleetgate_net::x509::Certificate;
use fleetgate_proto::v1;
use fleetgate_proto::v1::identity_client::IdentityClient;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::JoinSet;
use tonic::Code;

/// Places for everybody in these tests.
const PLACES: usize = 16;

/// A service whose places are all taken, by a user's connections, which last; and those.
async fn taken(place: Place) -> (Place, Vec<IdentityClient<Channel>>) {
    let ada = place.user("ada", &[]).await;
    let (ada, _) = place.log_in(&ada).await;
    let (directory, clock) = place.stop().await;
    let place = Place::with(directory, clock, PLACES).await;
    let mut held = Vec::new();
    for _ in 0..PLACES {
        let mut user = IdentityClient::new(place.channel_of(&ada).await);
        answers(&place, &mut user).await.expect("there is room");
        held.push(user);
    }
    (place, held)
}

/// A connection of the proxy's own on which it is answered.
async fn comes_in(place: &Place, proxy: &Holder) -> Result<IdentityClient<Channel>, String> {
    let mut client = IdentityClient::new(place.try_channel_of(proxy).await?);
    answers(place, &mut client).await?;
    Ok(client)
}

async fn answers(place: &Place, client: &mut IdentityClient<Channel>) -> Result<(), String> {
    // So that it does not ask too often.
    place.clock.advance(1);
    let hello = client.hello(v1::HelloRequest {}).await;
    hello.map(drop).map_err(|status| status.to_string())
}

/// How many of these are answered.
async fn answered(place: &Place, clients: &mut [IdentityClient<Channel>]) -> usize {
    let mut count = 0;
    for client in clients {
        count += usize::from(answers(place, client).await.is_ok());
    }
    count
}

/// The beginning of a handshake that nobody goes on with, from an address of this machine.
async fn hurried(place: &Place, from: Ipv4Addr) -> TcpStream {
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.bind(SocketAddr::from((from, 0))).expect("an address");
    let mut one = socket.connect(place.address).await.expect("connected");
    one.write_all(&[0x16, 3, 1, 0, 200]).await.expect("written");
    one
}

/// Waits until so many of them were closed by the other side.
async fn closed(all: Vec<TcpStream>, count: usize) -> JoinSet<()> {
    let mut reading = JoinSet::new();
    for mut one in all {
        reading.spawn(async move {
            let _ = one.read(&mut [0]).await;
        });
    }
    for _ in 0..count {
        reading.join_next().await.expect("one more").expect("read");
    }
    reading
}

/// Goes on with a proxy's handshake.
async fn finishes(tcp: TcpStream, place: &Place, proxy: &Holder) -> Result<(), String> {
    let pin = place.service().pin().expect("a pin");
    let client = tls::Client::new(&Believe::Pin(pin), Some(&proxy.credentials()), &[H2]).expect("a client");
    let (stream, _) = client.connect(AUTH, tcp).await.map_err(|e| e.to_string())?;
    let channel = fleetgate_net::h2::connect(stream, fleetgate_net::h2::Tuning::AUTH).await;
    answers(
        place,
        &mut IdentityClient::new(channel.map_err(|e| e.to_string())?),
    )
    .await
}

/// A stranger's word with auth, passed on by this proxy.
async fn says_hello(place: &Place, by: &Holder, source: &str) -> Result<IdentityClient<Channel>, String> {
    let stream = place.passing_on(by, source).await?;
    let mut stranger = place.stranger_by(stream).await?;
    answers(place, &mut stranger).await.map(|()| stranger)
}

#[test]
fn proxies_that_take_all_that_is_kept_for_proxies_shut_no_other_out() {
    run(async {
        let place = Place::new().await;
        let mut taken_over = Vec::new();
        for n in 0..RESERVED / RESERVED_OF_ONE {
            taken_over.push(place.machine("proxy", &format!("edge{n}")).await);
        }
        let far = place.machine("proxy", "far").await;
        let (place, users) = taken(place).await;
        // One alone: all that it begins come in, and it has its share of them.
        let mut held = Vec::new();
        for _ in 0..RESERVED {
            held.push(comes_in(&place, &taken_over[0]).await.expect("it comes in"));
        }
        let left = answered(&place, &mut held).await;
        comes_in(&place, &far).await.expect("another one comes in");
        assert_eq!(left, RESERVED_OF_ONE);
        // As many as take all.
        for proxy in &taken_over {
            for _ in 0..RESERVED_OF_ONE {
                held.push(comes_in(&place, proxy).await.expect("it comes in"));
            }
        }
        assert_eq!(
            answered(&place, &mut held).await,
            RESERVED,
            "the control: they have all"
        );
        let mut other = comes_in(&place, &far).await.expect("another one comes in");
        assert_eq!(answered(&place, &mut held).await, RESERVED - 1);
        // And stays, whatever they begin.
        for proxy in &taken_over {
            held.push(
                comes_in(&place, proxy)
                    .await
                    .expect("in its own oldest one's place"),
            );
        }
        answers(&place, &mut other).await.expect("it is still there");
        drop(users);
    });
}

#[test]
fn hurried_handshakes_of_several_sources_keep_no_proxy_out() {
    run(async {
        let place = Place::new().await;
        let edge = place.machine("proxy", "edge").await;
        let (place, users) = taken(place).await;
        // It has never been here since the service began: it is a source like others.
        let proxy = hurried_by_proxy(&place).await;
        let mut others = Vec::new();
        for n in 0..400 {
            others.push(hurried(&place, Ipv4Addr::new(127, 0, 1, n as u8 % 8)).await);
        }
        // The control: they take all that there is, but for one.
        let left = closed(others, 400 + 1 - HANDSHAKES_BEYOND).await;
        finishes(proxy, &place, &edge).await.expect("it comes in");
        drop((users, left));
    });
}

#[test]
fn hurried_handshakes_of_very_many_sources_keep_no_known_proxy_out() {
    run(async {
        let place = Place::new().await;
        let edge = place.machine("proxy", "edge").await;
        let (place, users) = taken(place).await;
        drop(comes_in(&place, &edge).await.expect("it is known from then on"));
        let proxy = hurried_by_proxy(&place).await;
        let mut stranger = hurried(&place, Ipv4Addr::new(127, 0, 3, 1)).await;
        let mut others = Vec::new();
        for n in 0..200 {
            others.push(hurried(&place, Ipv4Addr::new(127, 0, 2, n)).await);
        }
        // The control: they end somebody's who is not known.
        assert_eq!(stranger.read(&mut [0]).await.unwrap_or(0), 0, "closed");
        let left = closed(others, 200 + 1 - HANDSHAKES_BEYOND).await;
        finishes(proxy, &place, &edge).await.expect("it comes in");
        drop((users, left));
    });
}

/// A proxy's connection, on which it goes on later.
async fn hurried_by_proxy(place: &Place) -> TcpStream {
    TcpStream::connect(place.address).await.expect("connected")
}

#[test]
fn what_one_proxy_passes_on_leaves_places_for_others() {
    run(async {
        let place = Place::new().await;
        let edge = place.machine("proxy", "edge").await;
        let far = place.machine("proxy", "far").await;
        let (directory, clock) = place.stop().await;
        let place = Place::with(directory, clock, PLACES).await;
        // Each of a source of its own, as it says.
        let mut held = Vec::new();
        for n in 0..PLACES {
            if let Ok(stranger) = says_hello(&place, &edge, &format!("192.0.2.{n}:1")).await {
                held.push(stranger);
            }
        }
        let mut other = says_hello(&place, &far, "198.51.100.1:1")
            .await
            .expect("by another");
        assert_eq!(
            held.len(),
            PLACES / PASSED_ON_SHARE,
            "the control: its share is full"
        );
        comes_in(&place, &far).await.expect("the other itself");
        comes_in(&place, &edge)
            .await
            .expect("what it passes on is counted apart");
        drop(held);
        // Those that went are noticed one after the other.
        while says_hello(&place, &edge, "192.0.2.1:1").await.is_err() {}
        other.hello(v1::HelloRequest {}).await.expect("it is still there");
    });
}

#[test]
fn connections_of_one_proxy_are_bounded() {
    run(async {
        let place = Place::new().await;
        let edge = place.machine("proxy", "edge").await;
        let far = place.machine("proxy", "far").await;
        let mut held = Vec::new();
        for _ in 0..PROXY_OF_ONE {
            held.push(comes_in(&place, &edge).await.expect("there is room"));
        }
        assert!(comes_in(&place, &edge).await.is_err(), "one more");
        assert_eq!(answered(&place, &mut held).await, PROXY_OF_ONE);
        comes_in(&place, &far).await.expect("another one");
        says_hello(&place, &edge, "192.0.2.1:1").await.expect("passed on");
        held.clear();
        while comes_in(&place, &edge).await.is_err() {}
        const { assert!(PROXY_OF_ONE < CERTIFIED_OF_ONE) };
    });
}

#[test]
fn a_removed_proxys_certificate_takes_no_place_of_the_next_of_its_name() {
    run(async {
        let place = Place::new().await;
        let counted = |holder: &Holder| {
            let certificate = Certificate::read(&holder.chain[0]).expect("a certificate");
            let identity = certificate.identity().expect("it reads").expect("it has one");
            let subject = identity.subject.clone();
            let proven = Caller {
                who: CallerProof::Certificate(Arc::new(identity), Arc::new(certificate)),
                address: None,
            };
            counts_as(&proven, &subject, &place.service())
        };
        let gone = place.machine("proxy", "edge").await;
        let before = counted(&gone);
        let name = v1::NodeName {
            name: "edge".into(),
            force: true,
        };
        place.admin().await.remove_node(name).await.expect("removed");
        let next = place.machine("proxy", "edge").await;
        assert_eq!(counted(&next), before, "the control: they have one name");
        assert_ne!(counted(&gone), before);
    });
}

#[test]
fn what_one_proxy_watches_is_bounded() {
    run(async {
        let place = Place::new().await;
        let edge = place.machine("proxy", "edge").await;
        let far = place.machine("proxy", "far").await;
        let mut proxy = place.proxy(&edge).await;
        let mut held = Vec::new();
        for _ in 0..WATCHES_OF_ONE / 2 {
            let states = proxy.watch(v1::WatchRequest { serial: 0 }).await;
            let nodes = proxy.watch_nodes(v1::WatchRequest { serial: 0 }).await;
            let mut states = states.expect("a place").into_inner();
            assert!(states.message().await.expect("a word").is_some());
            held.push((states, nodes.expect("a place")));
        }
        let refused = proxy.watch(v1::WatchRequest { serial: 0 }).await.map(drop);
        assert_eq!(refused.unwrap_err().code(), Code::ResourceExhausted);
        let refused = proxy.watch_nodes(v1::WatchRequest { serial: 0 }).await.map(drop);
        assert_eq!(refused.unwrap_err().code(), Code::ResourceExhausted);
        let mut other = place.proxy(&far).await;
        other
            .watch(v1::WatchRequest { serial: 0 })
            .await
            .expect("another");
        held.clear();
        // Those that went are noticed one after the other.
        while proxy.watch(v1::WatchRequest { serial: 0 }).await.is_err() {}
    });
}

#[test]
fn sources_that_a_proxy_names_take_nothing_from_those_who_come_otherwise() {
    run(async {
        let place = Place::new().await;
        let edge = place.machine("proxy", "edge").await;
        let far = place.machine("proxy", "far").await;
        let (directory, clock) = place.stop().await;
        let few = Config {
            handshakes: 4,
            ..Config::new(&directory)
        };
        let place = Place::by(few.clone(), clock).await;
        // The other's handshake is under way, from an address that the one that was taken over names.
        let proxy = hurried_by_proxy(&place).await;
        let mut named = Vec::new();
        for _ in 0..2 * few.handshakes {
            let mut stream = place.passing_on(&edge, "127.0.0.1:1").await.expect("passed on");
            stream.write_all(&[0x16, 3, 1, 0, 200]).await.expect("written");
            stream.flush().await.expect("sent");
            named.push(stream);
        }
        // The control: as many as end the oldest of that source.
        assert_eq!(named[0].read(&mut [0]).await.unwrap_or(0), 0, "closed");
        finishes(proxy, &place, &far).await.expect("it comes in");
        drop(named);
        // Places of strangers.
        let mut held = Vec::new();
        for _ in 0..STRANGERS_OF_ONE {
            held.push(says_hello(&place, &edge, "192.0.2.1:1").await.expect("a place"));
        }
        let refused = says_hello(&place, &edge, "192.0.2.1:1").await;
        assert!(refused.is_err(), "the control: one more");
        says_hello(&place, &far, "192.0.2.1:1").await.expect("by another");
    });
}

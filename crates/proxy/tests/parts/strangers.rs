//! Connections without a certificate: what one address serves, how many places they have, and who is shut out.

use super::support::{World, from, is_served};
use fleetgate_net::h2::Tuning;
use fleetgate_net::tls::{AUTH, Believe, Client, H2, HTTP1, Kind as TlsKind};
use fleetgate_policy::cluster::Subject;
use fleetgate_proto::v1::HelloRequest;
use fleetgate_proto::v1::identity_client::IdentityClient;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tonic::Code;

#[tokio::test]
async fn one_address_serves_tls_for_auth_the_web_and_nothing_else() {
    let world = World::new("mux").await;
    // For auth: end to end, by a certificate that the proxy has not.
    let client = Client::new(&Believe::Trust(world.cluster.trust()), None, &[H2]).unwrap();
    let (stream, peer) = client
        .connect(AUTH, TcpStream::connect(world.address).await.unwrap())
        .await
        .unwrap();
    assert_eq!(peer.identity.unwrap().subject, Subject::Auth);
    let channel = fleetgate_net::h2::connect(stream, Tuning::AUTH).await.unwrap();
    let error = IdentityClient::new(channel)
        .hello(HelloRequest {})
        .await
        .unwrap_err();
    assert_eq!(error.code(), Code::Unimplemented, "auth itself answered");
    // The web.
    for (path, status, text) in [
        ("/healthz", "200 OK", "ok\n"),
        ("/nothing", "404 Not Found", "there is no such page\n"),
    ] {
        let (mut stream, _) = world.tls(None, HTTP1).await;
        stream
            .write_all(format!("GET {path} HTTP/1.1\r\nhost: x\r\n\r\n").as_bytes())
            .await
            .unwrap();
        let mut answer = String::new();
        let _ = stream.read_to_string(&mut answer).await;
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {status}")) && answer.ends_with(text),
            "{answer}"
        );
    }
    // Anything else is closed at its first byte; nothing is waited for. It is an offence: each source commits one.
    for (host, first) in [(2, b"G"), (3, b"\0"), (4, b"\x17")] {
        let mut stream = from(&world, host).await.unwrap();
        stream.write_all(first).await.unwrap();
        assert_eq!(stream.read(&mut [0; 8]).await.unwrap_or(0), 0);
    }
    // A hello in single bytes still comes in.
    let (mut through, there) = tokio::io::duplex(1);
    let mut tcp = TcpStream::connect(world.address).await.unwrap();
    tcp.set_nodelay(true).unwrap();
    let copying = tokio::spawn(async move { tokio::io::copy_bidirectional(&mut through, &mut tcp).await });
    assert!(client.connect("proxy.fleetgate", there).await.is_ok());
    copying.abort();
    // A node's certificate is wanted for a tunnel; a user's is none.
    let alice = world.cluster.user("alice", &["dev"]);
    let (mut stream, _) = world.tls(Some(&alice), b"fleetgate-tunnel").await;
    assert_eq!(stream.read(&mut [0; 64]).await.unwrap_or(0), 0);
    let other = fleetgate_net::testing::Cluster::new();
    let tcp = TcpStream::connect(world.address).await.unwrap();
    let client = Client::new(&Believe::Trust(other.trust()), None, &[H2]).unwrap();
    assert_eq!(
        client.connect("proxy.fleetgate", tcp).await.err().unwrap().kind(),
        TlsKind::Authority
    );
}

#[tokio::test]
async fn strangers_have_few_places_and_others_none_the_less() {
    let world = World::new("strangers").await;
    let mut waiting = Vec::new();
    // One source's, all silent.
    for _ in 0..300 {
        waiting.push(TcpStream::connect(world.address).await.unwrap());
    }
    // Beyond the bound they are closed at once; one of the last ones shows it.
    let mut last = waiting.pop().unwrap();
    assert_eq!(last.read(&mut [0; 1]).await.unwrap_or(0), 0);
    drop(waiting);
    // And the places come back.
    loop {
        let client = Client::new(&Believe::Trust(world.cluster.trust()), None, &[H2]).unwrap();
        let tcp = TcpStream::connect(world.address).await.unwrap();
        if client.connect("proxy.fleetgate", tcp).await.is_ok() {
            break;
        }
    }
}

#[tokio::test]
async fn many_sources_that_hold_all_places_shut_out_no_other() {
    let world = World::with("crowd", |config| {
        config.unauthenticated = 64;
        config.unauthenticated_per_source = 16;
    })
    .await;
    let mut held = Vec::new();
    for n in 0..64 {
        held.push(from(&world, 10 + n / 16).await.unwrap());
    }
    // The control: they have all that they may.
    let mut more = from(&world, 10).await.unwrap();
    assert_eq!(more.read(&mut [0; 1]).await.unwrap_or(0), 0);
    assert!(is_served(&world, 9, None).await, "somebody else");
}

#[tokio::test]
async fn a_source_that_sends_garbage_is_shut_out_and_a_known_one_is_not() {
    let world = World::new("garbage").await;
    let alice = world.cluster.user("alice", &["dev"]);
    assert!(is_served(&world, 8, Some(&alice)).await);
    for host in [7, 8] {
        for _ in 0..4 {
            let mut stream = from(&world, host).await.unwrap();
            let _ = stream.write_all(b"GET / HTTP/1.0\r\n\r\n").await;
            assert_eq!(stream.read(&mut [0; 8]).await.unwrap_or(0), 0);
        }
    }
    assert!(!is_served(&world, 7, None).await, "it pays");
    assert!(
        is_served(&world, 8, None).await,
        "somebody showed a certificate there"
    );
    assert!(is_served(&world, 9, None).await, "it did nothing");
}

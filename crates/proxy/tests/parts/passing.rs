//! Connections for auth, which the proxy passes on.

use super::support::{World, from, is_served};
use fleetgate_net::tls::{AUTH, Believe, Client, H2};
use std::sync::atomic::Ordering::SeqCst;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// The first bytes of a client that asks for auth.
async fn hello(client: &Client) -> Vec<u8> {
    let (there, mut here) = tokio::io::duplex(1 << 16);
    let mut bytes = vec![0; 1 << 14];
    tokio::select! {
        _ = client.connect(AUTH, there) => panic!("nobody answers"),
        read = here.read(&mut bytes) => bytes.truncate(read.expect("a hello")),
    }
    bytes
}

#[tokio::test]
async fn a_source_that_begins_many_handshakes_with_auth_shuts_nobody_out_and_pays() {
    let world = World::new("passing").await;
    let client = Client::new(&Believe::Trust(world.cluster.trust()), None, &[H2]).unwrap();
    let hello = hello(&client).await;
    // On a machine where all of them at once would be more than auth takes.
    world.auth.handshake.store(1000, SeqCst);
    let mut held: Vec<TcpStream> = Vec::new();
    for _ in 0..200 {
        let mut one = from(&world, 7).await.unwrap();
        let _ = one.write_all(&hello).await;
        held.push(one);
    }
    let mut honest = tokio::task::JoinSet::new();
    for _ in 0..12 {
        let (tcp, client) = (from(&world, 8).await.unwrap(), client.clone());
        honest.spawn(async move {
            client
                .connect(AUTH, tcp)
                .await
                .map(|_| ())
                .map_err(|e| e.to_string())
        });
    }
    while let Some(done) = honest.join_next().await {
        assert_eq!(done.unwrap(), Ok(()));
    }
    world.auth.handshake.store(0, SeqCst);
    // It leaves after auth has answered, and without a proof.
    let mut answered = 0;
    for one in &mut held {
        let mut room = [0; 1];
        answered += usize::from(matches!(one.read(&mut room).await, Ok(1)));
        if answered > 3 {
            break;
        }
    }
    assert!(answered > 3, "the control: {answered} came to auth");
    drop(held);
    while is_served(&world, 7, None).await {}
    assert!(is_served(&world, 8, None).await, "the others pay nothing");
}

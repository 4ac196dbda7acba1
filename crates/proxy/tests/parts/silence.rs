//! Clients that wait for the server's first words.

use super::support::World;
use fleetgate_net::tls::{Believe, Client, HTTP1};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

#[tokio::test]
async fn a_silent_client_gets_the_version_line_once_and_may_still_speak_tls() {
    let world = World::new("silence").await;
    let mut stream = TcpStream::connect(world.address).await.unwrap();
    // The proxy says it without a word of ours.
    let mut line = Vec::new();
    while line.last() != Some(&b'\n') {
        line.push(stream.read_u8().await.unwrap());
    }
    let line = String::from_utf8_lossy(&line).into_owned();
    assert!(line.starts_with("SSH-2.0-") && line.ends_with("\r\n"), "{line:?}");
    // What follows is the key exchange (RFC 4253 §7.1), and not the line again.
    stream.write_all(b"SSH-2.0-late\r\n").await.unwrap();
    let mut packet = [0; 6];
    stream.read_exact(&mut packet).await.unwrap();
    assert_eq!((packet[0], packet[5]), (0, 20), "{packet:?}");

    // A hello that is late: the line comes first, and the client skips it.
    let stream = TcpStream::connect(world.address).await.unwrap();
    stream.readable().await.unwrap();
    assert!(stream.peek(&mut [0; 8]).await.unwrap() > 0, "the line came");
    let client = Client::new(&Believe::Trust(world.cluster.trust()), None, &[HTTP1]).unwrap();
    let (mut stream, _) = client.connect("proxy.fleetgate", stream).await.unwrap();
    stream
        .write_all(b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n")
        .await
        .unwrap();
    let mut answer = String::new();
    let _ = stream.read_to_string(&mut answer).await;
    assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
}

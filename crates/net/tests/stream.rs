//! TLS as a byte stream: whatever the pieces that bytes come in, they come whole; both ends speak with rustls' own too.
#![forbid(unsafe_code)]

use fleetgate_net::testing::{Cluster, name};
use fleetgate_net::tls::{Believe, Client, PROXY, Server, Shown, Stream};
use fleetgate_policy::cluster::Subject;
use rustls::pki_types::{CertificateDer, ServerName};
use std::io::{ErrorKind, Read, Write};
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};

/// Both ends after a handshake over a wire that holds so many bytes each way.
async fn pair(wire: usize) -> (Stream<DuplexStream>, Stream<DuplexStream>) {
    let cluster = Cluster::new();
    let shown = Shown::new().name(PROXY, &cluster.server(PROXY, Subject::Proxy(name("p1"))));
    let server = Server::new(shown, None, &[]).unwrap();
    let client = Client::new(&Believe::Trust(cluster.trust()), None, &[]).unwrap();
    let (there, here) = duplex(wire);
    let (there, here) = tokio::join!(server.accept(there), client.connect(PROXY, here));
    (there.unwrap().0, here.unwrap().0)
}

fn noise(length: usize, seed: u8) -> Vec<u8> {
    (0..length).map(|n| (n * 31 + n / 251) as u8 ^ seed).collect()
}

#[tokio::test]
async fn bytes_come_whole_whatever_the_pieces() {
    // The wire, what is written at once, the room of a read, a flush behind every write, how much.
    for (wire, piece, room, flush, length) in [
        (50, 1000, 7, true, 20_000),
        (100, 5, 64_000, true, 20_000),
        (5_000, 100_000, 33, false, 500_000),
        (64_000, 16_384, 16_384, true, 1_000_000),
        (1 << 20, 300_000, 300_000, false, 3_000_000),
    ] {
        let (there, here) = pair(wire).await;
        let mut ends = Vec::new();
        for (stream, mine, yours) in [(there, 1, 2), (here, 2, 1)] {
            let (mut read, mut write) = tokio::io::split(stream);
            ends.push(tokio::spawn(async move {
                for part in noise(length, mine).chunks(piece) {
                    write.write_all(part).await.unwrap();
                    if flush {
                        write.flush().await.unwrap();
                    }
                }
                write.shutdown().await.unwrap();
            }));
            ends.push(tokio::spawn(async move {
                let (mut got, mut into) = (Vec::new(), vec![0; room]);
                loop {
                    match read.read(&mut into).await.unwrap() {
                        0 => break,
                        more => got.extend_from_slice(&into[..more]),
                    }
                }
                assert!(
                    got == noise(length, yours),
                    "{wire} {piece} {room}: {}",
                    got.len()
                );
            }));
        }
        for end in ends {
            end.await.unwrap();
        }
    }
}

#[tokio::test]
async fn what_is_written_is_sent_by_a_flush_or_by_whoever_waits_for_the_answer() {
    let (mut there, mut here) = pair(1 << 16).await;
    let echo = tokio::spawn(async move {
        let mut into = [0; 5];
        for _ in 0..2 {
            there.read_exact(&mut into).await.unwrap();
            there.write_all(&into).await.unwrap();
        }
        there.flush().await.unwrap();
    });
    let mut into = [0; 5];
    here.write_all(b"first").await.unwrap();
    here.read_exact(&mut into).await.unwrap();
    assert_eq!(&into, b"first");
    here.write_all(b"other").await.unwrap();
    here.flush().await.unwrap();
    echo.await.unwrap();
    here.read_exact(&mut into).await.unwrap();
    assert_eq!(&into, b"other");
}

#[tokio::test]
async fn an_end_that_nobody_announced_is_an_error_and_so_is_what_was_forged() {
    // With a goodbye: the end.
    let (mut there, mut here) = pair(1 << 16).await;
    there.write_all(b"last").await.unwrap();
    there.shutdown().await.unwrap();
    let mut got = Vec::new();
    here.read_to_end(&mut got).await.unwrap();
    assert_eq!(got, b"last");
    // It may still be written to, and then says goodbye itself.
    here.write_all(b"more").await.unwrap();
    here.shutdown().await.unwrap();
    let error = here.write_all(b"too late").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::BrokenPipe);
    there.read_to_end(&mut got).await.unwrap();
    assert_eq!(got, b"lastmore");

    let (there, mut here) = pair(1 << 16).await;
    drop(there);
    assert_eq!(
        here.read(&mut [0; 9]).await.unwrap_err().kind(),
        ErrorKind::UnexpectedEof
    );

    let cluster = Cluster::new();
    let shown = Shown::new().name(PROXY, &cluster.server(PROXY, Subject::Proxy(name("p1"))));
    let server = Server::new(shown, None, &[]).unwrap();
    let (there, mut wire) = duplex(1 << 16);
    let (accepted, mut peer) = tokio::join!(server.accept(there), async {
        let mut peer = peer(&cluster);
        shake(&mut peer, &mut wire).await;
        peer
    });
    let mut here = accepted.unwrap().0;
    // Good bytes first, byte by byte; a change of keys between them; then a record that somebody touched.
    peer.writer().write_all(b"good").unwrap();
    peer.refresh_traffic_keys().unwrap();
    peer.writer().write_all(b"again").unwrap();
    for byte in records(&mut peer) {
        wire.write_all(&[byte]).await.unwrap();
    }
    let mut got = [0; 9];
    here.read_exact(&mut got).await.unwrap();
    assert_eq!(&got, b"goodagain");
    here.write_all(b"heard").await.unwrap();
    here.flush().await.unwrap();
    while peer.reader().read(&mut got).is_err() {
        take(&mut peer, &mut wire).await;
    }
    assert_eq!(&got[..5], b"heard");
    peer.writer().write_all(b"forged").unwrap();
    let mut touched = records(&mut peer);
    *touched.last_mut().unwrap() ^= 1;
    wire.write_all(&touched).await.unwrap();
    let error = here.read(&mut [0; 9]).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidData);
    // The peer hears why, and nothing is said afterwards.
    let mut alert = vec![0; 100];
    let length = wire.read(&mut alert).await.unwrap();
    peer.read_tls(&mut &alert[..length]).unwrap();
    let told = peer.process_new_packets().unwrap_err();
    assert_eq!(
        told,
        rustls::Error::AlertReceived(rustls::AlertDescription::BadRecordMac)
    );
    assert!(here.write_all(b"x").await.is_err());
    assert_eq!(here.read(&mut [0; 9]).await.unwrap(), 0);
}

#[tokio::test]
async fn what_was_forged_is_met_by_whoever_looks_first_and_by_nobody_twice() {
    let cluster = Cluster::new();
    let shown = Shown::new().name(PROXY, &cluster.server(PROXY, Subject::Proxy(name("p1"))));
    let server = Server::new(shown, None, &[]).unwrap();
    for first in ["read", "write", "shutdown"] {
        let (there, mut wire) = duplex(1 << 16);
        let (accepted, mut peer) = tokio::join!(server.accept(there), async {
            let mut peer = peer(&cluster);
            shake(&mut peer, &mut wire).await;
            peer
        });
        let mut here = accepted.unwrap().0;
        // In one piece with something good, of which a part is read: it is there before anybody looks.
        peer.writer().write_all(&[5; 100]).unwrap();
        let mut sent = records(&mut peer);
        sent.extend([23, 3, 3, 0, 20]);
        sent.extend([7; 20]);
        wire.write_all(&sent).await.unwrap();
        here.read_exact(&mut [0; 9]).await.unwrap();
        let mut rest = Vec::new();
        let error = match first {
            "read" => here.read_to_end(&mut rest).await.unwrap_err().kind(),
            "write" => here.write(b"x").await.unwrap_err().kind(),
            _ => {
                here.shutdown().await.unwrap();
                ErrorKind::InvalidData
            }
        };
        here.read_to_end(&mut rest).await.unwrap();
        assert_eq!(rest, [5; 91], "{first}");
        assert_eq!(error, ErrorKind::InvalidData, "{first}");
        assert_eq!(here.read(&mut [0; 9]).await.unwrap(), 0, "{first}");
        assert!(here.write(b"x").await.is_err(), "{first}");
        here.shutdown().await.unwrap();
        let mut alert = vec![0; 100];
        let length = wire.read(&mut alert).await.unwrap();
        peer.read_tls(&mut &alert[..length]).unwrap();
        let told = peer.process_new_packets().unwrap_err();
        assert_eq!(
            told,
            rustls::Error::AlertReceived(rustls::AlertDescription::BadRecordMac),
            "{first}"
        );
    }
}

/// A client with rustls' own buffers.
fn peer(cluster: &Cluster) -> rustls::ClientConnection {
    let mut roots = rustls::RootCertStore::empty();
    let der = cluster.authority.certificate().der().to_vec();
    roots.add(CertificateDer::from(der)).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    rustls::ClientConnection::new(Arc::new(config), ServerName::try_from(PROXY).unwrap()).unwrap()
}

async fn shake(peer: &mut rustls::ClientConnection, wire: &mut DuplexStream) {
    while peer.is_handshaking() {
        let records = records(peer);
        wire.write_all(&records).await.unwrap();
        if peer.is_handshaking() {
            take(peer, wire).await;
        }
    }
    let records = records(peer);
    wire.write_all(&records).await.unwrap();
}

async fn take(peer: &mut rustls::ClientConnection, wire: &mut DuplexStream) {
    let mut into = vec![0; 4096];
    let length = wire.read(&mut into).await.unwrap();
    let mut from = &into[..length];
    while !from.is_empty() {
        peer.read_tls(&mut from).unwrap();
        peer.process_new_packets().unwrap();
    }
}

fn records(peer: &mut rustls::ClientConnection) -> Vec<u8> {
    let mut records = Vec::new();
    while peer.wants_write() {
        peer.write_tls(&mut records).unwrap();
    }
    records
}

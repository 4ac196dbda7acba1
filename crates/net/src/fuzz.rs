//! Feeds any bytes to each reader of this crate that hears a peer, for the fuzz target `net_peers` and a test with pseudo-random
//! bytes. It is in no build that is shipped.

use crate::h2::{self, Tuning};
use crate::relay;
use crate::testing::{Cluster, name};
use crate::tls::group::GROUP;
use crate::tls::verify::{Clients, PinnedServers, Servers};
use crate::tls::{
    Believe, Client, Credentials, H2, Server, Shown, Trust, client_handshake_hash, node_name, provider,
};
use fleetgate_policy::cluster::Subject;
use fleetgate_proto::otlp::ExportTraceServiceRequest;
use fleetgate_proto::otlp::trace_service_client::TraceServiceClient;
use rustls::client::danger::ServerCertVerifier;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use std::sync::OnceLock;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex, join, sink};
use tokio::runtime::Runtime;

/// Readers that there are.
pub const READERS: u8 = 6;

/// Gives `data` to one of the readers. Never a panic, and nothing is believed that the cluster's authority did not sign.
pub fn peers(reader: u8, data: &[u8]) {
    match reader % READERS {
        0 => chain(data),
        1 => named(data),
        2 => handshakes(data),
        3 => shares(data),
        4 => relayed(data),
        _ => drop(answer(data)),
    }
}

fn runtime() -> &'static Runtime {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    RUNTIME.get_or_init(|| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("a runtime can be made")
    })
}

/// Who believes whom.
struct World {
    trust: Trust,
    own: Credentials,
    /// The leaf, and the authority.
    chain: [Vec<u8>; 2],
    servers: Servers,
    pinned: PinnedServers,
    clients: Clients,
}

fn world() -> &'static World {
    static WORLD: OnceLock<World> = OnceLock::new();
    WORLD.get_or_init(|| {
        let cluster = Cluster::new();
        let trust = cluster.trust();
        let own = cluster.server(&node_name("web1"), Subject::Node(name("web1")));
        let chain: Vec<_> = own.chain().map(<[u8]>::to_vec).collect();
        let chain = chain.try_into().expect("a leaf and its authority");
        let usual = WebPkiClientVerifier::builder_with_provider(trust.roots.clone(), provider()).build();
        World {
            servers: Servers::by(trust.roots.clone(), provider()).expect("an authority"),
            pinned: PinnedServers::new(cluster.authority.certificate().pin(), provider()),
            clients: Clients {
                usual: usual.expect("an authority"),
                provider: provider(),
            },
            trust,
            own,
            chain,
        }
    })
}

/// Whether this chain is believed as a server's of this name: by the authority, and by its hash.
fn believed(leaf: &[u8], above: &[u8], server: &ServerName<'_>) -> [bool; 2] {
    let (leaf, above) = (CertificateDer::from(leaf), [CertificateDer::from(above)]);
    let (world, now) = (world(), UnixTime::now());
    [
        world
            .servers
            .verify_server_cert(&leaf, &above, server, &[], now)
            .is_ok(),
        world
            .pinned
            .verify_server_cert(&leaf, &above, server, &[], now)
            .is_ok(),
    ]
}

/// A chain that a peer shows: the good one, altered. Each edit is a place and a value, or a length to cut to.
fn chain(data: &[u8]) {
    let world = world();
    let mut shown = world.chain.clone();
    for edit in data.chunks_exact(4) {
        let certificate = &mut shown[usize::from(edit[0] & 1)];
        let at = usize::from(u16::from_be_bytes([edit[1], edit[2]]));
        match certificate.get_mut(at) {
            Some(_) if edit[0] & 2 != 0 => certificate.truncate(at),
            Some(byte) => *byte = edit[3],
            None => certificate.push(edit[3]),
        }
    }
    let [leaf, above] = &shown;
    let server = ServerName::try_from(node_name("web1")).expect("a name");
    let der = CertificateDer::from(leaf.as_slice());
    let others = [CertificateDer::from(above.as_slice())];
    let client = world.clients.verify_client_cert(&der, &others, UnixTime::now());
    let checked = world.trust.check_client(&shown, crate::testing::now());
    let by_any = [believed(leaf, above, &server), [client.is_ok(), checked.is_ok()]];
    match (leaf == &world.chain[0], above == &world.chain[1]) {
        (true, true) => assert_eq!(by_any, [[true; 2]; 2], "the control"),
        (true, false) => {}
        (false, _) => assert_eq!(by_any, [[false; 2]; 2], "nobody signed this leaf"),
    }
}

/// The good chain, for a server of any name.
fn named(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    let Ok(server) = ServerName::try_from(text) else {
        return;
    };
    let [leaf, above] = &world().chain;
    // A dot at the end says that nothing comes behind it (RFC 1034 section 3.1).
    let is_its = text
        .strip_suffix('.')
        .unwrap_or(text)
        .eq_ignore_ascii_case(&node_name("web1"));
    for is_believed in believed(leaf, above, &server) {
        assert!(is_its || !is_believed, "it is not {text}");
    }
}

/// What the other side of a TLS handshake says, which does not know what we say.
fn handshakes(data: &[u8]) {
    let world = world();
    let as_server = |believe: Believe| {
        let client = Client::new(&believe, Some(&world.own), &[H2]).expect("it can be made");
        let ended = runtime().block_on(client.connect(&node_name("web1"), join(data, sink())));
        assert!(ended.is_err(), "a server that has heard nothing");
    };
    as_server(Believe::Trust(world.trust.clone()));
    as_server(Believe::Pin(world.trust.authorities()[0].pin()));
    let shown = Shown::new().otherwise(&world.own);
    let server = Server::new(shown, Some(&world.trust), &[H2]).expect("it can be made");
    let ended = runtime().block_on(server.accept(join(data, sink())));
    assert!(ended.is_err(), "a client that has heard nothing");
    assert!(client_handshake_hash(data).is_none_or(|hash| matches!(hash.len(), 32 | 48)));
}

/// Shares of the key exchange.
fn shares(data: &[u8]) {
    let _ = GROUP.start_and_complete(data);
    if let Ok(ours) = GROUP.start() {
        let _ = ours.complete(data);
    }
    if let Ok(ours) = GROUP.start() {
        let _ = ours.complete_hybrid_component(data);
    }
}

/// A proxy's line in front of a connection that it passes on.
fn relayed(data: &[u8]) {
    let mut rest = data;
    if let Ok(source) = runtime().block_on(relay::read(&mut rest)) {
        assert!(data.len() - rest.len() <= relay::MAX_LINE);
        let line = relay::line(source);
        let again = runtime().block_on(relay::read(&mut line.as_bytes()));
        assert_eq!(again.ok().map(|s| s.port()), Some(source.port()));
    }
}

/// An answer without anything in it, as a collector gives it: headers, an empty message, and the status (RFC 9113, gRPC over
/// HTTP/2).
#[cfg(test)]
const GOOD_ANSWER: &[u8] = b"\0\0\x13\x01\x04\0\0\0\x01\x88\x5f\x10application/grpc\
    \0\0\x05\0\0\0\0\0\x01\0\0\0\0\0\
    \0\0\x0f\x01\x05\0\0\0\x01\0\x0bgrpc-status\x010";

/// What a collector answers to a request, over HTTP/2.
fn answer(data: &[u8]) -> Result<(), tonic::Status> {
    let (ours, its) = duplex(64 * 1024);
    let data = data.to_vec();
    runtime().block_on(async {
        tokio::spawn(collector(its, data));
        let broken = |e: h2::CallError| tonic::Status::unavailable(e.to_string());
        let channel = h2::connect(ours, Tuning::AUTH).await.map_err(broken)?;
        let mut client = TraceServiceClient::new(channel);
        let asked = client.export(ExportTraceServiceRequest::default());
        // Virtual ends are few: the stream ends when all is said.
        match tokio::time::timeout(Duration::from_secs(20), asked).await {
            Ok(answered) => answered.map(drop),
            Err(_) => panic!("who has hung up is waited for"),
        }
    })
}

/// Hears a whole request, says `data` and hangs up.
async fn collector(mut io: DuplexStream, data: Vec<u8>) {
    // Settings: none.
    let _ = io.write_all(b"\0\0\0\x04\0\0\0\0\0").await;
    let mut preface = [0; 24];
    let _ = io.read_exact(&mut preface).await;
    let mut head = [0; 9];
    while io.read_exact(&mut head).await.is_ok() {
        let length = usize::from(head[0]) << 16 | usize::from(head[1]) << 8 | usize::from(head[2]);
        let mut body = vec![0; length];
        let _ = io.read_exact(&mut body).await;
        // The end of the request is the end of its data.
        if (head[3], head[4] & 1) == (0, 1) {
            break;
        }
    }
    let _ = io.write_all(&data).await;
    let _ = io.shutdown().await;
    // What is said behind that is read: nobody waits for room.
    let _ = tokio::io::copy(&mut io, &mut sink()).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    /// xorshift: the same numbers in every run.
    struct Numbers(u64);

    impl Numbers {
        fn next(&mut self, below: usize) -> usize {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            (self.0 % below.max(1) as u64) as usize
        }
    }

    #[test]
    fn nothing_that_a_peer_says_does_harm() {
        let share = GROUP.start().unwrap().pub_key().to_vec();
        let good: [Vec<u8>; READERS as usize] = [
            Vec::new(),
            node_name("web1").into_bytes(),
            b"\x16\x03\x03\0\x04\x02\0\0\0".to_vec(),
            share,
            relay::line("192.0.2.1:7".parse().unwrap()).into_bytes(),
            GOOD_ANSWER.to_vec(),
        ];
        let mut numbers = Numbers(0x9e37_79b9_7f4a_7c15);
        for round in 0..3_000_usize {
            let reader = round % good.len();
            let mut data = good[reader].clone();
            if reader == 0 {
                data = (0..4 * (1 + numbers.next(3)))
                    .map(|_| numbers.next(256) as u8)
                    .collect();
            }
            for _ in 0..1 + numbers.next(4) {
                let at = numbers.next(data.len());
                match (numbers.next(3), data.get_mut(at)) {
                    (0, _) => data.truncate(at),
                    (1, Some(byte)) => *byte = numbers.next(256) as u8,
                    _ => data.insert(at.min(data.len()), numbers.next(256) as u8),
                }
            }
            peers(reader as u8, &data);
        }
        // The good ones get through: what is refused is not refused for nothing.
        for (reader, data) in (0..).zip(&good) {
            peers(reader, data);
        }
        let [leaf, above] = &world().chain;
        let server = ServerName::try_from(node_name("web1")).unwrap();
        assert_eq!(believed(leaf, above, &server), [true; 2]);
        assert!(GROUP.start_and_complete(&good[3]).is_ok());
        if let Err(status) = answer(GOOD_ANSWER) {
            panic!("{status}");
        }
    }
}

//! Recordings that the tunnel is handed, and a cluster that takes them, or does not.

use crate::world::{Cluster, Frames, Joined, Proxy, Tunnel, run, soon};
use fleetgate_proto::v1::tunnel_client::TunnelClient;
use fleetgate_proto::v1::{RecordingKept, RecordingPart};
use fleetgate_sys::Fd;
use fleetgate_wire::node::tunnel::{FromTunnel, ToTunnel, UploadAnswer};
use std::io::Write;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU32, Ordering};
use tokio::sync::mpsc;
use tonic::Streaming;

/// The stream of a proxy.
struct Taking {
    to: mpsc::Sender<RecordingKept>,
    from: Streaming<RecordingPart>,
}

async fn taking(joined: &Joined) -> Taking {
    let (to, words) = mpsc::channel(4);
    let mut client = TunnelClient::new(joined.channel.clone());
    let from = soon("the stream", client.recordings(Frames(words)))
        .await
        .expect("a stream")
        .into_inner();
    Taking { to, from }
}

impl Taking {
    async fn next(&mut self) -> RecordingPart {
        let part = soon("a part", self.from.message()).await;
        part.expect("it goes on").expect("it goes on")
    }

    async fn kept(&self, session: u8, offset: u64, whole: bool) {
        let kept = RecordingKept {
            session: vec![session; 16].into(),
            offset,
            whole,
            receipt: vec![session; 83].into(),
            ..RecordingKept::default()
        };
        soon("room", self.to.send(kept)).await.expect("it listens");
    }

    /// All that comes of a recording, from `offset` on.
    async fn rest(&mut self, session: u8, mut offset: u64) -> Vec<u8> {
        let mut all = Vec::new();
        loop {
            let part = self.next().await;
            assert_eq!((&part.session[..], part.offset), (&[session; 16][..], offset));
            offset += part.bytes.len() as u64;
            all.extend_from_slice(&part.bytes);
            if part.whole {
                return all;
            }
        }
    }
}

fn content(len: u32) -> Vec<u8> {
    (0..len).map(|n| (n / 7) as u8).collect()
}

fn upload(tunnel: &Tunnel, session: u8, bytes: &[u8]) {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    let path = std::env::temp_dir().join(format!("fleetgate-sent-{}-{number}", std::process::id()));
    std::fs::File::create(&path)
        .and_then(|mut file| file.write_all(bytes))
        .expect("room");
    let file = Fd::from(OwnedFd::from(std::fs::File::open(&path).expect("there")));
    std::fs::remove_file(&path).expect("there");
    let message = ToTunnel::Upload {
        session: [session; 16],
        signed: 0,
        length: bytes.len() as u64,
        whole: true,
    };
    tunnel.say(&message, &[file.raw()]);
}

async fn answer(tunnel: &mut Tunnel, cluster: &Cluster, of: u8) -> UploadAnswer {
    tunnel
        .hear(cluster, "an answer", |word| match word {
            FromTunnel::Uploaded {
                session,
                proxy,
                answer,
            } if *session == [of; 16] => {
                assert_eq!(&**proxy, c"p1");
                Some(answer.clone())
            }
            _ => None,
        })
        .await
}

fn kept(session: u8) -> UploadAnswer {
    let receipt = vec![session; 83];
    UploadAnswer::Kept { receipt }
}

#[test]
fn a_recording_arrives_whole_from_where_the_cluster_had_it() {
    run(async {
        let cluster = Cluster::new();
        let proxy = Proxy::new(&cluster).await;
        let mut tunnel = Tunnel::start(&cluster, &[&proxy]);
        let bytes = content(1_000_000);
        // Before there is anybody to take it.
        upload(&tunnel, 1, &bytes);
        let (joined, ()) = tokio::join!(proxy.joined(), tunnel.connected(&cluster));
        let mut taking = taking(&joined).await;
        let asks = taking.next().await;
        assert_eq!((asks.offset, asks.bytes.len(), asks.whole), (0, 0, false));
        taking.kept(1, 12_345, false).await;
        assert_eq!(taking.rest(1, 12_345).await, bytes[12_345..]);
        taking.kept(1, 500_000, false).await;
        taking.kept(1, 1_000_000, true).await;
        assert_eq!(answer(&mut tunnel, &cluster, 1).await, kept(1));
        // One that is refused, and one behind it.
        upload(&tunnel, 2, &bytes);
        upload(&tunnel, 3, &bytes[..100]);
        for _ in 0..2 {
            taking.next().await;
        }
        let no = RecordingKept {
            session: vec![2; 16].into(),
            refused: "another node has one of this name".into(),
            ..RecordingKept::default()
        };
        taking.to.send(no).await.expect("it listens");
        let why = c"another node has one of this name".into();
        assert_eq!(
            answer(&mut tunnel, &cluster, 2).await,
            UploadAnswer::Refused { why }
        );
        taking.kept(3, 0, false).await;
        assert_eq!(taking.rest(3, 0).await, bytes[..100]);
        taking.kept(3, 100, true).await;
        assert_eq!(answer(&mut tunnel, &cluster, 3).await, kept(3));
        tunnel.finish();
    });
}

#[test]
fn what_one_stream_could_not_finish_another_one_does() {
    run(async {
        let cluster = Cluster::new();
        let proxy = Proxy::new(&cluster).await;
        let mut tunnel = Tunnel::start(&cluster, &[&proxy]);
        let (joined, ()) = tokio::join!(proxy.joined(), tunnel.connected(&cluster));
        let bytes = content(3_000_000);
        upload(&tunnel, 1, &bytes);
        let mut first = taking(&joined).await;
        first.next().await;
        first.kept(1, 0, false).await;
        assert!(!first.next().await.bytes.is_empty());
        // In the middle: nobody reads the rest.
        drop(first);
        let mut second = taking(&joined).await;
        assert!(second.next().await.bytes.is_empty(), "it asks");
        second.kept(1, 65_536, false).await;
        assert_eq!(second.rest(1, 65_536).await, bytes[65_536..]);
        second.kept(1, 3_000_000, true).await;
        assert_eq!(answer(&mut tunnel, &cluster, 1).await, kept(1));
        // The connection itself, and a tunnel that is told to drain.
        upload(&tunnel, 2, &bytes[..100]);
        second.next().await;
        drop((second, joined));
        let joined = proxy.joined();
        let (joined, ()) = tokio::join!(joined, tunnel.connected(&cluster));
        let mut third = taking(&joined).await;
        assert!(third.next().await.bytes.is_empty());
        tunnel.say(&ToTunnel::Drain { follows: false }, &[]);
        assert!(!matches!(
            soon("the end", third.from.message()).await,
            Ok(Some(_))
        ));
        drop((third, joined));
        assert_eq!(
            soon("its end", async { tunnel.child.wait().expect("it ends").code() }).await,
            Some(0)
        );
    });
}

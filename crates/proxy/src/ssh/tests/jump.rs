//! Jumps: who may, what they carry, and how they end.

use super::world::{Asked, Client, certificate, host_key, identity, key};
use crate::ssh::authenticator::Caller;
use crate::ssh::{JumpAccess, Stream, StreamFuture, WINDOW, jump};
use fleetgate_policy::cluster::Identity;
use fleetgate_ssh::event::{ChannelId, ChannelKind, Event, Stream as Way};
use fleetgate_ssh::key::{Certificate, HostKey, PrivateKey};
use std::cell::RefCell;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use tokio::io::{AsyncWriteExt, DuplexStream, duplex};
use tokio::sync::oneshot;

/// A proxy that knows the nodes `echo`, which answers with what it is sent, and `deaf`, which reads nothing.
struct House {
    host_key: Arc<HostKey>,
    ca: PrivateKey,
    refused: RefCell<Vec<String>>,
    reached: RefCell<Vec<String>>,
    deaf: RefCell<Vec<DuplexStream>>,
    ends: RefCell<Option<oneshot::Receiver<String>>>,
}

impl JumpAccess for House {
    fn host_key(&self) -> Arc<HostKey> {
        self.host_key.clone()
    }

    fn check_user(&self, certificate: &Certificate, _: &str) -> Result<Identity, String> {
        match certificate.ca() == self.ca.public() {
            true => Ok(identity("ada")),
            false => Err("the CA is not the cluster's".to_owned()),
        }
    }

    fn reach(&self, _: &Rc<Caller>, node: &str) -> StreamFuture {
        self.reached.borrow_mut().push(node.to_owned());
        let (ours, mut theirs) = duplex(4096);
        match node {
            "echo" => {
                tokio::task::spawn_local(async move {
                    let (mut read, mut write) = tokio::io::split(&mut theirs);
                    let _ = tokio::io::copy(&mut read, &mut write).await;
                    let _ = write.shutdown().await;
                });
            }
            "deaf" => self.deaf.borrow_mut().push(theirs),
            _ => {
                let words = format!("role access does not allow {node}");
                return Box::pin(async { Err(words) });
            }
        }
        Box::pin(async { Ok(Box::new(ours) as Stream) })
    }

    fn entered(&self, _: SocketAddr) {}

    fn refused(&self, _: SocketAddr, why: &str) {
        self.refused.borrow_mut().push(why.to_owned());
    }

    fn ended(&self, _: &Identity, _: &Certificate) -> Pin<Box<dyn Future<Output = String>>> {
        let ends = self.ends.borrow_mut().take();
        Box::pin(async {
            match ends {
                Some(ends) => ends.await.unwrap_or_default(),
                None => std::future::pending().await,
            }
        })
    }
}

struct World {
    house: Rc<House>,
    ca: PrivateKey,
    key: PrivateKey,
    blob: Vec<u8>,
}

impl World {
    fn new() -> World {
        let (file, ca) = {
            let (ca, file) = PrivateKey::generate(fleetgate_ssh::key::KeyType::Ed25519, "ca").expect("made");
            (file, ca)
        };
        let user = key();
        let blob = certificate(&ca, &user, &identity("ada")).blob().to_vec();
        let house = House {
            host_key: Arc::new(host_key()),
            ca: PrivateKey::parse(file.as_bytes()).expect("read"),
            refused: RefCell::default(),
            reached: RefCell::default(),
            deaf: RefCell::default(),
            ends: RefCell::default(),
        };
        World {
            house: Rc::new(house),
            ca,
            key: user,
            blob,
        }
    }

    /// A client's end of a connection that the proxy serves, and what is said when it ends.
    fn connect(&self) -> (Client<DuplexStream>, oneshot::Receiver<String>) {
        let (ours, theirs) = duplex(64 * 1024);
        let (said, hears) = oneshot::channel();
        let ways: Rc<dyn JumpAccess> = self.house.clone();
        tokio::task::spawn_local(async move {
            let source = "192.0.2.7:4000".parse().expect("an address");
            let _ = said.send(jump::serve(theirs, source, ways).await);
        });
        (Client::new(ours), hears)
    }

    async fn logged_in(&self) -> (Client<DuplexStream>, oneshot::Receiver<String>) {
        let (mut client, hears) = self.connect();
        assert!(
            client
                .log_in("ada", &self.key, &self.blob)
                .await
                .expect("an answer")
        );
        (client, hears)
    }
}

fn run(test: impl AsyncFnOnce(World)) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    let local = tokio::task::LocalSet::new();
    local.block_on(&runtime, test(World::new()));
}

fn to(node: &str, port: u32) -> ChannelKind {
    ChannelKind::DirectTcpip {
        host: node.into(),
        port,
        origin: b"127.0.0.1".to_vec(),
        origin_port: 1,
    }
}

/// Opens a channel; the refusal's words.
async fn open(client: &mut Client<DuplexStream>, kind: &ChannelKind) -> Result<ChannelId, String> {
    let channel = client.end.core.open(kind).expect("logged in");
    client
        .until(|_, e| match e {
            Event::Opened(c) if c == channel => Some(Ok(c)),
            Event::OpenFailed { text, .. } => Some(Err(String::from_utf8_lossy(text).into_owned())),
            _ => None,
        })
        .await
        .expect("an answer")
}

#[test]
fn who_may_log_in() {
    run(async |w| {
        let stranger = key();
        let theirs = certificate(&stranger, &w.key, &identity("ada")).blob().to_vec();
        let other = certificate(&w.ca, &stranger, &identity("ada")).blob().to_vec();
        for (what, blob, signer, want) in [
            ("the cluster's certificate", &w.blob, &w.key, true),
            ("another CA's", &theirs, &w.key, false),
            ("somebody else's, without its key", &other, &w.key, false),
            ("a bare key", &w.key.public().blob().to_vec(), &w.key, false),
        ] {
            let (mut client, _) = w.connect();
            let got = client.log_in("ada", signer, blob).await;
            assert_eq!(got, Ok(want), "{what}");
        }
        assert_eq!(w.house.refused.borrow().len(), 3);
    });
}

#[test]
fn tries_at_the_proxy_are_counted() {
    run(async |w| {
        let (mut client, hears) = w.connect();
        let bare = w.key.public().blob().to_vec();
        let mut tries = 0;
        while let Ok(false) = client.log_in("ada", &w.key, &bare).await {
            tries += 1;
        }
        assert_eq!(tries, crate::ssh::authenticator::TRIES);
        assert_eq!(hears.await.as_deref(), Ok("too many tries"));
    });
}

#[test]
fn a_jump_carries_bytes_both_ways_and_their_end() {
    run(async |w| {
        let (mut client, _) = w.logged_in().await;
        let channel = open(&mut client, &to("echo", 22)).await.expect("open");
        let sent: Vec<u8> = (0..200_000u32).map(|n| n as u8).collect();
        let (mut at, mut got, mut ended) = (0, Vec::new(), false);
        while got.len() < sent.len() || !ended {
            at += client.end.core.write(channel, Way::Main, &sent[at..]);
            if at == sent.len() {
                client.end.core.eof(channel);
                at += 1;
            }
            let some = client.until(|asked, e| match e {
                Event::Data { channel, bytes, .. } => {
                    *asked = Some(Asked::Consumed(channel, bytes.len()));
                    Some(bytes.to_vec())
                }
                Event::Eof(_) => Some(Vec::new()),
                Event::Writable(_) => Some(Vec::new()),
                _ => None,
            });
            let some = some.await.expect("bytes");
            ended |= some.is_empty() && got.len() == sent.len();
            got.extend(some);
            if at > sent.len() {
                at = sent.len();
            }
        }
        assert_eq!(got, sent);
        assert_eq!(*w.house.reached.borrow(), ["echo"]);
    });
}

#[test]
fn what_a_jump_refuses() {
    run(async |w| {
        let (mut client, _) = w.logged_in().await;
        for (kind, want) in [
            (to("db1", 22), "role access does not allow db1"),
            (
                to("echo", 5432),
                "the proxy reaches the SSH of nodes alone: leave the port out, or say 22",
            ),
            (
                ChannelKind::Session,
                "the proxy runs nothing: it reaches nodes by `ssh -J`, and fleetgate by gRPC",
            ),
            (
                ChannelKind::DirectStreamlocal {
                    path: b"/run/x".to_vec(),
                },
                "the proxy runs nothing: it reaches nodes by `ssh -J`, and fleetgate by gRPC",
            ),
        ] {
            assert_eq!(open(&mut client, &kind).await, Err(want.to_owned()));
        }
        assert!(open(&mut client, &to("echo", 22)).await.is_ok());
    });
}

#[test]
fn a_node_that_reads_nothing_holds_no_more_than_a_window_and_no_other_leg() {
    run(async |w| {
        let (mut client, _) = w.logged_in().await;
        let deaf = open(&mut client, &to("deaf", 22)).await.expect("open");
        let noise = vec![7; 64 * 1024];
        let mut sent = 0;
        // Until its window is used up: the other leg then still answers at once.
        loop {
            let taken = client.end.core.write(deaf, Way::Main, &noise);
            sent += taken;
            let echo = open(&mut client, &to("echo", 22)).await.expect("open");
            client.end.core.write(echo, Way::Main, b"hello");
            let answer = client.until(|asked, e| match e {
                Event::Data { channel, bytes, .. } if channel == echo => {
                    *asked = Some(Asked::Consumed(channel, bytes.len()));
                    Some(bytes.to_vec())
                }
                _ => None,
            });
            assert_eq!(answer.await.as_deref(), Ok(&b"hello"[..]));
            client.end.core.close(echo);
            if taken == 0 {
                break;
            }
        }
        assert!(sent >= 64 * 1024 && sent <= WINDOW as usize + 4096, "{sent}");
    });
}

#[test]
fn a_lock_ends_a_jump_with_a_sentence() {
    run(async |w| {
        let (lock, ends) = oneshot::channel();
        *w.house.ends.borrow_mut() = Some(ends);
        let (mut client, hears) = w.logged_in().await;
        open(&mut client, &to("echo", 22)).await.expect("open");
        lock.send("user ada is locked: leaving".to_owned())
            .expect("it listens");
        let end = client.until(|_, _| None::<()>).await;
        assert!(end.is_err_and(|e| e.contains("user ada is locked: leaving")));
        assert_eq!(hears.await.as_deref(), Ok("user ada is locked: leaving"));
    });
}

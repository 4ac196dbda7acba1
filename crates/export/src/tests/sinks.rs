//! What each sink promises: every event, in order, whatever its receiver does, and no word of it to anybody else.

use super::receivers::{Deed, Receiver, http, syslog};
use super::{Directory, Memory, sinks};
use crate::run::{Times, run_by};
use crate::{BATCH, Progress, WINDOW};
use fleetgate_net::backoff::Backoff;
use fleetgate_net::testing::{Cluster, name};
use fleetgate_net::tls::{self, Shown};
use fleetgate_policy::cluster::Subject;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinHandle;

/// Only a failing test waits so long.
const PATIENCE: Duration = Duration::from_secs(60);

/// Runs the one sink of this configuration; a receiver that hangs is given up soon.
fn start(text: &str, memory: &Arc<Memory>) -> (Arc<Progress>, JoinHandle<()>) {
    let sink = sinks(text).unwrap().remove(0);
    let times = Times {
        answer: Duration::from_millis(300),
        unacknowledged: Duration::from_millis(50),
        backoff: Backoff::new(Duration::from_millis(5), Duration::from_millis(20)),
    };
    (sink.progress(), tokio::spawn(run_by(sink, memory.clone(), times)))
}

async fn has(receiver: &Receiver, last: i64) {
    let got = tokio::time::timeout(PATIENCE, receiver.has(last)).await;
    got.unwrap_or_else(|_| panic!("{last} does not come: {} did", receiver.count()));
}

async fn until(what: &str, is_so: impl Fn() -> bool) {
    let waiting = async {
        while !is_so() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, waiting).await.expect(what);
}

fn pem(der: &[u8]) -> String {
    use std::fmt::Write as _;
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = "-----BEGIN CERTIFICATE-----\n".to_owned();
    for (n, three) in der.chunks(3).enumerate() {
        let bits = three.iter().fold(0, |sum, b| sum << 8 | u32::from(*b)) << (8 * (3 - three.len()));
        for at in 0..4 {
            let digit = DIGITS[(bits >> (18 - 6 * at) & 63) as usize] as char;
            text.push(if at <= three.len() { digit } else { '=' });
        }
        if n % 16 == 15 {
            let _ = writeln!(text);
        }
    }
    text + "\n-----END CERTIFICATE-----\n"
}

/// A TLS server of this name, and the file with its authority.
fn tls_server(directory: &Directory, dns: &str) -> (tls::Server, String) {
    let cluster = Cluster::new();
    let credentials = cluster.server(dns, Subject::Proxy(name("siem")));
    let server = tls::Server::new(Shown::new().otherwise(&credentials), None, &[]).unwrap();
    let ca = directory.file("ca.pem", &pem(cluster.authority.certificate().der()));
    (server, ca.display().to_string())
}

const DEEDS: [Deed; 6] = [
    Deed::Close,
    Deed::CutAfter(0),
    Deed::CutAfter(3),
    Deed::Hang,
    Deed::CutAfter(200),
    Deed::CutAfter(1),
];

#[tokio::test]
async fn syslog_over_tls_leaves_no_event_out_whatever_the_receiver_does() {
    let directory = Directory::new();
    let (server, ca) = tls_server(&directory, "siem.test");
    let receiver = syslog("127.0.0.1:0", &DEEDS, Some(server)).await;
    let memory = Arc::new(Memory::new());
    memory.add(1_200);
    let text = format!(
        "[auth]\n[[auth.export]]\nname = \"siem\"\ntype = \"syslog\"\naddress = \"{}\"\nserver_name = \"siem.test\"\nca = {ca:?}\n",
        receiver.address
    );
    let (progress, running) = start(&text, &memory);
    has(&receiver, 1_200).await;
    until("it is noted down", || memory.noted() == 1_200).await;
    assert!(progress.failures() >= DEEDS.len() as u64, "{progress:?}");
    assert_eq!((progress.acknowledged(), progress.oldest()), (1_200, None));
    // Each event that comes later is there soon, on a connection of its own.
    memory.add(1);
    has(&receiver, 1_201).await;
    until("it is noted down", || memory.noted() == 1_201).await;
    // What is not acknowledged when the service ends goes out again when it begins.
    let before = receiver.count();
    running.abort();
    memory.add(2);
    let (_, running) = start(&text, &memory);
    has(&receiver, 1_203).await;
    assert_eq!(receiver.count(), before + 2);
    running.abort();
}

#[tokio::test]
async fn syslog_without_tls_waits_for_the_end_of_the_connection_too() {
    let receiver = syslog("127.0.0.1:0", &DEEDS, None).await;
    let memory = Arc::new(Memory::new());
    let many = i64::try_from(WINDOW).unwrap() + 700;
    memory.add(many);
    let text = format!(
        "[auth]\n[[auth.export]]\nname = \"siem\"\ntype = \"syslog\"\naddress = \"{}\"\ntls = false\n",
        receiver.address
    );
    let (_, running) = start(&text, &memory);
    has(&receiver, many).await;
    until("it is noted down", || memory.noted() == many).await;
    running.abort();
}

#[tokio::test]
async fn another_name_or_authority_of_a_receiver_is_refused_and_nothing_is_sent() {
    let directory = Directory::new();
    let (server, ca) = tls_server(&directory, "siem.test");
    let receiver = syslog("127.0.0.1:0", &[], Some(server)).await;
    let elsewhere = Directory::new();
    let (_, other) = tls_server(&elsewhere, "siem.test");
    for (name, ca) in [("other.test", &ca), ("siem.test", &other)] {
        let memory = Arc::new(Memory::new());
        memory.add(3);
        let text = format!(
            "[auth]\n[[auth.export]]\nname = \"siem\"\ntype = \"syslog\"\naddress = \"{}\"\nserver_name = \"{name}\"\nca = {ca:?}\n",
            receiver.address
        );
        let (progress, running) = start(&text, &memory);
        until("it fails", || progress.failures() >= 3).await;
        assert_eq!((receiver.count(), progress.acknowledged()), (0, 0));
        assert_eq!(progress.oldest(), Some(1_000), "it waits");
        running.abort();
    }
}

const HTTP: [Deed; 7] = [
    Deed::Close,
    Deed::Status(500),
    Deed::Status(302),
    Deed::Status(429),
    Deed::NoAnswer,
    Deed::Hang,
    Deed::Status(401),
];

#[tokio::test]
async fn otlp_leaves_no_event_out_and_counts_what_the_receiver_throws_away() {
    const THROWN: Deed = Deed::Body(r#"{"partialSuccess":{"rejectedLogRecords":"2","errorMessage":"x"}}"#);
    let deeds: Vec<Deed> = HTTP.into_iter().chain([THROWN]).collect();
    let receiver = http("127.0.0.1:0", &deeds).await;
    let memory = Arc::new(Memory::new());
    let many = 2 * BATCH as i64 + 1;
    memory.add(many);
    let text = format!(
        "[auth]\n[[auth.export]]\nname = \"otel\"\ntype = \"otlp\"\nendpoint = \"http://{}\"\n",
        receiver.address
    );
    let (progress, running) = start(&text, &memory);
    has(&receiver, many).await;
    until("it is noted down", || memory.noted() == many).await;
    assert_eq!(progress.rejected(), 2);
    // What has no answer on a kept connection is asked once more at once.
    assert!(progress.failures() >= HTTP.len() as u64 - 1);
    let head = receiver.seen.lock().unwrap().0.clone();
    assert!(
        head.starts_with("POST /v1/logs HTTP/1.1\r\n") && head.contains("content-type: application/json\r\n")
    );
    running.abort();
}

#[tokio::test]
async fn a_webhook_leaves_no_event_out_signs_and_shows_its_headers() {
    let directory = Directory::new();
    let headers = directory.file("headers", "# ours\nAuthorization: Bearer S3CRET\n");
    let key = directory.file("key", "0123456789abcdef\n");
    let deeds: Vec<Deed> = HTTP.into_iter().chain([Deed::AtMost(7)]).collect();
    let receiver = http("127.0.0.1:0", &deeds).await;
    let memory = Arc::new(Memory::new());
    memory.add(20);
    let text = format!(
        "[auth]\n[[auth.export]]\nname = \"hook\"\ntype = \"webhook\"\nurl = \"http://{}/in?x=1\"\nheaders_file = {headers:?}\n\
         signing_key_file = {key:?}\n",
        receiver.address
    );
    let (progress, running) = start(&text, &memory);
    has(&receiver, 20).await;
    until("it is noted down", || memory.noted() == 20).await;
    assert!(
        progress.failures() > HTTP.len() as u64,
        "too large requests were refused"
    );
    let (head, body) = receiver.seen.lock().unwrap().clone();
    let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, b"0123456789abcdef");
    let signature = crate::webhook::signature(&key, &body).unwrap();
    let signature = format!("fleetgate-signature: {}\r\n", signature.to_str().unwrap());
    assert!(
        head.starts_with("POST /in?x=1 HTTP/1.1\r\n") && head.contains(&signature),
        "{head}"
    );
    assert!(head.contains("authorization: Bearer S3CRET\r\n"), "{head}");
    running.abort();
}

#[tokio::test]
async fn a_receiver_that_hangs_holds_up_no_other_sink() {
    let hangs = http("127.0.0.1:0", &[Deed::Hang; 10_000]).await;
    let works = http("127.0.0.1:0", &[]).await;
    let memories = [Arc::new(Memory::new()), Arc::new(Memory::new())];
    let mut running = Vec::new();
    for (receiver, memory) in [&hangs, &works].into_iter().zip(&memories) {
        let text = format!(
            "[auth]\n[[auth.export]]\nname = \"x\"\ntype = \"webhook\"\nurl = \"http://{}\"\n",
            receiver.address
        );
        running.push(start(&text, memory).1);
    }
    for n in 1..=10 {
        memories.iter().for_each(|memory| memory.add(1));
        has(&works, n).await;
    }
    assert_eq!(hangs.count(), 0);
    running.iter().for_each(JoinHandle::abort);
}

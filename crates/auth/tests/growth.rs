//! How auth's memory grows with sessions: the audit records of many of them, as nodes and proxies deliver them, to a service
//! in a process of its own. It looks at nothing but that memory.
//!
//! `FLEETGATE_AUTH_GROWTH_SESSIONS=500000 cargo test -p fleetgate-auth --test growth stands_still` is the measurement
//! that SPECIFICATION has: it prints samples and slopes.
#![forbid(unsafe_code)]

use fleetgate_auth::clock::{Clock, MachineClock, rfc3339};
use fleetgate_auth::{Config, Kind, Server, init, join_here};
use fleetgate_net::Credentials;
use fleetgate_net::h2::{self, Channel, Tuning};
use fleetgate_net::tls::{self, AUTH, Believe, H2};
use fleetgate_net::x509::{Certificate, Key};
use fleetgate_policy::cluster::Name;
use fleetgate_proto::v1::cluster_client::ClusterClient;
use fleetgate_proto::{signed, v1};
use fleetgate_ssh::key::{KeyType, PrivateKey};
use std::io::{BufRead, BufReader, Lines, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::process::{Child, ChildStderr, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Told to the process that is measured: the directory of its cluster.
const MEASURED: &str = "FLEETGATE_AUTH_GROWTH_TEST";
/// How many sessions there are, where they are to be more than [`SESSIONS`].
const MORE: &str = "FLEETGATE_AUTH_GROWTH_SESSIONS";
/// Enough to see a process that keeps something of each.
const SESSIONS: u64 = 6_000;
/// What is kept of each session in the control, in bytes.
const LOST: u64 = 16;
/// What a process may grow by, in KB for a thousand sessions.
const MOST: f64 = 1.0;
/// The fewest sessions by which that is judged.
const FEWEST: u64 = 300_000;
/// What it may keep of blocks where there are fewer, because what is under way is some of that.
const MOST_OF_FEW: f64 = 4.0;
/// Nodes, and proxies, that deliver at once.
const MACHINES: usize = 4;
/// How often memory is taken.
const SAMPLES: u64 = 50;
/// The most sessions whose records are in one batch.
const LARGE: u64 = 300;
/// What large batches may leave behind, in KB.
const LEFT: u64 = 512;

/// The service in a process of its own, and who delivers to it.
struct Driven {
    child: Child,
    said: Lines<BufReader<ChildStderr>>,
    directory: PathBuf,
    proxy: ClusterClient<Channel>,
    tellers: Vec<Teller>,
    round: u64,
}

/// Somebody who delivers a log.
struct Teller {
    name: String,
    key: Key,
    chain: Vec<bytes::Bytes>,
    is_node: bool,
    log: u64,
    offset: u64,
    connection: u64,
}

/// What the process has after so many sessions, in KB: pages that are no file's, and blocks that are allocated.
struct Sample {
    sessions: u64,
    pages: u64,
    blocks: f64,
}

/// The service has to be on the process's first thread, whose heap is another than that of all others, as it is where it
/// serves; a test harness would give it one of its own.
fn main() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.expect("a runtime");
    if let Some(directory) = std::env::var_os(MEASURED) {
        return runtime.block_on(serve(directory.into()));
    }
    let wanted: Vec<String> = std::env::args()
        .skip(1)
        .filter(|arg| !arg.starts_with('-'))
        .collect();
    let run = |name: &str, test: Pin<Box<dyn Future<Output = ()>>>| {
        if wanted.is_empty() || wanted.iter().any(|part| name.contains(part.as_str())) {
            runtime.block_on(test);
            println!("test {name} ... ok");
        }
    };
    run(
        "memory_stands_still_while_sessions_come_and_go",
        Box::pin(memory_stands_still_while_sessions_come_and_go()),
    );
    run(
        "memory_that_large_batches_took_is_given_back",
        Box::pin(memory_that_large_batches_took_is_given_back()),
    );
}

async fn memory_stands_still_while_sessions_come_and_go() {
    let more = std::env::var(MORE).ok().and_then(|n| n.parse().ok());
    let sessions = more.unwrap_or(SESSIONS);
    let mut driven = Driven::start().await;
    let samples = driven.sessions(sessions, 0).await;
    // Behind the first half: tables and caches fill within the first 2,700 sessions, and how many samples that is differs.
    let warm = &samples[samples.partition_point(|s| s.sessions < sessions / 2)..];
    let (pages, blocks) = (pages(warm), blocks(warm));
    eprintln!("behind the first half, for 1,000 sessions: {pages:.2} KB of pages, {blocks:.3} of blocks");
    let most = if sessions >= FEWEST { MOST } else { MOST_OF_FEW };
    assert!(blocks < most, "it keeps {blocks:.2} KB of 1,000 sessions");
    assert!(
        sessions < FEWEST || pages < MOST,
        "it grew by {pages:.2} KB for 1,000 sessions"
    );
    let lossy = self::blocks(&driven.sessions(SESSIONS / 2, LOST).await);
    assert!(
        lossy > MOST_OF_FEW,
        "control: {lossy:.2} KB, where {LOST} bytes of each are kept"
    );
    eprintln!("control: {lossy:.2} KB for 1,000 sessions, where {LOST} bytes of each are kept");
    driven.end();
}

async fn memory_that_large_batches_took_is_given_back() {
    let mut driven = Driven::start().await;
    for _ in 0..200 {
        driven.round(|some| 1 + some % 4).await;
    }
    let before = driven.sample(0).pages;
    let mut most = 0;
    for _ in 0..5 {
        driven.round(|_| LARGE).await;
        most = most.max(driven.sample(0).pages);
    }
    assert!(most > before + LEFT, "control: {most} KB, and {before} KB before");
    let guard = Instant::now() + Duration::from_secs(120);
    while driven.sample(0).pages > before + LEFT && Instant::now() < guard {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let after = driven.sample(0).pages;
    eprintln!("{before} KB before, {most} KB at most, {after} KB after a rest");
    assert!(after <= before + LEFT, "{after} KB, and {before} KB before");
    driven.end();
}

/// The service, until nobody asks any more what it has allocated.
async fn serve(directory: PathBuf) {
    let config = Config {
        listen: SocketAddr::from(([127, 0, 0, 1], 0)),
        ..Config::new(&directory)
    };
    let listener = std::net::TcpListener::bind(config.listen).expect("a free port");
    let server = Server::open(config, listener).await.expect("the service");
    eprintln!("address {}", server.address().expect("an address"));
    let asked = tokio::task::spawn_blocking(|| {
        let mut kept: Vec<Vec<u8>> = Vec::new();
        for line in std::io::stdin().lines().map_while(Result::ok) {
            kept.push(Vec::with_capacity(line.parse().expect("how many bytes to keep")));
            eprintln!("blocks {}", fleetgate_sys::heap::in_use());
        }
    });
    let left = async { asked.await.expect("it ends") };
    server.run(left).await.expect("it runs");
}

impl Driven {
    async fn start() -> Driven {
        let directory = std::env::temp_dir().join(format!("fleetgate-auth-growth-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&directory);
        let cluster = Name::parse("orchard").expect("a name");
        let made = init(&directory, &cluster, &[], Arc::new(MachineClock)).await;
        made.expect("a new cluster");
        let mut tellers = Vec::new();
        for n in 0..MACHINES {
            for (kind, word) in [(Kind::Node, "node"), (Kind::Proxy, "proxy")] {
                tellers.push(Teller::join(&directory, kind, format!("{word}{n}")).await);
            }
        }
        let edge = Teller::join(&directory, Kind::Proxy, "edge".to_owned()).await;
        let (child, said, address) = spawn(&directory);
        let stream = tokio::net::TcpStream::connect(address)
            .await
            .expect("the address");
        let above = Certificate::read(&edge.chain[1]).expect("an authority");
        let credentials = Credentials::new(edge.key, &edge.chain).expect("a pair");
        let client = tls::Client::new(&Believe::Pin(above.pin()), Some(&credentials), &[H2]);
        let connected = client.expect("a client").connect(AUTH, stream).await;
        let (stream, _) = connected.expect("TLS");
        let channel = h2::connect(stream, Tuning::AUTH).await.expect("HTTP/2");
        let mut proxy = ClusterClient::new(channel);
        let watching = proxy.watch(v1::WatchRequest::default()).await;
        let mut watching = watching.expect("a stream").into_inner();
        tokio::spawn(async move { while let Ok(Some(_)) = watching.message().await {} });
        Driven {
            child,
            said,
            directory,
            proxy,
            tellers,
            round: 0,
        }
    }

    /// A batch of each, at once, of as many sessions as `many` makes of a random number; how many sessions that were.
    async fn round(&mut self, many: impl Fn(u64) -> u64) -> u64 {
        let mut under_way = tokio::task::JoinSet::new();
        let mut told = 0;
        for mut teller in self.tellers.drain(..) {
            let seed = u64::from(teller.name.as_bytes()[teller.name.len() - 1]) << 32
                | u64::from(teller.is_node) << 48;
            let many = many(mixed(seed + self.round));
            told += if teller.is_node { many } else { 0 };
            let batch = teller.batch(many);
            let mut proxy = self.proxy.clone();
            under_way.spawn(async move {
                let kept = proxy.audit(batch).await.expect("kept").into_inner();
                assert_eq!(kept.offset, teller.offset);
                if teller.offset > 1 << 20 {
                    (teller.log, teller.offset) = (teller.log + 1, 0);
                }
                teller
            });
        }
        while let Some(teller) = under_way.join_next().await {
            self.tellers.push(teller.expect("it ends"));
        }
        self.round += 1;
        told
    }

    /// Their records, mostly of few at once, and some batches as large as they may be. The service keeps `lost` bytes of each.
    async fn sessions(&mut self, all: u64, lost: u64) -> Vec<Sample> {
        let (mut told, mut samples) = (0, Vec::new());
        while told < all {
            let mut some = 0;
            while some < all / SAMPLES {
                let many = |some| match some % 100 {
                    0 => LARGE,
                    n if n < 20 => 1 + n,
                    n => 1 + n % 4,
                };
                some += self.round(many).await;
            }
            told += some;
            let sample = Sample {
                sessions: told,
                ..self.sample(some * lost)
            };
            let (pages, blocks) = (sample.pages, sample.blocks);
            eprintln!("{told} sessions: {pages} KB of pages, {blocks:.1} of blocks");
            samples.push(sample);
        }
        samples
    }

    /// What it has now, and so many bytes more.
    fn sample(&mut self, more: u64) -> Sample {
        let ask = self.child.stdin.as_mut().expect("a pipe");
        ask.write_all(format!("{more}\n").as_bytes()).expect("it runs");
        let blocks: u64 = find(&mut self.said, "blocks ").parse().expect("a number");
        Sample {
            sessions: 0,
            pages: resident(self.child.id()),
            blocks: blocks as f64 / 1024.0,
        }
    }

    fn end(mut self) {
        drop(self.child.stdin.take());
        assert!(self.child.wait().expect("it ends").success());
    }
}

impl Drop for Driven {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

/// Starts this program as the service; its process, what it says, and where it answers.
fn spawn(directory: &Path) -> (Child, Lines<BufReader<ChildStderr>>, SocketAddr) {
    let own = std::env::current_exe().expect("this program");
    let mut child = Command::new(own);
    child.env(MEASURED, directory).stdout(Stdio::null());
    child.stdin(Stdio::piped()).stderr(Stdio::piped());
    let mut child = child.spawn().expect("it starts");
    let mut said = BufReader::new(child.stderr.take().expect("a pipe")).lines();
    let address = find(&mut said, "address ").parse().expect("an address");
    (child, said, address)
}

/// What stands behind `word` in the next line that begins so.
fn find(said: &mut Lines<BufReader<ChildStderr>>, word: &str) -> String {
    let mut lines = said.map_while(Result::ok);
    let found = lines.find_map(|line| line.strip_prefix(word).map(str::to_owned));
    found.expect("it runs")
}

impl Teller {
    async fn join(directory: &Path, kind: Kind, name: String) -> Teller {
        let key = Key::generate();
        let host = PrivateKey::generate(KeyType::Ed25519, "").expect("a key").0;
        let request = v1::JoinRequest {
            name: name.clone(),
            tls_public: bytes::Bytes::copy_from_slice(key.public().spki()),
            host_keys: vec![bytes::Bytes::copy_from_slice(host.public().blob())],
            version: "0.1.0".to_owned(),
            ..v1::JoinRequest::default()
        };
        let joined = join_here(directory, kind, request, Arc::new(MachineClock)).await;
        Teller {
            chain: joined.expect("joined").tls_chain,
            is_node: matches!(kind, Kind::Node),
            key,
            name,
            log: 0,
            offset: 0,
            connection: 0,
        }
    }

    /// The records of some sessions.
    fn lines(&mut self, many: u64) -> String {
        let mut text = String::new();
        for _ in 0..many {
            self.connection += 1;
            let connection = self.connection;
            let some = mixed(
                connection * 8
                    + self.name.len() as u64 * 977
                    + u64::from(self.name.as_bytes()[self.name.len() - 1]),
            );
            let time = rfc3339(MachineClock.millis());
            let user = format!("user{}", some % 3000);
            let source = format!(
                "10.{}.{}.{}:{}",
                some % 200,
                (some >> 8) % 250,
                (some >> 16) % 250,
                1024 + (some >> 24) % 60000
            );
            let name = &self.name;
            let session = format!("{some:016x}{:016x}", mixed(some));
            let command = "x".repeat((some >> 40) as usize % 120);
            if self.is_node {
                text.push_str(&format!(
                    "{{\"time\":\"{time}\",\"event\":\"login_accepted\",\"connection\":{connection},\"login\":\"root\",\"source\":\"{source}\",\"via\":\"edge\",\"identity\":\"SHA256:{some:043}\",\"user\":\"{user}\",\"roles\":\"everything\",\"mfa\":1790000000}}\n\
                     {{\"time\":\"{time}\",\"event\":\"session_started\",\"connection\":{connection},\"login\":\"root\",\"session\":\"{session}\",\"source\":\"{source}\",\"user\":\"{user}\",\"kind\":\"exec\",\"pid\":{},\"command\":\"{command}\",\"strategy\":\"memfd\"}}\n\
                     {{\"time\":\"{time}\",\"event\":\"session_ended\",\"connection\":{connection},\"login\":\"root\",\"session\":\"{session}\",\"code\":0,\"lasted_ms\":12,\"cpu_us\":1100,\"memory\":1000000,\"read\":0,\"written\":0}}\n\
                     {{\"time\":\"{time}\",\"event\":\"connection_ended\",\"connection\":{connection},\"login\":\"root\",\"source\":\"{source}\",\"via\":\"edge\",\"reason\":\"closed\",\"received\":4000,\"sent\":3000,\"lasted_ms\":31}}\n",
                    some % 4_000_000
                ));
            } else {
                text.push_str(&format!(
                    "{{\"time\":\"{time}\",\"event\":\"dial\",\"proxy\":\"{name}\",\"user\":\"{user}\",\"node\":\"node1\",\"login\":\"root\",\"source\":\"{source}\"}}\n\
                     {{\"time\":\"{time}\",\"event\":\"dial_ended\",\"proxy\":\"{name}\",\"user\":\"{user}\",\"node\":\"node1\",\"login\":\"root\",\"source\":\"{source}\",\"received\":4000,\"sent\":3000}}\n"
                ));
            }
        }
        text
    }

    fn batch(&mut self, many: u64) -> v1::AuditFrom {
        let lines = self.lines(many);
        let mut batch = v1::AuditBatch {
            log: self.log.to_string(),
            offset: self.offset,
            lines: lines.into(),
            signature: Default::default(),
            certificate: self.chain[0].clone(),
        };
        self.offset += batch.lines.len() as u64;
        batch.signature = self.key.sign(&signed::audit(&self.name, &batch)).into();
        v1::AuditFrom {
            source: self.name.clone(),
            batch: Some(batch),
        }
    }
}

/// A number that looks like any other (SplitMix64).
fn mixed(n: u64) -> u64 {
    let n = n.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let n = (n ^ (n >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let n = (n ^ (n >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    n ^ (n >> 31)
}

/// By how many KB of pages it grew for 1,000 sessions: the slope of the line that fits best (least squares).
fn pages(samples: &[Sample]) -> f64 {
    let points = samples
        .iter()
        .map(|s| (s.sessions as f64 / 1000.0, s.pages as f64));
    let (mut count, mut x, mut y, mut xy, mut xx) = (0.0, 0.0, 0.0, 0.0, 0.0);
    for (a, b) in points {
        (count, x, y, xy, xx) = (count + 1.0, x + a, y + b, xy + a * b, xx + a * a);
    }
    (count * xy - x * y) / (count * xx - x * x)
}

/// By how many KB of blocks it grew for 1,000 sessions: from the least of the first half to the least of the second, because
/// what is under way only adds.
fn blocks(samples: &[Sample]) -> f64 {
    let (first, second) = samples.split_at(samples.len() / 2);
    let least = |part: &[Sample]| part.iter().map(|s| s.blocks).fold(f64::MAX, f64::min);
    let sessions = second[0].sessions - first[0].sessions;
    (least(second) - least(first)) / sessions as f64 * 1000.0
}

/// What a process has in memory that is no file's, in KB.
fn resident(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("it is there");
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
    let number = line.and_then(|line| line.trim().strip_suffix(" kB"));
    number
        .and_then(|number| number.trim().parse().ok())
        .expect("a number")
}

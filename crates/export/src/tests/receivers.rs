//! Receivers that do what a test wants: each connection, or each request, is met with the next deed, and when there is none
//! left, as it should be.

use fleetgate_net::tls;
use serde_json::Value;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// What a receiver does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Deed {
    /// Closes at once.
    Close,
    /// Reads so many messages, and goes away with the rest unread.
    CutAfter(usize),
    /// Reads what comes and never answers.
    Hang,
    /// Answers with this status, and takes nothing.
    Status(u16),
    /// Takes it, and answers with this body.
    Body(&'static str),
    /// Takes it, and goes away without an answer.
    NoAnswer,
    /// Refuses requests of more lines than this.
    AtMost(usize),
}

/// A receiver.
pub(super) struct Receiver {
    pub(super) address: SocketAddr,
    /// The numbers of the events, in the order in which they came.
    pub(super) got: Arc<Mutex<Vec<i64>>>,
    /// The last request's head, and its body.
    pub(super) seen: Arc<Mutex<(String, Vec<u8>)>>,
    serving: JoinHandle<()>,
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

impl Receiver {
    /// Waits until the event with this number is there; all before it are, too, each for the first time in its turn.
    pub(super) async fn has(&self, last: i64) {
        while !self.got.lock().unwrap().contains(&last) {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
        let mut highest = 0;
        for id in self.got.lock().unwrap().iter() {
            assert!(*id <= highest + 1, "{id} comes behind {highest}");
            highest = highest.max(*id);
        }
    }

    pub(super) fn count(&self) -> usize {
        self.got.lock().unwrap().len()
    }
}

type Deeds = Arc<Mutex<VecDeque<Deed>>>;

async fn begin<F, G>(address: &str, deeds: &[Deed], serve: F) -> Receiver
where
    F: Fn(TcpStream, Deeds, Arc<Mutex<Vec<i64>>>, Arc<Mutex<(String, Vec<u8>)>>) -> G + Send + 'static,
    G: Future<Output = ()> + Send + 'static,
{
    let listener = TcpListener::bind(address).await.unwrap();
    let address = listener.local_addr().unwrap();
    let deeds: Deeds = Arc::new(Mutex::new(deeds.iter().copied().collect()));
    let (got, seen) = (
        Arc::<Mutex<Vec<i64>>>::default(),
        Arc::<Mutex<(String, Vec<u8>)>>::default(),
    );
    let (to, saw) = (Arc::clone(&got), seen.clone());
    let serving = tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            tokio::spawn(serve(stream, deeds.clone(), to.clone(), saw.clone()));
        }
    });
    Receiver {
        address,
        got,
        seen,
        serving,
    }
}

/// Syslog, by TLS where there is a server for it.
pub(super) async fn syslog(address: &str, deeds: &[Deed], tls: Option<tls::Server>) -> Receiver {
    begin(address, deeds, move |stream, deeds, got, _| {
        let tls = tls.clone();
        async move {
            let deed = deeds.lock().unwrap().pop_front();
            match (deed, tls) {
                (Some(Deed::Close), _) => {}
                (deed, None) => messages(stream, deed, &got).await,
                (deed, Some(tls)) => {
                    if let Ok((stream, _)) = tls.accept(stream).await {
                        messages(stream, deed, &got).await;
                    }
                }
            }
        }
    })
    .await
}

async fn messages<IO: AsyncRead + AsyncWrite + Unpin>(mut io: IO, deed: Option<Deed>, got: &Mutex<Vec<i64>>) {
    let mut read = 0;
    loop {
        if deed == Some(Deed::Hang) {
            return std::future::pending().await;
        }
        if deed == Some(Deed::CutAfter(read)) {
            return;
        }
        let mut length = String::new();
        loop {
            match io.read_u8().await {
                Ok(b' ') => break,
                Ok(digit) => length.push(char::from(digit)),
                // The end: everything was read, and this side closes too.
                Err(_) => return drop(io.shutdown().await),
            }
        }
        let mut message = vec![0; length.parse().expect("a length")];
        if io.read_exact(&mut message).await.is_err() {
            return;
        }
        let text = String::from_utf8(message).unwrap();
        assert!(
            text.starts_with("<86>1 1970-01-01T00:00:01.000Z - fleetgate - login [meta "),
            "{text}"
        );
        let (_, rest) = text.split_once("sequenceId=\"").unwrap();
        let (id, rest) = rest.split_once("\"] ").unwrap();
        let line: Value = serde_json::from_str(rest).unwrap();
        assert_eq!(
            (line["n"].to_string(), line["user"].as_str()),
            (id.to_owned(), Some("ädä"))
        );
        got.lock().unwrap().push(id.parse().unwrap());
        read += 1;
    }
}

/// HTTP/1.1, as OTLP and webhooks use it.
pub(super) async fn http(address: &str, deeds: &[Deed]) -> Receiver {
    begin(address, deeds, |stream, deeds, got, seen| async move {
        let _ = requests(stream, deeds, &got, &seen).await;
    })
    .await
}

async fn requests(
    mut io: TcpStream,
    deeds: Deeds,
    got: &Mutex<Vec<i64>>,
    seen: &Mutex<(String, Vec<u8>)>,
) -> std::io::Result<()> {
    loop {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(io.read_u8().await?);
        }
        let head = String::from_utf8(head).unwrap();
        let length = head
            .lines()
            .find_map(|line| line.strip_prefix("content-length: "));
        let mut body = vec![0; length.expect("a length").parse().unwrap()];
        io.read_exact(&mut body).await?;
        let ids = numbers(&body);
        let deed = {
            let mut deeds = deeds.lock().unwrap();
            match deeds.front() {
                Some(Deed::AtMost(most)) if ids.len() <= *most => None,
                Some(deed @ Deed::AtMost(_)) => Some(*deed),
                _ => deeds.pop_front(),
            }
        };
        *seen.lock().unwrap() = (head, body);
        let (status, text) = match deed {
            Some(Deed::Close) => return Ok(()),
            Some(Deed::Hang | Deed::CutAfter(_)) => return std::future::pending().await,
            Some(Deed::Status(status)) => (status, "no"),
            Some(Deed::AtMost(_)) => (413, ""),
            Some(Deed::Body(text)) => (200, text),
            Some(Deed::NoAnswer) => {
                got.lock().unwrap().extend(ids);
                return Ok(());
            }
            None => (200, "{}"),
        };
        if status == 200 {
            got.lock().unwrap().extend(ids);
        }
        let answer = format!(
            "HTTP/1.1 {status} X\r\nContent-Length: {}\r\n\r\n{text}",
            text.len()
        );
        io.write_all(answer.as_bytes()).await?;
    }
}

/// The numbers of the events in a request of either kind.
fn numbers(body: &[u8]) -> Vec<i64> {
    let text = std::str::from_utf8(body).unwrap();
    if !text.starts_with("{\"resourceLogs\"") {
        let line = |line: &str| serde_json::from_str::<Value>(line).unwrap();
        return text.lines().map(|l| line(l)["id"].as_i64().unwrap()).collect();
    }
    let request: Value = serde_json::from_str(text).unwrap();
    let records = &request["resourceLogs"][0]["scopeLogs"][0]["logRecords"];
    let id = |record: &Value| {
        record["attributes"][0]["value"]["intValue"]
            .as_str()?
            .parse()
            .ok()
    };
    records
        .as_array()
        .unwrap()
        .iter()
        .map(|r| id(r).unwrap())
        .collect()
}

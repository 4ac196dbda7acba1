//! Events on their way out: how far each sink is survives a restart, what is cut off too early is counted, and the page says
//! how it is.

use super::place::{Place, run};
use crate::audit::{Batch, Line, Log, Settings};
use crate::clock::SetClock;
use crate::{Config, audit};
use fleetgate_export::{Form, Sink};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Only a failing test waits so long.
const PATIENCE: Duration = Duration::from_secs(60);

fn open(path: &Path) -> Log {
    let settings = Settings {
        size: 1 << 20,
        clock: Arc::new(SetClock::at(1_000)),
    };
    Log::open(path, settings).expect("a log")
}

/// So many events more than there were `before`.
fn batch(before: u32, count: u32) -> Batch {
    let line = |number: u32| Line {
        end: 0,
        origin: Some(number.to_string()),
        time: 1,
        event: "filler".into(),
        of: None,
        user: None,
        node: None,
        text: format!("{{\"event\":\"filler\",\"text\":\"{}\"}}", "x".repeat(300)),
    };
    Batch {
        source: "auth".into(),
        log: String::new(),
        offset: 0,
        lines: (before..before + count).map(line).collect(),
    }
}

fn directory(label: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("fleetgate-auth-{label}-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&path);
    std::fs::create_dir_all(&path).expect("made");
    path
}

#[test]
fn a_sink_goes_on_where_it_was_and_what_is_cut_off_before_it_has_it_is_counted() {
    run(async {
        let directory = directory("exports");
        let path = directory.join("audit.db");
        let log = open(&path);
        log.set_sinks(vec!["a".into(), "b".into()]).await.unwrap();
        log.write(batch(0, 5)).await.unwrap();
        let ids = |events: Vec<audit::Exported>| events.iter().map(|event| event.id).collect::<Vec<_>>();
        assert_eq!(ids(log.behind(0, 3, usize::MAX).await.unwrap()), [1, 2, 3]);
        assert_eq!(ids(log.behind(3, 3, usize::MAX).await.unwrap()), [4, 5]);
        assert_eq!(ids(log.behind(0, 3, 1).await.unwrap()), [1], "one at least");
        assert!(log.behind(5, 3, usize::MAX).await.unwrap().is_empty());
        log.acknowledged("a", 4).await.unwrap();
        log.acknowledged("b", 2).await.unwrap();
        drop(log);
        let log = open(&path);
        log.set_sinks(vec!["a".into(), "c".into()]).await.unwrap();
        for (sink, id) in [("a", 4), ("b", 0), ("c", 0)] {
            assert_eq!(log.exported(sink).await, Ok(id), "{sink}");
        }
        let mut written = 5;
        while log.export_lost().borrow()["a"] == 0 {
            log.write(batch(written, 100)).await.unwrap();
            written += 100;
            assert!(written < 100_000, "it is cut some time");
        }
        let first = ids(log.behind(0, 1, usize::MAX).await.unwrap())[0];
        let lost = log.export_lost().borrow().clone();
        assert_eq!(
            lost["a"],
            first.unsigned_abs() - 5,
            "all but the four that it had"
        );
        assert_eq!(lost["c"], first.unsigned_abs() - 1);
        assert!(!lost.contains_key("b"), "it is forgotten");
        drop(log);
        assert_eq!(
            *open(&path).export_lost().borrow(),
            lost,
            "it is not forgotten at a restart"
        );
        std::fs::remove_dir_all(&directory).unwrap();
    });
}

/// A receiver of webhooks that takes everything: the numbers of the events, in their order.
fn receiver() -> (SocketAddr, Arc<Mutex<Vec<i64>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
    let address = listener.local_addr().expect("bound");
    let got = Arc::<Mutex<Vec<i64>>>::default();
    let to = got.clone();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = BufReader::new(stream.expect("accepted"));
            loop {
                let (mut line, mut length) = (String::new(), 0);
                while stream.read_line(&mut line).unwrap_or(0) > 0 && line != "\r\n" {
                    if let Some(text) = line.strip_prefix("content-length: ") {
                        length = text.trim().parse().expect("a number");
                    }
                    line.clear();
                }
                if line.is_empty() {
                    break;
                }
                let mut body = vec![0; length];
                stream.read_exact(&mut body).expect("a body");
                for line in body.split(|b| *b == b'\n').filter(|line| !line.is_empty()) {
                    let event: serde_json::Value = serde_json::from_slice(line).expect("JSON");
                    to.lock().unwrap().push(event["id"].as_i64().expect("a number"));
                }
                let _ = stream.get_mut().write_all(b"HTTP/1.1 204 X\r\n\r\n");
            }
        }
    });
    (address, got)
}

fn sinks(sections: &str) -> Vec<Sink> {
    #[derive(serde::Deserialize)]
    struct Sections {
        export: Vec<Form>,
    }
    let forms: Sections = toml::from_str(sections).expect("sections");
    fleetgate_export::read(sections, &forms.export).expect("sinks")
}

/// The status and the body at a path of the page, once it is served.
async fn page(address: SocketAddr, path: &'static str) -> (u16, String) {
    let asking = tokio::task::spawn_blocking(move || {
        loop {
            let Ok(mut stream) = TcpStream::connect(address) else {
                std::thread::yield_now();
                continue;
            };
            write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\n\r\n").expect("written");
            let mut answer = String::new();
            stream.read_to_string(&mut answer).expect("readable");
            let (head, body) = answer.split_once("\r\n\r\n").expect("an answer");
            return (head[9..12].parse().expect("a status"), body.to_owned());
        }
    });
    asking.await.expect("it ends")
}

#[test]
fn what_auth_does_goes_out_and_its_page_says_how_far_it_is() {
    run(async {
        let (works, got) = receiver();
        // A port on which nobody listens.
        let gone = TcpListener::bind("127.0.0.1:0")
            .and_then(|l| l.local_addr())
            .unwrap();
        let metrics = TcpListener::bind("127.0.0.1:0")
            .and_then(|l| l.local_addr())
            .unwrap();
        let (directory, clock) = Place::new().await.stop().await;
        let config = Config {
            exports: sinks(&format!(
                "[[export]]\nname = \"works\"\ntype = \"webhook\"\nurl = \"http://{works}/\"\n\
                 [[export]]\nname = \"gone\"\ntype = \"syslog\"\naddress = \"{gone}\"\ntls = false\n"
            )),
            metrics: Some(metrics),
            ..Config::new(&directory)
        };
        let place = Place::by(config, clock).await;
        let log = place.service().ledger.audit().clone();
        let has_all = async {
            loop {
                let last = *log.last().borrow();
                if got.lock().unwrap().last() == Some(&last) {
                    return last;
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        let last = tokio::time::timeout(PATIENCE, has_all).await.expect("all events");
        assert_eq!(*got.lock().unwrap(), (1..=last).collect::<Vec<_>>());
        let (status, text) = page(metrics, "/metrics").await;
        assert_eq!(status, 200);
        for line in [
            format!("fleetgate_auth_audit_events_total {last}\n"),
            format!("fleetgate_auth_export_lag_events{{sink=\"gone\",type=\"syslog\"}} {last}\n"),
            "fleetgate_auth_export_lag_events{sink=\"works\",type=\"webhook\"} 0\n".to_owned(),
            "fleetgate_auth_export_lost_total{sink=\"gone\",type=\"syslog\"} 0\n".to_owned(),
            "fleetgate_auth_logins_total{result=\"accepted\"} 0\n".to_owned(),
            "fleetgate_auth_certificates_total{for=\"user\"} 0\n".to_owned(),
        ] {
            assert!(text.contains(&line), "{line}{text}");
        }
        assert_eq!(page(metrics, "/healthz").await, (200, "ok\n".to_owned()));
        assert_eq!(page(metrics, "/readyz").await, (200, "ready\n".to_owned()));
        assert_eq!(page(metrics, "/").await.0, 404);
        place.stop().await;
    });
}

//! A sink's life: read the next events behind the last that was sent, send them, note down what the receiver has. After a
//! failure it waits, and goes on behind the last event that was acknowledged, so some may come twice and none is left out. It
//! holds one batch in memory, and touches nothing that another sink or the audit log's writer waits for.

use crate::event::Event;
use crate::otlp;
use crate::progress::Progress;
use crate::settings::{Http, Sink, Way};
use crate::syslog::{self, Syslog};
use crate::webhook;
use bytes::Bytes;
use fleetgate_net::backoff::{Backoff, random};
use fleetgate_net::post::Poster;
use http::HeaderMap;
use http::header::{CONTENT_TYPE, HeaderValue, USER_AGENT};
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until, timeout};

/// The most events at once.
pub const BATCH: usize = 500;
/// The most bytes of their lines; one event is always sent.
pub const BATCH_BYTES: usize = 1 << 20;
/// The most events on one syslog connection, which are acknowledged together.
pub const WINDOW: u64 = 5_000;
/// How long the first of them waits for that.
pub const UNACKNOWLEDGED: Duration = Duration::from_secs(5);
/// How long a receiver may take for a batch, a new connection included.
pub const ANSWER: Duration = Duration::from_secs(30);
/// How often it is noted down where a busy sink is.
const NOTED: Duration = Duration::from_secs(1);
/// How often the log says again that a sink fails.
const SAID_AGAIN: Duration = Duration::from_secs(600);

/// Where events are, and where it is noted down how far a sink is.
pub trait Spool: Send + Sync + 'static {
    /// The last event that this sink's receiver has; 0: none yet.
    fn begin(&self, sink: &str) -> impl Future<Output = Result<i64, String>> + Send;

    /// The next events behind `id`, in order: at most so many, and of [`BATCH_BYTES`]. None: there are no more now.
    fn after(&self, id: i64, most: usize) -> impl Future<Output = Result<Vec<Event>, String>> + Send;

    /// Notes down that the receiver has all events up to `id`; done when that is on the disk.
    fn acknowledged(&self, sink: &str, id: i64) -> impl Future<Output = Result<(), String>> + Send;

    /// The number of the last event, as it grows.
    fn last(&self) -> watch::Receiver<i64>;
}

/// Why a batch did not get there.
struct Failure {
    why: String,
    /// A smaller one may.
    is_too_much: bool,
}

impl From<String> for Failure {
    fn from(why: String) -> Failure {
        Failure {
            why,
            is_too_much: false,
        }
    }
}

enum Out {
    Syslog(Syslog),
    Otlp(Poster, HeaderMap),
    Webhook(Poster, HeaderMap, Option<ring::hmac::Key>),
}

/// How long a sink waits.
#[derive(Clone)]
pub(crate) struct Times {
    pub(crate) answer: Duration,
    pub(crate) unacknowledged: Duration,
    pub(crate) backoff: Backoff,
}

const TIMES: Times = Times {
    answer: ANSWER,
    unacknowledged: UNACKNOWLEDGED,
    backoff: Backoff::RECONNECT,
};

struct Runner<S> {
    name: String,
    times: Times,
    out: Out,
    spool: Arc<S>,
    last: watch::Receiver<i64>,
    progress: Arc<Progress>,
    /// The receiver has all up to here.
    acknowledged: i64,
    /// All up to here was written to it.
    sent: i64,
    /// So many of those it may not have.
    unacknowledged: u64,
    /// When they are to be acknowledged.
    due: Instant,
    /// What was noted down, and when.
    noted: i64,
    noted_at: Instant,
    /// The most events of the next batch.
    most: usize,
    backoff: Backoff,
    complaint: Option<(String, Instant)>,
}

/// Sends a sink its events, for ever.
pub async fn run<S: Spool>(sink: Sink, spool: Arc<S>) {
    run_by(sink, spool, TIMES).await;
}

pub(crate) async fn run_by<S: Spool>(sink: Sink, spool: Arc<S>, times: Times) {
    let mut backoff = times.backoff.clone();
    let begin = loop {
        match spool.begin(sink.name()).await {
            Ok(begin) => break begin,
            Err(why) => {
                tracing::error!(sink = sink.name(), "it is not known how far the export is: {why}");
                sleep(backoff.failed(random())).await;
            }
        }
    };
    backoff.worked();
    let progress = sink.progress();
    progress.begin(begin);
    let mut runner = Runner {
        out: Out::of(&sink),
        last: spool.last(),
        name: sink.name,
        times,
        spool,
        progress,
        acknowledged: begin,
        sent: begin,
        unacknowledged: 0,
        due: Instant::now(),
        noted: begin,
        noted_at: Instant::now(),
        most: BATCH,
        backoff,
        complaint: None,
    };
    loop {
        if let Err(failure) = runner.turn().await {
            runner.fail(failure).await;
        }
    }
}

impl<S: Spool> Runner<S> {
    /// One batch, or a wait for the next event.
    async fn turn(&mut self) -> Result<(), Failure> {
        self.last.borrow_and_update();
        let batch = self.spool.after(self.sent, self.most).await?;
        let (Some(first), Some(last)) = (batch.first(), batch.last()) else {
            return self.idle().await;
        };
        if self.unacknowledged == 0 {
            self.progress.waiting_since(Some(first.time));
            self.due = Instant::now() + self.times.unacknowledged;
        }
        let (until, count) = (last.id, batch.len() as u64);
        let sending = self.out.send(batch, &self.progress);
        let is_acknowledged = timeout(self.times.answer, sending).await;
        let is_acknowledged = is_acknowledged.unwrap_or_else(|_| Err(late()))?;
        self.sent = until;
        self.unacknowledged += count;
        match is_acknowledged {
            true => self.acknowledge().await,
            false if self.unacknowledged >= WINDOW || Instant::now() >= self.due => self.close().await?,
            false => {}
        }
        Ok(())
    }

    /// There are no more events now.
    async fn idle(&mut self) -> Result<(), Failure> {
        if self.unacknowledged > 0 {
            let is_due = tokio::select! {
                changed = self.last.changed() => changed.is_err(),
                () = sleep_until(self.due) => true,
            };
            return match is_due {
                true => self.close().await,
                false => Ok(()),
            };
        }
        self.progress.waiting_since(None);
        self.note().await;
        // Where it could not be noted down, it is tried again.
        let again = async {
            match self.noted < self.acknowledged {
                true => sleep(ANSWER).await,
                false => std::future::pending().await,
            }
        };
        tokio::select! {
            changed = self.last.changed() => if changed.is_err() {
                // The log is closed; whoever closed it ends this task too.
                std::future::pending::<()>().await;
            },
            () = again => {}
        }
        Ok(())
    }

    /// Has a syslog receiver acknowledge what it has.
    async fn close(&mut self) -> Result<(), Failure> {
        let Out::Syslog(syslog) = &mut self.out else {
            return Ok(());
        };
        match timeout(self.times.answer, syslog.close()).await {
            Ok(closed) => closed?,
            Err(_) => return Err(late()),
        }
        self.acknowledge().await;
        Ok(())
    }

    /// The receiver has all that was sent.
    async fn acknowledge(&mut self) {
        self.acknowledged = self.sent;
        self.progress.taken(self.acknowledged, self.unacknowledged);
        self.unacknowledged = 0;
        self.backoff.worked();
        self.most = (self.most * 2).min(BATCH);
        if self.complaint.take().is_some() {
            tracing::info!(sink = self.name, "the export goes on");
        }
        if self.noted_at.elapsed() >= NOTED {
            self.note().await;
        }
    }

    async fn note(&mut self) {
        if self.noted == self.acknowledged {
            return;
        }
        self.noted_at = Instant::now();
        match self.spool.acknowledged(&self.name, self.acknowledged).await {
            Ok(()) => self.noted = self.acknowledged,
            Err(why) => tracing::error!(
                sink = self.name,
                "how far the export is was not written down, so after a restart some events go out again: {why}"
            ),
        }
    }

    /// Says what it was, waits, and goes back to what the receiver has.
    async fn fail(&mut self, failure: Failure) {
        self.progress.failed();
        self.out.reset();
        self.sent = self.acknowledged;
        self.unacknowledged = 0;
        if failure.is_too_much {
            self.most = (self.most / 2).max(1);
        }
        let is_said = self
            .complaint
            .as_ref()
            .is_some_and(|(why, at)| *why == failure.why && at.elapsed() < SAID_AGAIN);
        if !is_said {
            let alone = match failure.is_too_much && self.most == 1 {
                true => format!(" (the event with the number behind {})", self.acknowledged),
                false => String::new(),
            };
            tracing::warn!(
                sink = self.name,
                "audit events are not exported, and wait in the audit log: {}{alone}",
                failure.why
            );
            self.complaint = Some((failure.why, Instant::now()));
        }
        sleep(self.backoff.failed(random())).await;
    }
}

impl Out {
    fn of(sink: &Sink) -> Out {
        match &sink.way {
            Way::Syslog(receiver) => Out::Syslog(Syslog::new(receiver.clone())),
            Way::Otlp(http) => Out::Otlp(http.poster(), headers(http, otlp::CONTENT_TYPE)),
            Way::Webhook(http, key) => {
                Out::Webhook(http.poster(), headers(http, webhook::CONTENT_TYPE), key.clone())
            }
        }
    }

    /// Sends these; whether the receiver has acknowledged them by that.
    async fn send(&mut self, batch: Vec<Event>, progress: &Progress) -> Result<bool, Failure> {
        match self {
            Out::Syslog(syslog) => {
                syslog.send(&apart(move || syslog::frames(&batch)).await?).await?;
                Ok(false)
            }
            Out::Otlp(poster, headers) => {
                let (first, count) = (batch.first().map_or(0, |event| event.id), batch.len() as u64);
                let body = apart(move || otlp::body(&batch)).await?;
                let answer = post(poster, headers, body).await?;
                let rejected = otlp::rejected(&answer).min(count);
                if rejected > 0 {
                    progress.threw_away(rejected);
                    tracing::error!(
                        sink = progress.name(),
                        "the receiver threw {rejected} of the {count} events from number {first} on away"
                    );
                }
                Ok(true)
            }
            Out::Webhook(poster, headers, key) => {
                let mut headers = headers.clone();
                let key = key.clone();
                let (body, signature) = apart(move || {
                    let body = webhook::body(&batch);
                    let signature = key.and_then(|key| webhook::signature(&key, &body));
                    (body, signature)
                })
                .await?;
                if let Some(signature) = signature {
                    headers.insert(webhook::SIGNATURE, signature);
                }
                post(poster, &headers, body).await?;
                Ok(true)
            }
        }
    }

    /// Forgets a connection on which something may be under way.
    fn reset(&mut self) {
        if let Out::Syslog(syslog) = self {
            syslog.reset();
        }
    }
}

/// Makes a batch's text beside the service's own thread, which others wait for.
async fn apart<T: Send + 'static>(make: impl FnOnce() -> T + Send + 'static) -> Result<T, Failure> {
    let made = tokio::task::spawn_blocking(make).await;
    made.map_err(|_| "the service is stopping".to_owned().into())
}

fn late() -> Failure {
    format!("the receiver took longer than {} s", ANSWER.as_secs()).into()
}

fn headers(http: &Http, content_type: &'static str) -> HeaderMap {
    let mut headers = http.headers.clone();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    let agent = HeaderValue::from_static(concat!("fleetgate/", env!("CARGO_PKG_VERSION")));
    headers.entry(USER_AGENT).or_insert(agent);
    headers
}

/// Posts it: the answer's body, where the receiver took it.
async fn post(poster: &mut Poster, headers: &HeaderMap, body: Bytes) -> Result<Bytes, Failure> {
    let answer = poster.post(headers, body).await.map_err(|e| e.to_string())?;
    let words = match answer.status {
        200..=299 => return Ok(answer.body),
        300..=399 => "it sends elsewhere, and that is not followed: give the address that it names",
        401 | 403 => "is what it wants in `headers_file`, and still good?",
        404 => "is the path right?",
        400 | 413 | 422 => "it does not take what was sent; a smaller request is tried",
        _ => "it is tried again",
    };
    Err(Failure {
        why: format!("the receiver answered with status {}: {words}", answer.status),
        is_too_much: matches!(answer.status, 400 | 413 | 422),
    })
}

//! Time limits on answers of the proxy and of auth: after a second a line says for whom the command waits, after ten it gives
//! up. It never limits a person.

use crate::error::ClientError;
use crate::stderr;
use fleetgate_net::dial;
use fleetgate_net::h2::Channel;
use http::Request;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::Sleep;
use tonic::Status;
use tonic::body::Body;
use tower_service::Service;

/// After how long a line says what is waited for.
pub const NOTICE_AFTER: Duration = Duration::from_secs(1);
/// How long an answer may take.
pub const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// Somebody who is waited for, and what helps where nothing comes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// `the auth service behind the proxy proxy.example:443`.
    pub name: String,
    /// `look whether …`.
    pub remedy: &'static str,
}

impl Peer {
    /// The auth service through a proxy.
    #[must_use]
    pub fn auth_behind(proxy: &str) -> Peer {
        Peer {
            name: format!("the auth service behind the proxy {proxy}"),
            remedy: "look on auth's machine whether it runs (`systemctl status fleetgate`) and what its log says",
        }
    }

    /// The auth service of this machine.
    #[must_use]
    pub fn auth_here(socket: &std::path::Path) -> Peer {
        Peer {
            name: format!("the auth service at {}", socket.display()),
            remedy: "it runs and does not answer: look at its log, and start it again",
        }
    }

    /// A proxy.
    #[must_use]
    pub fn proxy(proxy: &str) -> Peer {
        Peer {
            name: format!("the proxy {proxy}"),
            remedy: "look whether it runs, and whether a firewall lies between",
        }
    }

    /// Why there is no connection to them, with what helps where nobody answers.
    pub(crate) fn unreached(&self, error: &dial::Error) -> ClientError {
        let why = match error {
            dial::Error::Deadline { .. } => format!("{error}; {}", self.remedy),
            _ => error.to_string(),
        };
        ClientError::Unreachable(error.target().to_owned(), why)
    }

    pub(crate) fn late(&self) -> String {
        self.late_after(ANSWER_TIMEOUT)
    }

    pub(crate) fn late_after(&self, time: Duration) -> String {
        format!("no answer within {} s; {}", time.as_secs(), self.remedy)
    }
}

/// What `work` brings. After [`NOTICE_AFTER`] standard error says for whom it waits.
pub async fn with_notice<T>(whom: &str, work: impl Future<Output = T>) -> T {
    with_notice_by(whom, work, &mut |line| stderr::line(line)).await
}

async fn with_notice_by<T>(
    whom: &str,
    work: impl Future<Output = T>,
    say: &mut (dyn FnMut(&str) + Send),
) -> T {
    tokio::pin!(work);
    tokio::select! {
        biased;
        done = &mut work => return done,
        () = tokio::time::sleep(NOTICE_AFTER) => say(&format!("waiting for {whom}")),
    }
    work.await
}

/// The same, and no longer than [`ANSWER_TIMEOUT`].
pub async fn with_timeout<T>(
    peer: &Peer,
    work: impl Future<Output = Result<T, ClientError>>,
) -> Result<T, ClientError> {
    match tokio::time::timeout(ANSWER_TIMEOUT, with_notice(&peer.name, work)).await {
        Ok(done) => done,
        Err(_) => Err(ClientError::Unreachable(peer.name.clone(), peer.late())),
    }
}

/// What says once for whom a stream waits whose first bytes do not come.
pub struct Notice {
    timer: Option<Pin<Box<Sleep>>>,
    is_over: bool,
}

impl Notice {
    /// It counts from when it is asked first.
    #[must_use]
    pub fn new() -> Notice {
        Notice {
            timer: None,
            is_over: false,
        }
    }

    /// One that never says anything.
    #[must_use]
    pub fn none() -> Notice {
        Notice {
            timer: None,
            is_over: true,
        }
    }

    /// Something came.
    pub fn end(&mut self) {
        *self = Notice::none();
    }

    /// Nothing has come yet: whether it is time to say so now.
    pub fn is_due(&mut self, cx: &mut Context<'_>) -> bool {
        if self.is_over {
            return false;
        }
        let timer = self
            .timer
            .get_or_insert_with(|| Box::pin(tokio::time::sleep(NOTICE_AFTER)));
        if timer.as_mut().poll(cx).is_pending() {
            return false;
        }
        self.end();
        true
    }
}

impl Default for Notice {
    fn default() -> Notice {
        Notice::new()
    }
}

/// A connection whose answers begin within [`ANSWER_TIMEOUT`]. How long an answer goes on is its own business.
#[derive(Clone)]
pub struct BoundedChannel {
    channel: Channel,
    peer: Peer,
}

impl BoundedChannel {
    /// The connection leads to them.
    #[must_use]
    pub fn new(channel: Channel, peer: Peer) -> BoundedChannel {
        BoundedChannel { channel, peer }
    }
}

impl Service<Request<Body>> for BoundedChannel {
    type Response = <Channel as Service<Request<Body>>>::Response;
    type Error = Status;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Status>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Status>> {
        self.channel
            .poll_ready(cx)
            .map_err(|e| Status::from_error(Box::new(e)))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let call = self.channel.call(request);
        let peer = self.peer.clone();
        Box::pin(async move {
            let call = with_notice(&peer.name, call);
            match tokio::time::timeout(ANSWER_TIMEOUT, call).await {
                Ok(answer) => answer.map_err(|e| Status::from_error(Box::new(e))),
                Err(_) => Err(Status::deadline_exceeded(format!(
                    "{}: {}",
                    peer.name,
                    peer.late()
                ))),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::pending;

    fn run(test: impl Future<Output = ()>) {
        // The clock is the test's: nothing waits in earnest.
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .start_paused(true)
            .build()
            .expect("a runtime");
        runtime.block_on(test);
    }

    #[test]
    fn who_does_not_answer_is_named_and_waited_for_no_longer_than_the_bound() {
        run(async {
            let auth = Peer::auth_behind("proxy.example:443");
            let late = with_timeout(&auth, pending::<Result<(), ClientError>>())
                .await
                .unwrap_err();
            let words = late.to_string();
            assert!(
                words.starts_with(
                    "the auth service behind the proxy proxy.example:443: no answer within 10 s; look on "
                ),
                "{words}"
            );
            assert_eq!(with_timeout(&auth, async { Ok(7) }).await.ok(), Some(7));
        });
    }

    #[test]
    fn a_stream_that_says_nothing_is_told_of_once() {
        run(async {
            let is_due =
                async |notice: &mut Notice| std::future::poll_fn(|cx| Poll::Ready(notice.is_due(cx))).await;
            let (mut silent, mut heard) = (Notice::new(), Notice::new());
            for (millis, wanted) in [(0, false), (999, false), (2, true), (60_000, false)] {
                tokio::time::sleep(Duration::from_millis(millis)).await;
                assert_eq!(is_due(&mut silent).await, wanted, "{millis}");
                assert!(!is_due(&mut heard).await);
                heard.end();
            }
        });
    }

    #[test]
    fn a_line_says_for_whom_after_a_second_and_not_before() {
        run(async {
            for (millis, lines) in [(0, 0), (999, 0), (1001, 1), (60_000, 1)] {
                let mut said = Vec::new();
                let work = tokio::time::sleep(Duration::from_millis(millis));
                with_notice_by("the proxy p:1", work, &mut |line| said.push(line.to_owned())).await;
                assert_eq!(said, vec!["waiting for the proxy p:1"; lines], "{millis}");
            }
        });
    }
}

//! A node's recordings on their way to auth: parts one way, how much is kept the other way. The proxy keeps one part of each
//! tunnel at most, because a stream is read only when the other one takes more. It looks at no part, and says whose they are:
//! the node's name is that of its certificate.

use crate::auth;
use crate::shared::Shared;
use fleetgate_net::backoff::{Backoff, random};
use fleetgate_net::h2::{self, Channel, Tuning};
use fleetgate_policy::cluster::Name;
use fleetgate_proto::v1::cluster_client::ClusterClient;
use fleetgate_proto::v1::tunnel_client::TunnelClient;
use fleetgate_proto::v1::{RecordingFrom, RecordingPart};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::sleep;
use tonic::codegen::tokio_stream::Stream;
use tonic::{Code, Status, Streaming};

/// The longest message: a part of 256 KB, and what is around it.
pub const RECORDING_MESSAGE: usize = (256 << 10) + 4096;
/// Both streams end when nothing came by either for so long. So auth has a stream for each node that has something to give,
/// and none for all others.
pub const IDLE: Duration = Duration::from_secs(120);

/// Carries a node's recordings; it ends with this.
pub(crate) struct Relay(JoinHandle<()>);

impl Drop for Relay {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Relay {
    /// Begins for the tunnel of `node`.
    pub(crate) fn start(shared: &Arc<Shared>, channel: Channel, node: &Name) -> Relay {
        let (shared, node) = (shared.clone(), node.clone());
        Relay(tokio::spawn(async move {
            // The process that takes this one's place carries from then on.
            tokio::select! {
                () = shared.left() => {}
                () = run(&shared, &channel, &node) => {}
            }
        }))
    }
}

/// Why both streams ended.
enum End {
    /// Nothing came for a while, or a side ended its stream.
    Over,
    /// The node is older than recordings that are sent.
    OldNode,
    /// Auth is.
    OldAuth,
    /// Something failed.
    Failed(String),
}

async fn run(shared: &Shared, channel: &Channel, node: &Name) {
    let mut backoff = Backoff::RECONNECT;
    let mut auth = shared.auth.subscribe();
    loop {
        // A node is asked for nothing while auth is away.
        if auth.wait_for(Option::is_some).await.is_err() {
            return;
        }
        let mut answers = 0;
        let end = tokio::select! {
            end = carry(shared, channel.clone(), node, &mut answers) => end,
            () = is_away(auth.clone()) => End::Over,
        };
        if answers > 0 {
            backoff.worked();
        }
        match end {
            End::OldNode => return,
            End::OldAuth => {
                auth.borrow_and_update();
                if auth.changed().await.is_err() {
                    return;
                }
            }
            End::Over => {}
            End::Failed(why) => tracing::debug!(%node, "recordings wait: {why}"),
        }
        sleep(backoff.failed(random())).await;
    }
}

async fn is_away(mut auth: watch::Receiver<Option<Channel>>) {
    let _ = auth.wait_for(Option::is_none).await;
}

/// Opens both streams, and carries until one of them ends. `count` is of what auth answered.
async fn carry(shared: &Shared, channel: Channel, node: &Name, count: &mut u64) -> End {
    let (to_node, kept) = mpsc::channel(1);
    let mut client = TunnelClient::new(channel).max_decoding_message_size(RECORDING_MESSAGE);
    let mut parts = match client.recordings(Messages(kept)).await {
        Ok(answer) => answer.into_inner(),
        Err(status) if status.code() == Code::Unimplemented => return End::OldNode,
        Err(status) => return End::Failed(h2::words(&status)),
    };
    // Most nodes have nothing to give, most of the time.
    let part = match parts.message().await {
        Ok(Some(part)) => part,
        Ok(None) => return End::Over,
        Err(status) => return End::Failed(h2::words(&status)),
    };
    let (to_auth, from) = mpsc::channel(1);
    let source = node.to_string();
    let _ = to_auth.try_send(RecordingFrom {
        source,
        part: Some(part),
    });
    let mut service = match service(shared).await {
        Ok(service) => service,
        Err(why) => return End::Failed(why),
    };
    let mut answers = match service.recordings(Messages(from)).await {
        Ok(answer) => answer.into_inner(),
        Err(status) if status.code() == Code::Unimplemented => return End::OldAuth,
        Err(status) => return End::Failed(h2::words(&status)),
    };
    let of_node = |part: RecordingPart| RecordingFrom {
        source: String::new(),
        part: Some(part),
    };
    loop {
        let went = tokio::select! {
            went = pass(&mut parts, &to_auth, of_node) => went,
            went = pass(&mut answers, &to_node, |kept| kept) => {
                *count += 1;
                went
            }
            () = sleep(IDLE) => return End::Over,
        };
        match went {
            Ok(true) => {}
            Ok(false) => return End::Over,
            Err(status) => return End::Failed(h2::words(&status)),
        }
    }
}

/// Passes one message on, as soon as the other side takes it. False: there is no more.
async fn pass<T, U>(
    from: &mut Streaming<T>,
    to: &mpsc::Sender<U>,
    made: impl FnOnce(T) -> U,
) -> Result<bool, Status> {
    let Ok(room) = to.reserve().await else {
        return Ok(false);
    };
    let message = from.message().await?;
    Ok(message.map(|message| room.send(made(message))).is_some())
}

/// The service, by a connection of its own, which is made where there is none.
pub(crate) async fn service(shared: &Shared) -> Result<ClusterClient<Channel>, String> {
    let mut known = shared.recordings.lock().await;
    let channel = match known.take().filter(Channel::takes_requests) {
        Some(channel) => channel,
        None => {
            let stream = auth::dial(shared, fleetgate_net::tls::H2).await?;
            h2::connect(stream, Tuning::AUTH_PROXY)
                .await
                .map_err(|e| e.to_string())?
        }
    };
    *known = Some(channel.clone());
    Ok(ClusterClient::new(channel))
}

/// A channel as a stream.
pub(crate) struct Messages<T>(pub(crate) mpsc::Receiver<T>);

impl<T> Stream for Messages<T> {
    type Item = T;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<T>> {
        self.0.poll_recv(cx)
    }
}

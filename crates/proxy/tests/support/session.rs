//! A user's session, by hand.

use super::Fed;
use fleetgate_net::h2::Channel;
use fleetgate_proto::v1::Frame;
use fleetgate_proto::v1::frame::Kind;
use fleetgate_proto::v1::transport_client::TransportClient;
use tokio::sync::mpsc;
use tonic::Streaming;

/// A session of a user's: what he sends, and what he reads.
pub struct Session {
    pub send: Option<mpsc::Sender<Frame>>,
    pub read: Streaming<Frame>,
}

impl Session {
    pub async fn begin(client: &mut TransportClient<Channel>, first: Frame) -> Session {
        let (send, frames) = mpsc::channel(1);
        send.send(first).await.unwrap();
        let read = client.dial(Fed(frames)).await.unwrap().into_inner();
        Session {
            send: Some(send),
            read,
        }
    }

    pub async fn say(&self, frame: Frame) {
        self.send.as_ref().unwrap().send(frame).await.unwrap();
    }

    /// The same, where the proxy may be done with it.
    pub async fn tries_to_say(&self, frame: Frame) {
        let _ = self.send.as_ref().unwrap().send(frame).await;
    }

    pub async fn next(&mut self) -> Option<Kind> {
        self.read
            .message()
            .await
            .unwrap()
            .map(|frame| frame.kind.unwrap())
    }
}

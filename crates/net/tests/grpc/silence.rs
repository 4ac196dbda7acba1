//! Peers that are silent: when a ping asks whether they are there, and what its answer or none means.

use super::served;
use fleetgate_net::h2::{self, Tuning};
use fleetgate_proto::v1::NodesRequest;
use fleetgate_proto::v1::transport_client::TransportClient;
use std::time::Duration;
use tokio::io::duplex;

#[tokio::test(start_paused = true)]
async fn a_peer_that_answers_no_ping_is_gone() {
    let (_silent, here) = duplex(64 * 1024);
    let channel = h2::connect(here, Tuning::TUNNEL).await.unwrap();
    let begun = tokio::time::Instant::now();
    let why = channel.closed().wait().await;
    assert!(why.contains("a ping was not answered"), "{why}");
    assert_eq!(
        begun.elapsed(),
        Tuning::TUNNEL.ping.unwrap() + Tuning::TUNNEL.answer
    );
}

#[tokio::test(start_paused = true)]
async fn a_request_behind_a_silence_asks_whether_the_peer_is_there() {
    let (silence, answer) = Tuning::USER.doubt.unwrap();
    // Asked at once it is given a moment; behind a silence, and a moment before a usual ping, it has to say so at once.
    for (after, until) in [
        (Duration::ZERO, h2::UNANSWERED + answer),
        (silence, silence + answer),
        (
            Tuning::USER.ping.unwrap() + silence,
            Tuning::USER.ping.unwrap() + silence + answer,
        ),
    ] {
        let (_silent, here) = duplex(64 * 1024);
        let channel = h2::connect(here, Tuning::USER).await.unwrap();
        let begun = tokio::time::Instant::now();
        tokio::time::sleep(after).await;
        let mut closed = channel.closed();
        let mut client = TransportClient::new(channel);
        let request = tokio::spawn(async move { client.nodes(NodesRequest::default()).await });
        closed.wait().await;
        assert_eq!(begun.elapsed(), until, "{after:?}");
        assert!(request.await.unwrap().is_err());
    }
    // One that is there is asked, and answers.
    let channel = h2::connect(served().0, Tuning::USER).await.unwrap();
    tokio::time::sleep(silence).await;
    let mut client = TransportClient::new(channel.clone());
    assert!(client.nodes(NodesRequest::default()).await.is_ok());
    tokio::time::sleep(2 * answer).await;
    assert!(!channel.is_closed());
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_answers_pings_may_be_silent_for_ever() {
    let channel = h2::connect(served().0, Tuning::TUNNEL).await.unwrap();
    tokio::time::sleep(100 * Tuning::TUNNEL.ping.unwrap()).await;
    assert!(!channel.is_closed());
    let reply = TransportClient::new(channel).nodes(NodesRequest::default()).await;
    assert_eq!(reply.unwrap().into_inner().nodes.len(), 1);
}

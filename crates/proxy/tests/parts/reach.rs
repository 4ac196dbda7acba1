//! Whether plain sshds are reached, as auth is told it.

use super::support::World;
use fleetgate_proto::v1::{Node, NodeChange, ReachReport};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

#[tokio::test]
async fn auth_is_told_of_registered_sshds_alone_whether_they_are_reached() {
    let world = World::new("reach").await;
    let here = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let gone = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let known = |name: &str, listener: &TcpListener, plain| NodeChange {
        node: Some(Node {
            name: name.to_owned(),
            address: listener.local_addr().unwrap().to_string(),
            plain,
            ..Node::default()
        }),
        ..NodeChange::default()
    };
    let word = |name: &str, reached| ReachReport {
        name: name.to_owned(),
        reached,
    };
    // A node that runs fleetgate is nobody's to look at, even where it has a port.
    world.auth.nodes.send(known("web1", &here, false)).unwrap();
    world.auth.nodes.send(known("db1", &here, true)).unwrap();
    let (mut looking, _) = here.accept().await.unwrap();
    looking.write_all(b"SSH-2.0-test\r\n").await.unwrap();
    let mut heard = String::new();
    looking.read_to_string(&mut heard).await.unwrap();
    assert!(heard.starts_with("SSH-2.0-"), "{heard:?}");
    let mut reached = world.auth.reached.lock().await;
    assert_eq!(reached.recv().await, Some(word("db1", true)));
    let nowhere = known("db2", &gone, true);
    drop(gone);
    world.auth.nodes.send(nowhere).unwrap();
    assert_eq!(reached.recv().await, Some(word("db2", false)));
}

//! What the tunnel gave up, and what it weighs.

use crate::world::{Cluster, Proxy, Tunnel, dial, run};
use fleetgate_proto::v1::frame::Kind;
use fleetgate_sys::process;
use std::time::Duration;

/// Private memory of the idle tunnel, in KB: a third of it are the relocations of a program that is not optimised; the
/// static image has less.
const IDLE_KB: u64 = 1100;
/// What of the program's file is mapped again at once when it rests, in KB: 2 MB and more of one that is not optimised, which
/// has 7 MB while it is busy.
const MAPPED_KB: u64 = 4000;
/// The same for each open session that does nothing.
const SESSION_KB: u64 = 24;

#[test]
fn the_tunnel_is_confined_while_it_serves() {
    run(async {
        let cluster = Cluster::new();
        let proxy = Proxy::new(&cluster).await;
        let mut tunnel = Tunnel::start(&cluster, &[&proxy]);
        let (_joined, ()) = tokio::join!(proxy.joined(), tunnel.connected(&cluster));
        let path = format!("/proc/{}/status", tunnel.child.id());
        let status = std::fs::read_to_string(path).expect("it runs");
        let field = |name: &str| -> Vec<String> {
            let line = status.lines().find_map(|l| l.strip_prefix(name)).expect("there");
            line.split_whitespace().map(str::to_owned).collect()
        };
        assert_eq!(field("NoNewPrivs:"), ["1"]);
        assert_eq!(field("Seccomp:"), ["2"]);
        assert_eq!(field("CapPrm:"), ["0000000000000000"]);
        assert_eq!(field("Threads:"), ["1"]);
        if process::effective_uid() == 0 {
            assert_eq!(field("Uid:"), ["65534"; 4]);
        }
        assert_eq!(tunnel.finish(), Some(0));
    });
}

#[test]
fn an_idle_tunnel_and_its_sessions_are_small() {
    run(async {
        let cluster = Cluster::new();
        let proxy = Proxy::new(&cluster).await;
        let mut tunnel = Tunnel::start(&cluster, &[&proxy]);
        let (joined, ()) = tokio::join!(proxy.joined(), tunnel.connected(&cluster));
        let idle = rested(&tunnel, IDLE_KB).await;
        let mut sessions = Vec::new();
        for _ in 0..50 {
            let (session, (_, _, node)) = tokio::join!(
                joined.session(Kind::Dial(dial(b"SSH-2.0-x\r\n"))),
                tunnel.taken(&cluster)
            );
            sessions.push((session, node));
        }
        for (session, _) in &mut sessions {
            assert!(matches!(session.next().await, Some(Kind::Opened(_))));
        }
        let open = rested(&tunnel, idle + SESSION_KB * sessions.len() as u64).await;
        let each = open.saturating_sub(idle) / sessions.len() as u64;
        println!(
            "idle {idle} KB anonymous, {} KB in all; each session {each} KB",
            tunnel.memory_kb("Pss:")
        );
        assert_eq!(tunnel.finish(), Some(0));
    });
}

/// Its anonymous memory, once it has given back the program's pages and its buffers: not more than `most`.
async fn rested(tunnel: &Tunnel, most: u64) -> u64 {
    crate::world::soon(&format!("its rest at {most} KB"), async {
        loop {
            let (all, own) = (tunnel.memory_kb("Rss:"), tunnel.memory_kb("Anonymous:"));
            if all - own <= MAPPED_KB && own <= most {
                return own;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    })
    .await
}

//! A cluster that goes on from its backup: what auth was told meanwhile is lost with it, and what it shows is true for all
//! that.

use fleetgate_tests::cluster::{Cluster, PROXY, STATE};
use fleetgate_tests::needs_root;
use fleetgate_tests::world::wait_until;

/// `ids FLAGS` prints the ids of the sessions that `fleetgate sessions ls` has.
const TOOLS: &str = include_str!("../../scripts/backups.sh");

#[test]
fn sessions_that_ended_after_the_backup_are_over_after_the_restore() {
    needs_root!("services that give up root");
    let mut cluster = Cluster::with_node();
    let session = r#"exec "$F" ssh --home home ada@gate 'echo in; exec cat'"#;
    let ids = |cluster: &Cluster| cluster.script(&format!("{TOOLS}ids")).trim().to_owned();
    let mut client = cluster.begin(session, "in");
    wait_until("auth knows of it", || ids(&cluster).len() == 32);
    let over = ids(&cluster);
    // What began so short a time before a state is no matter of that state.
    cluster.script(r#"sleep 6; "$F" backup --state cluster /run/test/kept"#);
    client.kill().expect("ours");
    client.wait().expect("ours");
    wait_until("auth knows of its end", || ids(&cluster).is_empty());
    cluster.down(STATE);
    let restore = r#""$F" restore --state cluster /run/test/kept --replace"#;
    wait_until("auth has ended, and its backup is in its place", || {
        cluster.attempt(restore).is_ok()
    });
    cluster.up(STATE, PROXY);
    wait_until("the node has said which sessions it has", || {
        ids(&cluster).is_empty()
    });
    let said = cluster.attempt(&format!(r#""$F" sessions end --state cluster {over}"#));
    let words =
        format!("the node gate does not know the session {over}: it is over, and its end was never told");
    let said = said.expect_err("there is nothing to end");
    assert!(said.contains(&words), "{said}");
    let all = cluster.script(r#""$F" sessions ls --state cluster --all"#);
    let line = all
        .lines()
        .find(|line| line.starts_with(&over[..16]))
        .expect("it was");
    assert!(line.contains(" over "), "{all}");
    // The control: one that runs is ended, and known to be when the command says so.
    let mut client = cluster.begin(session, "in");
    wait_until("auth knows of it", || ids(&cluster).len() == 32);
    let running = ids(&cluster);
    let said = cluster.script(&format!(r#""$F" sessions end --state cluster {running}"#));
    assert_eq!(said, format!("the session {running} is ended\n"));
    assert_eq!(ids(&cluster), "");
    client.wait().expect("ours");
}

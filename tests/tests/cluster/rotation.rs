//! Replacing the authorities in a hurry, as for a key that was stolen: connected machines renew in time, and what the former
//! authorities signed opens nothing.

use fleetgate_sys::{process, signals};
use fleetgate_tests::cluster::{Cluster, OWN_PORT};
use fleetgate_tests::needs_root;
use fleetgate_tests::world::wait_until;
use std::net::TcpStream;

#[test]
fn a_short_grace_period_cuts_no_connected_machine_off() {
    needs_root!("a node");
    let cluster = Cluster::with_node();
    let renewed = |node: &str| {
        let text = format!(r#""$F" audit --state cluster --json --event renewed --node {node} | wc -l"#);
        cluster.script(&text).trim().parse::<u32>().expect("a number")
    };
    let before = [renewed("gate"), renewed("proxy")];
    cluster.script(
        r#"
        # The proxy renewed its certificate just now, at its first start; a pause after that holds nothing up.
        "$F" ca rotate all --state cluster --grace 16s
        one_each() { "$F" ca status --state cluster --json | python3 -c '
import json, sys
kinds = [a["kind"] for a in json.load(sys.stdin)["authorities"]]
sys.exit(sorted(kinds) != sorted(set(kinds)))'; }
        waited=0
        until ! one_each; do sleep 0.2; done
        until one_each; do sleep 1; waited=$((waited + 1)); [ $waited -lt 120 ]; done"#,
    );
    assert!(renewed("gate") > before[0] && renewed("proxy") > before[1]);
    // Whoever logs in now reaches the node, by name and by its own host certificate; the former login opens nothing.
    cluster.script(
        r#"
        again "$F" login --home fresh --user ada --proxy 127.0.0.1:3080 --ca "$("$F" ca status --state cluster |
            grep -o 'sha256:[0-9a-f]*' | head -1)" --password-file password --authenticator totp --no-agent
        is_in() { "$F" ssh --home "$1" -o BatchMode=yes --no-master ada@gate true; }
        is_in fresh
        if is_in home 2> said; then exit 1; fi
        grep -F '`fleetgate login --ca sha256:HASH` learns the new one' said || { cat said; exit 1; }"#,
    );
}

#[test]
fn a_node_with_other_host_keys_has_certificates_for_them_at_once() {
    needs_root!("a node");
    let mut cluster = Cluster::with_node();
    // A client that knows the cluster's authority alone: a key without a certificate is a stranger's to it.
    let known = r#"
        known() { ssh -F home.config -o HostKeyAlias=gate -o UpdateHostKeys=no -p 2222 ada@127.0.0.1 true; }
        again known"#;
    cluster.script(known);
    cluster.down("node");
    wait_until("nobody has its port", || TcpStream::connect(OWN_PORT).is_err());
    cluster.script("sed -i 's/host_ed25519/host_ecdsa256/' node/fleetgate.toml");
    cluster.up("node", OWN_PORT);
    cluster.script(known);
    // The same where the service is told to read its configuration again.
    cluster.script("sed -i 's/host_ecdsa256/host_rsa/' node/fleetgate.toml");
    let up = cluster.running("node").expect("it runs");
    process::signal(&process::pidfd_open(up).expect("it lives"), signals::HUP).expect("signalled");
    wait_until("the node shows the third key", || {
        let shown = cluster.script("ssh-keyscan -t rsa -p 2222 127.0.0.1 2> scanned");
        !shown.trim().is_empty()
    });
    cluster.script(known);
}

//! Recordings on their way from a node to auth: they arrive byte for byte, whatever is restarted or killed meanwhile, and wait
//! on the node while there is nobody to take them.

use fleetgate_tests::cluster::{Cluster, OWN_PORT, PROXY, STATE};
use fleetgate_tests::needs_root;
use fleetgate_tests::peer::DIR;
use fleetgate_tests::world::wait_until;
use std::net::TcpStream;

/// `arrived N`: the node has N recordings, all of them whole, and auth has the same. `held N`: it has none of the last.
const TOOLS: &str = r#"
all_there() {
    [ -z "$(find recordings -name '*.tail')" ] || return 1
    local n=0 file
    for file in $(find recordings -name '*.rec'); do
        cmp -s "$file" "cluster/auth/$file" || return 1
        grep -qx "$(basename "$file" .rec)" "$(dirname "$file")/delivered" || return 1
        n=$((n + 1))
    done
    [ "$n" = "$1" ]
}
arrived() {
    for _ in $(seq 1200); do all_there "$1" && return; sleep 0.05; done
    find recordings cluster/auth/recordings -type f -printf '%p %s\n' >&2; return 1
}
"#;

fn cluster() -> Cluster {
    let mut cluster = Cluster::new();
    cluster.join_node();
    cluster.script(
        r#"printf '[node.recording]\ndirectory = "/run/test/recordings"\n' >> node/fleetgate.toml
        role '"ada"' 'kinds = ["all"]
recording = "output"'"#,
    );
    cluster.up("node", OWN_PORT);
    cluster.script(r#"again "$F" ssh --home home ada@gate true"#);
    cluster
}

#[test]
fn a_recording_arrives_byte_for_byte_and_while_it_runs() {
    needs_root!("a node that serves other accounts");
    let cluster = cluster();
    cluster.script(&format!(
        r#"{TOOLS}
        "$F" ssh --home home -tt ada@gate 'echo shown' > shown
        echo in | "$F" ssh --home home ada@gate 'cat; exit 3' > out || [ $? = 3 ]
        arrived 3
        # A signature a second, where blocks are full.
        mkfifo goes
        "$F" ssh --home home -tt ada@gate 'for n in 1 2 3 4 5 6; do head -c 200000 /dev/urandom | base64; sleep 1.1; done; read word' < goes > shown &
        exec 9> goes
        for _ in $(seq 600); do
            running=$(find recordings -name '*.tail')
            part=cluster/auth/${{running%.tail}}.rec
            [ -n "$running" ] && [ -s "$part" ] && [ "$(stat -c %s "$part")" -gt 300000 ] && break
            sleep 0.05
        done
        [ -e "$running" ]
        cmp -n "$(stat -c %s "$part")" "$part" "${{running%.tail}}.rec"
        echo word >&9
        wait
        arrived 4
        for _ in $(seq 200); do
            "$F" audit --state cluster --json --event recorded > told || true
            [ "$(wc -l < told)" = 4 ] && exit 0
        done
        cat told >&2; exit 1"#
    ));
}

#[test]
fn what_is_killed_in_the_middle_costs_no_byte() {
    needs_root!("a node that serves other accounts");
    let cluster = cluster();
    for (number, (state, begins)) in [
        ("node", "fleetgate-tunnel"),
        (STATE, "fleetgate proxy --config"),
        (STATE, "fleetgate auth --config"),
        ("node", "fleetgate-recorder"),
    ]
    .into_iter()
    .enumerate()
    {
        let name = format!("poured-{number}");
        let mut pours = cluster.begin(
            &format!(
                r#"ssh -F home.config -o HostKeyAlias=gate -p 2222 -tt ada@127.0.0.1 \
                'echo begins; for n in $(seq 40); do head -c 100000 /dev/urandom | base64; sleep 0.05; done' > {name} &
                for _ in $(seq 600); do grep -q begins {name} && break; sleep 0.05; done; echo begins; wait"#
            ),
            "begins",
        );
        wait_until("a part of it has arrived", || {
            let running = cluster.script("find recordings -name '*.tail'");
            let part = running.trim().replace(".tail", ".rec");
            std::fs::metadata(format!("{DIR}/cluster/auth/{part}")).is_ok_and(|part| part.len() > 0)
        });
        cluster.kill(state, begins);
        assert!(pours.wait().expect("ours").success(), "{begins}");
        cluster.script(&format!("{TOOLS} arrived {}", number + 2));
    }
}

#[test]
fn what_nobody_takes_waits_on_the_node_and_arrives_later() {
    needs_root!("a node that serves other accounts");
    let mut cluster = cluster();
    cluster.script(&format!("{TOOLS} arrived 1"));
    cluster.down(STATE);
    cluster.script(&format!(
        r#"{TOOLS}
        for n in 1 2 3; do ssh -F home.config -o HostKeyAlias=gate -p 2222 ada@127.0.0.1 "echo $n"; done
        for _ in $(seq 200); do [ -z "$(find recordings -name '*.tail')" ] && break; sleep 0.05; done
        sed '/^\[node\]/d; s/\[node\.recording\]/[recording]/' node/fleetgate.toml > doctor.toml
        "$F" doctor --config doctor.toml > said || true
        grep -q '3 (.* KB) wait for the cluster' said || {{ cat said >&2; exit 1; }}"#
    ));
    cluster.up(STATE, PROXY);
    cluster.script(&format!("{TOOLS} arrived 4"));
    // The node starts anew, and asks about none of them: it sends what came meanwhile.
    cluster.down("node");
    wait_until("nobody has its port", || TcpStream::connect(OWN_PORT).is_err());
    cluster.up("node", OWN_PORT);
    cluster.script(&format!(
        r#"{TOOLS}
        again "$F" ssh --home home ada@gate true
        arrived 5
        [ "$(cat recordings/*/delivered | sort | uniq -d | wc -l)" = 0 ]"#
    ));
}

#[test]
fn what_a_burst_showed_arrives_though_its_session_goes_on_in_silence() {
    needs_root!("a node that serves other accounts");
    cluster().script(
        r#"
        trap 'kill $(jobs -p) 2> killed || true' EXIT
        "$F" ssh --home home -tt ada@gate 'seq 5000; sleep 600' > shown < /dev/null &
        has_come() {
            for file in cluster/auth/recordings/*/*.rec; do
                "$F" sessions export "$(basename "$file" .rec)" --state cluster --text 2> said | grep -q '^5000' && return
            done
            return 1
        }
        for _ in $(seq 60); do has_come && break; sleep 0.5; done
        has_come"#,
    );
}

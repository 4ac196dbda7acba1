//! Audit events reach the receivers outside, every one and in order, whoever of the two sides was away; and what the pages of
//! metrics have is what the dashboards show.

use fleetgate_tests::cluster::{Cluster, OWN_PORT};
use fleetgate_tests::needs_root;
use fleetgate_tests::peer::{World, peers};
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

const TOOLS: &str = concat!(
    include_str!("../../scripts/services.sh"),
    include_str!("../../scripts/exports.sh")
);

/// The receivers, until they are dropped.
struct Receivers(Child);

impl Receivers {
    fn start() -> Receivers {
        let mut child = Command::new("python3")
            .arg(peers().join("python/receivers.py"))
            .args(["siem.pem", "siem.key", "signing.key"])
            .current_dir(fleetgate_tests::peer::DIR)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("python3");
        let mut line = String::new();
        let mut said = BufReader::new(child.stdout.take().expect("piped"));
        said.read_line(&mut line).expect("readable");
        assert_eq!(line, "listening\n");
        Receivers(child)
    }
}

impl Drop for Receivers {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn every_event_reaches_each_sink_in_order_whoever_was_away() {
    needs_root!("services that give up root");
    let cluster = Cluster::new();
    let script = |text: &str| cluster.script(&format!("{TOOLS}{text}"));
    script("make_receivers; kill_auth");
    let receivers = Receivers::start();
    script("all_got syslog otlp webhook");
    // Auth is killed while events go out.
    script(
        r#"
        for n in 1 2 3; do
            for m in 1 2 3 4 5; do role '"ada"' "lifetime = \"$((n * 5 + m))h\""; done
            kill_auth
        done
        all_got syslog otlp webhook"#,
    );
    // The receivers are away, and auth is killed meanwhile.
    drop(receivers);
    script(
        r#"
        for n in 1 2 3 4 5; do role '"bea"' "lifetime = \"${n}h\""; done
        kill_auth
        for n in 1 2 3 4 5; do role '"ada"' "lifetime = \"${n}h\""; done
        until page http://127.0.0.1:9101/metrics | grep -E '^fleetgate_auth_export_failures_total\{sink="siem".* [1-9]'; do
            sleep 0.1
        done
        page http://127.0.0.1:9101/metrics | grep -E '^fleetgate_auth_export_lag_events\{sink="hook".* [1-9]'
        is "$(page http://127.0.0.1:9101/readyz)" ready"#,
    );
    let _receivers = Receivers::start();
    script(
        r#"
        all_got syslog otlp webhook
        until [ "$(page http://127.0.0.1:9101/metrics | grep -E '^fleetgate_auth_export_lag_events.* 0$' | wc -l)" = 3 ]; do
            sleep 0.1
        done
        if grep -F -e 'let me in' -e 'a signing key' cluster.log; then exit 1; fi"#,
    );
}

#[test]
fn dashboards_show_only_what_is_on_a_page() {
    needs_root!("services that give up root");
    let world = World::new();
    let mut cluster = Cluster::configured(&world, "metrics = \"127.0.0.1:9102\"");
    cluster.script(&format!("{TOOLS}make_receivers; kill_auth"));
    cluster.join_node();
    cluster.script(r#"sed -i 's,^\[node\]$,&\nmetrics = "127.0.0.1:9103",' node/fleetgate.toml"#);
    cluster.up("node", OWN_PORT);
    let pages = cluster.script(&format!(
        r#"{TOOLS}
        "$F" ls --home home > /dev/null
        for port in 9101 9102 9103; do
            until page http://127.0.0.1:$port/readyz > ready 2> /dev/null; do sleep 0.1; done
            is "$(cat ready)" ready
            is "$(page http://127.0.0.1:$port/healthz)" ok
            page http://127.0.0.1:$port/metrics
        done"#
    ));
    // A proxy that drains gives its page to the next one, which has no session yet.
    cluster.script(&format!(
        r#"{TOOLS}
        sessions() {{ page http://127.0.0.1:9102/metrics 2> /dev/null | grep -c "^fleetgate_proxy_sessions_open $1\$"; }}
        "$F" ssh --home home ada@gate sleep 1000 < /dev/null & ssh=$!
        until [ "$(sessions 1)" = 1 ]; do sleep 0.1; done
        before=$(service proxy)
        kill -TERM "${{before#/proc/}}"
        until [ "$(sessions 0)" = 1 ]; do sleep 0.1; done
        [ -d "$before" ]
        until page http://127.0.0.1:9102/readyz; do sleep 0.1; done
        kill "$ssh""#
    ));
    let served: BTreeSet<&str> = pages
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE "))
        .filter_map(|rest| rest.split(' ').next())
        .collect();
    let packaging = Path::new(env!("CARGO_MANIFEST_DIR")).join("../packaging/grafana");
    let mut shown = BTreeSet::new();
    for file in std::fs::read_dir(packaging).expect("the dashboards") {
        let text = std::fs::read_to_string(file.expect("a file").path()).expect("readable");
        let _: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        let is_of_a_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
        shown.extend(
            text.split(|c| !is_of_a_name(c))
                .filter(|word| word.starts_with("fleetgate_"))
                .map(str::to_owned),
        );
    }
    assert!(shown.len() > 20, "{shown:?}");
    for name in &shown {
        assert!(served.contains(name.as_str()), "{name} is on no page: {served:?}");
    }
}

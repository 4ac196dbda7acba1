//! Labels of pods, asked of Debian's containerd by the interface that Kubernetes has for it.

use fleetgate_tests::cluster::Cluster;
use fleetgate_tests::kubernetes::Kubernetes;
use fleetgate_tests::needs_root;

const TOOLS: &str = include_str!("../../scripts/kept_connection.sh");
/// What scripts here begin with besides: `in_it POD` enters the pod's container, `refused POD` must not.
const ENTER: &str = r#"
in_it() { "$F" ssh --home home ada+prod.$1.web@gate readlink /bin/sh; }
refused() { if in_it "$@" 2> said; then exit 1; fi; cat said >&2; }
"#;

#[test]
fn roles_choose_pods_by_their_labels() {
    needs_root!("containers");
    let cluster = Cluster::with_node();
    let mut kubernetes = Kubernetes::beside(cluster.running("node").expect("it runs"));
    // What the kubelet gives a container besides the pod's own.
    let own = [
        ("io.kubernetes.container.name", "web"),
        ("io.kubernetes.pod.namespace", "prod"),
    ];
    kubernetes.run("shop-7d", &[("app", "web"), ("tier", "front")], &own);
    kubernetes.run(
        "db-0",
        &[("app", "db"), ("io.kubernetes.pod.namespace", "dev")],
        &own,
    );
    cluster.script(&format!(
        r#"{TOOLS}{ENTER}
        role '"ada", "ada+*"' 'containers = ["app=web"]'
        again in_it shop-7d
        is "$(in_it shop-7d)" busybox
        refused db-0
        grep -q 'has none of that' said
        if grep -q 'not known' said; then exit 1; fi
        # All labels are known, so what is not there is not there. A pod does not choose its namespace by a label.
        role '"ada", "ada+*"' 'containers = ["app!=db", "tier!=front,io.kubernetes.pod.namespace=dev"]'
        again in_it shop-7d
        refused db-0
        role '"ada", "ada+*"' 'containers = ["io.kubernetes.pod.namespace=prod"]'
        again in_it db-0
        # Without the namespace it could be another's: names of pods may have dots.
        if "$F" ssh --home home ada+db-0.web@gate true 2> said; then exit 1; fi
        cat said >&2; grep -q 'db-0.web' said
        "$F" ls --home home --login ada --containers gate --json > list; cat list >&2
        python3 -c '
import json
all = {{one["name"]: one["labels"] for one in map(json.loads, open("list"))}}
assert set(all) == {{"shop-7d/web", "db-0/web"}}, all
shop, db = all["shop-7d/web"], all["db-0/web"]
assert shop["app"] == "web" and shop["tier"] == "front" and db["app"] == "db", all
assert shop["io.kubernetes.container.name"] == "web", all
assert db["io.kubernetes.pod.namespace"] == "prod", all'"#
    ));

    // While the daemon hangs, what it said is known; what it never said is not waited for.
    cluster.script(&format!("{TOOLS}{ENTER}sleep 3; again in_it shop-7d"));
    kubernetes.run("late-1", &[("app", "web")], &own);
    kubernetes.signal("STOP");
    cluster.script(&format!(
        r#"{TOOLS}{ENTER}
        role '"ada", "ada+*"' 'containers = ["app=web"]'
        again in_it shop-7d
        is "$(in_it shop-7d)" busybox
        refused late-1
        grep -q 'its labels of Kubernetes are not known: the container runtime at /run/containerd/containerd.sock did not answer in time' said
        # A lock has nothing to do with them.
        "$F" lock add --state cluster --login ada --reason gone --json > lock
        locked() {{ ! in_it late-1 2> said && grep -q 'login ada is locked' said; }}
        again locked
        if grep -q 'not known' said; then cat said >&2; exit 1; fi
        "$F" lock rm --state cluster "$(sed -n 's/.*"id": *"\([^"]*\)".*/\1/p' lock)""#
    ));
    assert!(
        cluster.log("node").contains("labels of Kubernetes are not known"),
        "{}",
        cluster.log("node")
    );
    kubernetes.signal("CONT");
    // Nobody asks it again for some seconds.
    cluster.script(&format!(
        "{TOOLS}{ENTER}until in_it late-1 2> said; do sleep 0.2; done"
    ));
}

//! Containers by way of the cluster: roles say who enters which, by `fleetgate ssh`, by its master and by plain ssh, and locks
//! hold there too.

use fleetgate_sys::{process, signals};
use fleetgate_tests::cluster::Cluster;
use fleetgate_tests::containers::Container;
use fleetgate_tests::needs_root;
use fleetgate_tests::service::{command_line, descendants};
use serde_json::json;
use std::process::Stdio;

const TOOLS: &str = include_str!("../../scripts/kept_connection.sh");

#[test]
fn roles_say_who_enters_which_container() {
    needs_root!("containers");
    let cluster = Cluster::with_node();
    let container = Container::beside(cluster.running("node").expect("it runs"));
    cluster.script(&format!(
        r#"{TOOLS}C={name}
        in_it() {{ "$F" ssh --home home "$@" ada+$C@gate 'hostname; id -u'; }}
        refused() {{ if in_it "$@" 2> said; then exit 1; fi; cat said >&2; grep -q "ada+$C" said; }}
        # Nobody, unless a role names it; the account alone does not.
        refused; refused --no-master
        role '"ada", "root", "ada+other-*"'
        refused; refused --no-master
        role '"ada", "root", "ada+fg-*"'
        inside=$(printf 'runc\n0')
        again in_it --no-master
        is "$(in_it --no-master)" "$inside"
        # A pattern is one of names; the beginning of an id is none.
        if "$F" ssh --home home ada+${{C%?}}@gate hostname 2> said; then exit 1; fi
        cat said >&2; grep -q 'you may enter containers by their names' said
        role '"ada", "root", "ada+*"'
        again "$F" ssh --home home ada+${{C%?}}@gate hostname
        role '"ada", "root", "ada+fg-*"'
        # By the master, the second time on the connection of the first; the account's own sessions are elsewhere.
        again in_it; is "$(in_it)" "$inside"; is "$(in_it)" "$inside"
        is "$("$F" ssh --home home ada@gate hostname)" "$(hostname)"
        # By the names that `fleetgate ssh` has for it.
        is "$("$F" ssh --home home ada@gate+$C hostname)" runc
        is "$("$F" ssh --home home --container $C ada@gate.test hostname)" runc
        # Plain ssh, by a certificate and the proxy command.
        is "$(ssh -F home.config -o ProxyCommand="$F proxy-command --home home --login %r %h %p" ada+$C@gate.test hostname)" runc
        # A file, and a check of the node's own commands.
        echo bytes > there
        scp -F home.config -o ProxyCommand="$F proxy-command --home home --login %r %h %p" there ada+$C@gate.test:/tmp/there
        is "$("$F" ssh --home home ada+$C@gate cat /tmp/there)" bytes
        # By its name as a host, for all that is built on ssh; as whom, ssh's configuration finds out.
        "$F" config ssh --home home --host gate > named
        is "$(ssh -F named gate+$C hostname)" runc
        is "$(ssh -F named gate+$C.test hostname)" runc
        is "$(ssh -F named gate.test+$C 'hostname; id -u')" "$inside"
        is "$(ssh -F named ada+$C@gate+$C hostname)" runc
        is "$(ssh -F named gate.test hostname)" "$(hostname)"
        scp -q -F named role.toml gate+$C:/tmp/named
        echo 'get /tmp/named copy' | sftp -q -b - -F named gate+$C.test > /dev/null
        cmp copy role.toml
        # An account alone leads to the node, and is not taken for its container.
        if ssh -F named ada@gate+$C hostname 2> said; then exit 1; fi
        cat said >&2; grep -q "write ada+$C@gate" said
        if ssh -F named ada+other@gate+$C hostname 2> said; then exit 1; fi
        # A lock on the account is one on its containers, and ends what runs there.
        "$F" ssh --home home ada+$C@gate 'echo in; sleep 60' > out 2> said & running=$!
        until [ -s out ]; do sleep 0.05; done
        "$F" lock add --state cluster --login ada --reason 'gone'
        if wait $running; then exit 1; fi
        if in_it 2> said; then exit 1; fi
        grep -q 'login ada is locked' said
        "$F" lock ls --state cluster --json | grep -q '"login'
        # All of it is told with the container's name.
        told() {{ "$F" audit --state cluster --json | grep session_started | grep -q "ada+$C"; }}
        again told"#,
        name = container.name
    ));
}

#[test]
fn roles_choose_containers_by_their_labels() {
    needs_root!("containers");
    let cluster = Cluster::with_node();
    let node = cluster.running("node").expect("it runs");
    let labelled = |app: &str| {
        Container::beside_with(node, |config| {
            config["annotations"] = json!({ "app": app, "tier": "front" })
        })
    };
    let (web, db) = (labelled("web"), labelled("db"));
    cluster.script(&format!(
        r#"{TOOLS}W={web} D={db}
        in_it() {{ C=$1; shift; "$F" ssh --home home "$@" ada+$C@gate hostname; }}
        refused() {{ if in_it "$@" 2> said; then exit 1; fi; cat said >&2; }}
        listed() {{ "$F" ls --home home --login ada --containers gate "$@"; }}
        role '"ada", "ada+fg-*"' 'containers = ["app=web|shop"]'
        again in_it $W
        is "$(in_it $W)" runc
        is "$(in_it $W --no-master)" runc
        refused $D
        grep -q "by role everything, ada enters containers with app=web|shop as ada on gate, and $D has none of that" said
        refused $D --no-master
        scp -q -F home.config -o ProxyCommand="$F proxy-command --home home --login %r %h %p" role.toml ada+$W@gate.test:/tmp/there
        if scp -q -F home.config -o ProxyCommand="$F proxy-command --home home --login %r %h %p" role.toml ada+$D@gate.test:/tmp/there 2> said; then exit 1; fi
        cat said >&2; grep -q 'has none of that' said
        if "$F" ssh --home home -W 127.0.0.1:9 ada+$D@gate 2> said; then exit 1; fi
        cat said >&2; grep -q 'has none of that' said
        # The account's own sessions need no container.
        is "$("$F" ssh --home home ada@gate hostname)" "$(hostname)"
        # The list has what may be entered.
        listed > list; cat list >&2
        grep -q "^$W .* runc .* ada+$W$" list
        if grep -q "$D" list; then exit 1; fi
        listed --json | python3 -c '
import json, sys
[one] = map(json.loads, sys.stdin)
assert one["login"] == "ada+" + one["name"] and one["labels"]["app"] == "web", one'
        "$F" role test --state cluster --login ada+$W ada@gate > said
        grep -q "allows ada+$W on gate, if the container has app=web|shop" said
        # A container that nobody knows is none, whatever its labels would be.
        refused fg-none; grep -q 'no container "fg-none" runs here' said
        # Another condition counts at once, on connections that are open too.
        role '"ada", "ada+fg-*"' 'containers = ["tier=front,app!=web"]'
        again in_it $D
        refused $W; grep -q "app!=web as ada on gate, and $W is not one of those: ask an administrator" said
        # Without one, all that the login's pattern fits.
        role '"ada", "ada+fg-*"'
        again in_it $W
        is "$(in_it $D)" runc
        listed > list; grep -q "$W" list; grep -q "$D" list
        # What would do nothing is refused.
        if role '"ada"' 'containers = ["app=web"]' 2> said; then exit 1; fi
        grep -q 'none of its logins leads into a container' said
        if role '"ada+*"' 'containers = []' 2> said; then exit 1; fi
        grep -q 'names no label' said
        if "$F" lock add --state cluster --login 'ada+*' --reason x 2> said; then exit 1; fi
        grep -q 'is a pattern' said
        if role '"ada+*"' 'containers = ["web*"]' 2> said; then exit 1; fi
        grep -q "a container's name stands in" said"#,
        web = web.name,
        db = db.name
    ));
}

/// Plain ssh with a connection of its own, and what a forwarded socket says.
const KEPT: &str = r#"
to() { h=$1; shift; timeout 60 ssh -F home.config -o ProxyCommand="$F proxy-command --home home --login %r %h %p" "$h@gate.test" "$@"; }
keep() { to "$1" -M -N -f -S "$PWD/$2" "${@:3}" < /dev/null > /dev/null 2>&1; }
heard() { timeout 10 python3 -c 'import socket, sys; s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); print(s.recv(20).decode().strip())' "$1"; }
"#;

/// `fleetgate up` and its services read their configuration again; what is below them has none.
pub fn read_again(node: i32) {
    for pid in descendants(node).into_iter().chain([node]) {
        let line = command_line(pid);
        if line.contains(" up ") || line.contains(" node ") {
            let process = process::pidfd_open(pid).expect("it runs");
            process::signal(&process, signals::HUP).expect("signalled");
        }
    }
}

/// As containerd's part for Kubernetes would write it: in the namespace `prod`, of this image, which it writes too.
fn pod(name: &str, image: &str) -> serde_json::Value {
    json!({ "io.kubernetes.cri.container-type": "container", "io.kubernetes.cri.sandbox-namespace": "prod",
        "io.kubernetes.cri.sandbox-name": name, "io.kubernetes.cri.container-name": "web",
        "io.kubernetes.cri.image-name": image })
}

#[test]
fn a_forward_is_in_the_container_that_has_the_name_now() {
    needs_root!("containers");
    let cluster = Cluster::with_node();
    let node = cluster.running("node").expect("it runs");
    let called =
        |name, image| Container::of_a_pod_beside(node, |config| config["annotations"] = pod(name, image));
    let (first, second) = (called("shop", "web"), called("bank", "db"));
    let mut listener = first
        .command(
            &[],
            &[
                "sh",
                "-c",
                "while true; do echo from the first | nc -l -p 9000; done",
            ],
        )
        .stdin(Stdio::null())
        .spawn()
        .expect("it runs");
    cluster.script(&format!(
        r#"{TOOLS}{KEPT}role '"ada", "ada+prod.shop.web"' 'containers = ["io.kubernetes.cri.image-name=web"]'
        again to ada+prod.shop.web true
        keep ada+prod.shop.web m -L $PWD/l:127.0.0.1:9000
        first() {{ [ "$(heard $PWD/l)" = 'from the first' ]; }}
        again first"#
    ));
    // The name passes to the other, and the role with it.
    first.reconfigure(|config| config["annotations"] = pod("gone", "web"));
    second.reconfigure(|config| config["annotations"] = pod("shop", "db"));
    cluster.script(&format!(
        r#"{TOOLS}{KEPT}role '"ada", "ada+prod.shop.web"' 'containers = ["io.kubernetes.cri.image-name=db"]'
        again to ada+prod.shop.web -S $PWD/m true
        is "$(heard $PWD/l)" ''"#
    ));
    let _ = listener.kill();
    let _ = listener.wait();
}

#[test]
fn a_node_that_lets_nobody_into_containers_lets_nobody_go_on_there() {
    needs_root!("containers");
    let cluster = Cluster::with_node();
    let node = cluster.running("node").expect("it runs");
    let container = Container::of_a_pod_beside(node, |config| config["annotations"] = pod("shop", "web"));
    cluster.script(&format!(
        r#"{TOOLS}{KEPT}role '"ada", "ada+prod.shop.web"'
        again to ada+prod.shop.web true
        keep ada+prod.shop.web m
        is "$(to ada+prod.shop.web -S $PWD/m hostname)" runc
        sed -i 's/^root_login/containers = []\n&/' node/fleetgate.toml"#
    ));
    read_again(node);
    cluster.script(&format!(
        r#"{TOOLS}{KEPT}refused() {{ ! to ada+prod.shop.web -S $PWD/m hostname 2> said && grep -q '`containers` does not let you in' said; }}
        again refused"#
    ));
    assert!(container.runs());
}

#[test]
fn many_at_once_wait_for_their_turn() {
    needs_root!("containers");
    let cluster = Cluster::with_node();
    let node = cluster.running("node").expect("it runs");
    let _container = Container::of_a_pod_beside(node, |config| config["annotations"] = pod("shop", "web"));
    cluster.script(&format!(
        r#"{TOOLS}{KEPT}role '"ada", "ada+prod.shop.web"' 'containers = ["io.kubernetes.cri.image-name=web"]'
        again to ada+prod.shop.web true
        for i in $(seq 24); do keep ada+prod.shop.web m$i; done
        for round in 1 2; do
            running=
            for i in $(seq 24); do to ada+prod.shop.web -S $PWD/m$i true 2> said$i & running="$running $!"; done
            for one in $running; do wait $one || {{ cat said* >&2; exit 1; }}; done
        done"#
    ));
}

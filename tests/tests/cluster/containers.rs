//! Containers by way of the cluster: roles say who enters which, by `fleetgate ssh`, by its master and by plain ssh, and locks
//! hold there too.

use fleetgate_tests::cluster::Cluster;
use fleetgate_tests::containers::Container;
use fleetgate_tests::needs_root;

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

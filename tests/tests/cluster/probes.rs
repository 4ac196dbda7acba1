//! Checks in containers, by each program that runs checks; and probes, whose state changes after several results in a row.

use super::checks;
use fleetgate_tests::cluster::{Cluster, OWN_PORT};
use fleetgate_tests::containers::Container;
use fleetgate_tests::needs_root;

const SERVE: &str = include_str!("../../scripts/serve.sh");

/// A node with two commands, whose ada may run them there and in a container of the node's.
fn world() -> (Cluster, Container) {
    let mut cluster = Cluster::new();
    cluster.join_node();
    cluster.script(
        r#"cat >> node/fleetgate.toml <<'END'
[node.commands.where]
argv = ["/bin/sh", "-c", "echo in $(hostname)"]
[node.commands.probe]
argv = ["/bin/sh", "-c", "code=$(sed -n 1p /tmp/plan); sed -i 1d /tmp/plan; echo state $code; exit $code"]
END
role '"ada", "ada+fg-*"' 'kinds = []
commands = ["where", "probe"]'"#,
    );
    cluster.up("node", OWN_PORT);
    let container = Container::beside(cluster.running("node").expect("it runs"));
    (cluster, container)
}

#[test]
fn a_check_runs_in_the_container_that_is_named() {
    needs_root!("containers");
    let (cluster, container) = world();
    cluster.script(&format!(
        r#"{tools}C={name}
        again check -H gate -c where
        for way in warm cold; do
            one() {{ if [ $way = cold ]; then end_all; fi; told "$@"; }}
            one 0 'in runc' -H gate+$C -c where
            one 0 'in runc' -H gate --container $C -c where
            one 0 'in runc' -H gate.test --container=$C --address {OWN_PORT} -c where
            one 0 "in $(hostname)" -H gate -c where
            # By the master it is the account that is meant anyway, too.
            if [ $way = cold ]; then end_all; fi
            is "$("$CHECK" --home home -H gate+$C -c where)" 'in runc'
            is "$("$F" check run --home home -H gate -l ada+$C -c where)" 'in runc'
            # Which containers there are, and who may enter them, is said as for any session.
            one 3 'UNKNOWN - gate+fg-none where: ' -H gate+fg-none -c where
            one 3 'UNKNOWN - gate+other where: ' -H gate+other -c where
            one 3 "UNKNOWN - --container: \"gate+$C\" names a container already" -H gate+$C --container x$C -c where
        done
        # It is the master that knows the account: nothing else is executed or asked for that.
        told 0 'in runc' -H gate+$C -c where
        is "$(strace -o calls -e trace=execve,socket "$CHECK" --home home -H gate+$C -c where)" 'in runc'
        is "$(grep -c '^execve' calls) $(grep -c '^socket' calls)" '1 1'
        for words in "gate+$C" "gate --container $C" "gate -l ada+$C"; do
            # shellcheck disable=SC2086 # Words.
            is "$("$F" check list --home home $words --json | grep -c '"name":"[a-z]*"')" 2
        done
        code=0; "$F" check list --home home gate+$C --container $C 2> said || code=$?
        is $code 2; grep -q 'names a container already' said
        ! "$F" check list --container $C 2> said; grep -q -- '--container is for a node' said
        told() {{ "$F" audit --state cluster --json | grep session_started | grep -q "ada+$C"; }}
        again told"#,
        tools = checks::TOOLS,
        name = container.name,
    ));
}

#[test]
fn a_probes_state_changes_after_several_results_in_a_row() {
    needs_root!("containers");
    let (cluster, container) = world();
    // One for `--once`, and then: not known, good, a failure that passes, three that count, and a recovery.
    let plan = "2\n2\n0\n2\n2\n0\n2\n1\n2\n2\n0\n".to_owned() + &"0\n".repeat(600);
    std::fs::write(container.path("/tmp/plan"), plan).expect("written");
    cluster.script(&format!(
        r#"{tools}{SERVE}C={name}
        again check -H gate -c where
        cat > checks.toml <<END
interval = "1s"
[service.where]
on = ["gate"]
check = "where"
[service.probe]
on = ["gate"]
check = "probe"
container = "$C"
login = "ada"
timeout = "60s"
failure_threshold = 3
success_threshold = 2
END
        is "$(serve --check | head -n 1)" "probe: [\"probe\"] on gate, in the container $C, every 1 s, 60 s at most, 3 failures in a row to fail, 2 successes in a row to recover"
        sed 's/= 3/= 0/' checks.toml > other.toml
        ! "$F" check serve --file other.toml --check 2> errors
        grep -q 'other.toml: line 11: failure_threshold is a number of results in a row, from 1 to 1000' errors
        # Each result counts where there is one alone.
        code=0; serve --once > said || code=$?
        is $code 1; is "$(sort said)" "$(printf 'gate probe: CRITICAL: state 2\ngate where: OK: in %s' "$(hostname)")"
        mkfifo commands
        exec 8<> commands
        serve_on --nagios commands --json > lines 2> errors & echo $! > serving
        until [ "$(grep -c '"probe"' lines)" -ge 11 ]; do sleep 0.1; done
        python3 - <<'END'
import json, re
wanted = [
    ("PENDING", None, "CRITICAL", 1, 3), ("OK", 0, "OK", 1, 2), ("OK", 0, "CRITICAL", 1, 3), ("OK", 0, "CRITICAL", 2, 3),
    ("OK", 0, "OK", 1, 2), ("OK", 0, "CRITICAL", 1, 3), ("OK", 0, "WARNING", 2, 3), ("CRITICAL", 2, "CRITICAL", 3, 3),
    ("CRITICAL", 2, "CRITICAL", 3, 3), ("CRITICAL", 2, "OK", 1, 2), ("OK", 0, "OK", 2, 2),
]
names = ("state", "code", "raw_state", "attempt", "attempts")
lines = [json.loads(line) for line in open("lines") if line.endswith("\n")]
came = [tuple(line[n] for n in names) for line in lines if line["service"] == "probe"]
assert came[:len(wanted)] == wanted, came
assert all(line["state"] == line["raw_state"] == "OK" for line in lines if line["service"] == "where"), lines
# Nagios hears nothing of what is not known, and why a state stays.
wanted = [
    "0;state 0", "0;CRITICAL 1 of 3, OK until then: state 2", "0;CRITICAL 2 of 3, OK until then: state 2", "0;state 0",
    "0;CRITICAL 1 of 3, OK until then: state 2", "0;WARNING 2 of 3, OK until then: state 1", "2;state 2", "2;state 2",
    "2;OK 1 of 2, CRITICAL until then: state 0", "0;state 0",
]
fifo, came = open("commands", "rb"), []
while len(came) < len(wanted):
    line = fifo.readline().decode().rstrip("\n")
    service, rest = re.fullmatch(r"\[\d+\] PROCESS_SERVICE_CHECK_RESULT;gate;(\w+);(.*)", line).groups()
    if service == "probe": came.append(rest)
assert came == wanted, came
END
        shows 'fleetgate_check_state{{node="gate",service="probe"}} 0'
        shows 'fleetgate_check_raw_state{{node="gate",service="probe"}} 0'
        shows 'fleetgate_check_attempt{{node="gate",service="probe"}} 2'"#,
        tools = checks::TOOLS,
        name = container.name,
    ));
    // A container that is gone is a failure, and UNKNOWN says so; the node goes on.
    drop(container);
    cluster.script(&format!(
        r#"{tools}{SERVE}
        shows 'fleetgate_check_state{{node="gate",service="probe"}} 3'
        shows 'fleetgate_check_attempt{{node="gate",service="probe"}} 3'
        shows 'fleetgate_check_state{{node="gate",service="where"}} 0'
        grep '"probe"' lines | tail -n 1 | grep -q 'UNKNOWN - gate+fg-[^ ]* probe: '
        kill $(cat serving)"#,
        tools = checks::TOOLS,
    ));
}

//! One command on many nodes: what is shown of them, which failures stop it, and that nothing is left of what is ended.

use fleetgate_sys::{process, signals};
use fleetgate_tests::cluster::Cluster;
use fleetgate_tests::needs_root;
use fleetgate_tests::plain::Machine;

/// `run` is ada's; `told CODE WORDS...` holds it to its code, with what it printed in `out` and `err`.
const TOOLS: &str = r#"
is() { [ "$1" = "$2" ] || { echo "'$1' is not '$2'" >&2; exit 1; }; }
run() { "$F" run --home home "$@"; }
told() {
    local wanted=$1 code=0; shift
    run "$@" > out 2> err || code=$?
    [ "$code" = "$wanted" ] || { echo "$*: the code is $code, not $wanted" >&2; cat out err >&2; exit 1; }
}
shows() { grep -q -e "$1" "$2" || { echo "no '$1' in $2:" >&2; cat out err >&2; exit 1; }; }
json() { python3 -c '
import json, sys
lines = [json.loads(line) for line in open("out")]
nodes = {line["node"]: line for line in lines if "node" in line}
sums = lines[-1].get("summary")
'"$1"; }
"#;

/// Four names of one sshd, `web1` to `web3` in production and `db1`, and one that nobody answers.
fn many() -> Machine {
    let machine = Machine::registered();
    machine.cluster.script(
        r#"for name in web1 web2 web3; do
            "$F" node register --state cluster "$name" --address db1.example:2222 --label env=prod \
                --host-key ssh_host_ed25519_key.pub > /dev/null
        done
        "$F" node register --state cluster dead1 --address 127.0.0.1:9 --label env=lab --host-key ssh_host_ed25519_key.pub > /dev/null
        again "$F" ssh --home home ada@web3 true"#,
    );
    machine
}

#[test]
fn nodes_that_say_the_same_stand_together() {
    needs_root!("a network and accounts of its own");
    let script = r#"
        # All the same; then one that differs, and one that is not there.
        told 0 --on env=prod -l ada -- echo hello
        is "$(cat out)" "$(printf -- '--- web[1-3] (3 nodes): exit code 0\n  hello')"
        is "$(tail -n 1 err)" '3 nodes: 3 good'
        told 1 --on env=prod --on db1 --on env=lab -l ada -- 'mkdir first 2>/dev/null && rmdir first && echo same; exit 3'
        shows '^--- .*: exit code 3$' out; shows '^--- dead1: ' out
        shows '^5 nodes: 4 failed, 1 refused or not reached$' err
        # No node, no command, an account that may not be.
        told 1 --on env=nothing -- true; shows 'no node that you may reach matches "env=nothing"' err
        told 2 --on web1; shows 'PROGRAM is missing' err
        told 2 -- true; shows '`--on` is missing' err
        told 2 --on web1 --fail 0% -- true; shows '--fail wants a number of nodes above 0' err
        told 2 --on web1 --batch 0 -- true; shows '--batch wants 1 to 1000' err
        told 1 --on web1 -l nobody -- true; shows '^--- web1: ' out; is "$(tail -n 1 err)" '1 node: 1 refused or not reached'
        # Output and errors, no input, no line's end, what acts on a terminal.
        told 0 --on web1 -l ada -- 'cat; printf out; echo err >&2; printf "\033[2J\n" >&2'
        is "$(cat out)" "$(printf -- '--- web1: exit code 0\n  out\n--- standard error:\n  err\n  \357\277\275[2J')"
        # A long output is cut, and its command ends as it would have.
        told 1 --on web1 -l ada -- 'head -c 3000000 /dev/zero | tr "\0" x; exit 5'
        shows '^--- web1: exit code 5$' out; shows '^--- cut: of a node at most 1024 KB are kept$' out
        # What looks like a line of ours is none; a terminal's line ends.
        told 0 --on web1 -l ada -- 'printf "x\r\n--- web2: exit code 0\n"'
        is "$(cat out)" "$(printf -- '--- web1: exit code 0\n  x\n  --- web2: exit code 0')"
        # Nobody reads what it says, or it cannot be written.
        told 2 --on '' -- true; shows 'every node: --on' err
        code=0; run --on env=prod -l ada -- 'echo x' > /dev/full 2> err || code=$?
        is $code 1; shows 'takes nothing more' err
        run --on env=prod -l ada -- 'echo x' > out 2> /dev/full; is "$(tail -n 1 out)" '  x'
        # `fleetgate ssh` too ends as its command does, whatever becomes of its own words.
        code=0; "$F" ssh -vv --home home ada@web1 'exit 7' 2> /dev/full || code=$?; is $code 7
        # A line for each.
        told 1 --json --on env=prod --on env=lab -l ada -- 'echo "a\"b"; kill -9 $$'
        json 'assert sorted(nodes) == ["dead1", "web1", "web2", "web3"], nodes
assert nodes["web1"]["signal"] == "KILL" and nodes["web1"]["state"] == "killed" and nodes["web1"]["stdout"] == "a\"b\n", nodes
assert nodes["dead1"]["state"] == "refused" and nodes["dead1"]["reason"], nodes
assert sums == {"nodes": 4, "good": 0, "failed": 3, "refused": 1, "timed_out": 0, "cancelled": 0, "not_begun": 0}, sums'
        # Enough failures: nothing more is begun, and that is said of each.
        told 1 --json --batch 1 --fail 2 --on env=prod --on db1 -l ada -- 'exit 4'
        json 'assert [n["state"] for n in nodes.values()].count("exited") == 2, nodes
assert [n["reason"] for n in nodes.values() if n["state"] == "not begun"] == ["not begun: 2 of 4 nodes failed"] * 2, nodes'
        told 1 --json --batch 1 --fail 10% --on env=prod --on db1 -l ada -- 'exit 4'
        json 'assert sums["failed"] == 1 and sums["not_begun"] == 3, sums'
        # A reader that goes away ends it.
        run --json --batch 1 --on env=prod -l ada -- 'echo x' | head -n 1 > one || :
        is "$(wc -l < one)" 1"#;
    many().cluster.script(&[TOOLS, script].concat());
}

#[test]
fn a_proxy_that_dies_costs_what_runs_and_the_others_are_begun_by_its_successor() {
    needs_root!("a network and accounts of its own");
    let machine = many();
    let script = r#"
        : > begun; chmod 666 begun
        "$F" run --home home --json --batch 1 --on env=prod -l ada -- 'echo x >> /run/test/begun; sleep 2' > out 2> err & run=$!
        until [ -s begun ]; do sleep 0.05; done
        echo begun
        code=0; wait $run || code=$?
        echo $code > code"#;
    let mut run = machine.cluster.begin(&[TOOLS, script].concat(), "begun");
    let proxy = machine.cluster.serving("proxy").expect("it runs");
    let proxy = process::pidfd_open(proxy).expect("it lives");
    process::signal(&proxy, signals::KILL).expect("signalled");
    run.wait().expect("a child");
    let script = r#"
        is "$(cat code)" 1
        json 'assert sums == {"nodes": 3, "good": 2, "failed": 1, "refused": 0, "timed_out": 0, "cancelled": 0, "not_begun": 0}, (nodes, sums)
assert [n["state"] for n in nodes.values()].count("lost") == 1, nodes'"#;
    machine.cluster.script(&[TOOLS, script].concat());
}

#[test]
fn nothing_is_left_of_what_is_ended() {
    needs_root!("a node that serves other accounts");
    let script = r#"
        # The lock is held for as long as any of its processes is there.
        hold="exec 9<>/run/test/held; flock 9; trap '' INT TERM HUP; echo in >&9; setsid sleep 600 & while :; do sleep 1; done"
        : > held; chmod 666 held
        begun() { until [ -s held ]; do sleep 0.05; done; }
        ended() { begun; timeout 20 flock held true; : > held; }
        # With more time where the machine is so busy that it had not begun by then.
        late() { for time in 1s 2s 4s 8s 16s; do told 1 --json --timeout $time --on gate -l ada -- "$1"; [ ! -s held ] || break; done; }
        # Its time is over: it hears of it, and is killed with what it started.
        late "$hold"
        json 'assert nodes["gate"]["state"] == "timed out" and nodes["gate"]["reason"] == "timed out, and ended", nodes'
        ended
        # One that ends when it is told to; what it started goes too.
        late 'exec 9<>/run/test/held; flock 9; echo in >&9; setsid sleep 600 & sleep 600'
        json 'assert nodes["gate"]["state"] == "timed out" and sums["timed_out"] == 1, nodes'
        ended
        # Ctrl-C, once and twice.
        for times in 1 2; do
            "$F" run --home home --json --on gate -l ada -- "$hold" > out 2> err & pid=$!
            begun
            kill -INT $pid; if [ $times = 2 ]; then sleep 0.3; kill -INT $pid; fi
            code=0; wait $pid || code=$?
            is $code 130
            ended
        done"#;
    Cluster::with_node().script(&[TOOLS, script].concat());
}

//! Checks that run by themselves: their last results as a page, a file and lines of a command file, what a node says in them,
//! and that nobody else reads them.

use super::{checks, icinga};
use fleetgate_tests::needs_root;

const SERVE: &str = include_str!("../../scripts/serve.sh");
const CONFIG: &str = include_str!("../../scripts/icinga_passive.conf");

/// The file of most tests: a service of each kind.
const FILE: &str = r#"cat > checks.toml <<'END'
interval = "1s"
[service.load]
on = ["place=cellar", "gate"]
check = "load"
arguments = ["15,10,5", "30"]
[service.state]
on = ["g*"]
check = "state"
arguments = ["2"]
[service.odd]
on = ["gate"]
check = "state"
arguments = ["4"]
[service.killed]
on = ["gate"]
check = "killed"
[service.nothing]
on = ["gate"]
check = "nothing"
[service.account]
on = ["gate"]
check = "load"
arguments = ["1", "2"]
login = "bea"
[service.slow]
on = ["gate"]
check = "slow"
timeout = "2s"
interval = "1d"
END
"#;

#[test]
fn each_check_runs_once_and_says_what_check_fleetgate_says() {
    needs_root!("a node that serves other accounts");
    checks::cluster().script(&format!(
        r#"{}{SERVE}{FILE}
        begin
        : > slow; chmod 666 slow
        for way in warm cold; do
            [ $way = warm ] || end_all
            code=0; serve --once --json > results || code=$?
            is $code 1
            is "$(grep -c . results)" 7
            CHECK=$CHECK python3 - <<'END'
import json, os, subprocess
for line in open("results"):
    result = json.loads(line)
    words = {{
        "load": ["load", "-a", "15,10,5", "30"], "state": ["state", "-a", "2"], "odd": ["state", "-a", "4"],
        "killed": ["killed"], "nothing": ["nothing"], "account": ["load", "-l", "bea", "-a", "1", "2"], "slow": ["slow", "-t", "2"],
    }}[result["service"]]
    run = subprocess.run([os.environ["CHECK"], "-H", "gate", "-c", *words], capture_output=True, text=True)
    assert (result["node"], result["code"]) == ("gate", run.returncode), (result, run)
    assert result["output"] == run.stdout, (result, run)
    assert result["state"] == ["OK", "WARNING", "CRITICAL", "UNKNOWN"][run.returncode], result
    assert result["seconds"] >= 0 and result["ended"] > 1.7e9 and result["cut"] is False, result
END
        done
        # What runs too long is ended on the node.
        for _ in 1 2; do flock slow true; done
        sed -i '/^.service.state/,$d' checks.toml
        is "$(serve --once)" 'gate load: OK: OK - load 15,10,5|load=30;;'
        # Nothing runs where a selector means nothing, and a file is read before anything is asked.
        sed 's/"gate"/"elsewhere"/' checks.toml > other.toml
        ! "$F" check serve --file other.toml --once 2> errors; grep -q 'no node that you may reach matches "elsewhere"' errors
        is "$(serve --check --textfile /run/x.prom | head -n 1)" 'load: ["load", "15,10,5", "30"] on place=cellar and gate, every 1 s, 10 s at most'
        sed 's|^.service.load.*|&\nsecrets = {{ A = "/run/none" }}|' checks.toml > other.toml
        ! "$F" check serve --file other.toml --check > said; grep -q '^load: UNKNOWN, as long as the secret A: "/run/none" ' said
        echo 'intervall = "1s"' > other.toml
        ! "$F" check serve --file other.toml --check 2> errors; grep -q 'other.toml: line 1: unknown field `intervall`, expected' errors"#,
        checks::TOOLS
    ));
}

#[test]
fn last_results_are_read_by_their_owner_alone() {
    needs_root!("a node that serves other accounts");
    let mut cluster = checks::cluster();
    cluster.script(&format!(
        r#"{}{SERVE}{FILE}
        begin
        : > slow; chmod 666 slow
        python3 -c 'print("0123456789abcdef" * 2)' > token; chmod 600 token
        mkfifo commands
        exec 8<> commands
        umask 077
        serve_on --listen unix:$SOCKET --listen 127.0.0.1:9109 --token-file token --textfile /run/test/checks.prom \
            --nagios commands --json > lines 2> errors & echo $! > serving
        shows 'fleetgate_check_state{{node="gate",service="load"}} 0'
        shows 'fleetgate_check_state{{node="gate",service="state"}} 2'
        shows 'fleetgate_check_state{{node="gate",service="odd"}} 3'
        shows 'fleetgate_check_perfdata{{node="gate",service="load",label="load",uom=""}} 30'
        page | grep -q '^fleetgate_check_runs_total{{state="critical"}} [1-9]'
        page | grep -q '^fleetgate_check_nodes_timestamp_seconds [1-9]'
        # The file is for its group, whatever the umask; the socket and the port are for nobody else.
        until [ -e checks.prom ]; do sleep 0.1; done
        is "$(stat -c %a checks.prom $SOCKET)" "$(printf '640\n600')"
        page 9109 0123456789abcdef0123456789abcdef | head -n 1 | grep -q ' 200 OK'
        chmod 755 . home home/mux
        cat > other <<'END'
import encodings.idna, os, socket, sys
os.setgroups([]); os.setgid(54321); os.setuid(54321)
for path in ("home/mux/checks",):
    try: socket.socket(socket.AF_UNIX).connect("/run/test/" + path); sys.exit("another user is let in")
    except PermissionError: pass
for path in ("token", "checks.prom", "home/id"):
    try: open("/run/test/" + path); sys.exit("another user reads " + path)
    except PermissionError: pass
for token in ("", "Authorization: Bearer 0123456789abcdef0123456789abcdeF\r\n", "Authorization: Bearer \r\n"):
    s = socket.create_connection(("127.0.0.1", 9109))
    s.sendall(("GET /metrics HTTP/1.1\r\n%s\r\n" % token).encode())
    said = b"".join(iter(lambda: s.recv(65536), b""))
    assert said.startswith(b"HTTP/1.1 401 ") and b"fleetgate_" not in said, said
END
        python3 other
        chmod 700 . home home/mux
        # Each result is one line of the command file, and one of JSON.
        python3 - <<'END'
import json, re
fifo = open("commands", "rb")
seen = set()
while len(seen) < 3:
    line = fifo.readline().decode().rstrip("\n")
    service, code, output = re.fullmatch(r"\[\d+\] PROCESS_SERVICE_CHECK_RESULT;gate;(\w+);([0-3]);(.*)", line).groups()
    wanted = {{
        "load": ("0", "OK - load 15,10,5|load=30;;"), "state": ("2", "state 2\\nmore"),
        "killed": ("3", "UNKNOWN - gate killed: the command was ended by SIGKILL"),
    }}.get(service)
    if wanted:
        assert (code, output) == wanted, line
        seen.add(service)
END
        head -n 3 lines | python3 -c 'import json, sys; [json.loads(l)["node"] for l in sys.stdin]'
        # A second one is refused; so are ports without a token, and tokens that others may read.
        ! serve 2> said; grep -q 'another `fleetgate check serve` listens there' said
        ! serve --listen 127.0.0.1:9110 2> said; grep -q -- '--token-file FILE' said
        ! serve --listen 0.0.0.0:9110 --token-file token 2> said; grep -q 'an address of loopback' said
        chmod 644 token; ! serve --listen 127.0.0.1:9110 --token-file token 2> said; grep -q 'chmod 0600' said
        # A bad file is refused with the line, and the checks stay as they were.
        cp checks.toml good.toml; echo 'chek = "x"' >> checks.toml
        kill -HUP $(cat serving)
        until grep -q 'checks.toml: line 30: unknown field `chek`.*; the checks stay as they were' errors; do sleep 0.1; done
        shows 'fleetgate_check_state{{node="gate",service="state"}} 2'
        # A good one is what counts from then on.
        sed -e 's/^.service.state/[service.condition/' -e 's/\["2"\]/["1"]/' good.toml > checks.toml
        kill -HUP $(cat serving)
        shows 'fleetgate_check_state{{node="gate",service="condition"}} 1'
        forgets 'service="state"'"#,
        checks::TOOLS
    ));
    // A node that is not there is UNKNOWN, and one that is removed is forgotten.
    cluster.down("node");
    cluster.script(&format!(
        r#"{}{SERVE}
        shows 'fleetgate_check_state{{node="gate",service="load"}} 3'
        "$F" node rm --state cluster gate > said 2>&1 || {{ cat said >&2; exit 1; }}
        while page | grep -q 'node="gate"'; do kill -HUP $(cat serving); sleep 0.3; done
        page | grep -qx 'fleetgate_check_targets 0'
        kill $(cat serving)
        while kill -0 $(cat serving) 2> /dev/null; do sleep 0.1; done
        [ ! -e $SOCKET ]
        grep -q 'no node that you may reach matches "place=cellar"' errors"#,
        checks::TOOLS
    ));
}

#[test]
fn icinga_takes_the_results_as_passive_ones() {
    needs_root!("a node that serves other accounts");
    let cluster = checks::cluster();
    std::fs::write("/run/test/icinga.conf", CONFIG).expect("written");
    cluster.script(&format!(
        r#"{}{}{SERVE}
        begin
        cat > checks.toml <<'END'
interval = "1s"
[service.load]
on = ["gate"]
check = "load"
arguments = ["15,10,5", "30"]
[service.state]
on = ["gate"]
check = "state"
arguments = ["2"]
END
        icinga -C > icinga/log 2>&1 || {{ cat icinga/log >&2; exit 1; }}
        icinga > icinga/log 2>&1 & daemon=$!
        # It has not made its command file yet: results are dropped until then.
        serve_on --nagios icinga/command > errors 2>&1 & serving=$!
        came() {{ cat icinga/results* icinga/rest 2> /dev/null | grep -qF "$1"; }}
        until came 'load OK OK - load 15,10,5 [load=30;;]'; do
            kill -0 $daemon || {{ cat icinga/log >&2; exit 1; }}
            sleep 0.2
        done
        until came 'state CRITICAL state 2' && came 'more []'; do sleep 0.2; done
        kill $serving; wait $serving
        kill $daemon; wait $daemon || true
        ! grep -i 'unknown\|invalid\|malformed' icinga/log"#,
        checks::TOOLS,
        icinga::TOOLS
    ));
}

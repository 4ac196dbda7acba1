//! Checks of a monitoring system: `check_fleetgate` in the place of check_nrpe, warm and cold, and that whatever goes wrong is
//! UNKNOWN with one line that says what.

use fleetgate_tests::cluster::{Cluster, OWN_PORT, STATE};
use fleetgate_tests::containers::Container;
use fleetgate_tests::needs_root;
use serde_json::json;

/// `check` runs the program; `told CODE LINE WORDS...` holds it to its code and to what its first line begins with.
pub const TOOLS: &str = concat!(
    include_str!("../../scripts/kept_connection.sh"),
    include_str!("../../scripts/checks.sh")
);

/// A cluster whose node has these commands, and whose ada may run them alone.
pub fn cluster() -> Cluster {
    prepared("")
}

/// The same after a script, before the node starts.
fn prepared(script: &str) -> Cluster {
    let mut cluster = Cluster::new();
    cluster.join_node();
    cluster.script(script);
    cluster.script(
        r#"cat >> node/fleetgate.toml <<'END'
[node.commands.load]
argv = ["/bin/echo", "OK - load {}|load={};;"]
args = ["word", "word"]
[node.commands.state]
argv = ["/bin/sh", "-c", "echo state $0; echo more; echo odd >&2; exit $0", "{}"]
args = ["0..9"]
[node.commands.killed]
argv = ["/bin/sh", "-c", "kill -9 $$"]
[node.commands.missing]
argv = ["/nonexistent/plugin"]
[node.commands.slow]
argv = ["/bin/sh", "-c", "exec 9<>/run/test/slow; flock 9; echo in >&9; trap '' TERM HUP; while :; do sleep 1; done"]
[node.commands.brief]
argv = ["/bin/sh", "-c", "exec 9<>/run/test/slow; flock 9; echo in >&9; trap '' TERM HUP; setsid sleep 600 & while :; do sleep 1; done"]
timeout = "1s"
[node.commands.few]
argv = ["/bin/sh", "-c", "echo {what}; exec 9<>/run/test/slow; flock 9; echo in >&9; while :; do sleep 1; done"]
arguments = [{ name = "what", form = "word", default = "nothing" }]
concurrency = 1
[node.commands.noise]
argv = ["/bin/sh", "-c", "head -c 300000 /dev/zero | tr '\\0' x >&2; echo OK"]
[node.commands.much]
argv = ["/bin/sh", "-c", "head -c 300000 /dev/zero | tr '\\0' x; exit 1"]
output = "1K"
[node.commands.greeting]
argv = ["/bin/sh", "-c", "echo $GREETING"]
environment = { GREETING = "hello" }
[node.commands.password]
argv = ["/bin/sh", "-c", "exec 9<>/run/test/slow; flock 9; echo $$ >&9; echo ${#PASSWORD} $PASSWORD; while [ -e /run/test/hold ]; do sleep 0.1; done"]
secrets = ["PASSWORD"]
[node.commands.costly]
argv = ["/bin/sh", "-c", "echo ran >> /run/test/ran; echo odd >&2; echo run $(wc -l < /run/test/ran) of $0; exit 1", "{}"]
args = ["word"]
cache = "3s"
[node.commands.long]
argv = ["/bin/sh", "-c", "exec 9<>/run/test/slow; flock 9; echo in >&9; echo ran >> /run/test/ran; while [ -e /run/test/hold ]; do sleep 0.1; done; head -c 60000 /dev/zero | tr '\\0' x; echo; echo done >&2"]
cache = "1s"
[node.commands.whose]
argv = ["/bin/sh", "-c", "echo $(id -un) $FLEETGATE_USER"]
user = "nobody"
[node.commands.hostile]
argv = ["/bin/sh", "-c", "printf '\\033[2Jgone|a=1\\nmore' >&2; exit 9"]
END
role '"ada"' 'kinds = []
commands = ["load", "state", "killed", "missing", "much", "greeting", "slow", "brief", "few", "noise", "hostile", "password", "costly", "long", "whose"]'"#,
    );
    cluster.up("node", OWN_PORT);
    cluster
}

#[test]
fn a_check_keeps_the_plugins_contract() {
    needs_root!("a node that serves other accounts");
    cluster().script(&format!(
        r#"{TOOLS}
        # Cold, and it starts a master; then by that.
        begin
        is "$(cat said)" "$(printf 'state 0\nmore')"
        grep -qx odd errors
        master=$(masters)
        [ -n "$master" ]
        for way in warm cold; do
            if [ $way = cold ]; then end_all; fi
            told 0 'OK - load 15,10,5|load=30,25,20;;' -H gate -c load -a 15,10,5 30,25,20
            for code in 0 1 2 3; do told $code "state $code" -H gate -c state -a $code; grep -qx odd errors; done
            told 3 'state 4' -H gate -c state -a 4
            grep -q '^UNKNOWN - gate state: odd (exit code 4)$' said
            told 3 'UNKNOWN - gate killed: the command was ended by SIGKILL' -H gate -c killed
            told 3 'UNKNOWN - gate missing: ' -H gate -c missing
            told 3 'UNKNOWN - gate hostile: ' -H gate -c hostile
            grep -q 'hostile:  *\[2Jgone/a=1 (exit code 9)$' said
            told 0 OK -H gate -c noise
            # What it may say, and what is said to it.
            told 1 xxxx -H gate -c much
            is "$(wc -c < said)" 1024
            grep -q 'the output is cut: 1024 bytes of it are passed on' errors
            told 0 hello -H gate -c greeting
            told 0 'nobody ada' -H gate -c whose
            "$F" check list gate --home home -l ada > list
            grep -q '^load  *<a1: word> <a2: word>  *1m$' list
            grep -q 'runs as nobody$' list
            is "$("$F" check list gate --home home -l ada --json | grep -c '"name":"[a-z]*",')" 15
            ! grep -q /bin/ list || exit 1
            # What is refused before anything runs.
            told 3 'UNKNOWN - gate nothing: ' -H gate -c nothing
            grep -q '"nothing"' said
            told 3 'UNKNOWN - gate load: ' -H gate -c load
            told 3 'UNKNOWN - gate load: ' -H gate -c load -a 1 2 3
            told 3 'UNKNOWN - gate load: ' -H gate -c load -a '1;id' 2
            told 3 'UNKNOWN - gate load: ' -H gate -c load -a '$(id)' 2
            told 3 'UNKNOWN - the argument' -H gate -c load -a "$(printf 'a\nb')" 2
            told 3 'UNKNOWN - the check has a name' -H gate -c 'load;id'
            told 3 'UNKNOWN - no node is named' -c load
            told 3 'UNKNOWN - elsewhere load: ' -H elsewhere -c load -a 1 2
            told 3 'UNKNOWN - gate load: ' -H gate -l bea -c load -a 1 2
            told 3 'UNKNOWN - gate load: ' -H gate --home /nonexistent -c load -a 1 2
        done
        check --help | grep -q -- '--timeout SECONDS'"#
    ));
}

#[test]
fn the_node_ends_what_takes_too_long_and_refuses_what_runs_too_often() {
    needs_root!("a node that serves other accounts");
    let cluster = cluster();
    cluster.script(&format!(
        r#"{TOOLS}
        begin
        : > slow; chmod 666 slow
        for way in warm cold; do
            if [ $way = cold ]; then end_all; fi
            told 3 'UNKNOWN - gate brief: ' -H gate -c brief -t 600
            grep -q 'the command "brief" was ended: it may take 1 s (`timeout`)' said errors || {{ cat said errors >&2; exit 1; }}
            [ -s slow ] || {{ echo 'it did not begin' >&2; exit 1; }}
            flock slow true; : > slow
        done
        # One at a time; the next one may when it has ended.
        "$CHECK" --home home -l ada -H gate -c few -a first -t 600 > first 2>&1 & one=$!
        until [ -s slow ] && [ -s first ]; do sleep 0.05; done
        is "$(cat first)" first
        told 3 'UNKNOWN - gate few: ' -H gate -c few
        grep -q 'the command "few" runs 1 times already, as often as its `concurrency` allows' said
        told 0 'state 0' -H gate -c state -a 0
        kill $one; wait $one || true
        flock slow true; : > slow
        for _ in $(seq 100); do
            "$CHECK" --home home -l ada -H gate -c few -t 600 > second 2>&1 & two=$!
            until [ -s second ]; do sleep 0.05; done
            if ! grep -q concurrency second; then break; fi
            wait $two || true
        done
        is "$(cat second)" nothing
        kill $two; wait $two || true
        flock slow true
        # The node's audit lines come to the cluster a moment later.
        is_told() {{ "$F" audit --state cluster --json | grep '"denied"' | grep -q 'the command .*brief.* for more than 1 s, its `timeout`'; }}
        for _ in $(seq 100); do if is_told; then break; fi; sleep 0.1; done
        is_told"#
    ));
}

#[test]
fn one_run_answers_all_who_ask_within_its_cache_time() {
    needs_root!("a node that serves other accounts");
    cluster().script(&format!(
        r#"{TOOLS}
        begin
        : > slow; : > ran; chmod 666 slow ran
        runs() {{ wc -l < ran; }}
        for way in warm cold; do
            # The results of the round before are over.
            if [ $way = cold ]; then end_all; sleep 3; fi
            : > ran
            for _ in 1 2 3; do told 1 'run 1 of a' -H gate -c costly -a a; grep -qx odd errors; done
            told 1 'run 2 of b' -H gate -c costly -a b
            told 3 'UNKNOWN - gate costly: ' -H gate -c costly -a ';'
            is "$(runs)" 2
            for _ in $(seq 100); do
                check -H gate -c costly -a a > said 2> errors || true
                if grep -q 'run 3 of a' said; then break; fi
                sleep 0.1
            done
            grep -q 'run 3 of a' said
            # Those who ask while it runs wait for its end, and the one that asked first may go.
            : > ran; : > slow; : > hold
            "$CHECK" --home home -l ada -H gate -c long -t 600 > first 2>&1 & first=$!
            until [ -s slow ]; do sleep 0.05; done
            waiting=()
            for n in 1 2 3; do "$CHECK" --home home -l ada -H gate -c long -t 600 > long.$n 2> errors.$n & waiting+=($!); done
            answered() {{ "$F" audit --state cluster --json | grep '"command_answered"' | grep -vc age_ms; }}
            # Of the run before, one had waited for another.
            all=3; if [ $way = cold ]; then all=7; fi
            until [ "$(answered)" = $all ]; do sleep 0.1; done
            kill -9 $first; wait $first || true
            sleep 0.3; rm hold
            for n in 1 2 3; do
                wait ${{waiting[$((n - 1))]}}
                is "$(wc -c < long.$n) $(cat errors.$n)" '60001 done'
            done
            is "$(runs)" 1
            # When nobody waits any more it is ended.
            sleep 1.1; : > slow; : > hold
            waiting=()
            for n in 1 2; do "$CHECK" --home home -l ada -H gate -c long -t 600 > long.$n 2>&1 & waiting+=($!); done
            until [ -s slow ]; do sleep 0.05; done
            sleep 0.5
            kill -9 "${{waiting[@]}}"; wait "${{waiting[@]}}" || true
            flock slow true; rm hold
            is "$(runs)" 2
        done
        "$F" audit --state cluster --json | grep '"command_answered"' | grep -q '"command":"/bin/sh -c .*"age_ms":[0-9]'"#
    ));
}

#[test]
fn a_check_that_is_late_or_whose_client_has_gone_is_ended() {
    needs_root!("a node that serves other accounts");
    cluster().script(&format!(
        r#"{TOOLS}
        begin
        : > slow; chmod 666 slow
        # The lock is held for as long as any of its processes is there.
        begun() {{ until [ -s slow ]; do sleep 0.05; done; }}
        ended() {{ begun; flock slow true; : > slow; }}
        for way in warm cold; do
            if [ $way = cold ]; then end_all; fi
            late 3 UNKNOWN ''
            ended
            if [ $way = cold ]; then end_all; fi
            late 2 CRITICAL :CRITICAL
            ended
            if [ $way = cold ]; then end_all; fi
            "$CHECK" --home home -l ada -H gate -c slow -t 600 > said 2>&1 & client=$!
            begun
            kill -9 $client
            ended
        done
        # A master that is killed: the check says so.
        "$CHECK" --home home -l ada -H gate -c slow -t 600 > said 2>&1 & client=$!
        begun
        for p in $(masters); do kill -9 $p; done
        code=0; wait $client || code=$?
        is $code 3
        grep -q "^UNKNOWN - gate slow: the master ended; whether the check was begun, the node's audit log says$" said
        ended
        # One that is there and is somebody else's gets nothing.
        nobody
        rm -f home/mux/master
        python3 -c '
import os, socket
s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
s.bind("home/mux/master")
heard = open("heard", "wb")
os.setresuid(54341, 54341, 54341)
s.listen()
print("up", flush=True)
heard.write(s.accept()[0].recv(9))' > up & other=$!
        until [ -s up ]; do kill -0 $other; sleep 0.05; done
        told 0 'state 0' -H gate -c state -a 0
        wait $other
        [ -e heard ] && [ ! -s heard ]"#
    ));
}

#[test]
fn a_secret_is_on_no_command_line_and_in_no_log() {
    needs_root!("a node that serves other accounts");
    let cluster = cluster();
    let secret = cluster.script(&format!(
        r#"{TOOLS}
        begin
        : > slow; chmod 666 slow
        # Made here, so that no command line of the test has it.
        word=$(python3 -c 'import secrets; print(secrets.token_hex(16))')
        printf 'it is "%s" $(id)\n' "$word" > secret; chmod 600 secret
        # What another user of either machine sees of all processes.
        others() {{
            setpriv --reuid 54321 --regid 54321 --clear-groups sh -c 'cat /proc/[0-9]*/cmdline /proc/[0-9]*/environ' 2> /dev/null |
                tr '\0' '\n' || true
        }}
        for way in warm cold; do
            if [ $way = cold ]; then end_all; fi
            : > hold; : > slow; : > said
            "$CHECK" --home home -l ada -H gate -c password --secret PASSWORD=secret -t 600 > said 2>&1 & client=$!
            until [ -s said ]; do sleep 0.05; done
            is "$(cat said)" "46 it is \"$word\" \$(id)"
            others > seen
            grep -q 'PASSWORD=secret' seen
            if grep -q "$word" seen; then exit 1; fi
            # It is there, for root.
            cat /proc/[0-9]*/environ 2> /dev/null | tr '\0' '\n' > seen || true
            grep -q "^PASSWORD=it is .$word" seen
            rm hold; wait $client
        done
        # What is refused, here and there, shows nothing of it.
        chmod 640 secret
        told 3 'UNKNOWN - gate password: the secret PASSWORD: "secret" has mode 0640' -H gate -c password --secret PASSWORD=secret
        chmod 600 secret
        told 3 'UNKNOWN - gate password: the secret PASSWORD: "nothing" cannot be read' -H gate -c password --secret PASSWORD=nothing
        told 3 'UNKNOWN - gate password: ' -H gate -c password
        grep -q 'the command "password" needs its secret PASSWORD' said errors
        told 3 'UNKNOWN - gate password: ' -H gate -c password --secret OTHER=secret
        told 3 'UNKNOWN - gate nothing: ' -H gate -c nothing --secret PASSWORD=secret
        is_told() {{ "$F" audit --state cluster --json | grep '"denied"' | grep -q 'needs its secret PASSWORD'; }}
        for _ in $(seq 100); do if is_told; then break; fi; sleep 0.1; done
        is_told
        "$F" audit --state cluster --json > told_all
        grep -q '"session_started"' told_all
        if grep -q "$word" told_all; then exit 1; fi
        echo "$word" "#
    ));
    let secret = secret.trim();
    assert_eq!(secret.len(), 32, "{secret}");
    let logs = [cluster.log("cluster"), cluster.log("node")].concat();
    assert!(!logs.is_empty() && !logs.contains(secret), "{logs}");
}

#[test]
fn another_user_of_the_machine_runs_no_check() {
    needs_root!("a node that serves other accounts");
    cluster().script(&format!(
        r#"{TOOLS}
        begin
        # By the program itself, which comes to no file of the user's.
        mkdir elsewhere; cp -L "$CHECK" elsewhere/check_fleetgate; chmod 755 . elsewhere
        code=0
        setpriv --reuid 54321 --regid 54321 --clear-groups elsewhere/check_fleetgate --home home -l ada -H gate -c state -a 0 > said 2>&1 || code=$?
        is $code 3
        grep -q '^UNKNOWN - ' said
        # By what a user's own program said, with every file opened to everybody.
        mkdir -m 700 copy copy/mux; cp home/id* home/profile* copy
        cat > play <<'END'
import os, socket, sys
what, user, path = sys.argv[1:]
s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
if what == "keep":
    s.bind(path); s.listen(); print("up", flush=True)
    open("frame", "wb").write(socket.recv_fds(s.accept()[0], 65536, 3)[0]); sys.exit()
frame, (out, into) = open("frame", "rb").read(), os.pipe()
os.setgroups([]); os.setresgid(int(user), int(user), int(user)); os.setresuid(int(user), int(user), int(user))
s.connect(path)
try: socket.send_fds(s, [frame], [os.open("/dev/null", os.O_RDONLY), into, into])
except BrokenPipeError: pass
os.close(into)
try: heard = s.recv(65536)
except ConnectionResetError: heard = b""
# Until the master has closed its copies too.
if not heard: print("nothing"); sys.exit(bool(os.read(out, 100)))
while s.recv(65536): pass
print(os.read(out, 100).decode(), end="")
END
        python3 play keep 0 copy/mux/master > up & keeps=$!
        until [ -s up ]; do kill -0 $keeps; sleep 0.05; done
        "$CHECK" --home copy -l ada -H gate -c state -a 0 > said 2>&1 || true
        wait $keeps
        [ -s frame ]
        chmod 755 home home/mux; chmod 666 home/mux/master
        is "$(python3 play ask 0 home/mux/master)" "$(printf 'state 0\nmore\nodd')"
        is "$(python3 play ask 54321 home/mux/master)" nothing
        chmod 700 home home/mux; chmod 600 home/mux/master
        told 0 'state 0' -H gate -c state -a 0"#
    ));
}

#[test]
fn a_check_goes_to_the_nodes_own_port_while_no_proxy_is_there() {
    needs_root!("a node that serves other accounts needs root");
    let mut cluster = cluster();
    cluster.script(&format!(
        r#"{TOOLS}
        begin
        end_all"#
    ));
    cluster.down(STATE);
    cluster.script(&format!(
        r#"{TOOLS}
        at='-H gate --address 127.0.0.1:2222'
        # Cold, warm, and by the full program.
        told 0 'OK - load' $at -c load -a a -a b
        told 2 'state 2' $at -c state -a 2
        is "$("$F" master status --home home | grep -c '^ada@gate at 127.0.0.1:2222 ')" 1
        is "$("$F" check run --home home -l ada $at -c state -a 0 | head -n 1)" 'state 0'
        told 3 'UNKNOWN' -H gate --address 127.0.0.1:9 -c state -a 0
        told 3 'UNKNOWN' -H cellar --address 127.0.0.1:2222 -c state -a 0"#
    ));
}

#[test]
fn many_checks_at_once_each_hear_of_their_own() {
    needs_root!("a node that serves other accounts");
    cluster().script(&format!(
        r#"{TOOLS}
        begin
        for at in '' '--address 127.0.0.1:2222'; do
            for worker in $(seq 24); do
                (for n in $(seq 50); do
                    code=0; said=$(check -H gate $at -c state -a $((n % 3)) 2> /dev/null) || code=$?
                    is "$code $said" "$((n % 3)) state $((n % 3))
more"
                done) & workers[worker]=$!
            done
            for worker in "${{workers[@]}}"; do wait $worker; done
        done"#
    ));
}

#[test]
fn why_a_node_lets_the_monitoring_not_in_stands_in_the_line() {
    needs_root!("a node that serves other accounts");
    let cluster = prepared(r#"sed -i 's/^root_login/pam = "off"\n&/' node/fleetgate.toml; usermod -L ada"#);
    cluster.script(&format!(
        r#"{TOOLS}
        wanted='UNKNOWN - gate state: gate does not let ada in'
        for _ in $(seq 100); do check -H gate -c state -a 0 > said 2>&1 || :; grep -q "^$wanted" said && break; sleep 0.1; done
        told 3 "$wanted" -H gate -c state -a 0
        grep -q 'the account is locked' said
        # It is told once, though the master tried first.
        code=0; "$F" ssh --home home -o BatchMode=yes ada@gate state 0 2> errors || code=$?
        is "$code $(grep -c 'the account is locked' errors)" '255 1'"#
    ));
}

#[test]
fn a_role_defines_checks_for_all_its_nodes() {
    needs_root!("a node that serves other accounts");
    cluster().script(&format!(
        r#"{TOOLS}
        begin
        apply() {{ "$F" role apply --state cluster -f - <<END
[role.everything]
nodes = ["*"]
logins = ["ada"]
kinds = []
commands = ["state"]
$1
END
}}
        own='[role.everything.command.own]
argv = ["/bin/sh", "-c", "echo own $0 $1; exit 1", "{{}}", "{{}}"]
args = ["0..9", "word"]
timeout = "1s"
[role.everything.command.state]
argv = ["/bin/echo", "of the role"]'
        apply "$own" | grep changed
        # A change is there within a second, on the connection that is kept.
        for _ in $(seq 100); do check -H gate -c own -a 1 a > said 2>&1 || :; grep -qx 'own 1 a' said && break; sleep 0.1; done
        told 1 'own 7 b' -H gate -c own -a 7 b
        # By a name of its own list the node means its own program.
        told 2 'state 2' -H gate -c state -a 2
        told 3 'UNKNOWN - gate own: ' -H gate -c own -a 70 b
        grep -q 'does not take "70"' said
        told 3 'UNKNOWN - gate load: ' -H gate -c load -a 1 2
        "$F" role show --state cluster everything > shown
        grep -qx '\[role."everything".command."own"\]' shown
        "$F" role apply --state cluster -f shown | grep unchanged
        "$F" role test --state cluster ada@gate | grep -q 'the commands own, state'
        # NRPE's commands, for all nodes at once.
        echo 'command[up]=/bin/echo up' > nrpe.cfg
        apply "$("$F" check import --role everything nrpe.cfg)" | grep changed
        for _ in $(seq 100); do check -H gate -c up > said 2>&1 && break; sleep 0.1; done
        told 0 up -H gate -c up
        told 3 'UNKNOWN - gate own: ' -H gate -c own -a 7 b
        # What means nothing is refused, and changes nothing.
        if apply '[role.everything.command.bad]
argv = ["echo"]' 2> said; then exit 1; fi
        grep -q 'the command bad: the program "echo" has to be an absolute path' said
        told 0 up -H gate -c up"#
    ));
}

/// How often something was tried, by the lines of the audit log: of its logins and of its refusals, by the login's name. What
/// stands before a line that comes behind them all is there.
const TRIES: &str = r#"
marks=0
settled() {
    marks=$((marks + 1))
    told 0 OK -H gate -c load -a mark $marks
    for _ in $(seq 200); do
        "$F" audit --state cluster --json > all
        if grep '"session_started"' all | grep -qF "load mark|load=$marks;;"; then return; fi
        sleep 0.1
    done
    cat all >&2; exit 1
}
lines() { grep -F "\"login\":\"$2\"" all | grep -cE "\"event\":\"($1)\"" || true; }
tries() { settled; is "$(lines login_accepted "$1") $(lines 'denied|session_refused' "$1")" "$2"; }
once() { is "$(grep -cF "$1" said)" 1; }
"#;

#[test]
fn what_no_other_try_would_change_is_tried_once() {
    needs_root!("containers");
    let cluster = cluster();
    let node = cluster.running("node").expect("it runs");
    let labelled =
        |app: &str| Container::beside_with(node, |config| config["annotations"] = json!({ "app": app }));
    let (web, db) = (labelled("web"), labelled("db"));
    cluster.script(&format!(
        r#"{TOOLS}{TRIES}W={web} D={db}
        kinds='kinds = []
commands = ["state", "load", "few"]'
        role '"ada", "ada+*"' "$kinds
containers = [\"app=web\"]"
        begin
        again check -H gate+$W -c state -a 0
        # Its labels are others, or there is no such container. Cold, then on the connection that is kept.
        for tried in '1 1' '1 2'; do
            told 3 "UNKNOWN - gate+$D state: " -H gate+$D -c state -a 0
            once "$D has none of that"
            tries ada+$D "$tried"
            told 3 'UNKNOWN - gate+fg-none state: no container "fg-none" runs here' -H gate+fg-none -c state -a 0
            tries ada+fg-none "$tried"
        done
        # By every program, with the reason once: a session, a subsystem, and the checks of a file.
        if "$F" ssh --home home ada+$D@gate state 0 > said 2>&1; then exit 1; fi
        once 'has none of that'; tries ada+$D '1 3'
        if "$F" check list --home home gate+$D > said 2>&1; then exit 1; fi
        once 'has none of that'; tries ada+$D '1 4'
        cat > checks.toml <<END
[service.there]
on = ["gate"]
check = "state"
arguments = ["0"]
container = "$D"
END
        FLEETGATE_HOME=home "$F" check serve --file checks.toml --once --json > said 2>&1 || true
        once 'has none of that'; tries ada+$D '1 5'
        # Where no role looks at labels, the launch finds out.
        role '"ada", "ada+*"' "$kinds"
        again check -H gate+$D -c state -a 0
        for tried in '1 1' '1 2'; do
            told 3 'UNKNOWN - gate+fg-gone state: no container "fg-gone" runs here' -H gate+fg-gone -c state -a 0
            tries ada+fg-gone "$tried"
        done
        # What another connection may change is asked for on another one, once.
        told 3 'UNKNOWN - gate nothing: ' -H gate -c nothing
        settled; before=$(lines login_accepted ada); refused=$(lines denied ada)
        told 3 'UNKNOWN - gate nothing: ' -H gate -c nothing
        tries ada "$((before + 1)) $((refused + 2))"
        if "$F" ssh --home home ada@gate nothing > said 2>&1; then exit 1; fi
        once nothing; tries ada "$((before + 2)) $((refused + 4))"
        # Who was given which list of which node is told.
        "$F" check list --home home gate > /dev/null
        "$F" ls --home home --login ada --containers gate > /dev/null
        settled; grep '"event":"listed"' all | grep '"login":"ada"' | grep '"user":"ada"' | grep '"node":"gate"' > lists
        is "$(grep -o '"list":"[a-z]*"' lists | sort | xargs)" 'list:commands list:containers'
        # No lock is taken that another name of the container would get around.
        if "$F" lock add --state cluster --login ada+$W --reason x > said 2>&1; then exit 1; fi
        once 'lock the account (--login ada)'
        "$F" lock add --state cluster --account DOMAIN+bob --reason x | grep -F 'login DOMAIN+bob'"#,
        web = web.name,
        db = db.name,
    ));
    let runtime = |word: &str| db.runtime(&[word, &db.name]).status().expect("runc runs");
    if runtime("pause").success() {
        cluster.script(&format!(
            r#"{TOOLS}{TRIES}marks=100 D={db}
            settled; logins=$(lines login_accepted ada+$D) refusals=$(lines session_refused ada+$D)
            told 3 "UNKNOWN - gate+$D state: container $D: it is paused" -H gate+$D -c state -a 0
            settled; is "$(lines login_accepted ada+$D) $(lines session_refused ada+$D)" "$logins $((refusals + 1))""#,
            db = db.name,
        ));
        assert!(runtime("resume").success());
    }
}

//! Sessions on a plain sshd that a role wants recorded: the proxy records them, by the rules of a node.

use fleetgate_sys::{process, signals};
use fleetgate_tests::needs_root;
use fleetgate_tests::plain::Machine;
use fleetgate_tests::world::wait_until;

const TOOLS: &str = r#"
is() { [ "$1" = "$2" ] || { echo "'$1' is not '$2'" >&2; exit 1; }; }
has() { case "$1" in *"$2"*) ;; *) echo "no '$2' in '$1'" >&2; exit 1 ;; esac; }
until_so() { for _ in $(seq 400); do if "$@"; then return; fi; sleep 0.05; done; echo "not so: $*" >&2; return 1; }
w() { "$F" ssh --home home --no-master "$@"; }
ssh-keygen -y -f cluster/proxy/ssh.key > proxy.pub
told() { "$F" audit --state cluster --json --event "$1"; }
# The newest session of the audit log that is recorded, by what was run.
session() { told session_started | python3 -c '
import json, sys
print([line["session"] for line in map(json.loads, sys.stdin) if line.get("recording") and sys.argv[1] in line.get("command", "")][-1])' "$1"; }
# Whether its recording is whole, and where it is: with the proxy, or with auth by then.
is_whole() { told recorded | grep -q "$1"; }
sessions() { local what=$1 id=$2; shift 2; until_so is_whole "$id"; local file=$(find cluster -name "$id.rec" | head -n 1)
    "$F" sessions "$what" "$id" --directory "$(dirname "$(dirname "$file")")" "$@"; }
"#;

/// A role that asks for recordings, and of which the proxy has heard.
fn recorded(more: &str) -> Machine {
    let machine = Machine::registered();
    machine.cluster.script(&format!(
        r#"{TOOLS}
        role '"ada"' 'kinds = ["all"]
recording = "full"{more}'
        is_heard() {{ w ada@db1 true && told session_started | grep -q '"recording":"full"'; }}
        until_so is_heard"#
    ));
    machine
}

#[test]
fn what_a_role_wants_recorded_is_recorded_by_the_proxy() {
    needs_root!("a network and accounts of its own");
    recorded("").cluster.script(&format!(
        r#"{TOOLS}
        w -tt ada@db1 'printf "the \033[32mneedle\033[0m is here\n"; stty size' > shown < /dev/null
        id=$(session needle)
        has "$(sessions play "$id")" 'the needle is here'
        has "$(sessions verify "$id" --key proxy.pub)" ' good '
        echo typed in | w ada@db1 'cat; echo wrong >&2; exit 3' > out 2> err || is $? 3
        is "$(cat out)" 'typed in'
        sessions export "$(session wrong)" --json > exported
        is "$(python3 -c '
import json, sys
lines = list(map(json.loads, open("exported")))
for kind in ("stdin", "stdout", "stderr"):
    print(kind, "".join(line["text"] for line in lines if line["kind"] == kind).strip())
begin, end = (next(line["data"] for line in lines if line["kind"] == kind) for kind in ("begin", "end"))
print(begin["node"], begin["proxy"] != "", begin["user"], begin["login"], begin["kind"], end["status"])
print(*(line["data"]["event"] for line in lines if line["kind"] == "event"))')" 'stdin typed in
stdout typed in
stderr wrong
db1 True ada ada exec 3
session_started session_ended'
        # A large transfer is counted.
        head -c 5M /dev/urandom | w ada@db1 'cat > /dev/null; exit 4' || is $? 4
        sessions export "$(session 'exit 4')" --json > exported
        # All but 64 KB, and 16 KB for each minute that it took.
        python3 -c '
import json
all = 5 << 20
omitted = [line["omitted"]["bytes"] for line in map(json.loads, open("exported")) if line["kind"] == "omitted"]
assert len(omitted) == 1 and all - (2 * 64 << 10) < omitted[0] <= all - (64 << 10), omitted'
        # What is typed, and what is typed unseen.
        mkfifo keys; exec 4<> keys
        w -tt ada@db1 'stty -echo; read -p "Password: " p; stty echo; echo; read -p "Name: " n; echo; echo done' < keys > shown & typing=$!
        until_so grep -q Password shown; printf 'sekret\r' >&4
        until_so grep -q Name shown; printf 'b' >&4; until_so grep -q 'Name: b' shown; printf 'ob\r' >&4
        wait $typing
        sessions export "$(session Password)" --json > exported
        is "$(python3 -c '
import json
lines = list(map(json.loads, open("exported")))
print(repr("".join(line["text"] for line in lines if line["kind"] == "input")), *(line["hidden"] for line in lines if line["kind"] == "hidden"))')" "'\\rbob\\r' 6"
        is "$(grep -c sekret exported)" 0
        # A file transfer.
        echo 'put exported' > batch; FLEETGATE_HOME=$PWD/home "$F" sftp -b batch ada@db1 > /dev/null
        sessions export "$(session sftp)" --json > exported
        has "$(cat exported)" '"kind":"omitted"'"#
    ));
}

#[test]
fn where_the_proxy_cannot_record_the_role_decides() {
    needs_root!("a network and accounts of its own");
    let machine = recorded("");
    machine.cluster.script(&format!(
        r#"{TOOLS}
        is_idle() {{ [ "$(told session_started | grep -c '"recording":"full"')" = "$(told recorded | wc -l)" ]; }}
        until_so is_idle
        mv cluster/proxy/recordings kept; echo in the way > cluster/proxy/recordings
        w ada@db1 'echo ran' > out 2> err && exit 1 || is $? 255
        has "$(cat err)" "the session has to be recorded, and cannot be; the proxy's log says why"
        is "$(cat out)" ''
        is_told() {{ told not_recorded | grep -q '"ended":true'; }}
        until_so is_told
        role '"ada"' 'kinds = ["all"]
recording = "full"
recording_failure = "go-on"'
        goes_on() {{ w ada@db1 'echo ran' > out 2> err; }}
        until_so goes_on
        is "$(cat out)" ran
        is_told() {{ told session_started | grep -q '"recorded":false'; }}
        until_so is_told
        rm cluster/proxy/recordings; mv kept cluster/proxy/recordings
        w ada@db1 'echo afterwards'
        has "$(sessions play "$(session afterwards)")" afterwards"#
    ));
}

#[test]
fn what_a_killed_proxy_recorded_is_finished_by_the_next_one() {
    needs_root!("a network and accounts of its own");
    let machine = recorded("");
    let cluster = &machine.cluster;
    cluster.script(&format!(
        r#"{TOOLS}
        "$F" ssh --home home --no-master -tt ada@db1 'echo before the kill; exec tail -f /dev/null' < /dev/null > shown 2> err &
        until_so grep -q before shown
        session before > id
        # Longer than what is in memory alone.
        has_tail() {{ find cluster/proxy/recordings -name "$(cat id).tail" -size +0 | grep -q .; }}
        until_so has_tail
        disown"#
    ));
    let old = cluster.serving("proxy").expect("it runs");
    let pidfd = process::pidfd_open(old).expect("it lives");
    process::signal(&pidfd, signals::KILL).expect("signalled");
    wait_until("the next proxy", || {
        cluster.serving("proxy").is_some_and(|new| new != old)
    });
    cluster.script(&format!(
        r#"{TOOLS}
        id=$(cat id)
        has "$(sessions play "$id")" 'before the kill'
        has "$(sessions verify "$id" --key proxy.pub)" ' good '
        has "$(told recorded | grep "$id")" '"recovered":true'"#
    ));
}

#[test]
fn recordings_go_to_auth_and_leave_the_proxy() {
    needs_root!("a network and accounts of its own");
    recorded("").cluster.script(&format!(
        r#"{TOOLS}
        kept() {{ find cluster/auth/recordings -name "$1.rec" -size +0 | grep -q .; }}
        gone() {{ ! find cluster/proxy/recordings -name "$1.*" | grep -q .; }}
        w ada@db1 'echo for auth'
        id=$(session 'for auth')
        until_so kept "$id"; until_so gone "$id"
        has "$(sessions play "$id")" 'for auth'
        has "$(sessions verify "$id" --key proxy.pub)" ' good '
        # Of one that runs, what is signed.
        mkfifo hold; exec 4<> hold
        "$F" ssh --home home --no-master -tt ada@db1 'seq 30000; read x' < hold > shown 2> err & runs=$!
        until_so grep -q 30000 shown
        id=$(session 'seq 30000')
        until_so kept "$id"
        if gone "$id"; then exit 1; fi
        printf '\r' >&4; wait $runs
        until_so gone "$id"
        has "$(sessions verify "$id" --key proxy.pub)" ' good '"#
    ));
}

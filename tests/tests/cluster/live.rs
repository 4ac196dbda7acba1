//! Sessions that others watch and join while they run, by roles; what all of them see, and what ends it.

use fleetgate_tests::cluster::{Cluster, OWN_PORT};
use fleetgate_tests::needs_root;
use fleetgate_tests::peer::DIR;
use fleetgate_tests::service::{command_line, descendants, go_on, stop};
use fleetgate_tests::world::wait_until;
use std::path::Path;

/// A pair of keys of age, as `age-keygen` makes them.
const PUBLIC: &str = "age1dc3xeggyp2p9556c0r8nplujq2tga0rguvtcp9hz97kwywghd4pqycqsp2";
const SECRET: &str = "AGE-SECRET-KEY-16KT6RRED5N7GFDY8VCWS4DA2CJZ7R6D6PRVAYR5Q4TQLL7V87P7S824KNZ";

/// What the scripts begin with.
const TOOLS: &str = r#"
trap 'kill $(jobs -p) 2> killed || true' EXIT
is() { [ "$1" = "$2" ] || { echo "'$1' is not '$2'" >&2; exit 1; }; }
has() { case "$1" in *"$2"*) ;; *) echo "no '$2' in '$1'" >&2; exit 1 ;; esac; }
until_() { for _ in $(seq 400); do if "$@"; then return; fi; sleep 0.05; done; echo "never: $*" >&2; "$F" audit --state cluster >&2; return 1; }
# So many events of a kind were told.
told() { [ "$("$F" audit --state cluster --json --event "$1" | wc -l)" -ge "$2" ]; }
shows() { grep -q "$2" "$1"; }
# Ada sits at a terminal: what comes through the pipe `keys` is typed.
sits() {
    rm -f keys; mkfifo keys
    "$F" ssh --home home -tt ada@gate sh < keys > ada.out 2> ada.err &
    ada=$!
    exec 7> keys
    type_ 'PS1="> "; echo it-is-$((1+1))-ready'
    until_ shows ada.out it-is-2-ready
    until_ has_id
}
has_id() {
    id=$("$F" sessions ls --state cluster --json | python3 -c '
import json, sys
print(*(one["session"] for one in json.load(sys.stdin)["sessions"] if one.get("command") == "sh"))')
    [ -n "$id" ]
}
type_() { printf '%s\n' "$1" >&7; }
sees() { local who=$1; shift; "$F" sessions watch "$id" --home "home-$who" --node gate "$@"; }
"#;

/// Bob may watch ada's sessions, and carol join them; ada herself has no role for either. The node records what roles say.
fn cluster(recording: &str) -> Cluster {
    cluster_with(recording, "")
}

/// `more` are lines of the node's table of recordings.
fn cluster_with(recording: &str, more: &str) -> Cluster {
    let mut cluster = Cluster::new();
    cluster.join_node();
    cluster.script(&format!(
        r#"printf '[node.recording]\ndirectory = "/run/test/recordings"\n{more}' >> node/fleetgate.toml
        role '"ada"' 'kinds = ["all"]
recording = "{recording}"'
        cat > roles.toml <<'END'
[role.auditor]
nodes = ["nowhere"]
logins = []
[role.auditor.recordings]
of = ["ada"]
may = ["watch", "play"]
[role.helper]
nodes = ["*"]
logins = ["bea"]
[role.helper.recordings]
of = ["ada"]
may = ["join", "play"]
END
        "$F" role apply --state cluster -f roles.toml
        for one in bob:auditor carol:helper; do
            "$F" user add --state cluster "${{one%:*}}" --role "${{one#*:}}" > invite
            "$F" login --home "home-${{one%:*}}" --proxy 127.0.0.1:3080 --invite-file invite --password-file password \
                --authenticator totp --no-agent
        done"#
    ));
    cluster.up("node", OWN_PORT);
    cluster.script(r#"again "$F" ssh --home home ada@gate true"#);
    cluster
}

#[test]
fn two_watch_and_one_joins_and_all_see_the_same() {
    needs_root!("a node that serves other accounts");
    all_see_the_same("full");
}

#[test]
fn the_same_of_a_session_that_is_not_recorded() {
    needs_root!("a node that serves other accounts");
    all_see_the_same("events");
}

fn all_see_the_same(recording: &str) {
    cluster(recording).script(&format!(
            r#"{TOOLS}
            sits
            type_ 'clear; printf "\033]0;title\007\033]52;c;aGFybQ==\007\033[32mgreen\033[0m before-%s\n" $((2+2))'
            until_ shows ada.out before-4
            sees bob > bob.1 2> bob.err &
            first=$!
            until_ told session_watched 1
            # Who may watch only does not type, whatever is typed at him.
            echo 'echo from-bob' | sees bob > bob.2 &
            second=$!
            until_ told session_watched 2
            mkfifo joined
            "$F" sessions join "$id" --home home-carol --node gate < joined > carol.out &
            third=$!
            exec 8> joined
            until_ told session_joined 1
            until_ shows ada.out 'carol has joined this session and can type'
            shows ada.out 'bob watches this session'
            type_ 'clear; echo from-$((5+6))-ada'
            until_ shows ada.out from-11-ada
            printf 'echo from-$((3+4))-carol\n' >&8
            until_ shows ada.out from-7-carol
            # Others are to have a place. Ada has no role that lets her see.
            sees bob > bob.3 2> bob.err && exit 1
            has "$(cat bob.err)" '2 times already'
            "$F" sessions watch "$id" --home home --node gate > ada.2 2> refused && exit 1
            has "$(cat refused)" 'role'
            "$F" sessions join "$id" --home home-bob --node gate < /dev/null > bob.4 2> bob.err && exit 1
            has "$(cat bob.err)" 'join'
            type_ 'printf "\033[7mthe\033[0m end\n"; exit 3'
            wait $ada && exit 1 || is $? 3
            wait $first $second $third
            has "$(cat bob.1)" from-7-carol
            has "$(cat bob.1)" 'the end'
            is "$(cat bob.2)" "$(cat bob.1)"
            is "$(cat carol.out)" "$(cat bob.1)"
            ! shows ada.out from-bob
            until_ told viewer_left 3
            if [ {recording} = full ]; then
                "$F" sessions export "$id" --directory recordings --json > frames
                python3 - <<'END'
import json
frames = [json.loads(line) for line in open("frames")]
events = [frame["data"]["event"] for frame in frames if frame["kind"] == "event"]
assert events.count("session_watched") == 2 and events.count("session_joined") == 1, events
typed = "".join(frame.get("text", "") for frame in frames if frame["kind"] == "input")
assert "-carol" in typed, typed
END
            fi"#
        ));
}

#[test]
fn an_auditor_names_no_node_for_a_session_that_is_recorded() {
    needs_root!("a node that serves other accounts");
    cluster("output").script(&format!(
        r#"{TOOLS}
        sits
        # Auth has nothing of it yet, and tells bob nothing of sessions that are not recorded.
        "$F" sessions watch "$id" --home home-bob > bob.1 2> bob.err && exit 1
        has "$(cat bob.err)" 'give `--node NODE`. A session that is not recorded always needs it'
        "$F" sessions ls --home home-bob > bob.1 2> bob.err && exit 1
        has "$(cat bob.err)" 'sessions ls --running --cluster'
        # Blocks that are full go to auth.
        type_ 'head -c 200000 /dev/urandom | base64; echo all-$((1+1))-there'
        until_ shows ada.out all-2-there
        listed() {{ "$F" sessions ls --running --home home-bob --json | grep -q "$id"; }}
        until_ listed
        has "$("$F" sessions ls --running --home home-bob)" '  gate  '
        "$F" sessions watch "${{id:0:8}}" --home home-bob > bob.1 2> bob.err &
        viewer=$!
        until_ told session_watched 1
        type_ 'clear; echo the-$((2+1))-end; exit'
        wait $ada || true
        wait $viewer
        has "$(cat bob.1)" the-3-end
        ended() {{ ! listed; }}
        until_ ended
        "$F" sessions watch "$id" --home home-bob > bob.1 2> bob.err && exit 1 || is $? 1
        has "$(cat bob.err)" "has ended: see it with \`fleetgate sessions play $id --cluster\`""#
    ));
}

#[test]
fn a_lock_and_the_end_of_a_session_end_those_who_see_it() {
    needs_root!("a node that serves other accounts");
    cluster("output").script(&format!(
        r#"{TOOLS}
        sits
        sees bob > bob.1 2> bob.err &
        viewer=$!
        until_ told session_watched 1
        # A lock on the viewer.
        "$F" lock add --state cluster --user bob --reason "on holiday" > locked
        wait $viewer || true
        until_ told viewer_left 1
        type_ 'echo on-goes-$((1+2))'
        until_ shows ada.out on-goes-3
        # His role is another.
        "$F" sessions join "$id" --home home-carol --node gate < /dev/null > carol.1 2> carol.err &
        viewer=$!
        until_ told session_joined 1
        printf '[role.helper]\nnodes = ["*"]\nlogins = ["bea"]\n[role.helper.recordings]\nof = ["nobody"]\nmay = ["join"]\n' > role.toml
        "$F" role apply --state cluster -f role.toml
        wait $viewer || true
        until_ told viewer_left 2
        has "$(cat carol.err)" role
        printf '[role.helper]\nnodes = ["*"]\nlogins = ["bea"]\n[role.helper.recordings]\nof = ["*"]\nmay = ["watch"]\n' > role.toml
        "$F" role apply --state cluster -f role.toml
        again_sees() {{ sees carol > carol.2 2> carol.err & viewer=$!; sleep 0.3; told session_watched 2; }}
        until_ again_sees
        # A lock on whose session it is.
        "$F" lock add --state cluster --user ada --reason "for a test" > locked
        wait $ada && exit 1
        wait $viewer || true
        until_ told viewer_left 3"#
    ));
}

#[test]
fn a_viewer_who_does_not_read_holds_up_nobody() {
    needs_root!("a node that serves other accounts");
    cluster("output").script(&format!(
        r#"{TOOLS}
        sits
        setsid "$F" sessions watch "$id" --home home-bob --node gate > bob.1 2> bob.err &
        viewer=$!
        until_ told session_watched 1
        # The program that asked, and the connection that it has.
        kill -STOP -- -$viewer
        for _ in 1 2 3 4; do type_ 'seq 400000; echo done-$((4+4))'; done
        type_ 'echo all-$((5+5))'
        for _ in $(seq 60); do shows ada.out all-10 && break; sleep 0.5; done
        shows ada.out all-10
        kill -CONT -- -$viewer
        type_ 'clear; echo the-end-$((6+6)); exit'
        wait $ada
        wait $viewer || true
        until_ told viewer_left 1"#
    ));
}

#[test]
fn what_a_session_prints_does_nothing_to_a_viewers_terminal() {
    needs_root!("a node that serves other accounts");
    cluster("output").script(&format!(
        r#"{TOOLS}
        sits
        # What is typed would be shown, and is only text.
        type_ 'stty -echo; clear; echo quiet-$((3+3))'
        until_ shows ada.out quiet-6
        script -qfec "stty rows 10 cols 60; $F sessions watch $id --home home-bob --node gate" typescript < /dev/null > /dev/null &
        viewer=$!
        until_ told session_watched 1
        type_ 'printf "\033]0;owned\007\033]52;c;aGFybQ==\007\033Pq#0\033\\\\\033[6n\033[c\033]8;;http://x\007link\033]8;;\007"; echo seen-$((7+7))'
        until_ shows typescript seen-14
        type_ exit
        wait $ada
        wait $viewer || true
        python3 - <<'END'
data = open("typescript", "rb").read()
for bad in (b"\x1b]", b"\x1bP", b"\x1b[6n", b"\x1b[c", b"owned", b"aGFybQ"):
    assert bad not in data, (bad, data)
assert b"bob" in data, data
END"#
    ));
}

#[test]
fn what_was_shown_before_is_opened_with_a_key_where_it_is_encrypted() {
    needs_root!("a node that serves other accounts");
    cluster_with("output", &format!("recipients = [\"{PUBLIC}\"]\\n")).script(&format!(
        r#"{TOOLS}
        sits
        type_ 'clear; echo before-$((2+2))'
        until_ shows ada.out before-4
        printf '%s\n' '{SECRET}' > key
        chmod 600 key
        sees bob --identity key > bob.1 2> bob.err &
        first=$!
        sees bob > bob.2 2> bob.err.2 &
        second=$!
        until_ told session_watched 2
        type_ 'echo after-$((3+3)); exit'
        wait $ada
        wait $first $second
        has "$(cat bob.1)" before-4
        has "$(cat bob.1)" after-6
        has "$(cat bob.2)" after-6
        ! shows bob.2 before-4
        ! grep -rq before-4 recordings"#
    ));
}

#[test]
fn what_a_node_refuses_is_asked_for_once() {
    needs_root!("a node that serves other accounts");
    cluster("output").script(&format!(
        r#"{TOOLS}
        count() {{ "$F" audit --state cluster --json --event "$@" | wc -l; }}
        id=0123456789abcdef
        sees bob > bob.1 2> bob.err && exit 1 || is $? 255
        has "$(cat bob.err)" 'no session with the id'
        is "$(grep -c 'no session with the id' bob.err)" 1
        # No recording can be made: a file is where the directory should be.
        mv recordings recordings.away
        : > recordings
        "$F" ssh --home home ada@gate true 2> ada.err && exit 1 || is $? 255
        has "$(cat ada.err)" 'has to be recorded, and cannot be'
        is "$(grep -c 'has to be recorded, and cannot be' ada.err)" 1
        rm recordings
        mv recordings.away recordings
        "$F" ssh --home home ada@gate 'echo last'
        last() {{ "$F" audit --state cluster --json --event session_started | grep -q 'echo last'; }}
        until_ last
        is "$(count denied)" 1
        is "$(count session_refused)" 1
        is "$(count not_recorded)" 1
        # It is found by whose session it was, although none began.
        is "$(count not_recorded --user ada)" 1"#
    ));
}

/// Runs the script; between its files `sitting` and `go-on` the node's processes of this name stand still, as `stopped` says.
fn with_stopped(cluster: &Cluster, name: &str, script: &str) {
    let place = |name: &str| format!("{DIR}/{name}");
    let is_there = |name: &str| wait_until(name, || Path::new(&place(name)).exists());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            is_there("sitting");
            let up = cluster.running("node").expect("it runs");
            let mut all = descendants(up);
            all.retain(|pid| command_line(*pid).starts_with(name));
            assert!(!all.is_empty(), "no {name}");
            all.iter().copied().for_each(stop);
            std::fs::write(place("stopped"), "").expect("written");
            is_there("go-on");
            all.into_iter().for_each(go_on);
        });
        cluster.script(&format!("{TOOLS}{script}"));
    });
}

#[test]
fn who_would_wait_for_a_recorder_that_stands_still_is_told_why_not() {
    needs_root!("a node that serves other accounts");
    with_stopped(
        &cluster("output"),
        "fleetgate-recorder",
        r#"
        sits
        : > sitting
        until_ [ -e stopped ]
        timeout 60 "$F" sessions watch "$id" --home home-bob --node gate > bob.1 2> bob.err && exit 1 || is $? 255
        : > go-on
        has "$(cat bob.err)" "the session's recording is behind"
        # He comes as soon as it is not.
        sees bob > bob.2 2> bob.err &
        viewer=$!
        until_ told session_watched 1
        type_ 'echo seen-$((4+5)); exit'
        wait $ada
        wait $viewer
        has "$(cat bob.2)" seen-9"#,
    );
}

#[test]
fn who_watches_sees_what_a_session_shows_last() {
    needs_root!("a node that serves other accounts");
    // The fronts hear of the session's end together with what it showed last.
    with_stopped(
        &cluster("events"),
        "fleetgate-front",
        r#"
        sits
        sees bob > bob.1 2> bob.err &
        viewer=$!
        until_ told session_watched 1
        type_ 'echo soon; until [ -e /run/test/stopped ]; do sleep 0.1; done; echo last-$((4+4)); exit'
        until_ shows ada.out soon
        : > sitting
        until_ told session_ended 2
        : > go-on
        wait $ada $viewer
        has "$(cat bob.1)" last-8"#,
    );
}

#[test]
fn one_user_leaves_places_of_viewers_to_others() {
    needs_root!("a node that serves other accounts");
    cluster("events").script(&format!(
        r#"{TOOLS}
        for n in 1 2 3 4 5; do
            mkfifo keys.$n
            "$F" ssh --home home -tt ada@gate sh < keys.$n > ada.$n 2>&1 &
            exec {{keys}}> keys.$n
        done
        ids() {{
            "$F" sessions ls --state cluster --json | python3 -c '
import json, sys
print(*(one["session"] for one in json.load(sys.stdin)["sessions"] if one.get("command") == "sh"), sep="\n")' > ids
            is_ "$(wc -l < ids)" 5
        }}
        is_() {{ [ "$1" = "$2" ]; }}
        until_ ids
        for id in $(head -n 4 ids); do sees bob > bob.out 2>&1 & done
        until_ told session_watched 4
        id=$(tail -n 1 ids)
        timeout 60 "$F" sessions watch "$id" --home home-bob --node gate > bob.out 2> bob.err && exit 1 || is $? 255
        has "$(cat bob.err)" 'you see 4 sessions of this node already'
        "$F" sessions join "$id" --home home-carol --node gate < /dev/null > carol.out &
        until_ told session_joined 1"#
    ));
}

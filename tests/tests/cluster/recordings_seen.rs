//! Recordings that the cluster keeps, read from anywhere: by roles, by the unix socket, and by nobody else.

use fleetgate_tests::cluster::{Cluster, OWN_PORT, PROXY, STATE};
use fleetgate_tests::needs_root;

const TOOLS: &str = r#"
is() { [ "$1" = "$2" ] || { echo "'$1' is not '$2'" >&2; exit 1; }; }
has() { case "$1" in *"$2"*) ;; *) echo "no '$2' in '$1'" >&2; exit 1 ;; esac; }
# The exit code of a command, and what it says in `said`.
code() { local code=0; "$@" > said 2>&1 || code=$?; echo "$code"; }
sessions() { local what=$1 home=$2; shift 2; "$F" sessions "$what" --home "$home" "$@"; }
ids() { "$F" sessions ls --recorded --json "$@" | python3 -c '
import json, sys
print(*(one["session"] for one in json.load(sys.stdin)["recordings"] if "ended" in one))'; }
events() { "$F" audit --state cluster --json --event "$1"; }
"#;

/// A person, with a role of the same name or none, logged in in a home of that name.
const PERSON: &str = r#"
person() {
    echo "a long password of $1" > "$1.password"
    umask 077
    "$F" user add --state cluster "$1" --role "$2" > "$1.invite"
    # So many from one address have to wait for a moment.
    for _ in $(seq 5); do
        "$F" login --home "$1" --proxy 127.0.0.1:3080 --invite-file "$1.invite" --password-file "$1.password" \
            --authenticator totp --no-agent > tried 2>&1 && return
        sleep 10
    done
    cat tried >&2
    return 1
}
cat > seen.toml <<'END'
[role.auditor.recordings]
of = ["*"]
nodes = ["place=cellar"]
may = ["play"]

[role.elsewhere.recordings]
of = ["*"]
nodes = ["place=attic"]
may = ["play"]

[role.own]
nodes = ["*"]
logins = ["root"]
recording = "output"
[role.own.recordings]
of = ["{user}"]
may = ["play", "delete"]
END
"$F" role apply --state cluster -f seen.toml
person eve auditor
person max elsewhere
person bea own
"#;

#[test]
fn roles_say_who_sees_recordings_and_each_reading_is_an_event() {
    needs_root!("a node that serves other accounts");
    let mut cluster = Cluster::new();
    cluster.join_node();
    cluster.script(&format!(
        r#"printf '[node.recording]\ndirectory = "/run/test/recordings"\n' >> node/fleetgate.toml
        role '"ada"' 'kinds = ["all"]
recording = "output"
recording_keep = "30d"'
        {PERSON}"#
    ));
    cluster.up("node", OWN_PORT);
    cluster.script(&format!(
        r#"{TOOLS}
        again "$F" ssh --home home ada@gate true
        "$F" ssh --home home ada@gate echo the needle of ada
        "$F" ssh --home bea root@gate echo the needle of bea
        kept() {{ [ "$(ids --state cluster | wc -w)" = 3 ]; }}
        for _ in $(seq 200); do ! kept || break; sleep 0.1; done
        kept
        bea=$(ids --state cluster --user bea)
        ada=$("$F" sessions ls --recorded --state cluster --json | python3 -c '
import json, sys
print(*(one["session"] for one in json.load(sys.stdin)["recordings"] if one["command"].endswith("of ada")))')

        # By their roles.
        is "$(ids --home eve | wc -w)" 3
        is "$(ids --home bea)" "$bea"
        has "$(sessions play eve "$bea")" 'the needle of bea'
        has "$(sessions export eve "$ada" --json)" '"keep_days":30'
        has "$(sessions grep eve needle)" "sessions play $ada"
        has "$(sessions grep eve needle)" "--home eve"
        is "$(code sessions grep bea 'needle of ada')" 1
        has "$(sessions verify eve "$ada")" good
        has "$(sessions verify eve --all)" 'keys as auth knows them'
        has "$(sessions verify eve --all --json)" '"keys": "as auth knows them"'
        ssh-keygen -q -t ed25519 -N '' -f another
        is "$(code sessions verify eve "$ada" --key another.pub)" 1
        has "$(sessions play eve --last)" 'the needle of bea'

        # And nobody else.
        is "$(code sessions ls home --recorded)" 1
        has "$(cat said)" 'ada has no role that may list recordings'
        is "$(code sessions play home "$ada")" 1
        is "$(ids --home max)" ''
        is "$(code sessions play max "$ada")" 1
        has "$(cat said)" "there is no recording $ada that you may see"
        is "$(code sessions play bea "$ada")" 1

        # Each reading is an event, and each refusal.
        events recording_played > told
        is "$(grep '"by":"user eve"' told | grep -c '"purpose":"play"')" 2
        is "$(grep '"by":"user eve"' told | grep '"purpose":"grep"' | grep -c '"user":"ada"')" 4
        has "$(grep '"purpose":"verify"' told | head -n 1)" "\"session\":\"$ada\""
        events recording_refused > told
        has "$(cat told)" '"by":"user max"'
        has "$(cat told)" 'no role'

        # Removal: a question that nobody can answer, one's own, and no other's.
        is "$(code sessions rm eve "$ada" --yes)" 1
        is "$(code setsid "$F" sessions rm --home bea "$bea")" 2
        has "$(cat said)" '--yes'
        is "$(code sessions rm bea "$ada" --yes)" 1
        has "$(sessions rm bea "${{bea:0:12}}" --yes)" "$bea was removed"
        is "$(ids --home bea)" ''
        is "$(ids --state cluster | wc -w)" 2
        has "$(events recording_deleted)" "\"session\":\"$bea\""
        has "$("$F" sessions rm --state cluster "$ada" --yes --json)" "$ada"

        # Both at once make no sense, and an unknown directory is a mistake of the command line.
        is "$(code "$F" sessions ls --cluster --directory recordings)" 2
        is "$(code "$F" sessions ls --directory nowhere)" 2

        # It is told.
        has "$("$F" role ls --state cluster)" 'play: of *, on place=cellar, as *'
        has "$("$F" role test --state cluster eve@gate || true)" 'by role auditor: play: of *, on place=cellar, as *'
        has "$("$F" role test --state cluster ada@gate)" 'recorded (output, kept for 30d), or it ends'"#
    ));
}

#[test]
fn doctor_says_why_the_store_takes_no_recordings() {
    needs_root!("a node that serves other accounts");
    let mut cluster = Cluster::new();
    cluster.join_node();
    cluster.script(
        r#"printf '[node.recording]\ndirectory = "/run/test/recordings"\n' >> node/fleetgate.toml
        role '"ada"' 'kinds = ["all"]
recording = "output"'
        umask 077
        printf 'aws_access_key_id = a\naws_secret_access_key = b\n' > s3-keys
        cat >> cluster/fleetgate.toml <<'END'
[auth.recordings]
max_size = "1G"
store = "s3://recordings"
endpoint = "http://127.0.0.1:18099"
credentials = "/run/test/s3-keys"
END"#,
    );
    cluster.down(STATE);
    cluster.up(STATE, PROXY);
    cluster.up("node", OWN_PORT);
    cluster.script(&format!(
        r#"{TOOLS}
        trap 'kill $(jobs -p) 2> killed || true' EXIT
        says() {{ "$F" doctor --config cluster/fleetgate.toml > doctor || true; grep -A 1 'auth recordings' doctor | grep -q -e "$1"; }}
        # auth waits twice as long after each failure.
        until_says() {{ for _ in $(seq 100); do if says "$1"; then return; fi; sleep 0.5; done; cat doctor >&2; return 1; }}
        # The store is there, and refuses.
        python3 - <<'END' &
import http.server
class Refuses(http.server.BaseHTTPRequestHandler):
    def do_PUT(self):
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.send_error(403)
    def log_message(self, *_):
        pass
http.server.HTTPServer(("127.0.0.1", 18099), Refuses).serve_forever()
END
        refuses=$!
        again "$F" ssh --home home ada@gate true
        until_says "-> the store refuses auth's keys: correct the file"
        has "$(cat doctor)" ' wait for the object store, the oldest for '
        has "$(cat doctor)" '403 Forbidden'
        # It is away.
        kill $refuses
        until_says '-> see that the store runs, and that this machine reaches'
        has "$(cat doctor)" 'Connection refused'"#
    ));
}

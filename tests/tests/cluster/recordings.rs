//! Recordings that roles ask for: by `fleetgate ssh` and plain ssh, read with the commands on the node.

use fleetgate_tests::cluster::{Cluster, OWN_PORT};
use fleetgate_tests::needs_root;

const TOOLS: &str = r#"
is() { [ "$1" = "$2" ] || { echo "'$1' is not '$2'" >&2; exit 1; }; }
has() { case "$1" in *"$2"*) ;; *) echo "no '$2' in '$1'" >&2; exit 1 ;; esac; }
sessions() { local what=$1; shift; "$F" sessions "$what" --directory /run/test/recordings "$@"; }
# What of the recordings, as Python has it in `all`, the first one first.
listed() { sessions ls --json | python3 -c '
import json, sys
all = sorted(json.load(sys.stdin)["recordings"], key=lambda one: one["since"])
print('"$1"')'; }
whole() { for _ in $(seq 200); do if [ "$(find recordings -name '*.rec' | wc -l)" = "$1" ] && [ -z "$(find recordings -name '*.tail')" ]; then return; fi; sleep 0.05; done; find recordings >&2; return 1; }
"#;

fn cluster() -> Cluster {
    let mut cluster = Cluster::new();
    cluster.join_node();
    cluster.script(
        r#"printf '[node.recording]\ndirectory = "/run/test/recordings"\n' >> node/fleetgate.toml
        role '"ada"' 'kinds = ["all"]
recording = "full"'"#,
    );
    cluster.up("node", OWN_PORT);
    cluster
}

#[test]
fn what_a_role_wants_recorded_is_and_can_be_read() {
    needs_root!("a node that serves other accounts");
    cluster().script(&format!(
        r#"{TOOLS}
        again "$F" ssh --home home ada@gate true
        whole 1
        "$F" ssh --home home -tt ada@gate 'printf "the \033[32mneedle\033[0m is here\n"; stty size' > shown
        whole 2
        echo typed in | "$F" ssh --home home ada@gate 'cat; echo wrong >&2; exit 3' > out 2> err || is $? 3
        is "$(cat out)" 'typed in'
        whole 3
        is "$(listed 'len(all), all[1]["user"], all[1]["login"], all[1]["node"], all[1]["recording"]')" '3 ada ada gate full'
        id=$(listed 'all[1]["session"]')
        has "$(sessions play "$id")" 'the needle is here'
        has "$(sessions grep needle)" "sessions play $id"
        has "$(sessions grep -E 'needle. is|wrong')" wrong
        sessions grep nothing-has-this && exit 1 || is $? 1
        sessions verify --all --key host_ed25519.pub > verified
        is "$(grep -c ' good ' verified)" 3
        sessions export "$id" --svg | python3 -c 'import sys, xml.dom.minidom as dom; dom.parse(sys.stdin)'
        is "$(sessions export "$id" --json | python3 -c '
import json, sys
print(*sorted({{json.loads(line)["kind"] for line in sys.stdin}}))')" 'begin end output signature'
        is "$(sessions export "$(listed 'all[2]["session"]')" --json | python3 -c '
import json, sys
print(*(line.get("text") for line in map(json.loads, sys.stdin) if line["kind"] in ("stdin", "stdout", "stderr")))' | xargs)" \
            'typed in typed in wrong'
        # A byte is changed, an end cut off, another key.
        file=$(find recordings -name "$id.rec")
        cp "$file" kept
        printf x | dd of="$file" bs=1 seek=200 conv=notrunc status=none
        sessions verify "$id" --key host_ed25519.pub > verified && exit 1
        has "$(cat verified)" 'the bytes of a block were changed'
        head -c 400 kept > "$file"
        sessions verify "$id" --key host_ed25519.pub > verified && exit 1
        cp kept "$file"
        ssh-keygen -q -t ed25519 -N '' -f another
        sessions verify "$id" --key another.pub > verified && exit 1
        has "$(cat verified)" SHA256:
        sessions verify "$id" --key host_ed25519.pub > verified
        # The role wants it no more.
        role '"ada"' 'kinds = ["all"]'
        again sh -c '"$0" ssh --home home ada@gate true && ! find recordings -name "*.tail" | grep -q .' "$F"
        before=$(find recordings -name '*.rec' | wc -l)
        "$F" ssh --home home ada@gate echo unrecorded
        is "$(find recordings -name '*.rec' | wc -l)" "$before"
        "$F" audit --state cluster --json --event recorded > told
        [ "$(wc -l < told)" -ge 3 ]"#
    ));
}

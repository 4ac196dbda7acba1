# shellcheck shell=bash
# Words for the tests of `cluster/backups.rs`.
ids() {
    "$F" sessions ls --state cluster --json "$@" |
        python3 -c 'import json, sys; print("\n".join(s["session"] for s in json.load(sys.stdin)["sessions"]))'
}

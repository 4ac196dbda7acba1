# shellcheck shell=bash
# Words for the tests of `cluster/kept_connection.rs`.
masters() {
    for p in /proc/[0-9]*; do
        [ "$(readlink "$p/ns/mnt")" = "$(readlink /proc/self/ns/mnt)" ] || continue
        if tr '\0' ' ' 2> /dev/null < "$p/cmdline" | grep -q '^fleetgate-master /run/test/home '; then echo "${p#/proc/}"; fi
    done
}
nobody() { until [ -z "$(masters)" ]; do sleep 0.05; done; }
end_all() { for p in $(masters); do kill "$@" "$p"; done; nobody; }
steps() {
    "$F" ssh --home home --explain=json "$@" ada@gate true 2>&1 | python3 -c '
import json, sys
said = sys.stdin.read().splitlines()[-1]
print(*[s["name"] for s in json.loads(said)["spans"] if s["place"] == "client"], sep=", ")'
}
reached() { ss -Htn state established '( dport = :3080 )' | wc -l; }
plain() {
    ssh -F home.config -o ProxyCommand="$F proxy-command --home home --login %r %h %p" ada@gate.test "$@"
}
is() { [ "$1" = "$2" ] || { echo "'$1' is not '$2'" >&2; exit 1; }; }
COLD='kept connection, tcp, tls, key exchange, login and command'
WARM='kept connection, key exchange, login and command'
OWN='tcp, tls, key exchange, login and command'

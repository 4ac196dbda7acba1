# shellcheck shell=bash
# Words for the tests of `cluster/exports.rs`: certificates for the receivers, and the sections that name them.
make_receivers() {
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout ca.key -out ca.pem -subj /CN=siem \
        -addext basicConstraints=critical,CA:TRUE -days 2 2> /dev/null
    openssl req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout siem.key -out siem.csr -subj /CN=siem 2> /dev/null
    printf 'subjectAltName=IP:127.0.0.1,DNS:siem.test\nbasicConstraints=CA:FALSE\n' > siem.ext
    openssl x509 -req -in siem.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -extfile siem.ext -out siem.pem 2> /dev/null
    (umask 077; echo 'a signing key of the test' > signing.key; echo 'X-Token: let me in' > headers)
    sed -i 's,^\[auth\]$,&\nmetrics = "127.0.0.1:9101",' cluster/fleetgate.toml
    cat >> cluster/fleetgate.toml <<END
[[auth.export]]
name = "siem"
type = "syslog"
address = "127.0.0.1:6514"
server_name = "siem.test"
ca = "$PWD/ca.pem"
[[auth.export]]
name = "otel"
type = "otlp"
endpoint = "http://localhost:4318"
[[auth.export]]
name = "hook"
type = "webhook"
url = "https://127.0.0.1:8443/in"
ca = "$PWD/ca.pem"
headers_file = "$PWD/headers"
signing_key_file = "$PWD/signing.key"
END
}
kill_auth() {
    local before
    before=$(service auth)
    kill -KILL "${before#/proc/}"
    until after=$(service auth) && [ -n "$after" ] && [ "$after" != "$before" ] && "$F" user ls --state cluster > /dev/null 2>&1; do
        sleep 0.05
    done
}
# Waits until each of these has all events of the log, and each for the first time in its turn.
all_got() {
    python3 - "$@" <<'END'
import sqlite3, sys, time
deadline = time.monotonic() + 120
def look(name):
    try:
        got = [int(n) for n in open(name + ".got")]
    except FileNotFoundError:
        return False
    log = sqlite3.connect("file:cluster/auth/audit.db?mode=ro", uri=True)
    events = [n for n, in log.execute("SELECT id FROM events ORDER BY id")]
    firsts = list(dict.fromkeys(got))
    if firsts != events[:len(firsts)]:
        sys.exit(f"{name}: {firsts} is not a beginning of {events}")
    return len(firsts) == len(events)
while not all([look(name) for name in sys.argv[1:]]):
    if time.monotonic() > deadline:
        sys.exit("they do not get all events")
    time.sleep(0.1)
END
}
page() { python3 -c 'import sys, urllib.request; print(urllib.request.urlopen(sys.argv[1]).read().decode())' "$1"; }

//! What a monitoring host keeps: connections that are wanted for always, and a login that is renewed with nobody there.

use super::checks::{TOOLS, cluster};
use fleetgate_tests::cluster::OWN_PORT;
use fleetgate_tests::needs_root;
use fleetgate_tests::world::wait_until;
use std::net::TcpStream;

#[test]
fn a_connection_that_is_wanted_for_always_is_made_anew() {
    needs_root!("a node that serves other accounts");
    let mut cluster = cluster();
    let tools = format!(
        r#"{TOOLS}
        status() {{ "$F" master status --home home; }}
        always() {{ status | grep '^ada@gate ' | grep -c 'not used for .* kept for as long as the login lasts'; }}
        until_always() {{ for _ in $(seq 400); do if [ "$(always)" = 1 ]; then return; fi; sleep 0.05; done; status >&2; return 1; }}
        "#
    );
    cluster.script(&format!(
        r#"{tools}
        begin
        is "$(always || true)" 0
        told 0 hello -H gate -c greeting --keep always
        until_always
        # Who uses it in between and keeps it for less changes nothing.
        told 0 hello -H gate -c greeting --keep 1
        "$F" ssh --home home -o ControlPersist=1 ada@gate true || true
        sleep 1.5
        is "$(always)" 1
        is "$("$F" master status --home home --json | python3 -c '
import json, sys
print([c["keep"] for c in json.load(sys.stdin)["masters"][0]["connections"] if c["name"] == "ada@gate"])')" '[None]'
        masters > before"#
    ));
    cluster.down("node");
    wait_until("all of it has ended", || TcpStream::connect(OWN_PORT).is_err());
    cluster.up("node", OWN_PORT);
    // Nobody asks for it.
    cluster.script(&format!(
        r#"{tools}
        until [ "$(grep -c 'a tunnel is there' cluster.log)" -ge 2 ]; do sleep 0.05; done
        until_always
        is "$(masters)" "$(cat before)"
        told 0 hello -H gate -c greeting -t 60
        # What is not there is not tried again and again; nor is what the role takes away.
        told 3 'UNKNOWN - nowhere greeting: ' -H nowhere -c greeting --keep always
        sleep 2
        "$F" master status --home home > said
        ! grep nowhere said || exit 1
        role '"root"'
        until [ "$(always || true)" = 0 ]; do sleep 0.05; done
        sleep 3
        tries() {{ "$F" audit --state cluster --json --event login_refused | wc -l; }}
        before=$(tries)
        sleep 3
        is "$(tries)" "$before"
        "$F" master status --home home > said || true
        ! grep '^ada@gate' said || exit 1
        "$F" master stop --home home
        nobody"#
    ));
}

#[test]
fn a_monitoring_hosts_login_is_renewed_with_nobody_there() {
    needs_root!("a node that serves other accounts");
    let cluster = cluster();
    cluster.script(&format!(
        r#"{TOOLS}
        limits='kinds = []
commands = ["greeting", "state"]
lifetime = "1m"'
        role '"ada"' "$limits"
        again "$F" login --home home --password-file password --authenticator totp --no-agent
        begin
        if "$F" login --home home --renew --no-agent 2> said; then exit 1; fi
        grep -q 'not each of its roles has `renewal`' said
        role '"ada"' "$limits"'
renewal = "1h"'
        again "$F" login --home home --password-file password --authenticator totp --no-agent
        "$F" status --home home | grep -q '^holds  *for .*; by its roles as they were then it can be renewed for '
        expires() {{ "$F" status --home home --json | python3 -c 'import json, sys; print(json.load(sys.stdin)["expires"])'; }}
        first=$(expires)
        sha256sum home/id home/tls.key > keys
        told 0 hello -H gate -c greeting --keep always
        masters > before
        # A session that has begun lives on, and later checks show the new certificate.
        while [ "$(date +%s)" -le "$((first + 1))" ]; do told 0 hello -H gate -c greeting; sleep 0.5; done
        [ "$(expires)" -gt "$first" ]
        is "$(masters)" "$(cat before)"
        sha256sum --quiet -c keys
        "$F" audit --state cluster --json --event login_refreshed | grep -q '"renewed":true'
        # By hand, too; the master goes on with that one.
        second=$(expires)
        sleep 1
        "$F" login --home home --renew --no-agent | grep -q '^holds '
        [ "$(expires)" -gt "$second" ]
        told 0 hello -H gate -c greeting
        is "$(masters)" "$(cat before)"
        # A lock ends it.
        "$F" lock add --state cluster --user ada
        told 3 'UNKNOWN - gate greeting: ' -H gate -c greeting
        if "$F" login --home home --renew --no-agent 2> said; then exit 1; fi
        grep -q 'ada is locked' said"#
    ));
}

#[test]
fn a_master_that_is_run_by_a_service_manager_stays_without_commands() {
    needs_root!("a node that serves other accounts");
    let cluster = cluster();
    cluster.script(&format!(
        r#"{TOOLS}
        begin
        "$F" master stop --home home; nobody
        # One that nobody runs ends with what its last command wanted kept.
        told 0 hello -H gate -c greeting --keep 1
        nobody
        "$F" master run --home home > ran & run=$!
        until grep -q '^the master runs, process ' ran; do sleep 0.05; done
        masters > before
        grep -qx "the master runs, process $(cat before)" ran
        told 0 hello -H gate -c greeting --keep 1
        sleep 3
        is "$(masters)" "$(cat before)"
        # Another one holds the same master, and each its own share.
        "$F" master run --home home > second & second=$!
        until [ -s second ]; do sleep 0.05; done
        is "$(cat second)" "$(cat ran)"
        kill $second; wait $second || true
        told 0 hello -H gate -c greeting --keep 1
        sleep 3
        is "$(masters)" "$(cat before)"
        "$F" master stop --home home
        wait $run
        is "$(tail -n 1 ran)" 'the master has ended'
        nobody
        "$F" master run --home home > third & run=$!
        until [ -s third ]; do sleep 0.05; done
        # Where no master can listen, none is said to run.
        "$F" master stop --home home; nobody; wait $run
        flock -o home/mux/master.lock sleep 60 > /dev/null 2>&1 & held=$!
        if "$F" master run --home home > fourth 2> said; then exit 1; fi
        [ ! -s fourth ]; grep -q 'no master can listen there' said
        kill $held; wait $held || true
        "$F" master run --home home > fifth & run=$!
        until [ -s fifth ]; do sleep 0.05; done
        "$F" logout --home home
        # It may end a moment before the login's files are gone.
        wait $run || true
        if "$F" master run --home home 2> said; then exit 1; fi
        grep -q 'there is no login in ' said
        is "$("$F" master status --home home || true)" 'no master runs, and there is no login'"#
    ));
}

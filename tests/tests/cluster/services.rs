//! What the cluster's services have given up while they serve, as the kernel tells it: auth holds the authorities' keys, and
//! strangers talk to both.

use fleetgate_tests::cluster::Cluster;
use fleetgate_tests::needs_root;
use fleetgate_tests::service::{go_on, stop};

/// `service ROLE` prints where /proc has the role's process: auth as its socket tells it, and what has the same parent.
const TOOLS: &str = include_str!("../../scripts/services.sh");

#[test]
fn services_have_given_up_what_they_do_not_need() {
    needs_root!("services that give up root");
    let cluster = Cluster::with_node();
    let script = |text: &str| cluster.script(&format!("{TOOLS}{text}"));
    script(
        r#"
        "$F" ssh --home home ada@gate true
        for role in auth proxy; do
            p=$(service "$role")
            [ "$(ls "$p/task" | wc -l)" -ge 1 ]
            is "$(told Seccomp_filters "$p")" "Seccomp_filters:$((FILTERS + 1))"
            is "$(told NoNewPrivs "$p")" NoNewPrivs:1
            is "$(grep '^Max core' "$p/limits" | tr -s ' ')" 'Max core file size 0 0 bytes '
        done
        # Low ports; the proxy has nothing.
        is "$(told CapPrm "$(service auth)")" CapPrm:0000000000000400
        is "$(told CapPrm "$(service proxy)")" CapPrm:0000000000000000
        is "$(told Uid "$(service proxy)" | grep -cw 0)" 0"#,
    );
    // What they are there for goes on: a state that is made again and sent on. A backup, into somebody else's directory too,
    // is copied by who asks for it, and auth writes it down.
    script(
        r#"
        install -d -m 700 -o ada theirs
        "$F" backup --state cluster "$PWD/theirs/kept"
        [ -f theirs/kept/state.db ]
        "$F" audit --state cluster --event backup | grep -F "$PWD/theirs/kept" > /dev/null
        if setpriv --reuid ada --clear-groups "$F" backup --state cluster "$PWD/theirs/mine"; then exit 1; fi
        role '"ada"'
        "$F" ls --home home | grep gate > /dev/null"#,
    );
}

/// A proxy goes on while auth stands still: it refuses logins and writes that down, one event after the other. Auth has all
/// of them when it goes on, by the connection that was there before.
#[test]
fn an_auth_that_stood_still_takes_what_waited() {
    needs_root!("services that give up root");
    let cluster = Cluster::with_node();
    cluster.script(&format!(
        "{TOOLS}{}",
        r#"
        denied() { "$F" audit --state cluster --event dial_denied | grep -c . || true; }
        "$F" ssh --home home ada@gate true
        kill -STOP "$AUTH"
        trap 'kill -CONT "$AUTH"' EXIT
        for n in $(seq 40); do
            if "$F" ssh --home home nobody@gate true 2> refused; then exit 1; fi
        done
        kill -CONT "$AUTH"
        until [ "$(denied)" = 40 ]; do sleep 0.1; done
        is "$(grep -c 'connected to auth' cluster.log)" 1
        if grep -E 'the connection to auth at .* broke|not kept' cluster.log; then exit 1; fi"#
    ));
}

/// With a connection that was kept, and without one.
#[test]
fn a_proxy_that_says_nothing_is_named_and_waited_for_no_longer_than_the_bound() {
    needs_root!("services that give up root");
    let cluster = Cluster::with_node();
    let proxy = cluster.serving("proxy").expect("it runs");
    for command in [
        r#""$F" ls --home home"#,
        r#""$F" ssh --home home ada@gate true"#,
        r#""$F" login --home home --password-file password --authenticator totp --no-agent"#,
    ] {
        for before in [
            r#""$F" ssh --home home ada@gate true"#,
            r#""$F" ssh --home home -O exit || true"#,
        ] {
            cluster.script(before);
            stop(proxy);
            let said = cluster.attempt(&format!("exec 2>&1; {command}"));
            go_on(proxy);
            let said = said.expect_err(command);
            for words in ["waiting for ", "the proxy 127.0.0.1:3080", "no answer within "] {
                assert!(said.contains(words), "{command}, after {before}: {said}");
            }
        }
    }
    cluster.script(r#""$F" ls --home home | grep gate"#);
}

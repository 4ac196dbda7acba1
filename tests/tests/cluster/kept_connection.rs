//! The connection to the proxy that is kept for the next command: who uses it, what ends it, and that nobody is worse off
//! where there is none, or a broken one.

use fleetgate_tests::cluster::{Cluster, STATE};
use fleetgate_tests::{is_root, skip};

/// `masters` prints the numbers of the processes of this test's world that hold a connection for the login; `nobody` waits
/// until there is none, and `end_all` ends them first; `steps` prints what a command of the user's waited for; `reached` how
/// many connections to the proxy there are.
const TOOLS: &str = include_str!("../../scripts/kept_connection.sh");

fn cluster() -> Option<Cluster> {
    match is_root() {
        true => Some(Cluster::with_node()),
        false => {
            skip("a node that serves other accounts needs root");
            None
        }
    }
}

fn script(cluster: &Cluster, text: &str) {
    cluster.script(&format!("{TOOLS}{text}"));
}

/// The script in a cluster of its own.
fn drive(text: &str) {
    if let Some(cluster) = cluster() {
        script(&cluster, text);
    }
}

#[test]
fn later_commands_go_by_the_connection_of_the_first() {
    drive(
        r#"
        end_all
        is "$(steps)" "$COLD"
        master=$(masters)
        is "$(reached)" 2
        # By name, by labels, for a list, and by plain ssh; one beside the other, and with bytes both ways.
        is "$(steps)" "$WARM"
        "$F" ssh --home home ada@place=cellar true
        "$F" ls --home home | grep -q gate
        plain true
        is "$(plain 'exit 7' || echo $?)" 7
        head -c 3000000 /dev/urandom > there
        "$F" ssh --home home ada@gate cat < there | cmp - there & one=$!
        plain cat < there | cmp - there & two=$!
        "$F" ssh --home home ada@gate 'cat > /dev/null; sleep 0.2; echo late' < there > said
        wait $one; wait $two
        is "$(cat said)" late
        is "$(masters)" "$master"
        is "$(reached)" 2
        # It is the user's alone, and holds on to nothing that was the command's.
        is "$(stat -c '%a %U' home/mux)" '700 root'
        is "$(ls -l /proc/$master/fd | grep -c -e /run/test -e /dev/pts)" 1
        ls -l /proc/$master/fd | grep -q 'home/mux/master.lock'
        is "$(tr '\0' '\n' < /proc/$master/environ)" ''
        is "$(readlink /proc/$master/cwd)" /
        # Refusals are the proxy's own, and are not tried again on another connection.
        if "$F" ssh --home home nobody@gate true 2> said; then exit 1; fi
        grep -q 'has the logins ada, bea, root on gate, not nobody' said
        is "$(masters)" "$master""#,
    );
}

#[test]
fn a_connection_is_kept_for_as_long_as_it_is_asked_for_and_for_its_login() {
    drive(
        r#"
        end_all
        is "$(steps -o ControlPersist=no)" "$OWN"
        is "$(masters)" ''
        is "$(steps -o ControlPersist=2s)" "$COLD"
        is "$(steps -o ControlPersist=2s)" "$WARM"
        nobody
        [ ! -e home/mux/master ]
        # Another login, and the end of one. Who is in stays in.
        "$F" ssh --home home ada@gate true
        first=$(masters)
        mkfifo typed
        "$F" ssh --home home ada@gate 'echo in; cat' < typed > in & session=$!
        exec 3> typed
        until grep -qs in in; do sleep 0.05; done
        again "$F" login --home home --mfa --password-file password --authenticator totp --no-agent
        until [ ! -e home/mux/master ]; do sleep 0.05; done
        is "$(steps)" "$COLD"
        kill -0 "$first"
        is "$(masters | wc -l)" 2
        echo stays >&3
        exec 3>&-
        wait $session
        is "$(cat in)" "$(printf 'in\nstays')"
        until ! kill -0 "$first" 2> /dev/null; do sleep 0.05; done
        is "$(steps)" "$WARM"
        "$F" logout --home home
        nobody
        [ ! -e home/mux/master ]"#,
    );
}

#[test]
fn nobody_is_worse_off_for_a_master_that_is_gone_silent_or_in_the_way() {
    drive(
        r#"
        master=$(masters)
        kill -9 "$master"; nobody
        [ -S home/mux/master ]
        is "$(steps)" "$COLD"
        is "$(steps)" "$WARM"
        # One that says nothing.
        kill -STOP "$(masters)"
        "$F" ssh --home home -v -o ConnectTimeout=5 ada@gate true 2> said
        grep -q 'is not kept: the master does not answer' said
        # The next ones do not wait for it, and share one again when it has gone.
        "$F" ssh --home home -v ada@gate true 2> said
        if grep -q 'does not answer' said; then exit 1; fi
        end_all -9
        is "$(steps)" "$COLD"
        is "$(steps)" "$WARM"
        # No place for the socket: each command has its own, and says so where somebody wants to know.
        end_all
        rm -r home/mux; : > home/mux
        is "$(steps)" "$COLD"
        nobody
        rm home/mux
        # Many at once, before there is one: each is served, and one master stays.
        for n in $(seq 12); do "$F" ssh --home home ada@gate "echo in-$n" > "in.$n" & done
        wait
        for n in $(seq 12); do is "$(cat "in.$n")" "in-$n"; done
        until [ "$(masters | wc -l)" = 1 ]; do sleep 0.05; done
        is "$(steps)" "$WARM"
        # No proxy at all, in the same words.
        for keep in no yes; do
            if "$F" ssh --home home --proxy 127.0.0.1:1 -o ControlPersist=$keep ada@gate true 2> $keep; then exit 1; fi
        done
        grep -q 'Connection refused' yes
        is "$(cat yes)" "$(cat no)""#,
    );
}

#[test]
fn a_connection_that_broke_is_made_anew() {
    let Some(mut cluster) = cluster() else {
        return;
    };
    script(&cluster, r#"is "$(steps)" "$WARM""#);
    cluster.down(STATE);
    cluster.up(STATE, fleetgate_tests::cluster::PROXY);
    fleetgate_tests::world::wait_until("the node is back", || {
        cluster.attempt(r#""$F" ssh --home home ada@gate true"#).is_ok()
    });
    script(&cluster, r#"is "$(steps)" "$WARM""#);
}

#[test]
fn sessions_go_by_one_connection_that_the_master_keeps() {
    drive(
        r#"
        end_all
        s() { "$F" ssh --home home "$@"; }
        is "$(s ada@gate 'echo in')" in
        master=$(masters)
        # Exit codes, both outputs, the input's end, bytes as they are, many at once.
        is "$(s ada@gate 'exit 7' || echo $?)" 7
        is "$(s ada@gate 'kill -9 $$' || echo $?)" 255
        s ada@gate 'echo out; echo err >&2' > out 2> err
        is "$(cat out)/$(cat err)" out/err
        is "$(echo typed | s ada@gate cat)" typed
        is "$(echo typed | s -n ada@gate cat)" ''
        head -c 5000000 /dev/urandom > there
        s ada@gate cat < there | cmp - there
        s ada@gate 'cat > /dev/null; echo done' < there > out
        is "$(cat out)" done
        for n in $(seq 40); do s ada@gate "echo in-$n" > "in.$n" & done
        wait $(jobs -p)
        for n in $(seq 40); do is "$(cat "in.$n")" "in-$n"; done
        is "$(masters)" "$master"
        # A client that is ended ends its session, and no other.
        "$F" ssh --home home ada@gate 'echo $$ > ~/one; exec sleep 1000' & one=$!
        s ada@gate 'echo two; read -r x; echo $x' > two < <(sleep 2; echo lives) & two=$!
        until [ -s /run/home/ada/one ]; do sleep 0.05; done
        kill $one; wait $one || :
        until ! kill -0 "$(cat /run/home/ada/one)" 2> /dev/null; do sleep 0.05; done
        wait $two
        is "$(cat two)" "$(printf 'two\nlives')"
        # A reader that went away ends its writer, as a pipe does.
        is "$(s ada@gate 'yes; echo $? >&2' 2> /dev/null | head -1)" y
        is "$(masters)" "$master""#,
    );
}

#[test]
fn a_master_that_is_killed_takes_its_sessions_and_each_says_so() {
    drive(
        r#"
        "$F" ssh --home home ada@gate 'echo begun; exec sleep 1000' > one 2> said & one=$!
        until grep -qs begun one; do sleep 0.05; done
        end_all -9
        is "$(wait $one || echo $?)" 255
        grep -q "the master ended; whether the command was begun, the node's audit log says" said
        is "$("$F" ssh --home home ada@gate 'echo in')" in
        # Words of it, and its end when it is asked for.
        "$F" master status --home home > said
        grep -q '^ada@gate  not used for ' said
        grep -q '^proxy 127.0.0.1:3080  ' said
        is "$("$F" master status --home home --json | python3 -c 'import json,sys; print(json.load(sys.stdin)["masters"][0]["pid"])')" "$(masters)"
        is "$("$F" master stop --home home)" 'the master has ended'
        nobody
        is "$("$F" master stop --home home)" 'no master runs'
        is "$("$F" master status --home home || echo $?)" "$(printf 'no master runs; the next `fleetgate ssh` starts one\n1')"
        "$F" ssh --home home --no-master ada@gate true
        is "$(masters)" """#,
    );
}

#[test]
fn a_second_factor_that_is_too_old_is_refused_on_a_kept_connection_as_on_a_fresh_one() {
    drive(
        r#"
        "$F" ssh --home home ada@gate true
        master=$(masters)
        printf '[role.everything]\nnodes = ["*"]\nlogins = ["ada", "root"]\nrequire_mfa = "1s"\n' > strict.toml
        "$F" role apply --state cluster -f strict.toml
        # A minute is allowed for clocks.
        tried=0
        until ! "$F" ssh --home home -o BatchMode=yes ada@gate true 2> warm; do
            sleep 1; tried=$((tried + 1)); [ $tried -lt 100 ]
        done
        is "$(masters)" "$master"
        if "$F" ssh --home home -o BatchMode=yes --no-master ada@gate true 2> cold; then exit 1; fi
        cat warm cold >&2
        grep -q 'second factor' cold
        if "$F" ssh --home home -o BatchMode=yes ada@gate true 2> warm; then exit 1; fi
        cat warm >&2
        cmp warm cold"#,
    );
}

#[test]
fn a_nodes_own_port_takes_the_login_without_a_proxy() {
    let Some(mut cluster) = cluster() else { return };
    script(
        &cluster,
        r#"
        at='--home home --address 127.0.0.1:2222'
        end_all
        # On a connection of its own, and by the master, whose next command finds it.
        is "$("$F" ssh $at --no-master ada@gate 'echo in; exit 3' || echo $?)" "$(printf 'in\n3')"
        is "$(masters)" ''
        first=$("$F" ssh $at ada@gate 'echo $SSH_CONNECTION')
        is "$("$F" ssh $at ada@gate 'echo $SSH_CONNECTION')" "$first"
        is "$(reached)" 1
        "$F" master status --home home | grep '^ada@gate at 127.0.0.1:2222  not used for '
        # By the proxy it is another connection, and a check asks for either.
        "$F" ssh --home home ada@gate true
        is "$(reached)" 2
        if "$F" ssh $at --direct gate true 2> said; then exit 1; fi
        grep -q 'leave out --address' said
        if "$F" ssh $at -J other:1 gate true 2> said; then exit 1; fi
        grep -q 'leave out -J' said
        if "$F" ssh $at 'place=cellar' true 2> said; then exit 1; fi
        grep -q 'name the node' said
        if "$F" ssh --home home --address gate:x gate true 2> said; then exit 1; fi
        grep -q 'is no address' said
        # The certificate at that port is another node's.
        for how in '' --no-master; do
            if "$F" ssh $at $how -o BatchMode=yes ada@cellar true 2> said; then exit 1; fi
            cat said >&2
            grep -q "cellar" said
        done
        # Whoever sees another network is not given this one's connections.
        apart() { unshare --net sh -ec 'ip link set lo up; exec "$@"' sh "$F" "$@"; }
        for way in '--address 127.0.0.1:2222' ''; do
            if apart ssh --home home -o BatchMode=yes $way ada@gate true 2> said; then exit 1; fi
            cat said >&2
            grep -q refused said
        done
        # Nobody there.
        if "$F" ssh --home home --address 127.0.0.1:9 ada@gate true 2> said; then exit 1; fi
        grep -q refused said"#,
    );
    // It needs no proxy, neither warm nor cold.
    cluster.down(STATE);
    script(
        &cluster,
        r#"
        at='--home home --address 127.0.0.1:2222'
        is "$("$F" ssh $at ada@gate 'echo in')" in
        end_all
        is "$("$F" ssh $at ada@gate 'echo in')" in
        is "$("$F" ssh $at --no-master ada@gate 'echo in')" in"#,
    );
}

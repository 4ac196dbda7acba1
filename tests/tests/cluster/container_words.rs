//! What is said to a user who does not come into a container, or is shown none: it names what to do.

use crate::containers::read_again;
use fleetgate_tests::cluster::Cluster;
use fleetgate_tests::containers::Container;
use fleetgate_tests::needs_root;
use serde_json::json;

const TOOLS: &str = include_str!("../../scripts/kept_connection.sh");

#[test]
fn who_comes_into_no_container_is_told_what_to_do() {
    needs_root!("containers");
    let cluster = Cluster::with_node();
    let node = cluster.running("node").expect("it runs");
    let container = Container::beside(node);
    cluster.script(&format!(
        r#"{TOOLS}C={name}
        # The exit code, then words that have to be said.
        says() {{
            wanted=$1 words=$2; shift 2
            "$F" "$@" > said 2>&1 < /dev/null && code=0 || code=$?
            {{ [ "$code" = "$wanted" ] && grep -qF -- "$words" said; }} || {{ echo "$*: $code"; cat said; exit 1; }} >&2
        }}
        listed() {{ wanted=$1 words=$2; shift 2; says "$wanted" "$words" ls --home home --containers "$@"; }}
        entered() {{ wanted=$1 words=$2; shift 2; says "$wanted" "$words" ssh --home home "$@"; }}
        # No role leads into any.
        role '"ada", "root"'
        again "$F" ssh --home home ada@gate true
        listed 2 'of which NODE? `fleetgate ls` shows the nodes'
        listed 255 'there is no node nosuch: see fleetgate ls' nosuch
        listed 0 'no role of yours led into containers: ask an administrator' gate
        listed 0 'no role of yours led into containers' gate --json
        listed 255 'name one of these, or ask an administrator for a role that allows it' --login bob gate
        entered 255 'name one of these, or ask an administrator for a role' --container $C gate true
        entered 255 'there is no node nosuch: see fleetgate ls' --container $C nosuch true
        # One does.
        role '"ada", "ada+fg-*"'
        again "$F" ssh --home home ada+$C@gate true
        listed 0 "ada+$C" gate
        entered 255 'no container "fg-nope" runs here: `fleetgate ls --containers NODE`, or without a cluster' --container fg-nope gate true
        entered 255 'not ada+nope: name one of these' --container nope gate true
        # Labels that none has.
        role '"ada", "ada+fg-*"' 'containers = ["app=none"]'
        none() {{ "$F" ls --home home --containers gate > said 2>&1; grep -qF 'no container runs here that you may enter' said; }}
        again none || {{ cat said >&2; exit 1; }}
        # A role that lets nobody in is refused with its line.
        printf '[role.x]\nnodes = ["*"]\nlogins = ["ada", "ada+"]\n' > odd.toml
        says 2 'odd.toml line 3: `role.x.logins`: the login "ada+": no container stands behind the `+`: write ada+*' \
            role apply --state cluster -f odd.toml
        printf '[role.x]\nnodes = ["*"]\nlogins = ["ada+*"]\ncontainers = ["app==web"]\n' > odd.toml
        says 2 'odd.toml line 4: `role.x.containers`: the selector "app==web" fits nothing: one `=` is enough: write app=web' \
            role apply --state cluster -f odd.toml
        # What a role asks of containers is listed with its logins.
        says 0 'ada,ada+fg-* (containers with app=none)' role ls --state cluster
        # What looks like a login of a container, and is an account that nobody has.
        says 0 'no role names the account fg-web' lock add --state cluster --login fg-web
        says 0 'lock ' lock add --state cluster --login ada --ttl 1s
        ! grep -q 'no role names' said || {{ cat said >&2; exit 1; }}"#,
        name = container.name
    ));
}

#[test]
fn a_node_that_lets_nobody_into_containers_says_so() {
    needs_root!("containers");
    let cluster = Cluster::with_node();
    cluster.script("sed -i 's/^root_login/containers = []\\n&/' node/fleetgate.toml; useradd --badname --no-log-init ada+real");
    read_again(cluster.running("node").expect("it runs"));
    cluster.script(&format!(
        r#"{TOOLS}why='this node lets nobody into containers (`containers = []` in its configuration)'
        told() {{ ! "$F" ssh --home home "$@" hostname > said 2>&1 && grep -qF "$why" said; }}
        role '"ada", "ada+web-*", "ada+real"'
        again "$F" login --home home --password-file password --authenticator totp --no-agent
        again told ada+web-1@gate || {{ cat said >&2; exit 1; }}
        grep -qF "there is no account ada+web-1 on gate, and $why" said
        told --no-master ada+web-1@gate
        noted() {{ "$F" audit --state cluster --json | grep login_refused | grep '"rule":"containers"' | grep -qF "$why"; }}
        again noted
        # Who has not proven who he is reads nothing.
        ssh-keygen -q -t ed25519 -N '' -f thief
        if ssh -F none -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o BatchMode=yes -i thief -o ProxyCommand="$F proxy-command --home home --login %r %h %p" \
            ada+web-1@gate.test 2> said; then exit 1; fi
        grep -q 'Permission denied' said
        if grep -q 'lets nobody' said; then cat said >&2; exit 1; fi
        # The name of an account is the account's.
        is "$("$F" ssh --home home ada+real@gate id -un)" ada+real
        # A role for containers with labels has no logins there.
        role '"ada", "ada+*"' 'containers = ["app=shop"]'
        labelled() {{ told ada+web-1@gate && grep -qF "enters containers with app=shop as ada on gate, and $why" said; }}
        again labelled || {{ cat said >&2; exit 1; }}"#
    ));
}

#[test]
fn who_is_killed_inside_reads_why() {
    needs_root!("containers");
    let cluster = Cluster::with_node();
    let node = cluster.running("node").expect("it runs");
    let container = Container::beside(node);
    let full = Container::beside_with(node, |config| {
        config["linux"]["resources"]["pids"] = json!({ "limit": 1 });
    });
    cluster.script(&format!(
        r#"{TOOLS}C={name} P={full}
        # The exit code, words that have to be said, and words that must not.
        ends() {{
            wanted=$1 words=$2 silent=$3; shift 3
            timeout 60 "$F" ssh --home home "$@" > said 2>&1 < /dev/null && code=0 || code=$?
            {{ [ "$code" = "$wanted" ] && grep -q "$words" said && ! grep -q "$silent" said; }} || {{ echo "$*: $code"; cat said; exit 1; }} >&2
        }}
        role '"ada", "ada+fg-*"'
        again "$F" ssh --home home ada+$C@gate true
        # Where the node was late with its words, the client has some.
        killed='the program was killed (SIGKILL): its container ended or has no memory left, or somebody killed it'
        either="$killed\\|the command was ended by SIGKILL"
        for way in '' --no-master; do
            for round in 1 2 3; do ends 255 "$either" 'no such words' $way ada+$C@gate 'kill -KILL $$'; done
            ends 255 "$either" 'no such words' $way -tt ada+$C@gate 'kill -KILL $$'
            ends 255 'the command was ended by SIGTERM' 'was killed' $way ada+$C@gate 'kill -TERM $$'
            # On the machine nothing is known but the signal; Ctrl-C and a reader that is gone are no news.
            ends 255 'the command was ended by SIGKILL' 'its container' $way ada@gate 'kill -KILL $$'
            ends 255 '^$' 'the command was ended' $way ada@gate 'echo; kill -INT $$'
            ends 255 "pids limit" 'process table' $way ada+$P@gate true
        done
        plain() {{ ssh -F home.config -o ProxyCommand="$F proxy-command --home home --login %r %h %p" ada+$C@gate.test 'kill -KILL $$' 2>&1; }}
        for try in 1 2 3 4 5; do
            plain=$(plain) && code=0 || code=$?
            [ $code = 255 ] || {{ echo "plain ssh: $code: $plain" >&2; exit 1; }}
            case $plain in *"$killed"*) break ;; esac
            [ $try != 5 ] || {{ echo "plain ssh: $plain" >&2; exit 1; }}
        done
        # The agent.
        eval "$(ssh-agent -s)" > /dev/null
        "$F" ssh --home home -A ada+$C@gate true > said 2>&1 && code=0 || code=$?
        kill $SSH_AGENT_PID
        [ $code = 0 ] || {{ echo "with an agent: $code" >&2; cat said >&2; exit 1; }}
        grep -q 'into a container none is forwarded' said || {{ cat said >&2; exit 1; }}"#,
        name = container.name,
        full = full.name
    ));
}

#[test]
fn a_login_that_is_older_than_the_roles_is_told_so() {
    needs_root!("containers");
    let cluster = Cluster::with_node();
    cluster.script(&format!(
        r#"{TOOLS}refused() {{ ! "$F" ssh --home home "$@" true > said 2>&1; }}
        useradd --no-log-init carl; useradd --no-log-init dora; usermod -p '*' carl; usermod -p '*' dora
        role '"ada", "root"'
        again "$F" ssh --home home ada@gate true
        role '"ada", "root", "carl+Proj_*", "dora"'
        older() {{ refused "$@" && grep -qF "your login is older than the roles that allow ${{1%@gate}} on gate: run fleetgate login" said; }}
        for login in carl+Proj_Web.1 dora; do
            again older $login@gate || {{ cat said >&2; exit 1; }}
            if grep -q 'another user authority' said; then cat said >&2; exit 1; fi
        done
        # What the node has against a login that the roles allow.
        sed -i 's/^root_login.*/root_login = "no"/' node/fleetgate.toml"#
    ));
    read_again(cluster.running("node").expect("it runs"));
    cluster.script(&format!(
        r#"{TOOLS}closed() {{ ! "$F" ssh --home home --no-master root@gate true > said 2>&1 && grep -qF 'root_login is "no"' said; }}
        again closed || {{ cat said >&2; exit 1; }}
        if grep -q 'another user authority' said; then cat said >&2; exit 1; fi"#
    ));
}

//! What is said to a user who does not come into a container, or is shown none: it names what to do.

use fleetgate_tests::cluster::Cluster;
use fleetgate_tests::containers::Container;
use fleetgate_tests::needs_root;

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
        entered 255 'no container "fg-nope" runs here: `fleetgate ls --containers NODE` shows' --container fg-nope gate true
        entered 255 'not ada+nope: name one of these' --container nope gate true
        # Labels that none has.
        role '"ada", "ada+fg-*"' 'containers = ["app=none"]'
        none() {{ "$F" ls --home home --containers gate > said 2>&1; grep -qF 'no container runs here that you may enter' said; }}
        again none || {{ cat said >&2; exit 1; }}
        # A role that lets nobody in is refused with its line.
        printf '[role.x]\nnodes = ["*"]\nlogins = ["ada", "ada+"]\n' > odd.toml
        says 2 'odd.toml line 3: `role.x.logins`: the login "ada+": no container stands behind the `+`: write ada+*' \
            role apply --state cluster -f odd.toml"#,
        name = container.name
    ));
}

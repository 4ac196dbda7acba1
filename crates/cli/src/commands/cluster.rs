//! The commands that make a cluster and keep it.

use super::{JSON, PROXY, STATE};
use crate::flags::{Command, Flag, Operands, Value};
use crate::{backup, init, join, services, up};

const CONFIG: Flag = Flag::new(
    "config",
    Value::Path("FILE"),
    "The configuration, instead of /etc/fleetgate/fleetgate.toml, or the one in the state directory.",
);
const NODE_LABEL: Flag = Flag::new(
    "label",
    Value::Pair("KEY=VALUE"),
    "A label of this machine's node.",
)
.repeated();
const AUTH_LISTEN: Flag = Flag::new(
    "auth-listen",
    Value::Address,
    "Where the auth service listens for the proxy (default: 127.0.0.1:3025).",
);
const NO_NODE: Flag = Flag::new("no-node", Value::None, "Do not serve this machine.");
const DIRECTORY: Operands = Operands::words("DIR", Value::Path("DIR"), 1, 1);

/// These commands.
pub const TABLE: &[Command] = &[
    Command::new(
        &["init"],
        "make a cluster on this machine",
        "Makes the certificate authorities, the state, and a configuration for the auth service, the proxy and a node on \
         this machine; says what to do next. Without root all of it is yours and serves you alone.\n\n\
         Nothing that exists is changed: where there is a cluster already, it says so.",
        init::run,
    )
    .flags(&[
        STATE,
        Flag::new("name", Value::Name("CLUSTER"), "What the cluster is called (default: the machine's name)."),
        Flag::new("listen", Value::Address, "Where the proxy listens (default: [::]:3080)."),
        Flag::new(
            "public",
            Value::HostPort,
            "Where people and nodes reach the proxy (default: the machine's name and the port).",
        ),
        Flag::new("node-name", Value::Name("NAME"), "What this machine is called as a node (default: its name, with -node behind it where users find the proxy by that name)."),
        NODE_LABEL,
        AUTH_LISTEN,
        NO_NODE,
    ])
    .examples(&[
        ("a cluster", "fleetgate init --name demo --public gate.example.org:3080"),
        ("to try it", "fleetgate init --state ./cluster --listen 127.0.0.1:3080"),
    ]),
    Command::new(
        &["auth"],
        "run the auth service alone",
        "For clusters that are split over machines; `fleetgate up` runs it with the others. It has the certificate \
         authorities and the state, and is reached through the proxy or by a unix socket on its own machine.",
        services::auth,
    )
    .flags(&[STATE, CONFIG])
    .examples(&[("on its own machine", "fleetgate auth --config /etc/fleetgate/fleetgate.toml")]),
    Command::new(
        &["proxy"],
        "run a proxy alone",
        "For clusters that are split over machines; `fleetgate up` runs it with the others. A proxy on a machine of its \
         own joins first, with a token of the kind proxy.",
        services::proxy,
    )
    .flags(&[STATE, CONFIG])
    .examples(&[("on its own machine", "fleetgate proxy --config /etc/fleetgate/fleetgate.toml")]),
    Command::new(
        &["up"],
        "run the services that the configuration names",
        "Starts auth, proxy and node, each a process of its own, one after the other, and says where each listens. One \
         that dies is started again, and the log says so. SIGTERM and Ctrl-C end all of them; open sessions of the node \
         go on until they end when it is SIGTERM. SIGHUP reads configurations again.",
        up::run,
    )
    .flags(&[STATE, CONFIG])
    .examples(&[("this machine's cluster", "fleetgate up"), ("another", "fleetgate up --state ./cluster")]),
    Command::new(
        &["join"],
        "make this machine a node of a cluster, or a proxy",
        "Shows a token that `fleetgate token add` printed, and gets certificates for this machine: what it becomes is \
         the token's to say. The cluster is known by the token: nobody else can answer for it. Keys are made here and \
         never leave; the SSH host keys are the machine's own. Where it has joined already, it says so; one that the \
         cluster removed joins anew. The exit code is 1 where the cluster refused or a file could not be written, 2 where \
         the command line or the token cannot be meant, 255 where no connection came about.",
        join::run,
    )
    .flags(&[
        PROXY,
        Flag::new("token", Value::Text("TOKEN"), "The token. It is good once, and yet others on this machine may see it here."),
        Flag::new("token-file", Value::Path("FILE"), "A file that holds the token; - is standard input."),
        Flag::new("name", Value::Name("NAME"), "What it is called (default: the machine's name)."),
        Flag::new("label", Value::Pair("KEY=VALUE"), "A label.").repeated(),
        Flag::new(
            "auth",
            Value::HostPort,
            "For a proxy: where the auth service is (default: the port 3025 of --proxy's host).",
        ),
        Flag::new("again", Value::None, "Join anew, or another cluster, though the machine has joined."),
        Flag::new("listen", Value::Address, "For a proxy: where it listens (default: [::]:3080)."),
        Flag::new(
            "public",
            Value::HostPort,
            "For a proxy: where people reach it (default: the machine's name and the port).",
        ),
        STATE,
        JSON,
    ])
    .examples(&[
        (
            "a node",
            "fleetgate join --proxy gate.example.org:3080 --token-file token --label env=prod",
        ),
        ("by a pipe", "fleetgate join --proxy gate.example.org:3080 --token-file -"),
        (
            "a second proxy",
            "fleetgate join --proxy gate.example.org:3080 --token-file token --name edge2 --public edge2.example.org:3080",
        ),
    ]),
    Command::new(
        &["backup"],
        "copy the auth service's state and audit log into a new directory",
        "As they are at one moment, with the certificate authorities' keys: keep it as safe as those. Run it on the auth \
         service's machine, as the user that the service runs as; DIR is made. The service goes on meanwhile, and writes the \
         backup into its audit log; one that does not run is copied too.",
        backup::run,
    )
    .flags(&[STATE, CONFIG, JSON])
    .operands(DIRECTORY)
    .examples(&[("a backup", "fleetgate backup /var/backups/fleetgate")]),
    Command::new(
        &["restore"],
        "put a backup in the place of the auth service's state",
        "After a mistake, or on a new machine, where the old one is lost; the auth service must not run.\n\n\
         A machine without a configuration becomes the cluster's auth service and proxy: it gets keys of its own in the \
         place of the lost machine's, and a configuration; `fleetgate up` starts it then. People and nodes look for the \
         proxy where it was, so the new machine takes the old one's name or address. Nobody joins or logs in again.",
        backup::restore,
    )
    .flags(&[
        STATE,
        CONFIG,
        Flag::new("replace", Value::None, "Replace the state that is there."),
        Flag::new(
            "listen",
            Value::Address,
            "On a new machine: where the proxy listens (default: [::] and the port of its public address).",
        ),
        AUTH_LISTEN,
        Flag::new(
            "node-name",
            Value::Name("NAME"),
            "On a new machine: what it is called as a node (default: its name). A node of the name that is given here \
             loses its place to it.",
        ),
        NODE_LABEL,
        NO_NODE,
    ])
    .operands(DIRECTORY)
    .examples(&[
        ("onto a new machine", "fleetgate restore /var/backups/fleetgate"),
        ("after a mistake", "fleetgate restore /var/backups/fleetgate --replace"),
    ]),
];

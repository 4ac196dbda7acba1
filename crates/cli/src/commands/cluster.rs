//! The commands that make a cluster and keep it.

use super::{JSON, PROXY, STATE};
use crate::flags::{Command, Flag, Operands, Value};
use crate::{backup, join, up};

const CONFIG: Flag = Flag::new(
    "config",
    Value::Path("FILE"),
    "The configuration, instead of /etc/fleetgate/fleetgate.toml, or the one in the state directory.",
);
const FILE: Operands = Operands::Words {
    name: "FILE",
    least: 1,
    most: 1,
};

/// These commands.
pub const TABLE: &[Command] = &[
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
         never leave; the SSH host keys are the machine's own. Where it has joined already, it says so.",
        join::run,
    )
    .flags(&[
        PROXY,
        Flag::new("token", Value::Text("TOKEN"), "The token. It is good once, and yet others on this machine may see it here."),
        Flag::new("token-file", Value::Path("FILE"), "A file that holds the token; - is standard input."),
        Flag::new("name", Value::Text("NAME"), "What it is called (default: the machine's name)."),
        Flag::new("label", Value::Pair("KEY=VALUE"), "A label.").repeated(),
        STATE,
        JSON,
    ])
    .examples(&[
        (
            "a node",
            "fleetgate join --proxy gate.example.org:3080 --token-file token --label env=prod",
        ),
        ("by a pipe", "fleetgate join --proxy gate.example.org:3080 --token-file -"),
    ]),
    Command::new(
        &["backup"],
        "write the auth service's state into a file",
        "The state as it is at one moment, with the certificate authorities' keys: keep it as safe as those. FILE is on \
         the auth service's machine. The service goes on meanwhile.",
        backup::run,
    )
    .flags(&[STATE, super::HOME, JSON])
    .operands(FILE)
    .examples(&[("a backup", "fleetgate backup /var/backups/fleetgate.db")]),
];

//! The commands of administrators: on the auth service's machine, or with a login whose role allows it.

use super::recordings::{CLUSTER, DIRECTORY};
use super::{HOME, JSON, STATE};
use crate::admin;
use crate::flags::{Command, Flag, Operands, Value};

const fn one(name: &'static str, each: Value) -> Operands {
    Operands::words(name, each, 1, 1)
}

const TTL: Flag = Flag::new("ttl", Value::Ttl, "How long it holds.");
const ROLE: Flag = Flag::new("role", Value::Name("ROLE"), "A role the user has.").repeated();
const REASON: Flag = Flag::new("reason", Value::Text("TEXT"), "Why; whoever it stops is told.");
const SINCE: Flag = Flag::new("since", Value::Moment, "From then on.");
const UNTIL: Flag = Flag::new("until", Value::Moment, "Before then.");
const HERE: Flag = Flag::new(
    "here",
    Value::None,
    "This machine's own sessions, whatever cluster it is of.",
);
const CONFIG: Flag = Flag::new(
    "config",
    Value::Path("FILE"),
    "The node's configuration, with --here.",
);
const WHERE: &[Flag] = &[STATE, HOME, JSON];

/// These commands.
pub const TABLE: &[Command] = &[
    Command::new(
        &["user", "add"],
        "add a user and print the invite",
        "The invite is good for one first login, which sets the password and the second factor.",
        admin::users::add,
    )
    .flags(&[ROLE, TTL, STATE, HOME, JSON])
    .operands(one("USER", Value::Name("USER")))
    .examples(&[("an operator", "fleetgate user add alice --role ops")]),
    Command::new(
        &["user", "ls"],
        "list users",
        "With roles, state and age.",
        admin::users::list,
    )
    .flags(WHERE)
    .examples(&[("a table", "fleetgate user ls")]),
    Command::new(
        &["user", "reset"],
        "take away a user's password and second factor, and print a new invite",
        "The user's certificates and sessions end, within a second.",
        admin::users::reset,
    )
    .flags(WHERE)
    .operands(one("USER", Value::Name("USER")))
    .examples(&[("a lost telephone", "fleetgate user reset alice")]),
    Command::new(
        &["user", "change"],
        "give a user other roles",
        "The roles named are all that the user has. Certificates and sessions end; the next login has the new roles.",
        admin::users::change,
    )
    .flags(&[
        ROLE,
        Flag::new("no-roles", Value::None, "Take all roles away."),
        STATE,
        HOME,
        JSON,
    ])
    .operands(one("USER", Value::Name("USER")))
    .examples(&[("two roles", "fleetgate user change alice --role ops --role dba")]),
    Command::new(
        &["user", "rm"],
        "remove a user",
        "Open sessions end, and nobody logs in by that name.",
        admin::users::remove,
    )
    .flags(WHERE)
    .operands(one("USER", Value::Name("USER")))
    .examples(&[("for good", "fleetgate user rm alice")]),
    Command::new(
        &["user", "lock"],
        "lock a user out and end the open sessions",
        "The same as `fleetgate lock add --user`.",
        admin::locks::user,
    )
    .flags(&[REASON, TTL, STATE, HOME, JSON])
    .operands(one("USER", Value::Name("USER")))
    .examples(&[("now", "fleetgate user lock alice --reason stolen")]),
    Command::new(
        &["role", "apply"],
        "make or change the roles that a file describes",
        "TOML, one or several roles; docs/roles.md has the keys. A role that is as described stays as it is.",
        admin::roles::apply,
    )
    .flags(&[
        Flag::new("file", Value::Path("FILE"), "The file; - is standard input.").letter('f').required(),
        Flag::new("dry-run", Value::None, "Say what would change, and change nothing."),
        STATE,
        HOME,
        JSON,
    ])
    .examples(&[("from a file", "fleetgate role apply -f roles.toml --dry-run")]),
    Command::new(&["role", "ls"], "list roles", "Their names and what they open.", admin::roles::list)
        .flags(WHERE)
        .examples(&[("a table", "fleetgate role ls")]),
    Command::new(
        &["role", "show"],
        "print a role as a file",
        "As `fleetgate role apply` reads it.",
        admin::roles::show,
    )
    .flags(WHERE)
    .operands(one("ROLE", Value::Name("ROLE")))
    .examples(&[("to change it", "fleetgate role show ops")]),
    Command::new(
        &["role", "rm"],
        "remove a role",
        "What it allowed ends within a second.",
        admin::roles::remove,
    )
    .flags(WHERE)
    .operands(one("ROLE", Value::Name("ROLE")))
    .examples(&[("for good", "fleetgate role rm ops")]),
    Command::new(
        &["role", "test"],
        "say whether a user would be let in on a node, and why",
        "USER@NODE; the exit code is 1 where not.",
        admin::roles::test,
    )
    .flags(&[
        Flag::new("login", Value::AccountName, "As this account (default: each that the user could have)."),
        Flag::new("mfa-age", Value::Lifetime, "As if the second factor were so old."),
        Flag::new("device", Value::None, "As if on an approved device."),
        STATE,
        HOME,
        JSON,
    ])
    .operands(one("USER@NODE", Value::UserAtNode))
    .examples(&[("may she?", "fleetgate role test alice@web1 --login root")]),
    Command::new(
        &["token", "add"],
        "print a token with which a machine joins",
        "It is good once, or until its time is over with --reusable.",
        admin::tokens::add,
    )
    .flags(&[
        Flag::new("kind", Value::Choice("KIND", &["node", "proxy"]), "What the machine becomes (default: node)."),
        TTL,
        Flag::new("reusable", Value::None, "As often as wanted until then."),
        Flag::new("name", Value::Name("NAME"), "The only name it may join by."),
        Flag::new("label", Value::Pair("KEY=VALUE"), "A label that the machine gets.").repeated(),
        STATE,
        HOME,
        JSON,
    ])
    .examples(&[
        ("one node", "fleetgate token add"),
        ("a fleet, for a day", "fleetgate token add --reusable --ttl 1d --label env=prod"),
    ]),
    Command::new(
        &["token", "ls"],
        "list tokens",
        "Their secrets are known to nobody.",
        admin::tokens::list,
    )
    .flags(WHERE)
    .examples(&[("a table", "fleetgate token ls")]),
    Command::new(
        &["token", "rm"],
        "make a token useless",
        "Machines that joined with it stay.",
        admin::tokens::remove,
    )
    .flags(WHERE)
    .operands(one("ID", Value::Text("ID")))
    .examples(&[("by its id", "fleetgate token rm 4f2a")]),
    Command::new(
        &["lock", "add"],
        "lock out a user, node, login, role, device or proxy, and end their sessions",
        "Within a second, everywhere, on every way in. One of the six says what is locked.",
        admin::locks::add,
    )
    .flags(&[
        Flag::new("user", Value::Name("USER"), "This user."),
        Flag::new("node", Value::Name("NODE"), "This node."),
        Flag::new("login", Value::AccountName, "This account, on every node, and in all containers that it enters."),
        Flag::new("account", Value::AccountName, "The same, where the account's own name has a `+` and leads into no container."),
        Flag::new("role", Value::Name("ROLE"), "Everybody who has this role."),
        Flag::new("device", Value::Name("DEVICE"), "This device."),
        Flag::new("proxy", Value::Name("PROXY"), "This proxy: auth answers it nothing, and nodes take no session from it."),
        REASON,
        TTL,
        STATE,
        HOME,
        JSON,
    ])
    .examples(&[
        ("a user", "fleetgate lock add --user alice --reason stolen"),
        ("a node, for an hour", "fleetgate lock add --node web1 --ttl 1h"),
    ]),
    Command::new(
        &["lock", "ls"],
        "list locks",
        "With reason, age and who made them.",
        admin::locks::list,
    )
    .flags(WHERE)
    .examples(&[("a table", "fleetgate lock ls")]),
    Command::new(&["lock", "rm"], "remove a lock", "What it held off may come in again.", admin::locks::remove)
        .flags(WHERE)
        .operands(one("ID", Value::Text("ID")))
        .examples(&[("by its id", "fleetgate lock rm 3f9c1a7e5b2d48c06e1f")]),
    Command::new(
        &["node", "ls"],
        "list all nodes",
        "SELECTOR as for `fleetgate ls`, which lists those that you may reach. Proxies are listed below the nodes.",
        admin::nodes::list,
    )
    .flags(WHERE)
    .operands(Operands::words("SELECTOR", Value::Selector, 0, 1))
    .examples(&[("a table", "fleetgate node ls env=prod")]),
    Command::new(
        &["node", "rm"],
        "remove a node",
        "Its certificates are taken back; it has to join anew. Proxies are removed by this command too.",
        admin::nodes::remove,
    )
    .flags(&[
        Flag::new("force", Value::None, "Remove also the cluster's only proxy, without which nobody reaches anything."),
        STATE,
        HOME,
        JSON,
    ])
    .operands(one("NODE", Value::Name("NODE")))
    .examples(&[("for good", "fleetgate node rm web1")]),
    Command::new(
        &["node", "register"],
        "make a plain sshd a node",
        "The sshd has to trust the cluster's user authority (TrustedUserCAKeys; `fleetgate ca show user` prints it). SSH \
         then ends at the proxy, which opens the second half with a certificate for that login alone.",
        admin::nodes::register,
    )
    .flags(&[
        Flag::new("address", Value::HostPort, "Where it listens.").required(),
        Flag::new("host-key", Value::Path("FILE"), "A public host key of it; without any, its host certificate is believed.")
            .repeated(),
        Flag::new("label", Value::Pair("KEY=VALUE"), "A label.").repeated(),
        STATE,
        HOME,
        JSON,
    ])
    .operands(one("NAME", Value::Name("NAME")))
    .examples(&[(
        "an old machine",
        "fleetgate node register old1 --address 192.0.2.7:22 --host-key old1.pub",
    )]),
    Command::new(
        &["device", "ls"],
        "list devices",
        "Of all users, with those that wait to be approved.",
        admin::devices::list,
    )
    .flags(WHERE)
    .examples(&[("a table", "fleetgate device ls")]),
    Command::new(
        &["device", "approve"],
        "approve a device",
        "From its next login on, the user's certificates say that it came from there.",
        admin::devices::approve,
    )
    .flags(WHERE)
    .operands(one("ID", Value::Text("ID")))
    .examples(&[("by its id", "fleetgate device approve 4f2a")]),
    Command::new(
        &["device", "rm"],
        "take a device back",
        "Certificates that name it count for nothing from then on.",
        admin::devices::remove,
    )
    .flags(WHERE)
    .operands(one("ID", Value::Text("ID")))
    .examples(&[("by its id", "fleetgate device rm 4f2a")]),
    Command::new(
        &["ca", "status"],
        "list the certificate authorities",
        "With phase, fingerprint and until when a retired one is trusted; the fingerprint of `tls` is what `fleetgate \
         login --ca` takes. With --json also their public keys.",
        admin::authorities::status,
    )
    .flags(WHERE)
    .examples(&[("a table", "fleetgate ca status")]),
    Command::new(
        &["ca", "show"],
        "print an authority's public keys",
        "Those that are trusted, the next one and a retired one too, one a line: `user` is what an sshd takes as \
         TrustedUserCAKeys, `host` what stands behind @cert-authority in known_hosts, `tls` is PEM.",
        admin::authorities::public,
    )
    .flags(&[STATE, HOME])
    .operands(Operands::Choice("KIND", &["user", "host", "tls", "state"]))
    .examples(&[("for a plain sshd", "fleetgate ca show user")]),
    Command::new(
        &["ca", "rotate"],
        "replace certificate authorities",
        "New ones are made and used; the old ones are trusted on until the grace time is over. Nodes and users change \
         over by themselves. While one is replaced, --grace ends that sooner. The next user authority waits for plain sshds.",
        admin::authorities::rotate,
    )
    .flags(&[
        Flag::new("grace", Value::Ttl, "How long both are trusted (default: as long as a certificate may live)."),
        Flag::new("sshds-ready", Value::None, "Plain sshds have the next user authority, or shall refuse logins until they do."),
        STATE,
        HOME,
        JSON,
    ])
    .operands(Operands::Choice("KIND", &["all", "user", "host", "tls", "state"]))
    .examples(&[
        ("those that sign users", "fleetgate ca rotate user --grace 1d"),
        ("a key was stolen", "fleetgate ca rotate all --grace 1m --sshds-ready"),
    ]),
    Command::new(
        &["audit"],
        "print audit events",
        "Logins, denials, sessions and changes of the whole cluster, in order of time. Times are in UTC. On a terminal a line \
         is cut to its width. docs/audit.md has the fields.",
        admin::audit::run,
    )
    .flags(&[
        Flag::new("user", Value::Text("USER"), "Of this user."),
        Flag::new("node", Value::Text("NODE"), "Of this node."),
        Flag::new("event", Value::Text("EVENT"), "Of this kind."),
        Flag::new("session", Value::Session, "Of this session; the first 8 digits of its id are enough."),
        Flag::new("connection", Value::Connection, "Of this connection of a node; say which node."),
        SINCE,
        UNTIL,
        Flag::new("limit", Value::Number("COUNT"), "So many, the last ones (default, and 0: all)."),
        Flag::new("follow", Value::None, "Go on with those that come."),
        STATE,
        HOME,
        Flag::new("json", Value::None, "Print the events as they are: one JSON document a line, one line an event."),
    ])
    .examples(&[
        ("the last hour", "fleetgate audit --since 1h"),
        ("a day", "fleetgate audit --since yesterday --until today"),
        ("as it happens, for a program", "fleetgate audit --follow --json"),
    ]),
    Command::new(
        &["sessions", "ls"],
        "list who is in",
        "Since when, from where, doing what: of the whole cluster where auth runs here or you are logged in, else of this \
         machine (as root). With --recorded it lists recordings instead, which `fleetgate sessions play`, `export`, `grep` and \
         `verify` read: those in the directory of this machine where you may, else those that the cluster keeps and your roles \
         let you see.",
        admin::sessions::list,
    )
    .flags(&[
        Flag::new("all", Value::None, "Those that ended, too."),
        Flag::new("user", Value::Text("USER"), "Of this user."),
        Flag::new("login", Value::Text("LOGIN"), "As this account."),
        Flag::new("node", Value::Text("NODE"), "On this node."),
        SINCE,
        UNTIL,
        Flag::new("limit", Value::Number("COUNT"), "So many, the last ones (1 or more)."),
        Flag::new("recorded", Value::None, "The recordings."),
        Flag::new("running", Value::None, "The recordings of sessions that still run; the cluster has one at the latest five minutes after it began."),
        CLUSTER,
        DIRECTORY,
        HERE,
        CONFIG,
        STATE,
        HOME,
        JSON,
    ])
    .examples(&[
        ("who is in", "fleetgate sessions ls"),
        ("recordings of today", "fleetgate sessions ls --recorded --since today"),
        ("recorded sessions that run, on all nodes, by what your roles let you see", "fleetgate sessions ls --running --cluster"),
        ("what ada did yesterday", "fleetgate sessions ls --all --user ada --since yesterday --until today"),
    ]),
    Command::new(
        &["sessions", "end"],
        "end a session",
        "All that runs in it is killed; its connection stays, with whatever else it carries. SESSION is the id that \
         `fleetgate sessions ls` has, or its first 8 digits. In a cluster the order reaches the node with the signed state, \
         within a second, and holds for a day for one that is away. Who ordered it and why stands in the audit log.",
        admin::sessions::end,
    )
    .flags(&[REASON, HERE, CONFIG, STATE, HOME, JSON])
    .operands(one("SESSION", Value::Session))
    .examples(&[("now", "fleetgate sessions end 7eb5cf00 --reason maintenance")]),
    Command::new(
        &["sessions", "show"],
        "print what one session did",
        "Out of the audit log of the cluster, or of one node. What the programs of a session did is there where a role or \
         node.toml says `audit`; docs/audit.md has the fields, and says which of them can be believed how far.",
        admin::sessions::show,
    )
    .flags(&[
        Flag::new("commands", Value::None, "What was executed, and what changed privileges, mounts or the kernel."),
        Flag::new("files", Value::None, "What was opened, removed and renamed."),
        Flag::new("network", Value::None, "What was connected to and listened on."),
        Flag::new("node", Value::Text("NODE"), "Of this node."),
        SINCE,
        Flag::new("log", Value::Path("FILE"), "A node's own audit log, instead of the cluster's."),
        STATE,
        HOME,
        JSON,
    ])
    .operands(one("SESSION", Value::Session))
    .examples(&[
        ("what was executed", "fleetgate sessions show 7eb5cf005dd24d3b --commands"),
        (
            "on a node without a cluster",
            "fleetgate sessions show 7eb5cf00 --log /var/log/fleetgate/audit.jsonl",
        ),
    ]),
];

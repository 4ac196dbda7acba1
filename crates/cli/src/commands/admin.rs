//! The commands of administrators: on the auth service's machine, or with a login whose role allows it.

use super::{HOME, JSON, STATE};
use crate::admin;
use crate::flags::{Command, Flag, Operands, Value};

const fn one(name: &'static str) -> Operands {
    Operands::Words {
        name,
        least: 1,
        most: 1,
    }
}

const TTL: Flag = Flag::new("ttl", Value::Lifetime, "How long it holds.");
const ROLE: Flag = Flag::new("role", Value::Text("ROLE"), "A role the user has.").repeated();
const REASON: Flag = Flag::new("reason", Value::Text("TEXT"), "Why; whoever it stops is told.");
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
    .operands(one("USER"))
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
        "What the user is logged in with holds on; `fleetgate user lock` ends that.",
        admin::users::reset,
    )
    .flags(WHERE)
    .operands(one("USER"))
    .examples(&[("a lost telephone", "fleetgate user reset alice")]),
    Command::new(
        &["user", "change"],
        "give a user other roles",
        "The roles named are all that the user has from the next login on.",
        admin::users::change,
    )
    .flags(&[ROLE, STATE, HOME, JSON])
    .operands(one("USER"))
    .examples(&[("two roles", "fleetgate user change alice --role ops --role dba")]),
    Command::new(
        &["user", "rm"],
        "remove a user",
        "Open sessions end, and nobody logs in by that name.",
        admin::users::remove,
    )
    .flags(WHERE)
    .operands(one("USER"))
    .examples(&[("for good", "fleetgate user rm alice")]),
    Command::new(
        &["user", "lock"],
        "lock a user out and end the open sessions",
        "The same as `fleetgate lock add --user`.",
        admin::locks::user,
    )
    .flags(&[REASON, TTL, STATE, HOME, JSON])
    .operands(one("USER"))
    .examples(&[("now", "fleetgate user lock alice --reason stolen")]),
    Command::new(
        &["role", "apply"],
        "make or change the roles that a file describes",
        "TOML, one or several roles; docs/roles.md has the keys. A role that is as described stays as it is.",
        admin::roles::apply,
    )
    .flags(&[
        Flag::new("file", Value::Path("FILE"), "The file; - is standard input.").letter('f'),
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
    .operands(one("ROLE"))
    .examples(&[("to change it", "fleetgate role show ops")]),
    Command::new(
        &["role", "rm"],
        "remove a role",
        "What it allowed ends within a second.",
        admin::roles::remove,
    )
    .flags(WHERE)
    .operands(one("ROLE"))
    .examples(&[("for good", "fleetgate role rm ops")]),
    Command::new(
        &["role", "test"],
        "say whether a user would be let in on a node, and why",
        "USER@NODE; the exit code is 1 where not.",
        admin::roles::test,
    )
    .flags(&[
        Flag::new("login", Value::Text("LOGIN"), "As this account (default: each that the user could have)."),
        Flag::new("mfa-age", Value::Lifetime, "As if the second factor were so old."),
        Flag::new("device", Value::None, "As if on an approved device."),
        STATE,
        HOME,
        JSON,
    ])
    .operands(one("USER@NODE"))
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
        Flag::new("name", Value::Text("NAME"), "The only name it may join by."),
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
    .operands(one("ID"))
    .examples(&[("by its id", "fleetgate token rm 4f2a")]),
    Command::new(
        &["lock", "add"],
        "lock out a user, node, login, role or device, and end their sessions",
        "Within a second, everywhere, on every way in. One of the five says what is locked.",
        admin::locks::add,
    )
    .flags(&[
        Flag::new("user", Value::Text("USER"), "This user."),
        Flag::new("node", Value::Text("NODE"), "This node."),
        Flag::new("login", Value::Text("LOGIN"), "This account, on every node."),
        Flag::new("role", Value::Text("ROLE"), "Everybody who has this role."),
        Flag::new("device", Value::Text("DEVICE"), "This device."),
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
        .operands(one("ID"))
        .examples(&[("by its id", "fleetgate lock rm 7")]),
    Command::new(
        &["node", "ls"],
        "list all nodes",
        "SELECTOR as for `fleetgate ls`, which lists those that you may reach.",
        admin::nodes::list,
    )
    .flags(WHERE)
    .operands(Operands::Words {
        name: "SELECTOR",
        least: 0,
        most: 1,
    })
    .examples(&[("a table", "fleetgate node ls env=prod")]),
    Command::new(
        &["node", "rm"],
        "remove a node",
        "Its certificates are taken back; it has to join anew.",
        admin::nodes::remove,
    )
    .flags(WHERE)
    .operands(one("NODE"))
    .examples(&[("for good", "fleetgate node rm web1")]),
    Command::new(
        &["node", "register"],
        "make a plain sshd a node",
        "The sshd has to trust the cluster's user authority (TrustedUserCAKeys; `fleetgate ca show user` prints it). SSH \
         then ends at the proxy, which opens the second half with a certificate for that login alone.",
        admin::nodes::register,
    )
    .flags(&[
        Flag::new("address", Value::HostPort, "Where it listens."),
        Flag::new("host-key", Value::Path("FILE"), "A public host key of it; without any, its host certificate is believed.")
            .repeated(),
        Flag::new("label", Value::Pair("KEY=VALUE"), "A label.").repeated(),
        STATE,
        HOME,
        JSON,
    ])
    .operands(one("NAME"))
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
    .operands(one("ID"))
    .examples(&[("by its id", "fleetgate device approve 4f2a")]),
    Command::new(
        &["device", "rm"],
        "take a device back",
        "Certificates that name it count for nothing from then on.",
        admin::devices::remove,
    )
    .flags(WHERE)
    .operands(one("ID"))
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
         over by themselves.",
        admin::authorities::rotate,
    )
    .flags(&[
        Flag::new("grace", Value::Lifetime, "How long both are trusted (default: as long as a certificate may live)."),
        STATE,
        HOME,
        JSON,
    ])
    .operands(Operands::Choice("KIND", &["all", "user", "host", "tls", "state"]))
    .examples(&[("those that sign users", "fleetgate ca rotate user --grace 1d")]),
    Command::new(
        &["audit"],
        "print audit events",
        "Logins, denials, sessions and changes of the whole cluster, oldest first. docs/audit.md has the fields.",
        admin::audit::run,
    )
    .flags(&[
        Flag::new("user", Value::Text("USER"), "Of this user."),
        Flag::new("node", Value::Text("NODE"), "Of this node."),
        Flag::new("event", Value::Text("EVENT"), "Of this kind."),
        Flag::new("since", Value::Lifetime, "Not older than this."),
        Flag::new("until", Value::Lifetime, "Not younger than this."),
        Flag::new("limit", Value::Number("COUNT"), "So many, the last ones."),
        Flag::new("follow", Value::None, "Go on with those that come."),
        STATE,
        HOME,
        JSON,
    ])
    .examples(&[
        ("the last hour", "fleetgate audit --since 1h"),
        ("as it happens, for a program", "fleetgate audit --follow --json"),
    ]),
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
        Flag::new("since", Value::Lifetime, "Not older than this."),
        Flag::new("log", Value::Path("FILE"), "A node's own audit log, instead of the cluster's."),
        STATE,
        HOME,
        JSON,
    ])
    .operands(one("SESSION"))
    .examples(&[
        ("what was executed", "fleetgate sessions show 7eb5cf005dd24d3b --commands"),
        (
            "on a node without a cluster",
            "fleetgate sessions show 7eb5cf00 --log /var/log/fleetgate/audit.jsonl",
        ),
    ]),
];

//! The commands of whoever logs in.

use super::machine::CONFIG;
use super::{HOME, JSON, PROXY};
use crate::flags::{Command, Flag, Operands, Value};
use crate::{check, device, login, master, remote, run};
use fleetgate_client::ssh::options::flags::FLAGS;

const INVITE: Flag = Flag::new(
    "invite-file",
    Value::Path("FILE"),
    "A file that holds the invite, for the first login; - is standard input.",
);
const PASSWORD: Flag = Flag::new(
    "password-file",
    Value::Path("FILE"),
    "A file whose first line is the password; - is standard input.",
);
const CODE: Flag = Flag::new(
    "code-file",
    Value::Path("FILE"),
    "A file whose first line is the second factor's code; - is standard input.",
);
const AUTHENTICATOR: Flag = Flag::new(
    "authenticator",
    Value::Path("FILE"),
    "For scripts: keep the second factor's secret in this file and take codes from it. Whoever reads it has that factor.",
);

const LOGIN: Flag = Flag::new(
    "login",
    Value::AccountName,
    "The account on the node, instead of the login's own.",
)
.letter('l');
const ADDRESS: Flag = Flag::new(
    "address",
    Value::Text("ADDRESS[:PORT]"),
    "Reach the node's own port here, instead of through the proxy.",
);
const CONTAINER: Flag = Flag::new(
    "container",
    Value::Text("NAME"),
    "In this container of the node; the same as NODE+NAME.",
);

/// ssh's flags: the client's table, by which it reads them, as help, man pages and completions have flags.
const SSH_FLAGS: [Flag; FLAGS.len()] = {
    let mut all = [HOME; FLAGS.len()];
    let mut at = 0;
    while at < FLAGS.len() {
        let flag = &FLAGS[at];
        all[at] = Flag {
            long: flag.long,
            short: flag.letter,
            value: if flag.value.is_empty() {
                Value::None
            } else {
                Value::Text(flag.value)
            },
            repeats: flag.repeats,
            required: false,
            help: flag.help,
        };
        at += 1;
    }
    all
};

/// These commands.
pub const TABLE: &[Command] = &[
    Command::new(
        &["login"],
        "log in to a cluster",
        "Asks for the password and the second factor's code, and gets certificates for fresh keys: for fleetgate, for \
         plain ssh, and for the running ssh-agent. With an invite it first sets the password and shows the second \
         factor's square to scan.\n\n\
         The cluster is known by the invite; later by what the first login kept. `--ca` does without an invite. With \
         --mfa the login that is there gets a fresh second factor, and lives no longer than before. --renew gives it another lifetime with nobody there, where each of its roles has `renewal`; \
         the master does so by itself while it runs.",
        login::run,
    )
    .flags(&[
        PROXY,
        Flag::new("user", Value::Name("USER"), "Who (default: as the last time, or your name on this machine)."),
        Flag::new("ca", Value::Text("sha256:HASH"), "The hash of the cluster's TLS authority, from `fleetgate ca status`."),
        Flag::new("mfa", Value::None, "Show the second factor again, for the login that is there."),
        Flag::new("renew", Value::None, "Another lifetime for the login that is there, where its roles let it be renewed."),
        Flag::new("ttl", Value::Ttl, "How long it shall last, if that is shorter than allowed."),
        INVITE,
        PASSWORD,
        CODE,
        AUTHENTICATOR,
        Flag::new("no-agent", Value::None, "Put nothing into the ssh-agent."),
        HOME,
        JSON,
    ])
    .examples(&[
        ("the first time, and every day", "fleetgate login --proxy gate.example.org"),
        ("a fresh second factor", "fleetgate login --mfa"),
    ]),
    Command::new(
        &["logout"],
        "forget the login",
        "Removes its keys and certificates from ~/.fleetgate and from the ssh-agent. The device's key stays, and where the \
         cluster is and by which authority it is known: `fleetgate login` alone logs in again, without an invite.",
        login::logout,
    )
    .flags(&[HOME])
    .examples(&[("for today", "fleetgate logout")]),
    Command::new(
        &["master", "status"],
        "say what connections are kept for `fleetgate ssh`",
        "The process of the login and that of `fleetgate ssh --direct`, each with its connections, who uses them, and for how \
         long nobody has. The exit code is 1 where neither runs.",
        master::status,
    )
    .flags(&[HOME, JSON])
    .examples(&[("what is kept", "fleetgate master status")]),
    Command::new(
        &["master", "run"],
        "have the login's connections kept, for a service manager",
        "Starts the master where none runs, and has it stay while this command runs: the first check or session finds it, and \
         a login whose roles have `renewal` is renewed. Ends when the master ends. The packages' unit \
         `fleetgate-master@ACCOUNT.service` runs it for an account.",
        master::run,
    )
    .flags(&[HOME])
    .examples(&[("as the account of the monitoring", "fleetgate master run")]),
    Command::new(
        &["master", "stop"],
        "end the processes that keep connections",
        "Ends them, and every session that runs by them. The next `fleetgate ssh` starts another one.",
        master::stop,
    )
    .flags(&[HOME])
    .examples(&[("begin anew", "fleetgate master stop")]),
    Command::new(
        &["status"],
        "say who is logged in, and until when",
        "User, roles, accounts, expiry, age of the second factor, device, proxy, and by how much this machine's clock \
         differs from the cluster's. The exit code is 1 where there is no login that holds. It asks nobody: \
         `fleetgate doctor` finds out whether the proxy still takes it.",
        login::status,
    )
    .flags(&[HOME, JSON])
    .examples(&[("a table", "fleetgate status"), ("for a program", "fleetgate status --json")]),
    Command::new(
        &["ls"],
        "list the nodes that you may reach, or the containers of one",
        "SELECTOR is a name, a pattern of names, or labels: `env=prod,role=db`. With --containers it is one node, which says \
         which of its containers you may enter, each with the login that leads there.",
        remote::list,
    )
    .flags(&[
        Flag::new("containers", Value::None, "The containers of a node that you may enter."),
        LOGIN,
        ADDRESS,
        HOME,
        JSON,
    ])
    .operands(Operands::words("SELECTOR", Value::Selector, 0, 1))
    .examples(&[
        ("all", "fleetgate ls"),
        ("some", "fleetgate ls env=prod --json"),
        ("the containers of a node", "fleetgate ls --containers web1"),
    ]),
    Command::new(
        &["ssh"],
        "log in to a node, or run a command there",
        "NODE is a name, or labels (`env=prod,role=db`): where several nodes match it asks which. NODE+CONTAINER is a \
         container there. Flags are ssh's, and stand before the command. The exit code is the command's, or 255 where the connection failed, 2 where the \
         command line is wrong.",
        remote::ssh,
    )
    .flags(&SSH_FLAGS)
    .operands(Operands::Ssh)
    .examples(&[
        ("a shell", "fleetgate ssh root@web1"),
        ("a command", "fleetgate ssh web1 uptime"),
        ("to the one database in production", "fleetgate ssh -L 5432:localhost:5432 env=prod,role=db"),
    ]),
    Command::new(
        &["run"],
        "run a command on many nodes",
        "The nodes run it side by side, all over one connection to the proxy. When all are done, nodes that said the same \
         stand together; with --json there is a line for each node as it ends, and one with the sums. Standard input is \
         empty. The command is what a shell on the node is given, as with ssh.\n\n\
         Ctrl-C and --timeout end the command on the nodes, with all that it started; a second Ctrl-C does not wait for \
         that. The exit code is 0 where the command's was 0 on every node, 1 where it was not, 128 and the signal's number \
         where the run was cancelled, 255 where the proxy is not reached.",
        run::command,
    )
    .flags(&[
        Flag::new("on", Value::Selector, "The nodes: a name, a pattern of names, or labels. All: `--on '*'`.")
            .repeated()
            .required(),
        LOGIN,
        Flag::new("batch", Value::Number("N"), "On so many nodes at a time (default: 100; at most 1000)."),
        Flag::new(
            "fail",
            Value::Text("LIMIT"),
            "After so many failed nodes, or so large a part of them, begin on no other: `3`, `10%`.",
        ),
        Flag::new("timeout", Value::Ttl, "How long each node has, from connecting to the command's end."),
        HOME,
        Flag::new("json", Value::None, "Print a line of JSON for each node, as it ends, and one with the sums."),
    ])
    .operands(Operands::Program { unless: "" })
    .examples(&[
        ("how long they have been up", "fleetgate run --on env=prod -- uptime"),
        (
            "a careful restart",
            "fleetgate run --on role=web --batch 5 --fail 1 --timeout 60s -l root -- systemctl restart nginx",
        ),
    ]),
    Command::new(
        &["check", "run"],
        "run a check on a node, for Nagios, Icinga and their kin",
        "What `check_fleetgate` does, a small program for the same, which does it sooner. The flags are check_nrpe's: \
         -H NODE, -c CHECK, -a ARGUMENT..., -t SECONDS[:STATE], -u; and -l ACCOUNT, --home DIR. CHECK is a named command \
         of the node's node.toml. With -H NODE+CONTAINER, or --container NAME, it runs in a container there.\n\n\
         Output and exit code are the plugin's. Whatever goes wrong on the way is UNKNOWN (3), with one line that says what.",
        check::run,
    )
    .operands(Operands::PassedOn("ARGUMENT"))
    .examples(&[
        ("a check", "fleetgate check run -H web1 -c load -a 15,10,5 30,25,20"),
        ("with a time of its own", "fleetgate check run -H web1 -c disk -t 30:CRITICAL"),
        ("in a container", "fleetgate check run -H web1+shop -c load -a 15,10,5 30,25,20"),
    ]),
    Command::new(
        &["check", "list"],
        "list the named commands of a node, or of this machine",
        "With NODE, the node says which named commands this login may run there, with their arguments; `ssh -s NODE \
         fleetgate-commands` asks the same. NODE+CONTAINER is a container there. Without NODE, those of this machine's own \
         configuration are listed, with what they execute.",
        check::list,
    )
    .flags(&[CONFIG, LOGIN, CONTAINER, ADDRESS, HOME, JSON])
    .operands(Operands::words("NODE", Value::Text("NODE"), 0, 1))
    .examples(&[
        ("what may be asked of web1", "fleetgate check list web1"),
        ("what this machine offers", "fleetgate check list"),
    ]),
    Command::new(
        &["check", "test"],
        "test the named commands of this machine, without a client",
        "Without CHECK, each command's program is looked for, who else may change it, and the account that `user` names; the exit \
         code is 1 where something is wrong. With CHECK and its arguments that command runs, as the node runs it: the same \
         helper, variables, account, `timeout` and `output`. The exit code is the command's.",
        check::test,
    )
    .flags(&[
        CONFIG,
        LOGIN,
        Flag::new(
            "secret",
            Value::Pair("NAME=FILE"),
            "A secret of the command: the variable, and the file that its value is in.",
        )
        .repeated(),
        JSON,
    ])
    .operands(Operands::OptionalProgram("CHECK"))
    .examples(&[
        ("all of them", "fleetgate check test"),
        ("one, as clients would have it", "fleetgate check test --login nagios load 15,10,5 30,25,20"),
    ]),
    Command::new(
        &["check", "serve"],
        "run checks by itself, and give their last results away",
        "Runs the checks of a file on the nodes that it names, spread over their intervals, in the foreground. The last \
         results are a page for Prometheus at /metrics, on a socket that is yours alone, on a port of loopback behind a \
         token, or as a file for node_exporter; and lines for the external command file of Nagios or Icinga.\n\n\
         A node that joins is checked from the next minute on. SIGHUP reads the file anew; one that is bad is refused, and \
         the checks stay as they were. A service runs in a `container` of its nodes, if it names one. Its state changes after \
         `failure_threshold` failures or `success_threshold` successes in a row (1). With --once each result counts, and the \
         exit code is 0 where all are OK, else 1.",
        check::serve,
    )
    .flags(&[
        Flag::new("file", Value::Path("FILE"), "What runs where: `[service.NAME]` with `on` and `check`.").required(),
        Flag::new(
            "listen",
            Value::Text("PLACE"),
            "Where /metrics is read: unix:PATH or 127.0.0.1:PORT (default: the socket mux/checks beside the login).",
        )
        .repeated(),
        Flag::new("token-file", Value::Path("FILE"), "What readers of a port show: `Authorization: Bearer TOKEN`."),
        Flag::new("textfile", Value::Path("FILE"), "Write the page to this file too, for node_exporter (*.prom)."),
        Flag::new("nagios", Value::Path("FIFO"), "Write each result to this external command file of Nagios or Icinga."),
        Flag::new("once", Value::None, "Run each check once, write the results, and end."),
        Flag::new("check", Value::None, "Read the files, say what would be done, and do nothing. The exit code is 1 where a secret cannot be read."),
        HOME,
        Flag::new("json", Value::None, "Print a line of JSON for each result."),
    ])
    .examples(&[
        ("for Prometheus", "fleetgate check serve --file checks.toml --listen 127.0.0.1:9109 --token-file token"),
        ("for Icinga", "fleetgate check serve --file checks.toml --nagios /run/icinga2/cmd/icinga2.cmd"),
        ("all of them now", "fleetgate check serve --file checks.toml --once"),
    ]),
    Command::new(
        &["check", "import"],
        "print NRPE's commands as named commands of a node",
        "Reads nrpe.cfg and prints tables for node.toml or for a role. Standard error says what has to be looked at: arguments, whose \
         forms are to be narrowed down, and lines that need a shell. What cannot be carried over stands there as a comment.",
        check::import_nrpe,
    )
    .flags(&[
        Flag::new(
            "cluster",
            Value::None,
            "For the fleetgate.toml of a machine in a cluster: [node.commands.NAME] instead of [commands.NAME].",
        ),
        Flag::new(
            "role",
            Value::Name("ROLE"),
            "For a role file, and so for all nodes of the role: [role.\"ROLE\".command.NAME].",
        ),
    ])
    .operands(Operands::words("FILE", Value::Path("FILE"), 1, 1))
    .examples(&[
        ("a machine's", "fleetgate check import /etc/nagios/nrpe.cfg > commands.toml"),
        ("a fleet's", "fleetgate check import --role monitoring /etc/nagios/nrpe.cfg > role.toml"),
    ]),
    Command::new(
        &["proxy-command"],
        "carry plain ssh to a node",
        "For ssh's ProxyCommand, as `fleetgate config ssh` writes it: standard input and output are the SSH bytes. A port \
         is accepted and ignored: a node has none.",
        remote::proxy_command,
    )
    .flags(&[
        Flag::new("login", Value::AccountName, "The account, so that the proxy can say at once that it may not be."),
        HOME,
    ])
    .operands(Operands::words("HOST", Value::Text("HOST"), 1, 2))
    .examples(&[("what ssh starts", "fleetgate proxy-command web1.demo 22")]),
    Command::new(
        &["scp"],
        "copy files, by the system's scp",
        "Runs scp with the login's keys and the way through the proxy; its flags and words are scp's.",
        remote::scp,
    )
    .operands(Operands::PassedOn("ARGUMENT"))
    .examples(&[("a file", "fleetgate scp notes.txt root@web1:/tmp/")]),
    Command::new(
        &["sftp"],
        "transfer files, by the system's sftp",
        "Runs sftp with the login's keys and the way through the proxy; its flags and words are sftp's.",
        remote::sftp,
    )
    .operands(Operands::PassedOn("ARGUMENT"))
    .examples(&[("interactively", "fleetgate sftp root@web1")]),
    Command::new(
        &["config", "ssh"],
        "print the ssh_config with which plain ssh reaches nodes",
        "Nodes are reached as NODE.CLUSTER, and by further names with --host; their containers as NODE+CONTAINER.CLUSTER. Host \
         certificates are trusted, the login's key is used, and connections are shared.",
        remote::config_ssh,
    )
    .flags(&[
        Flag::new("host", Value::Text("PATTERN"), "Further names that are nodes.").repeated(),
        Flag::new("write", Value::None, "Write it to ssh_config in the login's directory, and say how to include it."),
        HOME,
    ])
    .examples(&[("for good", "fleetgate config ssh --write")]),
    Command::new(
        &["config", "container"],
        "tell plain ssh which login a container's name means",
        "For ssh's configuration, as `fleetgate config ssh` writes it: before ssh connects to NODE+CONTAINER, it has the login and \
         the node's name written into the login's directory, and reads them there. The exit code is 1 where HOST is no container.",
        remote::config_container,
    )
    .flags(&[HOME])
    .operands(Operands::words("HOST", Value::Text("HOST"), 1, 1))
    .examples(&[("what ssh starts", "fleetgate config container db1+web.demo")]),
    Command::new(
        &["device", "enroll"],
        "make a key of this device, for an administrator to approve",
        "The key is made in ~/.fleetgate and never leaves. Once it is approved, each login says that it came from here.",
        device::enroll,
    )
    .flags(&[Flag::new("name", Value::Text("NAME"), "What it is called (default: the machine's name)."), HOME, JSON])
    .examples(&[("this machine", "fleetgate device enroll")]),
];

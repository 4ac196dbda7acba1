//! The commands about this machine and this program.

use super::JSON;
use crate::completions::live;
use crate::flags::{self, Arguments, Command, Flag, Invocation, Operands, Outcome, Value};
use crate::output::print;
use crate::{completions, demo, doctor, help, images, man, node, seal};
use fleetgate_base::exit;
use std::io::IsTerminal;
use std::path::Path;

pub(super) const CONFIG: Flag = Flag::new(
    "config",
    Value::Path("FILE"),
    "The node's configuration, instead of /etc/fleetgate/node.toml.",
);
const USER_MODE: Flag = Flag::new(
    "user-mode",
    Value::None,
    "Serve the user who starts it, without root.",
);
const VERIFY: Flag = Flag::new(
    "verify",
    Value::Pid,
    "Say whether and how this running process is sealed, and run nothing.",
)
.repeated();
const STRATEGY: Flag = Flag::new(
    "strategy",
    Value::Choice("STRATEGY", &["overlay", "memfd", "tmpfile", "unlinked", "none"]),
    "Seal in this way and no other.",
);

/// These commands.
pub const TABLE: &[Command] = &[
    Command::new(
        &["demo"],
        "seal the session helper, open a session, make a cluster and use it, say what each step cost",
        "Shows the way of a session on this machine: the sealing strategies with what each found, the \
         session helper sealed by the best of them, and a session for the current user through it; then a \
         cluster in a temporary folder, from `init` to a lock and the audit log. Needs no configuration and no \
         root, and leaves nothing behind.",
        |given| demo::run(&given.operands),
    )
    .operands(Operands::OptionalProgram("PROGRAM"))
    .examples(&[
        ("see it work", "fleetgate demo"),
        ("the same with a command of yours", "fleetgate demo -- uname -a"),
    ]),
    Command::new(
        &["doctor"],
        "say what is wrong with this host, and what to do about it",
        "Looks at everything that a node with this configuration would need: privileges, kernel, clock, ports, host \
         keys, ways in, PAM, cgroups, files. Changes nothing. `good` is as it should be, `less` works with less than \
         there could be, `wrong` keeps the node from starting or everybody from coming in; then the exit code is 1. Where \
         the auth service or the proxy is configured, it also looks whether they run and answer, whether the proxy \
         reaches auth, at the end of certificates, the room on their disks, and whether the program was replaced \
         since they began. Where you are logged in it also looks at the login, its proxy, the clock, the master and the ssh-agent. \
         How sessions are sealed is `fleetgate seal doctor`.",
        doctor::run,
    )
    .flags(&[CONFIG, JSON])
    .examples(&[
        ("this host, with its own configuration", "fleetgate doctor"),
        ("for a program", "fleetgate doctor --config node.toml --json"),
    ]),
    Command::new(
        &["node"],
        "serve SSH logins to this machine",
        "Runs in the foreground until it is told to end; packages install it as the service fleetgate-node. Needs no \
         configuration: people come in by ~/.ssh/authorized_keys on port 22, with the machine's own host keys. \
         /etc/fleetgate/node.toml says otherwise; its keys are in docs/node.md.\n\n\
         SIGHUP reads the configuration again. SIGTERM ends this process at once, while the connections that are \
         open go on until they end, so a restart ends no session. Ctrl-C ends all of it.\n\n\
         With --user-mode no root is needed: it serves the user who started it, on port 3022 of loopback.",
        node::run,
    )
    .flags(&[
        CONFIG,
        Flag::new(
            "listen",
            Value::Address,
            "Listen here, instead of where the configuration says.",
        )
        .repeated(),
        USER_MODE,
        Flag::new(
            "check",
            Value::None,
            "Read the configuration, say what is wrong with it, and run nothing.",
        ),
    ])
    .examples(&[
        ("serve this machine", "fleetgate node"),
        ("is the configuration right?", "fleetgate node --check"),
        (
            "try it without root",
            "fleetgate node --user-mode --listen 127.0.0.1:3022",
        ),
    ]),
    Command::new(
        &["seal"],
        "run programs from images that nobody can alter",
        "A running program's file can be opened through /proc/PID/exe and, by root in a container, be written to. \
         A sealed program runs from an image for which that is impossible.",
        seal_group,
    )
    .flags(&[VERIFY, JSON])
    .examples(&[("is process 4711 sealed?", "fleetgate seal --verify 4711")]),
    Command::new(
        &["seal", "doctor"],
        "say which sealing strategies work here, and why the others do not",
        "Each strategy is tried by really running the session helper's self-test from it, as root and as an \
         ordinary user. The first that works is the one sessions use; every refusal is shown with its error.",
        |given| seal::doctor(given.has("json")),
    )
    .flags(&[JSON])
    .examples(&[
        ("a table", "fleetgate seal doctor"),
        ("for a program", "fleetgate seal doctor --json"),
    ]),
    Command::new(
        &["seal", "run"],
        "run any program from a sealed image of itself",
        "Makes a sealed image of PROGRAM and executes it in place of fleetgate, with the given arguments. Without \
         --strategy the cheapest that works for a program that may be short-lived is taken: overlay, then memfd, \
         tmpfile, unlinked. `none` executes the file as it is, for comparison.\n\n\
         Scripts, setuid files, files with capabilities and programs that look for libraries beside themselves \
         ($ORIGIN) are refused, each with its reason: from a sealed image they would fail or do something else.\n\n\
         FLEETGATE_SEAL_LOG is for a caller that cannot add --verbose: a file by its absolute path, to which a line with \
         the same is appended, or `-` for standard error. The program inherits the variable, so runs inside of it log too.",
        seal_run,
    )
    .flags(&[
        STRATEGY,
        Flag::new(
            "verbose",
            Value::None,
            "Say on standard error which strategy is taken, and why each better one is refused.",
        ),
        VERIFY,
        JSON,
    ])
    .operands(Operands::Program { unless: "verify" })
    .examples(&[
        (
            "run a container runtime that its containers cannot overwrite",
            "fleetgate seal run -- crun run box",
        ),
        (
            "in memory only",
            "fleetgate seal run --strategy memfd -- ./tool --flag",
        ),
        (
            "which strategy, and why no better one?",
            "fleetgate seal run --verbose -- ./tool",
        ),
        ("is process 4711 sealed?", "fleetgate seal run --verify 4711"),
    ]),
    Command::new(
        &["seal", "verify"],
        "say whether and how running processes are sealed",
        "Looks at the executable of each process. The exit code is 0 when all of them are sealed and 1 when one \
         is not.",
        |given| seal::verify(&given.pids("verify"), given.has("json")),
    )
    .flags(&[JSON])
    .operands(Operands::Pids)
    .examples(&[("two processes", "fleetgate seal verify 4711 4712")]),
    Command::new(
        &["help"],
        "say what a command does, with its flags",
        "The same as --help behind the command.",
        explain,
    )
    .operands(Operands::words("COMMAND", Value::Text("COMMAND"), 0, 3))
    .examples(&[
        ("all commands", "fleetgate help"),
        ("one of them", "fleetgate help ssh"),
    ]),
    Command::new(
        &["completions"],
        "print completions for a shell",
        "Packages install them; by hand, put the output where the shell looks. Names of nodes, users and roles are \
         asked for while you type, for a second at most, and kept for when there is no answer.",
        complete,
    )
    .operands(Operands::Choice("SHELL", &["bash", "zsh", "fish"]))
    .examples(&[
        ("bash, now", "source <(fleetgate completions bash)"),
        (
            "fish, for good",
            "fleetgate completions fish > ~/.config/fish/completions/fleetgate.fish",
        ),
    ]),
    Command::new(
        &["man"],
        "show the manual page of a command, or write all of them into a directory",
        "Without COMMAND the page of fleetgate itself. man(1) shows it on a terminal; elsewhere it is printed as man(1) \
         reads it.",
        manual,
    )
    .flags(&[Flag::new(
        "directory",
        Value::Path("DIR"),
        "Write every page into this directory, which is made where it is missing.",
    )])
    .operands(Operands::words("COMMAND", Value::Text("COMMAND"), 0, 2))
    .examples(&[
        ("about ssh", "fleetgate man ssh"),
        (
            "install them",
            "fleetgate man --directory /usr/local/share/man/man1",
        ),
    ]),
    Command::new(
        &["version"],
        "print the version and the images this build carries",
        "An image is named with its digest, which is also what an installed file has to have.",
        version,
    ),
    Command::new(
        &[node::MONITOR],
        "the node's monitor, for its starter",
        "",
        node::monitor,
    )
    .flags(&[
        CONFIG,
        USER_MODE,
    ])
    .hidden(),
    Command::new(
        &["complete"],
        "the names that a shell offers, for its completions",
        "",
        |given| live::run(given.word().unwrap_or_default()),
    )
    .operands(Operands::Choice("WHAT", live::WHAT))
    .hidden(),
    Command::new(
        &["session"],
        "the session helper, for builds and hosts without its image",
        "",
        |given| Ok(crate::helper(fleetgate_session::run, given.operands.clone())),
    )
    .operands(Operands::Anything)
    .hidden(),
    Command::new(
        &["resolver"],
        "the resolver, for builds and hosts without its image",
        "",
        |given| Ok(fleetgate_resolver::run(&given.operands)),
    )
    .operands(Operands::Anything)
    .hidden(),
    Command::new(
        &["wtmpdb"],
        "the one-shot writer of login records in wtmpdb's database",
        "",
        |given| Ok(wtmpdb(given)),
    )
    .operands(Operands::Anything)
    .hidden(),
];

/// Its exit codes are its caller's to read, so the error is said here.
fn wtmpdb(given: &Arguments) -> i32 {
    match fleetgate_wtmpdb::run(&given.operands) {
        Ok(()) => 0,
        Err(error) => {
            eprintln!("fleetgate wtmpdb: {error}");
            error.code()
        }
    }
}

fn complete(given: &Arguments) -> Outcome {
    print(&completions::script(
        given.commands,
        given.word().unwrap_or_default(),
    ))
}

/// The help that the words name, as `--help` behind them has it.
fn explain(given: &Arguments) -> Outcome {
    let mut words = given.operands.clone();
    words.push("--help".into());
    match flags::parse(given.commands, &words) {
        Ok(Invocation::Help(command)) => match given.operands.get(command.words.len()) {
            None => print(&help::command(given.commands, command)),
            Some(extra) => {
                let extra = extra.to_string_lossy();
                Err(given.wrong(format!("`{extra}` is one word too many")).into())
            }
        },
        // One that reads its own flags.
        Ok(Invocation::Run(found)) if found.operands.len() == 1 => {
            print(&help::command(given.commands, found.command))
        }
        Ok(Invocation::Run(found)) => {
            let extra = found.operands[0].to_string_lossy().into_owned();
            Err(given.wrong(format!("`{extra}` is one word too many")).into())
        }
        Ok(Invocation::Overview { group, .. }) => print(&help::overview(given.commands, &group)),
        Err(usage) => Err(usage.into()),
    }
}

fn seal_group(given: &Arguments) -> Outcome {
    let pids = given.pids("verify");
    if pids.is_empty() {
        // The group's name alone asks for nothing.
        eprint!("{}", help::command(given.commands, given.command));
        return Ok(exit::USAGE);
    }
    seal::verify(&pids, given.has("json"))
}

fn seal_run(given: &Arguments) -> Outcome {
    let pids = given.pids("verify");
    if pids.is_empty() {
        seal::run(given.value("strategy"), given.has("verbose"), &given.operands)
    } else if given.has("verbose") {
        Err(given
            .wrong("`--verbose` is about a program that runs; `--verify` runs none")
            .into())
    } else {
        seal::verify(&pids, given.has("json"))
    }
}

fn manual(given: &Arguments) -> Outcome {
    let words: Vec<&str> = given.operands.iter().filter_map(|o| o.to_str()).collect();
    if let Some(directory) = given.value("directory") {
        if let Some(word) = words.first() {
            let what = format!("`--directory` writes every page: `{word}` is too much");
            return Err(given.wrong(what).into());
        }
        let directory = Path::new(directory);
        man::write(given.commands, directory).map_err(|e| format!("{}: {e}", directory.display()))?;
        return Ok(0);
    }
    let page = man::page_of(given.commands, &words).ok_or_else(|| {
        let words = words.join(" ");
        given.wrong(format!(
            "there is no page `{words}`; `--directory {words}` writes all pages into a directory"
        ))
    })?;
    if std::io::stdout().is_terminal() && man::show(&page)? {
        return Ok(0);
    }
    print(&page)
}

fn version(_: &Arguments) -> Outcome {
    let mut text = format!("fleetgate {}\n", env!("CARGO_PKG_VERSION"));
    for image in [
        &images::SESSION,
        &images::ENTER,
        &images::FRONT,
        &images::TUNNEL,
        &images::RECORDER,
        &images::RESOLVER,
    ]
    .into_iter()
    .flatten()
    {
        let digest = fleetgate_policy::text::hex(&image.sha256);
        text += &format!("{} {} {digest}\n", image.name, image.version);
    }
    if images::SESSION.is_none() {
        text += "no images: this build executes itself as session helper and resolver\n";
    }
    print(&text)
}

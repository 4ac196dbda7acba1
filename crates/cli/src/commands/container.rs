//! The commands about containers of this machine.

use super::JSON;
use crate::container;
use crate::flags::{Command, Flag, Operands, Value};

const ROOT: Flag = Flag::new(
    "root",
    Value::Path("DIR"),
    "Where the runtime keeps its containers, as `runc --root` has it, and nowhere else.",
);

/// These commands.
pub const TABLE: &[Command] = &[
    Command::new(
        &["container", "ls"],
        "list the containers that run on this machine",
        "Reads what runc, crun, Docker, containerd, Kubernetes, Podman, systemd-machined and LXC leave on the disk, and asks \
         none of them.",
        container::list,
    )
    .flags(&[ROOT, JSON])
    .examples(&[
        ("what runs here", "fleetgate container ls"),
        ("with labels, for a program", "fleetgate container ls --json"),
    ]),
    Command::new(
        &["container", "exec"],
        "run a program in a container of this machine",
        "Enters the container that NAME (its name, its id, or the beginning of its id) stands for, and runs COMMAND there, or \
         a shell: with the user, variables, directory, limits, capabilities and seccomp profile that the container's \
         configuration gives its programs, in its cgroups. A container without one (systemd-nspawn, LXC, --pid) gets what \
         containers usually have.\n\n\
         The program that enters comes from memory that nobody can alter, and takes no power into the container; \
         docs/containers.md says how. There is a terminal where standard input and output are one. Takes root. The exit \
         code is the command's own, or 125 where fleetgate did not run it, mistakes in this command line among the reasons. \
         Flags stand before NAME. `-it`, as docker has it, may be written.\n\n\
         `fleetgate-exec` is the same in a small program that starts sooner, for scripts and probes.",
        container::exec,
    )
    .flags(&[
        Flag::new(
            "user",
            Value::Text("USER"),
            "Whom to be inside: a name or number of the container's, with :GROUP if wanted; :GROUP alone keeps the user.",
        )
        .letter('u'),
        Flag::new("workdir", Value::Text("DIR"), "The working directory inside.").letter('w'),
        Flag::new("env", Value::Text("NAME=VALUE"), "A variable more.").letter('e').repeated(),
        Flag::new("interactive", Value::None, "Standard input is passed on: it always is.").letter('i').repeated(),
        Flag::new("tty", Value::None, "A terminal or nothing: refuses where standard input and output are none.")
            .letter('t')
            .repeated(),
        Flag::new("no-terminal", Value::None, "No terminal, although there is one.").letter('T'),
        Flag::new(
            "pid",
            Value::Pid,
            "The container that this process is in, instead of one by its name; then all words are the COMMAND.",
        ),
        ROOT,
    ])
    .operands(Operands::ProgramIn("NAME"))
    .examples(&[
        ("a shell", "fleetgate container exec web"),
        ("one command, as another user", "fleetgate container exec --user root web apt-get update"),
        ("where no runtime tells of it", "fleetgate container exec --pid 4711 ps"),
    ]),
];

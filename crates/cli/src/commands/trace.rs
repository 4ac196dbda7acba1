//! The command that traces.

use crate::flags::{Command, Flag, Operands, Value};
use crate::trace;

/// These commands.
pub const TABLE: &[Command] = &[Command::new(
    &["trace"],
    "show the system calls of a program, at little cost",
    "Runs PROGRAM and writes what it asks of the kernel to standard error, as strace does; letters mean what they mean for \
     strace. A filter that the program carries stops only the calls that -e names: the rest runs at full speed. The exit \
     code is the program's own, or the same signal ends this command.\n\n\
     -e takes strace's expressions, and tests of arguments that the kernel makes itself: openat, %file, !%memory, \
     /^get, 'openat(flags&O_WRONLY|O_RDWR)', status=failed, signal=none, quiet=all. docs/trace.md has all of them.\n\n\
     -p attaches to what runs already; every call of it stops then. With --inject a filter is put into it instead, so that \
     only the wanted calls stop: that filter stays until the program ends, a small guardian process goes on answering for \
     it after this command has left, and a program of an ordinary user is bound by no_new_privs for good, so that setuid \
     programs that it starts run without their privileges.\n\n\
     --no-ptrace leaves gdb and strace usable inside, shows no results, and survives this command being killed: the \
     guardian answers in its place.",
    trace::run,
)
.flags(FLAGS)
.operands(Operands::OptionalProgram("PROGRAM"))
.examples(&[
    ("every call of a program", "fleetgate trace ls /"),
    ("what a build connects to, into a file", "fleetgate trace -f -e connect -o out make -j2"),
    ("which files it wants and does not find", "fleetgate trace -f -Z -e %file ./configure"),
    ("where the time goes", "fleetgate trace -f -c -w make"),
    ("a running program, until Ctrl-C", "fleetgate trace -f -tt -p 4711"),
    ("for a program, and what changed since", "fleetgate trace -f --json -o b.json make"),
    ("what differs between two runs", "fleetgate trace --diff a.json b.json"),
    ("what this machine can do", "fleetgate trace --status"),
])];

const FLAGS: &[Flag] = &[
    Flag::new(
        "expression",
        Value::Text("EXPRESSION"),
        "What is shown: calls, classes (%file), !, /regex, tests; status=, signal=, quiet=, raw=, abbrev=, verbose=, \
         decode-fds=.",
    )
    .letter('e')
    .repeated(),
    Flag::new(
        "follow-forks",
        Value::None,
        "Follow the processes and threads that it makes; twice, with -o: each into a file of its own.",
    )
    .letter('f')
    .repeated(),
    Flag::new(
        "follow",
        Value::Text("WHOM"),
        "Follow all, none, threads, so many levels of processes, or exec=GLOB: those that run such a program. Others run free.",
    ),
    Flag::new("attach", Value::Text("PID"), "Trace this process, with its threads; several between commas.")
        .letter('p')
        .repeated(),
    Flag::new(
        "inject",
        Value::None,
        "With -p: put a filter into it, which stays until it ends. See above.",
    ),
    Flag::new(
        "no-ptrace",
        Value::None,
        "Catch calls by user notification: no results and no signals, and debuggers work inside.",
    ),
    Flag::new(
        "no-results",
        Value::None,
        "Show calls when they begin and not what comes of them, at half the cost.",
    ),
    Flag::new(
        "trace-path",
        Value::Text("GLOB"),
        "Show only calls that name a path that fits, or a descriptor of one.",
    )
    .letter('P')
    .repeated(),
    Flag::new("successful-only", Value::None, "Show only calls that did not fail.").letter('z'),
    Flag::new("failed-only", Value::None, "Show only calls that failed.").letter('Z'),
    Flag::new(
        "output",
        Value::Path("FILE"),
        "Write there, not to standard error; |COMMAND is started and reads it.",
    )
    .letter('o'),
    Flag::new("output-append-mode", Value::None, "Write behind what the file of -o has already.").letter('A'),
    Flag::new("string-limit", Value::Number("BYTES"), "Of strings, show so much (default: 32).").letter('s'),
    Flag::new("no-abbrev", Value::None, "Show structures and lists whole.").letter('v'),
    Flag::new(
        "decode-fds",
        Value::None,
        "Show what descriptors are; twice: the addresses of sockets too.",
    )
    .letter('y')
    .repeated(),
    Flag::new(
        "absolute-timestamps",
        Value::None,
        "Begin each line with the time of day; twice: with microseconds; three times: in seconds since 1970.",
    )
    .letter('t')
    .repeated(),
    Flag::new("relative-timestamps", Value::None, "Begin each line with the time since the line before.").letter('r'),
    Flag::new("syscall-times", Value::None, "Show how long each call took.").letter('T'),
    Flag::new("instruction-pointer", Value::None, "Show where in the program each call is.").letter('i'),
    Flag::new("columns", Value::Number("COLUMN"), "Where results stand (default: 40).").letter('a'),
    Flag::new(
        "quiet",
        Value::None,
        "Say nothing of whom is followed; twice: nor how they end; three times: nothing but calls and signals.",
    )
    .letter('q')
    .repeated(),
    Flag::new("summary-only", Value::None, "Show only sums of each call: times, calls, errors.").letter('c'),
    Flag::new("summary", Value::None, "Show sums behind the lines.").letter('C'),
    Flag::new(
        "summary-wall-clock",
        Value::None,
        "Sum up the time from the beginning of a call to its end, not the processor's.",
    )
    .letter('w'),
    Flag::new(
        "summary-sort-by",
        Value::Choice(
            "COLUMN",
            &[
                "time", "min-time", "max-time", "avg-time", "calls", "errors", "name", "nothing",
            ],
        ),
        "Sort the sums (default: time).",
    )
    .letter('S'),
    Flag::new("json", Value::None, "Write JSON: a line for each call, signal and end; for sums, status, differences a document."),
    Flag::new("svg", Value::Path("FILE"), "Draw where time went, by process and call."),
    Flag::new("env", Value::Text("NAME[=VALUE]"), "Set this for the program, or take it away.")
        .letter('E')
        .repeated(),
    Flag::new("show-filter", Value::None, "Print the filter that -e compiles to, and run nothing."),
    Flag::new("status", Value::None, "Try every way to catch calls on this machine, and run nothing."),
    Flag::new("diff", Value::None, "Compare two files that --json wrote: calls, files, hosts."),
];

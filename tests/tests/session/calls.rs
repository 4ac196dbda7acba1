//! How many system calls a command without terminal and records costs between the start and its exec.

use fleetgate_tests::orders::{self, command, pipe, read_all, user};
use fleetgate_wire::order::{Role, Work};

/// 21 of its own, and room for the allocator to ask for memory.
const FAST_PATH_CALLS: usize = 23;

#[test]
fn the_fast_path_is_short() {
    let path = format!("/tmp/fleetgate-calls-{}", std::process::id());
    let strace = ["/usr/bin/strace", "-qq", "-o", &path];
    let started = orders::start_by(&strace, "exec");
    let (output, theirs) = pipe();
    let given = [
        (Role::Stdin, &theirs),
        (Role::Stdout, &theirs),
        (Role::Stderr, &theirs),
    ];
    orders::send(&started.control, Work::Exec(command(user(), "echo done")), &given);
    drop(theirs);
    assert_eq!(read_all(output), "done\n");
    started.wait();
    let trace = std::fs::read_to_string(&path).expect("a trace");
    std::fs::remove_file(&path).expect("remove");
    // From the message that brings the order to the exec of the shell: the helper's own doing, whatever the start
    // code of its C library does before.
    let calls: Vec<&str> = trace
        .lines()
        .skip_while(|l| !l.starts_with("recvmsg("))
        .take_while(|l| !l.starts_with("execve("))
        .collect();
    assert!(calls.len() > 10, "{trace}");
    assert!(
        calls.len() <= FAST_PATH_CALLS,
        "{} calls:\n{}",
        calls.len(),
        calls.join("\n")
    );
}

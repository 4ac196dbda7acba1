//! The running node from outside: what a session's user, and whoever has the seats' user id, gets of its processes, and
//! what stands in their command lines and environments while somebody logs in.

use fleetgate_tests::login_world::sh;
use fleetgate_tests::service::{AUDIT, Manager, Open, Service, descendants, run, ssh};
use fleetgate_tests::world::wait_until;
use std::collections::BTreeSet;
use std::process::{Command, Stdio};

/// The user id of lobby and fronts where there is no system user for them.
const SEATS: u32 = 65534;
/// Ada's.
const ADA: u32 = 54321;
/// A password that stands nowhere else.
const PASSWORD: &str = "Quaint-Gorse-4711";

/// Tries what a debugger, a thief of descriptors and a saboteur would, on each process named and on a child of its own.
/// A line for each: the process, what was tried, and `done` or `refused`. process_vm_readv reads an address that is not
/// there: EFAULT says that it might have.
const PROBE: &str = r#"
use strict;
my $arm = `uname -m` =~ /aarch64/;
my ($ptrace, $readv) = $arm ? (117, 270) : (101, 310);
my ($pidfd_open, $getfd) = (434, 438);
my $child = open(my $pipe, "|-", "exec cat") or die "cat: $!";
for my $pid ("own=$child", @ARGV) {
    my ($name, $pid) = $pid =~ /(.*)=(.*)/;
    my $told = sub { print "$name $_[0] ", ($_[1] ? "done" : "refused"), "\n" };
    my $file = sub { open(my $f, "<", "/proc/$pid/$_[0]") };
    $told->("signal", kill(0, $pid));
    $told->($_, $file->($_)) for ("mem", "environ", "fd/0");
    $told->("fd", opendir(my $d, "/proc/$pid/fd"));
    $told->("exe", readlink("/proc/$pid/exe"));
    my $buffer = "x" x 8;
    my $own = pack("QQ", unpack("Q", pack("P", $buffer)), 8);
    my $theirs = pack("QQ", 4096, 8);
    my $read = syscall($readv, $pid, $own, 1, $theirs, 1, 0);
    $told->("process_vm_readv", $read >= 0 || $!{EFAULT});
    my $pidfd = syscall($pidfd_open, $pid, 0);
    $told->("pidfd_getfd", $pidfd >= 0 && syscall($getfd, $pidfd, 0, 0) >= 0);
    $told->("ptrace", syscall($ptrace, 0x4206, $pid, 0, 0) == 0);
}
"#;

fn configuration(more: &str) -> String {
    format!(
        "host_keys = [\"/run/test/host_ed25519\"]\nauthorized_keys = true\naudit_log = \"{AUDIT}\"\n\
         allow_users = [\"ada\", \"bea\"]\n{more}"
    )
}

fn effective_uid(pid: i32) -> Option<u32> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find(|line| line.starts_with("Uid:"))?;
    line.split_whitespace().nth(2)?.parse().ok()
}

/// The node's processes and what they started, as `KIND.NUMBER=PID`; none of ada's own.
fn processes(service: &Service) -> Vec<String> {
    let all = std::iter::once(service.pid()).chain(descendants(service.pid()));
    let (lobby, front) = (service.seats("lobby"), service.seats("front"));
    let monitor = service.monitor();
    all.filter(|pid| effective_uid(*pid).is_some_and(|uid| uid != ADA))
        .map(|pid| {
            let kind = match pid {
                _ if lobby.contains(&pid) => "lobby",
                _ if front.contains(&pid) => "front",
                _ if pid == monitor => "monitor",
                _ => "other",
            };
            format!("{kind}.{pid}={pid}")
        })
        .collect()
}

/// When a process of [`processes`] began; none: it is not there.
fn born(target: &str) -> Option<String> {
    let (_, pid) = target.split_once('=')?;
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // Field 22, counted behind the name in its brackets, which is the second.
    stat.rsplit_once(')')?.1.split(' ').nth(20).map(str::to_owned)
}

/// Every line of the probe's is a refusal, but for the process of its own; what was refused, by kind of process.
fn all_refused(output: &str, stayed: &[&str], but: impl Fn(&str, &str) -> bool) -> BTreeSet<String> {
    let mut refused = BTreeSet::new();
    let mut own = 0;
    for line in output.lines() {
        let [name, what, came] = line.split(' ').collect::<Vec<_>>()[..] else {
            panic!("{line}");
        };
        let kind = name.split('.').next().expect("a word");
        match (kind, came) {
            ("own", "done") => own += 1,
            ("own", _) => panic!("the probe does not work: {line}"),
            (_, "refused") if stayed.contains(&name) => {
                refused.insert(kind.to_owned());
            }
            (_, "refused") => {}
            _ => assert!(but(kind, what) || !stayed.contains(&name), "{line}"),
        }
    }
    assert_eq!(own, 9, "{output}");
    refused
}

#[test]
fn neither_a_sessions_user_nor_the_seats_reach_a_process_of_the_nodes() {
    let Some((_world, manager)) = Manager::in_world() else {
        return;
    };
    let service = manager.start(&configuration("pam = \"off\"\n"));
    std::fs::write("/run/test/probe.pl", PROBE).expect("write");
    // Another login's front and session are there to be reached, and one of ada's own fronts.
    let _bea = Open::new("bea", "bea");
    let mut session = Command::new("ssh");
    session.args(["-F", "/run/test/config", "-l", "bea", "gate", "echo in; exec cat"]);
    let session = session.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
    let mut session = session.expect("ssh starts");
    let mut said = [0; 3];
    std::io::Read::read_exact(session.stdout.as_mut().expect("piped"), &mut said).expect("bea is in");
    let ada = Open::new("ada", "ada");
    assert_eq!(ada.run("echo in"), "in\n");
    wait_until("each login has its front", || service.seats("front").len() == 2);
    let targets = processes(&service);
    let born: Vec<Option<String>> = targets.iter().map(|t| born(t)).collect();
    let kinds = ["front", "lobby", "monitor", "other"].map(str::to_owned);
    for kind in &kinds {
        assert!(
            targets.iter().any(|t| t.starts_with(kind.as_str())),
            "{targets:?}"
        );
    }
    // Helpers come and go, and their numbers may be others' by then: what counts is who was there all the time.
    let stayed = || -> Vec<&str> {
        let same = targets.iter().zip(&born).filter(|(t, b)| **b == self::born(t));
        same.map(|(t, _)| t.split('=').next().expect("a word")).collect()
    };
    let probe = format!("perl -MErrno /run/test/probe.pl {}", targets.join(" "));
    let output = ada.run(&probe);
    assert_eq!(
        all_refused(&output, &stayed(), |_, _| false),
        kinds.clone().into()
    );

    // Who has the seats' own user id may end them, if nothing more: a system user of their own is theirs alone.
    let seats = sh(&format!(
        "exec setpriv --reuid={SEATS} --regid={SEATS} --clear-groups {probe}"
    ));
    let but = |kind: &str, what: &str| what == "signal" && matches!(kind, "lobby" | "front");
    assert_eq!(all_refused(&seats, &stayed(), but), kinds.into());

    // Nothing that is not its own is open in a session, or stands in its environment.
    // Named one by one: whoever lists the directory has it open.
    let open = ada.run("for fd in `seq 0 255`; do test -L /proc/$$/fd/$fd && echo $fd; done; true");
    assert_eq!(open, "0\n1\n2\n");
    let environment = ada.run("env");
    for name in ["NOTIFY_SOCKET", "LISTEN_"] {
        assert!(!environment.contains(name), "{environment}");
    }
    // Of the node's own variables those that a session is given, and no others.
    let own = environment.lines().filter_map(|line| line.split_once('='));
    let own: BTreeSet<&str> = own
        .map(|(name, _)| name)
        .filter(|name| name.starts_with("FLEETGATE"))
        .collect();
    let given = BTreeSet::from(["FLEETGATE_ROLES", "FLEETGATE_SESSION", "FLEETGATE_USER"]);
    assert_eq!(own, given, "{environment}");
    drop(session.stdin.take());
    assert!(session.wait().expect("ssh ends").success());
}

/// Where `secret` stands among what everybody, or the user, may read of these processes.
fn shown(pids: &[i32], secret: &str) -> Vec<String> {
    let mut found = Vec::new();
    for pid in pids {
        for what in ["cmdline", "environ", "comm"] {
            let bytes = std::fs::read(format!("/proc/{pid}/{what}")).unwrap_or_default();
            if bytes.windows(secret.len()).any(|w| w == secret.as_bytes()) {
                found.push(format!("{what} of {pid}"));
            }
        }
    }
    found
}

#[test]
fn no_secret_stands_in_a_command_line_an_environment_or_a_log() {
    let Some((_world, manager)) = Manager::in_world() else {
        return;
    };
    // PAM stops between the password, which it knows by then, and the login.
    sh(&format!(
        "echo ada:{PASSWORD} | chpasswd -c SHA256 -s 1000
         cd /run/test; mkfifo go
         printf '#!/bin/sh\\necho {PASSWORD}\\n' > askpass
         printf '#!/bin/sh\\n: > asked\\nread line < go\\n' > hold
         sed -i 's,asked,/run/test/asked,; s,< go,< /run/test/go,' hold
         chmod 755 askpass hold
         cat > /etc/pam.d/fleetgate <<END
auth required pam_unix.so
auth required pam_exec.so quiet /run/test/hold
account required pam_permit.so
session required pam_permit.so
END"
    ));
    let service = manager.start(&configuration("pam = \"on\"\npassword = true\n"));
    let host = std::fs::read_to_string("/run/test/host_ed25519").expect("the host key");
    let host = host.lines().nth(2).expect("its second line").to_owned();
    let all = || {
        let mut all = descendants(service.pid());
        all.push(service.pid());
        all
    };
    let nothing_shows = |when: &str| {
        let pids = all();
        assert!(pids.len() > 3, "{when}: {pids:?}");
        for secret in [PASSWORD, &host] {
            assert_eq!(shown(&pids, secret), Vec::<String>::new(), "{when}");
        }
        for text in [service.log(), std::fs::read_to_string(AUDIT).unwrap_or_default()] {
            assert!(
                !text.contains(PASSWORD) && !text.contains(&host),
                "{when}: {text}"
            );
        }
    };
    // What looks does see.
    let mut marked = Command::new("cat")
        .arg("-")
        .env("MARK", PASSWORD)
        .stdin(Stdio::piped())
        .spawn()
        .expect("cat");
    let marked_pid = marked.id() as i32;
    wait_until("the program runs", || !shown(&[marked_pid], PASSWORD).is_empty());
    drop(marked.stdin.take());
    marked.wait().expect("it ends");

    let mut client = ssh("ada");
    client
        .args(["-o", "BatchMode=no", "-o", "PreferredAuthentications=password"])
        .args(["-o", "PubkeyAuthentication=no", "gate", "echo in; env; exec cat"])
        .env("SSH_ASKPASS", "/run/test/askpass")
        .env("SSH_ASKPASS_REQUIRE", "force")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    let mut client = client.spawn().expect("ssh starts");
    let asked = std::path::Path::new("/run/test/asked");
    wait_until("PAM has the password", || {
        assert_eq!(client.try_wait().expect("ours"), None, "{}", service.log());
        asked.exists()
    });
    nothing_shows("while PAM decides");
    std::fs::write("/run/test/go", "on\n").expect("the module waits");
    let mut said = [0; 3];
    std::io::Read::read_exact(client.stdout.as_mut().expect("piped"), &mut said).expect("ada is in");
    nothing_shows("in the session");
    drop(client.stdin.take());
    let output = client.wait_with_output().expect("ssh ends");
    assert!(output.status.success());
    assert!(!String::from_utf8_lossy(&output.stdout).contains(PASSWORD));
    nothing_shows("after it");

    // By key.
    assert_eq!(run("bea", "echo in"), "in\n");
    let bea = Open::new("bea", "bea");
    nothing_shows("with a login by key");
    assert_eq!(bea.run("echo in"), "in\n");
}

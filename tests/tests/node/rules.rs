//! What somebody who is in may do, and what is written down of it: every rule of node.toml that a client can feel, login
//! records, usage, metrics. Real clients against the node; against sshd too with `FLEETGATE_INTEROP=both`.

use fleetgate_sys::process;
use fleetgate_tests::login_world::sh;
use fleetgate_tests::needs_root;
use fleetgate_tests::peer::World;
use fleetgate_tests::service::{AUDIT, Manager, audited, run, ssh};
use fleetgate_tests::ways_in::{Table, drive};
use fleetgate_tests::world::wait_until;
use std::process::{Command, Stdio};

/// SIGSTOP.
const STOP: i32 = 19;

#[test]
fn sessions_and_their_rules() {
    drive(&[
        // Who somebody is the server says, whatever client, key file and account say.
        Table {
            before: "line 'environment=\"FLEETGATE_USER=eve\"'; echo FLEETGATE_ROLES=ops > $HOMES/ada/.ssh/environment",
            node: "pam = \"off\"\nauthorized_keys = true\naccept_env = [\"*\"]\nuser_environment = true",
            sshd: None,
            cases: &[
                (
                    "",
                    "s -o SetEnv='FLEETGATE_USER=eve FLEETGATE_ROLES=ops FLEETGATE_SESSION=1 FLEETGATE_OTHER=1 OTHER=sent' gate 'echo \"$OTHER $FLEETGATE_OTHER:$FLEETGATE_USER:$FLEETGATE_ROLES:${#FLEETGATE_SESSION}\"'",
                    "0 sent :::32",
                    &["session_started"],
                ),
                (
                    "",
                    "s gate 'echo $FLEETGATE_SESSION' > id; until_so grep -q \"session_ended.*$(cat id)\" $T/audit.jsonl; echo told",
                    "0 told",
                    &["session_ended"],
                ),
                (
                    "rm $HOMES/ada/.ssh/environment; line",
                    "s gate echo in",
                    "0 in",
                    &[],
                ),
            ],
        },
        Table {
            before: "line ''; echo 'Be welcome, or not.' > $T/banner",
            node: "pam = \"off\"\nbanner = \"/run/test/banner\"\naccept_env = [\"MINE*\"]\nset_env = { GIVEN = \"a b\", MINE_TOO = \"server\" }",
            sshd: Some(
                "UsePAM no\nBanner /run/test/banner\nAcceptEnv MINE*\nSetEnv GIVEN=\"a b\" MINE_TOO=server",
            ),
            cases: &[
                (
                    "",
                    "s -o LogLevel=INFO gate echo in 2>&1",
                    "0 Be welcome, or not.*in",
                    &[],
                ),
                (
                    "export MINE=1 MINE_TOO=client OTHER=2",
                    "s -o SendEnv='MINE MINE_TOO OTHER' gate 'echo $MINE $MINE_TOO ${OTHER-no} $GIVEN'",
                    "0 1 server no a b",
                    &[],
                ),
            ],
        },
        Table {
            before: "rm $HOMES/ada/.hushlogin; echo 'News of the day.' > /etc/motd",
            node: "pam = \"off\"",
            sshd: Some("UsePAM no"),
            cases: &[
                (
                    "s -tt gate <<< exit > first 2>&1; now=$(date +%s); until_so eval '[ $(date +%s) != $now ]'",
                    "s -tt gate <<< exit 2>&1",
                    "0 Last login: * from 127.0.0.1*News of the day.*",
                    &[
                        "session_started \"kind\":\"shell\"",
                        "session_started \"terminal\":\"/dev/pts/",
                    ],
                ),
                ("", "s -tt gate echo in", "0 in", &[]),
            ],
        },
        Table {
            before: "",
            node: "pam = \"off\"\nmotd = false\nlast_login = false",
            sshd: Some("UsePAM no\nPrintMotd no\nPrintLastLog no"),
            cases: &[(
                "",
                "s -tt gate <<< exit 2>&1 | grep -c 'Last login\\|News'",
                "1 0",
                &["session_started shell"],
            )],
        },
        Table {
            before: "touch $HOMES/ada/.hushlogin",
            node: "pam = \"off\"\nforce_command = \"echo forced: $SSH_ORIGINAL_COMMAND\"",
            sshd: Some("UsePAM no\nForceCommand echo forced: $SSH_ORIGINAL_COMMAND"),
            cases: &[
                (
                    "",
                    "s gate some thing",
                    "0 forced: some thing",
                    &["session_started \"original\":\"some thing\""],
                ),
                (
                    "",
                    "s -T gate",
                    "0 forced:",
                    &["session_started \"kind\":\"exec\""],
                ),
                (
                    "",
                    "s -s gate sftp",
                    "0 forced: *sftp*",
                    &["session_started \"original\":\"sftp\""],
                ),
                // The administrator's stands over the key's.
                (
                    "line 'command=\"echo own\"'",
                    "s gate some thing",
                    "0 forced: some thing",
                    &[],
                ),
            ],
        },
        Table {
            before: "line ''; echo old > $HOMES/ada/there; chown 54321 $HOMES/ada/there",
            node: "pam = \"off\"\nsftp = false\npty = false",
            sshd: None,
            cases: &[
                (
                    "",
                    "sf gate 2>&1",
                    "255 *",
                    &["denied file transfer is not allowed by", "!session_started"],
                ),
                ("", "s gate echo in", "0 in", &[]),
                (
                    "",
                    "s -o LogLevel=INFO -tt gate true 2>&1",
                    "255 *PTY allocation request failed*",
                    &["denied a terminal is not allowed by"],
                ),
            ],
        },
        Table {
            before: "",
            node: "pam = \"off\"\nsftp_read_only = true",
            sshd: None,
            cases: &[
                (
                    "",
                    "echo get there | sf -b - gate > /dev/null; cat there",
                    "0 old",
                    &[
                        "session_started \"kind\":\"sftp\"",
                        "file \"operation\":\"open\"",
                        "file \"read\":4",
                    ],
                ),
                (
                    "echo new > new",
                    "echo put new | sf -b - gate 2>&1; s gate test -e new",
                    "1 *ermission denied*",
                    &["file new"],
                ),
                (
                    "",
                    "echo rm there | sf -b - gate 2>&1",
                    "1 *ermission denied*",
                    &["file \"operation\":\"remove\""],
                ),
            ],
        },
        Table {
            before: "mkdir -p /run/jail/ada/in; chown 54321 /run/jail/ada/in",
            node: "pam = \"off\"\nsftp_chroot = \"/run/jail/%u\"",
            sshd: None,
            cases: &[
                (
                    "echo text > f",
                    "printf 'pwd\\nput f in/f\\nmkdir in/d\\nrename in/f in/d/f\\nln -s f in/d/l\\nchmod 600 in/d/f\\nls /\\nrm in/d/*\\nrmdir in/d\\n' | sf -b - gate; ls -A /run/jail/ada/in",
                    "0 *Remote working directory: /*in*",
                    &[
                        "file \"operation\":\"mkdir\"",
                        "file \"operation\":\"rename\"",
                        "file \"operation\":\"rmdir\"",
                        "file \"operation\":\"symlink\"",
                        "file \"path\":\"/in/f\"",
                    ],
                ),
                ("", "echo ls /run/test | sf -b - gate 2>&1", "1 *not found*", &[]),
                (
                    "chmod 777 /run/jail/ada",
                    "echo pwd | sf -b - gate 2>&1",
                    "255 *",
                    &["log sftp_chroot /run/jail/ada"],
                ),
            ],
        },
        Table {
            before: "",
            node: "pam = \"off\"\n[limits]\nsessions = 1\nlogin_grace = \"2s\"",
            sshd: Some("UsePAM no\nMaxSessions 1\nLoginGraceTime 2"),
            cases: &[
                (
                    "s -M -S ctl -o LogLevel=INFO gate 'echo up; exec cat' < <(until_so test -e done) > up 2>&1 & first=$!; until_so grep -q up up",
                    "ssh -F $T/bare -S ctl -o ControlMaster=no gate echo second 2>&1; touch done; wait $first",
                    "0*",
                    &["denied sessions"],
                ),
                (
                    "",
                    "timeout 30 nc 127.0.0.1 2222 <> <(:) > got; head -c 8 got",
                    "0 SSH-2.0-",
                    &["connection_ended 127.0.0.1"],
                ),
            ],
        },
        Table {
            before: "",
            node: "pam = \"off\"\n[limits]\nunauthenticated_per_source = 1",
            sshd: None,
            cases: &[
                (
                    "nc 127.0.0.1 2222 < <(until_so test -e done) > held & until_so test -s held",
                    "s gate true 2>&1; echo; touch done",
                    "0 *",
                    &["connection_refused \"source\":\"127.0.0.1"],
                ),
                ("", "until_so s gate echo in 2> err", "0 in", &["login_accepted"]),
            ],
        },
    ]);
}

#[test]
fn forwarding_and_its_switches() {
    drive(&[
        Table {
            before: "line ''",
            node: "pam = \"off\"\nconnect_forwarding = false\nlisten_forwarding = false\nagent_forwarding = false",
            sshd: Some(
                "UsePAM no\nAllowTcpForwarding no\nAllowStreamLocalForwarding no\nAllowAgentForwarding no",
            ),
            cases: &[
                (
                    "s -o LogLevel=INFO -N -L $PWD/door:127.0.0.1:2222 gate 2> said & until_so test -S door",
                    "nc -NU door < /dev/null; until_so grep -m1 prohibited said",
                    "0 *open failed: administratively prohibited: *",
                    &["denied direct-tcpip to 127.0.0.1:2222: forwarding to a TCP address is not allowed by"],
                ),
                (
                    "s -o LogLevel=INFO -N -L $PWD/door:/run/test/none gate 2> said & until_so test -S door",
                    "nc -NU door < /dev/null; until_so grep -m1 prohibited said",
                    "0 *open failed: administratively prohibited: *",
                    &["denied direct-streamlocal to /run/test/none: "],
                ),
                (
                    "",
                    "s -o ExitOnForwardFailure=yes -R 7001:127.0.0.1:2222 gate true 2>&1",
                    "255 *remote port forwarding failed for listen port 7001*",
                    &["denied remote forwarding: "],
                ),
                (
                    "",
                    "s -o ExitOnForwardFailure=yes -R /run/home/ada/s:/run/x gate true 2>&1",
                    "255 *remote port forwarding failed*",
                    &["denied remote forwarding: "],
                ),
                (
                    "eval $(ssh-agent) > agent",
                    "s -A gate 'echo ${SSH_AUTH_SOCK-none}'",
                    "0 none",
                    &["denied auth-agent-req@openssh.com: "],
                ),
                ("", "s gate echo in", "0 in", &["!denied"]),
            ],
        },
        Table {
            before: "",
            node: "pam = \"off\"\n[limits]\nlisteners = 1",
            sshd: None,
            cases: &[
                (
                    "",
                    "s -o ExitOnForwardFailure=yes -R 7001:127.0.0.1:2222 gate 'nc -N 127.0.0.1 7001 < /dev/null'",
                    "0 SSH-2.0-*",
                    &["listening 7001", "forwarded \"to\":\"the client, from 127.0.0.1:"],
                ),
                (
                    "",
                    "s -o ExitOnForwardFailure=yes -R 7001:127.0.0.1:1 -R 7002:127.0.0.1:1 gate true 2>&1",
                    "255 *remote port forwarding failed for listen port 7002*",
                    &[],
                ),
                // Without gateway_ports it is loopback, whatever the client asks for.
                (
                    "",
                    "s -R '*:7001:127.0.0.1:1' gate 'ss -Hltn sport = :7001' | awk '{ print $4 }' | sort | xargs",
                    "0 127.0.0.1:7001*",
                    &[],
                ),
                (
                    "",
                    "s -W 127.0.0.1:2222 gate",
                    "* SSH-2.0-*",
                    &["forwarded \"to\":\"127.0.0.1:2222\"", "!denied"],
                ),
                (
                    "",
                    "s -o LogLevel=INFO -W 127.0.0.1:1 gate 2>&1",
                    "255 *open failed: connect failed: Connection refused*",
                    &["!denied"],
                ),
                (
                    "",
                    "s -o LogLevel=INFO -X -o ForwardX11Timeout=0 gate 'echo ${DISPLAY-none}' 2> said",
                    "0 none",
                    &[],
                ),
            ],
        },
        Table {
            before: "",
            node: "pam = \"off\"\ngateway_ports = true",
            sshd: Some("UsePAM no\nGatewayPorts clientspecified"),
            cases: &[
                (
                    "",
                    "s -R '0.0.0.0:7001:127.0.0.1:1' gate 'ss -Hltn sport = :7001' | awk '{ print $4 }'",
                    "0 0.0.0.0:7001",
                    &["listening 7001"],
                ),
                (
                    "",
                    "s -R '7001:127.0.0.1:1' gate 'ss -Hltn sport = :7001' | awk '{ print $4 }' | sort | head -n 1",
                    "0 127.0.0.1:7001",
                    &[],
                ),
            ],
        },
    ]);
}

#[test]
fn what_is_written_down() {
    drive(&[
        Table {
            before: "line ''; rm -f /var/log/wtmp /var/log/lastlog /run/utmp; touch /var/log/wtmp /var/log/lastlog /run/utmp",
            node: "pam = \"off\"\nmetrics = \"127.0.0.1:9100\"",
            sshd: None,
            cases: &[
                (
                    "mkfifo keys; s -tt gate < keys > screen 2>&1 & shell=$!; exec 3> keys; until_so eval 'who /run/utmp | grep -q ada && lastlog -u ada | grep -q 127.0.0.1'",
                    "who /run/utmp | awk '{ print $1, $NF }'; last ada | grep -c 'still logged in'; lastlog -u ada | grep -c 127.0.0.1
                     echo exit >&3; exec 3>&-; wait $shell; until_so eval '! who /run/utmp | grep -q ada'
                     until_so eval '! last ada | grep -q \"still logged in\"'; who /run/utmp | wc -l; last ada | grep -c 'still logged in'; last ada | grep -c '^ada .*127.0.0.1'",
                    "0 ada (127.0.0.1)\n1\n1\n0\n0\n1",
                    &["session_started shell", "session_ended \"code\":0"],
                ),
                // A record that cannot be written keeps nobody out, and is told.
                (
                    "mv /var/log/wtmp before; mkdir /var/log/wtmp",
                    "echo exit | s -tt gate > /dev/null 2>&1; echo; rmdir /var/log/wtmp; mv before /var/log/wtmp",
                    "0 ",
                    &["session_started \"unrecorded\":\"utmp and wtmp: "],
                ),
                // A command is no login for `last`; it is one for lastlog with a terminal alone, as with sshd.
                ("cp /var/log/wtmp before", "s gate true; cmp before /var/log/wtmp && echo same", "0 same", &["session_ended \"cpu_us\":"]),
                ("", "s gate 'i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done; kill -TERM $$'; echo", "0 ", &["session_ended \"signal\":15"]),
                (
                    "s root@gate true 2> err || :; s -o ExitOnForwardFailure=yes -R 127.0.0.1:22:127.0.0.1:1 gate true 2> err || :
                     page() { curl -s http://127.0.0.1:9100/metrics; }
                     until_so eval \"page | grep -q 'sessions_open 0'\"",
                    "page | grep -v '^#' | grep -e logins_total -e sessions -e denied",
                    "0 *logins_total{result=\"accepted\"} *logins_total{result=\"refused\"} *sessions_total{kind=\"shell\"} 2*",
                    &[],
                ),
                ("", "curl -s -o page -w '%{http_code}' http://127.0.0.1:9100/other", "0 404", &[]),
            ],
        },
        Table {
            before: "",
            node: "pam = \"off\"\nkill_user_processes = false",
            sshd: Some("UsePAM no"),
            cases: &[(
                "s gate 'sleep 1000 < /dev/null > /dev/null 2>&1 & echo $!' > pid",
                "s gate \"kill $(cat pid) && echo lived\"",
                "0 lived",
                &[],
            )],
        },
    ]);
}

/// A name service that never answers about `slow`, in front of the machine's own libraries.
const SLOW_NAMES: &str = include_str!("../../scripts/slow_names.sh");

#[test]
fn a_name_service_or_a_home_that_hangs_stalls_its_own_login_alone() {
    needs_root!("a network and accounts of its own");
    let world = World::new();
    sh(SLOW_NAMES);
    let manager = Manager::new(&world);
    let service = manager.start(&format!(
        "host_keys = [\"/run/test/host_ed25519\"]\naudit_log = \"{AUDIT}\"\npam = \"off\"\n[limits]\nname_service = \"5s\"\n"
    ));
    assert_eq!(run("bea", "echo in"), "in\n");

    // bea's home is on a file system whose server is stopped.
    let mut mounted = Command::new("sshfs")
        .args([
            "-f",
            "-o",
            "allow_other,default_permissions,ssh_command=/run/test/serve",
        ])
        .args(["none:/run/home/bea-kept", "/run/home/bea"])
        .spawn()
        .expect("sshfs: install it");
    wait_until("bea's home is mounted", || {
        std::fs::read_to_string("/proc/thread-self/mounts").is_ok_and(|m| m.contains(" /run/home/bea "))
    });
    assert_eq!(run("bea", "echo in"), "in\n", "as long as the server answers");
    let server: i32 = std::fs::read_to_string("/run/test/server")
        .expect("its number")
        .trim()
        .parse()
        .expect("a number");
    let server = process::pidfd_open(server).expect("it lives");
    process::signal(&server, STOP).expect("it lives");

    let stalled = |user: &str| {
        let mut child = ssh(user)
            .args(["gate", "true"])
            .stderr(Stdio::null())
            .spawn()
            .expect("ssh");
        wait_until("the login waits", || service.log().contains("a connection"));
        assert!(child.try_wait().expect("ours").is_none());
        child
    };
    let mut slow = [stalled("slow"), stalled("bea")];
    for n in 0..5 {
        assert_eq!(run("ada", &format!("echo {n}")), format!("{n}\n"));
    }
    for child in &mut slow[1..] {
        assert!(
            child.try_wait().expect("ours").is_none(),
            "whoever hangs still waits"
        );
    }
    assert_eq!(
        slow[0].wait().expect("ours").code(),
        Some(255),
        "the name service had its time"
    );
    audited("the name service's silence", |e| {
        e["event"] == "login_refused" && e["login"] == "slow"
    });
    process::signal(&server, process::SIGKILL).expect("it lives");
    assert!(slow[1].wait().expect("ours").code().is_some());
    assert_eq!(run("ada", "echo after"), "after\n");
    let _ = mounted.kill();
    let _ = mounted.wait();
}

//! A PAM module that gives each PAM session a network and a /tmp of its own: forwards are where the session is. Real clients
//! against the node; against sshd too with `FLEETGATE_INTEROP=both`, which does the same in all of these cases.

use fleetgate_tests::ways_in::{Case, Table, drive};

const NODE: &str = "pam = \"on\"\nx11_forwarding = true";
const SSHD: Option<&str> = Some("UsePAM yes\nX11Forwarding yes\nAllowAgentForwarding yes");

macro_rules! words {
    ($before:literal) => {
        concat!(". $PEERS/../scripts/apart.sh; ", $before)
    };
}

/// The same without the module: each case would see a forward outside.
const OUTSIDE: &[Case] = &[
    (
        words!(""),
        "[ $(s gate readlink /proc/self/ns/net) = $(readlink /proc/self/ns/net) ] && echo same",
        "0 same",
        &[],
    ),
    (
        words!(""),
        "s -W 127.0.0.1:2222 gate < /dev/null | head -c 3",
        "0 SSH",
        &[],
    ),
    (
        words!("begin -R 7001:127.0.0.1:2222 gate 'echo ready; read x'"),
        "nothing_on 7001; over",
        "0 ",
        &["listening 127.0.0.1:7001"],
    ),
];

const APART: &[Case] = &[
    (
        words!("forget"),
        "[ $(s gate readlink /proc/self/ns/net) != $(readlink /proc/self/ns/net) ] && echo apart; noted",
        "0 apart\nopen close",
        &[],
    ),
    // Without a session.
    (
        words!("forget"),
        "s -W 127.0.0.1:2222 gate < /dev/null | head -c 3; noted",
        "0 open close",
        &["!session_started"],
    ),
    // A session before the forward: to its port, and to its unix socket.
    (
        words!("forget; begin -L $PWD/l:127.0.0.1:7000 gate \"$(giving 7000)\""),
        "taking $PWD/l; over; noted",
        "0 inside\nopen close",
        &["session_started"],
    ),
    (
        words!("forget; begin -L $PWD/l:/tmp/there gate \"$(giving /tmp/there)\""),
        "taking $PWD/l; over; noted",
        "0 inside\nopen close",
        &["session_started"],
    ),
    // A forward before the session.
    (
        words!("forget"),
        "s -R 7001:127.0.0.1:2222 gate \"$(from_port 7001)\"; noted",
        "0 SSHopen close",
        &["listening 127.0.0.1:7001"],
    ),
    (
        words!("begin -R 7001:127.0.0.1:2222 gate 'echo ready; read x'"),
        "nothing_on 7001; over",
        "0 nothing",
        &["listening 127.0.0.1:7001"],
    ),
    // The agent's socket is in /tmp, and a display is a port.
    (
        words!("forget; eval $(ssh-agent) > agent; ssh-keygen -q -t ed25519 -N '' -f k; ssh-add -q k"),
        "s -A gate 'ssh-add -l | wc -l; ls /tmp | wc -l'; noted",
        "0 1\n1\nopen close",
        &["session_started"],
    ),
    (
        words!("forget; export DISPLAY=:77"),
        "s -Y gate 'd=${DISPLAY#*:}; bash -c \": <> /dev/tcp/127.0.0.1/$((6000 + ${d%.*}))\" && echo in'; noted",
        "0 in\nopen close",
        &["session_started"],
    ),
    // Several of everything on one connection that begins with a forward: the first session is with it.
    (
        words!(
            "forget; s -fNM -S $PWD/c gate; s -S $PWD/c -W 127.0.0.1:2222 gate < /dev/null || true; s -S $PWD/c -O forward -R 7001:127.0.0.1:2222 gate"
        ),
        "s -S $PWD/c gate \"$(from_port 7001)\"; s -S $PWD/c -O exit gate 2> /dev/null; noted",
        "0 SSHopen close",
        &["listening 127.0.0.1:7001"],
    ),
];

const REFUSED: &[Case] = &[
    (
        words!("service 'session required pam_deny.so'"),
        "s -v -W 127.0.0.1:2222 gate < /dev/null 2>&1 | grep -o 'SSH-2.0-.*started\\|PAM refused the forwarding.*'",
        "0 PAM refused the forwarding; the host's log says why",
        &["log pam_open_session", "!session_started"],
    ),
    (
        words!(""),
        "s -o ExitOnForwardFailure=yes -NR 7001:127.0.0.1:2222 gate; nothing_on 7001",
        "0 nothing",
        &["log pam_open_session", "!listening"],
    ),
];

#[test]
fn forwards_are_in_the_namespaces_that_pam_made() {
    drive(&[
        Table {
            before: "cp /etc/pam.d/fleetgate /etc/pam.d/sshd",
            node: NODE,
            sshd: SSHD,
            cases: OUTSIDE,
        },
        Table {
            before: ". $PEERS/../scripts/apart.sh; apart",
            node: NODE,
            sshd: SSHD,
            cases: APART,
        },
        Table {
            before: "",
            node: NODE,
            sshd: None,
            cases: REFUSED,
        },
    ]);
}

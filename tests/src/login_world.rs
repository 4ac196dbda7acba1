//! A world of its own for one test's thread: the machine's files, with `/etc` to be written, `/run` and `/var/log`
//! fresh, an ordinary user, and Debian's own sshd beside the helper. All of it goes when the thread ends.

use crate::orders;
use fleetgate_sys::Fd;
use fleetgate_wire::common::{Account, Ids};
use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// What the script of every world begins with.
pub const BASE: &str = include_str!("../scripts/base.sh");
const SETUP: &str = include_str!("../scripts/login.sh");

const SSHD: &str = "HostKey /run/test/host
AuthorizedKeysFile /run/test/key.pub
StrictModes no
UsePAM no
PrintMotd yes
PrintLastLog yes
PermitRootLogin yes
PermitUserEnvironment yes
AcceptEnv LANG LC_*
UseDNS no
PidFile none
KexAlgorithms curve25519-sha256
";

/// The calling thread's own world.
pub struct World(());

impl World {
    /// Makes it.
    pub fn new() -> World {
        fleetgate_sys::mount::separate().expect("a mount table of its own");
        sh(&format!("{BASE}{SETUP}"));
        World(())
    }

    /// The user of this world.
    pub fn ada(&self) -> Account {
        Account {
            name: c"ada".into(),
            ids: Ids {
                uid: 54321,
                gid: 54322,
                groups: vec![54322, 54323],
            },
            home: c"/run/home/ada".into(),
            shell: c"/bin/bash".into(),
            ageing: None,
        }
    }

    /// What sshd makes of `ssh ARGS`, with `input` typed into it. By key, or where ARGS want it by password.
    pub fn ssh(&self, user: &str, args: &[&str], input: &str) -> Output {
        if !Path::new("/run/test/sshd_config").exists() {
            fs::write("/run/test/sshd_config", SSHD).expect("write");
            sh(
                "for k in host key; do ssh-keygen -q -t ed25519 -N '' -f /run/test/$k; done; chmod 644 /run/test/key.pub",
            );
        }
        let listener = TcpListener::bind("127.0.0.1:0").expect("listen");
        let port = listener.local_addr().expect("address").port().to_string();
        let mut client = Command::new("ssh")
            .args(["-F", "none", "-i", "/run/test/key", "-p", &port, "-l", user])
            .args([
                "-o",
                "StrictHostKeyChecking=no",
                "-o",
                "UserKnownHostsFile=/dev/null",
            ])
            .args(["-o", "LogLevel=ERROR", "-o", "IdentityAgent=none"])
            .arg("127.0.0.1")
            .args(args)
            .env("SSH_ASKPASS", "/run/test/askpass")
            .env("SSH_ASKPASS_REQUIRE", "force")
            .env("LC_TEST", "yes")
            .env("OTHER", "no")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("ssh");
        let (socket, _) = listener.accept().expect("accept");
        let socket: std::os::fd::OwnedFd = socket.into();
        let mut server = Command::new("/usr/sbin/sshd")
            .args(["-i", "-f", "/run/test/sshd_config", "-E", "/run/test/log"])
            .env_clear()
            .stdin(socket.try_clone().expect("dup"))
            .stdout(socket)
            .stderr(Stdio::null())
            .spawn()
            .expect("sshd");
        std::io::Write::write_all(&mut client.stdin.take().expect("piped"), input.as_bytes()).expect("type");
        let output = client.wait_with_output().expect("ssh ends");
        server.wait().expect("sshd ends");
        output
    }
}

impl Default for World {
    fn default() -> World {
        World::new()
    }
}

/// Runs a script of the test's own; it must succeed. Returns what it wrote.
pub fn sh(script: &str) -> String {
    let output = Command::new("sh")
        .args(["-c", script])
        .env("LC_ALL", "C")
        .output()
        .expect("sh");
    assert!(
        output.status.success(),
        "{script}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// A terminal that is kept, and a helper on it that has said Leaving: a session that lives.
pub struct Living {
    /// The helper that became the shell.
    pub started: orders::Started,
    /// Our side of its terminal.
    pub ours: fs::File,
    /// The terminal's path.
    pub terminal: std::ffi::CString,
}

/// Starts `order` on a terminal and waits until it left.
pub fn living(mut order: fleetgate_wire::exec::Exec) -> Living {
    let terminal = orders::Terminal::open();
    let path = terminal.path.clone();
    order.terminal = Some(path.clone());
    let started = orders::start("exec", &[]);
    let user: &Fd = &terminal.user;
    orders::send(
        &started.control,
        fleetgate_wire::order::Work::Exec(order),
        &[(fleetgate_wire::order::Role::Terminal, user)],
    );
    let replies = started.replies();
    assert!(
        matches!(replies.last(), Some(fleetgate_wire::Reply::Leaving { .. })),
        "{replies:?}"
    );
    Living {
        started,
        ours: terminal.give(),
        terminal: path,
    }
}

impl Living {
    /// Reads the terminal until `word` stands on it; returns all of it.
    pub fn read_until(&mut self, word: &str) -> String {
        let mut all = String::new();
        while !all.contains(word) {
            let more = orders::read_some(&mut self.ours).expect("the session lives");
            all.push_str(&more);
        }
        all
    }
}

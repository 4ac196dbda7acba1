//! `cargo xtask bench eight-cases`: the eight cases that a mail to openssh-unix-dev compared in 2012, in its order, with its check
//! and its arguments, and ours beside them: `check_fleetgate` through the proxy and to the node's own port, and `fleetgate ssh`
//! to the sshd that the cases 4 to 8 use. All of it is on one machine. As root.

use super::{CIPHER, Nrpe, wait_for_port};
use crate::bench::ssh::cluster::{CHECK_LOAD, Cluster, Node};
use crate::bench::ssh::server::{Master, SSHD, Server, free_port};
use crate::bench::ssh::world::{World, login};
use crate::bench::{Bench, Subject, rival};
use crate::shell::Result;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

/// What is run.
pub const CASE: &str = "check_load";
const WARM_UP: usize = 3;
const TIMES: usize = 100;

/// Whose shell is what: the logins of the cases 5 to 8.
const SHELLS: [(usize, &str); 4] = [
    (1, "/bin/bash"),
    (2, "/bin/dash"),
    (3, "/run/home/ash"),
    (4, "/bin/true"),
];

/// What each case asks.
struct Cases<'a> {
    world: &'a World,
    cluster: &'a Cluster,
    node: Node,
    // Before their server.
    masters: Vec<Master>,
    forward: Forward,
    sshd: Server,
    tls: Nrpe,
    plain: Nrpe,
    check: PathBuf,
    check_nrpe: PathBuf,
    monitoring: PathBuf,
}

/// Measures.
pub fn measure(bench: &mut Bench) -> Result {
    rival("../lib/nagios/plugins/check_load", "monitoring-plugins-basic")?;
    let world = World::new(bench)?;
    give_shells(&world)?;
    let cluster = world.cluster()?;
    let sshd = Server::start(&world, SSHD)?;
    let plain = Nrpe::start(&world, false)?;
    let masters = SHELLS.map(|(n, _)| Master::connect(&world, &sshd, &login(n), CIPHER));
    let cases = Cases {
        world: &world,
        cluster,
        node: cluster.node(&world)?,
        forward: Forward::start(&world, &sshd, plain.port)?,
        masters: masters.into_iter().collect::<Result<_>>()?,
        sshd,
        tls: Nrpe::start(&world, true)?,
        plain,
        check: bench.built.check.clone(),
        check_nrpe: rival("../lib/nagios/plugins/check_nrpe", "nagios-nrpe-plugin")?,
        monitoring: cluster.monitoring()?,
    };
    let cases = &cases;
    type Make<'a> = Box<dyn Fn() -> Command + 'a>;
    let subjects: [(&str, bool, Make); 12] = [
        (
            "1 NRPE with TLS",
            true,
            Box::new(|| cases.nrpe(cases.tls.port, &[])),
        ),
        ("2 NRPE", true, Box::new(|| cases.nrpe(cases.plain.port, &["-n"]))),
        (
            "3 NRPE by ssh -L",
            true,
            Box::new(|| cases.nrpe(cases.forward.port, &["-n"])),
        ),
        ("4 ssh, bash", true, Box::new(|| cases.ssh())),
        (
            "5 ControlMaster, bash",
            true,
            Box::new(|| cases.by_control_master(0)),
        ),
        (
            "6 ControlMaster, dash",
            true,
            Box::new(|| cases.by_control_master(1)),
        ),
        (
            "7 ControlMaster, ash",
            true,
            Box::new(|| cases.by_control_master(2)),
        ),
        (
            "8 ControlMaster, true",
            false,
            Box::new(|| cases.by_control_master(3)),
        ),
        ("check_fleetgate", true, Box::new(|| cases.check(&[]))),
        (
            "check_fleetgate --address",
            true,
            Box::new(|| cases.check(&["--address", &cases.address()])),
        ),
        ("fleetgate ssh --direct", true, Box::new(|| cases.direct(&[]))),
        (
            "fleetgate ssh, cold",
            true,
            Box::new(|| cases.direct(&["--no-master"])),
        ),
    ];
    let subjects = subjects.map(|(name, speaks, make)| Subject::timed(name, move || done(make(), speaks)));
    bench.run(CASE, "ms", WARM_UP, TIMES, subjects.into())
}

/// Gives the logins their shells, and bash the files that Debian gives a new account.
fn give_shells(world: &World) -> Result {
    let homes = world.at.join("home");
    let failed = |e: std::io::Error| format!("{}: {e}", homes.display());
    std::os::unix::fs::symlink(rival("busybox", "busybox-static")?, homes.join("ash")).map_err(failed)?;
    for (n, shell) in SHELLS {
        world.set_shell(&login(n), shell)?;
    }
    for file in [".bashrc", ".profile"] {
        let to = homes.join(login(1)).join(file);
        std::fs::copy(PathBuf::from("/etc/skel").join(file), to).map_err(failed)?;
    }
    Ok(())
}

impl Cases<'_> {
    fn nrpe(&self, port: u16, more: &[&str]) -> Command {
        let mut command = Command::new(&self.check_nrpe);
        command
            .args(more)
            .args(["-H", "127.0.0.1", "-p", &port.to_string(), "-c", "load"]);
        command
    }

    fn ssh(&self) -> Command {
        let mut command = self.sshd.client(self.world, &login(1), CIPHER);
        command.args(["127.0.0.1", CHECK_LOAD]);
        command
    }

    fn by_control_master(&self, n: usize) -> Command {
        let mut command = self.masters[n].client(self.world);
        command.args(["127.0.0.1", CHECK_LOAD]);
        command
    }

    fn check(&self, more: &[&str]) -> Command {
        let mut command = Command::new(&self.check);
        command.arg("--home").arg(&self.monitoring);
        command.args(["-l", &login(0), "-H", &self.node.name, "-c", "load"]);
        command.args(more);
        command
    }

    /// The node's own port.
    fn address(&self) -> String {
        format!("127.0.0.1:{}", self.node.port)
    }

    /// Ours to the unmodified sshd.
    fn direct(&self, more: &[&str]) -> Command {
        let mut command = self.cluster.ssh();
        command.arg("--direct").args(more);
        let known = format!(
            "UserKnownHostsFile={}",
            self.world.at.join("known_hosts").display()
        );
        for option in [
            "BatchMode=yes",
            "IdentitiesOnly=yes",
            &known,
            "HostKeyAlias=bench",
        ] {
            command.args(["-o", option]);
        }
        command.arg("-i").arg(self.world.at.join("user"));
        command.args([
            "-l",
            &login(1),
            "-p",
            &self.sshd.port.to_string(),
            "127.0.0.1",
            CHECK_LOAD,
        ]);
        command
    }
}

/// Runs it. What it says is a load, unless the shell says nothing; how high it is does not matter.
fn done(mut command: Command, speaks: bool) -> Result {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let out = command.output().map_err(|e| format!("{command:?}: {e}"))?;
    let said = String::from_utf8_lossy(&out.stdout);
    match matches!(out.status.code(), Some(0..=2)) && said.contains("load average") == speaks {
        true => Ok(()),
        false => Err(format!(
            "{command:?}: {}: {} {}",
            out.status,
            said.trim(),
            String::from_utf8_lossy(&out.stderr).trim()
        )),
    }
}

/// A port on this side that leads to NRPE's by sshd.
struct Forward {
    port: u16,
    child: Child,
}

impl Forward {
    fn start(world: &World, sshd: &Server, to: u16) -> Result<Forward> {
        let port = free_port()?;
        let mut command = sshd.client(world, &login(1), CIPHER);
        command.args([
            "-N",
            "-L",
            &format!("127.0.0.1:{port}:127.0.0.1:{to}"),
            "127.0.0.1",
        ]);
        let child = command.spawn().map_err(|e| format!("ssh: {e}"))?;
        let forward = Forward { port, child };
        wait_for_port(port, "ssh -L")?;
        Ok(forward)
    }
}

impl Drop for Forward {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

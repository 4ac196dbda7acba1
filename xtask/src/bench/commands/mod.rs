//! `cargo xtask bench commands`: one command on another machine, as a monitoring system asks for it ten thousand times a
//! minute: `check_fleetgate` and `fleetgate ssh` by the master, through the proxy and to the node's own port, beside check_nrpe
//! (plain and TLS), which connects to its server, and OpenSSH (cold, and over ControlMaster). What is run is `/bin/echo OK`:
//! by NRPE and OpenSSH through a shell, as they run what they are told; by `check_fleetgate` as a named command, which needs
//! none. As root.
//!
//! The servers and the cluster are those of `bench ssh`. Rates are of whole commands, each a process that a loop waits for, as
//! a monitoring system has it.

pub mod eight_cases;
mod fleet;
pub mod icinga;
mod processor_time;
mod steady;

use super::ssh::cluster::{CHECK_LOAD, Cluster, Node};
use super::ssh::group::Group;
use super::ssh::server::{Master, SSHD, Server, free_port};
use super::ssh::world::{World, login};
use super::{Bench, Goal, Promised, Subject, rival};
use crate::shell::{Result, cargo, musl, run, target};
use std::net::{Ipv4Addr, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::{scope, sleep};
use std::time::{Duration, Instant};

const CHECK_OF_BARE: &str = "warm check_fleetgate, of a bare daemon on the same machine";
const CHECK_OF_NRPE: &str = "warm check_fleetgate, of check_nrpe without TLS";
const CHECK_OF_TLS: &str = "warm check_fleetgate, of check_nrpe with TLS";
const CHECK_OF_SSH: &str = "warm check_fleetgate, of ssh over ControlMaster";
const CHECK_BY_PROXY: &str = "warm check_fleetgate through the proxy, of the node's own port";
const SSH_OF_SSH: &str = "warm fleetgate ssh, of ssh over ControlMaster to sshd";
const COLD_OF_SSH: &str = "cold fleetgate ssh through the proxy, of cold ssh";
const COLD_OF_NRPE: &str = "cold fleetgate ssh to the node's own port, of check_nrpe without TLS";
const COLD_DIRECT_OF_SSH: &str = "cold fleetgate ssh to the node's own port, of cold ssh";
const RATE_OF_NRPE: &str = "checks a second at 64, at least, of check_nrpe without TLS";

/// What it promises.
pub const PROMISES: &[Promised] = &[
    Promised {
        name: CHECK_OF_BARE,
        goal: Goal::AtMost(1.5),
    },
    Promised {
        name: CHECK_OF_NRPE,
        goal: Goal::AtMost(0.25),
    },
    Promised {
        name: CHECK_OF_TLS,
        goal: Goal::AtMost(0.05),
    },
    Promised {
        name: CHECK_OF_SSH,
        goal: Goal::AtMost(0.125),
    },
    Promised {
        name: CHECK_BY_PROXY,
        goal: Goal::AtMost(2.0),
    },
    Promised {
        name: SSH_OF_SSH,
        goal: Goal::AtMost(0.6),
    },
    Promised {
        name: COLD_OF_SSH,
        goal: Goal::AtMost(0.1),
    },
    Promised {
        name: COLD_OF_NRPE,
        goal: Goal::AtMost(0.5),
    },
    Promised {
        name: COLD_DIRECT_OF_SSH,
        goal: Goal::AtMost(0.05),
    },
    Promised {
        name: RATE_OF_NRPE,
        goal: Goal::AtLeast(9.0),
    },
    Promised {
        name: fleet::RUN,
        goal: Goal::AtMost(1.0),
    },
];

const WARM: &str = "echo OK";
const WARMS: usize = 300;
const COLD: &str = "echo OK, cold";
const COLDS: usize = 40;
const WARM_UP: usize = 5;
/// How many commands run at a time.
const AT_A_TIME: [usize; 5] = [1, 2, 8, 64, 256];
/// With more, NRPE's server does not answer some within 10 s.
const RIVALS_AT_A_TIME: usize = 64;
/// For so long each; the subjects take turns.
const SPAN: Duration = Duration::from_millis(500);
const SPANS: usize = 20;
/// The cipher of OpenSSH's connections, which ours has too.
const CIPHER: &str = "chacha20-poly1305@openssh.com";
/// How long a server may take until it accepts.
const UP_WITHIN: Duration = Duration::from_secs(10);

/// Through the proxy.
const CHECK: &str = "check_fleetgate";
/// To the node's own port.
const CHECK_DIRECT: &str = "check_fleetgate --address";
const BARE: &str = "a bare daemon";
const OURS: &str = "fleetgate ssh";
const OURS_DIRECT: &str = "fleetgate ssh --address";
const NRPE: &str = "check_nrpe -n";
const TLS: &str = "check_nrpe, TLS";
const CONTROL_MASTER: &str = "ssh, ControlMaster";
const SSH: &str = "ssh";

/// What is asked, and how.
struct Rivals<'a> {
    world: &'a World,
    cluster: &'a Cluster,
    node: Node,
    // Before its server.
    master: Master,
    sshd: Server,
    plain: Nrpe,
    tls: Nrpe,
    check: PathBuf,
    bare: Bare,
    /// The login of a monitoring system.
    monitoring: PathBuf,
    check_nrpe: PathBuf,
    /// The clients' processes whose processor time is measured, and their masters.
    clients: Group,
}

/// Measures.
pub fn measure(bench: &mut Bench) -> Result {
    let world = World::new(bench)?;
    let cluster = world.cluster()?;
    let sshd = Server::start(&world, SSHD)?;
    let rivals = Rivals {
        world: &world,
        cluster,
        node: cluster.node(&world)?,
        master: Master::connect(&world, &sshd, &login(0), CIPHER)?,
        sshd,
        plain: Nrpe::start(&world, false)?,
        tls: Nrpe::start(&world, true)?,
        check: bench.built.check.clone(),
        bare: Bare::start(&world)?,
        monitoring: cluster.monitoring()?,
        check_nrpe: rival("../lib/nagios/plugins/check_nrpe", "nagios-nrpe-plugin")?,
        clients: Group::new("clients")?,
    };
    let timed = |name: &'static str| {
        let rivals = &rivals;
        Subject::timed(name, move || done(&mut rivals.command(name)))
    };
    let warm = [
        BARE,
        CHECK_DIRECT,
        CHECK,
        OURS_DIRECT,
        OURS,
        NRPE,
        TLS,
        CONTROL_MASTER,
    ];
    let warm = warm.map(timed);
    bench.run(WARM, "ms", WARM_UP, WARMS, warm.into())?;
    let cold = [OURS_DIRECT, OURS].map(|name| {
        let rivals = &rivals;
        Subject::timed(name, move || done(&mut rivals.ours(name, &["--no-master"])))
    });
    let cold = cold.into_iter().chain([NRPE, TLS, SSH].map(timed));
    bench.run(COLD, "ms", 2, COLDS, cold.collect())?;
    let started = Subject::timed(CHECK, || done(Command::new(&rivals.check).arg("--version")));
    let nothing = Subject::timed("/bin/true", || done(&mut Command::new("/bin/true")));
    bench.run(
        "a process of the client alone",
        "ms",
        WARM_UP,
        WARMS,
        vec![started, nothing],
    )?;
    processor_time::measure(bench, &rivals)?;
    steady::measure(bench, &rivals)?;
    for at_a_time in AT_A_TIME {
        let rate = |name: &'static str| {
            let rivals = &rivals;
            Subject::sampled(name, move || rivals.rate(name, at_a_time))
        };
        let case = rate_case(at_a_time);
        let mut names = vec![CHECK_DIRECT, CHECK];
        if at_a_time <= RIVALS_AT_A_TIME {
            names.extend([NRPE, CONTROL_MASTER]);
        }
        let subjects = names.into_iter().map(rate).collect();
        bench.run(&case, "commands/s", 1, SPANS, subjects)?;
    }

    bench.promise_of(CHECK_OF_BARE, WARM, CHECK_DIRECT, BARE)?;
    bench.promise_of(CHECK_OF_NRPE, WARM, CHECK_DIRECT, NRPE)?;
    bench.promise_of(CHECK_OF_TLS, WARM, CHECK_DIRECT, TLS)?;
    bench.promise_of(CHECK_OF_SSH, WARM, CHECK_DIRECT, CONTROL_MASTER)?;
    bench.promise_of(CHECK_BY_PROXY, WARM, CHECK, CHECK_DIRECT)?;
    bench.promise_of(SSH_OF_SSH, WARM, OURS_DIRECT, CONTROL_MASTER)?;
    bench.promise_of(COLD_OF_SSH, COLD, OURS, SSH)?;
    bench.promise_of(COLD_OF_NRPE, COLD, OURS_DIRECT, NRPE)?;
    bench.promise_of(COLD_DIRECT_OF_SSH, COLD, OURS_DIRECT, SSH)?;
    bench.promise_of(RATE_OF_NRPE, &rate_case(64), CHECK_DIRECT, NRPE)?;
    fleet::measure(bench, rivals.cluster)
}

fn rate_case(at_a_time: usize) -> String {
    format!("echo OK, {at_a_time} at a time")
}

impl Rivals<'_> {
    fn command(&self, name: &str) -> Command {
        let mut command = match name {
            BARE => {
                let mut command = Command::new(&self.bare.program);
                command.arg("ask").arg(&self.bare.socket);
                command
            }
            CHECK | CHECK_DIRECT => {
                let mut command = Command::new(&self.check);
                command.arg("--home").arg(&self.monitoring);
                command.args(["-l", &login(0), "-H", &self.node.name, "-c", "echo"]);
                if name == CHECK_DIRECT {
                    command.args(["--address", &self.address()]);
                }
                command
            }
            OURS | OURS_DIRECT => self.ours(name, &[]),
            NRPE => {
                let mut command = Command::new(&self.check_nrpe);
                let port = self.plain.port.to_string();
                command.args(["-n", "-H", "127.0.0.1", "-p", &port, "-c", "echo"]);
                command
            }
            TLS => {
                let mut command = Command::new(&self.check_nrpe);
                command.args(["-H", "127.0.0.1", "-p", &self.tls.port.to_string(), "-c", "echo"]);
                command
            }
            CONTROL_MASTER => {
                let mut command = self.master.client(self.world);
                command.args(["127.0.0.1", "/bin/echo", "OK"]);
                command
            }
            _ => {
                let mut command = self.sshd.client(self.world, &login(0), CIPHER);
                command.args(["127.0.0.1", "/bin/echo", "OK"]);
                command
            }
        };
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    /// `fleetgate ssh` by one way or the other, with more flags.
    fn ours(&self, name: &str, more: &[&str]) -> Command {
        let mut command = self.cluster.ssh();
        command.args(more);
        if name == OURS_DIRECT {
            command.args(["--address", &self.address()]);
        }
        command.args([&self.node.login(), "/bin/echo", "OK"]);
        command
    }

    /// The node's own port.
    fn address(&self) -> String {
        format!("127.0.0.1:{}", self.node.port)
    }

    /// Commands a second, `at_a_time` of them at any moment.
    fn rate(&self, name: &str, at_a_time: usize) -> Result<f64> {
        let (count, start) = (AtomicU32::new(0), Instant::now());
        self.side_by_side(name, at_a_time, |command| {
            while start.elapsed() < SPAN {
                done(command)?;
                count.fetch_add(1, Ordering::Relaxed);
            }
            Ok(())
        })?;
        Ok(f64::from(count.load(Ordering::Relaxed)) / start.elapsed().as_secs_f64())
    }

    /// Does `work` on so many threads, each with a command of its own.
    fn side_by_side(
        &self,
        name: &str,
        at_a_time: usize,
        work: impl Fn(&mut Command) -> Result + Sync,
    ) -> Result {
        let mut commands: Vec<Command> = (0..at_a_time).map(|_| self.command(name)).collect();
        let work = &work;
        scope(|scope| {
            let workers: Vec<_> = commands
                .iter_mut()
                .map(|command| scope.spawn(|| work(command)))
                .collect();
            for worker in workers {
                worker.join().map_err(|_| "a worker panicked")??;
            }
            Ok(())
        })
    }
}

/// Runs it, and holds it to what it has to say.
fn done(command: &mut Command) -> Result {
    let out = command.output().map_err(|e| format!("{command:?}: {e}"))?;
    let is_echo = command
        .get_args()
        .any(|word| word == "OK" || word == "echo" || word == "ask");
    match out.status.success() && (!is_echo || out.stdout == b"OK\n") {
        true => Ok(()),
        false => Err(format!(
            "{command:?}: {}: {} {}",
            out.status,
            String::from_utf8_lossy(&out.stdout).trim(),
            String::from_utf8_lossy(&out.stderr).trim()
        )),
    }
}

/// What a check on the same machine cannot be faster than: the daemon of `bench-bare`. It ends when this is dropped.
struct Bare {
    program: PathBuf,
    socket: PathBuf,
    child: Child,
    _group: Group,
}

impl Bare {
    fn start(world: &World) -> Result<Bare> {
        let mut build = cargo();
        build.args(["build", "--profile", "helper", "--package", "fleetgate-benches"]);
        build.args([
            "--features",
            "program",
            "--bin",
            "bench-bare",
            "--target",
            &musl(),
        ]);
        run(&mut build)?;
        let program = target().join(musl()).join("helper/bench-bare");
        let socket = world.at.join("bare.sock");
        let group = Group::new("bare")?;
        let mut command = world.enter(&group);
        command.arg(&program).arg("serve").arg(&socket);
        command.args(["/bin/echo", "OK"]);
        let child = command
            .stdin(Stdio::null())
            .spawn()
            .map_err(|e| format!("bench-bare: {e}"))?;
        let bare = Bare {
            program,
            socket,
            child,
            _group: group,
        };
        let until = Instant::now() + UP_WITHIN;
        while done(Command::new(&bare.program).arg("ask").arg(&bare.socket)).is_err() {
            if Instant::now() > until {
                return Err("bench-bare does not listen".to_owned());
            }
            sleep(Duration::from_millis(20));
        }
        Ok(bare)
    }
}

impl Drop for Bare {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// NRPE's server. It ends when this is dropped.
struct Nrpe {
    port: u16,
    child: Child,
    /// Its processes.
    group: Group,
}

impl Nrpe {
    fn start(world: &World, with_tls: bool) -> Result<Nrpe> {
        let port = free_port()?;
        let config = world.at.join(format!("nrpe-{port}.cfg"));
        let text = format!(
            "server_address=127.0.0.1\nserver_port={port}\nallowed_hosts=127.0.0.1\nnrpe_user=nagios\nnrpe_group=nagios\n\
             pid_file=/run/nrpe-{port}.pid\ncommand[echo]=/bin/echo OK\ncommand[load]={CHECK_LOAD}\n"
        );
        std::fs::write(&config, text).map_err(|e| format!("{}: {e}", config.display()))?;
        let group = Group::new(&format!("nrpe-{port}"))?;
        let mut command = world.enter(&group);
        command.arg(rival("nrpe", "nagios-nrpe-server")?);
        if !with_tls {
            command.arg("-n");
        }
        command.arg("-c").arg(&config).arg("-f");
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let child = command.spawn().map_err(|e| format!("nrpe: {e}"))?;
        let nrpe = Nrpe { port, child, group };
        wait_for_port(port, "nrpe")?;
        Ok(nrpe)
    }
}

/// Waits until this program accepts there.
fn wait_for_port(port: u16, program: &str) -> Result {
    let until = Instant::now() + UP_WITHIN;
    while TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_err() {
        if Instant::now() > until {
            return Err(format!("{program} does not accept on port {port}"));
        }
        sleep(Duration::from_millis(20));
    }
    Ok(())
}

impl Drop for Nrpe {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

//! `ssh host true`, cold and over a connection that is open already (ControlMaster): how long the whole command takes,
//! and what processor time the server spends on it, until it has come to rest again.

use super::CIPHER;
use super::server::{Kind, Master, OURS, RECORDED, SSHD, Server};
use super::world::{World, login};
use crate::bench::{Bench, Subject};
use crate::shell::Result;
use std::cell::{Cell, RefCell};
use std::process::{Command, Stdio};
use std::time::Instant;

/// Names of promises.
pub const COLD_OF_SSHD: &str = "cold ssh true, of sshd";
pub const WARM_OF_SSHD: &str = "ssh true over ControlMaster, of sshd";
pub const CPU_OF_SSHD: &str = "server CPU of a fresh ssh true, of sshd";

/// Names of cases; the steps are shares of two of them.
pub const COLD: &str = "cold true";
pub const WARM: &str = "true over ControlMaster";
pub const FIRST: &str = "cold true, first of its login";
const ALONE: &str = "ssh -O check, the client alone";

/// Samples. A case whose every connection is the first of its login has at most as many as there are logins.
const COLDS: usize = 60;
const WARMS: usize = 200;
const WARM_UP: usize = 5;

/// Measures.
pub fn measure(bench: &mut Bench, world: &World) -> Result {
    let kinds = [
        OURS,
        SSHD,
        Kind::Dropbear,
        Kind::Go,
        Kind::Ours {
            pam: true,
            timed: false,
            watched: false,
            alone: false,
            installed: false,
            recorded: None,
        },
        Kind::Sshd { pam: true },
        Kind::Ours {
            pam: false,
            timed: false,
            watched: false,
            alone: true,
            installed: false,
            recorded: None,
        },
        RECORDED,
    ];
    let servers: Vec<Server> = kinds
        .into_iter()
        .map(|k| Server::start(world, k))
        .collect::<Result<_>>()?;
    let cold = |server: &Server, name: &str| server.client(world, name, CIPHER);
    timed_with_cpu(bench, COLD, COLDS, (world, &servers), |server, _| {
        Ok(cold(server, &login(0)))
    })?;
    timed_with_cpu(bench, FIRST, COLDS, (world, &servers), |server, turn| {
        Ok(cold(server, &login(turn + 1)))
    })?;

    // Each has its own connection, which is made once.
    let masters: Vec<Master> = servers
        .iter()
        .map(|s| Master::connect(world, s, &login(0), CIPHER))
        .collect::<Result<_>>()?;
    timed_with_cpu(bench, WARM, WARMS, (world, &servers), |server, _| {
        let at = servers
            .iter()
            .position(|s| s.port == server.port)
            .ok_or("a server without a connection")?;
        Ok(masters[at].client(world))
    })?;
    // What of that is the client's own: it starts, asks its master and ends; no server is asked.
    let alone = Subject::timed("OpenSSH's client", || {
        let mut command = masters[0].client(world);
        command.args(["-O", "check"]).stderr(Stdio::null());
        servers[0].run(command, &[])
    });
    bench.run(ALONE, "ms", WARM_UP, WARMS, vec![alone])?;

    let (ours, sshd) = (OURS.name(), SSHD.name());
    for case in [COLD, FIRST, WARM] {
        bench.compare(case, RECORDED.name(), ours)?;
        bench.compare(&cpu_of(case), RECORDED.name(), ours)?;
    }
    let worse = |of: &dyn Fn(&str) -> Result<f64>| Ok::<f64, String>(of(COLD)?.max(of(FIRST)?));
    let wall = worse(&|case| Ok(bench.median(case, ours)? / bench.median(case, sshd)?))?;
    let cpu = worse(&|case| Ok(bench.median(&cpu_of(case), ours)? / bench.median(&cpu_of(case), sshd)?))?;
    bench.promise(COLD_OF_SSHD, wall)?;
    bench.promise(CPU_OF_SSHD, cpu)?;
    bench.promise_of(WARM_OF_SSHD, WARM, ours, sshd)
}

fn cpu_of(case: &str) -> String {
    format!("{case}, server CPU")
}

/// One case: `true` through the command that `client` makes for a server and a turn.
fn timed_with_cpu(
    bench: &mut Bench,
    case: &str,
    n: usize,
    (world, servers): (&World, &[Server]),
    client: impl Fn(&Server, usize) -> Result<Command>,
) -> Result {
    let used: Vec<RefCell<Vec<f64>>> = servers.iter().map(|_| RefCell::default()).collect();
    let subject = |(server, used)| one(world, server, used, &client);
    bench.run(
        case,
        "ms",
        WARM_UP,
        n,
        servers.iter().zip(&used).map(subject).collect(),
    )?;
    for (server, used) in servers.iter().zip(used) {
        // What was taken while warming up stands first.
        let used = used.into_inner();
        let measured = used[used.len() - bench.times(n)..].to_vec();
        bench.record(&cpu_of(case), server.kind.name(), "ms", measured);
    }
    Ok(())
}

fn one<'a>(
    world: &'a World,
    server: &'a Server,
    used: &'a RefCell<Vec<f64>>,
    client: &'a dyn Fn(&Server, usize) -> Result<Command>,
) -> Subject<'a> {
    let turn = Cell::new(0);
    Subject::sampled(server.kind.name(), move || {
        let command = client(server, turn.replace(turn.get() + 1))?;
        let before = server.group.cpu()?;
        let start = Instant::now();
        server.run(command, &["true"])?;
        let taken = start.elapsed().as_secs_f64() * 1e3;
        let after = server.cpu_at_rest(world)?;
        used.borrow_mut().push((after - before) as f64 / 1e3);
        Ok(taken)
    })
}

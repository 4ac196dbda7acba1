//! Bulk, both ways, over a connection that is open already: OpenSSH's client receives and sends a file of 384 MiB, which
//! `cat` reads and `wc` takes on the server's side. Wall time is the whole command's. The server's processor time per
//! byte leaves out the user's `cat` and `wc`, the same for all: `bench-usage` tells what they took, to the microsecond.

use super::CIPHER;
use super::server::{Kind, Master, OURS, RECORDED, SSHD, Server};
use super::world::{LARGE, World, login};
use crate::bench::{Bench, Subject};
use crate::shell::Result;
use std::cell::RefCell;
use std::fs::File;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Instant;

/// Names of promises.
pub const GCM_OF_SSHD: &str = "bulk throughput with aes128-gcm, at least, of sshd";
pub const CHACHA_OF_SSHD: &str = "bulk throughput with chacha20-poly1305, at least, of sshd";
pub const CPU_OF_SSHD: &str = "server CPU per byte with aes128-gcm, of sshd";

const GCM: &str = "aes128-gcm@openssh.com";
/// What dropbear has instead.
const CTR: &str = "aes128-ctr";
/// Transfers per subject and case.
const TRANSFERS: usize = 10;

/// Measures.
pub fn measure(bench: &mut Bench, world: &World) -> Result {
    let kinds = [OURS, SSHD, Kind::Dropbear, Kind::Go, RECORDED];
    let servers: Vec<Server> = kinds
        .into_iter()
        .map(|k| Server::start(world, k))
        .collect::<Result<_>>()?;
    for (cipher, promised) in [(GCM, GCM_OF_SSHD), (CIPHER, CHACHA_OF_SSHD)] {
        let open = |server| Line::open(world, server, cipher);
        let lines: Vec<Line> = servers.iter().map(open).collect::<Result<_>>()?;
        let short = cipher.trim_end_matches("@openssh.com");
        let mut wall = Vec::new();
        let mut cpu = Vec::new();
        for way in [Way::Down, Way::Up] {
            let case = format!("bulk {}, {short}", way.name());
            let used: Vec<RefCell<Vec<f64>>> = lines.iter().map(|_| RefCell::default()).collect();
            let subject = |(line, used)| Line::subject(line, way, used);
            bench.run(
                &case,
                "MiB/s",
                1,
                TRANSFERS,
                lines.iter().zip(&used).map(subject).collect(),
            )?;
            let cpu_case = format!("{case}, server CPU");
            for (line, used) in lines.iter().zip(used) {
                let used = used.into_inner();
                let measured = used[used.len() - bench.times(TRANSFERS)..].to_vec();
                bench.record(&cpu_case, &line.name, "us/MiB", measured);
            }
            for case in [&case, &cpu_case] {
                bench.compare(case, RECORDED.name(), OURS.name())?;
            }
            let ratio = |case: &str| {
                Ok::<f64, String>(bench.median(case, OURS.name())? / bench.median(case, SSHD.name())?)
            };
            wall.push(ratio(&case)?);
            cpu.push(ratio(&cpu_case)?);
        }
        // The worse direction counts.
        bench.promise(promised, wall.into_iter().fold(f64::MAX, f64::min))?;
        if cipher == GCM {
            bench.promise(CPU_OF_SSHD, cpu.into_iter().fold(0.0, f64::max))?;
        }
    }
    Ok(())
}

#[derive(Clone, Copy, PartialEq)]
enum Way {
    Down,
    Up,
}

impl Way {
    fn name(self) -> &'static str {
        match self {
            Way::Down => "down",
            Way::Up => "up",
        }
    }
}

/// An open connection to one server, with one cipher.
struct Line<'a> {
    world: &'a World,
    server: &'a Server,
    master: Master,
    name: String,
}

impl<'a> Line<'a> {
    fn open(world: &'a World, server: &'a Server, cipher: &str) -> Result<Line<'a>> {
        let name = server.kind.name().to_owned();
        let (cipher, name) = match (server.kind, cipher) {
            (Kind::Dropbear, GCM) => (CTR, format!("{name}, {CTR}")),
            _ => (cipher, name),
        };
        let master = Master::connect(world, server, &login(0), cipher)?;
        let line = Line {
            world,
            server,
            master,
            name,
        };
        line.moves_all_of_it()?;
        Ok(line)
    }

    /// That every byte arrives: the measured transfers throw them away unseen.
    fn moves_all_of_it(&self) -> Result {
        let words = self.words(Way::Down);
        let mut command = self.command(Way::Down, &words)?;
        let mut child = command
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|e| format!("ssh: {e}"))?;
        let mut out = child.stdout.take().ok_or("no stdout")?;
        let got = std::io::copy(&mut out, &mut std::io::sink()).map_err(|e| format!("ssh: {e}"))?;
        let status = child.wait().map_err(|e| format!("ssh: {e}"))?;
        if !status.success() || got != (LARGE as u64) << 20 {
            return Err(format!(
                "{} sent {got} bytes: {status}: {}",
                self.name,
                self.server.said()
            ));
        }
        Ok(())
    }

    fn words(&self, way: Way) -> String {
        match way {
            Way::Down => format!("/run/bench-usage usage cat {}", self.large().display()),
            Way::Up => "/run/bench-usage usage wc -c".to_owned(),
        }
    }

    fn large(&self) -> PathBuf {
        self.world.at.join("large")
    }

    fn command(&self, way: Way, words: &str) -> Result<Command> {
        let mut command = self.master.client(self.world);
        command.arg("127.0.0.1").arg(words);
        if way == Way::Up {
            let large = File::open(self.large()).map_err(|e| format!("{}: {e}", self.large().display()))?;
            command.stdin(large).stdout(Stdio::piped());
        }
        Ok(command)
    }

    fn subject<'b>(&'b self, way: Way, used: &'b RefCell<Vec<f64>>) -> Subject<'b> {
        Subject::sampled(&self.name, move || {
            let words = self.words(way);
            let mut command = self.command(way, &words)?;
            let before = self.server.cpu_at_rest(self.world)?;
            let start = Instant::now();
            let out = command.spawn().and_then(|child| child.wait_with_output());
            let taken = start.elapsed().as_secs_f64();
            let out = out.map_err(|e| format!("ssh: {e}"))?;
            let said = String::from_utf8_lossy(&out.stdout);
            let whole = way == Way::Down || said.trim().parse() == Ok((LARGE as u64) << 20);
            if !out.status.success() || !whole {
                let state = format!("{} moved {:?}: {}", self.name, said.trim(), out.status);
                return Err(format!("{state}: {}", self.server.said()));
            }
            let after = self.server.cpu_at_rest(self.world)?;
            let users = self.users_part()?;
            used.borrow_mut()
                .push(((after - before) as f64 - users) / LARGE as f64);
            Ok(LARGE as f64 / taken)
        })
    }

    /// Microseconds that the user's own program took.
    fn users_part(&self) -> Result<f64> {
        let file = self.world.at.join("home").join(login(0)).join("usage");
        let text = crate::shell::read_text(&file)?;
        text.trim()
            .parse()
            .map_err(|_| format!("bench-usage left {text:?}"))
    }
}

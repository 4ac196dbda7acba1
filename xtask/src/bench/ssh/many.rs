//! 200 connections at once: four client processes make 50 each, at one moment; each logs in, runs `true` and leaves.
//! sshd has the same room (MaxStartups); dropbear's is compiled in (30, and 5 of one address), so it is left out.

use super::load::Load;
use super::server::{Kind, OURS, SSHD, Server};
use super::world::{World, login};
use crate::bench::Bench;
use crate::shell::Result;

/// Names of promises.
pub const REFUSED: &str = "connections refused of 200 at once";
pub const P99_OF_SSHD: &str = "99th percentile of 200 connections at once, of sshd";

const CLIENTS: usize = 4;
const EACH: usize = 50;
const ROUNDS: usize = 10;
const CASE: &str = "200 at once, true";
const P99: &str = "200 at once, true, 99th percentile";
const NOT_SERVED: &str = "200 at once, refused";

/// A server and its clients.
struct Crowd {
    server: Server,
    clients: Vec<Load>,
    taken: Vec<f64>,
    p99: Vec<f64>,
    refused: Vec<f64>,
}

/// Measures.
pub fn measure(bench: &mut Bench, world: &World) -> Result {
    let crowd = |kind| {
        let server = Server::start(world, kind)?;
        let clients = (0..CLIENTS)
            .map(|_| world.load(server.port))
            .collect::<Result<_>>()?;
        Ok(Crowd {
            server,
            clients,
            taken: vec![],
            p99: vec![],
            refused: vec![],
        })
    };
    let mut crowds: Vec<Crowd> = [OURS, SSHD, Kind::Go]
        .into_iter()
        .map(crowd)
        .collect::<Result<_>>()?;
    // One round warms up.
    for round in 0..=bench.times(ROUNDS) {
        for crowd in &mut crowds {
            crowd.round(round > 0)?;
        }
    }
    for crowd in crowds {
        let name = crowd.server.kind.name();
        bench.record(CASE, name, "ms", crowd.taken);
        bench.record(P99, name, "ms", crowd.p99);
        bench.record(NOT_SERVED, name, "", crowd.refused.clone());
        if crowd.server.kind == OURS {
            bench.promise(REFUSED, crowd.refused.into_iter().sum())?;
        }
    }
    bench.promise_of(P99_OF_SSHD, P99, OURS.name(), SSHD.name())
}

impl Crowd {
    fn round(&mut self, counts: bool) -> Result {
        self.server.group.cpu_at_rest()?;
        for client in &mut self.clients {
            client.tell(&format!("burst {EACH} true {}", login(0)))?;
        }
        let (mut taken, mut refused) = (Vec::new(), 0.0);
        for client in &mut self.clients {
            let mut answer = client.answer()?;
            refused += answer.pop().unwrap_or_default();
            taken.extend(answer.into_iter().map(|micros| micros / 1e3));
        }
        if counts {
            self.p99.extend(percentile(&mut taken, 0.99));
            self.taken.extend(taken);
            self.refused.push(refused);
        }
        Ok(())
    }
}

/// The sample that a share `q` of all does not exceed.
fn percentile(samples: &mut [f64], q: f64) -> Option<f64> {
    samples.sort_by(f64::total_cmp);
    let rank = (samples.len() as f64 * q).ceil() as usize;
    samples.get(rank.saturating_sub(1)).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_is_one_of_the_samples() {
        let mut all: Vec<f64> = (1..=200).rev().map(f64::from).collect();
        assert_eq!(percentile(&mut all, 0.99), Some(198.0));
        assert_eq!(percentile(&mut all, 1.0), Some(200.0));
        assert_eq!(percentile(&mut [7.0], 0.99), Some(7.0));
        assert_eq!(percentile(&mut [], 0.99), None);
    }
}

//! `cargo xtask bench record-intake`: recordings of 1, 10, 100 and 1,000 sessions at once, each of a node of its own, by one proxy to
//! auth, which verifies and keeps them. For each number: how long until all are kept, what it costs proxy and auth in processor
//! time, and what both have in memory afterwards, when the streams are still open. A curve, and no promise. Nodes are simulated
//! (`bench-fleet`), and sign as real ones do; a recording has eight blocks of 64 KB.

use crate::bench::Bench;
use crate::bench::ssh::cluster::{Cluster, Memory, memory_of};
use crate::bench::ssh::load::Load;
use crate::bench::ssh::world::World;
use crate::shell::Result;
use std::thread::sleep;
use std::time::Duration;

const COUNTS: [usize; 4] = [1, 10, 100, 1000];
/// How long nothing is begun before memory is taken.
const QUIET: Duration = Duration::from_secs(3);
const SERVICES: [&str; 2] = ["proxy", "auth"];

/// Measures.
pub fn measure(bench: &mut Bench) -> Result {
    let world = World::new(bench)?;
    let cluster = Cluster::start(&world, "intake")?;
    let mut nodes = Load::fleet(bench, &cluster, &["ssh"])?;
    let most = bench.size.map_or(COUNTS[3], |n| n as usize);
    nodes.ask(&format!("join {most}"))?;
    nodes.ask(&format!("dial {most}"))?;
    // What the first one sets up for all stays out of it.
    nodes.ask("record 1")?;
    let before = both(&cluster)?;
    for count in COUNTS.into_iter().filter(|count| *count <= most) {
        let used = SERVICES.map(|service| cluster.cpu(service));
        let taken = nodes.ask(&format!("record {count}"))?;
        let [seconds, bytes] = taken[..] else {
            return Err(format!("bench-fleet said {taken:?}"));
        };
        let case = format!("{count} recordings at once");
        bench.record(
            &format!("{case}, until all are kept"),
            "fleetgate",
            "s",
            vec![seconds],
        );
        bench.record(
            &format!("{case}, bytes"),
            "fleetgate",
            "MB/s",
            vec![bytes / seconds / 1e6],
        );
        let after = both(&cluster)?;
        for (n, service) in SERVICES.into_iter().enumerate() {
            let used = (cluster.cpu(service)? - used[n].clone()?) * 1e3 / count as f64;
            bench.record(
                &format!("{case}, processor time of each"),
                service,
                "ms",
                vec![used],
            );
            let more = (after[n].pss - before[n].pss) / count as f64;
            bench.record(&format!("{case}, memory of each"), service, "KB PSS", vec![more]);
        }
    }
    Ok(())
}

fn both(cluster: &Cluster) -> Result<Vec<Memory>> {
    sleep(QUIET);
    SERVICES
        .into_iter()
        .map(|service| memory_of(cluster.process(service)?))
        .collect()
}

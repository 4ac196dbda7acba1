//! The round trips that ARCHITECTURE.md claims for `fleetgate ssh`, cold and by a kept connection to the proxy, counted in a recording of the lab's links. No time
//! is asserted: a slow machine can only make the count larger, so the least of a few counts.

use fleetgate_lab::{Capture, Fleet, Lab};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// Long beside what the programs themselves take, as what is acknowledged before it is answered looks like another round
/// trip; the leg that is not looked at has none.
pub(super) const FAR: Duration = Duration::from_secs(1);
/// How often one is counted, at most.
pub(super) const TRIES: usize = 5;

/// A directory of the test's own.
pub(super) struct Directory(pub(super) PathBuf);

impl Directory {
    pub(super) fn new(name: &str) -> Directory {
        let path = PathBuf::from(format!("/var/tmp/fleetgate-lab-{name}-{}", std::process::id()));
        std::fs::create_dir(&path).expect("a fresh directory");
        Directory(path)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let files = std::fs::read_dir(&self.0).into_iter().flatten().flatten();
            for path in files.map(|file| file.path()) {
                if path.extension().is_some_and(|extension| extension == "log") {
                    let text = std::fs::read_to_string(&path).unwrap_or_default();
                    eprintln!("{}:\n{text}", path.display());
                }
            }
        }
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// How a command comes to its node.
#[derive(Clone, Copy)]
enum Way {
    /// By connections of its own.
    Own,
    /// By the master's connection to the proxy.
    Lent,
    /// By the master's connection to the node.
    Master,
}

/// Runs `command` in user and counts on the leg, by way of the file.
pub(super) fn round_trips(lab: &Lab, leg: (&str, &str), command: &mut Command, file: &Path) -> u32 {
    let recording = lab.record(leg.0, leg.1).expect("a link");
    command.stdin(Stdio::null()).stdout(Stdio::null());
    let status = lab.start_in("user", command).expect("started").wait();
    assert!(status.expect("it ends").success(), "{command:?}");
    recording.end().expect("recorded").write(file).expect("written");
    let asks = lab.address(leg.1, leg.0).expect("a link");
    Capture::read(file, asks).expect("read").round_trips()
}

#[test]
fn connections_take_the_round_trips_that_are_claimed() {
    if let Some(why) = fleetgate_lab::unavailable() {
        return fleetgate_tests::skip(&why);
    }
    let legs = [("user", "proxy"), ("proxy", "target")];
    let lab = Lab::new(&legs.map(|(asks, answers)| (asks, answers, Duration::ZERO))).expect("a lab");
    let directory = Directory::new("claimed");
    let file = directory.0.join("leg.pcap");
    let fleet = Fleet::start(&lab, &fleetgate_tests::fleetgate(), &directory.0).expect("a cluster");
    // TCP, TLS, the dial with the first flight of SSH, login and command; the latter two reach the node, and are all that is
    // left where the master lends its connection to the proxy. A session that the master runs is one round trip.
    for (leg, claimed, way) in legs.into_iter().flat_map(|leg| match leg.0 {
        "user" => [(leg, 4, Way::Own), (leg, 2, Way::Lent), (leg, 1, Way::Master)],
        _ => [(leg, 2, Way::Own), (leg, 2, Way::Lent), (leg, 1, Way::Master)],
    }) {
        let command = || match way {
            Way::Own => fleet.ssh(),
            Way::Lent => fleet.ssh_lent(),
            Way::Master => fleet.ssh_kept(),
        };
        let begun = lab.start_in("user", &mut command()).expect("started").wait();
        assert!(begun.expect("it ends").success());
        lab.set_round_trip(leg.0, leg.1, FAR).expect("a link");
        let mut counted = Vec::new();
        while counted.len() < TRIES && counted.last() != Some(&claimed) {
            counted.push(round_trips(&lab, leg, &mut command(), &file));
        }
        assert_eq!(counted.iter().min(), Some(&claimed), "{leg:?}: {counted:?}");
        lab.set_round_trip(leg.0, leg.1, Duration::ZERO).expect("a link");
    }
    lab.account().expect("nothing dropped");
}

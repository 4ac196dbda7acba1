//! Rounds of kill -9: sessions show something, and at a random moment one of those who record it dies, or all of them do.
//! Afterwards every recording is whole to its last block, and has everything that was on the disk before.
//!
//! `FLEETGATE_ROUNDS` says how many rounds there are, and `FLEETGATE_SEED` repeats those of a run that failed.

use fleetgate_record::frame::Kind;
use fleetgate_tests::recording::{Recording, configuration, path, session};
use fleetgate_tests::rounds::{Random, Saved, rounds};
use fleetgate_tests::service::{Manager, Service, audit, descendants, kill, ssh};
use fleetgate_tests::world::wait_until;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs::File;
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::time::Duration;

/// How many rounds there are where nobody says it.
const ROUNDS: u64 = 5;
/// Sessions of a round.
const SESSIONS: u64 = 3;
/// The longest that a round goes on before somebody dies.
const LONGEST_MS: u64 = 1500;

/// What a session shows: as fast as it can, a line now and then, and one line.
const SHOWS: [&str; 3] = [
    "i=0; while :; do i=$((i+1)); echo NAME $i; done",
    "i=0; while :; do i=$((i+1)); echo NAME $i; sleep 0.02; done",
    "echo NAME 1; exec sleep 600",
];

/// Who dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Victim {
    Front,
    Recorder,
    Monitor,
    /// All processes of the service, those of the sessions among them.
    Node,
}

const VICTIMS: [Victim; 4] = [Victim::Front, Victim::Recorder, Victim::Monitor, Victim::Node];

/// A client, and its session.
struct Running {
    client: Child,
    id: Value,
    /// What it printed: each number was shown to its user.
    output: PathBuf,
}

impl Running {
    fn new(name: &str, show: &str) -> Running {
        let command = show.replace("NAME", name);
        let output = PathBuf::from(format!("/run/test/{name}.out"));
        let client = ssh("ada")
            .args(["-tt", "gate", &command])
            .stdout(File::create(&output).expect("a file"))
            .stderr(Stdio::null())
            .spawn()
            .expect("ssh starts");
        let first = format!("{name} 1\r\n");
        wait_until("the session shows something", || {
            std::fs::read(&output).is_ok_and(|bytes| bytes.starts_with(first.as_bytes()))
        });
        Running {
            client,
            id: session(&command),
            output,
        }
    }

    fn ends(mut self) {
        let _ = self.client.kill();
        let _ = self.client.wait();
        std::fs::remove_file(self.output).expect("it is there");
    }
}

/// That a recording is whole, has what was on the disk before, and is as the audit log says.
fn is_kept(saved: &Saved, session: &Value, round: &str) {
    let path = path(session);
    wait_until("the recording is finished", || {
        !path.with_extension("tail").exists()
    });
    let recording = Recording::read(&path);
    assert_eq!(
        recording.signed + 1,
        recording.blocks,
        "{round}: the end is signed"
    );
    assert_eq!(recording.frames.last().map(|f| f.0), Some(Kind::End), "{round}");
    assert!(recording.frames.is_sorted_by_key(|f| f.1), "{round}");
    saved.is_in(&path, round);
    let mut told = audit();
    told.retain(|event| event["event"] == "recorded" && event["session"] == *session);
    // One that died between the end and the audit log has told of none.
    if let Some(told) = told.last() {
        assert_eq!(told["blocks"], recording.blocks, "{round}");
        assert_eq!(told["chain"], recording.chain, "{round}");
    }
}

/// Kills the victim; whether the service has to be started anew.
fn dies(victim: Victim, service: &Service, random: &mut Random) -> bool {
    let monitor = service.monitor();
    match victim {
        Victim::Front | Victim::Recorder => {
            let kind = if victim == Victim::Front {
                "front"
            } else {
                "recorder"
            };
            let seats = service.seats(kind);
            let nth = random.below(seats.len().max(1) as u64);
            seats.into_iter().skip(nth as usize).take(1).for_each(kill);
            return false;
        }
        Victim::Monitor => kill(monitor),
        Victim::Node => {
            let all = descendants(service.pid());
            kill(service.pid());
            all.into_iter().for_each(kill);
        }
    }
    true
}

#[test]
fn whoever_dies_and_whenever_nothing_that_was_recorded_is_lost() {
    let Some((_world, manager)) = Manager::in_world() else {
        return;
    };
    let rounds = rounds(ROUNDS);
    let (mut random, seed) = Random::of_run(rounds);
    let settings = configuration("sessions = \"output\"");
    let mut service = manager.start(&settings);
    let mut deaths: BTreeMap<Victim, u64> = BTreeMap::new();
    let (mut blocks, mut signed, mut bytes) = (0, 0, 0);
    for round in 0..rounds {
        let victim = random.of(&VICTIMS);
        let wait = random.below(LONGEST_MS);
        let named = format!("seed {seed}, round {round}: {victim:?} dies after {wait} ms");
        let sessions: Vec<Running> = (0..SESSIONS)
            .map(|n| {
                let shows = random.of(&SHOWS);
                Running::new(&format!("r{round}s{n}"), shows)
            })
            .collect();
        // No event is waited for: the moment is to be any.
        std::thread::sleep(Duration::from_millis(wait));
        let paths: Vec<PathBuf> = sessions.iter().map(|running| path(&running.id)).collect();
        let saved: Vec<Saved> = paths.iter().map(|path| Saved::now(path)).collect();
        let is_over = dies(victim, &service, &mut random);
        *deaths.entry(victim).or_default() += 1;
        let ids: Vec<Value> = sessions.iter().map(|running| running.id.clone()).collect();
        if victim == Victim::Recorder {
            // They go on with another one.
            std::thread::sleep(Duration::from_millis(random.below(300)));
        }
        sessions.into_iter().for_each(Running::ends);
        if is_over {
            service.end();
            drop(service);
            service = manager.start(&settings);
        }
        for (id, saved) in ids.iter().zip(&saved) {
            is_kept(saved, id, &named);
            blocks += saved.chains.len() as u64;
            signed += saved.signed;
            bytes += saved.shown.len() as u64;
        }
        for path in &paths {
            std::fs::remove_file(path).expect("a recording");
        }
        println!("{named}: {SESSIONS} recordings are whole");
    }
    println!(
        "{rounds} rounds, {deaths:?}: {blocks} blocks, {signed} of them signed, and {bytes} bytes of output were on the disk before, \
         and are there"
    );
}

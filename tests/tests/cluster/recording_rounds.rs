//! Rounds of kill -9 in a cluster: sessions on a node and on a plain sshd behind the proxy show something, and at a random moment
//! the tunnel, the proxy or auth dies, or all of them do, and come again. Afterwards auth has every recording whole, byte for
//! byte as its maker kept it, and it has what it acknowledged before.
//!
//! `FLEETGATE_ROUNDS` says how many rounds there are, and `FLEETGATE_SEED` repeats those of a run that failed.

use fleetgate_record::frame::Kind;
use fleetgate_record::reader::{Content, Reader};
use fleetgate_record::signature::NAMESPACE;
use fleetgate_ssh::sshsig;
use fleetgate_tests::cluster::{Cluster, STATE};
use fleetgate_tests::needs_root;
use fleetgate_tests::peer::DIR;
use fleetgate_tests::plain::Machine;
use fleetgate_tests::rounds::{Random, Saved, rounds};
use fleetgate_tests::world::wait_until;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{Read, Seek};
use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::{Duration, Instant};

/// How many rounds there are where nobody says it.
const ROUNDS: u64 = 3;
/// The longest that a round goes on before somebody dies.
const LONGEST_MS: u64 = 2500;
/// The longest that sessions go on afterwards.
const AFTER_MS: u64 = 500;
/// The node's own port: the plain sshd has the one that nodes of tests have else.
const PORT: &str = "2223";

/// What a session shows: as fast as it can, a line now and then, and one line.
const SHOWS: [&str; 3] = [
    "i=0; while :; do i=$((i+1)); echo NAME $i; done",
    "i=0; while :; do i=$((i+1)); echo NAME $i; sleep 0.02; done",
    "echo NAME 1; exec sleep 600",
];

/// Who makes a recording.
#[derive(Clone, Copy, PartialEq)]
enum Maker {
    /// The node. Its sessions come to its own port, so that none ends with a proxy.
    Node,
    /// The proxy, of a session on the plain sshd.
    Proxy,
}

/// The sessions of a round.
const SESSIONS: [Maker; 3] = [Maker::Node, Maker::Node, Maker::Proxy];

impl Maker {
    /// Where it keeps them, below [`DIR`].
    fn directory(self) -> PathBuf {
        Path::new(DIR).join(match self {
            Maker::Node => "recordings",
            Maker::Proxy => "cluster/proxy/recordings",
        })
    }

    /// The client of a session, with this command behind.
    fn client(self) -> String {
        match self {
            Maker::Node => format!("ssh -F home.config -o HostKeyAlias=gate -p {PORT} -tt ada@127.0.0.1"),
            Maker::Proxy => r#""$F" ssh --home home --no-master -tt ada@db1"#.to_owned(),
        }
    }

    /// Its public key.
    fn key(self) -> String {
        let file = match self {
            Maker::Node => "gate_key.pub",
            Maker::Proxy => "proxy.pub",
        };
        std::fs::read_to_string(format!("{DIR}/{file}")).expect("its key")
    }

    /// The recordings that it keeps now: `DAY/SESSION.rec`.
    fn recordings(self) -> BTreeSet<PathBuf> {
        let root = self.directory();
        let days = std::fs::read_dir(&root).into_iter().flatten().flatten();
        let files = days.flat_map(|day| std::fs::read_dir(day.path()).into_iter().flatten().flatten());
        files
            .map(|file| file.path())
            .filter(|path| path.extension().is_some_and(|ending| ending == "rec"))
            .filter_map(|path| path.strip_prefix(&root).ok().map(Path::to_owned))
            .collect()
    }
}

/// Who dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Victim {
    Tunnel,
    Proxy,
    Auth,
    All,
}

const VICTIMS: [Victim; 4] = [Victim::Tunnel, Victim::Proxy, Victim::Auth, Victim::All];

impl Victim {
    fn dies(self, cluster: &Cluster) {
        for (victim, state, begins) in [
            (Victim::Tunnel, "node", "fleetgate-tunnel"),
            (Victim::Proxy, STATE, "fleetgate proxy --config"),
            (Victim::Auth, STATE, "fleetgate auth --config"),
        ] {
            if self == victim || self == Victim::All {
                cluster.kill(state, begins);
            }
        }
    }
}

/// A session, and its recording.
struct Running {
    client: Child,
    maker: Maker,
    /// `DAY/SESSION.rec`.
    name: PathBuf,
    /// As its maker has it. The proxy removes it when auth has all of it; an open file stays.
    made: File,
}

impl Running {
    fn new(cluster: &Cluster, maker: Maker, name: &str, show: &str) -> Running {
        let (before, output) = (maker.recordings(), format!("{DIR}/{name}.out"));
        let client = cluster
            .command(&format!(
                "exec {} '{}'",
                maker.client(),
                show.replace("NAME", name)
            ))
            .stdout(File::create(&output).expect("a file"))
            .stderr(File::create(format!("{DIR}/{name}.said")).expect("a file"))
            .spawn()
            .expect("bash");
        let first = format!("{name} 1\r\n");
        wait_until("the session shows something", || {
            std::fs::read(&output).is_ok_and(|bytes| bytes.starts_with(first.as_bytes()))
        });
        let new: Vec<PathBuf> = maker.recordings().difference(&before).cloned().collect();
        let [recording] = &new[..] else {
            panic!("{name}: not one new recording: {new:?}");
        };
        Running {
            client,
            maker,
            name: recording.clone(),
            made: File::open(maker.directory().join(recording)).expect("a recording"),
        }
    }

    fn ends(&mut self) {
        let _ = self.client.kill();
        let _ = self.client.wait();
    }

    /// As auth names it.
    fn session(&self) -> &str {
        let name = self.name.file_stem().and_then(|name| name.to_str());
        name.expect("a session")
    }

    /// Where auth has it.
    fn kept(&self) -> PathBuf {
        Path::new(DIR).join("cluster/auth/recordings").join(&self.name)
    }

    /// What auth says that it has, and what that file holds.
    fn acknowledged(&self, cluster: &Cluster) -> Acknowledged {
        let bytes = listed(cluster).get(self.session()).copied().unwrap_or_default();
        if bytes == 0 {
            return Acknowledged::default();
        }
        let mut file = std::fs::read(self.kept()).expect("auth has it");
        assert!(file.len() >= bytes, "auth has acknowledged more than it has");
        file.truncate(bytes);
        Acknowledged {
            bytes: file,
            saved: Saved::now(&self.kept()),
        }
    }

    /// Whether its maker knows that auth has all of it.
    fn is_delivered(&self) -> bool {
        let made = self.maker.directory().join(&self.name);
        match self.maker {
            Maker::Proxy => !made.exists(),
            Maker::Node => {
                let delivered = std::fs::read_to_string(made.with_file_name("delivered")).unwrap_or_default();
                !made.with_extension("tail").exists() && delivered.lines().any(|line| line == self.session())
            }
        }
    }

    /// That auth has it whole, byte for byte, signed to its end, and with all that it acknowledged.
    fn is_whole(&mut self, before: &Acknowledged, round: &str) {
        wait_until(&format!("{round}: auth has {}", self.name.display()), || {
            self.is_delivered()
        });
        let (mut made, path) = (Vec::new(), self.kept());
        self.made.rewind().expect("a file");
        self.made.read_to_end(&mut made).expect("a recording");
        let kept = std::fs::read(&path).expect("auth has it");
        assert!(made == kept, "{round}: {} differs", path.display());
        assert!(
            kept.starts_with(&before.bytes),
            "{round}: acknowledged bytes are gone"
        );
        before.saved.is_in(&path, round);
        let (signed, blocks, last) = self.verified(&kept);
        assert_eq!(signed + 1, blocks, "{round}: the end is signed");
        assert_eq!(last, Some(Kind::End), "{round}");
    }

    /// How many blocks are signed by its maker, how many there are, and the last frame's kind; each block is right.
    fn verified(&self, bytes: &[u8]) -> (u64, u64, Option<Kind>) {
        let mut reader = Reader::new(bytes).expect("a beginning");
        let (key, mut signed, mut last) = (self.maker.key(), 0, None);
        while let Some(block) = reader.next_block().expect("a block that is right") {
            if let Content::Signature { statement, signature } = &block.content {
                let by = sshsig::verify(signature, NAMESPACE, statement.text().as_bytes())
                    .expect("a signature that is right");
                assert!(key.starts_with(&by.line()), "another's signature");
                signed = statement.blocks;
            }
            for frame in block.frames() {
                last = Some(frame.expect("a frame").kind);
            }
        }
        (signed, reader.blocks(), last)
    }
}

/// What auth acknowledged of a recording.
#[derive(Default)]
struct Acknowledged {
    bytes: Vec<u8>,
    saved: Saved,
}

/// How many bytes of each recording auth says that it has, once it says so.
fn listed(cluster: &Cluster) -> BTreeMap<String, usize> {
    let mut listed = BTreeMap::new();
    wait_until("auth says what it has", || {
        let Ok(text) = cluster.attempt(r#""$F" sessions ls --recorded --state cluster --json"#) else {
            return false;
        };
        let all: Value = serde_json::from_str(&text).expect("JSON");
        let all = all["recordings"].as_array().expect("recordings").iter();
        listed = all
            .map(|one| {
                let (session, bytes) = (one["session"].as_str(), one["bytes"].as_u64());
                (
                    session.expect("a session").to_owned(),
                    bytes.expect("bytes") as usize,
                )
            })
            .collect();
        true
    });
    listed
}

/// A cluster with a node and a plain sshd, both of whose sessions are recorded.
fn recorded() -> Machine {
    let mut machine = Machine::registered();
    let cluster = &mut machine.cluster;
    cluster.script(
        r#"ssh-keygen -y -f cluster/proxy/ssh.key > proxy.pub
        role '"ada"' 'kinds = ["all"]
recording = "output"'
        is_heard() { "$F" ssh --home home --no-master ada@db1 true &&
            "$F" audit --state cluster --json --event session_started | grep -q '"recording":"output"'; }
        again is_heard"#,
    );
    cluster.script(&format!(
        r#"ssh-keygen -q -t ed25519 -N '' -C gate -f gate_key
        mkdir node
        cat > node/fleetgate.toml <<'END'
[node]
listen = ["127.0.0.1:{PORT}"]
host_keys = ["/run/test/gate_key"]
state_directory = "/run/test/node"
[node.recording]
directory = "/run/test/recordings"
END
        "$F" token add --state cluster > token
        "$F" join --proxy 127.0.0.1:3080 --token-file token --name gate --state node"#
    ));
    cluster.up("node", &format!("127.0.0.1:{PORT}"));
    cluster.script(r#"again "$F" ssh --home home ada@gate true"#);
    machine
}

#[test]
fn whichever_service_dies_and_whenever_auth_has_every_recording_whole() {
    needs_root!("a network and accounts of its own");
    let rounds = rounds(ROUNDS);
    let (mut random, seed) = Random::of_run(rounds);
    let machine = recorded();
    let cluster = &machine.cluster;
    let mut deaths: BTreeMap<Victim, u64> = BTreeMap::new();
    let (mut blocks, mut bytes) = (0, 0);
    for round in 0..rounds {
        let begun = Instant::now();
        let (victim, wait) = (random.of(&VICTIMS), random.below(LONGEST_MS));
        let named = format!("seed {seed}, round {round}: {victim:?} dies after {wait} ms");
        let mut sessions: Vec<Running> = SESSIONS
            .into_iter()
            .enumerate()
            .map(|(n, maker)| Running::new(cluster, maker, &format!("r{round}s{n}"), random.of(&SHOWS)))
            .collect();
        // No event is waited for: the moments are to be any.
        std::thread::sleep(Duration::from_millis(wait));
        let before: Vec<Acknowledged> = sessions
            .iter()
            .map(|running| running.acknowledged(cluster))
            .collect();
        victim.dies(cluster);
        *deaths.entry(victim).or_default() += 1;
        std::thread::sleep(Duration::from_millis(random.below(AFTER_MS)));
        sessions.iter_mut().for_each(Running::ends);
        // What auth says when it is there again, or still.
        let after = listed(cluster);
        for (running, before) in sessions.iter_mut().zip(&before) {
            let has = after.get(running.session()).copied().unwrap_or_default();
            assert!(
                has >= before.bytes.len(),
                "{named}: auth has {has} of {} bytes that it acknowledged",
                before.bytes.len()
            );
            running.is_whole(before, &named);
            blocks += before.saved.chains.len();
            bytes += before.bytes.len();
        }
        println!(
            "{named}: auth has {} recordings whole after {:.1?}",
            SESSIONS.len(),
            begun.elapsed()
        );
    }
    // By the keys that auth itself names.
    let told = cluster.script(r#""$F" sessions verify --all --state cluster"#);
    let good = told.lines().filter(|line| line.contains(" good ")).count() as u64;
    assert!(good >= rounds * SESSIONS.len() as u64, "{told}");
    println!(
        "{rounds} rounds, {deaths:?}: auth had acknowledged {blocks} blocks with {bytes} bytes before, and has them; {good} \
         recordings verify"
    );
}

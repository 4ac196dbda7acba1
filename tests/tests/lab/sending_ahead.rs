//! How many round trips `fleetgate ssh --direct HOST true` takes to servers that are not ours: the first time, and when the
//! client remembers the server, and by the connection that the master keeps. They are counted in a recording of the lab's links,
//! TCP included, and compared with the table in docs/ssh.md. `cargo xtask test lab::sending_ahead` prints that table as it was measured.

use super::round_trips::{Directory, FAR, TRIES, round_trips};
use fleetgate_lab::{Lab, Process};
use fleetgate_tests::peer::fetched;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

const PAGE: &str = include_str!("../../../docs/ssh.md");
/// Where each server listens, in its place.
const PORT: u16 = 2200;
/// How often one server is asked: then nothing more is learned.
const TIMES: usize = 3;

/// In every place; `$D` is the test's directory.
const KEYS: &str = r#"
cd "$D"; umask 077
ssh-keygen -q -t ed25519 -N '' -f host; ssh-keygen -q -t ed25519 -N '' -f user
dropbearkey -t ed25519 -f dropbear_key > /dev/null 2>&1 || :
for place in sshd go; do echo "[$place]:2200 $(cut -d' ' -f1,2 host.pub)"; done > known_hosts
echo "[dropbear]:2200 $(dropbearkey -y -f dropbear_key | grep ^ssh- | cut -d' ' -f1,2)" >> known_hosts
"#;
const LET_IN: &str = r#"mkdir -p -m 700 /run/root/.ssh; cp "$D/user.pub" /run/root/.ssh/authorized_keys"#;

/// A server: its place, its program, and a shell's words that start it.
struct Server {
    place: &'static str,
    program: Option<&'static str>,
    start: &'static str,
}

const SERVERS: [Server; 3] = [
    Server {
        place: "sshd",
        program: Some("/usr/sbin/sshd"),
        // Its own defaults for all that is agreed on.
        start: r#"exec /usr/sbin/sshd -D -e -f /dev/null -h "$D/host" -p 2200 -o UsePAM=no -o StrictModes=no"#,
    },
    Server {
        place: "dropbear",
        program: Some("/usr/sbin/dropbear"),
        start: r#"exec /usr/sbin/dropbear -F -E -r "$D/dropbear_key" -p 2200"#,
    },
    Server {
        place: "go",
        program: None,
        start: r#"exec "$GO" 0.0.0.0:2200 "$D/host""#,
    },
];

/// What was measured of a server.
struct Measured {
    version: String,
    /// What `-v` says of the share that was sent ahead, the first time and later.
    shares: [String; 2],
    round_trips: [u32; TIMES],
    /// By the connection that the master keeps.
    kept: u32,
}

fn shell(directory: &Path, script: &str) -> Command {
    let mut command = Command::new("sh");
    command.args(["-ec", script]).env("D", directory);
    if let Some(go) = fetched("go/server") {
        command.env("GO", go);
    }
    command
}

/// The command, with a home of this server's own and a connection of its own.
fn ssh(directory: &Path, place: &str, more: &[&str]) -> Command {
    ssh_by_master(directory, place, &[&["--no-master"], more].concat())
}

/// The command, with a home of this server's own.
fn ssh_by_master(directory: &Path, place: &str, more: &[&str]) -> Command {
    let mut command = Command::new(fleetgate_tests::fleetgate());
    command
        .env_remove("SSH_AUTH_SOCK")
        .env("HOME", directory)
        .env("FLEETGATE_HOME", directory.join(place))
        .args(["ssh", "--direct", "-n", "-o", "BatchMode=yes", "-i"])
        .arg(directory.join("user"))
        .arg("-o")
        .arg(format!(
            "UserKnownHostsFile={}",
            directory.join("known_hosts").display()
        ))
        .args(more)
        .args([&format!("root@{place}:{PORT}"), "true"]);
    command
}

/// Asks as often as the client can learn something, each time after nothing but the earlier times.
fn measure(lab: &Lab, directory: &Path, place: &'static str) -> Measured {
    let leg = ("user", place);
    let forget = || drop(std::fs::remove_dir_all(directory.join(place)));
    let run = |mut command: Command| {
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        let out = lab.start_in("user", &mut command).expect("started").output();
        let out = out.expect("it ends");
        let said = String::from_utf8_lossy(&out.stderr).into_owned();
        assert!(out.status.success(), "{place}: {said}");
        said
    };
    let ask = |more: &[&str]| run(ssh(directory, place, more));
    // A slow machine can only make the count larger.
    let least = |count: &dyn Fn() -> u32| {
        let mut counted: Vec<u32> = Vec::new();
        while counted.len() < TRIES && (counted.len() < 2 || counted.iter().min() != counted.last()) {
            counted.push(count());
        }
        counted.iter().min().copied().expect("counted")
    };
    let count = |mut command: Command| {
        lab.set_round_trip(leg.0, leg.1, FAR).expect("a link");
        let file = directory.join(format!("{place}.pcap"));
        let count = round_trips(lab, leg, &mut command, &file);
        lab.set_round_trip(leg.0, leg.1, Duration::ZERO).expect("a link");
        count
    };
    let mut said = Vec::new();
    let mut round_trips_taken = [0; TIMES];
    for (time, taken) in round_trips_taken.iter_mut().enumerate() {
        *taken = least(&|| {
            forget();
            (0..time).for_each(|_| drop(ask(&[])));
            count(ssh(directory, place, &[]))
        });
        forget();
        (0..time).for_each(|_| drop(ask(&[])));
        said.push(ask(&["-v"]));
    }
    run(ssh_by_master(directory, place, &[]));
    let kept = least(&|| count(ssh_by_master(directory, place, &[])));
    let line = |said: &str, begin: &str| {
        let begin = format!("fleetgate: {begin}");
        let mut lines = said.lines().filter_map(|line| line.strip_prefix(&begin));
        lines.next().unwrap_or("nothing").to_owned()
    };
    Measured {
        version: line(&said[0], "the server is SSH-2.0-"),
        shares: [
            line(&said[0], "sent ahead: "),
            line(&said[TIMES - 1], "sent ahead: "),
        ],
        round_trips: round_trips_taken,
        kept,
    }
}

fn start(lab: &Lab, directory: &Path, server: &Server) -> Process {
    let log = directory.join(format!("{}.log", server.place));
    let script = format!("{LET_IN}\n{}", server.start);
    let process = lab.serve(server.place, &mut shell(directory, &script), &log);
    let process = process.expect("started");
    lab.wait_until_it_accepts(server.place, &process, PORT)
        .expect("it accepts");
    process
}

#[test]
fn a_server_that_is_remembered_takes_three_round_trips() {
    if let Some(why) = fleetgate_lab::unavailable() {
        return fleetgate_tests::skip(&why);
    }
    let (there, missing): (Vec<_>, Vec<_>) = SERVERS.iter().partition(|server| match server.program {
        Some(program) => Path::new(program).exists(),
        None => fetched("go/server").is_some(),
    });
    if let Some(server) = missing.first() {
        return fleetgate_tests::skip(&format!("the server {} is not here", server.place));
    }
    let links: Vec<_> = there
        .iter()
        .map(|server| ("user", server.place, Duration::ZERO))
        .collect();
    let lab = Lab::new(&links).expect("a lab");
    let directory = Directory::new("ahead");
    let made = lab
        .start_in("user", &mut shell(&directory.0, KEYS))
        .expect("started")
        .wait();
    assert!(made.expect("it ends").success());
    let _servers: Vec<Process> = there
        .iter()
        .map(|server| start(&lab, &directory.0, server))
        .collect();
    // Each has a link of its own.
    let measured: Vec<Measured> = std::thread::scope(|scope| {
        let threads: Vec<_> = there
            .iter()
            .map(|server| scope.spawn(|| measure(&lab, &directory.0, server.place)))
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().expect("measured"))
            .collect()
    });
    let row = |m: &Measured| {
        let [first, second, third] = m.round_trips;
        let [guessed, remembered] = &m.shares;
        format!(
            "| {} | {guessed} | {remembered} | {first} | {second} | {third} | {} |",
            m.version, m.kept
        )
    };
    let rows: Vec<String> = measured.iter().map(row).collect();
    println!("{}", rows.join("\n"));
    for (measured, row) in measured.iter().zip(&rows) {
        assert_eq!((measured.round_trips[TIMES - 1], measured.kept), (3, 2), "{row}");
        // Another version's row is not there, and may be another.
        let begin = format!("| {} |", measured.version);
        let stated = PAGE.lines().find(|line| line.starts_with(&begin));
        assert_eq!(stated.unwrap_or(row), row, "docs/ssh.md says otherwise");
    }
    lab.account().expect("nothing dropped");
}

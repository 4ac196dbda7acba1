//! The lab that `cargo xtask bench regions` measures in: what its links do to programs, what a recording of them says,
//! and that nothing of it is left. No time is asserted.

use fleetgate_lab::{Capture, Lab, Process};
use fleetgate_tests::world::wait_until;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

const ROUND_TRIP: Duration = Duration::from_millis(20);

/// Three places; None where none can be made.
fn lab() -> Option<Lab> {
    if let Some(why) = fleetgate_lab::unavailable() {
        fleetgate_tests::skip(&why);
        return None;
    }
    let links = [("user", "proxy", ROUND_TRIP), ("proxy", "target", ROUND_TRIP)];
    Some(Lab::new(&links).expect("a lab"))
}

/// A file that is gone at the end.
struct File(PathBuf);

impl File {
    fn new(name: &str) -> File {
        File(std::env::temp_dir().join(format!("fleetgate-lab-{}-{name}.pcap", std::process::id())))
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Asks `questions` times over one connection from user to proxy, one after the other, and counts what was recorded,
/// by way of the file.
fn round_trips(lab: &Lab, questions: usize, name: &str) -> u32 {
    let address = lab.address("user", "proxy").expect("a link");
    let listener = lab.inside("proxy", || TcpListener::bind((address, 0)).expect("bound"));
    let listener = listener.expect("inside");
    let there = listener.local_addr().expect("bound");
    let recording = lab.record("user", "proxy").expect("a link");
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let (mut stream, _) = listener.accept().expect("accepts");
            let mut word = [0; 100];
            while stream.read_exact(&mut word).is_ok() {
                stream.write_all(&word).expect("writes");
            }
        });
        let mut stream = lab
            .inside("user", || TcpStream::connect(there).expect("connects"))
            .expect("inside");
        let mut word = [7; 100];
        for _ in 0..questions {
            stream.write_all(&word).expect("writes");
            stream.read_exact(&mut word).expect("reads");
        }
    });
    let (capture, file) = (recording.end().expect("recorded"), File::new(name));
    capture.write(&file.0).expect("written");
    let asks = lab.address("proxy", "user").expect("a link");
    let again = Capture::read(&file.0, asks).expect("read");
    assert_eq!(again.packets(), capture.packets());
    again.round_trips()
}

#[test]
fn questions_one_after_another_are_as_many_round_trips_and_the_handshake_one() {
    let Some(lab) = lab() else { return };
    for questions in [0, 1, 5] {
        let expected = questions as u32 + 1;
        assert_eq!(
            round_trips(&lab, questions, &format!("{questions}")),
            expected,
            "{questions} questions"
        );
    }
    lab.account().expect("nothing dropped");
}

#[test]
fn a_link_carries_bulk_and_drops_nothing() {
    const BULK: usize = 64 << 20;
    let Some(lab) = lab() else { return };
    let address = lab.address("user", "proxy").expect("a link");
    let listener = lab.inside("proxy", || TcpListener::bind((address, 0)).expect("bound"));
    let listener = listener.expect("inside");
    let there = listener.local_addr().expect("bound");
    let sender = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("accepts");
        let part = vec![7; 1 << 20];
        (0..BULK / part.len()).for_each(|_| stream.write_all(&part).expect("writes"));
    });
    let mut stream = lab
        .inside("user", || TcpStream::connect(there).expect("connects"))
        .expect("inside");
    let copied = std::io::copy(&mut stream, &mut std::io::sink()).expect("reads");
    sender.join().expect("it does not panic");
    assert_eq!(copied, BULK as u64);
    let account = lab.account().expect("nothing dropped");
    // No packet is longer than the link's MTU, so they are at least so many.
    assert!(account.packets as usize > BULK / 1500, "{account:?}");
    assert!(account.wake_ups > 0);
}

#[test]
fn a_place_sees_its_neighbours_by_name_and_nobody_else() {
    let Some(lab) = lab() else { return };
    let shell = |place: &str, script: &str| {
        let mut command = Command::new("sh");
        command
            .args(["-c", script])
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let child = lab.start_in(place, &mut command).expect("started");
        let out = child.output().expect("ends");
        (out.status.success(), String::from_utf8(out.stdout).expect("text"))
    };
    for (place, expected) in [
        ("user", "proxy\n"),
        ("proxy", "target\nuser\n"),
        ("target", "proxy\n"),
    ] {
        let (_, devices) = shell(place, "ls /proc/self/net/dev_snmp6 | grep -v lo");
        assert_eq!(devices, expected, "the devices of {place}");
        let (_, name) = shell(place, "cat /proc/sys/kernel/hostname");
        assert_eq!(name.trim(), place);
    }
    let (found, hosts) = shell("user", "getent ahostsv4 proxy");
    assert!(found && hosts.starts_with(&lab.address("user", "proxy").expect("a link").to_string()));
    let (found, _) = shell("user", "getent ahostsv4 target");
    assert!(!found, "there is no link from user to target");
    for wrong in [
        lab.address("user", "target").err(),
        lab.address("user", "nobody").err(),
    ] {
        let text = wrong.expect("refused").to_string();
        assert!(text.starts_with("the lab: the link from user to "), "{text}");
    }
}

/// Whether the [`sleeper`] of this many seconds lives.
fn lives(seconds: u32) -> bool {
    let entries = std::fs::read_dir("/proc").expect("/proc").filter_map(|e| e.ok());
    let mut commands = entries.filter_map(|e| std::fs::read_to_string(e.path().join("cmdline")).ok());
    commands.any(|c| c == format!("sleep\0{seconds}\0"))
}

/// A program in target that nobody waits for, in a session of its own, deaf to what a terminal sends.
fn sleeper(lab: &Lab, seconds: u32) -> Process {
    let script = format!("trap '' HUP INT TERM; setsid sleep {seconds} & wait");
    let child = lab.start_in("target", Command::new("sh").args(["-c", &script]));
    wait_until("the sleeper", || lives(seconds));
    child.expect("started")
}

#[test]
fn what_runs_in_a_place_ends_with_the_lab() {
    let Some(lab) = lab() else { return };
    let mut child = sleeper(&lab, 1_000_001);
    drop(lab);
    assert!(!lives(1_000_001));
    assert!(child.wait().is_ok_and(|status| !status.success()));
    assert!(!Path::new("/sys/class/net/proxy").exists(), "no device is left");
}

/// Says to this program that it is the process of the next test that is killed.
const TO_BE_KILLED: &str = "FLEETGATE_LAB_TO_BE_KILLED";

#[test]
fn what_runs_in_a_place_ends_with_a_process_that_is_killed() {
    if std::env::var_os(TO_BE_KILLED).is_some() {
        let lab = lab().expect("a lab");
        let mut child = sleeper(&lab, 1_000_002);
        println!("up");
        let _ = child.wait();
        return;
    }
    if lab().is_none() {
        return;
    }
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    let name = fleetgate_tests::test_name(
        module_path!(),
        "what_runs_in_a_place_ends_with_a_process_that_is_killed",
    );
    command
        .args(["--exact", &name, "--nocapture"])
        .env(TO_BE_KILLED, "1");
    let mut killed = command.stdout(Stdio::piped()).spawn().expect("started");
    let out = BufReader::new(killed.stdout.take().expect("piped"));
    assert!(
        out.lines().any(|line| line.is_ok_and(|l| l == "up")),
        "it did not start"
    );
    assert!(lives(1_000_002));
    killed.kill().expect("our own child");
    killed.wait().expect("our own child");
    wait_until("the end of all in the place", || !lives(1_000_002));
}

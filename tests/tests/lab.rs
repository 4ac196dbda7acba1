//! The lab that `cargo xtask bench regions` measures in: what its links do to programs, what a recording of them says,
//! and that nothing of it is left. No time is asserted.
#![forbid(unsafe_code)]

use fleetgate_lab::{Capture, Lab};
use fleetgate_tests::world::wait_until;
use std::io::{Read, Write};
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
    let account = lab.account().expect("nothing dropped");
    assert!(account.packets > 0 && account.wake_ups > 0, "{account:?}");
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

#[test]
fn what_runs_in_a_place_ends_with_the_lab_however_it_began() {
    let Some(lab) = lab() else { return };
    // One that nobody waits for, in a session of its own, deaf to what a terminal sends.
    let script = "trap '' HUP INT TERM; setsid sh -c 'echo $$; exec sleep 1000000' & wait";
    let mut command = Command::new("sh");
    command.args(["-c", script]).stdout(Stdio::piped());
    let mut child = lab.start_in("target", &mut command).expect("started");
    // Its number in its place; the machine knows it by another.
    let mut out = std::io::BufReader::new(child.stdout.take().expect("piped"));
    let mut line = String::new();
    std::io::BufRead::read_line(&mut out, &mut line).expect("a line");
    let inside: u32 = line.trim().parse().expect("a number");
    let all = || {
        let entries = std::fs::read_dir("/proc").expect("/proc").filter_map(|e| e.ok());
        let status = entries.filter_map(|e| std::fs::read_to_string(e.path().join("status")).ok());
        let ours = format!("\t{inside}");
        status
            .filter(|s| s.starts_with("Name:\tsleep\n"))
            .filter(|s| s.lines().any(|l| l.starts_with("NSpid:") && l.ends_with(&ours)))
            .count()
    };
    wait_until("the sleeper", || all() == 1);
    drop(lab);
    assert_eq!(all(), 0);
    assert!(child.wait().is_ok_and(|status| !status.success()));
    assert!(!Path::new("/sys/class/net/proxy").exists(), "no device is left");
}

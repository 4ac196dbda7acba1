//! Strangers who occupy PAM: people with a key come in all the same, and so do people with a password from elsewhere.
//! Nothing here asserts how long a login takes; it is printed.

use fleetgate_ssh::auth::Request as Login;
use fleetgate_tests::by_hand::{Client, Kind, Said};
use fleetgate_tests::service::{AUDIT, Manager, Service, ssh};
use fleetgate_tests::world::wait_until;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Key logins under each attack; all of them have to come in.
const LOGINS: usize = 25;
/// Connections that are asked by PAM and never answer.
const SILENT: usize = 64;
/// Connections that try one wrong password after the other.
const GUESSING: usize = 120;
/// The attackers come from 127.0.0.1; everybody else from here.
const ELSEWHERE: &str = "127.0.0.2";

fn configuration() -> String {
    format!(
        "host_keys = [\"/run/test/host_ed25519\"]\nauthorized_keys = true\naudit_log = \"{AUDIT}\"\n\
         pam = \"on\"\npassword = true\nkeyboard_interactive = true\n\
         [limits]\nlogin_grace = \"10m\"\nunauthenticated = 512\nunauthenticated_per_source = 256\n"
    )
}

/// One that opens a keyboard-interactive conversation and never answers its question.
struct Silent {
    client: Client,
    asked_pam: bool,
}

impl Silent {
    fn new() -> Silent {
        Silent {
            client: Kind::mute().connect(),
            asked_pam: false,
        }
    }

    fn turn(&mut self) {
        self.client.turn();
        if !self.asked_pam && self.client.said.contains(&Said::Established) {
            self.asked_pam = true;
            self.client
                .core
                .authenticate(&Login::keyboard_interactive(b"ada", ""));
            self.client.turn();
        }
    }

    /// PAM's question, or a refusal, is here.
    fn was_answered(&self) -> bool {
        self.client.said.contains(&Said::Rejected)
    }
}

/// Tries wrong passwords on many connections until it is told to stop; `tries` counts the refusals.
fn guess(stop: &AtomicBool, tries: &AtomicU64) {
    let mut clients: Vec<(Client, usize)> = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        while clients.len() < GUESSING {
            clients.push((Kind::mute().connect(), 0));
        }
        for (client, sent) in &mut clients {
            client.turn();
            let refused = client.said.iter().filter(|s| **s == Said::Rejected).count();
            if client.said.contains(&Said::Established) && refused == *sent {
                *sent += 1;
                tries.fetch_add(u64::from(refused > 0), Ordering::Relaxed);
                client.core.authenticate(&Login::password(b"ada", b"wrong", None));
                client.turn();
            }
        }
        clients.retain(|(client, _)| !client.is_over());
        let _ = fleetgate_sys::poll::poll(&mut [], Some(5));
    }
}

/// Key logins from elsewhere, one after the other: how long each took, or what ssh said.
fn key_logins() -> Vec<Result<Duration, String>> {
    let login = |_| {
        let begin = Instant::now();
        let out = ssh("ada")
            .args(["-b", ELSEWHERE, "gate", "echo in"])
            .output()
            .expect("ssh starts");
        match out.stdout == b"in\n" {
            true => Ok(begin.elapsed()),
            false => Err(String::from_utf8_lossy(&out.stderr).into_owned()),
        }
    };
    (0..LOGINS).map(login).collect()
}

/// A login by password from elsewhere, in the way that is named.
fn by_password(way: &str) {
    let out = Command::new("ssh")
        .args(["-F", "/run/test/bare", "-b", ELSEWHERE, "-l", "ada"])
        .args(["-o", "BatchMode=no", "-o", "NumberOfPasswordPrompts=1"])
        .args([
            "-o",
            &format!("PreferredAuthentications={way}"),
            "gate",
            "echo in",
        ])
        .env("SSH_ASKPASS", "/run/test/askpass")
        .env("SSH_ASKPASS_REQUIRE", "force")
        .env("HOME", "/run/home/root")
        .output()
        .expect("ssh starts");
    let words = String::from_utf8_lossy(&out.stderr);
    assert_eq!(String::from_utf8_lossy(&out.stdout), "in\n", "{way}: {words}");
}

fn all_come_in(what: &str) {
    let logins = key_logins();
    let mut times: Vec<Duration> = logins.iter().filter_map(|l| l.as_ref().ok()).copied().collect();
    times.sort_unstable();
    let refused: Vec<&String> = logins.iter().filter_map(|l| l.as_ref().err()).collect();
    println!(
        "{what}: {} of {LOGINS} key logins came in; p99 {:?}",
        times.len(),
        times.last()
    );
    assert!(refused.is_empty(), "{what}: {refused:?}");
}

fn begin() -> Option<(impl Sized, Service)> {
    let (world, manager) = Manager::in_world()?;
    let service = manager.start(&configuration());
    Some(((world, manager), service))
}

#[test]
fn key_logins_come_in_beside_silent_conversations() {
    let Some((_world, _service)) = begin() else { return };
    let mut silent: Vec<Silent> = (0..SILENT).map(|_| Silent::new()).collect();
    wait_until("PAM asks the silent ones", || {
        silent.iter_mut().for_each(Silent::turn);
        silent.iter().filter(|s| s.was_answered()).count() >= SILENT / 2
    });
    // The attack is one: their source has no place left, and its next conversation waits.
    let mut next = Silent::new();
    wait_until("one more asks", || {
        next.turn();
        next.asked_pam
    });
    all_come_in("silent conversations");
    by_password("password");
    by_password("keyboard-interactive");
    next.turn();
    assert!(!next.was_answered(), "there was room: {:?}", next.client.said);
    silent.iter_mut().for_each(Silent::turn);
    assert!(
        silent.iter().all(|s| !s.client.is_over()),
        "an attacker was turned away: this shows nothing"
    );
    // A place that becomes free is given to the next who waits: nobody was refused.
    drop(silent);
    wait_until("the next one's turn", || {
        next.turn();
        next.was_answered()
    });
}

#[test]
fn key_logins_come_in_beside_wrong_passwords() {
    let Some((_world, _service)) = begin() else { return };
    let (stop, tries) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let attack = scope.spawn(|| guess(&stop, &tries));
        wait_until("wrong passwords are refused", || {
            tries.load(Ordering::Relaxed) >= 8
        });
        let result = std::panic::catch_unwind(|| {
            all_come_in("wrong passwords");
            by_password("password");
            by_password("keyboard-interactive");
        });
        let before = tries.load(Ordering::Relaxed);
        // The attack went on all the while.
        wait_until("more wrong passwords", || {
            attack.is_finished() || tries.load(Ordering::Relaxed) > before
        });
        stop.store(true, Ordering::Relaxed);
        attack.join().expect("the attack went on");
        if let Err(why) = result {
            std::panic::resume_unwind(why);
        }
    });
}

//! Strangers in crowds against a running node: sources that hold all places, guess passwords, or come and go without end.
//! They shut out nobody else, get few guesses, and fill no log.

use fleetgate_sys::signals;
use fleetgate_tests::by_hand::{Client, Kind, Said, connect_from};
use fleetgate_tests::service::{AUDIT, Manager, audit, audited};
use fleetgate_tests::world::wait_until;
use serde_json::Value;
use std::io::Read;
use std::net::{Shutdown, TcpStream};

fn configuration(more: &str) -> String {
    format!(
        "host_keys = [\"/run/test/host_ed25519\"]\n\
         authorized_keys = true\naudit_log = \"{AUDIT}\"\n{more}[strangers]\n"
    )
}

/// Whether the node spoke on it, rather than to close it.
fn is_taken(mut socket: &TcpStream) -> bool {
    let mut first = [0; 4];
    socket
        .read(&mut first)
        .is_ok_and(|n| first[..n].starts_with(b"SSH-"))
}

/// Bea, by her key, from this address.
fn comes_in(host: u8) -> Client {
    let mut client = Kind {
        from: host,
        ..Kind::honest("bea")
    }
    .connect();
    client.until("the login", |c| c.said.contains(&Said::LoggedIn));
    client
}

fn is(event: &Value, what: &str, words: &str) -> bool {
    event["event"] == what
        && event["reason"]
            .as_str()
            .is_some_and(|reason| reason.contains(words))
}

#[test]
fn two_sources_that_hold_all_places_shut_out_no_third() {
    let Some((_world, manager)) = Manager::in_world() else {
        return;
    };
    let service = manager.start(&configuration("pam = \"off\"\n"));
    let mut held = Vec::new();
    for n in 0..600u16 {
        held.push(connect_from(2 + (n % 2) as u8));
    }
    // The control: places are short, since both were refused more.
    audited("a refusal", |e| e["event"] == "connection_refused");
    for _ in 0..5 {
        comes_in(4).leaves();
    }
    audited("a connection that gave way", |e| {
        is(e, "connection_ended", "its place went to another source")
    });
    // Those who came and went without a try pay for it; who had logged in from there comes in.
    drop(held);
    audited("a refused connection", |e| {
        let _ = is_taken(&connect_from(2));
        is(e, "connection_refused", "penalties")
    });
    comes_in(4).leaves();
    drop(service);
}

#[test]
fn wrong_passwords_are_few_and_neighbours_come_in() {
    let Some((_world, manager)) = Manager::in_world() else {
        return;
    };
    let service = manager.start(&configuration("pam = \"on\"\npassword = true\n"));
    // How many of the passwords that were sent from there PAM was asked about.
    let tried = |host: u8| {
        let source = format!("127.0.0.{host}:");
        let by_pam = |e: &&Value| {
            is(e, "login_refused", "PAM refused")
                && e["source"].as_str().is_some_and(|s| s.starts_with(&source))
        };
        audit().iter().filter(by_pam).count()
    };
    let guess = |host: u8, user: &'static str| {
        let guessing: Vec<_> = (0..4)
            .map(|_| {
                std::thread::spawn(move || {
                    let mut client = Kind {
                        from: host,
                        mute: true,
                        ..Kind::honest(user)
                    }
                    .connect();
                    client.until("keys", |c| c.said.contains(&Said::Established));
                    (0..6)
                        .map_while(|n| client.tries_password(&format!("wrong-{n}")))
                        .filter(|right| !right)
                        .count()
                })
            })
            .collect();
        guessing
            .into_iter()
            .map(|one| one.join().expect("it guesses"))
            .sum::<usize>()
    };

    // The control: passwords work, and of a source that did nothing wrong a few wrong ones are tried.
    let with_password = |host: u8| {
        let mut client = Kind {
            from: host,
            mute: true,
            ..Kind::honest("ada")
        }
        .connect();
        client.until("keys", |c| c.said.contains(&Said::Established));
        let right = client.tries_password("secret");
        client.leaves();
        right == Some(true)
    };
    assert!(with_password(6));

    // Four connections with six guesses each: only those that were sent before the first was known to be wrong.
    let guesses = guess(7, "ada");
    assert!(guesses >= 4 * 5, "the node answered {guesses}");
    assert!((1..=8).contains(&tried(7)), "{} were tried", tried(7));
    audited("a guess that was not tried", |e| {
        is(e, "login_refused", "too many wrong passwords from its address")
    });
    assert!(!is_taken(&connect_from(7)), "and no connection is taken");
    audited("a refused connection", |e| {
        is(e, "connection_refused", "penalties")
    });

    // Behind one address with such a fool: who logged in from there lately comes in, by key and by his password.
    comes_in(8).leaves();
    assert!(with_password(8));
    let tried_before = tried(8);
    guess(8, "root");
    let guessed = tried(8) - tried_before;
    assert!((1..=8).contains(&guessed), "{guessed} were tried");
    comes_in(8).leaves();
    assert!(
        with_password(8),
        "her own password, from where she gave it before"
    );
    drop(service);
}

#[test]
fn strangers_without_end_are_a_few_lines_with_sums() {
    let Some((_world, manager)) = Manager::in_world() else {
        return;
    };
    let service = manager.start(&configuration("pam = \"off\"\n"));
    const CROWD: u64 = 2_000;
    for _ in 0..CROWD {
        let mut socket = connect_from(5);
        let _ = socket.shutdown(Shutdown::Write);
        let _ = socket.read_to_end(&mut Vec::new());
    }
    comes_in(6).leaves();
    let monitor = service.monitor();
    service.signal(signals::TERM);
    service.end();
    wait_until("the monitor ends", || {
        !std::path::Path::new(&format!("/proc/{monitor}")).exists()
    });
    let of_crowd = |e: &&Value| {
        e["source"]
            .as_str()
            .is_some_and(|source| source.starts_with("127.0.0.5"))
    };
    let events = audit();
    let lines: Vec<&Value> = events.iter().filter(of_crowd).collect();
    // Two kinds, each with ten lines and a sum, in each minute that it takes.
    assert!(lines.len() <= 220, "{} lines", lines.len());
    let sums = lines.iter().filter(|e| e["event"] == "strangers");
    let summed: u64 = sums
        .map(|e| {
            assert!(
                e["first"].as_str() <= e["last"].as_str() && e["first"].is_string(),
                "{e}"
            );
            assert!(
                ["connection_ended", "connection_refused"].contains(&e["of"].as_str().expect("text")),
                "{e}"
            );
            e["count"].as_u64().expect("a number")
        })
        .sum();
    let alone = lines.iter().filter(|e| e["event"] != "strangers").count() as u64;
    assert!(alone >= 1);
    assert_eq!(summed + alone, CROWD, "nothing is missing: {lines:?}");
    // Who was in has his own.
    assert!(
        events
            .iter()
            .any(|e| e["event"] == "connection_ended" && e["login"] == "bea")
    );
}

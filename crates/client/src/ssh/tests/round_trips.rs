//! How many round trips a command takes, and what is sent ahead to a server that is known from before.

use super::{Seen, World, plan};
use crate::ssh::Plan;
use fleetgate_ssh::kex::Method as Kex;

#[test]
fn a_command_takes_two_round_trips() {
    type Change = fn(&mut World, &mut Plan);
    let table: [(&str, Change, usize, u32); 7] = [
        ("a node", |_, _| {}, 1, 2),
        (
            "a node, with a forward asked for",
            |_, p| p.options.remotes = vec![crate::ssh::forward::Forward::parse("0:web:80").unwrap()],
            1,
            2,
        ),
        ("a node, with a terminal", |_, p| p.terminal = true, 1, 2),
        (
            "OpenSSH's sshd: it numbers channels from 0",
            |w, _| {
                w.far.settings.software = "OpenSSH_9.2p1".into();
                w.far.settings.channel_mirror = false;
            },
            1,
            2,
        ),
        (
            "another method of key exchange",
            |w, _| w.far.settings.kex = vec![Kex::ALL[1]],
            1,
            3,
        ),
        // The login is waited for, the channel, the command.
        (
            "a server that nobody knows",
            |w, _| {
                w.far.settings.software = "other_1".into();
                w.far.settings.channel_mirror = false;
            },
            1,
            4,
        ),
        ("two keys to choose from: a question first", |_, _| {}, 2, 4),
    ];
    for (name, change, keys, wanted) in table {
        let (mut world, mut plan) = (World::new(), plan());
        change(&mut world, &mut plan);
        let (code, timings) = world.run(&plan, keys);
        assert_eq!(code.ok(), Some(7), "{name}");
        let seen = world.far.seen.lock().unwrap();
        // The last flight says goodbye, and nobody waits for an answer to it.
        assert_eq!(
            (timings.round_trips(), seen.flights),
            (wanted, wanted),
            "{name}: {timings:?}"
        );
        assert_eq!(seen.connections, 1, "{name}");
        assert!(
            seen.requests.iter().any(|r| r.starts_with("Env")),
            "{name}: {:?}",
            seen.requests
        );
        let asked: Vec<_> = timings.steps().iter().map(|s| s.name).collect();
        assert_eq!(asked, ["key exchange", "login and command"], "{name}");
    }
}

/// What each connection to one server takes: the flights that were answered, and the connections that were made.
#[test]
fn later_connections_send_ahead_what_held_before() {
    type Change = fn(&mut World);
    // Its name, what happens to the server before each connection, and what each connection takes.
    type Row<'a> = (&'a str, &'a [Change], &'a [(u32, u32)]);
    let other: Change = |w| {
        w.far.settings.software = "other_1".into();
        w.far.settings.channel_mirror = false;
    };
    let table: [Row<'_>; 9] = [
        ("a node needs no memory", &[|_| {}, |_| {}], &[(2, 1), (2, 1)]),
        (
            "a method that is not our best",
            &[|w| w.far.settings.kex = vec![Kex::EcdhP256], |_| {}, |_| {}],
            &[(3, 1), (2, 1), (2, 1)],
        ),
        (
            "a method that is not the server's best",
            &[
                |w| w.far.settings.kex = vec![Kex::EcdhP256, Kex::Curve25519],
                |_| {},
            ],
            &[(3, 1), (2, 1)],
        ),
        (
            "the server takes another method than before",
            &[
                |w| w.far.settings.kex = vec![Kex::EcdhP256],
                |w| w.far.settings.kex = vec![Kex::Curve25519],
                |_| {},
            ],
            &[(3, 1), (3, 2), (2, 1)],
        ),
        (
            "the server takes our best method now, and is a usual one",
            &[
                |w| w.far.settings.kex = vec![Kex::EcdhP256],
                |w| w.far.settings.kex = Kex::ALL.to_vec(),
                |_| {},
            ],
            &[(3, 1), (3, 2), (2, 1)],
        ),
        (
            "a server that nobody knows: its channel goes with the login, then all does",
            &[other, |_| {}, |_| {}, |_| {}],
            &[(4, 1), (3, 1), (2, 1), (2, 1)],
        ),
        (
            "another version is another server",
            &[
                other,
                |_| {},
                |w| w.far.settings.software = "other_2".into(),
                |_| {},
            ],
            &[(4, 1), (3, 1), (4, 1), (3, 1)],
        ),
        (
            "a server that hangs up when something follows a login: it is not tried again",
            &[
                |w| {
                    w.far.settings.software = "other_1".into();
                    w.far.settings.channel_mirror = false;
                    w.far.reads_on = false;
                },
                |_| {},
                |_| {},
            ],
            // The channel was asked for and the command was not, so it can be asked for anew.
            &[(4, 1), (6, 2), (4, 1)],
        ),
        (
            "a server that nobody knows, with a method that is not our best",
            &[
                |w| {
                    w.far.settings.software = "other_1".into();
                    w.far.settings.channel_mirror = false;
                    w.far.settings.kex = vec![Kex::Curve25519];
                },
                |_| {},
                |_| {},
            ],
            &[(5, 1), (3, 1), (2, 1)],
        ),
    ];
    for (name, changes, wanted) in table {
        let mut world = World::new();
        let mut took = Vec::new();
        for change in changes {
            change(&mut world);
            *world.far.seen.lock().unwrap() = Seen::default();
            let (code, _) = world.run(&plan(), 1);
            assert_eq!(code.map_err(|e| e.to_string()), Ok(7), "{name}");
            let seen = world.far.seen.lock().unwrap();
            let commands = seen.requests.iter().filter(|r| r.starts_with("Exec")).count();
            assert_eq!(commands, 1, "{name}: the command is asked for once");
            took.push((seen.flights, seen.connections));
        }
        assert_eq!(took, wanted, "{name}");
    }
}

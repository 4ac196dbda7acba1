//! Servers that are not to be trusted: unknown host keys, words that hide something, channels that nobody asked for.

use super::{Seen, World, plan};
use crate::ssh::{Plan, SshError, Work};
use fleetgate_ssh::event::ChannelKind;
use fleetgate_ssh::kex::Method as Kex;
use fleetgate_ssh::key::{HostKey, KeyType};

#[test]
fn who_is_not_let_in_is_told_what_was_tried() {
    let mut world = World::new();
    world.far.accepts = false;
    for keys in [1, 2] {
        let (code, _) = world.run(&plan(), keys);
        let error = code.expect_err("refused");
        assert_eq!(error.code(), 255);
        let words = error.to_string();
        assert!(
            words.contains("does not let ann in") && words.contains("it takes publickey"),
            "{words}"
        );
    }
}

#[test]
fn another_host_is_not_talked_to() {
    let mut world = World::new();
    std::fs::write(&world.known, "").unwrap();
    let (code, _) = world.run(&plan(), 1);
    assert!(
        matches!(&code, Err(SshError::Host(words)) if words.contains("nobody here knows web1")),
        "{code:?}"
    );
    let (other, _) = HostKey::generate(KeyType::Ed25519, "host").unwrap();
    std::fs::write(&world.known, format!("web1 {}\n", other.public().line())).unwrap();
    let (code, _) = world.run(&plan(), 1);
    assert!(
        matches!(&code, Err(SshError::Host(words)) if words.contains("HAS CHANGED")),
        "{code:?}"
    );
    assert_eq!(world.far.seen.lock().unwrap().requests, Vec::<String>::new());
}

/// An attacker in the middle has a host key of its own, and can read all that is sent to it.
#[test]
fn an_attacker_with_another_host_key_learns_no_user_key_or_command() {
    let mut world = World::new();
    let mut plan = plan();
    plan.user = "annabelle-of-the-hills".into();
    plan.options.work = Work::Exec(b"a-command-of-hers".to_vec());
    let learned = |world: &World| {
        let seen = world.far.seen.lock().unwrap();
        let told = |words: &[u8]| seen.bytes.windows(words.len()).any(|part| part == words);
        let is_clear = told(b"annabelle-of-the-hills") || told(b"a-command-of-hers");
        (seen.logins.len(), seen.requests.len(), is_clear)
    };
    let (other, _) = HostKey::generate(KeyType::Ed25519, "host").unwrap();
    let known = std::fs::read(&world.known).unwrap();
    for is_remembered in [false, true] {
        if is_remembered {
            // All that can be known of the server is known, and goes ahead.
            std::fs::write(&world.known, &known).unwrap();
            world.far.settings.software = "other_1".into();
            world.far.settings.channel_mirror = false;
            world.far.settings.kex = vec![Kex::EcdhP256];
            for _ in 0..3 {
                let (code, _) = world.run(&plan, 1);
                assert!(matches!(code, Ok(7)), "{code:?}");
            }
            assert_ne!(learned(&world), (0, 0, false), "control");
            *world.far.seen.lock().unwrap() = Seen::default();
        }
        std::fs::write(&world.known, format!("web1 {}\n", other.public().line())).unwrap();
        let (code, _) = world.run(&plan, 1);
        assert!(matches!(code, Err(SshError::Host(_))), "{code:?}");
        let (code, _) = world.run(&plan, 3);
        assert!(matches!(code, Err(SshError::Host(_))), "{code:?}");
        assert_eq!(learned(&world), (0, 0, false));
        assert!(!world.far.seen.lock().unwrap().bytes.is_empty());
    }
    // Control: the right one learns all of it, and nobody else could have read it.
    std::fs::write(&world.known, known).unwrap();
    let (code, _) = world.run(&plan, 1);
    assert!(matches!(code, Ok(7)), "{code:?}");
    let (logins, requests, is_clear) = learned(&world);
    assert!(logins > 0 && requests > 0 && !is_clear);
}

#[test]
fn words_of_a_server_turn_no_direction_and_hide_nothing() {
    let said = "motd\n\tone\x1b[2J\u{202e}two\u{200b}";
    let shown = crate::stderr::printable(said.as_bytes());
    assert!(shown.starts_with("motd\n\tone"), "{shown:?}");
    for unseen in ['\x1b', '\u{202e}', '\u{200b}'] {
        assert!(!shown.contains(unseen), "{unseen:?}");
    }
}

/// A server that opens what nobody asked for reaches nothing on this machine; what was asked for it reaches, and no more.
#[test]
fn a_server_opens_nothing_that_was_not_asked_for() {
    use crate::ssh::forward::Forward;
    let folder = std::env::temp_dir().join(format!("fleetgate-opens-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let socket = folder.join("here");
    let listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    listener.set_nonblocking(true).unwrap();
    let path = socket.to_str().unwrap().as_bytes().to_vec();
    let forwarded = |host: &str, port| ChannelKind::ForwardedTcpip {
        host: host.into(),
        port,
        origin: b"192.0.2.1".to_vec(),
        origin_port: 7,
    };
    let x11 = || ChannelKind::X11 {
        origin: b"192.0.2.1".to_vec(),
        origin_port: 7,
    };
    let direct = || ChannelKind::DirectTcpip {
        host: b"127.0.0.1".to_vec(),
        port: 22,
        origin: b"192.0.2.1".to_vec(),
        origin_port: 7,
    };
    let other = || ChannelKind::Other {
        name: b"tun@openssh.com".to_vec(),
        payload: vec![0; 8],
    };
    let streamlocal = || ChannelKind::ForwardedStreamlocal { path: path.clone() };
    let direct_local = || ChannelKind::DirectStreamlocal { path: path.clone() };
    type Change<'a> = &'a dyn Fn(&mut Plan);
    let asked = Forward::parse(&format!("127.0.0.1:0:{}", socket.display())).unwrap();
    let remote: Change<'_> = &|p| p.options.remotes = vec![asked.clone()];
    let display: Change<'_> = &|p| p.display = Some(crate::ssh::x11::tests::at(&socket));
    let nothing: Change<'_> = &|_| {};
    // What was asked for, what is opened, how many of them are, and how often this machine's socket is reached.
    let table: [(&str, Change<'_>, Vec<ChannelKind>, usize, usize); 5] = [
        (
            "nothing was asked for",
            nothing,
            vec![
                forwarded("", 0),
                forwarded("127.0.0.1", 4000),
                streamlocal(),
                direct(),
                direct_local(),
                x11(),
                ChannelKind::Agent,
                ChannelKind::Session,
                other(),
            ],
            0,
            0,
        ),
        (
            "a forward, and others are opened",
            remote,
            vec![
                forwarded("127.0.0.1", 4001),
                streamlocal(),
                ChannelKind::Agent,
                x11(),
                direct_local(),
            ],
            0,
            0,
        ),
        (
            "a forward, and it",
            remote,
            vec![forwarded("127.0.0.1", 4000)],
            1,
            1,
        ),
        (
            "a display, and others",
            display,
            vec![forwarded("127.0.0.1", 4000), ChannelKind::Agent],
            0,
            0,
        ),
        // It is led to the display only when it has shown the cookie.
        ("a display, and it", display, vec![x11()], 1, 0),
    ];
    for (name, change, opens, opened, reached) in table {
        let mut world = World::new();
        let mut plan = plan();
        plan.options.agent = false;
        change(&mut plan);
        let count = opens.len();
        world.far.opens = opens;
        let (code, _) = world.run(&plan, 1);
        assert_eq!(code.map_err(|e| e.to_string()), Ok(7), "{name}");
        let seen = world.far.seen.lock().unwrap();
        let heard = |what: &str| seen.requests.iter().filter(|r| *r == what).count();
        assert_eq!(
            (heard("opened"), heard("refused")),
            (opened, count - opened),
            "{name}"
        );
        let came = std::iter::from_fn(|| listener.accept().ok()).count();
        assert_eq!(came, reached, "{name}");
    }
    std::fs::remove_dir_all(&folder).unwrap();
}

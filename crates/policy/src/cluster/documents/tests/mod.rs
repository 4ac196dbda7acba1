//! Documents: what is written is read again, what is wrong is named with its place, and all of it is bounded.

mod roles;
mod states;

use crate::cluster::*;
use crate::commands::{Command, CommandLimits, Commands};
use crate::permits::Kind;
use crate::recording::{OnwardSsh, Recording, RecordingFailure};
use crate::watching::{Audit, Stance, Watching};
use std::time::Duration;

fn name(text: &str) -> Name {
    Name::parse(text).unwrap()
}

fn dba() -> Role {
    let kinds = [
        Kind::Shell,
        Kind::Sftp,
        Kind::Pty,
        Kind::ConnectTcp,
        Kind::ListenTcp,
        Kind::ConnectUnix,
        Kind::ListenUnix,
    ];
    Role {
        name: name("dba"),
        nodes: vec![
            Selector::parse("env=prod,role=db").unwrap(),
            Selector::parse("bastion*").unwrap(),
        ],
        logins: vec![USER.into(), "postgres".into(), "postgres+db-*".into()],
        containers: ["app=db|cache", "tier!=front"]
            .map(|text| Selector::parse(text).unwrap())
            .to_vec(),
        kinds: kinds.to_vec(),
        commands: vec!["disk".into(), "load".into()],
        defined: vacuum(),
        require_mfa: Some(Duration::from_secs(900)),
        require_trusted_device: true,
        recording: Recording::Full,
        recording_recipients: Vec::new(),
        recording_failure: RecordingFailure::GoOn,
        onward_ssh: OnwardSsh::Refuse,
        recording_keep: Some(Duration::from_secs(90 * 86_400)),
        recordings: Some(RecordingRights {
            of: vec![USER.into(), "web-*".into()],
            nodes: vec![Selector::parse("env=prod").unwrap()],
            logins: vec!["root".into(), "root+*".into()],
            may: vec![RecordingRight::Play, RecordingRight::Watch],
        }),
        watching: Watching {
            audit: Audit::Files,
            io_uring: Stance::Refuse,
            unwatched: Stance::Allow,
        },
        limits: Limits {
            lifetime: Duration::from_secs(8 * 3600),
            renewal: Some(Duration::from_secs(90 * 86_400)),
            session: Some(Duration::from_secs(3600)),
            sessions: Some(4),
        },
        admin: true,
    }
}

fn vacuum() -> Commands {
    let argv = ["/usr/bin/vacuumdb", "--dbname", "{a1}"];
    let command = Command::define(&argv, &[("a1", "word", None)]).unwrap();
    let limits = CommandLimits {
        timeout: Some(Duration::from_secs(120)),
        concurrency: None,
        output: Some(1 << 20),
    };
    let environment = vec![("LC_ALL".to_owned(), "C".to_owned())];
    let command = command.limited(limits).with_environment(environment).unwrap();
    let mut commands = Commands::new();
    commands.add("vacuum", command).unwrap();
    commands
}

fn dev() -> Role {
    let mut role = Role::new(name("eu.dev"));
    role.nodes = vec![Selector::parse("env=dev").unwrap()];
    role.logins = vec![USER.into()];
    role.kinds.sort();
    role
}

fn lock() -> Lock {
    Lock {
        id: name("l1"),
        target: Target::Login("DOMAIN\\bob".into()),
        serial_before: Some(5),
        expires: Some(7),
        reason: "left".into(),
        created: 3,
        by: "user root".into(),
    }
}

fn state() -> State {
    let mut state = State::new(name("prod"));
    (state.serial, state.as_of) = (7, 1_800_000_000);
    state.trust = Trust {
        user_ca: vec![b"user".to_vec(), b"next".to_vec()],
        host_ca: vec![b"host".to_vec()],
        tls_ca: vec![b"tls".to_vec()],
        state_keys: vec![b"state".to_vec()],
        retiring: vec![Retiring {
            authority: vec![4, 5],
            since: 1_000,
            until: 2_000,
        }],
    };
    state.roles = [dba(), dev()].map(|role| (role.name.clone(), role)).into();
    state.locks = Locks::new([lock()]);
    state.proxies = vec!["proxy.example.com:443".into()];
    state
}

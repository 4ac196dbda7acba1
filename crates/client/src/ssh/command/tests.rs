//! What the command makes of its options, without a connection.

use super::*;
use crate::profile::name_by_id;
use fleetgate_sys::process;

fn options(line: &str) -> Options {
    let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
    match Options::parse(&words) {
        Ok(Invocation::Run(options)) => *options,
        other => panic!("{line}: {other:?}"),
    }
}

#[test]
fn errors_are_said_unless_everything_is_silenced() {
    let failed = SshError::Connect("x".into());
    for (line, said) in [
        ("web1", true),
        ("-o LogLevel=ERROR web1", true),
        ("-o LogLevel=fatal web1", true),
        ("-o LogLevel=QUIET web1", false),
        ("-q web1", false),
    ] {
        assert_eq!(is_said(options(line).level, &failed), said, "{line}");
    }
    assert!(is_said(LogLevel::Quiet, &SshError::Refused("x".into())));
    assert!(options("-o LogLevel=ERROR web1").level < LogLevel::Info);
}

#[test]
fn the_account_database_has_the_name_where_the_environment_has_none() {
    let passwd = std::fs::read_to_string("/etc/passwd").expect("there");
    let id = process::effective_uid().to_string();
    let name = passwd
        .lines()
        .find(|line| line.split(':').nth(2) == Some(id.as_str()))
        .and_then(|line| line.split(':').next());
    if let Some(name) = name {
        assert_eq!(name_by_id().as_deref(), Some(name));
    }
}

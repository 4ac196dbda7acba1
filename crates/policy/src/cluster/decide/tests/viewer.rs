//! The login of who only watches sessions.

use super::*;

#[test]
fn who_only_watches_comes_in_for_that_and_nothing_else() {
    let roles = |may: &[RecordingRight]| {
        let watcher = role("watcher", "nowhere", &[], |r| {
            r.recordings = Some(crate::cluster::RecordingRights {
                of: vec!["*".into()],
                nodes: vec![Selector::parse("env=prod").unwrap()],
                logins: vec!["*".into()],
                may: may.to_vec(),
            });
        });
        let everything = role("everything", "*", &["*", "alice"], |r| {
            r.kinds = Kind::ALL.to_vec()
        });
        BTreeMap::from([watcher, everything])
    };
    let case = alice(&["watcher", "everything"]);
    let decided = |may: &[RecordingRight], container, locks: &Locks| {
        let roles = roles(may);
        decide(&Attempt {
            identity: &case.identity,
            expires: None,
            cluster: &name("c"),
            roles: &roles,
            locks,
            node: &name("db1"),
            labels: &Labels::new(),
            login: VIEWER,
            container,
            now: NOW,
            skew: SKEW,
        })
    };
    let (none, here) = (Locks::default(), ContainerLabels::NoContainers);
    for may in [RecordingRight::Watch, RecordingRight::Join] {
        let allowed = decided(&[may], here, &none).expect("it may watch");
        assert_eq!(allowed.roles, [name("watcher")]);
        for kind in Kind::ALL {
            assert!(allowed.permits.allow_kind(kind).is_err(), "{kind:?}");
        }
    }
    assert!(decided(&[RecordingRight::Play], here, &none).is_err());
    assert!(decided(&[RecordingRight::Watch], ContainerLabels::PlainSshd, &none).is_err());
    let locked = Locks::new(vec![lock("l1", Target::Node(name("db1")), |_| {})]);
    assert!(decided(&[RecordingRight::Watch], here, &locked).is_err());
}
